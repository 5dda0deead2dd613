"""The duplicate filter: the clusters for which each recent event was handled at this gateway. It is the last defence
against loops.

A copy of an event is responsible for clusters: those that it still has to reach, and, unless it only passes through,
the receiver's own. Each cluster is the responsibility of one copy at a time [SCOT 2.8, I1]. After a link or a gateway
failed, a copy may arrive twice; then its clusters have been seen.
"""

from __future__ import annotations

from edgebroker.limits import SEEN_EVENTS


class DuplicateFilter:
    """The clusters seen of each of the last events: of SEEN_EVENTS at least, and at most of twice as many and a
    series.
    """

    def __init__(self, events: int = SEEN_EVENTS) -> None:
        self._events = events
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def has(self, publisher: int, sequence: int, clusters: int) -> bool:
        """Return whether the event was seen for any of *clusters*."""
        key = publisher << 32 | sequence
        return bool((self._recent.get(key) or self._older.get(key, 0)) & clusters)

    def new_clusters(self, publisher: int, sequence: int, clusters: int) -> int:
        """Return those of *clusters* (a CIV) for which the event was not seen yet, and mark all of them as seen."""
        key = publisher << 32 | sequence
        seen = self._recent.get(key)
        if seen is None:
            if len(self._recent) >= self._events:
                self._older, self._recent = self._recent, {}
            seen = self._older.get(key, 0)
        self._recent[key] = seen | clusters
        return clusters & ~seen

    def is_new(self, publisher: int, first: int, count: int, clusters: int) -> bool:
        """Return whether none of *count* events from sequence *first* was seen; if so, mark *clusters* as seen for all
        of them.
        """
        key = publisher << 32 | first
        keys = range(key, key + count)
        for known in (self._recent, self._older):
            if known and not known.keys().isdisjoint(keys):
                return False
        if len(self._recent) >= self._events:
            self._older, self._recent = self._recent, {}
        self._recent.update(dict.fromkeys(keys, clusters))
        return True

    def last_sequences(self, clusters: int) -> dict[int, int]:
        """Return the publishers of the events that were seen for any of *clusters*, each with its last sequence."""
        last: dict[int, int] = {}
        for events in (self._older, self._recent):
            for key, seen in events.items():
                if seen & clusters and key & 0xFFFF_FFFF > last.get(key >> 32, 0):
                    last[key >> 32] = key & 0xFFFF_FFFF
        return last
