"""The demo's processes: started with their output in files, and always ended, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from edgebroker.errors import EdgebrokerError
from edgelab.processes import python

END_S_MAX: Final = 20.0  # a gateway that drains needs a second; a Java machine under load several


class DemoProcessFailed(EdgebrokerError):
    """A process of the demo did not do its part; the message has its last words."""


class DemoProcess:
    """One process, a Python module of this installation. Output and messages go to files named after it."""

    def __init__(self, name: str, process: Process, out: Path, log: Path) -> None:
        self.name = name
        self._process = process
        self._is_killed = False
        self._out = out
        self._log = log

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """The exit code, once there is one."""
        return await self._process.wait()

    async def end(self) -> int:
        """Ask it to end (SIGTERM), wait END_S_MAX, and then insist (SIGKILL). The exit code."""
        try:
            if self.returncode is None:
                if not self._is_killed:  # asking whether it lives would take its exit code from who waits for it
                    with suppress(ProcessLookupError):
                        self._process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_S_MAX):
                        return await self.wait()
        finally:
            self.kill()  # also if we are interrupted while we wait
        return await self.wait()

    def kill(self) -> None:
        """End it and what it has started, now, if it still runs. It leads a process group of its own."""
        if self.returncode is None:
            self._is_killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def has_answered(self) -> bool:
        """Whether it has printed a whole line."""
        return b"\n" in self._out.read_bytes()

    def answer(self) -> dict[str, Any]:
        """The JSON object it printed last. Raises ChildFailed if there is none."""
        lines = _lines(self._out)
        try:
            told = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise DemoProcessFailed(self.last_words()) from None
        if not isinstance(told, dict):
            raise DemoProcessFailed(self.last_words())
        return told

    def messages(self) -> list[str]:
        """The lines it has written to stderr so far."""
        return _lines(self._log)

    def last_words(self) -> str:
        """One line for people: how it ended and what it said last."""
        lines = self.messages()
        said = lines[-1] if lines else "it said nothing"
        ended = "runs" if self.returncode is None else f"ended with code {self.returncode}"
        return f"{self.name} {ended}: {said} ({self._log})"


@asynccontextmanager
async def child(name: str, folder: Path, *arguments: str, inside: Sequence[str] = ()) -> AsyncIterator[DemoProcess]:
    """`*inside python -m *arguments`, ended when the block is left.

    Output goes to *folder*/*name*.out, messages to *name*.log. It gets a session of its own: Ctrl-C reaches us
    alone, and we end everything in the right order.
    """
    out, log = folder / f"{name}.out", folder / f"{name}.log"
    with out.open("wb") as out_file, log.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(*inside, *python(), "-m", *arguments),
            stdin=DEVNULL,
            stdout=out_file,
            stderr=log_file,
            start_new_session=True,
        )
    started = DemoProcess(name, process, out, log)
    try:
        yield started
    finally:
        await started.end()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
