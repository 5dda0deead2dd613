"""The router of a gateway: messages of peers and publications of local clients go in, effects come out.

It only dispatches; the modules beside it do the work. The code that connects it with a node, a front end and links must
keep these rules:

- **Links.** Call `link_up` when a connection with a peer is ready for messages, `link_down` when it is lost; in
  between, the messages of a `SendMessage` arrive in order within their class, and `received` handles them. Messages
  that could not be sent before a loss may be sent after it, before anything else. Only events, some of them inside a
  `Relay`, are sent to a peer whose link is down; they wait in its outbox or are dropped there.
- **Subscriptions.** Call `subscribed` when the node has granted a subscription, with its number; `unsubscribed` when it
  has ended. A subscription that replaces another one with the same text is an end and a new one. Topics that begin with
  `$` are local to a gateway.
  To know when others know it, call `flush_interests` and wait for the `EndFlush` with the number that was returned.
- **Events.** Call `publish` for every publication of a local client, wills included, before or after it is delivered to
  local clients. `DeliverEvent` is an event from elsewhere for local clients; it may match none, because gateways on the
  path get it too. `HoldEvent` is an event that is delivered, or leaves, later; after a crash it must be given to
  `resume`. Call `dropped` for every event of a local client of which a copy was dropped before it was sent.
- **Retained messages.** A retained message is stored at the gateway of its publisher, with the header of
  `AttachHeader`, and at each gateway whose `DeliverEvent` has `is_entry`. After `subscribed`, retained messages for a
  new subscription are looked up locally and queried elsewhere with `query_retained`: replies arrive as
  `DeliverRetained` and `DeliverUnmodified`, over some time, none twice, the newest last. The front end answers
  `LookUpRetained` with `answer_retained`, once for each message; if it has sums, with
  `RetainedQueries.answer_unmodified` first, and then with what differs. Call `retained_queries.know` before a query for
  what is known here: it is not sent again. `keeps_retained` returns whether it has retained messages under a topic
  filter: their advertisement then stays open, so that others know where to query. Those that it restored at the start
  are advertised with `advertise`.
- **Wills.** `wills.keeper` is the gateway to which PendingWills are sent, after `link_up` and when they change. If a
  gateway that this one keeps wills for is dead, `PublishWills` says so. Events of the topic WILLS_TOPIC are for
  `pending_wills.read_notice`.
- **Claims.** Call `subscribe_to_site` first, and `claim_retained` when a topic's retained message is published or
  cleared at another gateway of the cluster than before. An event of the topic CLAIMS_TOPIC is a claim of another
  gateway (`retained_claims`).
- **Bridge pairs.** Call `join_pair` for each pair to which a bridge of the gateway belongs, and `receive_pair_event`
  with each event of the topic PAIRS_TOPIC. `pairs` says which role the gateway has (`bridge_pairs`).
- **Time.** Call `fire` when `timers` are due. With dynamic routing, call `end_window` at the end of every WINDOW of
  `overlay.congestion` in which a link sent or queued anything.

The `ids` of a gateway begin at `first`, behind those of its previous run, and `boot` grows with every run, because
other gateways remember earlier messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import assert_never

from edgebroker.federation.bridge_pairs import PAIRS_FILTER, PAIRS_SUBSCRIPTION, BridgePairs
from edgebroker.federation.dead_peer_relay import DEAD_AFTER, FIRST_CONTACT_TIMEOUT
from edgebroker.federation.effects import (
    AttachHeader,
    DeliverEvent,
    Effect,
    EmptyOutbox,
    EndLease,
    HoldEvent,
    ReleaseEvent,
    RequestAgain,
    SendAround,
    SendMessage,
)
from edgebroker.federation.forwarding import Forwarder, aged, forward_of
from edgebroker.federation.interest_flush import InterestFlushes
from edgebroker.federation.interest_gossip import GRACE, InterestGossip
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.federation.pending_wills import WillKeeper
from edgebroker.federation.region import RETRY, Region, is_regional
from edgebroker.federation.relocation import RelocationStatistics
from edgebroker.federation.retained_cache import RetainedCache
from edgebroker.federation.retained_claims import (
    ADDRESS_SUBSCRIPTION,
    FILES_TOPIC,
    SITE_FILTER,
    SUBSCRIPTION,
    GatewayPublisher,
    RetainedClaims,
    address_of,
)
from edgebroker.federation.retained_queries import RetainedQueries, StatusQueries
from edgebroker.header import EventHeader, host_of
from edgebroker.instants import MILLISECOND, MINUTE, NEVER, SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.node.timers import Timers
from edgebroker.overlay.advertisements import SEQUENCE_MODULUS, Advertisement, PublisherFlow
from edgebroker.overlay.congestion import LinkStatus, QueueSample
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import (
    CAPABILITY_MESSAGES,
    Advertise,
    Announce,
    Backpressure,
    ClusterBits,
    ClusterBitsAck,
    ConditionalRetainedQuery,
    Differ,
    Digest,
    EventSeries,
    Forward,
    GroupMembers,
    InterestFlush,
    InterestFlushed,
    LinkStateUpdate,
    Message,
    PendingWill,
    PendingWills,
    Relay,
    Restate,
    RetainedQuery,
    RetainedReply,
    RetainedUnmodified,
    SendAgain,
    StateKind,
    StatusQuery,
    StatusReply,
    Unadvertise,
    Withdraw,
)
from edgebroker.overlay.reorder_buffer import BROKEN_WAIT_MAX, WAIT_MAX, HeldEvent, ReorderBuffer
from edgebroker.overlay.sent_events import KEPT
from edgebroker.overlay.state_digest import differ, restated
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter, is_reserved
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest


class FederationRouter:
    """Routes events and interests between one gateway and its peers."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        options: FederationOptions = DEFAULT_OPTIONS,
        *,
        boot: int = 0,
        first: int = 0,
        is_restarted: bool = False,
        keeps_retained: Callable[[TopicFilter], bool] = lambda _: False,
    ) -> None:
        self.gateway = topology.gateway(name)
        self.timers = Timers()
        self.last_event_id = (0, 0)
        """The identity of the last event of a local client."""
        self.unix_offset_ms = 0
        """The difference between milliseconds since 1970 and the milliseconds of `now`."""
        self._options = options
        self.keeps_retained = keeps_retained
        self.link_status = LinkStatus(self.gateway.peers())
        self.gossip = InterestGossip(topology, self.gateway, options, self.link_status, boot)
        self.interests = self.gossip.interests
        self.ids = IdAllocator(self.gateway.number, first, boot)
        self.region = Region(
            self.gateway,
            self.interests,
            self.gossip.send,
            lease_s=options.lease_s,
            wants_answers=options.wants_answers,
            boot=boot,
            ids=self.ids,
            covering_bytes=topology.covering_bytes(self.gateway.cluster),
        )
        self.forwarder = Forwarder(topology, name, self.gossip, self.link_status, options)
        self.relocation = RelocationStatistics(topology, name, self.region.advertisements, options.relocation)
        self.reorder_buffer = ReorderBuffer()
        self._is_restarted = is_restarted  # until predecessors cannot have been here in the earlier run any more
        self._asked_again: set[str] = set()  # peers that were asked to send again since their link broke
        self.publisher = GatewayPublisher(
            self.forwarder, self.region.advertisements.reserve_number, self.ids.before_first, self.gateway.cluster
        )
        self.claims = RetainedClaims(self.publisher)
        self.wills = WillKeeper(
            topology, self.gateway, self.gossip.link_state, self.publisher, options.dead_gateway_wills_after_s * SECOND
        )
        self.pairs = BridgePairs(
            self.publisher,
            self.gateway.number,
            self.gossip.link_state.is_number_reachable,
            lambda: all(map(self.gossip.is_up, self.gateway.peers())),
        )
        self.retained_queries = RetainedQueries(
            topology,
            self.gateway,
            self.ids,
            self.gossip,
            self.region.secondary,
            RetainedCache(options.retained_cache_bytes_max),
        )
        self.status_queries = StatusQueries(self.gateway, self.ids, self.link_status)
        self.flushes = InterestFlushes(self.gateway, self.ids, self.link_status, self.region.secondary)

    def start(self, now: Instant, known: Mapping[str, Iterable[Interest]] | None = None) -> None:
        """Begin after a restart: neighbours get all events until they announce their interests.

        known: the interests of neighbours from the earlier run; they stay valid for neighbours that do not announce
        any.
        """
        self.gossip.restore(known or {})
        self.interests.await_neighbours()
        self.timers.set("grace", now + GRACE)
        self.timers.set("restarted", now + 2 * KEPT)
        for peer in self.gateway.peers():
            self.timers.set(("dead", peer), now + FIRST_CONTACT_TIMEOUT)
            self.timers.set(("lease", peer), now + self._options.lease_s * SECOND)

    def resume(self, held: Iterable[tuple[Forward, str | None]], now: Instant) -> list[Effect]:
        """Deliver the events that an earlier run held, each with its `HoldEvent.arrival`. Those of local clients are
        sent to every cluster, because none has answered this run.
        """
        effects: list[Effect] = []
        for forward, arrival in sorted(held, key=lambda each: each[0].header.eid):
            if arrival is None:
                effects += [*self.forwarder.publish(forward, None, now), ReleaseEvent(forward.header.eid)]
            else:
                effects += self._release_held([HeldEvent(forward, arrival, now)], now)
        return effects

    def release_held(self, now: Instant) -> list[Effect]:
        """Release all events at once from the reorder buffer and from waiting for answers."""
        released = self._release_held(self.reorder_buffer.release(NEVER), now)
        return [*released, *self._release(self.region.pending.overdue(NEVER), now)]

    # -- links ---------------------------------------------------------------------------------------------------------

    def link_up(self, peer: str, now: Instant, capabilities: Collection[str] = CAPABILITY_MESSAGES) -> list[Effect]:
        """Handle an open link to *peer*, which has *capabilities*; both ends compare what they announced."""
        self.link_status.set_up(peer, True)
        self.flushes.link_up(peer, "flush" in capabilities)
        self.relocation.link_up(peer, "trace" in capabilities)
        self._asked_again.discard(peer)
        self.timers.cancel(("lease", peer))
        self.timers.cancel(("dead", peer))
        sends = self.gossip.link_up(peer)
        if peer not in self.gateway.neighbours:
            sends += self.region.link_up(peer, self.interests.epoch)
        return self._propagate(sends, now)

    def link_down(self, peer: str, now: Instant) -> list[Effect]:
        """Handle a lost link to *peer*. Its announced state stays valid until the lease ends."""
        self.link_status.set_up(peer, False)
        self.timers.set(("lease", peer), now + self._options.lease_s * SECOND)
        self.timers.set(("dead", peer), now + DEAD_AFTER)
        self.gossip.link_down(peer)
        self.relocation.link_down(peer)
        if not self.gossip.link_state.is_reachable(peer):
            self.reorder_buffer.hasten(self.gossip.link_state.number_of(peer), now + BROKEN_WAIT_MAX)
        self.wills.link_down(peer, now)
        self._set_timers(now)
        return [*self._release(self.region.link_down(peer), now), *self.flushes.link_down(peer)]

    def step_aside(self, is_aside: bool, now: Instant) -> list[Effect]:
        """Let others go around this gateway, because its disk takes nothing, or no longer."""
        return self._propagate(self.gossip.step_aside(is_aside), now)

    def end_window(self, queues: Mapping[str, QueueSample]) -> bool:
        """End a window; *queues* are samples of the links that sent or queued anything. Returns whether routes may have
        changed.
        """
        return self.link_status.measure(queues)

    def request_again(self, peer: str, store: bytes, received: tuple[int, ...]) -> list[SendMessage]:
        """Ask *peer* for what waits on the broken link between the two. For the arguments see `SendAgain`."""
        return self.gossip.relay.relay(peer, SendAgain(store, received), TrafficClass.CONTROL)

    # -- local clients -------------------------------------------------------------------------------------------------

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """Announce a local client's subscription *number*. Raises ValueError if the number is in use."""
        if is_reserved(topic_filter.text):
            return []
        changed = self.interests.subscribed(number, topic_filter, predicates)
        return self._propagate(self.gossip.announce(changed), now)

    def unsubscribed(self, number: int, now: Instant) -> list[Effect]:
        """Withdraw a subscription; an unknown number is ignored."""
        return self._propagate(self.gossip.announce(self.interests.unsubscribed(number)), now)

    def flush_interests(self, now: Instant) -> tuple[int, list[Effect]]:
        """Ask the other gateways whether they know all interests that were announced so far. Returns the number of the
        question, and what to do; an `EndFlush` follows.
        """
        begun = self.flushes.begin(now, self._options.suback_wait_ms * MILLISECOND)
        self._set_timers(now)
        return begun

    def advertise(self, client: str, topic: str, now: Instant) -> list[Effect]:
        """Advertise that *client* has events under *topic*."""
        _, sends = self._flow_for(client, topic, now)
        return [*sends]

    def publish(
        self,
        publication: Publication,
        now: Instant,
        properties: bytes = b"",
        may_wait: bool = True,
        old: EventHeader | None = None,
    ) -> list[Effect]:
        """Publish an event of a local client.

        properties: the encoded MQTT properties, for the front ends of other gateways. may_wait: there is room for the
        event to wait for the answers of clusters; if False, it is sent at once to every cluster that has not answered,
        and so are those that wait already. old: the header of the retained message that it replaces.
        """
        topic = publication.topic
        if is_reserved(topic):
            return []
        flow, sends = self._flow_for(publication.publisher, topic, now)
        effects: list[Effect] = [*sends]
        record, publisher = flow.record, flow.publisher
        publisher.sequence = publisher.sequence % (SEQUENCE_MODULUS - 1) + 1
        eid, ms = (publisher.number, publisher.sequence), self._unix_ms(now)
        if publication.retain:
            ms = self.claims.earliest_ms(ms)
        if old is not None:
            ms = old.followed_ms(eid, ms)
        trace = 0 if publisher.cached_until else self.relocation.session_of(publisher, publication, now)
        cluster, epoch = self.gateway.cluster, self.interests.epoch
        header = EventHeader(*eid, record.advertise.adv, cluster, epoch=epoch, trace=trace, published_ms=ms)
        self.last_event_id = header.eid
        forward = forward_of(publication, header, properties, now)
        if publication.retain:
            effects.append(AttachHeader(header))
        if record not in self.region.pending:
            effects += self.forwarder.publish(forward, record, now)
            self.timers.move("settle", self.forwarder.settle_due)
            return effects
        if publication.qos and may_wait:
            effects.append(HoldEvent(forward, None))
        if self.region.pending.add(record, forward, now) or not may_wait:
            effects += self._release([record], now)
        return effects

    def _flow_for(self, client: str, topic: str, now: Instant) -> tuple[PublisherFlow, list[SendMessage]]:
        """Return the flow in which *client* publishes to *topic* now, opened if there is none, and the messages that
        advertise it.
        """
        flow = self.region.advertisements.find(client, topic)
        if flow is not None:
            flow.used_at = now
            return flow, []
        flow, sends = self.region.open_flow(client, topic, now)
        self.relocation.add(flow.publisher, now)
        self._set_timers(now)
        return flow, sends

    def dropped(self, forward: Forward) -> None:
        """Handle the loss of a copy of *forward* that was not sent."""
        if host_of(forward.header.publisher) == self.gateway.number:
            self.forwarder.dropped(forward)

    def next_peers(self, publication: Publication) -> set[str]:
        """Return the peers to which copies of *publication* would be sent now."""
        return {send.peer for send in self.next_copies(publication)}

    def next_copies(self, publication: Publication, is_known: bool = False) -> list[SendMessage]:
        """Return the copies of *publication* that would leave now. *is_known*: only those for gateways that are known
        to want it: a cluster that has not answered yet, perhaps because it is away, may want it or not.
        """
        flow = self.region.advertisements.find(publication.publisher, publication.topic)
        record = None if flow is None else flow.record
        header = EventHeader(0, 0, 0 if record is None else record.advertise.adv, self.gateway.cluster)
        forward = forward_of(publication, header, b"", publication.accepted_at)
        return self.forwarder.copies_of(forward, record, publication.accepted_at, is_known)

    def query_retained(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """Query other gateways for retained messages for subscription *number*."""
        if is_reserved(topic_filter.text):
            return []
        interests = [Interest(topic_filter, predicate) for predicate in predicates]
        return self.retained_queries.query(number, interests, now)

    def subscribe_to_site(self) -> None:
        """Let the gateway get what others in its cluster tell all of it. To be called before any link is up."""
        if self.gateway.neighbours:
            self.gossip.announce(self.interests.subscribed(SUBSCRIPTION, SITE_FILTER, ((),)))
            if self._options.roams:
                address = TopicFilter.parse(address_of(self.gateway.number))
                self.gossip.announce(self.interests.subscribed(ADDRESS_SUBSCRIPTION, address, ((),)))

    def send_in_order(self, gateway: int, payload: bytes, now: Instant) -> list[SendMessage]:
        """Send *payload* to the gateway numbered *gateway*, which gets it once, behind what it was sent before, and
        perhaps when it is back.
        """
        cluster = self.gossip.link_state.cluster_of(gateway)
        return self.publisher.publish_in_order(gateway, cluster, payload, self._unix_ms(now), now)

    def will_published(self, gateway: int, will: PendingWill, now: Instant) -> list[SendMessage]:
        """Tell *gateway* that *will* of a `PublishWills` was published here."""
        return self.wills.tell_published(gateway, will, self._unix_ms(now), now)

    def claim_retained(self, topic: str, stamp: EventHeader, now: Instant) -> list[Effect]:
        """Tell the other gateways of the cluster that what is retained of *topic*, or that nothing is, was published
        here with the header *stamp*: they drop what is older.
        """
        return [*self.claims.claim(topic, stamp, self._unix_ms(now), now)] if self.gateway.neighbours else []

    def read_claim(self, payload: bytes, now: Instant) -> tuple[str, EventHeader] | None:
        """Return the topic and the stamp of the claim in *payload*; None if it cannot be read."""
        return self.claims.read(payload, self._unix_ms(now))

    def join_pair(self, name: str, takeover: Duration, now: Instant) -> list[Effect]:
        """Belong to the bridge pair *name*: another of its gateways becomes active when the active one has been missing
        for *takeover*.
        """
        is_first = not self.pairs
        self.pairs.join(name, takeover, now)
        changed = self.interests.subscribed(PAIRS_SUBSCRIPTION, PAIRS_FILTER, ((),)) if is_first else None
        return self._propagate([] if changed is None else self.gossip.announce(changed), now)

    def leave_pair(self, name: str, now: Instant) -> list[Effect]:
        """Belong to the bridge pair *name* no more."""
        sends = self.pairs.leave(name, self._unix_ms(now), now)
        return [*sends, *([] if self.pairs else self.unsubscribed(PAIRS_SUBSCRIPTION, now))]

    def resume_pairs(self, before: FederationRouter, now: Instant) -> list[Effect]:
        """Belong to the bridge pairs of *before*, whose topology was another one."""
        effects = [effect for name, takeover in before.pairs.joined() for effect in self.join_pair(name, takeover, now)]
        self.pairs.resume(before.pairs)
        return effects

    def receive_pair_event(self, forward: Forward, now: Instant) -> list[Effect]:
        """Handle an event of the topic PAIRS_TOPIC."""
        return [*self.pairs.receive(host_of(forward.header.publisher), forward.payload, self._unix_ms(now), now)]

    def answer_retained(self, request: int, forward: Forward, now: Instant) -> list[Effect]:
        """Answer a `LookUpRetained` with one matching message."""
        return self.retained_queries.answer(request, forward, now)

    # -- messages of peers ---------------------------------------------------------------------------------------------

    def received(self, peer: str, message: Message, now: Instant) -> list[Effect]:
        """Handle *message* of *peer*."""
        match message:
            case Forward():
                return self._receive_event(peer, message, now)
            case EventSeries():
                return [each for event in message.events() for each in self._receive_event(peer, event, now)]
            case Announce() | Withdraw():
                return self._propagate(self.gossip.received(peer, message), now)
            case Digest(kind) | Differ(kind) | Restate(kind) if kind is StateKind.INTERESTS:
                return self._propagate(self.gossip.received(peer, message), now)
            case Advertise():
                return self._setting_timers(self.region.receive_advertisements(peer, (message,)), now)
            case Unadvertise(advs):
                self.region.secondary.remove(peer, advs)
                return []
            case ClusterBits():
                ready, confirmation = self.region.receive_bits(message, peer)
                return [*confirmation, *self._release(ready, now)]
            case ClusterBitsAck(_, number):
                self.region.secondary.confirm(peer, number)
                return self.flushes.confirmed(peer, number)
            case InterestFlush():
                return self.flushes.receive(peer, message)
            case InterestFlushed():
                return self.flushes.receive_return(peer, message)
            case Digest():
                difference = differ(message, self.region.secondary.of(peer))
                return [] if difference is None else [*self.gossip.send(peer, difference)]
            case Differ():
                parts = restated(message, self.interests.epoch, self.region.announced())
                return [send for each in parts for send in self.gossip.send(peer, each)]
            case Restate():
                return self._setting_timers(self.region.receive_restated(peer, message), now)
            case RetainedQuery() | ConditionalRetainedQuery():
                return self.retained_queries.receive_query(peer, message, now)
            case RetainedReply():
                return self.retained_queries.receive_reply(message, now)
            case RetainedUnmodified():
                return self.retained_queries.receive_unmodified(message, now)
            case PendingWills():
                return self._setting_timers(self.wills.receive(peer, message, now, self._unix_ms(now)), now)
            case TraceInformationRequest() | TraceInformationAnswer():
                return [*self.relocation.receive(peer, message, now)]
            case StatusQuery():
                return self.status_queries.receive_query(peer, message)
            case StatusReply():
                return self.status_queries.receive_reply(message)
            case LinkStateUpdate() | Backpressure() | GroupMembers():
                sends = self._propagate(self.gossip.receive_flooded(peer, message), now)
                return [*sends, *self._ask_again()]
            case Relay():
                return self._receive_relay(message, now)
            case SendAgain(store, received):
                return [EmptyOutbox(peer, store, received)] if peer not in self.gateway.neighbours else []
            case _:
                assert_never(message)

    def fire(self, now: Instant) -> list[Effect]:
        """Handle all timers that are due."""
        effects: list[Effect] = []
        while (name := self.timers.take_next(now)) is not None:
            match name:
                case "grace":
                    effects += self._propagate(self.gossip.end_grace(), now)
                case "bits":
                    effects += self.region.clear_stale(now)
                case "retry":
                    effects += self.region.retry()
                case "idle":
                    effects += self._end_idle(now)
                case "sort":
                    effects += self._release_held(self.reorder_buffer.release(now), now)
                case "restarted":
                    self._is_restarted = False
                case "settle":
                    self.forwarder.settle(now)
                case "answers":
                    effects += self._release(self.region.pending.overdue(now), now)
                case "flush":
                    effects += self.flushes.overdue(now)
                case "pairs":
                    effects += self.pairs.check(now, self._unix_ms(now))
                case "wills":
                    effects += self.wills.fire(now)
                case "compare":
                    effects += self._propagate(self.gossip.compare(), now)
                    effects += self.region.compare(self.interests.epoch)
                case ("dead", str(peer)):
                    effects += [*self._propagate(self.gossip.declare_dead(peer), now), SendAround(peer)]
                    effects += self._ask_again()
                case ("lease", str(peer)):
                    effects += self._expire_lease(peer, now)
        self._set_timers(now)
        return effects

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _propagate(self, sends: Sequence[SendMessage], now: Instant) -> list[Effect]:
        """Return *sends* to neighbours and the messages to hosts that follow from changed interests."""
        effects: list[Effect] = [*self.gossip.take_effects(), *sends]
        effects += self.region.appoint_deputies(self.gossip.link_state, self.interests.epoch)
        filters, added, is_less = self.gossip.take_changed()
        if filters:
            effects += self.region.interests_changed(filters, added, is_less, now)
        self._set_timers(now)
        return effects

    def _receive_relay(self, relay: Relay, now: Instant) -> list[Effect]:
        """Handle a relayed message: forward it, or receive it if this gateway is the destination."""
        link_state, message = self.gossip.link_state, relay.message
        origin = link_state.name_of(relay.origin)
        if relay.destination != self.gateway.number or origin is None:
            service = TrafficClass.LIVE if isinstance(message, Forward | RetainedReply) else TrafficClass.CONTROL
            if isinstance(message, Forward) and message.topic == FILES_TOPIC:
                service = TrafficClass.BULK
            return [*self.gossip.relay.forward(relay, service)]
        if isinstance(message, Forward):
            if not relay.is_alone:
                return self._receive_event(origin, message, now)
            return [DeliverEvent(message, False)] if self.forwarder.receive_for_clients(message) else []
        if isinstance(message, SendAgain):
            return self.received(origin, message, now)
        if origin not in self.interests and is_regional(message):  # from a host or a deputy
            if not self.gossip.is_up(origin):
                self.timers.set(("lease", origin), now + self._options.lease_s * SECOND)
        elif not self.gossip.accepts_interests_from(origin):  # it announces them again once it is a known stand-in
            return []
        return [*self._propagate(self.gossip.mark_alive(origin), now), *self.received(origin, message, now)]

    def _ask_again(self, awaited: str | None = None) -> list[Effect]:
        """Ask gateways of other clusters, to which the link is lost but another path leads, for what waits there; for
        *awaited* it need not be lost for long.
        """
        link_state = self.gossip.link_state
        peers = [
            peer
            for peer in self.gateway.peers()
            if peer not in self.gateway.neighbours
            and peer not in self._asked_again
            and not self.link_status.is_up(peer)
            and (peer == awaited or link_state.is_lost(peer))
            and link_state.is_reachable(peer)
        ]
        self._asked_again.update(peers)
        return [RequestAgain(peer) for peer in peers]

    def _receive_event(self, peer: str, forward: Forward, now: Instant) -> list[Effect]:
        distance = forward.distance(self.gateway.cluster)
        if distance is not None and not forward.passed:
            return self._receive_in_order(peer, forward, distance, now)
        is_local, sends = self.forwarder.receive(peer, forward, now)
        if not is_local:
            return [*sends]
        effects: list[Effect] = [*sends, DeliverEvent(forward, peer not in self.interests)]
        return [*effects, *self._release_successors(forward, now)]

    def _receive_in_order(self, peer: str, forward: Forward, distance: int, now: Instant) -> list[Effect]:
        """Handle an event that may have overtaken its predecessor."""
        link_state, mate = self.gossip.link_state, self.forwarder.mate_of(forward)
        is_inside = link_state.cluster_of(link_state.number_of(peer)) == self.gateway.cluster
        if not is_inside and mate != self.gateway.name and mate is not None and link_state.is_reachable(mate):
            return [*self.forwarder.hand_over(forward, mate, now)]
        held = HeldEvent(forward, peer if is_inside and mate != self.gateway.name else "", now)
        publisher, sequence = forward.header.eid
        beyond: list[Effect] = [*self.forwarder.beyond(forward, now)]
        is_elsewhere = not is_inside and mate != self.gateway.name  # the mate, perhaps dead, alone knows what was there
        if is_elsewhere or not self.forwarder.must_wait(forward, distance):
            return [*beyond, *self._release_held([held], now, False)]
        if self.reorder_buffer.has(publisher, sequence):
            self.forwarder.duplicates += 1
            return beyond
        released = self.reorder_buffer.add(held, sequence - distance, now + self._wait_max(forward, now))
        self._set_timers(now)
        holds = [HoldEvent(forward, held.arrival)] if forward.qos else []
        return [*beyond, *holds, *self._release_held(released, now), *self._ask_again(self._host_of(forward))]

    def _wait_max(self, forward: Forward, now: Instant) -> Duration:
        """Return how long *forward* waits for its predecessor: not long if that may have been here in an earlier run,
        was lost with a link, or waits at a gateway that cannot be reached.
        """
        peer = self._host_of(forward)
        is_broken = peer is None or (self.link_status.is_failed(peer) and not forward.qos)
        is_away = peer is None or not (self.link_status.is_up(peer) or self.gossip.link_state.is_reachable(peer))
        return BROKEN_WAIT_MAX if self._is_restarted or is_broken or is_away else WAIT_MAX

    def _host_of(self, forward: Forward) -> str | None:
        """Return the peer at which *forward* was published, or from which it comes as a rule; None if it is none."""
        host = self.gossip.link_state.name_of(host_of(forward.header.publisher))
        return host if host in self.gateway.peers() else None

    def _release_held(self, held: Iterable[HeldEvent], now: Instant, was_held: bool = True) -> list[Effect]:
        """Deliver and forward events in their turn, and those that waited for them."""
        effects: list[Effect] = []
        for early, arrival, since in held:
            forward = aged(early, since, now)
            is_local, sends = self.forwarder.enter(forward, arrival, now)
            if is_local:
                effects += [*sends, DeliverEvent(forward, not arrival, was_held and forward.qos > 0)]
            elif was_held and forward.qos:
                effects.append(ReleaseEvent(forward.header.eid))
            effects += self._release_successors(forward, now)
        return effects

    def _release_successors(self, forward: Forward, now: Instant) -> list[Effect]:
        """Deliver the events that waited for *forward*."""
        if not self.reorder_buffer.has_events_of(forward.header.publisher):
            return []
        return self._release_held(self.reorder_buffer.successors(*forward.header.eid), now)

    def _release(self, records: Iterable[Advertisement], now: Instant) -> list[Effect]:
        """Publish the events of *records* that waited for answers."""
        effects: list[Effect] = []
        for record in records:
            for forward, since in self.region.pending.end(record):
                effects += self.forwarder.publish(aged(forward, since, now), record, now)
                if forward.qos:
                    effects.append(ReleaseEvent(forward.header.eid))
        self.timers.move("settle", self.forwarder.settle_due)
        return effects

    def _end_idle(self, now: Instant) -> list[Effect]:
        """End the flows that have had no events for `flow_s`, and the advertisements without any for `advertised_s`."""
        advertisements, options = self.region.advertisements, self._options
        advertisements.end_flows(now - options.flow_s * SECOND)
        since, most = now - options.advertised_s * SECOND, options.idle_advertisements_max
        return [*self.region.end(advertisements.expired(since, most, now, self.keeps_retained))]

    def _expire_lease(self, peer: str, now: Instant) -> list[Effect]:
        """Remove the state of *peer*, whose link has been down for `lease_s`."""
        if peer in self.gossip.relay.severed:  # it is alive and reachable by relay
            self.timers.set(("lease", peer), now + self._options.lease_s * SECOND)
            return []
        self.region.forget(peer)
        effects: list[Effect] = [] if self.gossip.link_state.is_reachable(peer) else [EndLease(peer)]
        if peer not in self.gateway.neighbours:
            return effects
        gone = self.interests.withdrawn(peer, self.interests.announced_by(peer))
        return [*effects, *self._propagate(self.gossip.announce(gone), now)]

    def _setting_timers(self, sends: Sequence[SendMessage], now: Instant) -> list[Effect]:
        self._set_timers(now)
        return [*sends]

    def _set_timers(self, now: Instant) -> None:
        """Set the timers from the state."""
        region = self.region
        self.timers.move("bits", region.secondary.next_due)
        self.timers.move("answers", region.pending.next_due)
        self.timers.move("sort", self.reorder_buffer.next_due)
        self.timers.move("settle", self.forwarder.settle_due)
        self.timers.move("flush", self.flushes.next_due)
        self.timers.move("pairs", self.pairs.next_due)
        self.timers.move("wills", self.wills.next_due)
        self.timers.move("retry", self.timers.deadline_of("retry", now + RETRY) if region.is_unconfirmed else None)
        pause = self.gossip.take_compare_delay()
        if pause is not None:
            is_used = self.gossip.relay.is_active or region.deputies
            self.timers.move("compare", now + pause if is_used else None)
        flows_due = min(self.timers.deadline_of("idle", NEVER), now + MINUTE)
        self.timers.move("idle", region.advertisements.next_due(flows_due, self._options.advertised_s * SECOND))

    def _unix_ms(self, now: Instant) -> int:
        return now // MILLISECOND + self.unix_offset_ms
