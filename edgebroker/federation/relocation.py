"""Relocation in a running gateway: which of its publishers are traced when, what is recorded, and which gateway is the
best one for each [GRAPE].

The rules of trace sessions and of the choice are in `edgebroker.relocation`; docs/relocation.md explains them. This
module owns their state, and decides when sessions begin. Events of a session take the usual path instead of a cached
route, which costs some 50 us more, so sessions are rationed in three ways. A publisher rests for nine times as long as
its last session lasted, at least a minute; a session must be paid for by the publisher's other messages; and all
sessions together have at most EVENTS_PER_S events a second. Between sessions an event costs nothing.

The owner calls `add` for each publisher, `session_of` for each event of one that is traced, `record` for each traced
event that was delivered or passed on, `receive` for TIR and TIA, and `fire` when `due` has come.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from heapq import heappop, heappush
from typing import Final, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.options import RelocationMode, RelocationOptions
from edgebroker.header import EventHeader
from edgebroker.instants import MINUTE, SECOND, Duration, Instant
from edgebroker.overlay.advertisements import SEQUENCE_MODULUS, Advertisements, LocalPublisher
from edgebroker.overlay.link.codec.messages import body
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.publication import Publication
from edgebroker.relocation.delay_monitor import DelayMonitor
from edgebroker.relocation.delivery_tree import DeliveryTree, OverlayTrees
from edgebroker.relocation.messages import RelocationEffect, SendRelocation, SessionEnd
from edgebroker.relocation.migration import MoveLimiter
from edgebroker.relocation.placement import PlacementRefusal, choose
from edgebroker.relocation.publisher_sessions import PublisherSessions, SessionOptions
from edgebroker.relocation.trace_recorder import TraceRecorder
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest

FIRST_AFTER: Final[Duration] = SECOND
"""A publisher is traced when its first event is so long ago: clients that send a few events and leave never are."""
REST_MIN: Final[Duration] = MINUTE
"""The shortest rest between two sessions of a publisher."""
REST_FACTOR: Final = 9
"""A publisher rests so many times as long as its session lasted, so a tenth of its events is traced at most."""
EVENTS_PER_S: Final = 200
"""Events a second that all open sessions of a gateway's publishers may have together: 1 % of a core. A single session
may have more, for it is over at once.
"""
PUBLISHERS_MAX: Final = 20_000
"""Publishers that are looked at, about 10 MiB. Others are counted, and stay where they are."""

ARRIVALS_MAX: Final = 1_000
"""Clients from other gateways that are remembered until they publish; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class PlacementEstimate:
    """What the last complete session of a publisher says of its gateway and of the best one."""

    target: str
    """The gateway that is best."""
    refusal: PlacementRefusal | None
    """Why the publisher should stay all the same; None: a move to `target` is proposed."""
    load_here: int
    """The gateways that the events of the session entered, all together; `load_there`: those that they would enter."""
    load_there: int
    delay_here: float
    """The mean time from the publisher to a client, in microseconds; `delay_there`: the same from `target`."""
    delay_there: float
    way_there: Duration
    """The part of `delay_there` in which an event is on its way from the publisher to `target`. Nobody measures it: it
    is taken to be the time on the links. No trace session contains it.
    """
    deliveries: int
    events: int
    payload_bytes: int
    """Of all events of the session together."""
    lasted: Duration
    uplinks_here: tuple[tuple[int, int, int], ...]
    """Cluster, other cluster, and the events of the session that cross an iLink from the one to the other."""
    uplinks_there: tuple[tuple[int, int, int], ...]
    made_at: Instant


class PlacedPublisher:
    """A publisher of this gateway, with its session and the latest choice."""

    __slots__ = (
        "began_at",
        "confirmations",
        "due",
        "estimate",
        "is_open",
        "lasted",
        "outcome",
        "payload_bytes",
        "publisher",
        "rate",
        "resumes",
        "seen",
        "sessions",
        "unusable",
    )

    def __init__(self, publisher: LocalPublisher, now: Instant) -> None:
        self.publisher = publisher
        self.due: Instant | None = None
        """When it is looked at next; None: it waits for its turn, or the records of its session are being collected."""
        self.is_open = False
        """Whether its events belong to a session."""
        self.began_at = now
        """When its session began, and `lasted`: the time until the last event of it."""
        self.lasted: Duration = 0
        self.seen = (now, publisher.sequence)
        """When it was looked at last, and the sequence of its last event then."""
        self.resumes = 0
        """The least sequence with which it may be traced again."""
        self.rate = 0.0
        """Its events a second, as of then."""
        self.payload_bytes = 0
        self.sessions = 0
        """Sessions whose records have come in, and `unusable`: those of them that say nothing."""
        self.unusable = 0
        self.outcome: PlacementRefusal | None = None
        """Why it stays, according to its last session."""
        self.confirmations = 0
        """Sessions in a row that propose the gateway of `estimate`; 0: the last one proposes none."""
        self.estimate: PlacementEstimate | None = None


class TraceReport(NamedTuple):
    """What the records of a session of one of this gateway's publishers say, for the delivery log."""

    client: str
    end: SessionEnd
    loads: Mapping[str, float]
    """Of each gateway that sent a record."""
    delays: Mapping[str, float]
    """The mean time from the gateway to a client, in microseconds."""
    ways: Mapping[str, Duration]
    """The time from the publisher to the gateway, as assumed."""
    events: int
    payload_bytes: int
    lasted: Duration
    target: str
    """The gateway that was chosen; empty: none was."""
    refusal: PlacementRefusal | None
    """Why the publisher stays; None: a move to `target` is proposed."""


class RelocationStatistics:
    """What one gateway knows of its publishers' events and of those of others."""

    def __init__(
        self, topology: Topology, name: str, advertisements: Advertisements, options: RelocationOptions
    ) -> None:
        self.options = options
        self.monitor = DelayMonitor(topology.gateway(name).peers())
        """The delays of this gateway."""
        self.limiter = MoveLimiter()
        """Counts why publishers stay."""
        self.published = (0, 0)
        """The identity of the last event that was traced, and the session that it belongs to."""
        self.published_in = 0
        self.due: Instant | None = None
        """When to call `fire`; None: there is nothing to do. An attribute, because it is asked for in every turn."""
        self.proposed = 0
        """Sessions after which a move was proposed."""
        self.abandoned = 0
        """Sessions with too few events."""
        self.untracked = 0
        """Publishers that are not looked at because there are too many."""
        self.sent: Counter[str] = Counter()
        """The messages that were sent, "request" or "answer", and their "bytes"."""
        self._name = name
        self._topology = topology
        self._advertisements = advertisements
        self._recorder = TraceRecorder(name, self.monitor)
        self._sessions = PublisherSessions(SessionOptions())
        self._publishers: dict[int, PlacedPublisher] = {}
        self._dues: list[tuple[Instant, int]] = []
        self._waiting: deque[PlacedPublisher] = deque()
        self._open: dict[int, PlacedPublisher] = {}
        self._arrived: dict[str, Instant] = {}  # clients that have come with a session of theirs, and when
        self._ready: set[str] = set()  # peers that are connected and know the messages
        self._known_trees: OverlayTrees | None = None
        self._reports: list[TraceReport] = []

    # -- settings ------------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether events are traced and recorded."""
        return self.options.mode is not RelocationMode.OFF

    def configure(self, options: RelocationOptions, now: Instant) -> None:
        """Go on with other options. What is known of publishers is forgotten if these decide about it."""
        before, self.options = self.options, options
        if before == replace(options, mode=before.mode, moves_per_minute=before.moves_per_minute) and (
            self.is_on == (before.mode is not RelocationMode.OFF)
        ):
            return
        for each in self._publishers.values():
            each.publisher.cached_until = SEQUENCE_MODULUS
        self._publishers.clear()
        self._dues.clear()
        self._waiting.clear()
        self._open.clear()
        self._sessions = PublisherSessions(SessionOptions())
        if not self.is_on:
            self._recorder = TraceRecorder(self._name, self.monitor)
        for publisher in self._advertisements.publishers():
            self.add(publisher, now)
        self._update_due()

    def link_up(self, peer: str, has_trace: bool) -> None:
        """Handle an open link to *peer*. *has_trace*: it answers TIRs."""
        (self._ready.add if has_trace else self._ready.discard)(peer)

    def link_down(self, peer: str) -> None:
        """Handle a lost link to *peer*."""
        self._ready.discard(peer)

    # -- this gateway's publishers -------------------------------------------------------------------------------------

    def add(self, publisher: LocalPublisher, now: Instant) -> None:
        """Look at *publisher* from now on, if that is new."""
        if not self.is_on or publisher.number in self._publishers:
            return
        if len(self._publishers) >= PUBLISHERS_MAX:
            self.untracked += 1
            return
        each = self._publishers[publisher.number] = PlacedPublisher(publisher, now)
        if publisher.client in self._arrived:
            self.limiter.arrived(publisher.number, self._arrived.pop(publisher.client))
        self._plan(each, now + FIRST_AFTER)

    def client_arrived(self, client: str, now: Instant) -> None:
        """Note that *client* has come from another gateway: where it publishes, it stays for a while."""
        if (publisher := self._advertisements.publisher(client)) is not None:
            self.limiter.arrived(publisher.number, now)
            return
        if len(self._arrived) >= ARRIVALS_MAX:
            del self._arrived[next(iter(self._arrived))]
        self._arrived[client] = now

    def session_of(self, publisher: LocalPublisher, publication: Publication, now: Instant) -> int:
        """Return the session of an event of *publisher*, whose `cached_until` is 0: it is *publication*, and has the
        publisher's sequence. 0: it is not traced.
        """
        each = self._open[publisher.number]
        if any(one.matches(publication.topic) for one in self.options.excluded_topics):
            self._exclude(each, now)
            return 0
        session = self._sessions.session_of(publisher.number, publisher.sequence, now)
        each.payload_bytes += len(publication.payload)
        self.published, self.published_in = (publisher.number, publisher.sequence), session
        if self._sessions.is_full(publisher.number):
            self._close(each, now)
            ends_at = self._sessions.ends_at(publisher.number)
            assert ends_at is not None
            self._plan(each, ends_at)
        return session

    def record_published(self, served: Iterable[str], deliveries: int, now: Instant) -> None:
        """Record the event `published`. For the arguments see `record`."""
        header = EventHeader(*self.published, 0, 0, trace=self.published_in)
        self._recorder.record(header, served, deliveries, False, now)

    # -- all events ----------------------------------------------------------------------------------------------------

    def record(
        self, header: EventHeader, served: Iterable[str], deliveries: int, was_marked: bool, now: Instant
    ) -> None:
        """Record a traced event of another gateway. served: the peers to which copies went. deliveries: the local
        clients that got it. was_marked: whether it has been on a detour.
        """
        if self.is_on:
            self._recorder.record(header, served, deliveries, was_marked, now)
            if self.due is None:
                self._update_due()

    def record_late(self, header: EventHeader, served: Iterable[str]) -> None:
        """Record the peers to which copies of this gateway's own event went after it had waited."""
        self._recorder.add_peers(header, served)

    def receive(
        self, peer: str, message: TraceInformationRequest | TraceInformationAnswer, now: Instant
    ) -> list[SendMessage]:
        """Handle a TIR or TIA of *peer*."""
        sends = self._perform(self._recorder.receive(peer, message, now), now)
        self._update_due()
        if self._reports:
            self.due = now
        return sends

    def take_reports(self) -> list[TraceReport]:
        """Return what is new of sessions that have ended. `fire` is due when there is something."""
        reports, self._reports = self._reports, []
        return reports

    def fire(self, now: Instant) -> list[SendMessage]:
        """Begin and end sessions, and answer for gateways that have not answered."""
        sends: list[SendMessage] = []
        overdue = self._recorder.next_due
        if overdue is not None and overdue <= now:
            sends += self._perform(self._recorder.fire(now), now)
        while self._dues and self._dues[0][0] <= now:
            due, number = heappop(self._dues)
            each = self._publishers.get(number)
            if each is not None and each.due == due:
                sends += self._look_at(each, now)
        while self._waiting and self._has_room(self._waiting[0]):
            self._begin(self._waiting.popleft(), now)
        self._update_due()
        return sends

    # -- for operators -------------------------------------------------------------------------------------------------

    @property
    def publishers(self) -> Iterable[PlacedPublisher]:
        """Return the publishers that are looked at."""
        return self._publishers.values()

    @property
    def figures(self) -> dict[str, int]:
        """Return how many publishers are looked at, how many of them are traced now, how many sessions are recorded
        here, and what was not recorded.
        """
        return {
            "publishers": len(self._publishers),
            "traced": len(self._open),
            "recorded": len(self._recorder),
            "refused": self._recorder.refused,
            "forgotten": self._recorder.forgotten,
        }

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _plan(self, each: PlacedPublisher, due: Instant) -> None:
        """Look at a publisher at *due*, or up to a second later, with others."""
        each.due = due = -(-due // SECOND) * SECOND
        heappush(self._dues, (due, each.publisher.number))
        if self.due is None or due < self.due:
            self.due = due

    def _update_due(self) -> None:
        dues = [due for due in (self._recorder.next_due, self._dues[0][0] if self._dues else None) if due is not None]
        self.due = min(dues, default=None)

    def _look_at(self, each: PlacedPublisher, now: Instant) -> list[SendMessage]:
        """End the session of a publisher, or let it wait for its next one, or forget it because it is gone."""
        publisher = each.publisher
        each.due = None
        if self._sessions.ends_at(publisher.number) is not None:
            self._close(each, now)
            session = self._sessions.take(publisher.number, now)
            if session:
                return self._perform(self._recorder.collect(publisher.number, session, now), now)
            self.abandoned += 1
            self._rest(each, now)
        elif self._advertisements.publisher(publisher.client) is not publisher:
            self._forget(each, now)
        elif any(fnmatchcase(publisher.client, pattern) for pattern in self.options.excluded_clients):
            self._exclude(each, now)
        else:
            (seen_at, sequence), each.seen = each.seen, (now, publisher.sequence)
            if publisher.sequence < sequence:  # sequences have begun anew
                each.resumes = 0
            each.rate = max(0, publisher.sequence - sequence) * SECOND / max(1, now - seen_at)
            if each.rate and publisher.sequence >= each.resumes:
                self._waiting.append(each)
            else:
                self._plan(each, now + REST_MIN)
        return []

    def _has_room(self, each: PlacedPublisher) -> bool:
        return not self._open or each.rate + sum(one.rate for one in self._open.values()) <= EVENTS_PER_S

    def _begin(self, each: PlacedPublisher, now: Instant) -> None:
        publisher = each.publisher
        if self._publishers.get(publisher.number) is not each:
            return
        each.is_open, each.began_at, each.payload_bytes = True, now, 0
        self._open[publisher.number] = each
        publisher.cached_until = 0
        sequence = publisher.sequence % (SEQUENCE_MODULUS - 1) + 1
        self._plan(each, self._sessions.begin(publisher.number, sequence, now))

    def _close(self, each: PlacedPublisher, now: Instant) -> None:
        """Let the events of a publisher be ordinary ones again."""
        if each.is_open:
            each.is_open, each.lasted = False, now - each.began_at
        each.publisher.cached_until = SEQUENCE_MODULUS
        self._open.pop(each.publisher.number, None)

    def _rest(self, each: PlacedPublisher, now: Instant) -> None:
        each.resumes = each.publisher.sequence + self._sessions.unpaid_of(each.publisher.number)
        each.seen = (now, each.publisher.sequence)
        self._plan(each, now + max(REST_MIN, REST_FACTOR * each.lasted))

    def _exclude(self, each: PlacedPublisher, now: Instant) -> None:
        """Look at a publisher again only to see whether it is still there."""
        self._close(each, now)
        self._sessions.forget(each.publisher.number)
        each.outcome, each.estimate = PlacementRefusal.EXCLUDED, None
        each.resumes = SEQUENCE_MODULUS
        self._plan(each, now + REST_FACTOR * REST_MIN)

    def _forget(self, each: PlacedPublisher, now: Instant) -> None:
        number = each.publisher.number
        self._close(each, now)
        del self._publishers[number]
        self._sessions.forget(number)
        self._recorder.forget(number)
        self.limiter.forget(number)

    def _perform(self, effects: list[RelocationEffect], now: Instant) -> list[SendMessage]:
        """Return the messages of *effects*, and choose a gateway where a session has ended. A peer that cannot be asked
        counts as one that does not answer.
        """
        sends: list[SendMessage] = []
        todo = deque(effects)
        while todo:
            effect = todo.popleft()
            if isinstance(effect, SessionEnd):
                self._choose(effect, now)
                continue
            assert isinstance(effect, SendRelocation), "all others are of POP and of moves"
            peer, message = effect.peer, effect.message
            assert isinstance(message, TraceInformationRequest | TraceInformationAnswer)
            if peer in self._ready:
                self.sent["request" if isinstance(message, TraceInformationRequest) else "answer"] += 1
                self.sent["bytes"] += len(body(message, TrafficClass.CONTROL))
                sends.append(SendMessage(peer, message, TrafficClass.CONTROL))
            elif isinstance(message, TraceInformationRequest):
                nothing = TraceInformationAnswer(message.publisher, message.session, (), True)
                todo += self._recorder.receive(peer, nothing, now)
        return sends

    def _choose(self, end: SessionEnd, now: Instant) -> None:
        """Choose a gateway for the publisher of a session."""
        each = self._publishers.get(end.publisher)
        if each is None:
            return
        tree = DeliveryTree(self._trees, end.records)
        loads: dict[str, float] = {broker: tree.load(broker) for broker in tree.brokers}
        here = int(loads.get(self._name, 0))
        events = self._sessions.end(end.publisher, len(loads) - 1, here)
        each.sessions += 1
        self._rest(each, now)
        refusal = self.limiter.refusal(end.publisher, end.is_partial or not here, tree.marked_share, now)
        ways = {broker: tree.distance(self._name, broker) for broker in loads}
        delays = {broker: tree.delay(broker, 2 * ways[broker]) for broker in loads}
        pure = {broker: delays[broker] - ways[broker] for broker in loads}
        report = TraceReport(
            each.publisher.client, end, loads, pure, ways, events, each.payload_bytes, each.lasted, "", refusal
        )
        if refusal not in (None, PlacementRefusal.RECENT):  # the costs of one that has moved are wanted for its history
            each.unusable += 1
            each.outcome = refusal
            self._reports.append(report)
            return
        choice = choose(self.options.goal, self._name, loads, delays)
        if refusal is None:
            refusal = choice.refusal
            self.limiter.count(refusal)
            self.proposed += refusal is None
        self._reports.append(report._replace(target=choice.target, refusal=refusal))
        if refusal is not None:
            each.confirmations = 0
        elif each.confirmations and each.estimate is not None and each.estimate.target == choice.target:
            each.confirmations += 1
        else:
            each.confirmations = 1
        each.outcome = refusal
        each.estimate = PlacementEstimate(
            choice.target,
            refusal,
            here,
            int(loads[choice.target]),
            delays[self._name],
            delays[choice.target],
            ways[choice.target],
            sum(record.deliveries for record in end.records),
            events,
            each.payload_bytes,
            each.lasted,
            self._uplinks(tree, self._name),
            self._uplinks(tree, choice.target),
            now,
        )

    def _uplinks(self, tree: DeliveryTree, candidate: str) -> tuple[tuple[int, int, int], ...]:
        own = self._topology.gateway(candidate).cluster
        sites = self._topology.sites
        return tuple((own, sites[at].index, events) for at, events in tree.crossings(candidate).items())

    @property
    def _trees(self) -> OverlayTrees:
        if self._known_trees is None:
            topology = self._topology
            self._known_trees = OverlayTrees(
                [
                    {one.name: one.neighbours for one in topology.gateways if one.cluster == site.index}
                    for site in topology.sites
                ],
                lambda name, at: topology.gateway(name).across[topology.sites[at].index][topology.gateway(name).home],
            )
        return self._known_trees
