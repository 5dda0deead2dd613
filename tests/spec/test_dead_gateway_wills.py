"""The wills of a dead gateway's clients are published by another gateway of its site, and once."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Property
from edgebroker.federation.options import FederationOptions
from edgebroker.federation.pending_wills import WillNotice, keeper_of, read_notice
from edgebroker.instants import MILLISECOND, MINUTE, SECOND
from edgebroker.limits import KEPT_WILLS_BYTES_MAX
from edgebroker.overlay.messages import PendingWill, PendingWills
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import unaccounted
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

AFTER_S = 20
FOUND_DEAD = 40 * SECOND
"""Until others find that a gateway without power is silent."""
TOPOLOGY = Topology.product(Scot(Factor.parse("a-b-c"), 2))
SITE = ("a.0", "b.0", "c.0")


class Sites:
    """Two sites of three gateways in a row, with a reader of wills at each but a.0. The keeper of a.0 is b.0."""

    def __init__(self, seed: int, after_s: int = AFTER_S) -> None:
        self.simulation = Simulation(seed)
        options = FederationOptions(dead_gateway_wills_after_s=after_s)
        self.gateways = SimulatedGateways(self.simulation, TOPOLOGY, is_stored=True, federation_options=options)
        self.gateways.wait_for_links()
        self.readers = [self.joined(f"reader-{one.name}", one.name) for one in self.gateways if one.name != "a.0"]
        for reader in self.readers:
            reader.subscribe("wills/#", 2)
        self.wait(2 * SECOND)

    def wait(self, length: int = SECOND) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def joined(
        self, name: str, gateway: str, will: Will | None = None, dialect: Dialect = V5, kept: bool = True
    ) -> Participant:
        one = Participant(name, self.gateways[gateway], dialect, kept, 100, FAIR)
        if will is not None:
            one.new_will = lambda: will
        one.connect()
        self.wait()
        return one

    def die(self, gateway: str = "a.0") -> None:
        self.gateways[gateway].power_off()

    def return_(self, gateway: str = "a.0") -> None:
        self.gateways[gateway].power_on()
        self.gateways.wait_for_links(2 * MINUTE)

    def heard(self) -> list[list[bytes]]:
        """The payloads that each reader has received."""
        return [[one.payload for one in reader.received] for reader in self.readers]

    def everybody(self, *payloads: bytes) -> list[list[bytes]]:
        return [list(payloads) for _ in self.readers]


def will(payload: bytes, qos: int = 1, delay_s: int = 0, retain: bool = False) -> Will:
    properties = {Property.WILL_DELAY_INTERVAL: delay_s} if delay_s else {}
    return Will("wills/device", payload, qos, retain, dict(properties))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("dialect", "kept"), [(V311, False), (V5, True)])
def test_all_hear_the_will_once(seed: int, qos: int, dialect: Dialect, kept: bool) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone", qos), dialect, kept)
    sites.die()
    sites.wait((AFTER_S - 2) * SECOND)
    assert sites.heard() == sites.everybody()
    sites.wait(FOUND_DEAD)
    assert sites.heard() == sites.everybody(b"gone")
    sites.return_()
    assert sites.heard() == sites.everybody(b"gone")
    assert [text for gateway in sites.gateways for text in unaccounted(gateway, [])] == []


def test_a_gateway_that_is_back_in_time_publishes_its_wills_itself(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone"))
    sites.die()
    sites.wait(AFTER_S // 2 * SECOND)
    sites.return_()
    assert sites.heard() == sites.everybody(b"gone")


def test_a_client_that_is_back_in_time_has_no_will(seed: int) -> None:
    sites = Sites(seed)
    device = sites.joined("device", "a.0", will(b"gone"))
    sites.die()
    sites.wait(AFTER_S // 2 * SECOND)
    sites.gateways["a.0"].power_on()
    device.connect()
    sites.wait(2 * MINUTE)
    assert sites.heard() == sites.everybody()


def test_who_said_good_bye_has_no_will(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone")).disconnect()
    sites.joined("other", "a.0", will(b"other gone"), kept=False).cut()
    sites.wait()
    sites.die()
    sites.wait(2 * MINUTE)
    assert sites.heard() == sites.everybody(b"other gone")


def test_a_delay_counts_from_the_loss_of_the_gateway_or_of_the_client(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"long after", delay_s=6 * AFTER_S))
    sites.joined("other", "a.0", will(b"after", delay_s=4 * AFTER_S)).cut()
    sites.wait()
    sites.die()
    sites.wait((4 * AFTER_S - 3) * SECOND)
    assert sites.heard() == sites.everybody()
    sites.wait(10 * SECOND)
    assert sites.heard() == sites.everybody(b"after")
    sites.wait(FOUND_DEAD + 2 * AFTER_S * SECOND)
    assert sites.heard() == sites.everybody(b"after", b"long after")
    sites.return_()
    assert sites.heard() == sites.everybody(b"after", b"long after")


def test_who_fails_over_to_the_keeper_has_no_will(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone"))
    sites.die()
    sites.joined("device", "b.0", will(b"gone there"))
    sites.wait(2 * AFTER_S * SECOND)
    sites.return_()
    assert sites.heard() == sites.everybody()


def test_restored_wills_wait_for_the_keeper(seed: int) -> None:
    """The keeper has published the will, and is off when the gateway is back: only it knows."""
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone"))
    sites.die()
    sites.wait(AFTER_S * SECOND + FOUND_DEAD)
    assert sites.heard() == sites.everybody(b"gone")
    sites.die("b.0")
    sites.gateways["a.0"].power_on()
    sites.wait(2 * AFTER_S * SECOND)
    assert sites.gateways["a.0"].overlay.wills.held.keys() == {"device"}
    sites.return_("b.0")
    sites.wait(30 * SECOND)
    assert sites.gateways["a.0"].overlay.wills.held == {}
    assert {payload for heard in sites.heard() for payload in heard} == {b"gone"}
    for reader in sites.readers:
        reader.connect()
    sites.wait(30 * SECOND)
    assert sites.heard() == sites.everybody(b"gone")


def test_a_crash_of_the_keeper_between_does_not_double_it(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone", 2))
    sites.die()
    sites.wait(AFTER_S * SECOND + FOUND_DEAD)
    sites.gateways["b.0"].crash()
    sites.wait(10 * SECOND)
    for reader in sites.readers:
        reader.connect()
    sites.return_()
    sites.wait(10 * SECOND)
    assert sites.heard() == sites.everybody(b"gone")


def test_clients_of_a_gateway_that_was_cut_off_connect_again(seed: int) -> None:
    """It cannot be told from a dead one. What they say when they connect comes behind the will."""
    sites = Sites(seed)
    device = sites.joined("device", "a.0", will(b"offline", retain=True))
    assert device.publish("wills/device", b"online", 1, retain=True)
    sites.wait()
    for road in sites.gateways["a.0"].roads.values():
        road.cut()
    sites.wait(AFTER_S * SECOND + FOUND_DEAD)
    assert sites.heard() == sites.everybody(b"online", b"offline")
    assert device.is_ready
    for road in sites.gateways["a.0"].roads.values():
        road.mend()
    sites.gateways.wait_for_links(2 * MINUTE)
    assert not device.is_ready
    device.connect()
    sites.wait()
    assert device.publish("wills/device", b"online again", 1, retain=True)
    sites.wait()
    assert sites.heard() == sites.everybody(b"online", b"offline", b"online again")
    assert sites.gateways["b.0"].frontend.retained.find("wills/device") is None


def test_a_gateway_that_others_can_reach_is_not_dead(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone"))
    sites.gateways.road("a.0", "b.0").cut()
    sites.wait(4 * AFTER_S * SECOND)
    assert sites.heard() == sites.everybody()
    assert sites.gateways["b.0"].overlay.peers.wills.count == 0


def test_a_gateway_that_stops_publishes_its_wills_itself(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("device", "a.0", will(b"gone"))
    gateway = sites.gateways["a.0"]
    assert sites.gateways["b.0"].overlay.peers.wills.count == 1
    gateway.overlay.drain(sites.simulation.now)
    gateway.turn()
    sites.wait()
    assert sites.gateways["b.0"].overlay.peers.wills.count == 0


def test_it_can_be_switched_off(seed: int) -> None:
    sites = Sites(seed, 0)
    sites.joined("device", "a.0", will(b"gone"))
    sites.die()
    sites.wait(5 * MINUTE)
    assert sites.heard() == sites.everybody()
    sites.return_()
    assert sites.heard() == sites.everybody(b"gone")


def test_many_wills_are_told_and_published_some_at_a_time(seed: int) -> None:
    sites = Sites(seed)
    for number in range(150):
        device = Participant(f"device-{number}", sites.gateways["a.0"], V5, False, 20, FAIR)
        device.new_will = lambda number=number: will(b"%d" % number)
        device.connect()
    sites.wait(2 * SECOND)
    assert sites.gateways["b.0"].overlay.peers.wills.count == 150
    sites.gateways["b.0"].crash()
    sites.gateways.wait_for_links(2 * MINUTE)
    assert sites.gateways["b.0"].overlay.peers.wills.count == 150, "it is told again"
    sites.die()
    sites.wait(AFTER_S * SECOND + FOUND_DEAD)
    assert sorted(map(int, sites.heard()[-1])) == list(range(150))
    assert sites.gateways["b.0"].overlay.peers.wills.bytes == 0


def test_each_gateway_with_neighbours_has_one_keeper() -> None:
    keepers = {name: keeper_of(TOPOLOGY, TOPOLOGY.gateway(name)) for name in SITE}
    assert keepers == {"a.0": "b.0", "b.0": "a.0", "c.0": "b.0"}
    alone = Topology.product(Scot(Factor.parse("a"), 2))
    assert keeper_of(alone, alone.gateway("a.0")) is None


def test_no_more_is_kept_than_there_is_room_for(seed: int) -> None:
    wills = Sites(seed).gateways["b.0"].overlay.peers.wills
    payload = bytes(60_000)
    for number in range(400):
        pending = PendingWill(f"device-{number}", 0, False, 1, False, "t", payload, b"")
        wills.receive("a.0", PendingWills(1, False, False, (pending,), ()), 0, 0)
    assert KEPT_WILLS_BYTES_MAX - 61_000 < wills.bytes <= KEPT_WILLS_BYTES_MAX
    assert wills.count + wills.not_kept == 400
    wills.receive("a.0", PendingWills(1, False, False, (), ("device-0",)), 0, 0)
    wills.receive("c.1", PendingWills(1, False, False, (pending,), ()), 0, 0)
    assert wills.count + wills.not_kept == 399
    wills.receive("a.0", PendingWills(2, True, False, (), ()), MILLISECOND, 0)
    assert (wills.count, wills.bytes) == (0, 0)


@pytest.mark.parametrize("payload", [b"", b"short", b"\0\1" + bytes(8) + b"\xff"])
def test_a_notice_that_cannot_be_read_is_none(payload: bytes) -> None:
    assert read_notice(payload) is None
    assert read_notice(b"\0\1" + bytes(7) + b"\5me") == WillNotice(1, 5, "me")
