"""What gateways say of outboxes that are nearly full: who believes it, who refuses because of it, who passes it on."""

from __future__ import annotations

from collections.abc import Mapping

from edgebroker.event import Attributes, Value
from edgebroker.filters.filter import Filter
from edgebroker.interest import Interest
from edgebroker.node.crowds import Crowds
from edgebroker.overlay.classes import Service
from edgebroker.overlay.factor import Factor
from edgebroker.overlay.link.frames import FrameReader, Item, Numbered
from edgebroker.overlay.link.outbox import BOUNDS, Outbox
from edgebroker.overlay.link.outflow import Outflow
from edgebroker.overlay.messages import Crowded, Unadvertise, Unreached
from edgebroker.overlay.reach import Reach
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology import Topology
from edgebroker.topics import TopicFilter

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b-c"), 2))
NUMBERS = {one.name: one.number for one in TOPOLOGY.gateways}
WARM = Interest(TopicFilter.parse("t/+"), Filter.parse("v > 5").predicates[0])
ALL = Interest(TopicFilter.parse("u/#"), ())


def crowds_of(name: str, boot: int = 1) -> tuple[Crowds, Reach]:
    gateway = TOPOLOGY.gateway(name)
    reach = Reach(TOPOLOGY, name, boot)
    for peer in gateway.peers():
        reach.met(peer)
    return Crowds(TOPOLOGY, gateway, reach, boot), reach


def crowded(gateway: str, number: int, neighbour: str, *interests: Interest) -> Crowded:
    return Crowded(NUMBERS[gateway], number, NUMBERS[neighbour], interests)


def refusing(crowds: Crowds, topic: str, values: Mapping[str, Value] = {}) -> str:
    def attributes(names: frozenset[str]) -> Attributes:
        return {name: value for name, value in values.items() if name in names}

    return crowds.refusing(topic, attributes)


def test_what_the_neighbour_wants_is_refused_until_there_is_room_again() -> None:
    crowds, _ = crowds_of("a.0")
    assert not crowds.is_any
    said = crowded("b.0", 7, "c.0", WARM, ALL)
    assert crowds.learn(said) == [said]
    assert crowds.learn(said) == [], "known: it is not passed on again"
    assert crowds.is_any
    assert crowds.statements() == (said,)
    assert (crowds.take_news(), crowds.standing()) == ({("b.0", "c.0"): True}, [("b.0", "c.0")])
    assert refusing(crowds, "t/x", {"v": 6}) == refusing(crowds, "u") == "c.0"
    assert refusing(crowds, "t/x", {"v": 5}) == refusing(crowds, "t/x") == refusing(crowds, "w") == ""
    assert crowds.learn(crowded("b.0", 8, "c.0", ALL))
    assert refusing(crowds, "t/x", {"v": 6}) == ""
    assert crowds.learn(crowded("b.0", 6, "c.0", WARM)) == []
    assert crowds.take_news() == {}, "it wants something else"
    assert crowds.learn(crowded("b.0", 9, "c.0"))
    assert (crowds.take_news(), crowds.standing()) == ({("b.0", "c.0"): False}, [])
    assert not crowds.is_any
    assert refusing(crowds, "u") == ""


def test_only_those_refuse_whose_events_come_past_the_gateway() -> None:
    said = crowded("a.0", 1, "b.0", ALL)
    found = {}
    for name in NUMBERS.keys() - {"a.0"}:
        crowds, _ = crowds_of(name)
        assert crowds.learn(said) == [said], "everybody passes it on"
        found[name] = refusing(crowds, "u/x")
    assert found == {"b.0": "", "c.0": "", "a.1": "b.0", "b.1": "", "c.1": ""}
    crowds, reach = crowds_of("b.1")  # its mate is dead, so its events enter that cluster at the nearest other gateway
    crowds.learn(said)
    reach.parted("b.0")
    reach.lost("b.0")
    assert (reach.nearest(0), refusing(crowds, "u/x")) == ("a.0", "b.0")
    reach.learn(Unreached(NUMBERS["a.1"], 1, (NUMBERS["a.0"],)))
    assert (reach.nearest(0), refusing(crowds, "u/x")) == ("c.0", "")


def test_a_gateway_that_is_not_reached_is_not_waited_for() -> None:
    crowds, reach = crowds_of("a.1")
    crowds.learn(crowded("a.0", 1, "b.0", ALL))
    assert refusing(crowds, "u/x") == "b.0"
    reach.parted("a.0")
    reach.lost("a.0")
    assert refusing(crowds, "u/x") == ""


def test_a_run_takes_back_what_an_earlier_one_said() -> None:
    crowds, _ = crowds_of("b.0", boot=2)
    taken_back = Crowded(NUMBERS["b.0"], (5 << 32) + 2, NUMBERS["c.0"], ())
    assert crowds.learn(crowded("b.0", (5 << 32) + 1, "c.0", ALL)) == [taken_back], "a clock went back"
    assert crowds.learn(crowded("b.0", (5 << 32) + 1, "c.0", ALL)) == [], "the others have the newer one"
    assert crowds.tell("c.0", [WARM]).number == (5 << 32) + 3


def test_nonsense_is_not_believed() -> None:
    crowds, _ = crowds_of("a.0")
    assert crowds.learn(Crowded(1_000, 1, 0, (ALL,))) == []
    assert crowds.learn(crowded("b.0", 1, "b.1", ALL)) == [], "they are no neighbours"
    assert not crowds.is_any
    assert crowds.learn(crowded("b.0", 1, "c.0", ALL, ALL)), "one of them is enough"
    assert crowds.learn(crowded("b.0", 2, "c.0"))
    assert refusing(crowds, "u/x") == ""


def test_who_does_not_know_the_word_is_not_told() -> None:
    for knows in (False, True):
        outbox, outflow = Outbox("peer", BOUNDS, None), Outflow(False, has_crowded=knows)
        outbox.opened({}, False)
        said = [Unadvertise((1,)), Crowded(1, 2, 3, ()), Unadvertise((2,))]
        for message in said:
            outbox.take(message, Service.CONTROL, 0)
        items: list[Item] = []
        FrameReader(False).feed(outflow.pull(outbox, (), 1_000, 0), items)
        come = [item.message for item in items if isinstance(item, Numbered)]
        assert come == (said if knows else [said[0], said[2]])
