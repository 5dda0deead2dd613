"""Uplinks are crossed only for readers: a day of devices that send every six minutes, and of devices that connect once,
at one of three sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.options import FederationOptions
from edgebroker.instants import HOUR, MILLISECOND, MINUTE, SECOND, Duration
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import disordered, doubled, unaccounted, unwanted
from edgelab.simworld.gateways import ROAD, SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation

HOME, NEAR, FAR = "a.0", "a.1", "a.2"
SLOW_DEVICES = 6
GAP: Duration = 6 * MINUTE
"""So often a slow device sends. An advertisement of a single client used to end after five minutes."""
UNWANTED_MAX = 0.001
"""The share of copies that nobody at the other site wants."""


@dataclass(frozen=True)
class Wish:
    """A reader at *gateway*, and the topics that it wants."""

    gateway: str
    topic_filter: str
    first_levels: tuple[str, ...]

    def wants(self, topic: str) -> bool:
        return topic.startswith(self.first_levels)


WISHES = (
    Wish(HOME, "plant/#", ("plant/",)),
    Wish(NEAR, "plant/line-1/#", ("plant/line-1/",)),
    Wish(NEAR, "meter/7/+", ("meter/7/",)),
    Wish(FAR, "plant/line-2/temp", ("plant/line-2/temp",)),
)


class ThreeSites:
    """One gateway at each site. All devices are at HOME, so what arrives at the others has crossed an uplink."""

    def __init__(self, seed: int, wishes: tuple[Wish, ...], road: RoadConditions = ROAD, roams: bool = True) -> None:
        """roams: False: gateways publish nothing themselves."""
        self.simulation = Simulation(seed)
        topology = Topology.product(Scot(Factor.parse("a"), 3))
        self.gateways = SimulatedGateways(
            self.simulation, topology, road, is_stored=True, federation_options=FederationOptions(roams=roams)
        )
        self.gateways.wait_for_links()
        self.published: list[tuple[str, bytes, int]] = []
        self.devices: list[Participant] = []
        self.readers = [(wish, self.device(f"reader-{at}", wish.gateway, True)) for at, wish in enumerate(wishes)]
        for _, reader in self.readers:
            reader.connect()
        self.wait(SECOND)
        for wish, reader in self.readers:
            reader.subscribe(wish.topic_filter, 2)
        self.wait(SECOND)
        self.slow = [self.device(f"slow-{at}", HOME, True) for at in range(SLOW_DEVICES)]
        for device in self.slow:
            device.connect()
        self.wait(SECOND)

    def device(self, name: str, gateway: str, kept: bool) -> Participant:
        self.devices.append(Participant(name, self.gateways[gateway], V5, kept, 20, FAIR))
        return self.devices[-1]

    def wait(self, length: Duration) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, device: Participant, topic: str) -> None:
        payload = b"%d" % len(self.published)
        qos = len(self.published) % 3
        if device.publish(topic, payload, qos):
            self.published.append((topic, payload, qos))

    def live(self, length: Duration) -> None:
        """Let each slow device send every GAP, and a device with a new client identifier once in between."""
        chance, end, step = self.simulation.random, self.simulation.now + length, GAP // SLOW_DEVICES
        while self.simulation.now < end:
            for number, device in enumerate(self.slow):
                if not device.is_ready:
                    device.connect()
                    self.wait(SECOND)
                self.publish(device, f"plant/line-{number % 4}/temp")
                once = self.device(f"once-{chance.randrange(1 << 48):x}", HOME, False)
                once.connect()
                self.wait(SECOND)
                # some share a prefix with others, some have one of their own
                self.publish(once, f"meter/{chance.randrange(50)}/day")
                self.publish(once, f"{once.name}/boot/reason")
                self.wait(2 * SECOND)
                once.disconnect()
                self.wait(step - 3 * SECOND)
        self.wait(10 * SECOND)

    def unwanted(self, name: str) -> int:
        """Return how many copies arrived at *name* that nobody there wants, and that it did not hand on."""
        return self.gateways[name].ledger.filtered

    def wanted(self, name: str) -> int:
        """Return how many messages somebody at *name* wants."""
        wishes = [wish for wish, _ in self.readers if wish.gateway == name]
        return sum(any(wish.wants(topic) for wish in wishes) for topic, _, _ in self.published)

    def missed(self) -> Iterator[str]:
        for wish, reader in self.readers:
            received = {one.payload for one in reader.received}
            for topic, payload, qos in self.published:
                if qos and wish.wants(topic) and payload not in received:
                    yield f"{reader.name} missed {payload!r} of {topic}"

    def complaints(self) -> list[str]:
        """Return what a reader missed, or got twice at QoS 2, or got without having asked, and wrong accounts."""
        accounts = [text for one in self.gateways for text in unaccounted(one, [])]
        readers = [reader for _, reader in self.readers]
        out_of_order = disordered(self.devices, readers)
        return [*self.missed(), *unwanted(self.devices), *doubled(self.devices), *out_of_order, *accounts]


def test_in_a_day_of_slow_devices_and_of_devices_that_connect_once_only_what_is_wanted_crosses(seed: int) -> None:
    sites = ThreeSites(seed, WISHES)
    sites.live(24 * HOUR)
    assert len(sites.published) > 4_000
    for name in (NEAR, FAR):
        assert sites.wanted(name) > 200
        assert sites.unwanted(name) <= UNWANTED_MAX * len(sites.published)
    assert sites.complaints() == []


def test_where_nobody_else_is_interested_nothing_crosses(seed: int) -> None:
    sites = ThreeSites(seed, WISHES[:1], roams=False)
    sites.live(2 * HOUR)
    for name in (NEAR, FAR):
        assert sites.gateways[name].ledger.published == 0
    assert sites.complaints() == []


def test_around_an_uplink_that_is_down_and_after_a_power_cut_too_only_what_is_wanted_crosses(seed: int) -> None:
    sites = ThreeSites(seed, WISHES)
    road = sites.gateways.road(HOME, NEAR)
    for _ in range(4):
        sites.live(HOUR)
        road.cut()
        sites.live(12 * MINUTE)
        road.mend()
        sites.live(HOUR)
        sites.gateways[HOME].crash()
    sites.live(10 * MINUTE)
    for name in (NEAR, FAR):
        assert sites.unwanted(name) <= UNWANTED_MAX * len(sites.published)
    assert sites.complaints() == []


def test_who_subscribes_behind_an_uplink_that_is_down_hears_over_the_third_site(seed: int) -> None:
    sites = ThreeSites(seed, WISHES)
    sites.live(6 * MINUTE)
    road = sites.gateways.road(HOME, NEAR)
    road.cut()
    sites.wait(10 * SECOND)
    late = sites.device("late", NEAR, True)
    late.connect()
    sites.wait(SECOND)
    late.subscribe("plant/line-3/#", 2)
    sites.wait(SECOND)
    told = len(sites.published)
    sites.live(12 * MINUTE)
    received = {one.payload for one in late.received}
    due = [payload for topic, payload, _ in sites.published[told:] if topic.startswith("plant/line-3/")]
    assert due
    assert received == set(due), "over the third site"
    road.mend()
    sites.wait(MINUTE)
    assert sites.complaints() == []


WAN = RoadConditions((40 * MILLISECOND, 40 * MILLISECOND))
STEP: Duration = 6 * MILLISECOND


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["killed", "without power"])
@pytest.mark.parametrize("crashing", [(HOME,), (HOME, NEAR)], ids=["the publisher's gateway", "the reader's too"])
def test_events_that_wait_for_answers_outlive_a_crash_at_every_step(
    crashing: tuple[str, ...], is_power_cut: bool, seed: int
) -> None:
    waited = 0
    for at in range(0, 240 * MILLISECOND, STEP):  # the answers are there after 80 ms, the copies after 40 ms more
        sites = ThreeSites(seed + at, (Wish(NEAR, "new/#", ("new/",)), Wish(HOME, "new/#", ("new/",))), WAN)
        publisher = sites.slow[0]
        for _ in range(6):  # two of each QoS
            sites.publish(publisher, "new/topic")
        sites.wait(at)
        waited += sites.gateways[HOME].overlay.peers.region.pending.count > 0
        for name in crashing:
            sites.gateways[name].crash(is_power_cut)
        for device in (publisher, *(reader for _, reader in sites.readers)):
            device.connect()
        sites.wait(MINUTE)
        sites.publish(publisher, "new/topic")
        sites.publish(publisher, "new/topic")
        sites.wait(10 * SECOND)
        assert sites.complaints() == [], f"{at / MILLISECOND} ms"
    assert waited > 10
