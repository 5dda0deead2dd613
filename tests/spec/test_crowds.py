"""What gateways say of outboxes that are nearly full: who believes it, who refuses because of it, who passes it on."""

from __future__ import annotations

from collections.abc import Mapping

from edgebroker.federation.backpressure import BackpressureTable
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


def crowds_of(name: str, boot: int = 1) -> tuple[BackpressureTable, LinkStateTable]:
    gateway = TOPOLOGY.gateway(name)
    reach = LinkStateTable(TOPOLOGY, name, boot)
    for peer in gateway.peers():
        reach.peer_up(peer)
    return BackpressureTable(TOPOLOGY, gateway, reach, boot), reach


def crowded(gateway: str, number: int, neighbour: str, *interests: Interest) -> Backpressure:
    return Backpressure(NUMBERS[gateway], number, NUMBERS[neighbour], interests)


def refusing(crowds: BackpressureTable, topic: str, values: Mapping[str, Value] = {}) -> str:
    def attributes(names: frozenset[str]) -> Attributes:
        return {name: value for name, value in values.items() if name in names}

    return crowds.blocking_gateway(topic, attributes)


def test_what_the_neighbour_wants_is_refused_until_there_is_room_again() -> None:
    crowds, _ = crowds_of("a.0")
    assert not crowds.is_active
    said = crowded("b.0", 7, "c.0", WARM, ALL)
    assert crowds.receive(said) == [said]
    assert crowds.receive(said) == [], "known: it is not passed on again"
    assert crowds.is_active
    assert crowds.statements() == (said,)
    assert (crowds.take_changes(), crowds.active()) == ({("b.0", "c.0"): True}, [("b.0", "c.0")])
    assert refusing(crowds, "t/x", {"v": 6}) == refusing(crowds, "u") == "c.0"
    assert refusing(crowds, "t/x", {"v": 5}) == refusing(crowds, "t/x") == refusing(crowds, "w") == ""
    assert crowds.receive(crowded("b.0", 8, "c.0", ALL))
    assert refusing(crowds, "t/x", {"v": 6}) == ""
    assert crowds.receive(crowded("b.0", 6, "c.0", WARM)) == []
    assert crowds.take_changes() == {}, "it wants something else"
    assert crowds.receive(crowded("b.0", 9, "c.0"))
    assert (crowds.take_changes(), crowds.active()) == ({("b.0", "c.0"): False}, [])
    assert not crowds.is_active
    assert refusing(crowds, "u") == ""


def test_only_those_refuse_whose_events_come_past_the_gateway() -> None:
    said = crowded("a.0", 1, "b.0", ALL)
    found = {}
    for name in NUMBERS.keys() - {"a.0"}:
        crowds, _ = crowds_of(name)
        assert crowds.receive(said) == [said], "everybody passes it on"
        found[name] = refusing(crowds, "u/x")
    assert found == {"b.0": "", "c.0": "", "a.1": "b.0", "b.1": "", "c.1": ""}
    crowds, reach = crowds_of("b.1")  # its mate is dead, so its events enter that cluster at the nearest other gateway
    crowds.receive(said)
    reach.peer_down("b.0")
    reach.declare_lost("b.0")
    assert (reach.nearest(0), refusing(crowds, "u/x")) == ("a.0", "b.0")
    reach.receive(LinkStateUpdate(NUMBERS["a.1"], 1, (NUMBERS["a.0"],)))
    assert (reach.nearest(0), refusing(crowds, "u/x")) == ("c.0", "")


def test_a_gateway_that_is_not_reached_is_not_waited_for() -> None:
    crowds, reach = crowds_of("a.1")
    crowds.receive(crowded("a.0", 1, "b.0", ALL))
    assert refusing(crowds, "u/x") == "b.0"
    reach.peer_down("a.0")
    reach.declare_lost("a.0")
    assert refusing(crowds, "u/x") == ""


def test_a_run_takes_back_what_an_earlier_one_said() -> None:
    crowds, _ = crowds_of("b.0", boot=2)
    taken_back = Backpressure(NUMBERS["b.0"], (5 << 32) + 2, NUMBERS["c.0"], ())
    assert crowds.receive(crowded("b.0", (5 << 32) + 1, "c.0", ALL)) == [taken_back], "a clock went back"
    assert crowds.receive(crowded("b.0", (5 << 32) + 1, "c.0", ALL)) == [], "the others have the newer one"
    assert crowds.announce("c.0", [WARM]).number == (5 << 32) + 3


def test_nonsense_is_not_believed() -> None:
    crowds, _ = crowds_of("a.0")
    assert crowds.receive(Backpressure(1_000, 1, 0, (ALL,))) == []
    assert crowds.receive(crowded("b.0", 1, "b.1", ALL)) == [], "they are no neighbours"
    assert not crowds.is_active
    assert crowds.receive(crowded("b.0", 1, "c.0", ALL, ALL)), "one of them is enough"
    assert crowds.receive(crowded("b.0", 2, "c.0"))
    assert refusing(crowds, "u/x") == ""


def test_who_does_not_know_the_word_is_not_told() -> None:
    for knows in (False, True):
        outbox, outflow = LinkOutbox("peer", BOUNDS, None), LinkSender(False, has_backpressure=knows)
        outbox.opened({}, False)
        said = [Unadvertise((1,)), Backpressure(1, 2, 3, ()), Unadvertise((2,))]
        for message in said:
            outbox.enqueue(message, TrafficClass.CONTROL, 0)
        items: list[Item] = []
        FrameReader(False).feed(outflow.pull(outbox, (), 1_000, 0), items)
        come = [item.message for item in items if isinstance(item, NumberedMessage)]
        assert come == (said if knows else [said[0], said[2]])
