"""An input that did what none may do: how it is told, repeated, and made small."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .guidance import place_of
from .target import Target

TRIES_MAX = 3_000
"""Inputs that are tried to find a smaller one; a few seconds."""
TRIES_S = 10.0
"""And no longer, by the clock: each try with an input that takes too long takes LOOK_S."""
LOOK_S = 2.0
"""Processor time after which somebody looks whether the input is still the same: then it is a finding too."""


class TooSlow(BaseException):
    """One input keeps the processor. No reader can take it for something of its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """*data* made *target* raise *error*, which is none of its refusals."""

    target: Target
    data: bytes
    error: BaseException
    number: int = 0

    def __str__(self) -> str:
        told = "".join(traceback.format_exception(self.error)[-9:])[-3_000:]
        command = f".venv/bin/python -m tests.fuzz.frame {self.target.name} --repeat {self.data.hex() or '-'}"
        return (
            f"{self.target.name}: input {self.number}, {len(self.data)} bytes: {self.data[:200]!r}\n{told}\n{command}"
        )


def finding_of(target: Target, data: bytes, number: int = 0) -> Finding | None:
    """What is wrong with *target* and *data*, if anything is. Takes LOOK_S of processor time at most."""
    with watched(lambda: 0):
        try:
            target.read(data)
        except target.refusals:
            return None
        except (Exception, TooSlow) as error:
            return Finding(target, data, error, number)
    return None


class watched:
    """Raises TooSlow inside if, after LOOK_S of processor time, *number* is what it was LOOK_S before."""

    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number
        self._seen = 0
        self._before: object = None

    def __enter__(self) -> None:
        self._seen = self._number()
        self._before = signal.signal(signal.SIGVTALRM, self._look)
        signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_S, LOOK_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)  # type: ignore[arg-type]

    def _look(self, *_: object) -> None:
        number = self._number()
        if number == self._seen:
            raise TooSlow(f"more than {LOOK_S} s of processor time")
        self._seen = number


def shrunk(finding: Finding) -> Finding:
    """The smallest input found that is wrong in the same place."""
    place, tries, ends = place_of(finding.error), 0, time.monotonic() + TRIES_S
    is_smaller = True
    while is_smaller and tries < TRIES_MAX and time.monotonic() < ends:
        is_smaller = False
        for data in _smaller(finding.data):
            tries += 1
            found = finding_of(finding.target, data, finding.number)
            if found is not None and place_of(found.error) == place:
                finding, is_smaller = found, True
                break
            if tries >= TRIES_MAX or time.monotonic() >= ends:
                return finding
    return finding


def _smaller(data: bytes) -> Iterator[bytes]:
    """Shorter ones first, then plainer ones."""
    part = len(data)
    while part:
        for at in range(0, len(data), part):
            yield data[:at] + data[at + part :]
        part //= 2
    for at, octet in enumerate(data):
        for plain in b"0a":
            if octet > plain and octet not in b"0a":
                yield data[:at] + bytes([plain]) + data[at + 1 :]
