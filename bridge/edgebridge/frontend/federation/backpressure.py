"""Backpressure of a federation: refuses events for a gateway for which too much waits, here or on the way.

`PeerBackpressure` refuses events of local clients and tells other gateways of full outboxes. `CongestionSampler`
counts what enters and leaves the queues of links, window by window, for dynamic routing [SCOT 2.7]. While nothing
waits for any link, there are no windows and no timer. What a link holds back to send it in one batch does not count
as waiting. What was sent and should have been acknowledged does: it waits where this gateway does not see it, in the
buffer of a proxy or at a peer whose disk is slow.
"""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebroker.dataclasses import dataclass
from edgebroker.federation.backpressure import ANYTHING
from edgebroker.federation.effects import Effect, SendMessage
from edgebroker.federation.forwarding import forward_of
from edgebroker.federation.router import FederationRouter
from edgebroker.header import EventHeader
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.overlay.congestion import WINDOW, QueueSample
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.traffic_class import SHARED
from edgebroker.publication import Publication
from edgebroker.topics import is_reserved

ANNOUNCE_INTERVAL: Final[Duration] = SECOND
"""So often at most others are told that a neighbour for whom too much waits wants something else now."""


@dataclass(slots=True)
class _AnnouncedBackpressure:
    interests: tuple[Interest, ...]
    epoch: int
    at: Instant


class PeerBackpressure:
    """The outboxes of one gateway, and what others say of theirs."""

    def __init__(self, links: LinkTable, peers: FederationRouter) -> None:
        self._links = links
        self._peers = peers
        self._backpressure_table = peers.gossip.backpressure
        self._waiting_room = links.waiting_room()
        self.outboxes = [(link.peer, link.outbox) for link in links]
        self.announced: dict[str, _AnnouncedBackpressure] = {}
        """By peer with a full outbox: what other gateways have been told of it."""

    def may_refuse(self, size: int, count: int = 1) -> bool:
        """Whether one of *count* events by a local client, of *size* bytes in all, may have to be refused."""
        return self._backpressure_table.is_active or self._links.lacks_room(size, count)

    def can_wait(self, size: int) -> bool:
        """Return whether an event of *size* bytes, which its publisher is told that we have, may wait for answers: all
        that wait must find room in every outbox later.
        """
        pending, (messages, octets) = self._peers.region.pending, self._waiting_room
        return pending.count < messages and pending.bytes + size <= octets

    def full_peer(self, publication: Publication) -> str:
        """The gateway that *publication*, by a local client, is for and for which too much waits; empty if there is
        none.
        """
        size = publication.held_bytes()
        if not self.may_refuse(size) or is_reserved(publication.topic):
            return ""
        full = {link.peer for link in self._links if not link.outbox.has_room(size)}
        if full and (wanted := full & {send.peer for send in self._peers.next_copies(publication, is_known=True)}):
            return min(wanted)
        spent = {peer for peer in full if not self._links[peer].outbox.has_reserve(size)}
        if spent or self._backpressure_table.has_full_uplinks:
            for send in self._peers.next_copies(publication):
                detoured = self._peers.forwarder.clusters_around(send)
                peer = send.peer if send.peer in spent else self._backpressure_table.full_uplink(detoured)
                if peer:
                    return peer
        return self._full_remote_peer(publication) if self._backpressure_table.is_active else ""

    def _full_remote_peer(self, publication: Publication) -> str:
        forward = forward_of(publication, EventHeader(0, 0, 0, 0), b"", publication.accepted_at)
        forwarding = self._peers.forwarder
        return self._backpressure_table.blocking_gateway(
            publication.topic, lambda names: forwarding.attributes(forward, names)
        )

    def announce(self, now: Instant) -> list[SendMessage]:
        """Tell others what has become crowded, and what has room again."""
        sends: list[SendMessage] = []
        for peer, outbox in self.outboxes:
            if not outbox.has_backpressure and peer not in self.announced:
                continue
            if outbox.has_backpressure:
                outbox.update_backpressure()
            if not outbox.refuses:
                continue
            sends += self._announce_full(peer, now) if outbox.has_backpressure else self._withdraw(peer)
        return sends

    def _announce_full(self, peer: str, now: Instant) -> list[SendMessage]:
        told, interests = self.announced.get(peer), self._peers.interests
        if told is not None and (told.epoch == interests.epoch or now < told.at + ANNOUNCE_INTERVAL):
            return []
        wanted = interests.announced_by(peer) if peer in interests else ANYTHING
        is_news = told is None or told.interests != wanted
        self.announced[peer] = _AnnouncedBackpressure(wanted, interests.epoch, now)
        return self._peers.gossip.set_backpressure(peer, wanted) if is_news else []

    def _withdraw(self, peer: str) -> list[SendMessage]:
        del self.announced[peer]
        return self._peers.gossip.set_backpressure(peer, ())


class CongestionSampler:
    """Those of one gateway."""

    def __init__(self, links: LinkTable, peers: FederationRouter, is_dynamic: bool) -> None:
        self._links = links
        self._peers = peers
        self.is_dynamic = is_dynamic
        """Whether the lengths of queues count; else only links that are stalled are looked for."""
        self._next_look: Instant = 0
        self.due: Instant | None = None
        """When the present window ends."""
        self._before: dict[str, tuple[int, int]] = {}

    def sample(self, now: Instant) -> bool:
        """All links were flushed: a window begins if something waits all the same, and ends when it is time. Returns
        whether a link is stalled or congested that was not, or the other way round.
        """
        is_news = False
        if now >= self._next_look:
            self._next_look = now + WINDOW
            for link in self._links:
                is_news = self._peers.link_status.set_stalled(link.peer, link.is_stalled(now)) or is_news
        return (self.is_dynamic and self._sample_queues(now)) or is_news

    def _sample_queues(self, now: Instant) -> bool:
        is_news = False
        if self.due is None:
            if any(link.is_held_up(now) or link.late(now) for link in self._links):
                self._begin(now)
        elif now >= self.due:
            queues = {link.peer: self._queue(link, now) for link in self._links}
            is_news = self._peers.end_window({peer: queue for peer, queue in queues.items() if queue.waiting})
            self.due = None
            if any(queue.waiting for queue in queues.values()):
                self._begin(now)
        return is_news

    def _begin(self, now: Instant) -> None:
        self.due = now + WINDOW
        self._before = {link.peer: _counts(link) for link in self._links}

    def _queue(self, link: Link, now: Instant) -> QueueSample:
        entered, left = _counts(link)
        before = self._before[link.peer]
        waiting = sum(link.figures(service).waiting for service in SHARED) if link.is_held_up(now) else 0
        waiting += link.late(now)
        return QueueSample(entered - before[0], left - before[1], waiting)


def _counts(link: Link) -> tuple[int, int]:
    """The events that ever entered the queue of *link*, and that left it."""
    figures = [link.figures(service) for service in SHARED]
    return sum(each.entered for each in figures), sum(each.left for each in figures)


ASIDE_AFTER: Final[Duration] = 5 * SECOND
"""How long the disk may take nothing before others go around this gateway. Worn SD cards stop for up to 3 s."""


class DiskWatch:
    """Whether the disk of this gateway takes nothing.

    What arrives from a peer is passed on only when it is on the disk. So the gateway is in the way of others then, and
    steps aside until something has been written.
    """

    def __init__(self, session_journal: SessionJournal, peers: FederationRouter) -> None:
        self._journal = session_journal
        self._peers = peers
        self._durable = 0
        self._waits_since: Instant | None = None
        self.is_stuck = False

    @property
    def due(self) -> Instant | None:
        """When the disk counts as one that takes nothing."""
        return None if self._waits_since is None or self.is_stuck else self._waits_since + ASIDE_AFTER

    def look(self, now: Instant) -> list[Effect]:
        """Look at the journal. Returns what to do if the disk begins or ends to take nothing."""
        storage = self._journal.storage
        if storage is None or len(self._peers.gateway.neighbours) < 2:  # nothing passes through an end of a tree
            return []
        durable, is_waiting = storage.durable_lsn, storage.durable_lsn < storage.lsn
        if not is_waiting or durable > self._durable or self._waits_since is None:
            self._waits_since = now if is_waiting else None
        self._durable = durable
        is_stuck = self._waits_since is not None and now >= self._waits_since + ASIDE_AFTER
        if is_stuck is self.is_stuck:
            return []
        self.is_stuck = is_stuck
        return self._peers.step_aside(is_stuck, now)
