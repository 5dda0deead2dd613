"""The front end as a gateway among others: what joins its clients, its journal and its links.

How a world works with it:

    overlay = joining.join(frontend, ...)         before anything is restored; then overlay.start(now)
    stream = overlay.accepted(now, certified)     a peer's connection came in
    stream = overlay.dialled(peer, now, certified), overlay.dial_failed(peer, now)
    stream.feed(chunk, now), stream.lost(now)     as `overlay.link.stream` says
    overlay.turn(now, flush)                      once per turn, before clients are flushed; *flush* writes what a
                                                  stream has, sets `paused`, and closes its socket if it `is_over`
    overlay.take_dials()                          whom to dial now
    overlay.let_go(now), overlay.stop(now)        says good-bye; a `turn` after each writes it

Deadlines are those of `frontend.fire`, and the journal is the front end's: it is on disk when that says so.

An event for a peer is appended to the journal before its publisher is answered, and the answer waits for the disk with
everything else. What one chunk of a peer leads to here goes to the disk together with the record that it was received,
or not at all; so is a QoS 2 message with what was taken of it. So each happens once, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import field
from typing import Final

from edgebridge.frontend.arrivals import Arrivals
from edgebridge.frontend.crowding import Crowding
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.departures import Departures
from edgebridge.frontend.forwards import properties_of, publication_of
from edgebridge.frontend.held import Held
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.passage import Passage
from edgebridge.frontend.peerlinks import Run, links_of
from edgebridge.frontend.remembering import Remembering
from edgebridge.frontend.reservation import Reservation
from edgebridge.frontend.windows import Windows
from edgebridge.frontend.wishes import Wishes
from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, NEVER, Instant
from edgebroker.node.node import Node
from edgebroker.node.peereffects import AskRetained, Effect, Found, Hand, HandRetained, Hold, Learned, Send, Stamped
from edgebroker.node.peers import AT_HOME, Peers
from edgebroker.node.routes import Route
from edgebroker.node.subscriptions import Copy
from edgebroker.node.ways import USUAL, Ways
from edgebroker.overlay.classes import Service
from edgebroker.overlay.link.events import Delivered, Dial, Down, Dropped, LinkEvent, Received, Refused, Up
from edgebroker.overlay.link.lanes import event_of
from edgebroker.overlay.link.link import STOPPING, Link
from edgebroker.overlay.link.records import StoredLinks
from edgebroker.overlay.link.stream import Stream
from edgebroker.overlay.messages import Forward, Message, Series
from edgebroker.overlay.topology import Topology
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

OVERLAY: Final = ("overlay",)
"""The deadline of links and routing."""


@dataclass(slots=True)
class _Event:
    """One event that came or goes."""

    forward: Forward
    peers: list[str] = field(default_factory=list)  # a copy leaves for them; several for one that passes on several
    hand: Hand | None = None


class Overlay:
    """One gateway's part in a federation."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        keeping: Keeping,
        remembering: Remembering,
        topology: Topology,
        name: str,
        run: Run,
        now: Instant,
        stored: StoredLinks | None = None,
        ways: Ways = USUAL,
        departures: Departures | None = None,
    ) -> None:
        """*stored*: what an earlier run left; *departures* go on, if there are any. Raises TopologyInvalid."""
        stored = StoredLinks() if stored is None else stored
        self.topology = topology
        self.name = name
        self.told: list[Up | Down | Refused] = []  # an operator may want to know; whoever tells it empties the list
        self.streams: list[Stream] = []  # every connection with a peer, or with somebody who may turn out to be one
        self._node = node
        self._delivery = delivery
        self._keeping = keeping
        self._dials: list[str] = []
        self._now = now
        self._planned = NEVER
        self._reservation = own = Reservation(keeping, stored, now)
        self._has_met = False
        self.remembering = remembering
        self.peers = Peers(topology, name, ways, boot=own.boot, first=own.first, keeps_retained=remembering.keeps_own)
        self.peers.unix_offset_ms = keeping.clock // MILLISECOND
        storage = None if keeping.journal is None else self
        self.links = links_of(topology, name, run, now, storage, stored, keeping.clock)
        self.crowding = Crowding(self.links, self.peers)
        self.windows = Windows(self.links, self.peers) if ways.is_dynamic else None
        """What dynamic routing goes by; None: routing is static."""
        self.departures = Departures(node.ledger) if departures is None else departures
        self.passage: Passage | None = None
        """The short way of events; None: all take the long one."""
        self.arrivals = Arrivals(keeping, self._receive)
        self.held = Held(keeping, stored.held)
        self.wishes = Wishes(keeping, self.peers, stored.interests)
        remembering.attach(self.peers, self._perform, stored)

    # -- the run --------------------------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin to dial. The front end's state is restored."""
        self._now = now
        self.peers.start(now, self.wishes.take_stored())
        self.departures.begin(((link.peer, each) for link in self.links for each in link.outbox.events()), now)
        self._reservation.begin(self.peers.numbers, now)
        self._meet(now)
        self.remembering.advertise(now)
        self._perform_together(self.peers.resume(self.held.left(now)), now)
        self._node.timers.set(OVERLAY, now)

    def _meet(self, now: Instant) -> None:
        """Begin to dial, once it is certain that no other run gives the same numbers."""
        if not self._has_met and self._reservation.is_on_disk:
            self._has_met = True
            for link in self.links:
                link.start(now)

    def stop(self, now: Instant, why: str = STOPPING) -> None:
        """Say good-bye to all peers, and *why*."""
        for link in self.links:
            link.stop(now, why)

    def let_go(self, now: Instant) -> None:
        """To be called a turn before `stop`: what waits only to be in order, or for an answer, waits no longer."""
        self._perform_together(self.peers.let_go(now), now)

    def close_books(self, now: Instant) -> None:
        """What waits for peers stays queued."""
        self.departures.leave(now)

    # -- connections ----------------------------------------------------------------------------------------------

    def accepted(self, now: Instant, certified: str | None = None) -> Stream:
        """A connection came in; *certified* is the name in the peer's certificate, if it showed one."""
        stream = self.links.accepted(now, certified)
        if not self._has_met:
            stream.end("the journal is not on disk yet", now)
        return self._opened(stream)

    def dialled(self, peer: str, now: Instant, certified: str | None = None) -> Stream:
        """The connection to *peer* is there."""
        return self._opened(self.links[peer].dialled(now, certified))

    def dial_failed(self, peer: str, now: Instant) -> None:
        """The connection to *peer* could not be had."""
        self.links[peer].dial_failed(now)

    def take_dials(self) -> list[str]:
        """The peers to dial now. To each, `dialled` or `dial_failed` is the answer."""
        dials, self._dials = self._dials, []
        return dials

    def _opened(self, stream: Stream) -> Stream:
        self.streams.append(stream)
        return stream

    # -- turns ----------------------------------------------------------------------------------------------------

    def turn(self, now: Instant, flush: Callable[[Stream], None]) -> None:
        """Do what has come up, and let *flush* write what each connection has."""
        self._now = now
        stirred = True
        while stirred:  # most turns find nothing to do here, and each client's packet is one
            for link in self.links:
                if link.has_events:
                    for event in link.take_events():
                        try:
                            self._take(link, event, now)
                        except Exception as error:
                            self.arrivals.stumble(link.peer, event, error, now)
            self.pass_on(self.crowding.look(now), now)
            for stream in self.streams:
                flush(stream)
            self.streams = [stream for stream in self.streams if not stream.is_over or stream.out]
            stirred = False
            for link in self.links:
                stirred = stirred or link.has_events
        if self.windows is not None:
            self.windows.look(now)
        self._reservation.go_on(self.peers.numbers, now)
        self._plan()

    def fire(self, now: Instant) -> None:
        """The deadline OVERLAY has come."""
        self._now = now
        self._planned = NEVER
        self._forget_ways()
        for link in self.links:
            link.fire(now)
        for stream in self.streams:
            stream.fire(now)
        self._perform_together(self.peers.due(now), now)
        self.remembering.go_on(now)

    def synced(self, now: Instant) -> None:
        """The journal is on disk as far as `keeping.synced` says."""
        self._meet(now)
        for link in self.links:
            link.synced(self._keeping.synced, now)

    def _plan(self) -> None:
        due, windows = NEVER, None if self.windows is None else self.windows.due
        for one in (self.peers.timers.next_due(), self.remembering.due, windows):
            if one is not None and one < due:
                due = one
        for each in (*self.links, *self.streams):
            if (one := each.due()) is not None and one < due:
                due = one
        due = max(due, self._now + 1)  # what waits in the world's queues comes first
        if due != self._planned and due < NEVER:
            self._planned = due
            self._node.timers.set(OVERLAY, due)

    # -- the journal of the links ---------------------------------------------------------------------------------

    def append(self, record: bytes, waits: bool) -> int:
        """Take a record of a link."""
        return self._keeping.append(record, waits, self._now)

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again for a snapshot."""
        yield self._reservation.record()
        for link in self.links:
            yield from link.records()
        yield from self.remembering.records()
        yield from self.held.records()
        yield from self.wishes.records()

    # -- local clients --------------------------------------------------------------------------------------------

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: tuple[Predicate, ...], now: Instant
    ) -> None:
        """A subscription holds."""
        self._forget_ways()
        self._perform(self.peers.subscribed(number, topic_filter, predicates, now), now)

    def unsubscribed(self, number: int, now: Instant) -> None:
        """It ended."""
        self._forget_ways()
        self.remembering.ended(number)
        self._perform(self.peers.unsubscribed(number, now), now)

    def accept(self, publication: Publication, route: Route, now: Instant) -> tuple[Copy, ...]:
        """As `route.accept`; and what peers want of *publication*, by a local client, is on its way to them."""
        ledger = self._node.ledger
        if publication.topic.startswith(AT_HOME):
            return route.accept(publication, ledger, now)
        old = self.remembering.stamp(publication.topic) if publication.retain else None
        before = self.peers.interests.tree.pattern_work
        effects = self.peers.published(publication, now, properties_of(publication), not publication.qos, old)
        self._node.routes.work += self.peers.interests.tree.pattern_work - before
        for effect in effects:
            if isinstance(effect, Stamped):
                self.remembering.stamped(effect.header, publication, now)
        peers = self._perform(effects, now, self.peers.last)
        if ledger.log is not None:
            ledger.log.stamp(self.peers.last)
        copies = route.accept(publication, ledger, now, len(peers))
        for peer in peers:
            self.departures.leaves(peer, self.peers.last, publication, now)
        return copies

    # -- peers ----------------------------------------------------------------------------------------------------

    def _take(self, link: Link, event: LinkEvent, now: Instant) -> None:
        match event:
            case Received(_, messages):
                self.arrivals.take(link, messages, now)
            case Dial(peer):
                self._dials.append(peer)
            case Up(peer):
                self._forget_ways()
                self.told.append(event)
                self._perform(self.peers.link_up(peer, now), now)
            case Down(peer):
                self._forget_ways()
                self.told.append(event)
                self._perform(self.peers.link_down(peer, now), now)
            case Refused():
                self.told.append(event)
            case Delivered(peer, events):
                self.departures.delivered(peer, events, now)
            case Dropped(peer, messages, cause, fate):
                self.departures.dropped(peer, messages, cause, fate, now)

    def _perform_together(self, effects: Iterable[Effect], now: Instant) -> None:
        """As `_perform`; it counts as a whole after a crash, or not at all."""
        self._keeping.begin_together()
        self._perform(effects, now)
        self._keeping.end_together(now)

    def _receive(self, peer: str, message: Message, now: Instant) -> None:
        if isinstance(message, Forward | Series):
            if self.passage is not None and self.passage.came(peer, message, now):
                return
        else:
            self._forget_ways()
        self._perform(self.peers.received(peer, message, now), now)

    def _forget_ways(self) -> None:
        """What decides on the ways of events has changed, or may have."""
        if self.passage is not None:
            self.passage.forget()

    def send(self, peers: Collection[str], message: Message, now: Instant) -> None:
        """Give an event, or a series, to the links of *peers*."""
        self._now = now
        for peer in peers:
            self.links[peer].send(message, Service.LIVE, now)

    def pass_on(self, sends: Iterable[Send], now: Instant) -> None:
        """Give *sends* to their links."""
        self._now = now
        for send in sends:
            self.links[send.peer].send(send.message, send.service, now)

    def _perform(self, effects: Iterable[Effect], now: Instant, own: tuple[int, int] | None = None) -> list[str]:
        """Do what routing wants done. Returns the peers that get the event *own*, which is not in the books yet.

        What leaves goes first: if the gateway crashes in between, what comes again must not be taken for known.
        """
        self._now = now
        events: dict[tuple[int, int], _Event] = {}
        is_held = False
        for effect in effects:
            match effect:
                case Send(peer, message, service):
                    self.links[peer].send(message, service, now)
                    forward = event_of(message)
                    if forward is not None:
                        events.setdefault(forward.header.eid, _Event(forward)).peers.append(peer)
                case Hand(forward):
                    events.setdefault(forward.header.eid, _Event(forward)).hand = effect
                case Hold():
                    self.held.hold(effect, now)
                    is_held = True
                case Learned():
                    self.wishes.learned(effect, now)
                case Found(peer):
                    self.links[peer].hurry(now)
                case AskRetained(request, interest):
                    self.remembering.asked(request, interest, now)
                case HandRetained(number, forward):
                    self.remembering.answered(number, publication_of(forward, now), forward.header, now)
        self.held.went_on += is_held and bool(events)
        mine = events.pop(own, None) if own is not None else None
        for event in events.values():
            self._enter(event, now)
        return [] if mine is None else mine.peers

    def _enter(self, event: _Event, now: Instant) -> None:
        """An event of another gateway, or one that had to wait: it is in the books from now on, with its copies."""
        forward, ledger = event.forward, self._node.ledger
        if event.hand is not None and event.hand.was_held:
            self.held.handed(forward.header.eid, now)
        publication = publication_of(forward, now)
        if event.hand is not None and not forward.topic.startswith(AT_HOME):
            if forward.retain and event.hand.is_entry:
                self.remembering.keep(publication, forward.header, now)
            keeping = self._keeping
            if forward.qos == 2:  # no reader may have it before that is on disk
                keeping.open_together(now)
                keeping.is_taking = True
            route = self._node.routes.route(forward.topic)
            if ledger.log is not None:
                ledger.log.stamp(forward.header.eid)
            self._delivery.deliver_promised(publication, route.accept(publication, ledger, now, len(event.peers)), now)
            keeping.is_taking = False
        elif event.peers:
            if ledger.log is not None:
                ledger.log.stamp(forward.header.eid)
            publication.number = ledger.accept(
                now, forward.client, 1, forward.topic, forward.qos, len(forward.payload), len(event.peers)
            )
        for peer in event.peers:
            self.departures.leaves(peer, forward.header.eid, publication, now)
