"""The last events of each flow that were sent to each cluster: the predecessors of those that follow.

An event that leaves on another path than the one before it names its predecessor (`Forward.predecessors`), so that the
gateway at which both arrive can put them in order. Events of QoS 0 may be lost, others wait for what surely arrives, so
the two have predecessors of their own kind.

A flow is what one publisher sends under one advertisement. Its events leave in the order of their sequences. Those of
another flow of the publisher may wait for the answers of clusters and leave later than events with higher sequences, so
they are no predecessors.

Only the last event for each set of receivers is remembered: a flow whose events are wanted in two sites has two or
three entries. One that is dropped before it is sent is forgotten, and the one before it for another set takes its
place.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import SECOND, Duration, Instant

KEPT: Final[Duration] = 15 * SECOND
"""How long an event is remembered at least, and at most twice as long. After that it has arrived, or never will."""


def flow_number(publisher: int, adv: int) -> int:
    """Return the number of the flow of *publisher* under the advertisement *adv*."""
    return publisher << 32 | adv


class SentEvents:
    """The last events that were sent to each of several receivers: clusters, or gateways. Receivers are named by a bit
    in a vector.
    """

    def __init__(self) -> None:
        # flow -> {receivers * 2 + whether it is of QoS 1 or 2: the sequence of the last such event}
        self._recent: dict[int, dict[int, int]] = {}
        self._older: dict[int, dict[int, int]] = {}
        self._turn_at: Instant = 0

    def add(self, flow: int, sequence: int, receivers: int, is_reliable: bool, now: Instant) -> None:
        """Record that the event of *flow* was sent to *receivers*. *is_reliable*: it is of QoS 1 or 2."""
        if now >= self._turn_at:
            self._older = self._recent if now < self._turn_at + KEPT else {}
            self._recent = {}
            self._turn_at = now + KEPT
        last = self._recent.get(flow)
        if last is None:
            last = self._recent[flow] = {}
        last[receivers << 1 | is_reliable] = sequence

    def distance(self, flow: int, sequence: int, receiver: int, is_reliable: bool) -> int:
        """Return how much smaller the sequence is of the previous event of *flow* of the same kind for *receiver*,
        the number of a bit; 0 if none is remembered.
        """
        last = 0
        for events in (self._recent, self._older):
            for key, sent in events.get(flow, {}).items():
                if key & 1 == is_reliable and key >> receiver + 1 & 1 and last < sent < sequence:
                    last = sent
        return sequence - last if last else 0

    def discard(self, flow: int, sequence: int) -> None:
        """Forget an event that was dropped before it was sent."""
        for events in (self._recent, self._older):
            last = events.get(flow, {})
            for key in [key for key, sent in last.items() if sent == sequence]:
                del last[key]
