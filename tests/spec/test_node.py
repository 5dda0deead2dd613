"""The node without a protocol: typed events in, typed effects out, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.filters import Filter
from edgebroker.instants import MINUTE
from edgebroker.names import ClientId
from edgebroker.node import routes
from edgebroker.node.events import ClientRemoval, PublishRequest, SubscribeRequest, UnsubscribeRequest
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import (
    COUNTS_AT_ONCE,
    TIDY_AT_ONCE,
    ClientDeparture,
    Deliver,
    Node,
    SubscriptionEnd,
    SubscriptionGrant,
    SubscriptionRefusal,
)
from edgebroker.node.timers import TIDY
from edgebroker.publication import Publication
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.topics import TopicFilter

ALICE, BOB = ClientId("alice"), ClientId("bob")


def subscribed(
    client: ClientId, text: str, where: str | None = None, qos: int = 0, no_local: bool = False
) -> SubscribeRequest:
    wanted = Filter.parse(where) if where else None
    return SubscribeRequest(client, text, TopicFilter.parse(text), wanted, qos, no_local, receiver=f"door of {client}")


def readers(node: Node, payload: bytes, publisher: str = "carol") -> dict[str, int]:
    """Receiver -> QoS of the copies of one publication to `t/a`."""
    (effect,) = node.handle(PublishRequest(Publication(publisher, "t/a", payload, 2, False, 0)), 0)
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
        assert isinstance(effect, SubscriptionGrant)
        assert effect.is_new
    assert readers(node, b'{"temp":31}') == {"door of alice": 2, "door of bob": 1}
    assert readers(node, b'{"temp":29}') == {"door of alice": 0, "door of bob": 1}
    assert (node.ledger.published, node.ledger.matched, node.ledger.filtered) == (2, 4, 0)


def test_the_same_text_replaces_and_the_client_that_goes_ends_all() -> None:
    node = Node(Ledger())
    node.handle(subscribed(ALICE, "t/a"), 0)
    (again,) = node.handle(subscribed(ALICE, "t/a", qos=1), 0)
    assert isinstance(again, SubscriptionGrant)
    assert not again.is_new
    assert readers(node, b"1") == {"door of alice": 1}
    assert node.handle(UnsubscribeRequest(ALICE, "t/b"), 0) == []
    node.handle(subscribed(ALICE, "t/b"), 0)
    (ended,) = node.handle(UnsubscribeRequest(ALICE, "t/b"), 0)
    assert isinstance(ended, SubscriptionEnd)
    assert ended.subscription.text == "t/b"
    node.handle(subscribed(ALICE, "t/b"), 0)
    assert node.handle(ClientRemoval(ALICE), 0) == [ClientDeparture(ALICE, 2)]
    assert node.handle(ClientRemoval(ALICE), 0) == []
    assert readers(node, b"1") == {}
    assert len(node.tree) == 0
    assert node.ledger.filtered == 1


def test_no_local_keeps_a_client_from_its_own_messages_alone() -> None:
    node = Node(Ledger())
    node.handle(subscribed(ALICE, "t/a", no_local=True), 0)
    assert readers(node, b"1", publisher=ALICE) == {}
    assert readers(node, b"1", publisher=BOB) == {"door of alice": 0}


def left_behind(node: Node, client: ClientId, count: int) -> list[SubscribeRequest]:
    """Let *client* ask for `t/#` so often, half of the times with a content filter, and go."""
    asked = [replace(subscribed(client, "t/#", "temp > 30" if n % 2 else None), text=f"t/# {n}") for n in range(count)]
    for one in asked:
        node.handle(one, 0)
    assert node.handle(ClientRemoval(client), 0) == [ClientDeparture(client, count)]
    return asked


def tidy(node: Node, now: int) -> None:
    """Let the timer ring once, as a world does."""
    assert node.timers.take_next(now) == TIDY
    node.tidy(now)


def test_who_left_many_subscriptions_hears_no_more_while_they_are_taken_out() -> None:
    node = Node(Ledger())
    node.handle(subscribed(BOB, "t/a", "temp > 30"), 0)
    left_behind(node, ALICE, 3 * TIDY_AT_ONCE)
    assert len(node.tree) == 1 + 2 * TIDY_AT_ONCE
    assert node.timers.next_due() == 1
    assert readers(node, b'{"temp":31}') == {"door of bob": 0}
    tidy(node, 1)
    assert len(node.tree) == 1 + TIDY_AT_ONCE
    assert readers(node, b'{"temp":31}') == {"door of bob": 0}
    tidy(node, 2)
    assert len(node.tree) == 1
    assert node.timers.next_due() is None


def test_who_comes_back_meanwhile_finds_what_it_asks_for_anew_and_nothing_else() -> None:
    node = Node(Ledger())
    asked = left_behind(node, ALICE, 3 * TIDY_AT_ONCE)
    assert node.subscriptions.of(ALICE) == {}
    (granted,) = node.handle(asked[1], 1)  # the one at the end of the queue has a content filter
    assert isinstance(granted, SubscriptionGrant)
    assert granted.is_new
    assert readers(node, b'{"temp":29}') == {}
    assert readers(node, b'{"temp":31}') == {"door of alice": 0}
    while (due := node.timers.next_due()) is not None:
        tidy(node, due)
    assert (len(node.tree), list(node.subscriptions.of(ALICE))) == (1, [asked[1].text])
    assert readers(node, b'{"temp":31}') == {"door of alice": 0}


def test_clients_that_go_and_come_leave_no_pile_behind() -> None:
    """A hostile one could otherwise fill the memory faster than the timer empties it."""
    node = Node(Ledger())
    for _ in range(10):
        left_behind(node, ALICE, 4 * TIDY_AT_ONCE)
        left_behind(node, BOB, 4 * TIDY_AT_ONCE)
        assert len(node.subscriptions) <= 8 * TIDY_AT_ONCE


def test_routes_last_as_long_as_nothing_changes_them() -> None:
    """Plain readers do; a content filter over what others filter by does not."""
    node = Node(Ledger())
    node.handle(subscribed(ALICE, "t/a", "temp > 30"), 0)
    route = node.routes.route("t/a")
    node.handle(subscribed(BOB, "t/a", "temp > 40"), 0)
    assert node.routes.route("t/a") is route
    assert readers(node, b'{"temp":41}') == {"door of alice": 0, "door of bob": 0}
    node.handle(UnsubscribeRequest(BOB, "t/a"), 0)
    assert node.routes.route("t/a") is route
    assert readers(node, b'{"temp":41}') == {"door of alice": 0}
    for change in (
        subscribed(BOB, "t/a", "humidity > 40"),
        subscribed(BOB, "t/a"),
        subscribed(BOB, "t/+", "temp > 40"),
        ClientRemoval(BOB),
    ):
        route = node.routes.route("t/a")
        node.handle(change, 0)
        assert node.routes.route("t/a") is not route


def test_the_memory_of_many_forgotten_routes_is_given_back_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "RELEASED_AT_ONCE", 10)
    node = Node(Ledger())
    for number in range(25):
        node.routes.route(f"t/{number}")
    node.handle(subscribed(ALICE, "t/#"), 0)
    assert len(node.routes) == 0
    assert node.routes.route("t/0").copies
    for due in (0, 1, 2):
        assert node.timers.next_due() == due
        tidy(node, due)
    assert node.timers.next_due() is None


def test_a_topic_seen_for_the_last_time_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes that are forgotten, or are too many to be gathered at once, have told their counts."""
    monkeypatch.setattr(routes, "UNGATHERED_MAX", 3)
    node = Node(Ledger())
    (granted,) = node.handle(subscribed(ALICE, "t/+", "temp > 30"), 0)
    assert isinstance(granted, SubscriptionGrant)
    for topic in "abcdefgh":
        node.handle(PublishRequest(Publication(BOB, f"t/{topic}", b'{"temp":31}', 0, False, 0)), 0)
    node.handle(UnsubscribeRequest(ALICE, "t/+"), 0)
    assert granted.subscription.take_counts() == (0, 0), "they were taken when it ended"
    (granted,) = node.handle(subscribed(ALICE, "t/+", "temp > 30"), 0)
    assert isinstance(granted, SubscriptionGrant)
    for topic in "abcdefgh":
        node.handle(PublishRequest(Publication(BOB, f"t/{topic}", b'{"temp":31}', 0, False, 0)), 0)
    node.routes.forget()
    node.handle(PublishRequest(Publication(BOB, "t/z", b'{"temp":30}', 0, False, 0)), 0)
    node.routes.gather()
    assert granted.subscription.take_counts() == (9, 8)


def test_one_subscription_more_than_a_client_may_have_is_refused() -> None:
    node = Node(Ledger(), subscriptions_per_client_max=1)
    node.handle(subscribed(ALICE, "t/a"), 0)
    (refused,) = node.handle(subscribed(ALICE, "t/b"), 0)
    assert isinstance(refused, SubscriptionRefusal)
    (replaced,) = node.handle(subscribed(ALICE, "t/a"), 0)
    assert isinstance(replaced, SubscriptionGrant)


def counting(subscriptions: int) -> tuple[Node, DeliveryLog]:
    """A node with a delivery log and so many subscriptions of Alice, to each of which one publication came."""
    log = DeliveryLog("n", "b")
    node = Node(Ledger(log))
    for number in range(subscriptions):
        asked = subscribed(ALICE, "t/#", "temp > 30")
        node.handle(replace(asked, text=f"t/# {number}", label=str(number)), 0)
    readers(node, b'{"temp":31}')
    return node, log


def told(log: DeliveryLog, now: int) -> list[tuple[int, int, int, int]]:
    """What the whole log says of selectivity: (minute, number in the label, evaluated, matched), sorted."""
    segment = read_segment(log.header(0, 0) + b"".join(log.take(now, closing=True)), growing=True)
    assert not segment.damage
    table = segment.tables["filter"]
    rows = zip(*(table[name] for name in ("minute", "filter", "evaluated", "matched")), strict=True)
    return sorted((minute, int(label), evaluated, matched) for minute, label, evaluated, matched in rows)


def publish(node: Node, payload: bytes, now: int) -> None:
    node.handle(PublishRequest(Publication("carol", "t/a", payload, 2, False, now)), now)


def test_the_counts_of_a_minute_are_written_by_and_by() -> None:
    node, log = counting(2 * COUNTS_AT_ONCE + 1)
    assert node.timers.next_due() is None
    node.close_minute(MINUTE)
    for turn in (1, 2, 3):
        publish(node, b'{"temp":29}', MINUTE + turn)  # what comes meanwhile belongs to the next minute
        assert node.timers.next_due() == MINUTE + turn
        tidy(node, MINUTE + turn)
    assert node.timers.next_due() is None
    node.close_books(2 * MINUTE)
    everybody = range(2 * COUNTS_AT_ONCE + 1)
    assert told(log, 2 * MINUTE) == [
        *((1, number, 1, 1) for number in everybody),
        *((2, number, 3, 0) for number in everybody),
    ]


def test_who_leaves_while_a_minute_is_written_is_in_the_books() -> None:
    node, log = counting(2 * COUNTS_AT_ONCE)
    node.close_minute(MINUTE)
    tidy(node, MINUTE + 1)
    publish(node, b'{"temp":31}', MINUTE + 2)
    node.handle(UnsubscribeRequest(ALICE, "t/# 0"), MINUTE + 2)  # it was written
    node.handle(UnsubscribeRequest(ALICE, f"t/# {2 * COUNTS_AT_ONCE - 1}"), MINUTE + 2)  # it was not
    node.handle(ClientRemoval(ALICE), MINUTE + 2)
    node.close_books(MINUTE + 3)
    assert told(log, MINUTE + 3) == [(1, number, 2, 2) for number in range(2 * COUNTS_AT_ONCE)]


def test_a_broker_that_stops_while_a_minute_is_written_has_whole_books() -> None:
    node, log = counting(2 * COUNTS_AT_ONCE)
    node.close_minute(MINUTE)
    tidy(node, MINUTE + 1)
    publish(node, b'{"temp":29}', 2 * MINUTE - 1)
    node.close_books(2 * MINUTE)
    everybody = range(2 * COUNTS_AT_ONCE)
    assert told(log, 2 * MINUTE) == [
        *((1, number, 1, 1) for number in everybody),
        *((2, number, 1, 0) for number in everybody),
    ]


def test_a_minute_that_was_too_short_is_written_before_the_next() -> None:
    node, log = counting(2 * COUNTS_AT_ONCE)
    node.close_minute(MINUTE)
    publish(node, b'{"temp":31}', 2 * MINUTE)  # it opens the next minute in the log
    node.close_minute(2 * MINUTE)
    while (due := node.timers.next_due()) is not None:
        tidy(node, due)
    everybody = range(2 * COUNTS_AT_ONCE)
    assert told(log, 2 * MINUTE) == [
        *((1, number, 1, 1) for number in everybody),
        *((2, number, 1, 1) for number in everybody),
    ]


def test_subscriptions_to_which_nothing_came_are_passed_over() -> None:
    node, log = counting(3)
    node.handle(replace(subscribed(BOB, "u"), label="99"), 0)
    node.close_books(0)
    node.close_books(MINUTE)
    assert told(log, MINUTE) == [(0, number, 1, 1) for number in range(3)]


def test_without_a_log_no_minute_is_written() -> None:
    node = Node(Ledger())
    node.handle(subscribed(ALICE, "t/#"), 0)
    publish(node, b"1", 0)
    node.close_minute(MINUTE)
    assert node.timers.next_due() is None
