"""Records that count together or not at all (TOGETHER, WHOLE, UNDONE): taken in when it is sure which."""

from __future__ import annotations

from collections.abc import Callable

from edgebridge.session.records import Kind

_TOGETHER, _WHOLE, _UNDONE = int(Kind.TOGETHER), int(Kind.WHOLE), int(Kind.UNDONE)  # a member is looked up by a call


class Grouped:
    """Hands records on to *take_in*, those of a group only when it is whole."""

    def __init__(self, take_in: Callable[[int, bytes], None]) -> None:
        self._take_in = take_in
        self._group: list[tuple[int, bytes]] | None = None
        self._last = 0

    @property
    def is_open(self) -> bool:
        """Whether the last group has no end: unless UNDONE comes next, what follows would be taken for a part of it."""
        return self._group is not None

    def take(self, lsn: int, record: bytes) -> None:
        """The record numbered *lsn*. If some before it are missing, they are damaged, and a group lost its end."""
        if self._group is not None and lsn != self._last + 1:
            self._end()
        self._last = lsn
        kind = record[0] if record else None  # an empty one is not understood, like any other that is not
        if kind == _TOGETHER:
            self._end()
            self._group = []
        elif kind == _WHOLE:
            self._end()
        elif kind == _UNDONE:
            self._group = None
        elif self._group is None:
            self._take_in(lsn, record)
        else:
            self._group.append((lsn, record))

    def _end(self) -> None:
        group, self._group = self._group, None
        for lsn, record in group or ():
            self._take_in(lsn, record)
