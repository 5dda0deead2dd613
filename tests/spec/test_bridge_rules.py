"""Rules of bridges: how they are written, what is refused, and which rule a message goes by."""

from __future__ import annotations

import pytest

from edgebridge.bridge.rules import BridgeDirection, BridgeRule, ConditionCache, RuleSet, parse_rule
from edgebridge.bridge.shaper import UNSHAPED
from edgebridge.wire.packets import PubAck, Publish
from edgebridge.wire.properties import Properties, Property
from edgebroker.errors import RuleInvalid

from ..support.open_bridge import OpenBridge

READ = {
    "sensors/#": BridgeRule("sensors/#"),
    "sensors/# in": BridgeRule("sensors/#", BridgeDirection.IN),
    "a/+ both 2": BridgeRule("a/+", BridgeDirection.BOTH, 2),
    "a out 0 site/ berlin/": BridgeRule("a", BridgeDirection.OUT, 0, "site/", "berlin/"),
    'a out 0 "" berlin/': BridgeRule("a", BridgeDirection.OUT, 0, "", "berlin/"),
    '"" in 1 clock world/utc': BridgeRule("", BridgeDirection.IN, 1, "clock", "world/utc"),
    '"my sensors/#" out 1': BridgeRule("my sensors/#"),
    "somewhere/# out 1 where  name = 'where  it is'": BridgeRule("somewhere/#", where="name = 'where  it is'"),
    "a where x > 1": BridgeRule("a", where="x > 1"),
    '"a where b/#" out 1 where x = \'"\'': BridgeRule("a where b/#", where="x = '\"'"),
    '"where" in 1 "" "where=/"': BridgeRule("where", BridgeDirection.IN, remote_prefix="where=/"),
    "a out 1 retain=false where x > 1": BridgeRule("a", where="x > 1", retain=False),
}
REFUSED = {
    "": "has 0 words",
    "a out 1 b c d": "has 6 words",
    'a out 1 "open where x > 1': "has 8 words",
    "a " * 4_000: "has 4000 words",
    "a aut": '\'aut\' is no direction; write "out", "in" or "both"',
    "a out 3": "'3' is no QoS",
    "a#": "'#' must be the whole last level",
    '""': "an empty pattern without prefixes",
    "a out 1 b/+/": "the prefix 'b/+/' has a wildcard",
    "$share/g/a out": "a shared subscription",
    "$filter/x/a out": "write the condition behind `where`",
    "a where x >": "in the condition, column",
}


@pytest.mark.parametrize("text", READ)
def test_a_rule_is_read_and_written_the_same(text: str) -> None:
    assert parse_rule(text) == READ[text]
    assert parse_rule(str(READ[text])) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_meant_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(RuleInvalid) as refused:
        parse_rule(text)
    assert REFUSED[text] in str(refused.value)


def test_topics_change_their_prefix() -> None:
    rule = parse_rule("+/temp both 1 site/ berlin/")
    assert (rule.local_filter, rule.remote_filter) == ("site/+/temp", "berlin/+/temp")
    assert rule.to_remote_topic("site/a/temp") == "berlin/a/temp"
    assert rule.to_local_topic("berlin/a/temp") == "site/a/temp"


def outbound(rules: RuleSet, topic: str, identifiers: list[int], payload: bytes = b"") -> tuple[BridgeRule, int] | None:
    """The rule of a message that came by these subscriptions, and its number."""
    return rules.match_outbound(Publish(topic, payload, properties={Property.SUBSCRIPTION_IDENTIFIER: identifiers}))


def test_the_first_rule_that_matches_counts_outwards() -> None:
    rules = RuleSet([parse_rule('a/# out 1 "" one/'), parse_rule('a/b out 2 "" two/'), parse_rule("c in")])
    assert [wanted.text for wanted in rules.local_subscriptions] == ["a/#", "a/b"]
    assert not rules.local_needs_identifiers
    assert outbound(rules, "a/b", []) == (rules.all[0], 0)


def test_which_condition_was_true_is_told_by_the_subscription() -> None:
    rules = RuleSet([parse_rule('a/# out 1 "" one/ where x > 1'), parse_rule('a/b out 2 "" two/')])
    one, two = rules.local_subscriptions
    assert rules.local_needs_identifiers
    assert outbound(rules, "a/b", [two.identifier, one.identifier]) == (one.rule, 0)
    assert outbound(rules, "a/b", [two.identifier]) == (two.rule, 1)


def test_a_condition_is_not_met_by_what_cannot_be_read() -> None:
    """All that an unreadable payload holds seems to be absent, and the gateway's matcher says so."""
    rules = RuleSet([parse_rule("a/# where danger IS NULL"), parse_rule("a/# out 2 where $size < 90")])
    safe, small = rules.local_subscriptions
    unreadable = b'{"danger":1,"x":"\\ud800"}'
    for payload, rule in ((b"{}", safe.rule), (b"", safe.rule), (unreadable, small.rule)):
        found = outbound(rules, "a/b", [safe.identifier, small.identifier], payload)
        assert found is not None
        assert found[0] is rule
    properties: Properties = {Property.SUBSCRIPTION_IDENTIFIER: [safe.identifier]}
    for payload, is_withheld in ((b"{}", False), (unreadable, True)):
        publish = Publish("a/b", payload, properties=properties)
        assert (rules.match_outbound(publish) is None) is is_withheld
        assert rules.withholds(publish) is is_withheld
    conditions = ConditionCache()
    for where in ("danger IS NULL", "NOT danger IS NOT NULL", "$size > 2 OR danger > 1"):
        assert conditions.holds(where, Publish("a/b", b"{}   "))
        assert not conditions.holds(where, Publish("a/b", unreadable))
    assert conditions.holds("$size > 2", Publish("a/b", unreadable))


def test_a_message_that_waited_since_before_the_rules_changed_goes_by_the_rule_of_now() -> None:
    before = RuleSet([parse_rule("x/# where x > 1"), parse_rule("a/#")])
    now = RuleSet([parse_rule("a/#"), parse_rule("x/# where x > 1")])
    assert outbound(now, "a/b", [before.local_subscriptions[1].identifier]) == (now.all[0], 0), (
        "identifiers name subscriptions"
    )
    assert outbound(now, "a/b", [12]) == (now.all[0], 0), "its subscription is gone, but another rule wants it"
    assert outbound(now, "b", [12]) is None


def test_a_message_that_waited_goes_by_a_new_rule_only_if_its_condition_is_true() -> None:
    now = RuleSet([parse_rule('a/# out 1 "" hot/ where x > 1'), parse_rule('a/# out 1 "" all/')])
    for payload, number in ((b'{"x": 2}', 0), (b'{"x": 1}', 1)):
        assert outbound(now, "a/b", [], payload) == (now.all[number], number)
    alone = RuleSet([parse_rule("a/# where x > 5"), parse_rule("a/b where x > 9")])
    assert outbound(alone, "a/b", [12], b'{"x": 2}') == (alone.all[0], 0), "it was wanted when it came"


def test_a_copy_by_a_later_subscription_is_told_from_the_message() -> None:
    rules = RuleSet([parse_rule('a/# in 1 "" r/'), parse_rule('a/b in 1 "" r/')])
    first, second = rules.match_inbound("r/a/b")
    assert [heard.number for heard in (first, second)] == [0, 1]
    assert rules.remote_needs_identifiers
    assert not RuleSet([parse_rule("a/# in"), parse_rule("b/# in")]).remote_needs_identifiers
    assert rules.is_duplicate(first, [second.identifier])
    assert not rules.is_duplicate(first, [first.identifier, second.identifier])
    assert not rules.is_duplicate(first, []), "nobody says"
    assert not rules.is_duplicate(first, [99]), "a subscription of before"
    rules.reject(first.identifier)
    assert [heard.number for heard in rules.match_inbound("r/a/b")] == [1], "what is not granted takes nothing away"


def test_a_remote_that_understands_filters_tests_conditions() -> None:
    rules = RuleSet([parse_rule("a/# both 1 where x > 1")])
    assert (rules.local_subscriptions[0].text, rules.remote_subscriptions[0].text) == ("$filter/x > 1/a/#", "a/#")
    rules.set_remote(understands_filters=True)
    assert rules.remote_subscriptions[0].text == "$filter/x > 1/a/#"


def test_what_stands_above_a_prefix_is_not_behind_it() -> None:
    """`remote/#` matches `remote`, which would be called `here/` here, and `remote/` on its way back."""
    rules = RuleSet([parse_rule("# both 1 here/ remote/"), parse_rule("remote in 1")])
    assert [heard.number for heard in rules.match_inbound("remote")] == [1]
    assert [heard.number for heard in rules.match_inbound("remote/a")] == [0]
    assert outbound(rules, "here", []) is None
    assert outbound(rules, "here/a", []) == (rules.all[0], 0)
    filtered = RuleSet([parse_rule("# out 1 here/ there/ where x > 1")])
    assert outbound(filtered, "here", [filtered.local_subscriptions[0].identifier]) is None
    assert outbound(filtered, "here/a", [filtered.local_subscriptions[0].identifier]) == (filtered.all[0], 0)
    levels = RuleSet([parse_rule("/# both 1 here remote")])
    assert outbound(levels, "here", []) == (levels.all[0], 0), "it is `remote` there"


def test_the_trees_of_clouds_are_ordinary_topics_both_ways() -> None:
    """`$aws/...` at a cloud under an ordinary name here, and `$iothub/...` under the same name on both sides."""
    trip = OpenBridge(UNSHAPED, rules=("shadow/# both 1 dev/ $aws/things/gw/", "$iothub/# both 1", "# both 1"))
    ours = {"dev/shadow/update": "$aws/things/gw/shadow/update", "$iothub/methods/a": "$iothub/methods/a"}
    for number, (local, remote) in enumerate(ours.items(), 1):
        for payload in (b"1", b"2"):  # the second one goes the short way
            trip.ours(Publish(local, payload, 1, packet_id=number))
            trip.theirs(PubAck(number), Publish(remote, payload, 1, packet_id=number))
            trip.ours(PubAck(number))
            said, heard = trip.sent(), trip.answered()
            assert [one.topic for one in said if isinstance(one, Publish)] == [remote]
            assert [one.topic for one in heard if isinstance(one, Publish)] == [local]
    trip.ours(Publish("$other/a", b"", 1, packet_id=9))
    assert trip.answered() == [PubAck(9)]
    assert (trip.sent(), trip.bridge.outbound_counters.dropped["no_rule"]) == ([], 1), "# does not match it"
