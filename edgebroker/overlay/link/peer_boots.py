"""The boots of one peer that this gateway has met. They tell two gateways with the same name from one gateway that
restarted.

A gateway draws a run when it starts, and never comes back with an older one. So if a run comes back after another
was met, two processes say that they are this peer. The first of them has its link back; what the later one says is
refused from then on while the link is open. Without that they would take it from each other as often as they dial.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import MINUTE, NEVER, Duration, Instant
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.handshake import Hello, HelloRefused, RefusalCode

BOOTS_MAX: Final = 8
"""Runs that are remembered: the latest, and the one that had the link before, which may be the first of two."""
TWIN_TIMEOUT: Final[Duration] = 3 * MINUTE
"""Who is refused dials again after a minute at most: for so long the last refusal means that there are still two."""


class PeerBoots:
    """What one link knows of the runs of its peer."""

    __slots__ = ("_counts", "_previous", "_refused_at", "latest", "twin", "twins_refused", "twins_since")

    def __init__(self) -> None:
        self.latest = b""
        """That of the last hello which was taken."""
        self.twins_refused = 0
        """Hellos that were refused because another gateway of this name is linked."""
        self.twins_since: Instant = 0
        """When the first of them came, of those that came one after the other."""
        self.twin = ""
        """What the last of them was told."""
        self._refused_at: Instant = -NEVER
        self._previous = b""  # the run that had the link before the latest
        self._counts: dict[bytes, int] = {}  # run -> count of its last hello, in the order in which they were met

    def record(self, hello: Hello) -> None:
        """*hello* is taken."""
        if hello.run != self.latest:
            self._previous, self.latest = self.latest, hello.run
        self._counts[hello.run] = hello.count
        while len(self._counts) > BOOTS_MAX:
            del self._counts[next(run for run in self._counts if run not in (self.latest, self._previous))]

    def check(self, hello: Hello, stream: LinkConnection, linked: LinkConnection | None, now: Instant) -> None:
        """Whether *hello*, which came over *stream*, may have the link from *linked*, which has it now. Raises
        HelloRefused.
        """
        count = self._counts.get(hello.run, -1)
        if hello.count <= count:
            raise HelloRefused(RefusalCode.STALE, f"hello {hello.count} of {hello.name} came after hello {count}")
        if linked is None or hello.run == self.latest:
            return
        if not self.has_twin(now):
            if not self._is_later(hello.run):
                return
            self.twins_since = now
        self.twins_refused += 1
        self._refused_at = now
        self.twin = (
            f"two gateways are called {hello.name!r}: one is linked with {hello.to}{at(linked.address)}, another one"
            f" dials{at(stream.address)}, and is refused; each needs a name of its own"
        )
        raise HelloRefused(RefusalCode.TWIN, self.twin)

    def has_twin(self, now: Instant) -> bool:
        """Whether there are two, as far as anybody can say."""
        return now < self._refused_at + TWIN_TIMEOUT

    def _is_later(self, run: bytes) -> bool:
        """Whether *run* was met, and for the first time after the one that has the link."""
        order = list(self._counts)
        return run in order and order.index(run) > order.index(self.latest)


def at(where: str) -> str:
    """Where somebody is, if that is known."""
    return f" from {where}" if where else ""
