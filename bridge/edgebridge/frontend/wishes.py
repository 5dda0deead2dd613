"""What the neighbours of a gateway want, as the journal knows it.

A neighbour that is dead when the gateway restarts cannot say it. Its sessions are owed what is acknowledged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from edgebridge.frontend.keeping import Keeping
from edgebroker.instants import Instant
from edgebroker.interest import Interest
from edgebroker.node.peereffects import Learned
from edgebroker.node.peers import Peers
from edgebroker.overlay.link.records import learned_record

AT_ONCE: Final = 8
"""Interests in one record of a snapshot: 60 us."""


class Wishes:
    """Those of one gateway's neighbours."""

    def __init__(self, keeping: Keeping, peers: Peers, stored: Mapping[str, Iterable[Interest]]) -> None:
        """*stored*: what an earlier run left."""
        self._keeping = keeping
        self._peers = peers
        self._stored = stored

    def take_stored(self) -> Mapping[str, Iterable[Interest]]:
        """What an earlier run left, by neighbour; it is not kept any longer."""
        stored, self._stored = self._stored, {}
        return stored

    def learned(self, learned: Learned, now: Instant) -> None:
        """A neighbour wants more, or less."""
        if self._keeping.journal is not None:
            change = learned.change
            self._keeping.append(learned_record(learned.peer, change.announce, change.withdraw), False, now)

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again. What is withdrawn meanwhile is not."""
        interests = self._peers.interests
        for peer in self._peers.gateway.neighbours:
            held = interests.held(peer)
            for at in range(0, len(held), AT_ONCE):
                yield learned_record(peer, [one for one in held[at : at + AT_ONCE] if interests.holds(peer, one)], ())
