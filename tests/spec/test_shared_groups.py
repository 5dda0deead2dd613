"""Shared groups of subscriptions: which member is chosen, by turn and by load, without a protocol."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from edgebroker.filters import Filter
from edgebroker.names import ClientId
from edgebroker.node import shared_groups
from edgebroker.node.events import ClientRemoval, SubscribeRequest, UnsubscribeRequest
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import TIDY_AT_ONCE, Node
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter


@dataclass
class Hand:
    """A receiver that says of itself what the test wants."""

    name: str
    is_connected: bool = True
    outstanding: int = 0
    room: int = 1_000

    def has_room(self, size: int) -> bool:
        return size <= self.room

    def takes(self, publication: Publication) -> bool:
        return True


def join(node: Node, hand: Hand, where: str | None = None, qos: int = 1, group: str = "g") -> None:
    wanted = Filter.parse(where) if where else None
    topic = TopicFilter.parse("t/#")
    name = f"{group} {where}"
    node.handle(SubscribeRequest(ClientId(hand.name), name, topic, wanted, qos, False, hand, group=name), 0)


def copies(node: Node, payload: bytes = b'{"temp":31}', publisher: str = "p", topic: str = "t/1") -> tuple[Copy, ...]:
    return node.routes.route(topic).accept(Publication(publisher, topic, payload, 2, False, 0), node.ledger, 0)


def chosen(node: Node, **said: str) -> str:
    (copy,) = copies(node, **said)  # type: ignore[arg-type]
    return str(copy.receiver.name)


@pytest.fixture
def node() -> Node:
    return Node(Ledger())


@pytest.fixture
def hands(node: Node) -> list[Hand]:
    found = [Hand(name) for name in "abc"]
    for hand in found:
        join(node, hand)
    return found


def test_members_take_turns(node: Node, hands: list[Hand]) -> None:
    assert [chosen(node) for _ in range(7)] == list("abcabca")
    assert (node.ledger.published, node.ledger.matched) == (7, 7)


def test_fewest_outstanding_first_then_in_turn(node: Node, hands: list[Hand]) -> None:
    hands[0].outstanding, hands[1].outstanding, hands[2].outstanding = 2, 1, 1
    assert [chosen(node) for _ in range(4)] == list("bcbc")


def test_the_absent_get_nothing_while_somebody_is_there(node: Node, hands: list[Hand]) -> None:
    hands[0].is_connected = False
    hands[1].outstanding = 1_000
    hands[2].is_connected = False
    assert chosen(node) == "b"
    hands[1].is_connected = False
    assert chosen(node) == "c"


def test_of_the_absent_those_that_keep_messages_come_first(node: Node) -> None:
    for hand, qos in ((Hand("a", is_connected=False), 0), (Hand("b", is_connected=False, outstanding=9), 1)):
        join(node, hand, qos=qos)
    assert [chosen(node), chosen(node)] == ["b", "b"]


def test_who_has_no_room_comes_behind_all_who_have(node: Node, hands: list[Hand]) -> None:
    """Also behind who is away. If nobody has, it is as ever; and at QoS 0 nobody needs any."""
    hands[0].room = hands[1].room = 0
    assert [chosen(node), chosen(node)] == ["c", "c"]
    hands[2].is_connected = False
    assert chosen(node) == "c"
    hands[2].room = 0
    assert [chosen(node), chosen(node)] == ["a", "b"]
    hands[2].is_connected = True
    group = node.groups.find("g None")
    assert group is not None
    assert not group.has_room(Publication("p", "t/1", b"x", 1, False, 0))
    assert group.has_room(Publication("p", "t/1", b"x", 0, False, 0))


def test_turns_go_on_when_members_come_and_go(node: Node, hands: list[Hand]) -> None:
    assert chosen(node) == "a"
    node.handle(UnsubscribeRequest(ClientId("a"), "g None"), 0)
    assert chosen(node) == "b"
    join(node, Hand("d"))
    assert [chosen(node) for _ in range(4)] == list("cdbc")


def test_who_is_gone_is_passed_over_while_its_subscriptions_are_taken_out(node: Node, hands: list[Hand]) -> None:
    leaver = ClientId("a")
    for number in range(2 * TIDY_AT_ONCE):
        topic = TopicFilter.parse(f"other/{number}")
        node.handle(SubscribeRequest(leaver, f"other {number}", topic, None, 0, False, hands[0]), 0)
    node.handle(ClientRemoval(leaver), 0)
    assert [chosen(node) for _ in range(4)] == list("bcbc")
    assert node.groups.of(leaver) == []
    for now in range(1, 10):
        if node.timers.take_next(now):
            node.tidy(now)
    group = node.groups.find("g None")
    assert group is not None
    assert [member.client for member in group.members] == ["b", "c"]


def test_the_last_member_takes_the_group_with_it(node: Node) -> None:
    join(node, Hand("a"))
    node.handle(ClientRemoval(ClientId("a")), 0)
    assert copies(node) == ()
    assert len(node.groups) == 0
    assert node.ledger.filtered == 1


def test_a_filter_decides_for_the_whole_group(node: Node) -> None:
    for name in "ab":
        join(node, Hand(name), "temp > 30")
    join(node, Hand("c"), "temp > 50")
    assert [chosen(node) for _ in range(3)] == list("aba")
    assert copies(node, b'{"temp":29}') == ()
    both = copies(node, b'{"temp":51}')
    assert [copy.receiver.name for copy in both] == ["b", "c"]
    assert (node.ledger.published, node.ledger.matched, node.ledger.filtered) == (5, 5, 1)


def test_a_group_and_a_plain_subscription_of_one_client_are_two_copies(node: Node, hands: list[Hand]) -> None:
    node.handle(SubscribeRequest(ClientId("a"), "t/#", TopicFilter.parse("t/#"), None, 0, True, hands[0]), 0)
    assert [(copy.receiver.name, copy.label) for copy in copies(node)] == [("a", "t/#"), ("a", "g None")]
    own = copies(node, publisher="a")  # "no local" is not for groups
    assert [(copy.receiver.name, copy.label) for copy in own] == [("b", "g None")]


def test_a_subscription_that_replaces_another_stays_one_member(node: Node, hands: list[Hand]) -> None:
    join(node, hands[0], qos=2)
    group = node.groups.find("g None")
    assert group is not None
    assert [member.client for member in group.members] == ["b", "c", "a"]
    assert [(member.client, member.qos) for member in node.groups.of(ClientId("a"))] == [("a", 2)]


def test_sticky_keeps_publisher_and_topic_with_one_member(node: Node, hands: list[Hand]) -> None:
    node.groups.is_sticky = True
    assert [chosen(node, publisher=who) for who in "pqrs"] == list("abca")
    assert [chosen(node, publisher=who) for who in "srqp"] == list("acba")
    assert chosen(node, publisher="p", topic="t/2") == "b"
    hands[0].is_connected = False
    assert chosen(node, publisher="p") == "c"
    hands[0].is_connected = True
    assert chosen(node, publisher="p") == "c"
    node.handle(UnsubscribeRequest(ClientId("c"), "g None"), 0)
    assert chosen(node, publisher="p") == "a"


def test_sticky_remembers_so_many_flows_only(node: Node, hands: list[Hand], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_groups, "STICKY_FLOWS_MAX", 2)
    node.groups.is_sticky = True
    assert [chosen(node, publisher=who) for who in "pqr"] == list("abc")
    assert len(node.groups.flows) == 2
    assert [chosen(node, publisher=who) for who in "qr"] == list("bc"), "the latest two"
    assert chosen(node, publisher="p") == "a"
    assert len(node.groups.flows) == 2


def test_fair_is_fair_whatever_is_acknowledged_when(node: Node, hands: list[Hand], chance: random.Random) -> None:
    """Nobody has more than one copy more outstanding than another that could have had it."""
    got: Counter[str] = Counter()
    for _ in range(3_000):
        least = min(hand.outstanding for hand in hands)
        name = chosen(node)
        hand = hands["abc".index(name)]
        assert hand.outstanding == least
        hand.outstanding += 1
        got[name] += 1
        for other in hands:
            if other.outstanding and chance.random() < 0.3:
                other.outstanding -= 1
    assert max(got.values()) - min(got.values()) < 3_000 * 0.05
