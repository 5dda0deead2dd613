"""P6: caches of topics are bounded in bytes too, for a client may send topics of 64 KiB."""

from __future__ import annotations

import tracemalloc
from itertools import product

from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl, read_rule
from edgebridge.session.authorization import DECISIONS_MAX, AclRights, Rights
from edgebroker.limits import MIB, ROUTES_MAX, TOPIC_BYTES_MAX
from edgebroker.names import ClientId
from edgebroker.node.events import ClientRemoval, SubscribeRequest, UnsubscribeRequest
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Effect, Node, SubscriptionGrant, SubscriptionRefusal
from edgebroker.topics import USUAL_CHARS, TopicFilter

LONG = "x" * 60_000


def remembered(*rights: Rights) -> list[str]:
    return [topic for one in rights for topic in (*one._reads, *one._writes)]


def test_decisions_about_long_topics_do_not_fill_memory() -> None:
    rights = AclRights(Acl.parse("topic #")).rights("", "client")
    for number in range(1_000):
        assert rights.writes(f"{number}/{LONG}")
        assert rights.read(f"{number}/{LONG}").is_always
    count = len(remembered(rights))
    assert 1 <= count < 8 * MIB // len(LONG)


def test_clients_with_claims_share_one_bound() -> None:
    access = AccessPolicy()
    claims = Acl({}, (read_rule("write own/#"),))
    several = [access.rights("pump", f"client-{number}", claims) for number in range(5)]
    own = [rights for rights in several if rights is not None]
    assert len(own) == 5
    for rights in own:
        for number in range(DECISIONS_MAX // 2):
            assert rights.writes(f"own/{number}")
    count = len(remembered(*own))
    assert 1 <= count <= DECISIONS_MAX


def test_routes_of_long_topics_do_not_fill_memory() -> None:
    routes = Node(Ledger()).routes
    for number in range(1_000):
        routes.route(f"{number}/{LONG}")
    assert 1 <= len(routes) < 8 * MIB // len(LONG)
    routes.forget()
    for number in range(ROUTES_MAX):
        routes.route(f"short/{number}")
    assert len(routes) == ROUTES_MAX


def test_routes_with_many_ends_do_not_fill_memory() -> None:
    """What a topic reaches is kept for each: 8 bytes for every subscription, thrice."""
    node = Node(Ledger())
    client = ClientId("client")
    for levels in product("a+", repeat=10):
        text = "/".join((*levels, "+"))
        node.handle(SubscribeRequest(client, text, TopicFilter.parse(text), None, 0, False, None), 0)
    tracemalloc.start()
    try:
        for number in range(150):
            node.routes.route("a/" * 10 + str(number))
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(node.routes) == 150
    assert taken < 7 * MIB
    for number in range(150, 200):
        node.routes.route("a/" * 10 + str(number))
    assert len(node.routes) < 100


def test_subscriptions_of_one_client_do_not_fill_memory() -> None:
    node = Node(Ledger(), subscriptions_per_client_max=1_000)
    client = ClientId("client")

    def ask(text: str) -> Effect:
        [effect] = node.handle(SubscribeRequest(client, text, TopicFilter.parse(text), None, 0, False, None), 0)
        return effect

    most = 1_000 * USUAL_CHARS
    granted = [text for number in range(50) if isinstance(ask(text := f"{number}/{LONG}"), SubscriptionGrant)]
    assert len(granted) == most // len(f"0/{LONG}") == 4
    assert ask("5/" + LONG) == SubscriptionRefusal(
        "5/" + LONG, "all subscriptions of a client have at most 256,000 characters"
    )
    assert isinstance(ask(granted[0]), SubscriptionGrant), "the same again takes no more room"
    assert isinstance(ask("short"), SubscriptionGrant)
    node.handle(UnsubscribeRequest(client, granted[0]), 0)
    assert isinstance(ask("5/" + LONG), SubscriptionGrant)
    node.handle(ClientRemoval(client), 0)
    assert [isinstance(ask(text), SubscriptionGrant) for text in granted] == [True] * 4


def test_one_longest_subscription_is_always_allowed() -> None:
    node = Node(Ledger(), subscriptions_per_client_max=1)
    longest = "x" * TOPIC_BYTES_MAX
    [effect] = node.handle(
        SubscribeRequest(ClientId("c"), longest, TopicFilter.parse(longest), None, 0, False, None), 0
    )
    assert isinstance(effect, SubscriptionGrant)
