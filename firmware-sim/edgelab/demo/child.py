"""The demo's processes: started with their output in files, and ended in every case."""

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

END_S_MAX: Final = 20.0  # a gateway that drains needs a second; a Java process under load several


class DemoProcessFailed(EdgebrokerError):
    """A process of the demo failed; the message contains the end of its output."""


class DemoProcess:
    """One process, a Python module of this installation. Output and messages are written to files named after it."""

    def __init__(self, name: str, process: Process, out: Path, log: Path) -> None:
        self.name = name
        self._process = process
        self._is_killed = False
        self._out = out
        self._log = log

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the end of the process and return the exit code."""
        return await self._process.wait()

    async def end(self) -> int:
        """Send SIGTERM, wait END_S_MAX, and then send SIGKILL. Returns the exit code."""
        try:
            if self.returncode is None:
                if not self._is_killed:  # a poll would take the exit code from the task that waits for it
                    with suppress(ProcessLookupError):
                        self._process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_S_MAX):
                        return await self.wait()
        finally:
            self.kill()  # also if this task is cancelled while it waits
        return await self.wait()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, if it still runs. It leads a process group of its own."""
        if self.returncode is None:
            self._is_killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def has_answered(self) -> bool:
        """Return whether it has printed a complete line."""
        return b"\n" in self._out.read_bytes()

    def answer(self) -> dict[str, Any]:
        """Return the JSON object that it printed last. Raises DemoProcessFailed if there is none."""
        lines = _lines(self._out)
        try:
            told = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise DemoProcessFailed(self.last_words()) from None
        if not isinstance(told, dict):
            raise DemoProcessFailed(self.last_words())
        return told

    def messages(self) -> list[str]:
        """Return the lines that it has written to stderr so far."""
        return _lines(self._log)

    def last_words(self) -> str:
        """Return one line with its exit code and its last message."""
        lines = self.messages()
        last_line = lines[-1] if lines else "it said nothing"
        ended = "runs" if self.returncode is None else f"ended with code {self.returncode}"
        return f"{self.name} {ended}: {last_line} ({self._log})"


@asynccontextmanager
async def child(name: str, folder: Path, *arguments: str, inside: Sequence[str] = ()) -> AsyncIterator[DemoProcess]:
    """Run `*inside python -m *arguments`, and end it when the block is left.

    Output is written to *folder*/*name*.out, messages to *name*.log. It has a session of its own: only the demo
    receives Ctrl-C, and ends all processes in the right order.
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
