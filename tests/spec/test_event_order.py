"""The order of a publisher's events over several paths: their predecessors, and where they wait for them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.effects import DeliverEvent, HoldEvent
from edgebroker.federation.options import FederationOptions
from edgebroker.header import EventHeader, hosted
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.limits import HELD_EVENT_BYTES_MAX, HELD_EVENTS_MAX
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.link.codec.messages import alone, read_alone
from edgebroker.overlay.messages import Forward, Relay
from edgebroker.overlay.reorder_buffer import BROKEN_WAIT_MAX, WAIT_MAX, HeldEvent, ReorderBuffer
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.sent_events import KEPT, SentEvents
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

from ..support.routers import came, federation

DYNAMIC = FederationOptions(is_dynamic=True)
CONGESTED = QueueSample(0, 0, 50)


def event(sequence: int, publisher: int = 1, qos: int = 1, payload: bytes = b"") -> HeldEvent:
    return HeldEvent(Forward(EventHeader(publisher, sequence, 1, 0), "t", payload, qos, False, "c"), "", 0)


def sequences(found: list[HeldEvent]) -> list[int]:
    return [each.forward.header.sequence for each in found]


# -- the buffer -------------------------------------------------------------------------------------------------------


def test_an_event_waits_for_its_predecessor_and_takes_its_successors_along() -> None:
    buffer = ReorderBuffer()
    assert buffer.add(event(7), 5, WAIT_MAX) == []
    assert buffer.add(event(9), 7, WAIT_MAX) == []
    assert buffer.add(event(3, publisher=2), 1, WAIT_MAX) == []
    assert buffer.has(1, 7)
    assert not buffer.has(1, 5)
    assert buffer.successors(1, 4) == []
    assert sequences(buffer.successors(1, 5)) == [7, 9]
    assert not buffer.has_events_of(1)
    assert len(buffer) == 1


def test_an_event_waits_until_its_deadline_and_none_of_its_kind_that_is_older_stays_behind() -> None:
    buffer = ReorderBuffer()
    buffer.add(event(9), 8, 10)
    buffer.add(event(7), 6, 20)
    buffer.add(event(5, qos=0), 4, 30)
    assert buffer.next_due == 10
    assert buffer.release(9) == []
    assert sequences(buffer.release(10)) == [7, 9], "QoS 0 is another flow"
    assert buffer.next_due == 30
    assert sequences(buffer.release(30)) == [5]
    assert buffer.next_due is None


def test_events_of_a_gateway_whose_link_is_lost_wait_no_longer_than_others() -> None:
    buffer = ReorderBuffer()
    buffer.add(event(2, hosted(3, 1)), 1, WAIT_MAX)
    buffer.add(event(2, hosted(4, 1)), 1, WAIT_MAX)
    buffer.hasten(3, SECOND)
    assert [each.forward.header.publisher for each in buffer.release(SECOND)] == [hosted(3, 1)]
    assert buffer.next_due == WAIT_MAX


def test_so_many_events_wait_and_no_more() -> None:
    buffer = ReorderBuffer()
    released = [
        each
        for number in range(HELD_EVENTS_MAX + 10)
        for each in buffer.add(event(2, publisher=number), 1, WAIT_MAX + number)
    ]
    assert [each.forward.header.publisher for each in released] == [*range(10)]
    assert len(buffer) == HELD_EVENTS_MAX


def test_so_many_bytes_wait_and_no_more() -> None:
    buffer = ReorderBuffer()
    half = bytes(HELD_EVENT_BYTES_MAX // 2)
    assert buffer.add(event(2, 1, payload=half), 1, 10) == []
    assert buffer.add(event(2, 2, payload=half), 1, 20) == []
    assert [each.forward.header.publisher for each in buffer.add(event(2, 3, payload=b"x"), 1, 30)] == [1]


# -- predecessors -----------------------------------------------------------------------------------------------------


def test_the_predecessor_is_the_last_event_of_the_same_kind_for_the_same_receiver(chance: Random) -> None:
    sent = SentEvents()
    told: list[tuple[int, int, int, bool]] = []
    for sequence in range(1, 300):
        publisher, receivers, is_reliable = chance.randrange(3), chance.randrange(8), chance.random() < 0.5
        for receiver in range(3):
            before = [
                one
                for who, one, where, kind in told
                if who == publisher and where >> receiver & 1 and kind == is_reliable
            ]
            assert sent.distance(publisher, sequence, receiver, is_reliable) == (sequence - before[-1] if before else 0)
        sent.add(publisher, sequence, receivers, is_reliable, sequence)
        told.append((publisher, sequence, receivers, is_reliable))


def test_an_event_that_was_dropped_is_nobodys_predecessor() -> None:
    sent = SentEvents()
    sent.add(1, 1, 0b11, True, 0)
    sent.add(1, 2, 0b01, True, 0)
    sent.discard(1, 2)
    assert sent.distance(1, 3, 0, True) == 2


def test_events_of_long_ago_are_nobodys_predecessors() -> None:
    sent = SentEvents()
    sent.add(1, 1, 1, True, 0)
    sent.add(2, 1, 1, True, KEPT)
    assert sent.distance(1, 2, 0, True) == 1
    sent.add(2, 2, 1, True, 2 * KEPT)
    assert sent.distance(1, 2, 0, True) == 0
    assert sent.distance(2, 3, 0, True) == 1


def test_predecessors_cross_a_link_and_only_where_there_are_any() -> None:
    forward = Forward(EventHeader(1, 9, 1, 0, civ=0b110), "t", b"x", 1, False, "c", predecessors=((1, 4), (2, 0)))
    assert read_alone(alone(forward, TrafficClass.LIVE)) == (forward, TrafficClass.LIVE)
    plain = replace(forward, predecessors=())
    assert len(alone(plain, TrafficClass.LIVE)) == len(alone(forward, TrafficClass.LIVE)) - 6


# -- gateways ---------------------------------------------------------------------------------------------------------


def test_an_event_that_went_around_a_congested_link_waits_for_the_one_in_its_queue() -> None:
    """Three sites: event 1 stands in the queue from a to b, event 2 goes around, over c."""
    made = federation("a", 3, DYNAMIC)
    for number, gateway in enumerate(("a.1", "a.2")):
        made.subscribe(gateway, number, "t/#")
    made.publish("a.0", "P", "t/x", b"0")
    made.settle()
    came(made)
    made.publish("a.0", "P", "t/x", b"1")
    queue = made.links["a.0", "a.1"]
    stuck = queue.popleft()
    made.settle()
    made.peers["a.0"].end_window({"a.1": CONGESTED})
    made.publish("a.0", "P", "t/x", b"2")
    assert not queue, "it goes around"
    made.settle()
    assert [each.forward.payload for each in made.local_deliveries if each.gateway == "a.1"] == []
    assert list(made.reorder_buffers["a.1"]), "and waits at the other site, durably"
    made.peers["a.0"].end_window({})
    made.publish("a.0", "P", "t/x", b"3")
    assert queue, "the direct way is free again"
    queue.appendleft(stuck)
    made.settle()
    assert [each.forward.payload for each in made.local_deliveries if each.gateway == "a.1"] == [b"1", b"2", b"3"]
    assert not made.reorder_buffers["a.1"]


def test_events_that_enter_a_site_elsewhere_are_put_in_order_by_the_mate_of_the_publishers_gateway() -> None:
    made = federation("a-b", 2, DYNAMIC)
    for number, gateway in enumerate(("b.0", "a.1", "b.1")):
        made.subscribe(gateway, number, "t/#")
    made.publish("a.0", "P", "t/x", b"0")
    made.settle()
    made.local_deliveries.clear()
    made.publish("a.0", "P", "t/x", b"1")
    stuck = made.links["a.0", "a.1"].popleft()
    made.settle()
    made.peers["a.0"].end_window({"a.1": CONGESTED})
    made.sent.clear()
    made.publish("a.0", "P", "t/x", b"2")
    made.settle()
    assert [(one, other) for one, other, message in made.sent if isinstance(message, Relay)] == [("b.1", "a.1")]
    made.links["a.0", "a.1"].appendleft(stuck)
    made.settle()
    for gateway in ("a.1", "b.1"):
        assert [each.forward.payload for each in made.local_deliveries if each.gateway == gateway] == [b"1", b"2"]


def test_an_event_that_left_late_because_it_waited_for_answers_is_no_predecessor_under_another_topic() -> None:
    """Otherwise event 3 would not wait for event 2, which is in the queue of the congested link."""
    made = federation("a", 3, DYNAMIC)
    for number, gateway in enumerate(("a.1", "a.2")):
        made.subscribe(gateway, number, "#")
    made.publish("a.0", "P", "t/x", b"0")
    made.settle()
    made.publish("a.0", "P", "u/x", b"1")
    assert list(made.reorder_buffers["a.0"]), "it waits until the other sites have said whether they want it"
    made.publish("a.0", "P", "t/x", b"2")
    stuck = made.links["a.0", "a.1"].pop()
    made.peers["a.0"].end_window({"a.1": CONGESTED})
    made.local_deliveries.clear()
    made.settle()
    made.publish("a.0", "P", "t/x", b"3")
    made.settle()
    assert [each.forward.payload for each in made.local_deliveries if each.gateway == "a.1"] == [b"1"]
    made.links["a.0", "a.1"].append(stuck)
    made.settle()
    assert [each.forward.payload for each in made.local_deliveries if each.gateway == "a.1"] == [b"1", b"2", b"3"]


def test_an_event_whose_predecessor_never_comes_waits_for_so_long_and_no_longer() -> None:
    made = federation("a", 2, DYNAMIC)
    made.subscribe("a.1", 1, "t/#")
    made.publish("a.0", "P", "t/x")
    made.settle()
    forward = made.local_deliveries[0].forward
    late = replace(forward, header=replace(forward.header, sequence=9), predecessors=((1, 1),))
    made.local_deliveries.clear()
    made.advance(2 * KEPT)
    made.perform("a.1", made.peers["a.1"].received("a.0", late, made.now))
    made.advance(WAIT_MAX - 1)
    assert came(made) == []
    made.advance(1)
    assert came(made) == ["a.1"]


def test_what_expires_while_it_waits_is_not_of_use_any_more() -> None:
    made = federation("a", 2, DYNAMIC)
    made.subscribe("a.1", 1, "t/#")
    made.publish("a.0", "P", "t/x")
    made.settle()
    forward = replace(made.local_deliveries[0].forward, expires_in_ms=4_000)
    late = replace(forward, header=replace(forward.header, sequence=9), predecessors=((1, 1),))
    made.perform("a.1", made.peers["a.1"].received("a.0", late, made.now))
    made.advance(WAIT_MAX)
    assert [each.forward.expires_in_ms for each in made.local_deliveries[1:]] == [0]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_lost_link_shortens_the_wait(qos: int) -> None:
    made = federation("a", 2, DYNAMIC)
    made.subscribe("a.1", 1, "t/#")
    made.publish("a.0", "P", "t/x")
    made.settle()
    forward = replace(made.local_deliveries[0].forward, qos=qos)
    late = replace(forward, header=replace(forward.header, sequence=9), predecessors=((1, 1),))
    effects = made.peers["a.1"].received("a.0", late, made.now)
    assert [type(each) for each in effects] == [HoldEvent] * qos
    made.local_deliveries.clear()
    made.perform("a.1", effects)
    made.cut("a.0", "a.1")
    made.advance(BROKEN_WAIT_MAX)
    assert came(made) == ["a.1"]


def test_what_waited_is_released_after_a_restart_in_order() -> None:
    made = federation("a", 2, DYNAMIC)
    made.subscribe("a.1", 1, "t/#")
    made.publish("a.0", "P", "t/x")
    made.settle()
    forward = made.local_deliveries[0].forward

    def at(sequence: int) -> Forward:
        return replace(forward, header=replace(forward.header, sequence=sequence), predecessors=((1, 2),))

    effects = made.peers["a.1"].resume([(at(7), ""), (at(5), "")], made.now)
    assert [each.forward.header.sequence for each in effects if isinstance(each, DeliverEvent)] == [5, 7]


def test_order_is_kept_when_a_link_inside_a_site_is_back_and_its_way_around_is_slower() -> None:
    """b.0 is behind the cut link of a.0; event 1 still travels around when event 2 takes the link again."""
    made = federation("a-b", 2)
    made.subscribe("b.0", 1, "t/#")
    made.publish("a.0", "P", "t/x", b"0")
    made.settle()
    made.cut("a.0", "b.0")
    made.advance(2 * SECOND)
    made.local_deliveries.clear()
    made.publish("a.0", "P", "t/x", b"1")
    (slow,) = [each for pair, queue in made.links.items() for each in queue if pair[0] == "a.0"]
    queue = next(queue for pair, queue in made.links.items() if pair[0] == "a.0" and slow in queue)
    queue.clear()
    made.connect("a.0", "b.0")
    made.settle()
    made.publish("a.0", "P", "t/x", b"2")
    made.settle()
    assert came(made) == []
    queue.append(slow)
    made.settle()
    made.advance(MILLISECOND)
    assert [each.forward.payload for each in made.local_deliveries if each.gateway == "b.0"] == [b"1", b"2"]


# -- what waits on a broken link --------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_on_a_link_that_broke_goes_around_it_in_its_place(qos: int, seed: int) -> None:
    simulation = Simulation(seed)
    topology = Topology.product(Scot(Factor.parse("a"), 3))
    gateways = SimulatedGateways(simulation, topology, is_stored=True)
    gateways.wait_for_links()
    publisher = Participant("publisher", gateways["a.0"], V5, True, 20, FAIR)
    reader = Participant("reader", gateways["a.1"], V5, True, 20, FAIR)
    for one in (publisher, reader):
        one.connect()
    simulation.run_until(simulation.now + SECOND)
    reader.subscribe("t", 2)
    simulation.run_until(simulation.now + 40 * SECOND)  # nobody takes it for a restart any more
    road = gateways.road("a.0", "a.1")
    for number in range(300):
        if number == 100:
            road.is_silent = True
        if number == 130:
            road.cut()
        publisher.publish("t", b"%d" % number, qos)
        simulation.run_until(simulation.now + 4 * MILLISECOND)
    simulation.run_until(simulation.now + 3 * SECOND)
    assert [int(heard.payload) for heard in reader.received] == list(range(300)), "while the link is still down"
    road.mend()
    simulation.run_until(simulation.now + 60 * SECOND)
    assert len(reader.received) == 300, "nothing comes again when it is back"


def test_what_a_gateway_passed_on_and_lost_comes_back_to_it_around_a_broken_link(seed: int) -> None:
    """Its neighbour has seen the event, so that a copy which enters the site there is a duplicate."""
    simulation = Simulation(seed)
    gateways = SimulatedGateways(simulation, Topology.product(Scot(Factor.parse("a-b"), 2)), is_stored=True)
    gateways.wait_for_links()
    publisher = Participant("publisher", gateways["a.0"], V5, True, 20, FAIR)
    away, neighbour = (Participant(f"at-{name}", gateways[name], V5, True, 20, FAIR) for name in ("a.1", "b.1"))
    for one in (publisher, away, neighbour):
        one.connect()
    simulation.run_until(simulation.now + SECOND)
    away.subscribe("t", 1)
    neighbour.subscribe("t", 1)
    simulation.run_until(simulation.now + 2 * SECOND)
    away.cut()
    store = gateways["a.1"].store
    assert store is not None
    store.disk.sync_us = (SECOND, SECOND)
    publisher.publish("t", b"1", 1)
    simulation.run_until(simulation.now + 100 * MILLISECOND)
    assert [each.payload for each in neighbour.received] == [b"1"], "over a.1"
    gateways["a.1"].power_off()
    gateways.road("a.0", "a.1").cut()
    simulation.run_until(simulation.now + 2 * SECOND)
    store.disk.sync_us = (0, 0)
    gateways["a.1"].power_on()
    simulation.run_until(simulation.now + 5 * SECOND)
    away.connect()
    simulation.run_until(simulation.now + SECOND)
    gateways.road("a.0", "a.1").mend()
    simulation.run_until(simulation.now + 60 * SECOND)
    assert [each.payload for each in away.received] == [b"1"]
    assert [each.payload for each in neighbour.received] == [b"1"]
