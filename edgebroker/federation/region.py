"""The region of a gateway: the gateways of other clusters at its home position, their advertisements, and the
events that wait for their answers [SCOT 2.3 to 2.5].

A gateway advertises to its *mates*, those at its home position. It has a publisher's gateway as *host* in every
region of which it holds a position; where each gateway holds one, mates and hosts are the same.

For a mate with which there is no connection a *deputy* speaks: that gateway of its cluster that is reached over the
fewest others. Each of them knows what all of them want. What the two say goes around, and may get lost on the way;
so what is not confirmed is said again, and what was told is compared now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import SendMessage
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import WAITING_BYTES_MAX, WAITING_EVENTS_MAX
from edgebroker.overlay.advertisements import Advertisement, Advertisements, advs_of
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
from edgebroker.overlay.secondary_advertisements import Covering, SecondaryAdvertisements
from edgebroker.overlay.state_digest import digest_of, of_part
from edgebroker.overlay.topology.topology import TopologyGateway
from edgebroker.topics import TopicFilter

ANSWER_TIMEOUT: Final[Duration] = SECOND


@dataclass(slots=True)
class _PendingQueue:
    due: Instant
    events: deque[tuple[Forward, Instant]] = field(default_factory=deque)
    """Each with the instant since when it waits."""


class PendingEvents:
    """The events by advertisement. Events of one advertisement wait together, in order."""

    def __init__(self) -> None:
        self._queues: dict[Advertisement, _PendingQueue] = {}
        self._bytes = 0
        self.overflows = 0
        """How often so many waited that all went at once."""

    def begin(self, record: Advertisement, now: Instant) -> None:
        """Let the events of *record* wait, for PATIENCE at most."""
        self._queues[record] = _PendingQueue(now + ANSWER_TIMEOUT)

    @property
    def next_due(self) -> Instant | None:
        """When some record is `overdue`."""
        return next((queue.due for queue in self._queues.values()), None)

    def overdue(self, now: Instant) -> list[Advertisement]:
        """The records whose events have waited long enough."""
        return [record for record, queue in self._queues.items() if queue.due <= now]

    def __contains__(self, record: Advertisement) -> bool:
        return record in self._queues

    def add(self, record: Advertisement, forward: Forward, now: Instant) -> bool:
        """Let *forward* wait with those of *record*. True: there are so many now that all must go."""
        events = self._queues[record].events
        events.append((forward, now))
        self._bytes += _size(forward)
        is_full = len(events) >= WAITING_EVENTS_MAX or self._bytes > WAITING_BYTES_MAX
        self.overflows += is_full
        return is_full

    def end(self, record: Advertisement) -> list[tuple[Forward, Instant]]:
        """Let no event of *record* wait any longer; return those that did, with the instant since when."""
        queue = self._queues.pop(record, None)
        self._bytes -= 0 if queue is None else sum(_size(forward) for forward, _ in queue.events)
        return [] if queue is None else list(queue.events)


def _size(forward: Forward) -> int:
    return EVENT_BYTES + len(forward.topic) + len(forward.payload)


RETRY: Final[Duration] = 2 * SECOND
"""After so long what a host has not confirmed is said again. A round trip over a satellite takes 0.7 s."""


class Region:
    """Advertisements of our publishers to mates, answers to hosts."""

    def __init__(
        self,
        gateway: TopologyGateway,
        wants: Callable[[TopicFilter], Covering],
        tell: Callable[[str, Message], list[SendMessage]],
        *,
        lease_s: int,
        wants_answers: bool,
        boot: int,
        numbers: IdAllocator,
    ) -> None:
        """wants: what the own cluster wants under a topic filter.  tell: how a gateway is told something."""
        self.mates = {cluster: peers[gateway.home] for cluster, peers in gateway.across.items()}
        """Other cluster -> our mate there."""
        self._cluster = gateway.cluster
        self._wants = wants
        self._send = tell
        self._up: dict[str, int] = {}  # mates with a link that is up -> their cluster
        self._reached: dict[str, None] = {}  # hosts with one, and those for whom we speak as a deputy
        self.deputies: dict[int, str] = {}
        """Other cluster -> who speaks for it as long as our mate there cannot."""
        self._replaced: set[int] = set()  # clusters of whom somebody else than the mate was asked last
        self.advertisements = Advertisements(numbers, gateway.cluster, civ_of(self.mates), lease_s, wants_answers)
        self.secondary = SecondaryAdvertisements(gateway.cluster, boot, wants)
        self.pending = PendingEvents()

    @property
    def is_unconfirmed(self) -> bool:
        """Whether some host has not confirmed what it was told."""
        return any(self.secondary.unconfirmed(host) for host in self._reached)

    def advertisement_for(self, client: str, topic: str, now: Instant) -> tuple[Advertisement, list[SendMessage]]:
        """The advertisement under which *client* publishes to *topic*, made if there is none."""
        record = self.advertisements.find(client, topic)
        if record is not None:
            record.used_at = now
            return record, []
        record = self.advertisements.open(client, topic, now)
        if self._wants(record.advertise.topic_filter) != ():
            record.targets |= 1 << self._cluster
        if self._waits_for(record):
            self.pending.begin(record, now)
        return record, self._tell_mates(record.advertise)

    def end(self, records: Collection[Advertisement]) -> list[SendMessage]:
        """End these advertisements."""
        for record in records:
            self.pending.end(record)
            self.advertisements.close(record)
        return self._tell_mates(Unadvertise(advs_of(records))) if records else []

    def interests_changed(self, topic_filters: Iterable[TopicFilter], now: Instant) -> list[SendMessage]:
        """The own cluster wants more or less under *topic_filters*."""
        own = 1 << self._cluster
        topic_filters = tuple(topic_filters)
        for record in dict.fromkeys(found for one in topic_filters for found in self.advertisements.overlapping(one)):
            is_wanted = self._wants(record.advertise.topic_filter) != ()
            record.targets = record.targets | own if is_wanted else record.targets & ~own
        return self._to_say(self.secondary.update(topic_filters, now))

    def clear_stale(self, now: Instant) -> list[SendMessage]:
        """Say that less is wanted where that has been so for a while."""
        return self._to_say(self.secondary.clear_stale(now))

    def retry(self) -> list[SendMessage]:
        """Say again what hosts have not confirmed."""
        return [
            send
            for host in self._reached
            for bits in self.secondary.unconfirmed(host)
            for send in self._send(host, bits)
        ]

    def link_up(self, peer: str, epoch: int) -> list[SendMessage]:
        """The link to *peer* is up: let it see whether it knows our advertisements, and what we last answered.

        If somebody else spoke for its cluster meanwhile it has to say everything anew.
        """
        self._reached[peer] = None
        sends = []
        for cluster, mate in self.mates.items():
            if mate == peer:
                self._up[mate] = cluster
                deputy = self.deputies.pop(cluster, None)
                if cluster not in self._replaced:
                    sends += self._send(mate, digest_of(StateKind.ADVERTISEMENTS, epoch, self.announced()))
                    continue
                self._replaced.discard(cluster)
                if deputy is not None and deputy != mate and len(self.advertisements):
                    sends += self._send(deputy, Unadvertise(advs_of(self.advertisements)))
                sends += self._ask(cluster, mate, epoch)
        return [*sends, *(send for bits in self.secondary.unconfirmed(peer) for send in self._send(peer, bits))]

    # -- deputies -------------------------------------------------------------------------------------------------

    def appoint_deputies(self, reach: LinkStateTable, epoch: int) -> list[SendMessage]:
        """Others may be reached than before: who speaks for the clusters whose mates cannot?

        If nobody of a cluster is reached, what it said last holds, and its events wait.
        """
        sends = []
        for cluster, mate in self.mates.items():
            deputy = self.deputies.get(cluster)
            if not reach.is_lost(mate) or (deputy is not None and reach.is_reachable(deputy)):
                continue
            self.deputies.pop(cluster, None)
            nearest = reach.nearest(cluster)
            if nearest is not None:
                self.deputies[cluster] = nearest
                self._replaced.add(cluster)
                sends += self._ask(cluster, nearest, epoch)
        return sends

    def compare(self, epoch: int) -> list[SendMessage]:
        """Let deputies see whether they know our advertisements: on the way there something may have got lost."""
        digest = digest_of(StateKind.ADVERTISEMENTS, epoch, self.announced())
        return [send for deputy in self.deputies.values() for send in self._send(deputy, digest)]

    def _ask(self, cluster: int, speaker: str, epoch: int) -> list[SendMessage]:
        """Let *speaker* say all that *cluster* wants. Until it has, that may be anything."""
        for record in self.advertisements:
            record.forget(cluster)
        return self._send(speaker, Restate(StateKind.ADVERTISEMENTS, 1, 0, epoch, (), tuple(self.announced())))

    # -- what others say ------------------------------------------------------------------------------------------

    def link_down(self, peer: str) -> list[Advertisement]:
        """The link is down: return the records whose events need not wait any more."""
        self._up.pop(peer, None)
        self._reached.pop(peer, None)
        return [record for record in self.advertisements if record in self.pending and not self._waits_for(record)]

    def announced(self) -> list[Advertise]:
        """What our mates must know."""
        return [record.advertise for record in self.advertisements]

    def receive_bits(self, bits: ClusterBits, mate: str) -> tuple[list[Advertisement], list[SendMessage]]:
        """A cluster answers: return the records whose events need not wait any more, and the confirmation.

        Who does not speak for it any more is not listened to.
        """
        is_heard = mate == self.deputies.get(bits.cluster, self.mates.get(bits.cluster))
        answered = self.advertisements.receive_bits(bits) if is_heard else []
        ready = [record for record in answered if record in self.pending and not self._waits_for(record)]
        return ready, self._send(mate, ClusterBitsAck(bits.cluster, bits.number))

    def receive_advertisements(
        self, host: str, advertisements: Iterable[Advertise], is_restated: bool = False
    ) -> list[SendMessage]:
        """A host advertises publishers of its own."""
        self._reached[host] = None
        said = self.secondary.add(host, advertisements, is_restated)
        return [send for bits in said for send in self._send(host, bits)]

    def receive_restated(self, host: str, restate: Restate) -> list[SendMessage]:
        """What a host advertises in one part is this and nothing else."""
        stays = {advertise.adv for advertise in restate.advertisements}
        gone = [each.adv for each in of_part(restate, self.secondary.of(host)) if each.adv not in stays]
        self.secondary.remove(host, gone)
        return self.receive_advertisements(host, restate.advertisements, True)

    def forget(self, host: str) -> None:
        """Nothing was heard of *host* for too long."""
        self.secondary.forget(host)
        self._reached.pop(host, None)

    def _waits_for(self, record: Advertisement) -> int:
        """The clusters that have not answered, though they can."""
        return record.unanswered & civ_of(self._up.values())

    def _to_say(self, said: Iterable[tuple[str, ClusterBits]]) -> list[SendMessage]:
        return [send for host, bits in said if host in self._reached for send in self._send(host, bits)]

    def _tell_mates(self, message: Message) -> list[SendMessage]:
        return [send for mate in (*self._up, *self.deputies.values()) for send in self._send(mate, message)]


def is_regional(message: Message) -> bool:
    """Whether hosts and mates say such to each other."""
    match message:
        case Digest(kind) | Differ(kind) | Restate(kind):
            return kind is StateKind.ADVERTISEMENTS
        case _:
            return isinstance(message, Advertise | Unadvertise | ClusterBits | ClusterBitsAck)
