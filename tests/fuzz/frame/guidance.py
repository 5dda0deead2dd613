"""Which inputs are worth keeping: those that reach what none has reached before.

A refusal shows for nothing where it was raised: the lines of its traceback are looked at for every input. All other
lines are seen by tracing, which costs twenty times the reading, so only a sample of the inputs is traced. What is
compiled shows the lines of its refusals alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import edgebridge
import edgebroker

Spot = tuple[str, int]
"""A function and a line of it, or an exception and the line that raised it."""
_OURS = tuple(str(Path(next(iter(package.__path__))).resolve()) for package in (edgebroker, edgebridge))
_ALWAYS = 1_000  # inputs at the beginning of a run of which one in four is traced
_SAMPLE = 32  # later one in so many


class Guidance:
    """What was reached so far."""

    def __init__(self) -> None:
        self.reached: set[object] = set()
        self._known: dict[CodeType, bool] = {}

    def is_new(self, number: int, read: Callable[[bytes], object], data: bytes, error: Exception | None) -> bool:
        """Whether *data*, input *number*, of which *error* came, reached something new."""
        before = len(self.reached)
        if error is not None:
            self.reached.add((type(error).__name__, *_places(error.__traceback__)))
        if len(self.reached) > before or number % (4 if number < _ALWAYS else _SAMPLE) == 0:
            self._trace(read, data)
        return len(self.reached) > before

    def _trace(self, read: Callable[[bytes], object], data: bytes) -> None:
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            read(data)
        except Exception:
            pass  # it was judged when it was read without being watched
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        is_ours = self._known.get(code)
        if is_ours is None:
            is_ours = self._known[code] = code.co_filename.startswith(_OURS)
        return self._line if is_ours else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.reached.add((frame.f_code, frame.f_lineno))
        return self._line


def _places(trace: TracebackType | None) -> list[Spot]:
    places = []
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_qualname, trace.tb_lineno))
        trace = trace.tb_next
    return places[:8] + places[-2:]  # a recursion is one place, however deep it is


def place_of(error: BaseException) -> tuple[str, object]:
    """What tells one finding from another: the exception, and the line that raised it."""
    places = _places(error.__traceback__)
    return type(error).__name__, places[-1] if places else None
