"""A site that no gateway can reach: what its readers are owed waits where it was published, and crosses no uplink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebridge.frontend.federation import link_setup
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebroker.federation.options import DEFAULT_OPTIONS
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.events import LinkLeaseEnd
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import OPTIONS

ROOM = 64


class SiteAway:
    """Three sites; a reader at the third keeps its session, and its site is away."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, path: str, is_near_reader: bool, room: int = ROOM, **options: int
    ) -> None:
        usual = link_setup.link_options

        def narrow(topology: Topology, name: str, peer: str) -> LinkOptions:
            return replace(usual(topology, name, peer), bounds=OutboxBounds(messages=room))

        monkeypatch.setattr(link_setup, "link_options", narrow)
        self.simulation = Simulation(11)
        topology = Topology.product(Scot(Factor.parse(path), 3))
        self.gateways = SimulatedGateways(
            self.simulation,
            topology,
            is_stored=True,
            journal_options=replace(OPTIONS, page_messages=16),
            federation_options=replace(DEFAULT_OPTIONS, **options),
        )
        self.gateways.wait_for_links()
        self.away = [gateway for gateway in self.gateways if gateway.name.endswith(".2")]
        self.publishers = [
            Participant(f"publisher-{name}", self.gateways[name], V5, True, 20, FAIR) for name in ("a.0", "a.1")
        ]
        self.reader = Participant("reader", self.gateways["a.2"], V5, True, 20, FAIR)
        self.near_reader = Participant("near", self.gateways["a.1"], V5, True, 20, FAIR)
        for one in (*self.publishers, self.reader, self.near_reader):
            one.connect()
        self.wait(SECOND)
        self.reader.subscribe("t", 1)
        if is_near_reader:
            self.near_reader.subscribe("t", 1)
        self.wait(SECOND)
        self.publish(1)
        self.wait(SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, times: int, topic: str = "t") -> None:
        for _ in range(times):
            for publisher in self.publishers:
                publisher.publish(topic, b"%s %d" % (publisher.name.encode(), len(publisher.published)), 1)
            self.wait(100 * MILLISECOND)

    def go_away(self) -> None:
        for gateway in self.away:
            gateway.power_off()
        self.wait(40 * SECOND)

    def come_back(self) -> None:
        for gateway in self.away:
            gateway.power_on()
        self.wait(90 * SECOND)
        self.reader.connect()
        self.wait(30 * SECOND)

    def waiting(self) -> dict[str, int]:
        """What waits at each gateway for the site that is away."""
        return {
            gateway.name: sum(len(link.outbox.backlog) for link in gateway.overlay.links if link.peer.endswith(".2"))
            for gateway in self.gateways
            if gateway not in self.away
        }


@pytest.mark.parametrize("is_near_reader", [False, True], ids=["nobody-else", "reader-on-the-way"])
@pytest.mark.parametrize("path", ["a", "a-b"])
def test_nothing_acknowledged_is_lost_and_the_rest_is_refused(
    monkeypatch: pytest.MonkeyPatch, path: str, is_near_reader: bool
) -> None:
    world = SiteAway(monkeypatch, path, is_near_reader)
    world.go_away()
    world.publish(100)
    for publisher in world.publishers:
        assert 0 < len(publisher.refused) < 100 - ROOM * 3 // 4, "its own gateway has room for that many"
    world.come_back()
    acknowledged = {payload for one in world.publishers for payload in one.acknowledged}
    assert acknowledged - {heard.payload for heard in world.reader.received} == set()
    assert not [cause.name for one in world.gateways for cause in one.ledger.dropped if cause.name == "QUEUE_FULL"]


@pytest.mark.parametrize("is_near_reader", [False, True], ids=["nobody-else", "reader-on-the-way"])
def test_what_nobody_can_reach_stays_at_home(monkeypatch: pytest.MonkeyPatch, is_near_reader: bool) -> None:
    world = SiteAway(monkeypatch, "a", is_near_reader)
    world.publishers.pop()
    world.go_away()
    before = world.waiting()
    world.publish(20)
    world.wait(SECOND)
    waiting = world.waiting()
    assert waiting["a.0"] - before["a.0"] == 20
    assert waiting["a.1"] == before["a.1"], "another site keeps it"


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
def test_local_readers_are_served_while_an_outbox_is_full(monkeypatch: pytest.MonkeyPatch, dialect: Dialect) -> None:
    """The site that is away was never asked for such messages, so nobody knows that it wants them."""
    world = SiteAway(monkeypatch, "a", False)
    world.go_away()
    world.publish(100)
    newcomer = Participant("newcomer", world.gateways["a.0"], dialect, True, 20, FAIR)
    local = Participant("local", world.gateways["a.0"], V5, True, 20, FAIR)
    for one in (newcomer, local):
        one.connect()
    world.wait(SECOND)
    local.subscribe("new/#", 1)
    world.wait(SECOND)
    for number in range(10):
        newcomer.publish(f"new/{number}/x", b"%d" % number, 1)
        world.wait(SECOND)
    assert newcomer.client.is_connected
    assert not newcomer.refused
    assert [heard.payload for heard in local.received] == [b"%d" % number for number in range(10)]


def test_a_way_around_without_room_refuses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direct uplink of one gateway is cut, and that of the gateway on the way around is far too thin."""
    world = SiteAway(monkeypatch, "a", False)
    world.publishers.pop()
    world.gateways.road("a.0", "a.2").cut()
    thin = world.gateways.road("a.1", "a.2")
    thin.conditions = RoadConditions(bytes_per_s=30, buffer_bytes=256)
    world.wait(5 * SECOND)
    world.publish(200)
    [publisher] = world.publishers
    assert len(publisher.refused) > 50
    thin.conditions = RoadConditions()
    world.gateways.road("a.0", "a.2").mend()
    world.wait(90 * SECOND)
    assert set(publisher.acknowledged) - {heard.payload for heard in world.reader.received} == set()
    publisher.publish("t", b"room", 1)
    world.wait(SECOND)
    assert b"room" in publisher.acknowledged, "there is room again"


@pytest.mark.parametrize("is_up", [False, True], ids=["away", "connected"])
def test_what_waits_can_be_discarded_and_does_not_come_back(monkeypatch: pytest.MonkeyPatch, is_up: bool) -> None:
    world = SiteAway(monkeypatch, "a", False, 10_000)
    gateway = world.gateways["a.0"]
    gateway.roads["a.2"].cut()
    gateway.roads["a.1"].cut()
    world.wait(5 * SECOND)
    world.publish(300)
    link = gateway.overlay.links["a.2"]
    assert link.outbox.backlog.on_disk, "some of it is in pages"
    if is_up:  # nothing arrives: what was sent is not acknowledged
        gateway.roads["a.2"].conditions = RoadConditions(bytes_per_s=300, buffer_bytes=256)
        gateway.roads["a.2"].mend()
        while not link.outbox.backlog.unacked:
            world.wait(100 * MILLISECOND)
    waiting = link.outbox.use[0]
    assert gateway.overlay.discard("a.2", Cause.DISCARDED, world.simulation.now) == waiting
    gateway.turn()
    world.wait(5 * SECOND)
    assert (link.outbox.use, len(link.outbox.backlog)) == ((0, 0, 0), 0)
    assert gateway.ledger.dropped[Cause.DISCARDED] == link.outbox.dropped[Cause.DISCARDED] == waiting
    gateway.power_off()
    gateway.power_on()
    for road in gateway.roads.values():
        road.conditions = RoadConditions()
        road.mend()
    world.wait(60 * SECOND)
    world.publishers[0].connect()
    world.wait(SECOND)
    world.reader.received.clear()
    world.publish(1)
    world.wait(10 * SECOND)
    assert len({heard.payload for heard in world.reader.received}) == 2, "only what was published after it"


def test_who_was_away_for_longer_than_sessions_last_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SiteAway(monkeypatch, "a", False, 10_000, lease_s=3_600, roams=False)
    world.go_away()
    world.publish(20)
    gateway = world.gateways["a.0"]
    waiting = gateway.overlay.links["a.2"].outbox.use[0]
    assert waiting == 20
    gateway.overlay.link_events.clear()
    world.wait(3_600 * SECOND)
    assert gateway.overlay.link_events == [LinkLeaseEnd("a.2", waiting)]
    assert gateway.ledger.dropped == {Cause.LEASE_ENDED: waiting}
    assert gateway.overlay.links["a.2"].outbox.use[0] == 0
