"""The boots of one peer that connected to this gateway. They distinguish two gateways with the same name from one
gateway that restarted.

A gateway draws a random boot id at its start and never uses an older one again. So if a boot id returns after another
one, two processes use the name of this peer. The first of them keeps the link; hellos of the later one are refused
while the link is open. Otherwise each would take the link from the other with every dial.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import MINUTE, NEVER, Duration, Instant
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.handshake import Hello, HelloRefused, RefusalCode

BOOTS_MAX: Final = 8
"""Boots that are remembered; the latest and the previous one, which may be the first of two twins, are always kept."""
TWIN_TIMEOUT: Final[Duration] = 3 * MINUTE
"""A refused peer dials again after a minute at most; after this time without a refusal there is no twin any more."""


class PeerBoots:
    """The boots of the peer of one link."""

    __slots__ = ("_counts", "_previous", "_refused_at", "latest", "twin", "twins_refused", "twins_since")

    def __init__(self) -> None:
        self.latest = b""
        """The boot id of the last accepted hello."""
        self.twins_refused = 0
        """Hellos refused because another gateway of this name is linked."""
        self.twins_since: Instant = 0
        """The instant of the first refusal in the current row."""
        self.twin = ""
        """The text of the last refusal."""
        self._refused_at: Instant = -NEVER
        self._previous = b""  # the boot id that had the link before the latest
        self._counts: dict[bytes, int] = {}  # boot id -> count of its last hello, in order of the first hello

    def record(self, hello: Hello) -> None:
        """Record *hello*, which was accepted."""
        if hello.run != self.latest:
            self._previous, self.latest = self.latest, hello.run
        self._counts[hello.run] = hello.count
        while len(self._counts) > BOOTS_MAX:
            del self._counts[next(run for run in self._counts if run not in (self.latest, self._previous))]

    def check(self, hello: Hello, connection: LinkConnection, linked: LinkConnection | None, now: Instant) -> None:
        """Check whether *hello*, received on *connection*, may take the link over from *linked*. Raises
        HelloRefused.
        """
        count = self._counts.get(hello.run, -1)
        if hello.count <= count:
            raise HelloRefused(RefusalCode.STALE, f"hello {hello.count} of {hello.name} came after hello {count}")
        if linked is None or hello.run == self.latest:
            return
        if not self.has_twin(now):
            if not self._is_twin(hello.run):
                return
            self.twins_since = now
        self.twins_refused += 1
        self._refused_at = now
        self.twin = (
            f"two gateways are called {hello.name!r}: one is linked with {hello.to}{at(linked.address)}, another one"
            f" dials{at(connection.address)}, and is refused; each needs a name of its own"
        )
        raise HelloRefused(RefusalCode.TWIN, self.twin)

    def has_twin(self, now: Instant) -> bool:
        """Return whether a twin was refused within the last TWIN_TIMEOUT."""
        return now < self._refused_at + TWIN_TIMEOUT

    def _is_twin(self, run: bytes) -> bool:
        """Return whether *run* connected before, and for the first time after the one that has the link."""
        order = list(self._counts)
        return run in order and order.index(run) > order.index(self.latest)


def at(where: str) -> str:
    """Return " from *where*", or nothing if *where* is not known."""
    return f" from {where}" if where else ""
