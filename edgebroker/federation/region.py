"""The region of a gateway: the gateways of other clusters at its home position, their advertisements, and the events
that wait for their answers [SCOT 2.3 to 2.5].

A gateway advertises to its *mates*, the gateways of other clusters at its home position. It knows a publisher's gateway
as *host* in every region in which it holds a position; where each gateway holds one position, mates and hosts are the
same.

For a mate without a connection a *deputy* answers: the gateway of its cluster that is reached over the fewest others;
any of them knows the interests of all. Messages to and from a deputy are relayed and may be lost, so unconfirmed ones
are sent again, and the announced state is compared now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.interests import ClusterInterests, covering_search
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.limits import WAITING_BYTES_MAX, WAITING_EVENTS_MAX
from edgebroker.log_schema import EventId
from edgebroker.overlay.advertisements import Advertisement, Advertisements, PublisherFlow, advs_of
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.link.class_queue import EVENT_BYTES
from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import (
    Advertise,
    ClusterBits,
    ClusterBitsAck,
    Differ,
    Digest,
    Forward,
    Message,
    Restate,
    StateKind,
    Unadvertise,
)
from edgebroker.overlay.routing import civ_of
from edgebroker.overlay.secondary_advertisements import SecondaryAdvertisements
from edgebroker.overlay.state_digest import digest_of, of_part
from edgebroker.overlay.topology.topology import TopologyGateway
from edgebroker.topics import TopicFilter

ANSWER_TIMEOUT: Final[Duration] = SECOND
"""How long events wait for the answers of clusters."""


@dataclass(slots=True)
class _PendingQueue:
    due: Instant
    events: deque[tuple[Forward, Instant]] = field(default_factory=deque)
    """Each with the instant at which it began to wait."""


class PendingEvents:
    """Events that wait for the answers of clusters, by advertisement and in order."""

    def __init__(self) -> None:
        self._queues: dict[Advertisement, _PendingQueue] = {}
        self.count = 0
        """The events that wait."""
        self.bytes = 0
        """The memory of these events."""
        self.overflows = 0
        """How often a limit was reached, so that the waiting events were sent without answers."""

    def begin(self, record: Advertisement, now: Instant) -> None:
        """Let the events of *record* wait, for ANSWER_TIMEOUT at most."""
        self._queues[record] = _PendingQueue(now + ANSWER_TIMEOUT)

    @property
    def next_due(self) -> Instant | None:
        """The earliest instant at which a record is `overdue`."""
        return next((queue.due for queue in self._queues.values()), None)

    def overdue(self, now: Instant) -> list[Advertisement]:
        """Return the records whose events have waited for ANSWER_TIMEOUT."""
        return [record for record, queue in self._queues.items() if queue.due <= now]

    def __contains__(self, record: Advertisement) -> bool:
        return record in self._queues

    def add(self, record: Advertisement, forward: Forward, now: Instant) -> bool:
        """Add *forward* to the events of *record*. Returns True if a limit is reached, so that they must be
        sent now.
        """
        events = self._queues[record].events
        events.append((forward, now))
        self.count += 1
        self.bytes += _size(forward)
        is_full = len(events) >= WAITING_EVENTS_MAX or self.bytes > WAITING_BYTES_MAX
        self.overflows += is_full
        return is_full

    def end(self, record: Advertisement) -> list[tuple[Forward, Instant]]:
        """Return the waiting events of *record*, each with the instant at which it began to wait; later ones do not
        wait.
        """
        queue = self._queues.pop(record, None)
        if queue is None:
            return []
        self.count -= len(queue.events)
        self.bytes -= sum(_size(forward) for forward, _ in queue.events)
        return list(queue.events)

    def last_events(self) -> list[EventId]:
        """Return the identity of the last event of each record."""
        return [queue.events[-1][0].header.eid for queue in self._queues.values() if queue.events]


def _size(forward: Forward) -> int:
    return EVENT_BYTES + len(forward.topic) + len(forward.payload)


RETRY: Final[Duration] = 2 * SECOND
"""Advertisement bits that a host has not confirmed are sent again after this time. A round trip over a satellite takes
0.7 s.
"""


class Region:
    """The advertisements of local publishers to mates, and the answers to hosts."""

    def __init__(
        self,
        gateway: TopologyGateway,
        interests: ClusterInterests,
        send: Callable[[str, Message], list[SendMessage]],
        *,
        lease_s: int,
        wants_answers: bool,
        boot: int,
        ids: IdAllocator,
        covering_bytes: Mapping[int, int],
    ) -> None:
        """send: sends a message to a gateway. covering_bytes: other cluster -> the bytes of an answer to it."""
        self.mates = {cluster: peers[gateway.home] for cluster, peers in gateway.across.items()}
        """Other cluster -> the mate in it."""
        self._cluster = gateway.cluster
        self._interests = interests
        self._send = send
        self._up: dict[str, int] = {}  # mates with a link that is up -> their cluster
        self._hosts_reached: dict[str, None] = {}  # hosts with a link, and those that this gateway answers as a deputy
        self.deputies: dict[int, str] = {}
        """Other cluster -> the deputy that answers for it while the mate cannot."""
        self._asked_deputy: set[int] = set()  # clusters of which a deputy was asked last, not the mate
        self.advertisements = Advertisements(
            ids, gateway.cluster, civ_of(self.mates), lease_s, wants_answers, covering_search
        )
        self.secondary = SecondaryAdvertisements(gateway.cluster, boot, interests, covering_bytes)
        self.pending = PendingEvents()

    @property
    def is_unconfirmed(self) -> bool:
        """Whether some host has not confirmed the last answer."""
        return any(self.secondary.unconfirmed(host) for host in self._hosts_reached)

    def open_flow(self, client: str, topic: str, now: Instant) -> tuple[PublisherFlow, list[SendMessage]]:
        """Open the flow in which *client* publishes to *topic*, which has none, and return it; and the messages to
        mates if there is no such advertisement yet.
        """
        flow, is_new = self.advertisements.open(client, topic, now)
        if not is_new:
            return flow, []
        record = flow.record
        if self._interests.is_wanted(record.advertise.topic_filter):
            record.targets |= 1 << self._cluster
        if self._unanswered(record):
            self.pending.begin(record, now)
        return flow, self._send_to_mates(record.advertise)

    def end(self, records: Collection[Advertisement]) -> list[SendMessage]:
        """End *records*; returns the messages to mates."""
        for record in records:
            self.pending.end(record)
            self.advertisements.close(record)
        return self._send_to_mates(Unadvertise(advs_of(records))) if records else []

    def interests_changed(
        self, topic_filters: Iterable[TopicFilter], added: Iterable[Interest], is_less: bool, now: Instant
    ) -> list[SendMessage]:
        """Update the answers to hosts after the interests of the own cluster changed under *topic_filters*: *added* are
        new, and if *is_less* others ended.
        """
        own = 1 << self._cluster
        topic_filters = tuple(topic_filters)
        for record in dict.fromkeys(found for one in topic_filters for found in self.advertisements.overlapping(one)):
            is_wanted = self._interests.is_wanted(record.advertise.topic_filter)
            record.targets = record.targets | own if is_wanted else record.targets & ~own
        return self._answers(self.secondary.update(topic_filters, added, is_less, now))

    def clear_stale(self, now: Instant) -> list[SendMessage]:
        """Clear the bits of interests that ended some time ago; returns the messages to hosts."""
        return self._answers(self.secondary.clear_stale(now))

    def retry(self) -> list[SendMessage]:
        """Send unconfirmed answers again."""
        return [
            send
            for host in self._hosts_reached
            for bits in self.secondary.unconfirmed(host)
            for send in self._send(host, bits)
        ]

    def link_up(self, peer: str, epoch: int) -> list[SendMessage]:
        """Handle an open link to *peer*: send it a digest of the advertisements, and the last answer if it is
        unconfirmed.

        If a deputy answered for its cluster meanwhile, the mate must state all of the cluster's answers again.
        """
        self._hosts_reached[peer] = None
        sends = []
        for cluster, mate in self.mates.items():
            if mate == peer:
                self._up[mate] = cluster
                deputy = self.deputies.pop(cluster, None)
                if cluster not in self._asked_deputy:
                    sends += self._send(mate, digest_of(StateKind.ADVERTISEMENTS, epoch, self.announced()))
                    continue
                self._asked_deputy.discard(cluster)
                if deputy is not None and deputy != mate and len(self.advertisements):
                    sends += self._send(deputy, Unadvertise(advs_of(self.advertisements)))
                sends += self._restate_to(cluster, mate, epoch)
        return [*sends, *(send for bits in self.secondary.unconfirmed(peer) for send in self._send(peer, bits))]

    # -- deputies -------------------------------------------------------------------------------------------------

    def appoint_deputies(self, link_state: LinkStateTable, epoch: int) -> list[SendMessage]:
        """Choose deputies for clusters whose mates are lost, after reachability changed.

        If no gateway of a cluster is reachable, its last answer stays valid, and its events wait in outboxes.
        """
        sends = []
        for cluster, mate in self.mates.items():
            deputy = self.deputies.get(cluster)
            if not link_state.is_lost(mate) or (deputy is not None and link_state.is_reachable(deputy)):
                continue
            self.deputies.pop(cluster, None)
            nearest = link_state.nearest(cluster)
            if nearest is not None:
                self.deputies[cluster] = nearest
                self._asked_deputy.add(cluster)
                sends += self._restate_to(cluster, nearest, epoch)
        return sends

    def compare(self, epoch: int) -> list[SendMessage]:
        """Send deputies a digest of the advertisements, because relayed messages may be lost."""
        digest = digest_of(StateKind.ADVERTISEMENTS, epoch, self.announced())
        return [send for deputy in self.deputies.values() for send in self._send(deputy, digest)]

    def _restate_to(self, cluster: int, deputy: str, epoch: int) -> list[SendMessage]:
        """Ask *deputy*, or the mate again, for all answers of *cluster*. Until they arrive, it may want anything."""
        for record in self.advertisements:
            record.forget(cluster)
        return self._send(deputy, Restate(StateKind.ADVERTISEMENTS, 1, 0, epoch, (), tuple(self.announced())))

    # -- messages of others ---------------------------------------------------------------------------------------

    def link_down(self, peer: str) -> list[Advertisement]:
        """Handle the loss of a link; return the records whose events need not wait any more."""
        self._up.pop(peer, None)
        self._hosts_reached.pop(peer, None)
        return [record for record in self.advertisements if record in self.pending and not self._unanswered(record)]

    def announced(self) -> list[Advertise]:
        """Return all advertisements that mates must know."""
        return [record.advertise for record in self.advertisements]

    def receive_bits(self, bits: ClusterBits, mate: str) -> tuple[list[Advertisement], list[SendMessage]]:
        """Handle the answer of a cluster; return the records whose events need not wait any more, and the confirmation.

        An answer of a former deputy is confirmed and ignored.
        """
        is_current = mate == self.deputies.get(bits.cluster, self.mates.get(bits.cluster))
        answered = self.advertisements.receive_bits(bits) if is_current else []
        ready = [record for record in answered if record in self.pending and not self._unanswered(record)]
        return ready, self._send(mate, ClusterBitsAck(bits.cluster, bits.number))

    def receive_advertisements(
        self, host: str, advertisements: Iterable[Advertise], is_restated: bool = False
    ) -> list[SendMessage]:
        """Handle advertisements of *host* for publishers of its own."""
        self._hosts_reached[host] = None
        answers = self.secondary.add(host, advertisements, is_restated)
        return [send for bits in answers for send in self._send(host, bits)]

    def receive_restated(self, host: str, restate: Restate) -> list[SendMessage]:
        """Replace the advertisements of *host* in one part by those of *restate*."""
        stays = {advertise.adv for advertise in restate.advertisements}
        gone = [each.adv for each in of_part(restate, self.secondary.of(host)) if each.adv not in stays]
        self.secondary.remove(host, gone)
        return self.receive_advertisements(host, restate.advertisements, True)

    def forget(self, host: str) -> None:
        """Remove *host*, whose lease has ended."""
        self.secondary.forget(host)
        self._hosts_reached.pop(host, None)

    def _unanswered(self, record: Advertisement) -> int:
        """Return the clusters that have not answered, of those whose mate is connected or has a deputy."""
        return record.unanswered & civ_of((*self._up.values(), *self.deputies))

    def _answers(self, answers: Iterable[tuple[str, ClusterBits]]) -> list[SendMessage]:
        return [send for host, bits in answers if host in self._hosts_reached for send in self._send(host, bits)]

    def _send_to_mates(self, message: Message) -> list[SendMessage]:
        return [send for mate in (*self._up, *self.deputies.values()) for send in self._send(mate, message)]


def is_regional(message: Message) -> bool:
    """Return whether *message* is exchanged between hosts and mates."""
    match message:
        case Digest(kind) | Differ(kind) | Restate(kind):
            return kind is StateKind.ADVERTISEMENTS
        case _:
            return isinstance(message, Advertise | Unadvertise | ClusterBits | ClusterBitsAck)
