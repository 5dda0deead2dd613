"""Transactions of the journal: records that are on disk together, or of which none counts after a crash."""

from __future__ import annotations

from collections import deque


class PendingTransactions:
    """The groups whose records are on their way to the disk."""

    def __init__(self) -> None:
        self._spans: deque[tuple[int, int]] = deque()  # first and last record
        self._first = 0

    def begin(self, lsn: int) -> None:
        """A group begins with record *lsn*."""
        self._first = lsn

    def commit(self, lsn: int) -> None:
        """It ends with record *lsn*."""
        self._spans.append((self._first, lsn))

    def durable_lsn(self, synced: int) -> int:
        """How far what is on disk counts, if the records up to *synced* are: not into the middle of a group."""
        spans = self._spans
        while spans and spans[0][1] <= synced:
            spans.popleft()
        return min(synced, spans[0][0] - 1) if spans else synced
