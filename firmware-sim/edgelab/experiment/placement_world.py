"""Brokers on virtual time that place publishers, with the statistics and the choice of `edgebroker.relocation`.

The brokers are the product's own state machines, like those of the other experiments. A publisher is a client at the
machine of the broker where it begins. It moves as the product lets a client move: it falls silent, buffers its events,
and sends them to the other broker as soon as the way is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

from edgebroker.federation.effects import DeliverEvent, Effect, SendMessage
from edgebroker.federation.options import DEFAULT_OPTIONS
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration, Instant
from edgebroker.overlay.messages import Forward
from edgebroker.publication import Publication
from edgebroker.relocation.delay_monitor import DelayMonitor
from edgebroker.relocation.delivery_tree import DeliveryTree, OverlayTrees
from edgebroker.relocation.messages import (
    ClosestBroker,
    MigrationComplete,
    MigrationEnd,
    MigrationUpdate,
    RelocationAnswer,
    RelocationEffect,
    RelocationRequest,
    SendRelocation,
    SessionEnd,
    TraceResult,
)
from edgebroker.relocation.migration import Migrations, MoveLimiter
from edgebroker.relocation.placement import PlacementGoal, PlacementPriority, choose, survivors
from edgebroker.relocation.pop import PopOptions, PopTracer
from edgebroker.relocation.publisher_sessions import PUBLISHED_SESSIONS, PublisherSessions, SessionOptions
from edgebroker.relocation.trace_recorder import TraceRecorder
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest
from edgelab.experiment.overlay import OverlayCosts, TimedFederation
from edgelab.experiment.stock_quotes import (
    FILTERS,
    PER_MINUTE,
    QUOTE,
    VALUES,
    PlacementNetwork,
    StockSymbol,
)
from edgelab.simworld.simulation import Simulation

TICK: Final[Duration] = SECOND // 2
"""How often brokers look whether a session has ended or an answer is overdue."""
QUEUE_MAX: Final = 1_000
"""Events that a publisher that moves buffers."""


@dataclass(frozen=True, slots=True)
class PlacementScheme:
    """How publishers are placed."""

    goal: PlacementGoal | None = None
    """GRAPE, with this goal."""
    pop: PopOptions | None = None
    """POP."""
    sessions: SessionOptions = PUBLISHED_SESSIONS
    with_links: bool = False
    pause: Duration = MINUTE
    """Between two moves of a publisher, at least."""


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    """The figures of a run, from the time when publishers have found their places."""

    message_rate: float
    """Messages a second that enter a broker, the mean of all brokers."""
    visits: float
    """Brokers that an event enters."""
    input_load: float
    """The share of the time in which a broker receives and matches, the mean of all brokers."""
    delay_ms: float
    """From a publisher to a subscriber's broker and out of it, the mean of all deliveries."""
    hops: float
    """Links between brokers on this way."""
    control: int
    """Messages for placement, in the whole run."""
    control_share: float
    """Their share of all messages between brokers and from publishers to them."""
    hosts: tuple[str, ...]
    """The broker of each publisher in the end."""
    moves: tuple[tuple[int, float], ...]
    """For each move the links of its way, and the seconds for which the publisher was silent."""
    most_moves: int
    """The most moves of one publisher."""
    deliveries: int
    wrong: int
    """Deliveries that are missing or too many, in the whole run."""
    disordered: int
    """Events that arrived at a broker after a later one of the same publisher."""


@dataclass(slots=True)
class MobilePublisher:
    """A publisher with its readers."""

    symbol: StockSymbol
    host: str
    number: int = 0
    """Its number at `host`; 0: it has not published there."""
    buffer: list[int] | None = None
    """The quotes that wait while it moves."""
    silent_since: Instant = 0
    path: tuple[str, ...] = ()
    """The way of the move, from the target to the source."""
    unpaid: int = 0
    """The events after which its last session is paid for."""
    arrives: bool = False
    """Whether its first event after a move is still to come."""
    moves: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True)
class Quote:
    """A published event. `missing`: expected deliveries."""

    publisher: MobilePublisher
    volume: int
    high_low: int
    published_at: Instant
    missing: int


class BrokerStatistics:
    """What one broker knows for the placement of publishers."""

    def __init__(self, name: str, peers: Iterable[str], scheme: PlacementScheme) -> None:
        self.monitor = DelayMonitor(peers)
        self.recorder = TraceRecorder(name, self.monitor)
        self.sessions = PublisherSessions(scheme.sessions)
        self.tracer = PopTracer(name, scheme.pop or PopOptions())
        self.limiter = MoveLimiter(scheme.pause)
        self.migrations = Migrations(name, self.forget)

    def forget(self, publisher: int) -> None:
        """Forget a publisher that moves."""
        self.recorder.forget(publisher)
        self.sessions.forget(publisher)
        self.tracer.forget(publisher)
        self.limiter.forget(publisher)


class PlacementWorld(TimedFederation):
    """The brokers and publishers of one run."""

    def __init__(
        self, network: PlacementNetwork, symbols: Iterable[StockSymbol], scheme: PlacementScheme, seed: int
    ) -> None:
        self._network = network
        self._scheme = scheme
        topology, simulation = network.topology, Simulation(seed)
        self._statistics = {
            gateway.name: BrokerStatistics(gateway.name, gateway.peers(), scheme) for gateway in topology.gateways
        }
        for gateway in topology.gateways:
            for peer in gateway.peers():
                self._statistics[gateway.name].monitor.set_link(peer, network.one_way(gateway.name, peer))
        costs = OverlayCosts(network.costs.match, network.costs.copy)
        super().__init__(topology, DEFAULT_OPTIONS, costs, simulation, network.machines)
        self._trees = OverlayTrees(
            [
                {one.name: one.neighbours for one in topology.gateways if one.cluster == site.index}
                for site in topology.sites
            ],
            lambda name, cluster: topology.gateway(name).across[cluster][topology.gateway(name).home],
            DEFAULT_OPTIONS.is_precise,
        )
        self._positions = {one.name: (one.home, one.cluster) for one in topology.gateways}
        self._distances = {
            position: {other: len(topology.factor.path(position, other)) - 1 for other in topology.factor.positions}
            for position in topology.factor.positions
        }
        self._quotes: list[Quote] = []
        self._publishers = {symbol.client: MobilePublisher(symbol, symbol.host) for symbol in symbols}
        self._by_number: dict[int, MobilePublisher] = {}
        self._newest: dict[tuple[str, str], int] = {}  # broker and client -> the quote that came last
        self._disordered = 0
        self._window = _Window()
        with self.at_once():
            self._place_subscribers()

    def outcome(self, length: Duration, read_from: Instant) -> PlacementOutcome:
        """Let everybody publish for *length*, and return the figures from *read_from* on."""
        pause = MINUTE // PER_MINUTE
        chance = Random(f"quotes {self.simulation.seed}")
        for publisher in self._publishers.values():
            for at in range(chance.randrange(pause), length, pause):
                values = chance.randrange(VALUES), chance.randrange(VALUES)
                self.simulation.at(at, partial(self._publish_quote, publisher, *values))
        self.simulation.after(TICK, partial(self._tick, length))
        self._window = _Window(read_from, length)
        self.simulation.run_while(lambda: True)
        brokers, window = len(self.peers), self._window
        seconds = (length - read_from) / SECOND
        forwards = self.messages.get(Forward, 0) + len(self._quotes)
        control = sum(count for kind, count in self.messages.items() if kind is not Forward)
        work = window.visits * self._network.costs.match + window.control * self._network.costs.control
        found = self._publishers.values()
        return PlacementOutcome(
            (window.visits + window.control) / seconds / brokers,
            window.visits / window.events,
            work / SECOND / seconds / brokers,
            window.delay / window.deliveries / MILLISECOND,
            window.hops / window.deliveries,
            control,
            control / (control + forwards),
            tuple(publisher.host for publisher in found),
            tuple(move for publisher in found for move in publisher.moves),
            max(len(publisher.moves) for publisher in found),
            window.deliveries,
            sum(abs(quote.missing) for quote in self._quotes),
            self._disordered,
        )

    # -- events --------------------------------------------------------------------------------------------------------

    def _publish_quote(self, publisher: MobilePublisher, volume: int, high_low: int) -> None:
        number = len(self._quotes)
        readers = publisher.symbol.readers.values()
        missing = sum(each.wanting(volume, high_low) for each in readers)
        self._quotes.append(Quote(publisher, volume, high_low, self.simulation.now, missing))
        self._window.events += self._window.is_open(self.simulation.now)
        if publisher.buffer is None:
            self._send_quote(publisher, number)
        else:
            assert len(publisher.buffer) < QUEUE_MAX, "a publisher did not get on"
            publisher.buffer.append(number)

    def _send_quote(self, publisher: MobilePublisher, number: int) -> None:
        self._from_client(publisher, publisher.host, True, partial(self._enter, publisher, publisher.host, number))

    def _from_client(self, publisher: MobilePublisher, broker: str, is_event: bool, handle: Callable[[], None]) -> None:
        """Let a message of a publisher travel to *broker* and wait there until it is its turn."""

        def arrive() -> None:
            cost = self._network.costs.match if is_event else self._network.costs.control
            done = self.work_done_at(broker, cost)
            if is_event:
                self._statistics[broker].monitor.add_input(done - cost - self.simulation.now, cost)
            self.simulation.at(done, handle)

        self.simulation.after(self._network.one_way(publisher.symbol.host, broker), arrive)

    def _enter(self, publisher: MobilePublisher, host: str, number: int) -> None:
        """Publish a quote at its broker."""
        quote, symbol, now = self._quotes[number], publisher.symbol, self.simulation.now
        payload = QUOTE % (number, symbol.client, quote.volume, quote.high_low)
        router = self.peers[host]
        effects = router.publish(Publication(symbol.client, symbol.topic, payload.encode(), 1, False, now), now)
        adv, sequence = router.last_event_id
        publisher.number = adv
        self._by_number[adv] = publisher
        if publisher.arrives:
            publisher.arrives = False
            self._statistics[host].limiter.arrived(adv, now)
            self._statistics[host].sessions.skip(adv, publisher.unpaid)
        self._window.visits += self._window.is_open(now)
        clients = symbol.readers[host].wanting(quote.volume, quote.high_low) if host in symbol.readers else 0
        trace = self._trace_of(host, adv, sequence)
        if trace:
            effects = [_traced(effect, trace) for effect in effects]
            header = EventHeader(adv, sequence, 0, 0, trace=trace)
            self._record(host, None, header, effects, clients, False)
        self.perform(host, effects)
        self._to_clients(host, number, clients)

    def _trace_of(self, host: str, publisher: int, sequence: int) -> int:
        statistics, now = self._statistics[host], self.simulation.now
        if self._scheme.goal is not None:
            return statistics.sessions.session_of(publisher, sequence, now)
        if self._scheme.pop is not None:
            return sequence if statistics.tracer.is_traced(publisher, now, self.simulation.random.random()) else 0
        return 0

    def _record(
        self,
        broker: str,
        upstream: str | None,
        header: EventHeader,
        effects: Iterable[Effect],
        clients: int,
        was_marked: bool,
    ) -> None:
        statistics, now = self._statistics[broker], self.simulation.now
        served = [effect.peer for effect in effects if isinstance(effect, SendMessage)]
        if self._scheme.pop is not None:
            key = header.publisher, header.sequence
            self._relocate(broker, statistics.tracer.record(*key, upstream, served, clients, now))
        else:
            statistics.recorder.record(header, served, clients, was_marked, now)

    def _to_clients(self, broker: str, number: int, clients: int) -> None:
        """Send copies of a quote to the clients of *broker*, one after the other."""
        quote, now = self._quotes[number], self.simulation.now
        client = quote.publisher.symbol.client
        self._disordered += number < self._newest.get((broker, client), 0)
        self._newest[broker, client] = number
        if not clients:
            return
        copy = self._network.costs.copy
        last = self.work_done_at(broker, clients * copy)
        quote.missing -= clients
        mean = last - (clients - 1) * copy // 2
        self._statistics[broker].monitor.add_clients(mean - now)
        if self._window.is_open(quote.published_at):
            self._window.deliveries += clients
            self._window.delay += clients * (mean - quote.published_at)
            self._window.hops += clients * self._hops(quote.publisher.host, broker)

    def _hops(self, host: str, broker: str) -> int:
        (position, cluster), (end, other) = self._positions[host], self._positions[broker]
        return self._distances[position][end] + (cluster != other)

    # -- the federation's messages -------------------------------------------------------------------------------------

    def link_delay(self, sender: str, peer: str) -> Duration:
        return self._network.one_way(sender, peer)

    def receive_cost(self, message: object) -> Duration:
        return self._network.costs.match if isinstance(message, Forward) else self._network.costs.control

    def message_taken(self, broker: str, message: object, waited: Duration) -> None:
        is_open = self._window.is_open(self.simulation.now)
        if isinstance(message, Forward):
            self._window.visits += is_open
            self._statistics[broker].monitor.add_input(waited, self._network.costs.match)
        else:
            self._window.control += is_open

    def copy_sent(self, broker: str, peer: str, message: object, waited: Duration) -> None:
        if isinstance(message, Forward):
            self._statistics[broker].monitor.add_output(peer, waited)

    def receive(self, sender: str, peer: str, message: Any) -> None:
        match message:
            case Forward() if message.header.trace:
                effects = self.peers[peer].received(sender, message, self.simulation.now)
                quote = self._quotes[_number_of(message)]
                readers = quote.publisher.symbol.readers.get(peer)
                clients = readers.wanting(quote.volume, quote.high_low) if readers else 0
                self._record(peer, sender, message.header, effects, clients, message.was_marked)
                self.perform(peer, effects)
            case TraceInformationRequest() | TraceInformationAnswer():
                recorder = self._statistics[peer].recorder
                self._relocate(peer, recorder.receive(sender, message, self.simulation.now))
            case TraceResult():
                self._relocate(peer, self._statistics[peer].tracer.receive_result(sender, message))
            case RelocationRequest():
                self._relocate(peer, self._statistics[peer].tracer.receive_request(message, sender))
            case RelocationAnswer():
                self._relocate(peer, self._statistics[peer].tracer.receive_answer(message))
            case MigrationUpdate() | MigrationComplete():
                self._relocate(peer, self._statistics[peer].migrations.receive(message))
            case _:
                super().receive(sender, peer, message)

    def deliver_local(self, gateway: str, delivery: DeliverEvent) -> None:
        """Deliver an event to the readers at *gateway*."""
        number = _number_of(delivery.forward)
        quote = self._quotes[number]
        readers = quote.publisher.symbol.readers.get(gateway)
        self._to_clients(gateway, number, readers.wanting(quote.volume, quote.high_low) if readers else 0)

    def _place_subscribers(self) -> None:
        number = 0
        for publisher in self._publishers.values():
            symbol = publisher.symbol
            for broker, readers in symbol.readers.items():
                for predicates, count in zip(FILTERS, readers, strict=True):
                    if count:
                        number += 1
                        self.subscribe(broker, number, symbol.topic, predicates)
            self.perform(symbol.host, self.peers[symbol.host].advertise(symbol.client, symbol.topic, self.now))

    # -- placement -----------------------------------------------------------------------------------------------------

    def _tick(self, end: Instant) -> None:
        now = self.simulation.now
        for name, statistics in self._statistics.items():
            recorder, tracer = statistics.recorder, statistics.tracer
            if (statistics.sessions.next_due or end) <= now:
                for publisher, session in [*statistics.sessions.take_due(now)]:
                    self._relocate(name, recorder.collect(publisher, session, now))
            if (recorder.next_due or end) <= now:
                self._relocate(name, recorder.fire(now))
            if (tracer.next_due or end) <= now:
                self._relocate(name, tracer.fire(now))
        if now < end:
            self.simulation.after(TICK, partial(self._tick, end))

    def _relocate(self, broker: str, effects: Iterable[RelocationEffect]) -> None:
        """Execute the effects of a broker's statistics."""
        for effect in effects:
            match effect:
                case SendRelocation(peer, message):
                    self.transmit(broker, peer, message)
                case SessionEnd():
                    self._end_session(broker, effect)
                case ClosestBroker(number, path):
                    publisher = self._publisher_at(broker, number)
                    limiter = self._statistics[broker].limiter
                    if publisher is not None and len(path) > 1 and limiter.examine(number, False, 0.0, self._now):
                        self._begin_move(publisher, path)
                case MigrationEnd(number):
                    publisher = self._by_number[number]
                    delay = self._network.one_way(publisher.symbol.host, broker)
                    self.simulation.after(delay, partial(self._resume, publisher, broker))

    @property
    def _now(self) -> Instant:
        return self.simulation.now

    def _publisher_at(self, broker: str, number: int) -> MobilePublisher | None:
        """Return the publisher *number* of *broker*; None: it is moving or has left."""
        publisher = self._by_number[number]
        return publisher if publisher.host == broker and publisher.buffer is None else None

    def _end_session(self, host: str, end: SessionEnd) -> None:
        """Choose a broker for the publisher of a session."""
        statistics, goal, number = self._statistics[host], self._scheme.goal, end.publisher
        publisher = self._publisher_at(host, number)
        if publisher is None or goal is None:
            return
        tree = DeliveryTree(self._trees, end.records, self._scheme.with_links)
        loads = {broker: tree.load(broker) for broker in tree.brokers}
        events = statistics.sessions.end(number, len(loads) - 1, loads.get(host, 0))
        if not statistics.limiter.examine(number, end.is_partial, tree.marked_share, self._now):
            return
        asked = [*loads] if goal.priority is PlacementPriority.DELAY else {*survivors(loads, goal.weight), host}
        pings = {broker: 2 * self._network.one_way(publisher.symbol.host, broker) for broker in asked}
        delays = {broker: tree.delay(broker, ping) for broker, ping in pings.items()}
        choice = choose(goal, host, loads, delays)
        if statistics.limiter.count(choice.refusal):
            publisher.unpaid = statistics.sessions.unpaid(len(loads) - 1, loads[choice.target], events)
            self._begin_move(publisher, self._path(choice.target, host))

    def _path(self, target: str, source: str) -> tuple[str, ...]:
        """Return the brokers from *target* to *source*: inside its cluster, and then over an iLink."""
        (position, cluster), (end, other) = self._positions[target], self._positions[source]
        inside = tuple(self.topology.holder(one, cluster) for one in self.topology.factor.path(position, end))
        return inside if cluster == other else (*inside, source)

    def _begin_move(self, publisher: MobilePublisher, path: tuple[str, ...]) -> None:
        """Ask a publisher to move to the first broker of *path*."""
        publisher.path = path
        delay = self._network.one_way(publisher.symbol.host, publisher.host)
        self.simulation.after(delay, partial(self._fall_silent, publisher))

    def _fall_silent(self, publisher: MobilePublisher) -> None:
        """Let a publisher buffer its events, tell its broker so behind the last one, and turn to the other broker."""
        publisher.buffer, publisher.silent_since = [], self._now
        target, source = publisher.path[0], publisher.host
        self._from_client(publisher, source, False, partial(self._leave, publisher, source))
        if len(self.topology.sites) == 1:
            begin = partial(self._statistics[target].migrations.begin, publisher.number, publisher.path)
            self._from_client(publisher, target, False, lambda: self._relocate(target, begin()))

    def _leave(self, publisher: MobilePublisher, source: str) -> None:
        """The last event has come in at *source*.

        In a tree the way is free when the MCM has arrived. Otherwise the publisher connects to the other broker once
        the connection with this one is closed.
        """
        statistics, target = self._statistics[source], publisher.path[0]
        if len(self.topology.sites) == 1:
            self._relocate(source, statistics.migrations.fall_silent(publisher.number))
            return
        statistics.forget(publisher.number)
        closed = self._network.one_way(publisher.symbol.host, source)
        connect = partial(self._from_client, publisher, target, False, partial(self._connect, publisher, target))
        self.simulation.after(closed, connect)

    def _connect(self, publisher: MobilePublisher, target: str) -> None:
        """Advertise a publisher at *target*; its events wait there for the answers of other clusters."""
        symbol = publisher.symbol
        self.perform(target, self.peers[target].advertise(symbol.client, symbol.topic, self._now))
        delay = self._network.one_way(symbol.host, target)
        self.simulation.after(delay, partial(self._resume, publisher, target))

    def _resume(self, publisher: MobilePublisher, target: str) -> None:
        """Send what a publisher has buffered to its new broker."""
        buffered, publisher.buffer = publisher.buffer or [], None
        publisher.moves.append((len(publisher.path) - 1, (self._now - publisher.silent_since) / SECOND))
        publisher.host, publisher.number, publisher.arrives = target, 0, True
        for number in buffered:
            self._send_quote(publisher, number)


@dataclass(slots=True)
class _Window:
    """The sums of the time in which figures are read."""

    begin: Instant = 0
    end: Instant = 0
    events: int = 0
    visits: int = 0
    control: int = 0
    deliveries: int = 0
    delay: Duration = 0
    hops: int = 0

    def is_open(self, now: Instant) -> bool:
        """Return whether figures are read at *now*."""
        return self.begin <= now < self.end


def _traced(effect: Effect, session: int) -> Effect:
    """Return the copy in *effect* with *session* in its header."""
    if isinstance(effect, SendMessage) and isinstance(effect.message, Forward):
        header = replace(effect.message.header, trace=session)
        return replace(effect, message=replace(effect.message, header=header))
    return effect


def _number_of(forward: Forward) -> int:
    return int(forward.payload[6:14])
