"""Laws of the topic tree: whatever was added and discarded, it answers as asking every filter would, and so does its
twin.
"""

from __future__ import annotations

import importlib
import random
from collections import Counter
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.matching.reference import topictree as reference
from edgebroker.topics import TopicFilter

LEVELS = (
    "a",
    "b",
    "",
    "$s",
    "é",
    "\ud800",
    "🌡",
    "a level of more than sixteen octets",
    "温度計温度計",
)
NAMES = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=5).map("/".join)
TOPICS = NAMES
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from((*LEVELS, "+", "+")), max_size=5),
    st.sampled_from([(), ("#",)]),
).filter(bool).map(TopicFilter.parse)  # fmt: skip


def twins() -> list[ModuleType]:
    try:
        return [reference, importlib.import_module("edgebroker.matching.compiled.topictree")]
    except ImportError:
        return [reference]


TWINS = twins()


@pytest.mark.skipif(len(TWINS) < 2, reason="the compiled topic tree is not built here")
@given(st.lists(st.tuples(st.booleans(), FILTERS)), st.lists(TOPICS, max_size=5))
def test_the_twins_are_equal(changes: list[tuple[bool, TopicFilter]], topics: list[str]) -> None:
    trees = [twin.TopicTree() for twin in TWINS]
    for is_added, topic_filter in changes:
        found = [tree.find(topic_filter) for tree in trees]
        assert len({end == -1 for end in found}) == 1
        for tree, end in zip(trees, found, strict=True):
            if is_added:
                tree.add(topic_filter)
            elif end != -1:
                tree.discard(end)
    for topic in topics:
        first, second = ([tree.filter_of(end) for end in tree.ends(topic)] for tree in trees)
        assert first == second
    first, second = trees
    assert (len(first), first.nodes, first.steps) == (len(second), second.nodes, second.steps)
    assert drawing(first) == drawing(second)


def drawing(tree: reference.TopicTree, node: int = 0) -> list[object]:
    """The tree without its numbers."""
    return [
        (level, end != -1, drawing(tree, child) if child != -1 else None) for level, child, end in tree.children(node)
    ]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.split(".")[-2])
@given(st.lists(st.tuples(st.booleans(), FILTERS)), st.lists(TOPICS, max_size=5))
def test_the_tree_is_asking_every_filter(
    twin: ModuleType, changes: list[tuple[bool, TopicFilter]], topics: list[str]
) -> None:
    tree = twin.TopicTree()
    uses: Counter[TopicFilter] = Counter()
    ends: dict[TopicFilter, int] = {}
    for is_added, topic_filter in changes:
        if is_added:
            end = tree.add(topic_filter)
            assert ends.setdefault(topic_filter, end) == end
            uses[topic_filter] += 1
        elif uses[topic_filter]:
            tree.discard(ends[topic_filter])
            uses[topic_filter] -= 1
            if not uses[topic_filter]:
                del ends[topic_filter]
        assert len(set(ends.values())) == len(tree) == len(ends)
    assert all(tree.filter_of(end) == topic_filter.text for topic_filter, end in ends.items())
    assert all(tree.find(topic_filter) == ends.get(topic_filter, -1) for topic_filter in uses)
    for topic in topics:
        assert sorted(tree.ends(topic)) == sorted(end for asked, end in ends.items() if asked.matches(topic))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.split(".")[-2])
def test_a_long_life(twin: ModuleType, chance: random.Random) -> None:
    """Thousands of filters come and go, so that numbers are given again and all tables grow and shrink."""
    tree = twin.TopicTree()
    ends: dict[TopicFilter, int] = {}
    for target in (6_000, 500, 3_000, 0):
        while len(ends) < target:
            levels = [chance.choice(("+", "a", "b", f"{chance.randrange(4_000):x}")) for _ in range(5)]
            tail = chance.choice(("x", "#", "é" * chance.randrange(30), f"{chance.random()}"))
            topic_filter = TopicFilter.parse("/".join([*levels[: chance.randrange(1, 6)], tail]))
            if topic_filter in ends:
                assert tree.find(topic_filter) == ends[topic_filter]
            else:
                ends[topic_filter] = tree.add(topic_filter)
        while len(ends) > target:
            topic_filter = chance.choice(list(ends)) if len(ends) < 600 else next(iter(ends))
            tree.discard(ends.pop(topic_filter))
        assert len(tree) == len(set(ends.values())) == target
        assert all(tree.filter_of(end) == topic_filter.text for topic_filter, end in ends.items())
        for topic_filter in chance.sample(list(ends), min(20, target)):
            topic = topic_filter.text.replace("+", "a").replace("#", "b/c")
            assert sorted(tree.ends(topic)) == sorted(end for asked, end in ends.items() if asked.matches(topic))
    assert tree.nodes == 1
    assert twin is reference or tree.bytes() < 65_536, "what was taken is given back, but for first pieces"
