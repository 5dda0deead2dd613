"""The last events that local publishers sent to each cluster: the predecessors of those that follow.

An event that leaves on another path than the one before it names its predecessor (`Forward.predecessors`), so that the
gateway at which both arrive can put them in order. Events of QoS 0 may be lost, others wait for what surely arrives, so
the two have predecessors of their own kind.

Only the last event for each set of receivers is remembered: a publisher whose events are wanted in two sites has two or
three entries. One that is dropped before it is sent is forgotten, and the one before it for another set takes its
place.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import SECOND, Duration, Instant

KEPT: Final[Duration] = 15 * SECOND
"""How long an event is remembered at least, and at most twice as long. After that it has arrived, or never will."""


class SentEvents:
    """The last events that were sent to each of several receivers: clusters, or gateways. Receivers are named by a bit
    in a vector.
    """

    def __init__(self) -> None:
        # publisher -> {receivers * 2 + whether it is of QoS 1 or 2: the sequence of the last such event}
        self._recent: dict[int, dict[int, int]] = {}
        self._older: dict[int, dict[int, int]] = {}
        self._turn_at: Instant = 0

    def add(self, publisher: int, sequence: int, receivers: int, is_reliable: bool, now: Instant) -> None:
        """Record that the event was sent to *receivers*. *is_reliable*: it is of QoS 1 or 2."""
        if now >= self._turn_at:
            self._older = self._recent if now < self._turn_at + KEPT else {}
            self._recent = {}
            self._turn_at = now + KEPT
        last = self._recent.get(publisher)
        if last is None:
            last = self._recent[publisher] = {}
        last[receivers << 1 | is_reliable] = sequence

    def distance(self, publisher: int, sequence: int, receiver: int, is_reliable: bool) -> int:
        """Return how much smaller the sequence is of the publisher's previous event of the same kind for *receiver*,
        the number of a bit; 0 if none is remembered.
        """
        last = 0
        for events in (self._recent, self._older):
            for key, sent in events.get(publisher, {}).items():
                if key & 1 == is_reliable and key >> receiver + 1 & 1 and last < sent < sequence:
                    last = sent
        return sequence - last if last else 0

    def discard(self, publisher: int, sequence: int) -> None:
        """Forget an event that was dropped before it was sent."""
        for events in (self._recent, self._older):
            last = events.get(publisher, {})
            for key in [key for key, sent in last.items() if sent == sequence]:
                del last[key]
