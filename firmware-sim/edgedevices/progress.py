"""The progress of a run for people: one line on stderr that is overwritten. Programs do not get it."""

from __future__ import annotations

import sys
from typing import IO, Protocol

from edgedevices.ledger import MessageLedger

PLAIN_EVERY_S = 5.0  # less often where lines accumulate in a file or a log


class RunProgress(Protocol):
    """Shows the state of a run; called twice a second."""

    def show(self, ledger: MessageLedger, devices: int, seconds: float) -> None:
        """Shows the state after *seconds*."""
        ...

    def close(self) -> None:
        """Restores the terminal."""
        ...


class NoProgress:
    """Shows nothing."""

    def show(self, ledger: MessageLedger, devices: int, seconds: float) -> None:
        """See `RunProgress`."""

    def close(self) -> None:
        """See `RunProgress`."""


class LiveProgress:
    """A line that is overwritten on a terminal, with a spinner where rich is installed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        try:
            from rich.console import Console
        except ImportError:
            self._status = None
        else:
            self._status = Console(file=stream).status("connecting")
            self._status.start()

    def show(self, ledger: MessageLedger, devices: int, seconds: float) -> None:
        """See `RunProgress`."""
        text = describe(ledger, devices, seconds)
        if self._status is not None:
            self._status.update(text)
        else:
            self._stream.write(f"\r{text}\x1b[K")
            self._stream.flush()

    def close(self) -> None:
        """See `RunProgress`."""
        if self._status is not None:
            self._status.stop()
        else:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class PlainProgress:
    """One line every few seconds, for logs."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._next_s = 0.0

    def show(self, ledger: MessageLedger, devices: int, seconds: float) -> None:
        """See `RunProgress`."""
        if seconds >= self._next_s:
            self._next_s = seconds + PLAIN_EVERY_S
            self._stream.write(describe(ledger, devices, seconds) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """See `RunProgress`."""


def describe(ledger: MessageLedger, devices: int, seconds: float) -> str:
    """Returns the state of a run in at most 120 characters."""
    parts = [
        f"{seconds:5.0f} s",
        f"{ledger.online}/{devices} online",
        f"{ledger.published.total():,} published",
        f"{ledger.acknowledged.total():,} acknowledged",
        f"{ledger.open:,} open",
        f"{ledger.failed.total():,} failed",
        f"{ledger.reconnects:,} reconnects",
    ]
    return " · ".join(parts)


def progress_for(wanted: bool | None) -> RunProgress:
    """Returns the progress for *wanted*; None: if stderr is a terminal."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return NoProgress()
    return LiveProgress(sys.stderr) if terminal else PlainProgress(sys.stderr)
