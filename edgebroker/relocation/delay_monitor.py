"""The delay monitor of a gateway: how long its latest events waited in queues, worked and travelled [GRAPE 4.1].

It is shared by all publishers, so its size does not depend on their number. Waiting times are medians: a burst, or a
detour around a congested link, distorts a mean for a long time (docs/relocation.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from edgebroker.instants import Duration
from edgebroker.trace_records import QueueDelays

SAMPLES: Final = 101
"""The latest samples of each queue, about one trace session; an odd number, so that the median is one of them."""


class DelayMonitor:
    """The latest waiting times of one gateway."""

    __slots__ = ("_clients", "_input", "_links", "_matching", "_outputs")

    def __init__(self, peers: Iterable[str]) -> None:
        self._input: deque[Duration] = deque(maxlen=SAMPLES)
        self._matching: deque[Duration] = deque(maxlen=SAMPLES)
        self._clients: deque[Duration] = deque(maxlen=SAMPLES)
        self._outputs: dict[str, deque[Duration]] = {peer: deque(maxlen=SAMPLES) for peer in peers}
        self._links: dict[str, Duration] = {}

    def add_input(self, waited: Duration, matched: Duration) -> None:
        """Add the wait of an event in the input queue, and the time in which its readers were found."""
        self._input.append(waited)
        self._matching.append(matched)

    def add_output(self, peer: str, waited: Duration) -> None:
        """Add the wait of a copy for *peer*. Raises KeyError if it is no peer."""
        self._outputs[peer].append(waited)

    def add_clients(self, waited: Duration) -> None:
        """Add the mean wait of the copies of an event for local clients."""
        self._clients.append(waited)

    def set_link(self, peer: str, one_way: Duration) -> None:
        """Set the time on the way to *peer*, half the round trip of a heartbeat."""
        self._links[peer] = one_way

    def snapshot(self) -> QueueDelays:
        """Return the delays now: medians of waits, the mean of matching. What was never measured is 0."""
        return QueueDelays(
            _median(self._input),
            sum(self._matching) // max(1, len(self._matching)),
            _median(self._clients),
            {peer: _median(waits) for peer, waits in self._outputs.items() if waits} or None,
            dict(self._links) or None,
        )


def _median(waits: deque[Duration]) -> Duration:
    return sorted(waits)[len(waits) // 2] if waits else 0
