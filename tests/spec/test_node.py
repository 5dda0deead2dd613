"""The node without a protocol: typed events in, typed effects out, in order."""

from __future__ import annotations

from edgebroker.filters import Filter
from edgebroker.names import ClientId
from edgebroker.node.effects import Deliver, Ended, Granted, Refused
from edgebroker.node.events import ClientGone, Published, Subscribed, Unsubscribed
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

ALICE, BOB = ClientId("alice"), ClientId("bob")


def subscribed(
    client: ClientId, text: str, where: str | None = None, qos: int = 0, no_local: bool = False
) -> Subscribed:
    wanted = Filter.parse(where) if where else None
    return Subscribed(client, text, TopicFilter.parse(text), wanted, qos, no_local, receiver=f"door of {client}")


def readers(node: Node, payload: bytes, publisher: str = "carol") -> dict[str, int]:
    """Receiver -> QoS of the copies of one publication to `t/a`."""
    (effect,) = node.handle(Published(Publication(publisher, "t/a", payload, 2, False, 0)), 0)
    assert isinstance(effect, Deliver)
    return {copy.receiver: copy.qos for copy in effect.copies}


def test_a_publication_reaches_each_receiver_once_at_its_highest_qos() -> None:
    node = Node(Ledger())
    for event in (
        subscribed(ALICE, "t/#"),
        subscribed(ALICE, "t/+", "temp > 30", qos=2),
        subscribed(BOB, "t/a", qos=1),
    ):
        (effect,) = node.handle(event, 0)
        assert isinstance(effect, Granted)
        assert effect.is_new
    assert readers(node, b'{"temp":31}') == {"door of alice": 2, "door of bob": 1}
    assert readers(node, b'{"temp":29}') == {"door of alice": 0, "door of bob": 1}
    assert (node.ledger.published, node.ledger.matched, node.ledger.filtered) == (2, 4, 0)


def test_the_same_text_replaces_and_the_client_that_goes_ends_all() -> None:
    node = Node(Ledger())
    node.handle(subscribed(ALICE, "t/a"), 0)
    (again,) = node.handle(subscribed(ALICE, "t/a", qos=1), 0)
    assert isinstance(again, Granted)
    assert not again.is_new
    assert readers(node, b"1") == {"door of alice": 1}
    assert node.handle(Unsubscribed(ALICE, "t/b"), 0) == []
    node.handle(subscribed(ALICE, "t/b"), 0)
    ended = node.handle(ClientGone(ALICE), 0)
    assert [effect.subscription.text for effect in ended if isinstance(effect, Ended)] == ["t/a", "t/b"]
    assert readers(node, b"1") == {}
    assert len(node.tree) == 0
    assert node.ledger.filtered == 1


def test_no_local_keeps_a_client_from_its_own_messages_alone() -> None:
    node = Node(Ledger())
    node.handle(subscribed(ALICE, "t/a", no_local=True), 0)
    assert readers(node, b"1", publisher=ALICE) == {}
    assert readers(node, b"1", publisher=BOB) == {"door of alice": 0}


def test_one_subscription_more_than_a_client_may_have_is_refused() -> None:
    node = Node(Ledger(), subscriptions_per_client_max=1)
    node.handle(subscribed(ALICE, "t/a"), 0)
    (refused,) = node.handle(subscribed(ALICE, "t/b"), 0)
    assert isinstance(refused, Refused)
    (replaced,) = node.handle(subscribed(ALICE, "t/a"), 0)
    assert isinstance(replaced, Granted)
