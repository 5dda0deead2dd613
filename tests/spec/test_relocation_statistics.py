"""The statistics of relocation in whole gateways on virtual time: which events are traced, what is asked, and what is
proposed.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Connect, PubAck, Publish, Subscribe, SubscriptionOption
from edgebroker.federation import relocation as relocation_module
from edgebroker.federation.effects import Effect, SendMessage
from edgebroker.federation.forwarding_cache import ForwardingCache
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions, RelocationMode, RelocationOptions
from edgebroker.federation.relocation import RelocationStatistics
from edgebroker.federation.router import FederationRouter
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration
from edgebroker.overlay.advertisements import SEQUENCE_MODULUS, LocalPublisher
from edgebroker.overlay.messages import CAPABILITY_MESSAGES, Forward
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.publication import Publication
from edgebroker.relocation.automatic_moves import AutomaticMoves
from edgebroker.relocation.delivery_tree import DeliveryTree, OverlayTrees
from edgebroker.relocation.placement import PlacementRefusal
from edgebroker.runtime.peers.client_ways import ClientWays
from edgebroker.runtime.peers.placement import measured_publishers, placement_report
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.topics import TopicFilter
from edgebroker.trace_records import QueueDelays, TraceInformationAnswer, TraceInformationRequest, TraceRecord
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.simulation import Simulation

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b"), 3))
OFF = replace(DEFAULT_OPTIONS, relocation=RelocationOptions(RelocationMode.OFF))
MIB = 1 << 20


class PlantWorld:
    """Three sites of two gateways each. A pump publishes at a.0, and its readers are elsewhere."""

    def __init__(
        self, *readers: str, options: FederationOptions = DEFAULT_OPTIONS, topology: Topology = TOPOLOGY
    ) -> None:
        self.simulation = Simulation(7)
        self.gateways = SimulatedGateways(self.simulation, topology, federation_options=options)
        self.gateways.wait_for_links()
        self.readers = [self._client(f"reader-{at}", home) for at, home in enumerate(readers)]
        for reader in self.readers:
            reader.send(Subscribe(1, [SubscriptionOption("pumps/#", 1)]))
        self.pump = self._client("pump", "a.0")
        self.run(200 * MILLISECOND)
        self.received = 0
        self._published = 0

    def _client(self, name: str, home: str) -> SimulatedClient:
        client = SimulatedClient(name, self.gateways[home])
        client.send(Connect(name, dialect=V5))
        self.run(20 * MILLISECOND)
        return client

    def run(self, duration: Duration) -> None:
        self.simulation.run_until(self.simulation.now + duration)

    def publish(self, count: int, gap: Duration, qos: int = 1) -> None:
        for _ in range(count):
            self._published += 1
            packet_id = self._published % 60_000 + 1 if qos else 0
            self.pump.send(Publish("pumps/7", b"%08d" % self._published, qos, False, packet_id=packet_id))
            self.run(gap)
            self.pump.receive()
            for reader in self.readers:
                for packet in reader.receive():
                    if isinstance(packet, Publish):
                        self.received += 1
                        if packet.qos:
                            reader.send(PubAck(packet.packet_id))

    def statistics(self, gateway: str) -> RelocationStatistics:
        return self.gateways[gateway].overlay.peers.relocation

    def control(self) -> int:
        return sum(self.statistics(one.name).sent[kind] for one in self.gateways for kind in ("request", "answer"))


def test_a_publisher_whose_readers_are_elsewhere_should_be_there() -> None:
    world = PlantWorld("b.1", "b.1", "a.2")
    log = DeliveryLog("a.0", "boot")
    world.gateways["a.0"].frontend.ledger.set_log(log)
    world.publish(230, 20 * MILLISECOND)
    world.run(4 * SECOND)
    [pump] = world.statistics("a.0").publishers
    found = pump.estimate
    assert found is not None
    # By hand: over each link an event takes 1 ms, and 0 in a gateway. It goes from a.0 over a.1 to b.1, and to a.2.
    links = {one.name: dict.fromkeys(one.peers(), 1_000) for one in TOPOLOGY.gateways}
    everything = (1 << 100) - 1
    passed = {"a.0": (0, 0), "a.1": (0, 0), "b.1": (everything, 200), "a.2": (everything, 100)}
    tree = DeliveryTree(
        OverlayTrees(
            [{f"a.{site}": [f"b.{site}"], f"b.{site}": [f"a.{site}"]} for site in range(3)],
            lambda name, cluster: f"{name[0]}.{cluster}",
        ),
        [TraceRecord(name, *each, 100, 0, QueueDelays(links=links[name])) for name, each in passed.items()],
    )
    loads = {name: tree.load(name) for name in passed}
    assert loads == {"a.0": 400, "a.1": 300, "b.1": 300, "a.2": 300}
    pings = {"a.0": 0, "a.1": 2_000, "b.1": 4_000, "a.2": 2_000}
    delays = {name: tree.delay(name, pings[name]) for name in passed}
    assert delays["a.0"] == pytest.approx((200 * 2_000 + 100 * 1_000) / 300)
    assert (found.load_here, found.load_there) == (loads["a.0"], loads[found.target])
    assert (found.delay_here, found.delay_there) == (delays["a.0"], delays[found.target])
    assert (found.events, found.deliveries, found.payload_bytes) == (100, 300, 800)
    assert (found.refusal, found.target) == (None, min(delays, key=lambda name: (loads[name], delays[name], name)))

    gateway, now = world.gateways["a.0"], world.simulation.now
    link_state = gateway.overlay.peers.gossip.link_state
    ways = ClientWays(TOPOLOGY, "a.0", link_state, gateway.frontend.connect_handler.sessions)
    report = placement_report(world.statistics("a.0"), TOPOLOGY, ways, AutomaticMoves(now), now, 10)
    [row] = report["proposals"]
    assert (row["client"], row["to"], row["way"], row["version"]) == ("pump", found.target, "none", "5")
    assert row["why_none"].startswith(f"where clients connect to {found.target} is not known")
    [measured] = measured_publishers(world.statistics("a.0"), now)
    assert (measured["client"], measured["load"], measured["delay_ms"]) == (
        "pump",
        4.0,
        round(delays["a.0"] / 1_000, 3),
    )
    assert (row["load"], report["proposed"]) == ({"here": 4.0, "there": 3.0}, 1)
    crossing = {(one["from"], one["to"]): one["bytes_per_minute"] for one in row["uplinks"]}
    assert crossing["0", "1"]["here"] == crossing["0", "2"]["here"] == pytest.approx(8 * 50 * 60, rel=0.02)
    assert crossing["0", "1"]["there"] == 0
    assert sum(report["stays"].values()) == 0

    segment = read_segment(log.header(0, 0) + b"".join(log.take(now, closing=True)), growing=True)
    columns = segment.tables["trace"]
    assert dict(zip(columns["gateway"], columns["load"], strict=True)) == loads
    assert dict(zip(columns["gateway"], columns["delay_us"], strict=True)) == {
        name: round(delay - pings[name] / 2) for name, delay in delays.items()
    }
    assert dict(zip(columns["gateway"], columns["way_us"], strict=True)) == {
        name: ping / 2 for name, ping in pings.items()
    }
    assert dict(zip(columns["gateway"], columns["delivered"], strict=True))["b.1"] == f"{everything:x}"
    assert columns["peers"][0] == "; ".join(f"{name} 0 1000" for name in sorted(TOPOLOGY.gateway("a.0").peers()))
    same = ("publisher", "target", "stays", "events", "payload_bytes", "partial")
    assert [{*columns[name]} for name in same] == [{"pump"}, {found.target}, {""}, {100}, {800}, {0}]


@pytest.mark.parametrize("has_published", [False, True])
def test_a_publisher_that_has_come_from_another_gateway_stays_for_ten_minutes(has_published: bool) -> None:
    world = PlantWorld("b.1", "b.1", "a.2")
    statistics = world.statistics("a.0")
    if has_published:
        world.publish(1, SECOND)
    statistics.client_arrived("pump", world.simulation.now)
    world.publish(230, 20 * MILLISECOND)
    world.run(4 * SECOND)
    [pump] = statistics.publishers
    assert pump.outcome is PlacementRefusal.RECENT
    assert pump.estimate is not None
    assert (pump.estimate.load_here, pump.estimate.refusal) == (400, PlacementRefusal.RECENT)
    assert (statistics.proposed, statistics.limiter.refusals[PlacementRefusal.RECENT]) == (0, 1)
    assert [row["client"] for row in measured_publishers(statistics, world.simulation.now)] == ["pump"]
    world.run(11 * MINUTE)
    world.publish(230, 20 * MILLISECOND)
    world.run(4 * SECOND)
    [pump] = statistics.publishers
    assert (statistics.proposed, pump.outcome) == (1, None)


def test_clients_that_come_and_never_publish_are_forgotten() -> None:
    statistics = PlantWorld("a.2").statistics("a.0")
    for number in range(relocation_module.ARRIVALS_MAX + 1):
        statistics.client_arrived(f"c{number}", number)
    for number, client in enumerate(("c0", "c1"), 100):
        statistics.add(LocalPublisher(client, number, 0), 0)
    refused = [statistics.limiter.refusal(number, False, 0.0, SECOND) for number in (100, 101)]
    assert refused == [None, PlacementRefusal.RECENT]


def test_what_is_asked_of_others_is_less_than_3_percent_of_all_messages() -> None:
    topology = Topology.product(Scot(Factor.parse("a"), 3))
    world = PlantWorld("a.1", "a.2", topology=topology)
    world.publish(140, 200 * MILLISECOND)
    before = world.control()
    assert before == 2 * 2
    world.publish(1_000, 200 * MILLISECOND)
    assert world.received == 2 * 1_140
    [pump] = world.statistics("a.0").publishers
    assert pump.sessions == 2
    asked, events = world.control() - before, 1_000 * (1 + 2)  # from the publisher, and over two links
    assert asked == 2 * 2
    assert asked / (asked + events) <= 0.03


def test_only_the_events_of_a_session_take_the_usual_path(monkeypatch: pytest.MonkeyPatch) -> None:
    routed: list[bool] = []
    route_for = ForwardingCache.route_for

    def note(self, client, topic, count_max):  # type: ignore[no-untyped-def]
        route = route_for(self, client, topic, count_max)
        if client == "pump":
            routed.append(route is not None)
        return route

    monkeypatch.setattr(ForwardingCache, "route_for", note)
    world = PlantWorld("b.1")
    world.publish(300, 10 * MILLISECOND, qos=0)
    world.run(4 * SECOND)
    assert world.received == 300
    switches = [at for at, (one, other) in enumerate(pairwise(routed), 1) if one is not other]
    begun, ended = switches[-2:]
    assert ended - begun == 100
    assert all(routed[ended:])
    [pump] = world.statistics("a.0").publishers
    assert (pump.sessions, pump.estimate is not None) == (1, True)


def test_with_mode_off_nothing_is_traced_and_who_asks_hears_that_something_is_missing() -> None:
    world = PlantWorld("b.1", options=OFF)
    world.publish(150, 20 * MILLISECOND)
    world.run(3 * SECOND)
    assert world.control() == 0
    assert [*world.statistics("a.0").publishers] == []
    statistics = world.statistics("a.1")
    statistics.record(EventHeader(7, 1, 0, 0, trace=1), ["b.1"], 1, False, 0)
    [answer] = statistics.receive("a.0", TraceInformationRequest(7, 1, 5), 0)
    assert answer == SendMessage("a.0", TraceInformationAnswer(7, 1, (), True), TrafficClass.CONTROL)


# -- without clients ---------------------------------------------------------------------------------------------------


class Publishers:
    """The router of a.0 with publishers and no peers that answer. *capabilities*: those of its peers."""

    def __init__(
        self,
        options: RelocationOptions = DEFAULT_OPTIONS.relocation,
        capabilities: frozenset[str] = frozenset(CAPABILITY_MESSAGES),
    ) -> None:
        self.now = SECOND
        self.router = FederationRouter(TOPOLOGY, "a.0", replace(DEFAULT_OPTIONS, relocation=options))
        for peer in self.router.gateway.peers():
            self.router.link_up(peer, 0, capabilities)
        self.statistics = self.router.relocation
        self.sent: list[SendMessage] = []

    def publish(self, client: str, topic: str = "t", count: int = 1, gap: Duration = 100 * MILLISECOND) -> set[int]:
        """Returns the sessions of the events, 0 for those without one."""
        found = set()
        for _ in range(count):
            self.pass_time(gap)
            effects = self.router.publish(Publication(client, topic, b"x" * 10, 0, False, self.now), self.now)
            event = self.router.last_event_id
            is_traced = event == self.statistics.published
            found.add(self.statistics.published_in if is_traced else 0)
            sessions = {each.header.trace for each in _events(effects) if each.header.eid == event}
            assert sessions <= {self.statistics.published_in if is_traced else 0}
            if is_traced:
                self.statistics.record_published(["a.1"], 0, self.now)
        return found

    def pass_time(self, duration: Duration) -> None:
        end = self.now + duration
        while (due := self.statistics.due) is not None and due <= end:
            self.now = max(self.now, due)
            self.sent += self.statistics.fire(self.now)
        self.now = end

    def outcomes(self) -> dict[str, PlacementRefusal | None]:
        return {each.publisher.client: each.outcome for each in self.statistics.publishers}


def _events(effects: Iterable[Effect]) -> list[Forward]:
    sends = [each.message for each in effects if isinstance(each, SendMessage)]
    return [message for message in sends if isinstance(message, Forward)]


def test_a_peer_that_cannot_be_asked_is_missing_at_once() -> None:
    for publishers, is_cut in ((Publishers(capabilities=frozenset({"order"})), False), (Publishers(), True)):
        publishers.publish("pump", count=130)
        if is_cut:
            publishers.router.link_down("a.1", publishers.now)
        publishers.pass_time(3 * SECOND)
        assert publishers.sent == []
        assert publishers.outcomes() == {"pump": PlacementRefusal.PARTIAL}
        [pump] = publishers.statistics.publishers
        assert (pump.sessions, pump.unusable, pump.estimate) == (1, 1, None)


def test_a_peer_that_does_not_answer_is_missing_in_the_end() -> None:
    publishers = Publishers()
    publishers.publish("pump", count=130)
    publishers.pass_time(3 * SECOND)
    [request] = publishers.sent
    assert isinstance(request.message, TraceInformationRequest)
    assert (request.peer, request.service, publishers.outcomes()) == ("a.1", TrafficClass.CONTROL, {"pump": None})
    publishers.pass_time(MINUTE)
    assert publishers.outcomes() == {"pump": PlacementRefusal.PARTIAL}


def test_a_publisher_rests_between_sessions_for_nine_tenths_of_the_time() -> None:
    publishers = Publishers(capabilities=frozenset())
    traced = [bool(*publishers.publish("pump", gap=200 * MILLISECOND)) for _ in range(3_000)]
    begins = [at for at, (before, now) in enumerate(pairwise(traced), 1) if now and not before]
    assert [now - before for before, now in pairwise(begins)] == [1_005] * (len(begins) - 1)
    assert sum(traced) == 100 * len(begins)


def test_open_sessions_share_so_many_events_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation_module, "EVENTS_PER_S", 12)
    publishers = Publishers()
    most = 0
    for _ in range(300):
        for number in range(4):
            publishers.publish(f"pump-{number}", gap=50 * MILLISECOND)
        most = max(most, publishers.statistics.figures["traced"])
    assert most == 2, "each has five events a second"
    assert all(each.publisher.cached_until == SEQUENCE_MODULUS for each in publishers.statistics.publishers)


def test_who_says_little_or_leaves_is_not_looked_at() -> None:
    publishers = Publishers()
    publishers.publish("pump", count=3, gap=SECOND)
    publishers.pass_time(11 * MINUTE)
    assert (publishers.statistics.abandoned, publishers.sent) == (1, [])
    publishers.router.fire(publishers.now)  # its flow ends
    publishers.pass_time(2 * 3_600 * SECOND)
    assert publishers.statistics.figures["publishers"] == 0
    assert publishers.statistics.due is None


def test_the_operator_excludes_publishers_by_name_and_by_topic() -> None:
    options = RelocationOptions(excluded_clients=("plc-*",), excluded_topics=(TopicFilter.parse("alarms/#"),))
    publishers = Publishers(options)
    for client, topic in (("plc-1", "t"), ("siren", "alarms/fire"), ("pump", "t")):
        sessions = publishers.publish(client, topic, 130, 20 * MILLISECOND)
        assert (sessions == {0}) is (client != "pump")
    excluded = PlacementRefusal.EXCLUDED
    assert publishers.outcomes() == {"plc-1": excluded, "siren": excluded, "pump": None}
    assert publishers.publish("siren", "alarms/fire", 100, SECOND) == {0}
    publishers.statistics.configure(RelocationOptions(), publishers.now)
    assert publishers.publish("siren", "alarms/fire", 20, 100 * MILLISECOND) != {0}, "the settings were read again"
    before = [*publishers.statistics.publishers]
    publishers.statistics.configure(RelocationOptions(RelocationMode.APPLY, moves_per_minute=1), publishers.now)
    assert [*publishers.statistics.publishers] == before, "who moves them is no reason to trace them anew"
    publishers.statistics.configure(RelocationOptions(RelocationMode.OFF), publishers.now)
    assert publishers.publish("siren", "alarms/fire", 20, 100 * MILLISECOND) == {0}
    assert publishers.outcomes() == {}


def test_only_so_many_publishers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation_module, "PUBLISHERS_MAX", 2)
    publishers = Publishers()
    for number in range(5):
        publishers.publish(f"pump-{number}")
    assert (publishers.statistics.figures["publishers"], publishers.statistics.untracked) == (2, 3)


def test_a_thousand_publishers_in_sessions_take_less_than_2_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation_module, "EVENTS_PER_S", 1 << 30)
    publishers = Publishers()
    for number in range(1_000):
        publishers.publish(f"pump-{number}", gap=0)
    advertisements = publishers.router.region.advertisements
    gc.collect()
    tracemalloc.start()
    statistics = RelocationStatistics(TOPOLOGY, "a.0", advertisements, DEFAULT_OPTIONS.relocation)
    for publisher in advertisements.publishers():
        statistics.add(publisher, 0)
        publisher.sequence += 1
    statistics.fire(2 * SECOND)
    for publisher in advertisements.publishers():
        publication = Publication(publisher.client, "t", b"x", 0, False, 0)
        for _ in range(3):
            publisher.sequence += 1
            assert statistics.session_of(publisher, publication, 2 * SECOND)
            statistics.record_published(["a.1", "b.0"], 1, 2 * SECOND)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{taken / MIB:.2f} MiB")
    assert statistics.figures["traced"] == statistics.figures["recorded"] == 1_000
    assert taken < 2 * MIB
