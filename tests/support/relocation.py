"""For tests of relocation: the records of a session, and gateways whose relocation messages are carried in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from edgebroker.header import EventHeader
from edgebroker.instants import Instant
from edgebroker.relocation.delay_monitor import DelayMonitor
from edgebroker.relocation.delivery_tree import DeliveryTree, OverlayTrees
from edgebroker.relocation.messages import (
    MigrationComplete,
    MigrationUpdate,
    RelocationAnswer,
    RelocationEffect,
    RelocationMessage,
    RelocationRequest,
    SendRelocation,
    TraceResult,
)
from edgebroker.relocation.migration import Migrations
from edgebroker.relocation.pop import PopOptions, PopTracer
from edgebroker.relocation.trace_recorder import TraceRecorder
from edgebroker.trace_records import (
    QueueDelays,
    TraceInformationAnswer,
    TraceInformationRequest,
    TraceRecord,
)

PUBLISHER = 7
NO_DELAYS = QueueDelays()
USUAL_POP = PopOptions()
Neighbours = Mapping[str, Sequence[str]]


def neighbours_of(*edges: str) -> dict[str, list[str]]:
    """`a-b b-c` as neighbours."""
    found: dict[str, list[str]] = {}
    for edge in edges:
        one, other = edge.split("-")
        found.setdefault(one, []).append(other)
        found.setdefault(other, []).append(one)
    return found


def record_of(
    broker: str, delivered: int, deliveries: int, delays: QueueDelays = NO_DELAYS, marked: int = 0
) -> TraceRecord:
    return TraceRecord(broker, delivered, deliveries, 8, marked, delays)


def one_cluster(neighbours: Neighbours) -> OverlayTrees:
    return OverlayTrees([neighbours], lambda broker, cluster: broker)


def walked_load(neighbours: Neighbours, records: Mapping[str, TraceRecord], root: str) -> int:
    """load(root) by the direct walk of the source: the events that enter each gateway."""
    total = 0

    def down(broker: str, before: str | None) -> int:
        nonlocal total
        vector = records[broker].delivered if broker in records else 0
        for other in neighbours[broker]:
            if other != before:
                vector |= down(other, broker)
        total += vector.bit_count()
        return vector

    down(root, None)
    return total


def walked_times(tree: DeliveryTree, neighbours: Neighbours, records: Mapping[str, TraceRecord], root: str) -> int:
    """The sum of the times of all deliveries by the direct walk of the source, from an event's arrival at *root* on."""
    total = 0
    waiting = [(root, root, 0)]
    while waiting:
        broker, before, since = waiting.pop()
        if broker in records:
            total += records[broker].deliveries * (since + tree.hops.to_clients(broker))
        for other in neighbours[broker]:
            if other != before:
                waiting.append((other, broker, since + tree.hops.hop(broker, other)))
    return total


class RelocationGateway:
    """The statistics of one gateway."""

    def __init__(self, name: str, peers: Iterable[str], pop: PopOptions) -> None:
        self.recorder = TraceRecorder(name, DelayMonitor(peers))
        self.tracer = PopTracer(name, pop)
        self.forgotten: list[int] = []
        self.migrations = Migrations(name, self.forgotten.append)

    def receive(self, peer: str, message: RelocationMessage, now: Instant) -> list[RelocationEffect]:
        match message:
            case TraceInformationRequest() | TraceInformationAnswer():
                return self.recorder.receive(peer, message, now)
            case TraceResult():
                return self.tracer.receive_result(peer, message)
            case RelocationRequest():
                return self.tracer.receive_request(message, peer)
            case RelocationAnswer():
                return self.tracer.receive_answer(message)
            case MigrationUpdate() | MigrationComplete():
                return self.migrations.receive(message)


class RelocationNetwork:
    """The gateways of a tree. Messages travel at once, except to those in `silent`, which lose them."""

    def __init__(self, neighbours: Neighbours, pop: PopOptions = USUAL_POP) -> None:
        self.neighbours = neighbours
        self.gateways = {name: RelocationGateway(name, peers, pop) for name, peers in neighbours.items()}
        self.silent: set[str] = set()
        self.sent: list[tuple[str, str, RelocationMessage]] = []
        self.results: list[RelocationEffect] = []
        """What gateways found out for themselves."""
        self.now: Instant = 1

    def perform(self, gateway: str, effects: Iterable[RelocationEffect]) -> None:
        waiting = deque((gateway, effect) for effect in effects)
        while waiting:
            sender, effect = waiting.popleft()
            if not isinstance(effect, SendRelocation):
                self.results.append(effect)
                continue
            self.sent.append((sender, effect.peer, effect.message))
            if effect.peer not in self.silent:
                following = self.gateways[effect.peer].receive(sender, effect.message, self.now)
                waiting.extend((effect.peer, each) for each in following)

    def publish(self, root: str, sequence: int, clients: Mapping[str, int], trace: int = 0) -> None:
        """Let an event of PUBLISHER at *root* travel to all that lead to gateways in *clients*.

        clients: gateway -> its clients that get it. trace: the session; 0: the event is traced by POP.
        """
        self._visit(root, None, sequence, clients, trace)

    def _visit(self, name: str, before: str | None, sequence: int, clients: Mapping[str, int], trace: int) -> None:
        others = [other for other in self.neighbours[name] if other != before]
        served = [other for other in others if self._wants(other, name, clients)]
        count = clients.get(name, 0)
        gateway = self.gateways[name]
        if trace:
            header = EventHeader(PUBLISHER, sequence, 0, 0, trace=trace)
            gateway.recorder.record(header, served, count, False, self.now)
            effects: list[RelocationEffect] = []
        else:
            effects = gateway.tracer.record(PUBLISHER, sequence, before, served, count, self.now)
        for other in served:
            self._visit(other, name, sequence, clients, trace)
        self.perform(name, effects)

    def _wants(self, name: str, before: str, clients: Mapping[str, int]) -> bool:
        others = (other for other in self.neighbours[name] if other != before)
        return bool(clients.get(name)) or any(self._wants(other, name, clients) for other in others)
