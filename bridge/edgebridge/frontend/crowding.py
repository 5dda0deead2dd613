"""What is refused because too much waits for a gateway: here, or at another gateway on the way there."""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.header import Header
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.node.forwarding import forward_of
from edgebroker.node.peereffects import Send
from edgebroker.node.peers import AT_HOME, Peers
from edgebroker.overlay.link.links import Links
from edgebroker.publication import Publication

TOLD_EVERY: Final[Duration] = SECOND
"""So often at most others are told that a neighbour for whom too much waits wants something else now."""


@dataclass(slots=True)
class _Told:
    interests: tuple[Interest, ...]
    epoch: int
    at: Instant


class Crowding:
    """The outboxes of one gateway, and what others say of theirs."""

    def __init__(self, links: Links, peers: Peers) -> None:
        self._links = links
        self._peers = peers
        self._crowds = peers.neighbourhood.crowds
        self._outboxes = [(peer, links[peer].outbox) for peer in peers.gateway.neighbours]
        self._told: dict[str, _Told] = {}

    def is_tight(self, size: int) -> bool:
        """Whether an event of *size* bytes by a local client may have to be refused."""
        return self._crowds.is_any or self._links.is_tight(size)

    def full(self, publication: Publication) -> str:
        """The gateway that *publication*, by a local client, is for and for which too much waits; empty if there is
        none.
        """
        size = publication.held_bytes()
        if not self.is_tight(size) or publication.topic.startswith(AT_HOME):
            return ""
        if full := [link.peer for link in self._links if not link.outbox.has_room(size)]:
            bound = self._peers.bound_for(publication)
            for peer in full:
                if peer in bound:
                    return peer
        return self._full_elsewhere(publication) if self._crowds.is_any else ""

    def _full_elsewhere(self, publication: Publication) -> str:
        forward = forward_of(publication, Header(0, 0, 0, 0), b"", publication.accepted_at)
        forwarding = self._peers.forwarding
        return self._crowds.refusing(publication.topic, lambda names: forwarding.attributes(forward, names))

    def look(self, now: Instant) -> list[Send]:
        """Tell others what has become crowded, and what has room again."""
        sends: list[Send] = []
        for peer, outbox in self._outboxes:
            if not outbox.is_crowded and peer not in self._told:
                continue
            if outbox.is_crowded:
                outbox.relieve()
            sends += self._tell(peer, now) if outbox.is_crowded else self._take_back(peer)
        return sends

    def _tell(self, peer: str, now: Instant) -> list[Send]:
        told, interests = self._told.get(peer), self._peers.interests
        if told is not None and (told.epoch == interests.epoch or now < told.at + TOLD_EVERY):
            return []
        wanted = interests.held(peer)
        is_news = told is None or told.interests != wanted
        self._told[peer] = _Told(wanted, interests.epoch, now)
        return self._peers.neighbourhood.crowd(peer, wanted) if is_news else []

    def _take_back(self, peer: str) -> list[Send]:
        del self._told[peer]
        return self._peers.neighbourhood.crowd(peer, ())
