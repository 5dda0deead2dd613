"""A child on the generator's core that answers every line with a line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from typing import IO, Any, Final

from ...pythonchild import python
from ..processes import child

ANSWER_S: Final = 30  # the slowest preparation takes 5 s; after this a child counts as hung


class HelperFailed(Exception):
    """A child ended, hung, or had its clients thrown out."""


class Helper:
    """A child that answers every line with a line."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._name, self._process, self._errors = name, process, errors
        self._in, self._out = process.stdin, process.stdout

    def ask(self, line: str) -> dict[str, Any]:
        """Say *line*; the answer."""
        try:
            self._in.write(line.encode() + b"\n")
            self._in.flush()
        except BrokenPipeError:
            raise HelperFailed(f"the {self._name} ended: {self._last_words()}") from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next answer. Raises HelperFailed."""
        line = self._out.readline()
        if not line:
            raise HelperFailed(f"the {self._name} ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise HelperFailed(f"the {self._name}: {answer['failure']}")
        return answer

    def _last_words(self) -> str:
        self._process.wait(ANSWER_S)
        self._errors.seek(0)
        return (self._errors.read().decode(errors="replace").strip().splitlines() or ["without a word"])[-1]


@contextlib.contextmanager
def helper(core: int, module: str, *arguments: str) -> Iterator[Helper]:
    """A child that runs *module*, of this package, on *core*."""
    command = [*python(), "-m", f"{__package__}.{module}", *arguments]
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors, child(command, core, {}, pipe, pipe, errors) as process:
        yield Helper(module, process, errors)
