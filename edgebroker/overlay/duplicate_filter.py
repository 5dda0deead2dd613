"""The duplicate filter: the clusters for which each recent event was served here. It is the last defence against
loops.

A copy of an event stands for clusters: those that it still has to reach, and, unless it only passes through, the
receiver's own. Every cluster is the responsibility of one copy at a time [SCOT 2.8, I1]. After a link or a gateway
failed, a copy may come twice; then the clusters that it stands for have been seen.
"""

from __future__ import annotations

from edgebroker.limits import SEEN_EVENTS


class DuplicateFilter:
    """The clusters seen of each of the last events: of SEEN_EVENTS at least, and at most of twice as many and a
    series.
    """

    def __init__(self, events: int = SEEN_EVENTS) -> None:
        self._events = events
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def new_clusters(self, publisher: int, sequence: int, clusters: int) -> int:
        """Those of *clusters* (a CIV) for which the event was not seen; from now on they are."""
        key = publisher << 32 | sequence
        seen = self._new.get(key)
        if seen is None:
            if len(self._new) >= self._events:
                self._old, self._new = self._new, {}
            seen = self._old.get(key, 0)
        self._new[key] = seen | clusters
        return clusters & ~seen

    def is_new(self, publisher: int, first: int, count: int, clusters: int) -> bool:
        """Whether nothing was seen of any of *count* events from sequence *first*: then *clusters* are from now on."""
        key = publisher << 32 | first
        keys = range(key, key + count)
        for known in (self._new, self._old):
            if known and not known.keys().isdisjoint(keys):
                return False
        if len(self._new) >= self._events:
            self._old, self._new = self._new, {}
        self._new.update(dict.fromkeys(keys, clusters))
        return True
