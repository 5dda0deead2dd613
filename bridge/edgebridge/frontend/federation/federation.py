"""The front end as a member of a federation: joins its clients, its journal and its links to peers.

How a world works with it:

    member = join.join(frontend, ...)             before anything is restored; then member.start(now)
    stream = member.accepted(now, certified)      a peer's connection came in
    stream = member.dialled(peer, now, certified), member.dial_failed(peer, now)
    stream.feed(chunk, now), stream.lost(now)     as the connection of an overlay link says
    member.turn(now, flush)                       once per turn, before clients are flushed; *flush* writes what a
                                                  stream has, sets `paused`, and closes its socket if it `is_over`
    member.take_dials()                           the peers to dial now
    member.drain(now), member.stop(now)           says good-bye; a `turn` after each writes it

Deadlines are those of `frontend.fire`, and the journal is the front end's: a record is on disk when that says so.

An event for a peer is appended to the journal before its publisher is answered, and the answer waits for the disk.
What one chunk of a peer leads to here is one transaction with the record that the chunk was received; a QoS 2 message
is one with the record of its packet identifier. So each happens exactly once, whatever crashes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import field
from typing import Final

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.federation.backpressure import CongestionSampler, DiskWatch, PeerBackpressure
from edgebridge.frontend.federation.convert import encode_other_properties, to_publication
from edgebridge.frontend.federation.delivery_tracer import DeliveryTracer
from edgebridge.frontend.federation.fast_path import FederationFastPath
from edgebridge.frontend.federation.gateway_events import GatewayEvents, create_directory
from edgebridge.frontend.federation.held_subacks import HeldSubacks
from edgebridge.frontend.federation.link_setup import BootIdentity, create_links
from edgebridge.frontend.federation.peer_copies import PeerCopyLedger
from edgebridge.frontend.federation.persistence import IdReservation, NeighbourInterestStore, PeerInbox, ReorderStore
from edgebridge.frontend.federation.retained import FederatedRetained
from edgebridge.frontend.federation.roaming.roaming import RoamingSessions
from edgebridge.frontend.federation.shared_groups import FederatedGroups
from edgebridge.frontend.federation.wills import FederatedWills
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.options import NO_HOST, FrontendHost
from edgebroker.dataclasses import dataclass
from edgebroker.federation.bridge_pairs import BridgePair
from edgebroker.federation.effects import (
    AttachHeader,
    DeliverEvent,
    DeliverRetained,
    DeliverUnmodified,
    Effect,
    EmptyOutbox,
    EndFlush,
    EndLease,
    HoldEvent,
    LookUpRetained,
    PublishWills,
    ReceiveStatus,
    RedialPeer,
    ReleaseEvent,
    ReportStatus,
    RequestAgain,
    SendAround,
    SendMessage,
    SessionElsewhere,
    StoreGroupMembers,
    StoreInterests,
)
from edgebroker.federation.group_members import origin_of
from edgebroker.federation.link_pager import LinkPager
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.federation.router import FederationRouter
from edgebroker.header import host_of
from edgebroker.instants import MILLISECOND, NEVER, Duration, Instant
from edgebroker.limits import GATEWAY_NUMBER_MAX
from edgebroker.log_schema import Cause, MessageOrigin
from edgebroker.node.node import Node
from edgebroker.node.routes import Route
from edgebroker.node.subscriptions import Copy
from edgebroker.overlay.link.class_queue import event_of
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import (
    DeliveryEvent,
    DialRequest,
    DropEvent,
    LinkDown,
    LinkEvent,
    LinkLeaseEnd,
    LinkRefusal,
    LinkUp,
    ReceiveEvent,
)
from edgebroker.overlay.link.journal_entries import RepeatedEntries, SharedEntry
from edgebroker.overlay.link.journal_records import StoredLinks
from edgebroker.overlay.link.link import STOPPING, Link
from edgebroker.overlay.messages import EventSeries, Forward, Message, StatusReply
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter, is_reserved
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest

STATUS_REQUESTS_MAX: Final = 64
"""Queries of operators that wait for an answer of this gateway; older ones are dropped."""
STATUS_REPLIES_MAX: Final = GATEWAY_NUMBER_MAX + 1
OVERLAY: Final = ("overlay",)
"""The deadline of links and routing."""


@dataclass(slots=True)
class _FederationEvent:
    """One event that came or goes."""

    forward: Forward
    peers: list[str] = field(default_factory=list)  # a copy leaves for them; several for one that passes on several
    local_delivery: DeliverEvent | None = None


class FederationMember:
    """One gateway's part in a federation."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        session_journal: SessionJournal,
        federated_retained: FederatedRetained,
        federated_wills: FederatedWills,
        topology: Topology,
        name: str,
        run: BootIdentity,
        now: Instant,
        stored: StoredLinks | None = None,
        ways: FederationOptions = DEFAULT_OPTIONS,
        peer_copies: PeerCopyLedger | None = None,
        host: FrontendHost = NO_HOST,
    ) -> None:
        """*stored*: what an earlier run left. Raises TopologyInvalid."""
        stored = stored or StoredLinks()
        self.topology, self.name = topology, name
        self.link_events: list[LinkUp | LinkDown | LinkRefusal | LinkLeaseEnd] = []
        """What an operator may want to know; whoever tells it empties the list."""
        self.streams: list[LinkConnection] = []
        """Every connection with a peer, or with somebody who may turn out to be one."""
        self.status_requests: deque[int] = deque(maxlen=STATUS_REQUESTS_MAX)
        """Queries of operators at other gateways, which `answer_status` answers; whoever does empties it."""
        self.status_replies: deque[StatusReply] = deque(maxlen=STATUS_REPLIES_MAX)
        """Reports of other gateways that `query_status` asked for; whoever reads them empties it."""
        self._node, self._delivery, self._journal = node, delivery, session_journal
        self._dials: list[str] = []
        self._now, self._planned, self._is_dialling = now, NEVER, False
        self._timer_due: Instant | None = None
        self._timer_changes = -1  # of the routing's timers, when their next deadline was asked for
        self._id_reservation = own = IdReservation(session_journal, stored, now)
        self.retained = federated_retained
        self.peers = FederationRouter(
            topology,
            name,
            ways,
            boot=own.boot,
            first=own.first,
            is_restarted=stored.run > 0,
            keeps_retained=federated_retained.retains_own,
        )
        self.peers.subscribe_to_site()
        self.peers.unix_offset_ms = session_journal.clock_offset // MILLISECOND
        storage = None if session_journal.storage is None else self
        self.links = create_links(topology, name, run, now, storage, stored, session_journal.clock_offset, ways)
        self.peer_copies = PeerCopyLedger(node.ledger) if peer_copies is None else peer_copies
        self.pager = LinkPager(self.links, session_journal.storage, self.peer_copies)
        self.pager.grow_outboxes()
        self.backpressure = PeerBackpressure(self.links, self.peers)
        self.congestion = CongestionSampler(self.links, self.peers, ways.is_dynamic)
        """Which links are stalled, and how congested they are."""
        self.disk_watch = DiskWatch(session_journal, self.peers)
        self.tracer = DeliveryTracer(self.peers.relocation, self.links, self.peers.gateway.number, node.ledger, host)
        self.fast_path: FederationFastPath | None = None
        """The short way of events; None: all take the long one."""
        self.held_subacks = HeldSubacks(session_journal, ways.suback_wait_ms > 0)
        self.inbox = PeerInbox(session_journal, self._receive, host)
        self.reorder_store = ReorderStore(session_journal, stored)
        self.interest_store = NeighbourInterestStore(session_journal, self.peers, stored.interests)
        federated_retained.attach(self.peers, self, stored)
        self.roaming: RoamingSessions | None = None
        """The sessions that move between gateways; None: none do."""
        self.groups = FederatedGroups(self, node, delivery, session_journal, stored.groups.values())
        self.wills = federated_wills
        self.wills.attach(self.peers, own.boot, ways.dead_gateway_wills_after_s > 0)
        self.directory = create_directory(topology, self.peers, session_journal, run.boot_id, ways.roams)
        self.gateway_events = GatewayEvents(self.peers, self.retained, self.wills, self.directory, self.groups)

    # -- the run --------------------------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin to dial. The front end's state is restored."""
        self._now = now
        self.wills.hold_restored()
        self.peers.start(now, self.interest_store.take_recovered())
        if self.roaming is not None:
            self.reorder_store.restore_seen(self.peers, self.links)
        self.peer_copies.begin(
            ((link.peer, each) for link in self.links for each in link.outbox.events()),
            (page for link in self.links for page in link.outbox.backlog.pages if page.entries is None),
            now,
        )
        self._id_reservation.begin(self.peers.ids, now)
        self._start_links(now)
        self.retained.advertise(now)
        self.groups.start(now)
        self._perform_atomically(self.peers.resume(self.reorder_store.recovered(now), now), now)
        self.perform(self.directory.start(now), now)
        self._node.timers.set(OVERLAY, now)

    def _start_links(self, now: Instant) -> None:
        """Begin to dial, once it is certain that no other run gives the same numbers."""
        if not self._is_dialling and self._id_reservation.is_on_disk:
            self._is_dialling = True
            for link in self.links:
                link.start(now)

    def stop(self, now: Instant, why: str = STOPPING) -> None:
        """Say good-bye to all peers, and *why*."""
        for link in self.links:
            link.stop(now, why)

    def drain(self, now: Instant) -> None:
        """To be called a turn before `stop`: what waits only to be in order, or for an answer, waits no longer."""
        self.held_subacks.release_all()
        self.send_all(self.wills.drain(), now)
        self.perform(self.directory.flush(now), now)
        self._perform_atomically(self.peers.release_held(now), now)

    def discard(self, peer: str, cause: Cause, now: Instant) -> int:
        """Drop all events that wait for *peer*, because of *cause*. Its connection ends, if there is one, so that none
        of them is on its way. Returns their number.
        """
        connection = self.links[peer].connection
        if connection is not None:
            connection.end("what waited is discarded", now)
        self._now = now
        count = self.pager.discard(self.links[peer], cause)
        if self._journal.storage is not None:
            self._journal.plan_commit()
        self._node.timers.set(OVERLAY, now)
        return count

    def send_again(self, sends: Collection[SendMessage], now: Instant) -> None:
        """Give *sends*, copies of events that waited for another peer, to their links."""
        self.send_all(sends, now)
        for send in sends:
            if (forward := event_of(send.message)) is not None:
                self.peer_copies.resume_copy(send.peer, forward, now)

    # -- connections ----------------------------------------------------------------------------------------------

    def accepted(self, now: Instant, certified: str | None = None) -> LinkConnection:
        """A connection came in; *certified* is the name in the peer's certificate, if it showed one."""
        stream = self.links.accept(now, certified)
        if not self._is_dialling:
            stream.end("the journal is not on disk yet", now)
        return self._opened(stream)

    def dialled(self, peer: str, now: Instant, certified: str | None = None) -> LinkConnection:
        """The connection to *peer* is there."""
        return self._opened(self.links[peer].dialled(now, certified))

    def dial_failed(self, peer: str, now: Instant, is_offline: bool = False) -> None:
        """The connection to *peer* could not be had. *is_offline*: because this machine has no network."""
        self.links[peer].dial_failed(now, is_offline)

    def network_seen(self, now: Instant) -> None:
        """There is a sign that this machine has a network: peers are dialled soon."""
        for link in self.links:
            link.network_seen(now)

    def take_dials(self) -> list[str]:
        """The peers to dial now. To each, `dialled` or `dial_failed` is the answer."""
        dials, self._dials = self._dials, []
        return dials

    def _opened(self, stream: LinkConnection) -> LinkConnection:
        self.streams.append(stream)
        return stream

    # -- turns ----------------------------------------------------------------------------------------------------

    def turn(self, now: Instant, flush: Callable[[LinkConnection], None]) -> None:
        """Handle the events of the links, and let *flush* write the output of each connection."""
        self._now = now
        if self.held_subacks.needs_flush:  # one flush for all SUBSCRIBE packets of the turn
            request, effects = self.peers.flush_interests(now)
            self.held_subacks.flush_begun(request)
            self.perform(effects, now)
        self.send_all(self.wills.take_messages(now), now)
        self.perform(self.directory.fire(now), now)
        due = self.links.next_turn(now)
        while due <= now or self._has_output() or self._has_backpressure():  # most turns are those of clients
            for link in self.links.with_events():
                for event in link.take_events():
                    try:
                        self._handle_event(link, event, now)
                    except Exception as error:
                        self.inbox.fail(link.peer, event, error, now)
            self.send_all(self.backpressure.announce(now), now)
            for stream in self.streams:
                flush(stream)
            if self.pager.paged and self.pager.prepare(now):
                self._journal.plan_commit()
            self.streams = [stream for stream in self.streams if not stream.is_over or stream.out]
            due = self.links.next_turn(now)
            if not self.links.with_events():
                break
        if self.tracer.outputs:
            self.tracer.flushed(now)
        if self.congestion.sample(now):
            self._invalidate_routes()
        if effects := self.disk_watch.look(now):
            self._invalidate_routes()
            self.perform(effects, now)
            due = now
        if self.peers.ids.allocated > self._id_reservation.extend_at:
            self._id_reservation.extend(self.peers.ids, now)
        self._plan(due)

    def _has_output(self) -> bool:
        """Whether a connection has output of its own, or must be removed."""
        for stream in self.streams:  # noqa: SIM110 a generator is slower, and this runs in every turn
            if stream.out or stream.is_over:
                return True
        return False

    def _has_backpressure(self) -> bool:
        """Whether an outbox is nearly full, or others have been told that one was."""
        for _, outbox in self.backpressure.outboxes:
            if outbox.has_backpressure:
                return True
        return bool(self.backpressure.announced)

    def fire(self, now: Instant) -> None:
        """The deadline OVERLAY has come."""
        self._now, self._planned = now, NEVER
        if (self.peers.timers.next_due() or NEVER) <= now:  # no route depends on the time of a link or a session
            self._invalidate_routes()
        for link in self.links:
            link.fire(now)
        for stream in self.streams:
            stream.fire(now)
        if self.pager.fire(now):
            self._journal.plan_commit()
        self._perform_atomically(self.peers.fire(now), now)
        if (self.tracer.due or NEVER) <= now:
            self.send_all(self.tracer.fire(now), now)
        self.retained.continue_replies(now)
        self.groups.fire(now)

    def synced(self, now: Instant) -> None:
        """The journal is on disk up to the record `SessionJournal.synced`."""
        self._start_links(now)
        for link in self.links:
            link.synced(self._journal.synced, now)

    def check_pages(self, now: Instant) -> None:
        """Look for the page files of links, which an earlier run left."""
        self._now = now
        self.pager.check_files()

    def page_work_done(self, now: Instant) -> None:
        """The disk has done something, or failed: parts of outboxes may be moved to it, or be in memory again."""
        self._now = now
        self.pager.grow_outboxes()
        if self.pager.collect(now):
            self._journal.plan_commit()

    def _plan(self, due: Instant) -> None:
        """Set the timer OVERLAY. *due*: the next turn that the links need."""
        timers = self.peers.timers
        if timers.changes != self._timer_changes:
            self._timer_changes, self._timer_due = timers.changes, timers.next_due()
        for one in (
            self._timer_due,
            self.retained.due,
            self.congestion.due,
            self.disk_watch.due,
            self.pager.due,
            self.wills.due,
            self.directory.due,
            self.groups.due,
            self.tracer.due,
        ):
            if one is not None and one < due:
                due = one
        for stream in self.streams:
            if not stream.is_open and (one := stream.due()) is not None and one < due:
                due = one
        due = max(due, self._now + 1)  # what waits in the world's queues comes first
        if due != self._planned and due < NEVER:
            self._planned = due
            self._node.timers.set(OVERLAY, due)

    # -- the journal of the links ---------------------------------------------------------------------------------

    def append(self, record: bytes, waits: bool) -> int:
        """Take a record of a link."""
        return self._journal.append(record, waits, self._now)

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again for a snapshot."""
        yield self._id_reservation.record()
        repeated = RepeatedEntries()
        for link in self.links:
            yield from link.records(repeated)
        yield from repeated.records()
        yield from self.retained.records()
        yield from self.reorder_store.records({} if self.roaming is None else self.peers.forwarder.last_events())
        yield from self.interest_store.records()
        yield from self.groups.records()

    # -- local clients --------------------------------------------------------------------------------------------

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: tuple[Predicate, ...], now: Instant
    ) -> None:
        """A subscription holds."""
        self._invalidate_routes()
        if (told := self.groups.subscribed(number, now)) is not None:
            self.held_subacks.changes += told
            return
        effects = self.peers.subscribed(number, topic_filter, predicates, now)
        self.held_subacks.changes += any(isinstance(effect, SendMessage) for effect in effects)
        self.perform(effects, now)

    def unsubscribed(self, number: int, now: Instant) -> None:
        """It ended."""
        self._invalidate_routes()
        self.retained.subscription_ended(number)
        self.groups.unsubscribed(number, now)
        self.perform(self.peers.unsubscribed(number, now), now)

    def accept(self, publication: Publication, route: Route, now: Instant) -> tuple[Copy, ...]:
        """As `route.accept`; and what peers want of *publication*, by a local client, is on its way to them."""
        ledger = self._node.ledger
        if is_reserved(publication.topic):
            return route.accept(publication, ledger, now)
        old = self.retained.stamp(publication.topic) if publication.retain else None
        before = self.peers.interests.tree.pattern_work
        may_wait = not publication.qos or self.backpressure.can_wait(publication.held_bytes())
        effects = self.peers.publish(publication, now, encode_other_properties(publication), may_wait, old)
        self._node.routes.work += self.peers.interests.tree.pattern_work - before
        for effect in effects:
            if isinstance(effect, AttachHeader):
                self.retained.published(effect.header, publication, now)
        event, session_journal = self.peers.last_event_id, self._journal
        is_alone = not (session_journal.is_in_qos2 or session_journal.is_in_transaction)
        if is_alone and any(isinstance(effect, ReleaseEvent) for effect in effects):
            session_journal.begin_transaction()  # other events, which waited, leave too: with their copies, or not yet
            peers = self.perform(effects, now, event)
            session_journal.commit_transaction(now)
        else:
            peers = self.perform(effects, now, event)
        copies = route.accept(publication, ledger, now, len(peers), event)
        self.tracer.published(event, peers, len(copies), now)
        if self.roaming is not None and self.roaming.is_active:
            copies = self.roaming.divert(publication, copies, event, now)
        for peer in peers:
            self.peer_copies.open_copy(peer, event, publication, now)
        return self.groups.send_copies(publication, copies, event, now)

    # -- operators ------------------------------------------------------------------------------------------------

    def query_status(self, now: Instant) -> int:
        """Ask all other gateways for the state of their links. Returns the number of the query."""
        request, effects = self.peers.status_queries.query()
        self.perform(effects, now)
        return request

    def answer_status(self, request: int, report: bytes, now: Instant) -> None:
        """Answer one of `status_requests`."""
        self.perform(self.peers.status_queries.answer(request, report), now)

    # -- bridges --------------------------------------------------------------------------------------------------

    def join_pair(self, name: str, takeover: Duration, now: Instant) -> BridgePair:
        """Belong to the bridge pair *name*, or go on with another *takeover*, and return it."""
        self.perform(self.peers.join_pair(name, takeover, now), now)
        self._node.timers.set(OVERLAY, now)
        pair = self.peers.pairs.find(name)
        assert pair is not None
        return pair

    def leave_pair(self, name: str, now: Instant) -> None:
        """Belong to it no more."""
        self.perform(self.peers.leave_pair(name, now), now)

    # -- peers ----------------------------------------------------------------------------------------------------

    def _handle_event(self, link: Link, event: LinkEvent, now: Instant) -> None:
        match event:
            case ReceiveEvent(_, messages):
                self.inbox.receive(link, messages, now)
            case DialRequest(peer):
                self._dials.append(peer)
            case LinkUp(peer, _, capabilities):
                self._invalidate_routes()
                self.link_events.append(event)
                if not any(other.connection for other in self.links if other is not link):
                    self.network_seen(now)  # it was cut off from all of them
                self.perform(self.peers.link_up(peer, now, capabilities), now)
                self.wills.link_up(peer, capabilities, now)
                self.perform(self.directory.link_up(peer, now), now)
            case LinkDown(peer):
                self._invalidate_routes()
                self.link_events.append(event)
                self._perform_atomically(self.peers.link_down(peer, now), now)
                self.wills.link_down(peer)
                self.tracer.link_down(peer)
            case LinkRefusal():
                self.link_events.append(event)
            case DeliveryEvent(peer, events):
                self.peer_copies.delivered(peer, events, now)
                self.groups.left(events)
            case DropEvent(peer, messages, cause, fate):
                for message in messages if cause is not Cause.HANDED_OVER else ():
                    if (forward := event_of(message)) is not None:
                        self.peers.dropped(forward)
                self.peer_copies.dropped(peer, messages, cause, fate, now)
                self.groups.left(messages)

    def _perform_atomically(self, effects: Iterable[Effect], now: Instant) -> None:
        """As `perform`; it counts as a whole after a crash, or not at all."""
        self._journal.begin_transaction()
        self.perform(effects, now)
        self._journal.commit_transaction(now)

    def _receive(self, peer: str, message: Message, now: Instant) -> None:
        if isinstance(message, Forward | EventSeries):
            if self.fast_path is not None and self.fast_path.receive(peer, message, now):
                return
            if isinstance(message, EventSeries) and message.first.qos:
                self.inbox.handle_each(peer, message.events(), now)
                return
        elif isinstance(message, TraceInformationRequest | TraceInformationAnswer):
            self.tracer.measure_links()
        else:
            self._invalidate_routes()
        self.perform(self.peers.received(peer, message, now), now)

    def _invalidate_routes(self) -> None:
        """What decides on the ways of events has changed, or may have."""
        if self.fast_path is not None:
            self.fast_path.invalidate()

    def send(self, peers: Collection[str], message: Message, now: Instant) -> None:
        """Give an event, or a series, to the links of *peers*."""
        self._now = now
        shared = SharedEntry(self) if len(peers) > 1 else None
        copy_of = None if shared is None else shared.following(message)
        for peer in peers:
            self.links[peer].send(message, TrafficClass.LIVE, now, copy_of)
        if shared is not None:
            shared.append()

    def send_all(self, sends: Collection[SendMessage], now: Instant) -> None:
        """Give *sends* to their links."""
        self._now = now
        shared = SharedEntry(self) if len(sends) > 1 else None
        for send in sends:
            copy_of = None if shared is None else shared.following(send.message)
            self.links[send.peer].send(send.message, send.service, now, copy_of)
        if shared is not None:
            shared.append()

    def perform(self, effects: Iterable[Effect], now: Instant, own: tuple[int, int] | None = None) -> list[str]:
        """Do what routing wants done. Returns the peers that get the event *own*, which is not in the books yet.

        What leaves goes first: if the gateway crashes in between, what comes again must not be taken for known.
        """
        self._now = now
        events: dict[tuple[int, int], _FederationEvent] = {}
        is_held, shared = False, SharedEntry(self)
        for effect in effects:
            if not isinstance(effect, SendMessage):
                shared.append()
            match effect:
                case SendMessage(peer, message, service):
                    self.links[peer].send(message, service, now, shared.following(message))
                    forward = event_of(message)
                    if forward is not None:
                        events.setdefault(forward.header.eid, _FederationEvent(forward)).peers.append(peer)
                case DeliverEvent(forward):
                    events.setdefault(forward.header.eid, _FederationEvent(forward)).local_delivery = effect
                case HoldEvent():
                    self.reorder_store.add(effect, now)
                    is_held = is_held or effect.arrival is not None
                case ReleaseEvent(eid):
                    self.reorder_store.remove(eid, now)
                case StoreInterests():
                    self.interest_store.update(effect, now)
                case StoreGroupMembers(members):
                    self.groups.update(members, now)
                case RedialPeer(peer):
                    self.links[peer].dial_soon(now)
                case RequestAgain(peer):
                    state = self.links[peer].receive_state()
                    numbers = tuple(number for pair in state.upto.items() for number in pair)
                    self.send_all(self.peers.request_again(peer, state.store, numbers), now)
                case EmptyOutbox(peer, store, received):
                    self._empty_outbox(peer, store, received, now)
                case EndLease(peer):
                    self.directory.lease_ended(peer)
                    if self.links[peer].connection is None:
                        self.link_events.append(LinkLeaseEnd(peer, self.discard(peer, Cause.LEASE_ENDED, now)))
                        self.groups.end_lease(peer, now)
                case SendAround(peer):
                    for forward in self.links[peer].outbox.take_marks(now):
                        self.send_again(self.peers.forwarder.send_around(forward, now), now)
                case LookUpRetained():
                    self.retained.query_received(effect, now)
                case ReportStatus(request):
                    self.status_requests.append(request)
                case ReceiveStatus(reply):
                    self.status_replies.append(reply)
                case EndFlush(request, is_complete):
                    self.held_subacks.flush_ended(request, is_complete)
                    if self.roaming is not None:
                        self.roaming.flush_ended(request, is_complete, now)
                case DeliverRetained(number, forward):
                    self.retained.reply_received(number, to_publication(forward, now), forward.header, now)
                case PublishWills():
                    self.perform(self.wills.publish(effect, now), now)
                case SessionElsewhere() if self.roaming is not None:
                    clients = self.directory.clients_of(effect.client_fingerprint)
                    self.roaming.found_elsewhere(clients, effect.gateway, effect.stamp_ms, now)
                case DeliverUnmodified(number, forwards):
                    self.retained.unmodified_received(number, forwards, now)
        shared.append()
        self.reorder_store.forwarded_early += is_held and bool(events)
        mine = events.pop(own, None) if own is not None else None
        for event in events.values():
            self._account_event(event, now)
        return [] if mine is None else mine.peers

    def _empty_outbox(self, peer: str, store: bytes, received: tuple[int, ...], now: Instant) -> None:
        """Send what waits for *peer* on other paths; it is in the transaction of the message that asked for it."""
        if any(service not in set(TrafficClass) for service in received[::2]):
            return
        upto = {TrafficClass(service): number for service, number in zip(received[::2], received[1::2], strict=False)}
        upto.pop(TrafficClass.CONTROL, None)
        entries = self.links[peer].empty(store, upto, now)
        if entries:
            self.perform(self.peers.link_down(peer, now), now)
        for entry in entries:
            self.send_again(self.peers.forwarder.send_again(entry.message_at(now), peer), now)

    def _account_event(self, event: _FederationEvent, now: Instant) -> None:
        """An event of another gateway, or one that had to wait: it is in the books from now on, with its copies."""
        forward, ledger = event.forward, self._node.ledger
        if event.local_delivery is not None and event.local_delivery.was_held:
            self.reorder_store.remove(forward.header.eid, now)
        publication = to_publication(forward, now)
        begun, local_copies = self.tracer.clock(now) if forward.header.trace else now, 0
        if event.local_delivery is not None and is_reserved(forward.topic):
            self.perform(self.gateway_events.receive(forward, now), now)
        if event.local_delivery is not None and not is_reserved(forward.topic):
            if forward.retain:
                self.retained.superseded(forward.topic)
                if event.local_delivery.is_entry:
                    self.retained.retain(publication, forward.header, now)
            if forward.qos == 2:  # no reader may have it before that is on disk
                self._journal.open_transaction(now)
                self._journal.is_in_qos2 = True
                if self.roaming is not None:
                    self.reorder_store.note_delivered(forward.header.eid, now)
            route = self._node.routes.route(forward.topic)
            copies = route.accept(publication, ledger, now, len(event.peers), forward.header.eid)
            if self.roaming is not None and self.roaming.is_active:
                copies = self.roaming.divert(publication, copies, forward.header.eid, now)
            self._delivery.deliver_promised(publication, copies, now)
            self._journal.is_in_qos2 = False
            local_copies = len(copies)
        elif event.peers:
            if host_of(forward.header.publisher) == self.peers.gateway.number:  # it waited: the books have it already
                publication.origin = MessageOrigin.RESUMED
            publication.number = ledger.accept(
                now,
                forward.client,
                1,
                publication.topic,
                forward.qos,
                len(forward.payload),
                len(event.peers),
                event=origin_of(forward),
                origin=publication.origin,
            )
        if forward.header.trace:
            self.tracer.received(forward, event.peers, local_copies, begun, now)
        for peer in event.peers:
            self.peer_copies.open_copy(peer, forward.header.eid, publication, now)
