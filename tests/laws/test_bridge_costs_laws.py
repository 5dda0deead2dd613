"""Who spends a bridge's bytes: every byte is counted once, whatever topics there are."""

from __future__ import annotations

import tracemalloc
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edgebridge.bridge.counters import OTHER_TOPICS, PREFIXES_MAX, PrefixCounters, merge_by_prefix
from edgebridge.bridge.fast_path import RewriteCache, TopicRewrite
from edgebridge.bridge.rules import RuleSet, parse_rule

LEVELS = st.sampled_from(["", "a", "b", "c", "d"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=6).map("/".join)


@given(st.integers(2, 12), st.lists(st.tuples(TOPICS, st.integers(1, 9), st.booleans()), max_size=80))
def test_every_byte_is_counted_once_and_none_under_a_name_that_is_not_its_own(
    most: int, sent: list[tuple[str, int, bool]]
) -> None:
    costs, before, total = PrefixCounters(most), 0, 0
    truth: Counter[str] = Counter()
    for topic, octets, is_midnight in sent:
        if is_midnight:
            costs.begin_day()
            before = total
        cell = costs.counter(topic)
        cell.messages += 1
        cell.bytes += octets
        total += octets
        levels = topic.split("/")[:4]
        for depth in range(1, len(levels) + 1):
            truth["/".join(levels[:depth])] += octets
        assert sum(1 for _ in costs.counters()) <= most
    for depth in (1, 2, 3, 4):
        rows = {prefix: out for prefix, (out, _) in merge_by_prefix(costs, PrefixCounters(), depth).items()}
        assert sum(cell.bytes for cell in rows.values()) == total == costs.bytes
        assert sum(cell.bytes_before for cell in rows.values()) == before
        assert sum(cell.messages for cell in rows.values()) == len(sent)
        assert all(
            cell.bytes <= truth[prefix.removesuffix("/#")] for prefix, cell in rows.items() if prefix != OTHER_TOPICS
        )
        assert all(len(prefix.removesuffix("/#").split("/")) <= depth for prefix in rows)


def test_what_went_the_short_way_before_a_fold_is_asked_for_anew() -> None:
    """Three first levels with 2,000 topics each, one of which has most messages."""
    costs, passes = PrefixCounters(), RewriteCache(True, True)
    for number in range(6_000):
        for topic in (f"s{number % 3}/{number}", "s0/loud"):
            way = passes.find(topic.encode())
            if way is None:
                way = TopicRewrite(b"", 0, False, b"", passes.counter(costs, topic))
                passes.remember(topic.encode(), way)
            way.counter.messages += 1
            way.counter.bytes += 10
    assert costs.folds > 5
    cells = dict(costs.counters())
    assert len(cells) <= PREFIXES_MAX
    assert cells["s0/loud"].messages > 5_000
    rows = merge_by_prefix(costs, PrefixCounters(), 1)
    assert {prefix: out.messages for prefix, (out, _) in rows.items()} == {"s0": 8_000, "s1": 2_000, "s2": 2_000}


def test_topics_as_long_as_mqtt_allows_are_not_remembered() -> None:
    """One publisher would fill a small gateway with them."""
    costs, passes, rules = PrefixCounters(), RewriteCache(True, True), RuleSet([parse_rule("# in 1")])
    tracemalloc.start()
    try:
        for number in range(200):
            topic = f"site/{number}/{'x' * 60_000}/y"
            assert len(rules.match_inbound(topic)) == 1
            passes.remember(topic.encode(), TopicRewrite(topic.encode(), 0, False, b"", passes.counter(costs, topic)))
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
    assert {prefix for prefix, _ in costs.counters()} == {f"site/{number}/#" for number in range(200)}
