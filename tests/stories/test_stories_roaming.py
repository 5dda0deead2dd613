"""A client that connects at another gateway finds its session there: nothing lost, nothing doubled, in order."""

from __future__ import annotations

from collections import Counter

import pytest

from edgebridge.frontend.admin import move_client
from edgebridge.frontend.client_moves import MoveOutcome
from edgebridge.frontend.event_buffer import SESSION_STRANDED
from edgebridge.frontend.federation.roaming.transfer import SessionMoves
from edgebridge.frontend.options import Redirect
from edgebridge.session.journal.transfer_records import DEPARTING_PREFIX
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.packets import ConnAck, Connect, Will
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.federation.options import FederationOptions
from edgebroker.instants import MILLISECOND, MINUTE, SECOND
from edgebroker.names import ClientId
from edgebroker.overlay.advertisements import LocalPublisher
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.draft import TopologyDraft
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.relocation.placement import PlacementRefusal
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import unaccounted
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

from .test_stories_authentication import ACCESS

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b"), 3))
SETTLED = 2 * MINUTE


class Walk:
    """Three sites of two gateways, publishers at three of them, and a reader that walks."""

    def __init__(self, seed: int, dialect: Dialect = V5, start: str = "a.0", wait_s: int = 30) -> None:
        self.simulation = Simulation(seed)
        options = FederationOptions(session_wait_ms=wait_s * 1_000)
        self.gateways = SimulatedGateways(self.simulation, TOPOLOGY, is_stored=True, federation_options=options)
        self.gateways.wait_for_links()
        self.publishers = [
            Participant(f"publisher-{name}", self.gateways[name], V5, True, 100, FAIR) for name in ("a.0", "b.1", "a.2")
        ]
        self.reader = Participant("walker", self.gateways[start], dialect, True, 100, FAIR)
        for one in (*self.publishers, self.reader):
            one.connect()
        self.wait()
        self.reader.subscribe("t/#", 2)
        self.wait(3 * SECOND)

    def wait(self, length: int = SECOND) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, times: int = 1, qos: int | None = None, pause: int = 20 * MILLISECOND) -> None:
        for _ in range(times):
            for publisher in self.publishers:
                number = len(publisher.published)
                level = 1 + number % 2 if qos is None else qos
                publisher.publish(f"t/{level}", b"%s %d" % (publisher.name.encode(), number), level)
            self.wait(pause)

    def walk(self, gateway: str) -> None:
        self.reader_gateway = gateway
        self.reader.move(self.gateways[gateway])
        self.reader.connect()

    def cut_off(self, gateway: str, is_cut: bool = True) -> None:
        """Cut all roads of *gateway*, or mend them."""
        for peer in TOPOLOGY.gateway(gateway).peers():
            road = self.gateways.road(gateway, peer)
            if is_cut:
                road.cut()
            else:
                road.mend()

    def problems(self, is_ordered: bool = True) -> list[str]:
        """What was lost, doubled or, unless a publisher's gateway crashed, came out of order."""
        found = []
        payloads = [one.payload for one in self.reader.received]
        counts = Counter(payloads)
        for publisher in self.publishers:
            for one in publisher.published:
                if one.payload in publisher.acknowledged and not counts[one.payload]:
                    found.append(f"lost {one.payload!r}")
                if one.qos == 2 and counts[one.payload] > 1:
                    found.append(f"{one.payload!r} came {counts[one.payload]} times")
            for qos in (1, 2) if is_ordered else ():
                mine = [one.payload for one in publisher.published if one.qos == qos]
                first = [one for one in dict.fromkeys(payloads) if one in set(mine)]
                if first != [one for one in mine if one in counts]:
                    found.append(f"{publisher.name}, QoS {qos}: {first} instead of {mine}")
        found += [text for gateway in self.gateways for text in unaccounted(gateway, [])]
        return found

    def sessions(self, client: str = "walker") -> list[str]:
        """Where the client has sessions, and where they still leave from."""
        return [
            gateway.name + ("*" if name.startswith(DEPARTING_PREFIX) else "")
            for gateway in self.gateways
            if not gateway.is_off
            for name in gateway.frontend.connect_handler.sessions
            if name == client or (name.startswith(DEPARTING_PREFIX) and name.endswith(f"/{client}"))
        ]


@pytest.mark.parametrize("dialect", [V311, V5])
@pytest.mark.parametrize("target", ["b.0", "a.1", "b.2"])
def test_a_session_is_where_its_client_connects(seed: int, dialect: Dialect, target: str) -> None:
    walk = Walk(seed, dialect)
    walk.publish(5)
    walk.reader.cut()
    walk.publish(20)
    walk.walk(target)
    walk.publish(20)
    assert walk.reader.is_ready
    assert walk.reader.sessions_lost == 1
    walk.wait(SETTLED)
    walk.publish(5)
    walk.wait()
    assert walk.problems() == []
    assert walk.sessions() == [target]


def test_a_clean_start_ends_the_session_elsewhere(seed: int) -> None:
    walk = Walk(seed)
    walk.reader.kept = False
    walk.walk("b.1")
    walk.wait(SETTLED)
    walk.reader.cut()
    walk.wait()
    assert walk.reader.sessions_lost == 2
    assert walk.sessions() == []


def test_the_old_connection_ends(seed: int) -> None:
    walk = Walk(seed)
    other = Participant("walker", walk.gateways["b.2"], V5, True, 100, FAIR)
    other.connect()
    walk.wait(SETTLED)
    assert other.is_ready
    assert other.sessions_lost == 0
    assert not walk.reader.client.is_connected
    assert walk.sessions() == ["b.2"]


@pytest.mark.parametrize("kept", [True, False])
def test_the_gateway_that_sent_a_client_to_another_one_learns_that_it_is_there(seed: int, kept: bool) -> None:
    walk = Walk(seed)
    frontend, now = walk.gateways["a.0"].frontend, walk.simulation.now
    redirect = Redirect(ReasonCode.USE_ANOTHER_SERVER, "b.example:1883")
    assert move_client(frontend, frontend.connect_handler.sessions[ClientId("walker")], "b.1", redirect, now)
    walk.reader.kept = kept
    walk.walk("b.1")
    walk.wait(SETTLED)
    last = frontend.connect_handler.moves.last("walker")
    assert last is not None
    assert (last.gateway, last.outcome) == ("b.1", MoveOutcome.ARRIVED)
    assert walk.sessions() == ["b.1"]
    statistics = walk.gateways["b.1"].overlay.peers.relocation
    statistics.add(LocalPublisher("walker", 1 << 40, 0), walk.simulation.now)
    refusal = statistics.limiter.refusal(1 << 40, False, 0.0, walk.simulation.now)
    assert refusal is (PlacementRefusal.RECENT if kept else None), "a session that came along has moved"


def test_an_unknown_client_costs_no_message(seed: int) -> None:
    walk = Walk(seed)
    before = [gateway.overlay.roaming.claimed for gateway in walk.gateways if gateway.overlay.roaming is not None]
    Participant("nobody", walk.gateways["b.2"], V5, True, 100, FAIR).connect()
    walk.wait()
    after = [gateway.overlay.roaming.claimed for gateway in walk.gateways if gateway.overlay.roaming is not None]
    assert after == before
    assert walk.sessions("nobody") == ["b.2"]


def test_one_client_alone_waits_for_a_gateway_of_which_nothing_is_known(seed: int) -> None:
    walk = Walk(seed, start="a.1", wait_s=2)
    walk.gateways["b.2"].power_off()
    walk.gateways["a.0"].crash(is_power_cut=False)
    walk.wait(3 * SECOND)
    first, second = (Participant(name, walk.gateways["a.0"], V5, True, 100, FAIR) for name in ("first", "second"))
    first.connect()
    walk.wait()
    assert not first.is_ready
    walk.wait(2 * SECOND)
    assert first.is_ready
    second.connect()
    walk.wait()
    assert second.is_ready


def test_a_client_is_let_in_though_its_gateway_is_dead(seed: int) -> None:
    walk = Walk(seed, wait_s=2)
    walk.publish(3)
    walk.wait()
    walk.reader.cut()
    walk.publish(10)
    walk.wait()
    walk.gateways["a.0"].power_off()
    walk.walk("b.1")
    walk.wait(5 * SECOND)
    assert walk.reader.is_ready
    assert walk.reader.sessions_lost == 2
    walk.reader.subscribe("t/#", 2)
    walk.wait()
    walk.gateways["a.0"].power_on()
    walk.publishers[0].connect()
    walk.wait(SETTLED)
    walk.publish(3)
    walk.wait(SETTLED)
    assert walk.problems() == []
    assert walk.sessions() == ["b.1"]


def test_a_claim_that_is_long_on_its_way_takes_nothing_from_a_later_one(seed: int) -> None:
    walk = Walk(seed)
    walk.cut_off("b.1")
    earlier = Participant("walker", walk.gateways["b.1"], V5, True, 100, FAIR)
    earlier.connect()
    walk.wait()
    walk.walk("b.2")
    walk.publish(5)
    walk.wait()
    assert walk.reader.is_ready
    walk.cut_off("b.1", is_cut=False)
    walk.wait(30 * SECOND)
    walk.publish(5)
    walk.wait()
    assert earlier.sessions_lost == 0
    assert not earlier.is_ready
    assert walk.problems() == []
    assert walk.sessions() == ["b.2"]


def test_what_comes_for_a_client_that_has_gone_on_follows_what_has_gone_on_before(seed: int) -> None:
    walk = Walk(seed, wait_s=2)
    walk.publish(3)
    walk.wait()
    walk.reader.cut()
    walk.cut_off("a.0")
    walk.publish(10)
    walk.walk("b.1")
    walk.wait(3 * SECOND)
    assert walk.reader.sessions_lost == 2
    walk.reader.subscribe("t/#", 2)
    walk.wait()
    walk.walk("b.2")
    walk.wait()
    walk.cut_off("a.0", is_cut=False)  # the claim of b.1 comes before that of b.2, and what a.0 has goes to b.1
    walk.wait(30 * SECOND)
    assert walk.problems() == []
    assert walk.sessions() == ["b.2"]


def test_a_gateway_to_which_a_claim_was_handed_on_answers_for_the_one_that_was_asked(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk(seed)
    walk.walk("b.1")
    walk.wait(30 * SECOND)
    walk.reader.kept = False
    walk.reader.cut()
    walk.walk("b.1")
    walk.wait()
    walk.reader.cut()
    walk.wait(5 * SECOND)
    assert walk.sessions() == []
    monkeypatch.setattr(walk.gateways["a.2"].overlay.directory, "holders", lambda client: (0,))
    walk.reader.kept = True
    walk.walk("a.2")
    walk.wait()
    assert walk.reader.is_ready


def test_a_claim_ends_between_gateways_of_which_each_takes_the_other_for_the_place_of_the_session(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk(seed)
    walk.walk("b.1")
    walk.wait()
    walk.walk("a.0")  # before the move to b.1 has ended
    walk.wait(30 * SECOND)
    walk.reader.kept = False
    walk.reader.cut()
    walk.walk("a.0")
    walk.wait()
    walk.reader.cut()
    walk.wait(5 * SECOND)
    assert walk.sessions() == []
    monkeypatch.setattr(walk.gateways["a.2"].overlay.directory, "holders", lambda client: (0,))
    walk.reader.kept = True
    walk.walk("a.2")
    walk.wait(2 * SECOND)
    assert walk.reader.is_ready


def test_a_client_learns_that_its_session_still_arrives_and_operators_see_it_move(seed: int) -> None:
    walk = Walk(seed)
    walk.publish(3)
    walk.walk("b.1")
    walk.wait()
    assert ("session", "arriving") in walk.reader.connack_properties[Property.USER_PROPERTY]
    old, new = (walk.gateways[name].overlay.roaming for name in ("a.0", "b.1"))
    assert old is not None
    assert new is not None
    assert new.moves_of("walker") == SessionMoves(("a.0",), None, 0)
    [leaving] = [name for name in walk.gateways["a.0"].frontend.connect_handler.sessions if name.endswith("/walker")]
    assert old.moves_of(leaving) == SessionMoves((), "b.1", 0)
    assert (old.moving, new.moving) == (1, 1)
    walk.wait(20 * SECOND)
    assert (old.moving, new.moving) == (0, 0)
    assert new.moves_of("walker") is None
    walk.walk("b.1")
    walk.wait()
    assert ("session", "arriving") not in walk.reader.connack_properties[Property.USER_PROPERTY]


@pytest.mark.parametrize(("removed", "left"), [("0", "b.1"), ("1", "a.0")])
def test_a_move_ends_when_the_other_gateway_is_taken_out_of_the_topology(seed: int, removed: str, left: str) -> None:
    walk = Walk(seed)
    walk.publish(3)
    walk.walk("b.1")
    walk.wait()
    draft = TOPOLOGY.draft
    sites = tuple(site for site in draft.sites if site.name != removed)
    gateways = tuple(one for one in draft.gateways if one.site != removed)
    smaller = Topology(TopologyDraft(draft.federation, draft.tree, sites, gateways))
    for gateway in walk.gateways:
        if any(one.name == gateway.name for one in gateways):
            gateway.change_topology(smaller)
        else:
            gateway.power_off()
    walk.wait(5 * SECOND)
    roaming = walk.gateways[left].overlay.roaming
    assert roaming is not None
    assert (roaming.stranded, roaming.moving) == (1, 0)
    assert walk.sessions() == ([] if left == "a.0" else [left])
    told, _ = walk.gateways[left].frontend.events.take()
    assert [one.client for one in told if one.code == SESSION_STRANDED] == ["walker"]


def test_another_user_does_not_get_the_session_of_a_client_at_another_gateway(seed: int) -> None:
    simulation = Simulation(seed)
    gateways = SimulatedGateways(simulation, TOPOLOGY, is_stored=True, access=ACCESS)
    gateways.wait_for_links()

    def answer(gateway: str, user: str, password: bytes) -> ConnAck:
        client = SimulatedClient("pump", gateways[gateway])
        properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: 3_600}
        client.send(Connect("pump", False, username=user, password=password, properties=properties))
        simulation.run_until(simulation.now + SECOND)
        client.cut()
        simulation.run_until(simulation.now + 3 * SECOND)
        [connack, *_] = client.receive()
        assert isinstance(connack, ConnAck)
        return connack

    assert answer("a.0", "anna", b"apple").reason is ReasonCode.SUCCESS
    refused = answer("b.1", "bert", b"birch")
    assert refused.reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    at = [gateway.name for gateway in gateways if "pump" in gateway.frontend.connect_handler.sessions]
    assert at == ["a.0"]
    assert answer("b.1", "anna", b"apple").session_present


def test_what_a_client_had_before_its_gateway_crashed_does_not_come_late_where_it_goes(seed: int) -> None:
    walk = Walk(seed)
    other = Participant("other", walk.gateways["b.1"], V5, True, 100, FAIR)
    other.connect()
    walk.wait()
    other.subscribe("t/#", 2)
    walk.publish(3)
    walk.wait(3 * SECOND)
    walk.gateways.road("a.2", "a.1").is_silent = True  # a.2 notices after some seconds, and goes another way
    walk.publish(1, 2)
    walk.wait()
    walk.gateways["a.0"].crash(is_power_cut=False)
    walk.walk("b.1")
    walk.wait(30 * SECOND)
    walk.publish(3)
    walk.wait(5 * SECOND)
    assert walk.problems() == []


def test_events_that_the_gateway_before_has_seen_are_late_at_any_qos(seed: int) -> None:
    walk = Walk(seed)
    walk.publish(3, 0)
    walk.wait()
    seen = walk.gateways["a.0"].overlay.peers.forwarder.last_events()
    assert len(seen) >= 3
    walk.walk("b.1")
    walk.wait()
    roaming = walk.gateways["b.1"].overlay.roaming
    assert roaming is not None
    for publisher, sequence in seen.items():
        assert roaming.is_late(publisher, sequence)
        assert not roaming.is_late(publisher, sequence + 1_000)
    walk.wait(SETTLED)
    assert not any(roaming.is_late(*event) for event in seen.items())


def test_a_delayed_will_waits_for_the_client_wherever_it_connects(seed: int) -> None:
    walk = Walk(seed)
    walk.reader.new_will = lambda: Will("t/will", b"gone", 1, False, {Property.WILL_DELAY_INTERVAL: 30})
    walk.walk("b.1")
    walk.wait()
    walk.reader.cut()
    walk.wait(20 * SECOND)
    walk.walk("a.2")
    walk.wait(SETTLED)
    assert [one for one in walk.reader.received if one.payload == b"gone"] == []
    walk.reader.cut()
    walk.wait(40 * SECOND)
    walk.walk("b.0")
    walk.wait(5 * SECOND)
    assert [one.payload for one in walk.reader.received if one.topic == "t/will"] == [b"gone"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_walk_over_all_gateways(seed: int, crashes: bool) -> None:
    walk = Walk(seed)
    random = walk.simulation.random
    names = [gateway.name for gateway in walk.gateways]
    for _ in range(6):
        walk.wait(5 * MILLISECOND)
        walk.walk(random.choice(names))
        for _ in range(random.randrange(1, 5)):
            walk.publish(random.randrange(8), pause=random.randrange(1, 50) * MILLISECOND)
            if crashes and not random.randrange(3):
                gateway = walk.gateways[random.choice(names)]
                gateway.power_off(bool(random.randrange(2)))
                walk.wait(random.randrange(3) * SECOND // 2)
                gateway.power_on()
            for one in (*walk.publishers, walk.reader):
                if not one.is_ready and not random.randrange(2):
                    one.connect()
    walk.gateways.wait_for_links(2 * MINUTE)
    for one in (*walk.publishers, walk.reader):
        if not one.is_ready:
            one.connect()
    walk.wait(MINUTE)
    walk.publish(3)
    walk.wait(5 * SECOND)
    assert walk.reader.is_ready
    assert walk.reader.sessions_lost == 1
    assert walk.problems(is_ordered=not crashes) == []
    assert walk.sessions() == [walk.reader_gateway]


def test_a_session_that_moves_on_keeps_its_order_when_the_move_before_has_ended(seed: int) -> None:
    walk = Walk(seed)
    walk.walk("b.1")
    walk.wait()
    walk.reader.cut()
    walk.wait(8_500 * MILLISECOND)
    # The old session ends ten seconds after the walk, between two messages of a publisher that is where the reader is.
    walk.publish(500, 1, pause=3 * MILLISECOND)
    walk.wait(5 * SECOND)
    walk.walk("a.2")
    walk.wait(SETTLED)
    assert walk.problems() == []
