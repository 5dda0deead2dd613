"""The router of a gateway: messages of peers and publications of local clients go in, effects come out.

It only dispatches; the nouns beside it do the work. Who attaches it to a node, a front end and links keeps these
rules:

- **Links.** `link_up` when a connection with a peer is ready for messages, `link_down` when it is lost; in between,
  the messages of a `SendMessage` arrive in order within their class, and `received` gets them. What could not be
  sent before a loss may be sent after it, before anything else. Nothing but events, some of them inside a `Relay`,
  is sent to a peer whose link is down: events for it are, and wait in its outbox or are dropped there.
- **Subscriptions.** `subscribed` when the node has granted one, with its number; `unsubscribed` when it has ended.
  One that replaces another with the same text is the end of that and a new one. Topics that begin with `$` stay at
  home.
- **Events.** `publish` for every publication of a local client, wills included, before or after it is delivered to
  local clients. `DeliverEvent` is an event from elsewhere for local clients; it may find none, for a gateway on the
  way is handed it too. `is_late`: a later event of the publisher was handed on before; a client that wants the
  latest value only can do without it. `HoldEvent` is an event that is handed on later; whoever is killed meanwhile
  gives it to `resume`.
- **Retained messages.** They are kept where they are published, with the header of `AttachHeader`, and, if
  `DeliverEvent` says `is_entry` and the event is to be retained, there. After `subscribed` a new subscription that
  wants retained messages is looked up here and, with `query_retained`, elsewhere: answers come as
  `DeliverRetained`, by and by, none twice, the newest last. To `LookUpRetained` the front end says with
  `answer_retained` what it has, each message once. While it holds retained messages under a topic filter,
  `keeps_retained` says so: their advertisement then shows others where to ask. Those that it had when it started
  are advertised with `advertise`.
- **Time.** `fire` when `timers` say so. `end_window` every WINDOW of `overlay.congestion` in which a link did or
  held anything, if routing is dynamic.

A gateway's `ids` begin where its last run cannot have come to (`first`), and `boot` grows with every run:
others remember what it said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, assert_never

from edgebroker.federation.dead_peer_relay import DEAD_AFTER, FIRST_CONTACT_TIMEOUT
from edgebroker.federation.effects import AttachHeader, DeliverEvent, Effect, HoldEvent, SendMessage
from edgebroker.federation.forwarding import Forwarder, aged, forward_of
from edgebroker.federation.interest_gossip import GRACE, InterestGossip
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.federation.region import RETRY, Region, is_regional
from edgebroker.federation.retained_queries import RetainedQueries
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, MINUTE, NEVER, SECOND, Instant
from edgebroker.interest import Interest
from edgebroker.node.timers import Timers
from edgebroker.overlay.advertisements import Advertisement
from edgebroker.overlay.congestion import LinkStatus, QueueSample
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    Backpressure,
    ClusterBits,
    ClusterBitsAck,
    Differ,
    Digest,
    EventSeries,
    Forward,
    LinkStateUpdate,
    Message,
    Relay,
    Restate,
    RetainedQuery,
    RetainedReply,
    StateKind,
    Unadvertise,
    Withdraw,
)
from edgebroker.overlay.reorder_buffer import ReorderBuffer
from edgebroker.overlay.state_digest import differ, restated
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

SEQUENCE_MODULUS: Final = 1 << 32
LOCAL_TOPIC_PREFIX: Final = "$"
"""Topics that begin so are of one gateway only."""


class FederationRouter:
    """The peers of one gateway."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        ways: FederationOptions = DEFAULT_OPTIONS,
        *,
        boot: int = 0,
        first: int = 0,
        keeps_retained: Callable[[TopicFilter], bool] = lambda _: False,
    ) -> None:
        self.gateway = topology.gateway(name)
        self.timers = Timers()
        self.last_event_id = (0, 0)
        """The identity of the last event of a local client."""
        self.unix_offset_ms = 0
        """What must be added to the milliseconds of `now` to get those since 1970."""
        self._options = ways
        self._keeps_retained = keeps_retained
        self.link_status = LinkStatus(self.gateway.peers())
        self.gossip = InterestGossip(topology, self.gateway, ways, self.link_status, boot)
        self.interests = self.gossip.interests
        self.ids = IdAllocator(self.gateway.number, first, boot)
        self.region = Region(
            self.gateway,
            self.interests.wants,
            self.gossip.send,
            lease_s=ways.lease_s,
            wants_answers=ways.wants_answers,
            boot=boot,
            numbers=self.ids,
        )
        self.forwarder = Forwarder(topology, name, self.gossip, self.link_status, ways.is_dynamic)
        self.reorder_buffer = ReorderBuffer()
        self.retained_queries = RetainedQueries(topology, self.gateway, self.ids, self.gossip, self.region.secondary)

    def start(self, now: Instant, known: Mapping[str, Iterable[Interest]] | None = None) -> None:
        """The gateway may have run before: neighbours get all until they say what they want now.

        *known*: what an earlier run knew of that. It holds for those who say nothing.
        """
        self.gossip.restore(known or {})
        self.interests.await_neighbours()
        self.timers.set("grace", now + GRACE)
        for peer in self.gateway.peers():
            self.timers.set(("away", peer), now + FIRST_CONTACT_TIMEOUT)
            self.timers.set(("lease", peer), now + self._options.lease_s * SECOND)

    def resume(self, held: Iterable[tuple[Forward, bool]]) -> list[Effect]:
        """An earlier run held these events, each with whether it entered the cluster here: nobody waits any more."""
        return [DeliverEvent(*each, False, True) for each in sorted(held, key=lambda each: each[0].header.eid)]

    def release_held(self, now: Instant) -> list[Effect]:
        """No event waits any longer, neither for others that it may have overtaken nor for answers."""
        sorted_out: list[Effect] = [DeliverEvent(*each) for each in self.reorder_buffer.release(NEVER)]
        return [*sorted_out, *self._release(self.region.pending.overdue(NEVER), now)]

    # -- links ---------------------------------------------------------------------------------------------------------

    def link_up(self, peer: str, now: Instant) -> list[Effect]:
        """The link to *peer* is ready for messages: both ends find out what the other has not heard."""
        self.link_status.set_up(peer, True)
        self.timers.cancel(("lease", peer))
        self.timers.cancel(("away", peer))
        sends = self.gossip.link_up(peer)
        if peer not in self.gateway.neighbours:
            sends += self.region.link_up(peer, self.interests.epoch)
        return self._spread(sends, now)

    def link_down(self, peer: str, now: Instant) -> list[Effect]:
        """The link to *peer* is lost. What it told holds until the lease ends."""
        self.link_status.set_up(peer, False)
        self.timers.set(("lease", peer), now + self._options.lease_s * SECOND)
        self.timers.set(("away", peer), now + DEAD_AFTER)
        self.gossip.link_down(peer)
        return self._release(self.region.link_down(peer), now)

    def end_window(self, queues: Mapping[str, QueueSample]) -> None:
        """A window ended; *queues* of the links that did or held anything."""
        self.link_status.measure(queues)

    # -- local clients -------------------------------------------------------------------------------------------------

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """A local client's subscription *number* holds. Raises ValueError: the number is taken."""
        if topic_filter.text.startswith(LOCAL_TOPIC_PREFIX):
            return []
        changed = self.interests.subscribed(number, topic_filter, predicates)
        return self._spread(self.gossip.announce(changed), now)

    def unsubscribed(self, number: int, now: Instant) -> list[Effect]:
        """It ended. One that was never given to `subscribed` is not missed."""
        return self._spread(self.gossip.announce(self.interests.unsubscribed(number)), now)

    def advertise(self, client: str, topic: str, now: Instant) -> list[Effect]:
        """Let others know that there are events of *client* under *topic*."""
        _, effects = self.region.advertisement_for(client, topic, now)
        self._remind(now)
        return [*effects]

    def publish(
        self,
        publication: Publication,
        now: Instant,
        properties: bytes = b"",
        may_wait: bool = True,
        old: EventHeader | None = None,
    ) -> list[Effect]:
        """A local client published. *properties*: what its front end wants others to know.

        *may_wait*: while it is not known yet who wants it. Else it goes to every cluster that has not answered: what
        waits is in memory only, and its publisher may be promised more. *old*: that of the message it replaces.
        """
        topic = publication.topic
        if topic.startswith(LOCAL_TOPIC_PREFIX):
            return []
        record, sends = self.region.advertisement_for(publication.publisher, topic, now)
        effects: list[Effect] = [*sends]
        if sends or record in self.region.pending:
            self._remind(now)
        publisher = record.publisher
        publisher.sequence = publisher.sequence % (SEQUENCE_MODULUS - 1) + 1
        eid, ms = (publisher.number, publisher.sequence), self._unix_ms(now)
        if old is not None:
            ms = old.followed_ms(eid, ms)
        header = EventHeader(
            *eid, record.advertise.adv, self.gateway.cluster, epoch=self.interests.epoch, published_ms=ms
        )
        self.last_event_id = header.eid
        forward = forward_of(publication, header, properties, now)
        if publication.retain:
            effects.append(AttachHeader(header))
        if record not in self.region.pending:
            return [*effects, *self.forwarder.publish(forward, record)]
        if self.region.pending.add(record, forward, now) or not may_wait:
            effects += self._release([record], now)
        return effects

    def next_peers(self, publication: Publication) -> set[str]:
        """The peers to whom copies of *publication* would leave now."""
        record = self.region.advertisements.find(publication.publisher, publication.topic)
        header = EventHeader(0, 0, 0 if record is None else record.advertise.adv, self.gateway.cluster)
        forward = forward_of(publication, header, b"", publication.accepted_at)
        return {send.peer for send in self.forwarder.copies_of(forward, record)}

    def query_retained(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """Ask others for retained messages for subscription *number*."""
        if topic_filter.text.startswith(LOCAL_TOPIC_PREFIX):
            return []
        return self.retained_queries.query(number, [Interest(topic_filter, predicate) for predicate in predicates])

    def answer_retained(self, request: int, forward: Forward, now: Instant) -> list[Effect]:
        """Answer to AskRetained: one message that is meant."""
        return self.retained_queries.answer(request, forward)

    def is_queried(self, header: EventHeader) -> bool:
        """Whether the gateway that published with *header* is another one, and can be asked for what it keeps."""
        return self.retained_queries.is_queried(header)

    # -- what peers say ------------------------------------------------------------------------------------------------

    def received(self, peer: str, message: Message, now: Instant) -> list[Effect]:
        """*peer* says *message*."""
        match message:
            case Forward():
                return self._forwarded(peer, message, now)
            case EventSeries():
                return [each for event in message.events() for each in self._forwarded(peer, event, now)]
            case Announce() | Withdraw():
                return self._spread(self.gossip.received(peer, message), now)
            case Digest(kind) | Differ(kind) | Restate(kind) if kind is StateKind.INTERESTS:
                return self._spread(self.gossip.received(peer, message), now)
            case Advertise():
                return self._with_reminder(self.region.receive_advertisements(peer, (message,)), now)
            case Unadvertise(advs):
                self.region.secondary.remove(peer, advs)
                return []
            case ClusterBits():
                ready, confirmation = self.region.receive_bits(message, peer)
                return [*confirmation, *self._release(ready, now)]
            case ClusterBitsAck(_, number):
                self.region.secondary.confirm(peer, number)
                return []
            case Digest():
                difference = differ(message, self.region.secondary.of(peer))
                return [] if difference is None else [*self.gossip.send(peer, difference)]
            case Differ():
                parts = restated(message, self.interests.epoch, self.region.announced())
                return [send for each in parts for send in self.gossip.send(peer, each)]
            case Restate():
                return self._with_reminder(self.region.receive_restated(peer, message), now)
            case RetainedQuery():
                return self.retained_queries.receive_query(peer, message)
            case RetainedReply():
                return self.retained_queries.receive_reply(message)
            case LinkStateUpdate() | Backpressure():
                return self._spread(self.gossip.receive_flooded(peer, message), now)
            case Relay():
                return self._relayed(message, now)
            case _:
                assert_never(message)

    def fire(self, now: Instant) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        while (name := self.timers.take_next(now)) is not None:
            match name:
                case "grace":
                    effects += self._spread(self.gossip.end_grace(), now)
                case "bits":
                    effects += self.region.clear_stale(now)
                case "retry":
                    effects += self.region.retry()
                case "idle":
                    effects += self._rest(now)
                case "sort":
                    effects += [DeliverEvent(*each) for each in self.reorder_buffer.release(now)]
                case "answers":
                    effects += self._release(self.region.pending.overdue(now), now)
                case "compare":
                    effects += self._spread(self.gossip.compare(), now)
                    effects += self.region.compare(self.interests.epoch)
                case ("away", str(peer)):
                    effects += self._spread(self.gossip.declare_dead(peer), now)
                case ("lease", str(peer)):
                    effects += self._forget(peer, now)
        self._remind(now)
        return effects

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _spread(self, sends: Sequence[SendMessage], now: Instant) -> list[Effect]:
        """Interests may have changed: neighbours are told with *sends*, then hosts are."""
        effects: list[Effect] = [*self.gossip.take_effects(), *sends]
        effects += self.region.appoint_deputies(self.gossip.link_state, self.interests.epoch)
        filters = self.gossip.take_changed_filters()
        if filters:
            effects += self.region.interests_changed(filters, now)
        self._remind(now)
        return effects

    def _relayed(self, relay: Relay, now: Instant) -> list[Effect]:
        """Something that goes around who is away."""
        reach, message = self.gossip.link_state, relay.message
        origin = reach.name_of(relay.origin)
        if relay.destination != self.gateway.number or origin is None:
            service = TrafficClass.LIVE if isinstance(message, Forward | RetainedReply) else TrafficClass.CONTROL
            return [*self.gossip.relay.forward(relay, service)]
        if isinstance(message, Forward):
            if not relay.is_alone:
                return self._forwarded(origin, message, now)
            return self._handed(message, False, now) if self.forwarder.receive_for_clients(message) else []
        if origin not in self.interests and is_regional(message):  # of a host, or of who speaks for a mate
            if not self.gossip.is_up(origin):
                self.timers.set(("lease", origin), now + self._options.lease_s * SECOND)
        elif not self.gossip.accepts_interests_from(origin):  # it will say so again when it is
            return []
        return [*self._spread(self.gossip.mark_alive(origin), now), *self.received(origin, message, now)]

    def _forwarded(self, peer: str, forward: Forward, now: Instant) -> list[Effect]:
        is_ours, sends = self.forwarder.receive(peer, forward)
        if not is_ours:
            return [*sends]
        return [*self._handed(forward, peer not in self.interests, now), *sends]

    def _handed(self, forward: Forward, is_entry: bool, now: Instant) -> list[Effect]:
        """An event for local clients."""
        if not (self._options.sorts and self.reorder_buffer.may_reorder(forward)):
            return [DeliverEvent(forward, is_entry, False)]
        sorted_out = self.reorder_buffer.add(forward, is_entry, now)
        self._remind(now)
        is_held = forward.qos and all(each.forward is not forward for each in sorted_out)
        return [*([HoldEvent(forward, is_entry)] if is_held else ()), *(DeliverEvent(*each) for each in sorted_out)]

    def _release(self, records: Iterable[Advertisement], now: Instant) -> list[Effect]:
        """Let events go that waited for answers."""
        effects: list[Effect] = []
        for record in records:
            for forward, since in self.region.pending.end(record):
                effects += self.forwarder.publish(aged(forward, since, now), record)
        return effects

    def _rest(self, now: Instant) -> list[Effect]:
        """End the advertisements that are of no use any more."""
        since = now - self._options.idle_s * SECOND
        return [*self.region.end(self.region.advertisements.idle(since, self._keeps_retained))]

    def _forget(self, peer: str, now: Instant) -> list[Effect]:
        """*peer* has been away for too long."""
        if peer in self.gossip.relay.severed:  # it talks with us over others
            self.timers.set(("lease", peer), now + self._options.lease_s * SECOND)
            return []
        self.region.forget(peer)
        if peer not in self.gateway.neighbours:
            return []
        gone = self.interests.withdrawn(peer, self.interests.announced_by(peer))
        return self._spread(self.gossip.announce(gone), now)

    def _with_reminder(self, sends: Sequence[SendMessage], now: Instant) -> list[Effect]:
        self._remind(now)
        return [*sends]

    def _remind(self, now: Instant) -> None:
        """Set the timers for what is open."""
        region = self.region
        self.timers.move("bits", region.secondary.next_due)
        self.timers.move("answers", region.pending.next_due)
        self.timers.move("sort", self.reorder_buffer.next_due)
        self.timers.move("retry", self.timers.deadline_of("retry", now + RETRY) if region.is_unconfirmed else None)
        pause = self.gossip.take_compare_delay()
        if pause is not None:
            is_used = self.gossip.relay.is_active or region.deputies
            self.timers.move("compare", now + pause if is_used else None)
        self.timers.move("idle", self.timers.deadline_of("idle", now + MINUTE) if len(region.advertisements) else None)

    def _unix_ms(self, now: Instant) -> int:
        return now // MILLISECOND + self.unix_offset_ms
