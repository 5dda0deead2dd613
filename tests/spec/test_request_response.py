"""SUBACK of a subscription that changes what other gateways know waits for them: a question that is published then does
not overtake the subscription to the topic of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest

from edgebridge.frontend.federation import held_subacks
from edgebridge.wire.dialect import V5
from edgebroker.federation.effects import Effect, EndFlush, SendMessage
from edgebroker.federation.interest_flush import FLUSHES_MAX
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.federation.router import FederationRouter
from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.overlay.link.codec.frames import FrameReader, Item
from edgebroker.overlay.link.outbox import BOUNDS, LinkOutbox
from edgebroker.overlay.link.sender import LinkSender
from edgebroker.overlay.messages import InterestFlush, InterestFlushed
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.publication import Publication
from edgelab.simworld.conditions import FAIR
from edgelab.simworld.federation import Federation
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation

SLOW, FAST, SITE = 80 * MILLISECOND, 50 * MILLISECOND, 5 * MILLISECOND
TRIP: Duration = 2 * (SLOW + SITE)
"""To the gateway of the other site that learns of a subscription last, and back."""
LOCAL: Duration = 15 * MILLISECOND
"""From a client to its gateway and back, with a sync of the disk."""


class Sites:
    """Two sites of two gateways. The uplink of one is slower than that of the other."""

    def __init__(self, seed: int, options: FederationOptions = DEFAULT_OPTIONS, is_stored: bool = True) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation,
            Topology.product(Scot(Factor.parse("a-b"), 2)),
            is_stored=is_stored,
            federation_options=options,
        )
        for one, other, delay in (("a.0", "a.1", FAST), ("b.0", "b.1", SLOW), ("a.0", "b.0", SITE)):
            self.gateways.road(one, other).conditions = RoadConditions((delay, delay))
        self.gateways.wait_for_links()
        self._clients = 0

    def wait(self, length: Duration = 2 * SECOND) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def wait_for(self, is_true: Callable[[], bool], within: Duration = 3 * SECOND) -> Duration:
        """Wait until *is_true*; return for how long."""
        since = self.simulation.now
        while not is_true():
            assert self.simulation.now < since + within
            self.wait(MILLISECOND)
        return self.simulation.now - since

    def client(self, gateway: str) -> Participant:
        self._clients += 1
        one = Participant(f"client-{self._clients}", self.gateways[gateway], V5, True, 20, FAIR)
        one.connect()
        self.wait(SECOND)
        return one

    def subscribed(self, client: Participant, topic: str) -> Duration:
        """Let *client* subscribe; return how long SUBACK took."""
        assert client.subscribe(topic, 1)
        return self.wait_for(lambda: topic in client.subscribed)

    def responder(self) -> Participant:
        """A client of the other site that has answered others before."""
        responder = self.client("b.1")
        self.subscribed(responder, "ask")
        assert responder.publish("plant/reply/0", b"to nobody", 1)
        self.wait()
        return responder

    def requester(self, gateway: str = "a.0") -> Participant:
        """A client that has asked before."""
        requester = self.client(gateway)
        assert requester.publish("ask", b"before", 1)
        self.wait()
        return requester


def answered(sites: Sites, responder: Participant, requester: Participant) -> bool:
    """Let *requester* subscribe to a topic of its own for the answer, ask, and return whether the answer arrives."""
    topic, before = f"plant/reply/{requester.name}", len(responder.received)
    sites.subscribed(requester, topic)
    assert requester.publish("ask", b"?", 1)
    sites.wait_for(lambda: len(responder.received) > before)
    assert responder.publish(topic, b"!", 1)
    sites.wait()
    return [one.payload for one in requester.received] == [b"!"]


def outcomes(sites: Sites, gateway: str = "a.0") -> dict[str, int]:
    counts = sites.gateways[gateway].overlay.held_subacks.outcomes
    return {outcome: count for outcome, count in counts.items() if count}


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_arrives(seed: int) -> None:
    sites = Sites(seed)
    responder = sites.responder()
    for _ in range(5):
        assert answered(sites, responder, sites.requester())


def test_without_the_wait_it_is_lost() -> None:
    sites = Sites(1, FederationOptions(suback_wait_ms=0))
    assert not answered(sites, sites.responder(), sites.requester())
    assert outcomes(sites) == {}


def test_suback_takes_one_round_trip_to_who_learns_of_it_last() -> None:
    sites = Sites(2)
    sites.responder()
    requester = sites.client("a.0")
    assert TRIP <= sites.subscribed(requester, "plant/reply/1") <= TRIP + LOCAL
    assert 2 * SITE <= sites.subscribed(requester, "elsewhere/of/nobody") <= 2 * SITE + LOCAL
    assert outcomes(sites) == {"confirmed": 2}


def test_who_subscribes_to_what_others_know_already_does_not_wait() -> None:
    sites = Sites(3)
    sites.responder()
    sites.subscribed(sites.client("a.0"), "plant/reply/+")
    assert sites.subscribed(sites.client("a.0"), "plant/reply/1") <= LOCAL
    assert outcomes(sites) == {"confirmed": 1}


def test_who_subscribes_to_what_others_are_being_told_waits_too() -> None:
    sites = Sites(4)
    sites.responder()
    first, second = sites.client("a.0"), sites.client("a.0")
    first.subscribe("plant/reply/+", 1)
    sites.wait(10 * MILLISECOND)
    assert sites.subscribed(second, "plant/reply/1") > TRIP - 10 * MILLISECOND


def test_all_else_of_the_connection_goes_on_meanwhile() -> None:
    sites = Sites(5)
    sites.responder()
    requester, neighbour = sites.requester(), sites.client("a.0")
    assert requester.subscribe("plant/reply/1", 1)
    assert requester.publish("of/nobody", b"1", 1)
    assert neighbour.publish("plant/reply/1", b"early", 0)
    sites.wait(60 * MILLISECOND)
    assert b"1" in requester.acknowledged
    assert [one.payload for one in requester.received] == [b"early"]
    assert not requester.subscribed
    sites.wait(TRIP)
    assert requester.subscribed


def test_suback_waits_for_the_disk_as_well() -> None:
    sites = Sites(6)
    sites.responder()
    requester = sites.client("a.0")
    store = sites.gateways["a.0"].store
    assert store is not None
    store.disk.sync_us = (SECOND, SECOND)
    assert sites.subscribed(requester, "plant/reply/1") >= SECOND
    assert outcomes(sites) == {"confirmed": 1}


@pytest.mark.parametrize("cut", [("a.0", "b.0"), ("b.0", "b.1"), ("a.0", "a.1")])
@pytest.mark.parametrize("at", range(10, 170, 30))
def test_a_link_that_is_cut_is_not_waited_for(cut: tuple[str, str], at: int) -> None:
    sites = Sites(7)
    responder, requester = sites.responder(), sites.requester()
    since = sites.simulation.now
    assert requester.subscribe("plant/reply/1", 1)
    sites.wait(at * MILLISECOND)
    sites.gateways.road(*cut).cut()
    sites.wait_for(lambda: bool(requester.subscribed))
    assert sites.simulation.now - since <= TRIP + LOCAL + SITE
    assert outcomes(sites) == {"confirmed": 1}
    sites.gateways.road(*cut).mend()
    sites.wait(20 * SECOND)
    assert responder.publish("plant/reply/1", b"!", 1)
    sites.wait()
    assert [one.payload for one in requester.received] == [b"!"]


def test_a_silent_link_is_waited_for_as_long_as_the_setting_says() -> None:
    sites = Sites(8)
    sites.responder()
    requester = sites.client("a.0")
    sites.gateways.road("b.0", "b.1").is_silent = True
    assert SECOND <= sites.subscribed(requester, "plant/reply/1") <= SECOND + LOCAL
    assert outcomes(sites) == {"timed_out": 1}
    sites.gateways.road("b.0", "b.1").mend()
    sites.wait(5 * SECOND)
    assert TRIP <= sites.subscribed(requester, "plant/reply/2") <= TRIP + LOCAL


def test_a_gateway_without_open_links_does_not_wait() -> None:
    sites = Sites(9)
    for peer in ("a.1", "b.0"):
        sites.gateways.road("a.0", peer).cut()
    requester = sites.client("a.0")
    assert sites.subscribed(requester, "plant/reply/1") <= LOCAL


def test_a_connection_that_ends_takes_its_suback_with_it() -> None:
    sites = Sites(10)
    sites.responder()
    requester = sites.client("a.0")
    assert requester.subscribe("plant/reply/1", 1)
    sites.wait(20 * MILLISECOND)
    requester.cut()
    sites.wait(10 * MILLISECOND)
    requester.connect()
    sites.wait()
    assert not requester.subscribed
    assert outcomes(sites) == {}
    sites.subscribed(requester, "plant/reply/1")


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites(11)
    sites.responder()
    monkeypatch.setattr(held_subacks, "HELD_BYTES_MAX", 1_100)
    clients = [sites.client("a.0") for _ in range(3)]
    for number, one in enumerate(clients):
        assert one.subscribe(f"plant/reply/{number}", 1)
    sites.wait(10 * MILLISECOND)
    assert [bool(one.subscribed) for one in clients] == [False, False, True]
    sites.wait(TRIP)
    assert outcomes(sites) == {"confirmed": 2, "no_room": 1}


def test_a_change_of_topology_releases_what_is_held() -> None:
    sites = Sites(12)
    sites.responder()
    requester = sites.client("a.0")
    assert requester.subscribe("plant/reply/1", 1)
    sites.wait(20 * MILLISECOND)
    sites.gateways["a.0"].change_topology(sites.gateways.topology)
    sites.wait(10 * MILLISECOND)
    assert requester.subscribed


# -- the flush of interests alone -------------------------------------------------------------------------------------


class Flushed(Federation):
    """A federation whose gateways ask whether their interests are known."""

    def __init__(self, *tree: str) -> None:
        super().__init__(Topology.product(Scot(Factor.parse(*tree), 3)))
        self.ended: dict[str, list[bool]] = {}

    def ask(self, gateway: str) -> None:
        self.perform(gateway, self.peers[gateway].flush_interests(self.now)[1])

    def perform(self, gateway: str, effects: Iterable[Effect]) -> None:
        effects = [*effects]
        self.ended.setdefault(gateway, []).extend(each.is_complete for each in effects if isinstance(each, EndFlush))
        super().perform(gateway, effects)

    def wanting(self, cluster: int) -> list[bool]:
        """Whether each publisher's gateway of the other sites knows that *cluster* wants something."""
        return [
            bool(record.targets >> cluster & 1)
            for peers in self.peers.values()
            if peers.gateway.cluster != cluster
            for record in peers.region.advertisements
        ]


@pytest.mark.parametrize("seed", range(40))
def test_a_flush_returns_when_everybody_knows_whatever_the_order(seed: int) -> None:
    chance = Random(seed)
    world = Flushed(*chance.choice([("a-b",), ("a-b-c-d",), ("a-b-c", "b-d")]))
    world.connect_all()
    world.settle(chance)
    names = sorted(world.peers)
    for name in names:
        world.publish(name, f"client of {name}", "t/u/v")
    world.settle(chance)
    gateway = chance.choice(names)
    cluster = world.peers[gateway].gateway.cluster
    world.subscribe(gateway, 1, "t/u/+")
    world.ask(gateway)
    while not world.ended[gateway]:
        world.deliver(chance.choice([pair for pair, messages in world.links.items() if messages]))
    assert world.ended[gateway] == [True]
    assert all(world.wanting(cluster))
    for other in (one for one in names if world.peers[one].gateway.cluster == cluster and one != gateway):
        assert world.peers[other].next_copies(Publication("x", "t/u/v", b"", 1, False, world.now))


def test_old_flushes_of_others_are_forgotten() -> None:
    world = Flushed("a-b-c")
    world.connect_all()
    world.settle()
    flushes = world.peers["b.0"].flushes
    for request in range(FLUSHES_MAX + 1):
        assert flushes.receive("a.0", InterestFlush(request)) == [
            SendMessage("c.0", InterestFlush(request), TrafficClass.CONTROL)
        ]
    assert flushes.forgotten == 1
    assert flushes.receive_return("c.0", InterestFlushed(0)) == []
    [returned] = flushes.receive_return("c.0", InterestFlushed(1))
    assert returned == SendMessage("a.0", InterestFlushed(1), TrafficClass.CONTROL)


def test_a_peer_of_an_older_version_is_not_waited_for() -> None:
    router = FederationRouter(Topology.product(Scot(Factor.parse("a-b"), 2)), "a.0")
    router.link_up("b.0", 0, capabilities=())
    request, effects = router.flush_interests(0)
    assert effects == [EndFlush(request, True)]


@pytest.mark.parametrize("knows", [True, False])
def test_only_a_peer_that_can_read_them_is_sent_flushes(knows: bool) -> None:
    outbox, sender = LinkOutbox("peer", BOUNDS, None), LinkSender(False, {"flush"} if knows else set())
    outbox.opened({}, False)
    for message in (InterestFlush(7), InterestFlushed(7)):
        outbox.enqueue(message, TrafficClass.CONTROL, 0)
    items: list[Item] = []
    FrameReader(False).feed(sender.pull(outbox, TrafficClass, 10_000, 0), items)
    assert len(items) == (3 if knows else 0)  # NEXT, and the two
