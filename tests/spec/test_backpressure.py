"""Statements of gateways about nearly full outboxes: who accepts, acts on and forwards them."""

from __future__ import annotations

from collections.abc import Mapping

from edgebroker.federation.backpressure import ANYTHING, BackpressureTable
from edgebroker.filters.filter import Filter
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.frames import FrameReader, Item, NumberedMessage
from edgebroker.overlay.link.outbox import BOUNDS, LinkOutbox
from edgebroker.overlay.link.sender import LinkSender
from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import Backpressure, LinkStateUpdate, Unadvertise
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import Attributes, Value
from edgebroker.topics import TopicFilter

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b-c"), 2))
NUMBERS = {one.name: one.number for one in TOPOLOGY.gateways}
WARM = Interest(TopicFilter.parse("t/+"), Filter.parse("v > 5").predicates[0])
ALL = Interest(TopicFilter.parse("u/#"), ())


def table_of(name: str, boot: int = 1) -> tuple[BackpressureTable, LinkStateTable]:
    gateway = TOPOLOGY.gateway(name)
    reach = LinkStateTable(TOPOLOGY, name, boot)
    for peer in gateway.peers():
        reach.peer_up(peer)
    return BackpressureTable(TOPOLOGY, gateway, reach, boot), reach


def statement(gateway: str, number: int, neighbour: str, *interests: Interest) -> Backpressure:
    return Backpressure(NUMBERS[gateway], number, NUMBERS[neighbour], interests)


def refusing(table: BackpressureTable, topic: str, values: Mapping[str, Value] = {}) -> str:
    def attributes(names: frozenset[str]) -> Attributes:
        return {name: value for name, value in values.items() if name in names}

    return table.blocking_gateway(topic, attributes)


def test_what_the_neighbour_wants_is_refused_until_there_is_room_again() -> None:
    table, _ = table_of("a.0")
    assert not table.is_active
    said = statement("b.0", 7, "c.0", WARM, ALL)
    assert table.receive(said) == [said]
    assert table.receive(said) == [], "known: it is not passed on again"
    assert table.is_active
    assert table.statements() == (said,)
    assert (table.take_changes(), table.active()) == ({("b.0", "c.0"): True}, [("b.0", "c.0")])
    assert refusing(table, "t/x", {"v": 6}) == refusing(table, "u") == "c.0"
    assert refusing(table, "t/x", {"v": 5}) == refusing(table, "t/x") == refusing(table, "w") == ""
    assert table.receive(statement("b.0", 8, "c.0", ALL))
    assert refusing(table, "t/x", {"v": 6}) == ""
    assert table.receive(statement("b.0", 6, "c.0", WARM)) == []
    assert table.take_changes() == {}, "it wants something else"
    assert table.receive(statement("b.0", 9, "c.0"))
    assert (table.take_changes(), table.active()) == ({("b.0", "c.0"): False}, [])
    assert not table.is_active
    assert refusing(table, "u") == ""


def test_only_those_refuse_whose_events_come_past_the_gateway() -> None:
    said = statement("a.0", 1, "b.0", ALL)
    found = {}
    for name in NUMBERS.keys() - {"a.0"}:
        table, _ = table_of(name)
        assert table.receive(said) == [said], "everybody passes it on"
        found[name] = refusing(table, "u/x")
    assert found == {"b.0": "", "c.0": "", "a.1": "b.0", "b.1": "", "c.1": ""}
    table, reach = table_of("b.1")  # its mate is dead, so its events enter that cluster at the nearest other gateway
    table.receive(said)
    reach.peer_down("b.0")
    reach.declare_lost("b.0")
    assert (reach.nearest(0), refusing(table, "u/x")) == ("a.0", "b.0")
    reach.receive(LinkStateUpdate(NUMBERS["a.1"], 1, (NUMBERS["a.0"],)))
    assert (reach.nearest(0), refusing(table, "u/x")) == ("c.0", "")


def test_a_gateway_that_is_not_reached_is_not_waited_for() -> None:
    table, reach = table_of("a.1")
    table.receive(statement("a.0", 1, "b.0", ALL))
    assert refusing(table, "u/x") == "b.0"
    reach.peer_down("a.0")
    reach.declare_lost("a.0")
    assert refusing(table, "u/x") == ""


def test_a_run_takes_back_what_an_earlier_one_said() -> None:
    table, _ = table_of("b.0", boot=2)
    taken_back = Backpressure(NUMBERS["b.0"], (5 << 32) + 2, NUMBERS["c.0"], ())
    assert table.receive(statement("b.0", (5 << 32) + 1, "c.0", ALL)) == [taken_back], "a clock went back"
    assert table.receive(statement("b.0", (5 << 32) + 1, "c.0", ALL)) == [], "the others have the newer one"
    assert table.announce("c.0", [WARM]).number == (5 << 32) + 3


def test_an_uplink_is_full_for_those_who_would_take_it_for_a_detour() -> None:
    table, reach = table_of("a.0")
    said = statement("b.0", 1, "b.1", *ANYTHING)
    assert table.receive(said) == [said]
    assert table.is_active
    assert (table.full_uplink(0b10), table.full_uplink(0b01)) == ("b.1", "")
    assert refusing(table, "t/x") == "", "events for that cluster have a way of their own"
    reach.peer_down("b.0")
    reach.declare_lost("b.0")
    assert table.full_uplink(0b10) == ""
    assert table.receive(statement("b.0", 2, "b.1"))
    assert not table.is_active


def test_too_many_interests_are_told_as_fewer_that_cover_them() -> None:
    table, _ = table_of("b.0")
    same = [Interest(TopicFilter.parse("t"), Filter.parse(f"v > {number}").predicates[0]) for number in range(300)]
    assert table.announce("c.0", same).interests == (Interest(TopicFilter.parse("t"), ()),)
    others = [Interest(TopicFilter.parse(f"t/{number}"), ()) for number in range(300)]
    assert table.announce("c.0", others).interests == ANYTHING
    assert table.announce("c.0", same[:256]).interests == tuple(same[:256])


def test_nonsense_is_not_believed() -> None:
    table, _ = table_of("a.0")
    assert table.receive(Backpressure(1_000, 1, 0, (ALL,))) == []
    assert table.receive(statement("b.0", 1, "c.1", ALL)) == [], "they are no peers"
    assert not table.is_active
    assert table.receive(statement("b.0", 1, "c.0", ALL, ALL)), "one of them is enough"
    assert table.receive(statement("b.0", 2, "c.0"))
    assert refusing(table, "u/x") == ""


def test_who_does_not_know_the_word_is_not_told() -> None:
    for knows in (False, True):
        outbox, outflow = LinkOutbox("peer", BOUNDS, None), LinkSender(False, {"crowded"} if knows else set())
        outbox.opened({}, False)
        said = [Unadvertise((1,)), Backpressure(1, 2, 3, ()), Unadvertise((2,))]
        for message in said:
            outbox.enqueue(message, TrafficClass.CONTROL, 0)
        items: list[Item] = []
        FrameReader(False).feed(outflow.pull(outbox, (), 1_000, 0), items)
        come = [item.message for item in items if isinstance(item, NumberedMessage)]
        assert come == (said if knows else [said[0], said[2]])
