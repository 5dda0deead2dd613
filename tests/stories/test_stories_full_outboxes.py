"""So much waits for another gateway that no more fits: publishers are told so, and nothing that was taken is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebridge.frontend.federation import link_setup
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

ROOM = 32
TAKEN = ROOM - ROOM // 16
"""What local clients may fill."""


def narrow_outboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = link_setup.link_options

    def narrow(topology: Topology, name: str, peer: str) -> LinkOptions:
        return replace(usual(topology, name, peer), bounds=OutboxBounds(messages=ROOM))

    monkeypatch.setattr(link_setup, "link_options", narrow)


class Cut:
    """Two sites; a reader at one asks for `t`, and their road is cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dialect: Dialect = V5) -> None:
        narrow_outboxes(monkeypatch)
        self.simulation = Simulation(3)
        topology = Topology.product(Scot(Factor.parse("a"), 2))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True)
        self.gateways.wait_for_links()
        self.publisher = Participant("publisher", self.gateways["a.0"], dialect, True, 20, FAIR)
        self.reader = Participant("reader", self.gateways["a.1"], V5, True, 20, FAIR)
        self.publisher.connect()
        self.reader.connect()
        self.wait(SECOND)
        self.reader.subscribe("t", 2)
        self.wait(SECOND)
        self.publish("t", 1, 1)
        self.publish("elsewhere", 1, 1)
        self.gateways.road("a.0", "a.1").cut()
        self.wait(SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, topic: str, qos: int, times: int) -> None:
        for _ in range(times):
            self.publisher.publish(topic, b"%d" % len(self.publisher.published), qos)
            self.wait(100 * MILLISECOND)


@pytest.mark.parametrize("qos", [1, 2])
def test_publishers_are_refused_and_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    cut = Cut(monkeypatch)
    cut.publish("t", qos, 40)
    assert len(cut.publisher.refused) == 40 - TAKEN
    cut.publish("elsewhere", qos, 1)
    assert len(cut.publisher.refused) == 40 - TAKEN, "nobody there asks for it"
    cut.gateways.road("a.0", "a.1").mend()
    cut.wait(60 * SECOND)
    taken = [said.payload for said in cut.publisher.published if said.topic == "t"][: TAKEN + 1]
    assert [heard.payload for heard in cut.reader.received] == taken
    assert not any(gateway.ledger.dropped for gateway in cut.gateways)
    cut.publish("t", qos, 1)
    cut.wait(SECOND)
    assert cut.reader.received[-1].payload == cut.publisher.published[-1].payload, "there is room again"


def test_who_cannot_be_told_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(monkeypatch, V311)
    cut.publish("t", 1, TAKEN)
    assert cut.publisher.client.is_connected
    cut.publish("t", 1, 1)
    assert not cut.publisher.client.is_connected


def test_a_message_at_qos_0_is_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(monkeypatch)
    cut.publish("t", 1, 40)
    cut.publish("t", 0, 1)
    assert cut.publisher.client.is_connected
    assert {cause.name for cause in cut.gateways["a.0"].ledger.dropped} == {"OFFLINE"}


class Row:
    """Gateways in a row, at the last of which a reader keeps its session and falls with it; a publisher at another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str, clusters: int, last: str, at: str) -> None:
        narrow_outboxes(monkeypatch)
        self.simulation = Simulation(5)
        topology = Topology.product(Scot(Factor.parse(path), clusters))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True)
        self.gateways.wait_for_links()
        self.last = self.gateways[last]
        self.publisher = Participant("publisher", self.gateways[at], V5, True, 20, FAIR)
        self.reader = Participant("reader", self.last, V5, True, 20, FAIR)
        for one in (self.publisher, self.reader):
            one.connect()
        self.wait(SECOND)
        self.reader.subscribe("$filter/v%3C100/t", 2)
        self.wait(SECOND)
        self.publish(1)
        self.wait(SECOND)
        self.last.power_off()
        self.wait(20 * SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, times: int, topic: str = "t", value: int = 1, qos: int = 1) -> None:
        for _ in range(times):
            self.publisher.publish(topic, b'{"v": %d, "n": %d}' % (value, len(self.publisher.published)), qos)
            self.wait(100 * MILLISECOND)

    @property
    def refused(self) -> int:
        return len(self.publisher.refused)

    def come_back(self) -> None:
        self.last.power_on()
        self.wait(30 * SECOND)
        self.reader.connect()
        self.wait(30 * SECOND)


@pytest.mark.parametrize(
    ("path", "clusters", "last", "at"),
    [("a-b-c", 1, "c.0", "a.0"), ("a-b", 2, "b.0", "a.1"), ("a-b-c", 2, "b.0", "c.1"), ("a-b", 2, "b.0", "b.1")],
)
def test_publishers_elsewhere_are_refused_before_what_was_acknowledged_is_dropped(
    monkeypatch: pytest.MonkeyPatch, path: str, clusters: int, last: str, at: str
) -> None:
    row = Row(monkeypatch, path, clusters, last, at)
    row.publish(40)
    assert 40 - ROOM <= row.refused <= 40 - ROOM * 3 // 4
    before = row.refused
    row.publish(1, "elsewhere")
    row.publish(1, value=200)
    row.publish(1, qos=0)
    assert row.refused == before, "nobody there asks for it, or it is no promise"
    row.come_back()
    meant = {said.payload for said in row.publisher.published if said.topic == "t" and b'"v": 1,' in said.payload}
    taken = [payload for payload in row.publisher.acknowledged if payload in meant]
    assert [heard.payload for heard in row.reader.received] == taken
    assert not [cause.name for one in row.gateways for cause in one.ledger.dropped if cause.name == "QUEUE_FULL"]
    row.publish(1)
    row.wait(SECOND)
    assert row.refused == before, "there is room again"
    assert row.reader.received[-1].payload == row.publisher.published[-1].payload
