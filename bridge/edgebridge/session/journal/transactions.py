"""Transactions in the journal: records between TOGETHER and WHOLE are applied all together; UNDONE discards them."""

from __future__ import annotations

from collections.abc import Callable

from edgebridge.session.journal.session_records import SessionRecordKind

_BEGIN, _COMMIT, _ABORT = (
    int(SessionRecordKind.TOGETHER),
    int(SessionRecordKind.WHOLE),
    int(SessionRecordKind.UNDONE),
)  # a member is looked up by a call


class TransactionBuffer:
    """Hands records on to *take_in*, those of a group only when it is whole."""

    def __init__(self, take_in: Callable[[int, bytes], None]) -> None:
        self._take_in = take_in
        self._transaction: list[tuple[int, bytes]] | None = None
        self._last = 0

    @property
    def is_open(self) -> bool:
        """Whether the last group has no end: unless UNDONE comes next, what follows would be taken for a part of it."""
        return self._transaction is not None

    def append(self, lsn: int, record: bytes) -> None:
        """The record numbered *lsn*. If some before it are missing, they are damaged, and a group lost its end."""
        if self._transaction is not None and lsn != self._last + 1:
            self._end()
        self._last = lsn
        kind = record[0] if record else None  # an empty one is not understood, like any other that is not
        if kind == _BEGIN:
            self._end()
            self._transaction = []
        elif kind == _COMMIT:
            self._end()
        elif kind == _ABORT:
            self._transaction = None
        elif self._transaction is None:
            self._take_in(lsn, record)
        else:
            self._transaction.append((lsn, record))

    def _end(self) -> None:
        group, self._transaction = self._transaction, None
        for lsn, record in group or ():
            self._take_in(lsn, record)
