"""Laws of the parallel search tree: whatever was inserted and removed, it answers as asking every subscription would,
and it keeps the annotations, the counts and the room that it would have if it had been grown at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.filters import Filter
from edgebroker.matching import reference
from edgebroker.matching.cells import Cells, high_cut, low_cut, thinned
from edgebroker.matching.kernel import kernel
from edgebroker.matching.outcomes import NOWHERE, TritVector, alternative_combine, parallel_combine
from edgebroker.matching.pst import Pst
from edgebroker.matching.reference.events import INSIDE, Event
from edgebroker.matching.reference.forks import Fork
from edgebroker.matching.reference.leaves import Leaves
from edgebroker.predicate import (
    ANY_ONE,
    ANY_RUN,
    COMPOSITE,
    Bound,
    ElementaryTest,
    Interval,
    Pattern,
    Predicate,
    Value,
    ValueType,
)
from edgebroker.topics import TopicFilter

# -- random subscriptions and events ----------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
LEVELS = ("x", "y", "", "$s")
NUMBERS: tuple[int | float, ...] = (-1, 0, 0.5, 1, 1.0, 2, 2.5, 3)
STRINGS = ("", "a", "ab", "abc", "b", "ba", "é")
VALUES: tuple[Value, ...] = (*NUMBERS, *STRINGS, True, False, None, COMPOSITE, float("inf"), 10**30)


# What to draw from is made once: making it anew at every draw takes longer than all the rest.


@cache
def positions_among(bounds: tuple[Bound, ...]) -> st.SearchStrategy[list[tuple[Bound, bool]]]:
    return st.lists(st.tuples(st.sampled_from(bounds), st.booleans()), min_size=0, max_size=5, unique=True)


BOOLEANS = [st.lists(st.booleans(), min_size=size, max_size=size) for size in range(7)]


@st.composite
def intervals_of(draw: st.DrawFn, bounds: tuple[Bound, ...]) -> tuple[Interval, ...]:
    """Sorted, disjoint, not empty: what lies between neighbouring ones of a few chosen positions."""
    positions = draw(positions_among(bounds))
    positions.sort()
    ends = [None, *positions, None]
    pieces = [
        Interval(
            low[0] if low else None, low is not None and not low[1], high[0] if high else None, bool(high and high[1])
        )
        for low, high in pairwise(ends)
        if low is None or high is None or low != high
    ]
    chosen = draw(BOOLEANS[len(pieces)])
    kept = tuple(piece for piece, keep in zip(pieces, chosen, strict=True) if keep)
    return kept or (pieces[0],)


PATTERNS = st.builds(
    Pattern,
    st.lists(st.sampled_from(["a", "b", "ab", ANY_RUN, ANY_ONE]), min_size=1, max_size=4).map(tuple),
    st.booleans(),
)


def points(bounds: tuple[Bound, ...]) -> st.SearchStrategy[tuple[Interval, ...]]:
    some = st.lists(st.sampled_from(bounds), min_size=1, max_size=3, unique=True).map(sorted)
    return some.map(lambda values: tuple(Interval(value, True, value, True) for value in values))


@cache
def elementary_tests(name: str) -> st.SearchStrategy[ElementaryTest]:
    def build(kind: ValueType, bounds: tuple[Bound, ...]) -> st.SearchStrategy[ElementaryTest]:
        intervals = st.one_of(points(bounds), intervals_of(bounds))
        patterns = st.lists(PATTERNS, max_size=2).map(tuple) if kind is ValueType.STRING else st.just(())
        return st.builds(ElementaryTest, st.just(name), st.just(kind), intervals, patterns)

    return st.one_of(
        st.builds(ElementaryTest, st.just(name), st.sampled_from([ValueType.NULL, ValueType.NOT_NULL])),
        build(ValueType.NUMBER, NUMBERS),
        build(ValueType.STRING, STRINGS),
        build(ValueType.BOOLEAN, (False, True)),
    )


@cache
def predicates_on(*names: str) -> st.SearchStrategy[Predicate]:
    return st.tuples(*map(elementary_tests, names))


PREDICATES: st.SearchStrategy[Predicate] = st.sets(st.sampled_from(NAMES), max_size=3).flatmap(
    lambda names: predicates_on(*sorted(names))
)
FILTER_LEVELS = st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=3)
COIN, BIT = st.booleans(), st.integers(0, 1)


@st.composite
def topic_filters(draw: st.DrawFn) -> TopicFilter:
    levels = list(draw(FILTER_LEVELS))
    if draw(COIN):
        levels.append("#")
        levels = levels[draw(BIT) :]
    return TopicFilter.parse("/".join(levels) or "#")


TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join).filter(bool)
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES))


@dataclass
class Subscription:
    topic_filter: TopicFilter
    predicates: list[Predicate]
    link: int

    def matches(self, topic: str, attributes: dict[str, Value]) -> bool:
        return self.topic_filter.matches(topic) and any(accepts(each, attributes) for each in self.predicates)


def accepts(predicate: Predicate, attributes: dict[str, Value]) -> bool:
    return all(test.accepts(attributes.get(test.attribute)) for test in predicate)


SUBSCRIPTIONS = st.builds(
    Subscription,
    st.one_of(st.just(TopicFilter.parse("x")), topic_filters()),
    st.lists(PREDICATES, min_size=0, max_size=3),
    st.integers(0, 4),
)
REMOVED = st.just(None)
CHANGES = st.lists(st.one_of(SUBSCRIPTIONS, SUBSCRIPTIONS, SUBSCRIPTIONS, REMOVED), max_size=20)
PLACES = [st.sampled_from(range(count)) for count in range(1, 21)]
BUCKETS = st.sampled_from([2, 4, 1_024])


@dataclass
class Grown:
    """A tree after random changes, and what should be in it."""

    tree: Pst
    subscriptions: dict[int, Subscription] = field(default_factory=dict)


@st.composite
def grown_trees(draw: st.DrawFn, kernel: ModuleType = kernel) -> Grown:
    grown = Grown(Pst(kernel, draw(BUCKETS)))
    for number, change in enumerate(draw(CHANGES)):
        if change is not None:
            grown.tree.insert(number, change.topic_filter, change.predicates, change.link)
            grown.subscriptions[number] = change
        elif grown.subscriptions:
            gone = sorted(grown.subscriptions)[draw(PLACES[len(grown.subscriptions) - 1])]
            grown.tree.remove(gone)
            del grown.subscriptions[gone]
    return grown


# -- the laws ---------------------------------------------------------------------------------------------------------


@given(grown_trees(), TOPICS, ATTRIBUTES)
def test_the_tree_agrees_with_asking_every_subscription(grown: Grown, topic: str, attributes: dict[str, Value]) -> None:
    resolution = grown.tree.resolve(topic)
    found = [*resolution.plain, *grown.tree.match(resolution, attributes)]
    expected = [number for number, each in grown.subscriptions.items() if each.matches(topic, attributes)]
    assert sorted(found) == expected
    assert len(grown.tree) == len(grown.subscriptions)


@given(grown_trees(), TOPICS)
def test_a_resolution_tells_plain_subscriptions_from_those_with_content(grown: Grown, topic: str) -> None:
    here = {number: each for number, each in grown.subscriptions.items() if each.topic_filter.matches(topic)}
    plain = {number for number, each in here.items() if () in each.predicates}
    content = {number for number, each in here.items() if each.predicates and () not in each.predicates}
    resolution = grown.tree.resolve(topic)
    assert sorted(resolution.plain) == sorted(plain)
    buckets = [
        node for each in resolution.contents for node in each.nodes() if isinstance(node, grown.tree.kernel.Bucket)
    ]
    leaves = [leaf for bucket in buckets for leaf in bucket.held()]
    assert {number for leaf in leaves for number in grown.tree.leaves.members_of(leaf)} == content
    # The attributes of a whole content tree are wanted, so of every subscription in it.
    tests = [test for number in content for predicate in here[number].predicates for test in predicate]
    assert resolution.wanted == {test.attribute for test in tests}


@given(grown_trees(), TOPICS, ATTRIBUTES, st.integers(0, 31), st.integers(0, 4))
def test_the_links_decided_are_the_links_of_the_matches(
    grown: Grown, topic: str, attributes: dict[str, Value], mask: int, local: int
) -> None:
    matching = {number: each for number, each in grown.subscriptions.items() if each.matches(topic, attributes)}
    links = sum({1 << each.link for each in matching.values()})
    resolution = grown.tree.resolve(topic)
    assert grown.tree.decide(resolution, attributes, mask).yes == links & mask
    route = grown.tree.route(resolution, attributes, mask, local)
    assert route.yes == links & mask
    assert sorted(route.numbers) == [number for number, each in matching.items() if each.link == local]


@given(grown_trees())
def test_annotations_kept_path_by_path_are_those_made_from_scratch(grown: Grown) -> None:
    check_annotations(grown.tree)


@given(grown_trees(kernel=reference))
def test_annotations_are_combined_by_the_book(grown: Grown) -> None:
    """A over the cells of P over the edges into each, then P with `*` [LM 2.4, 2.7]."""
    for node in nodes_of(grown.tree):
        if isinstance(node, Fork):
            cells = [over_edges(kids) for kids in node.kids]
            over_values = reduce(alternative_combine, cells) if cells else NOWHERE
            assert node.annotation == parallel_combine(over_values, over_edges(node.stars))


@given(grown_trees(), st.randoms(use_true_random=False))
def test_nothing_remains_when_everything_is_taken_out(grown: Grown, rng: random.Random) -> None:
    numbers = list(grown.subscriptions)
    rng.shuffle(numbers)
    for number in numbers:
        grown.tree.remove(number)
    assert len(grown.tree) == 0
    assert grown.tree.census()[:-1] == Pst().census()[:-1]


@given(grown_trees(), SUBSCRIPTIONS, TOPICS, ATTRIBUTES)
def test_a_resolution_tells_the_truth_as_long_as_its_epoch_lasts(
    grown: Grown, change: Subscription, topic: str, attributes: dict[str, Value]
) -> None:
    resolution = grown.tree.resolve(topic)
    epoch = grown.tree.epoch
    grown.tree.insert(1_000, change.topic_filter, change.predicates, change.link)
    assert resolution.epoch == epoch <= grown.tree.epoch
    if grown.tree.epoch == epoch:
        now = grown.tree.resolve(topic)
        assert (resolution.plain, resolution.wanted) == (now.plain, now.wanted)
        assert grown.tree.match(resolution, attributes) == grown.tree.match(now, attributes)
    else:
        with pytest.raises(ValueError, match="epoch"):
            grown.tree.match(resolution, attributes)


@given(elementary_tests("a"), st.lists(elementary_tests("a"), max_size=6), st.sampled_from(VALUES), st.integers(1, 9))
def test_the_cell_of_a_value_tells_whether_a_test_accepts_it(
    test: ElementaryTest, others: list[ElementaryTest], value: Value, cuts_max: int
) -> None:
    leaves = Leaves()
    for each in (test, *others):
        leaves.create((each,))
    numbers = [interval for each in others if each.kind is ValueType.NUMBER for interval in each.intervals]
    cuts = [cut for each in numbers for cut in (low_cut(each)[0], high_cut(each)[0]) if cut is not None]
    strings = sorted(leaves.strings.numbers.values())[::2]
    cells = Cells(leaves.names.numbers["a"], thinned(cuts, cuts_max, cuts_max), strings, booleans=cuts_max > 4)
    cell = Event(leaves, {"a": value}).cell(cells)
    if cell == INSIDE:
        return
    covered, exact = cells.cover(test, leaves.strings.values, leaves.strings.numbers)
    if exact:
        assert test.accepts(value) is bool(covered >> cell & 1)
    else:
        assert covered >> cell & 1 or not test.accepts(value)


# -- one tree grown large, or long ------------------------------------------------------------------------------------


def test_nested_intervals_take_room_in_proportion_to_their_number() -> None:
    trees = [Pst(), Pst()]
    for tree, count in zip(trees, (1_000, 4_000), strict=True):
        for number in range(1, count + 1):
            nested = ElementaryTest("a", ValueType.NUMBER, (Interval(-number, True, number, True),))
            tree.insert(number, TopicFilter.parse("x"), [(nested,)])
        found = tree.match(tree.resolve("x"), {"a": 500.5})
        assert sorted(found) == list(range(501, count + 1))
    small, large = (tree.census().bytes for tree in trees)
    assert large < 6 * small


def test_two_hundred_predicates_on_one_topic_survive_every_change_of_order() -> None:
    rng = random.Random(11)
    tree = Pst(bucket_max=8)
    topic_filter = TopicFilter.parse("plant/+/line/#")
    subscriptions: dict[int, Subscription] = {}
    for number in range(200):
        # The first names are tested at first, the last ones at last: the order has to follow.
        names = sorted({"abcdef"[min(5, number // 40 + rng.randrange(2))] for _ in range(2)})
        predicate = tuple(
            ElementaryTest(name, ValueType.NUMBER, (Interval(low, True, low + rng.choice((0, 1)), True),))
            for name, low in zip(names, rng.choices(range(30), k=len(names)), strict=True)
        )
        subscriptions[number] = Subscription(topic_filter, [predicate, predicate[:1]], rng.randrange(5))
        tree.insert(number, topic_filter, subscriptions[number].predicates, subscriptions[number].link)
        if number >= 60:  # those that came first go
            tree.remove(number - 60)
            del subscriptions[number - 60]
        tree.tend()
        check_annotations(tree)
        attributes: dict[str, Value] = {name: rng.randrange(31) for name in "abcdef" if rng.random() < 0.9}
        resolution = tree.resolve("plant/1/line")
        found = [*resolution.plain, *tree.match(resolution, attributes)]
        assert sorted(found) == [i for i, each in subscriptions.items() if each.matches("plant/1/line", attributes)]
    for number in rng.sample(sorted(subscriptions), k=len(subscriptions)):
        tree.remove(number)
        check_annotations(tree)
    assert tree.census()[:-1] == Pst().census()[:-1]


def test_names_and_strings_that_come_and_go_take_no_room() -> None:
    tree = Pst()
    topic_filter = TopicFilter.parse("t")
    tree.insert(0, topic_filter, [(ElementaryTest("stays", ValueType.NOT_NULL),)])
    room = 0
    for number in range(1, 500):
        named = ElementaryTest("text", ValueType.STRING, (Interval(f"value{number}", True, f"value{number}", True),))
        tree.insert(number, topic_filter, [(ElementaryTest(f"name{number}", ValueType.NULL), named)])
        assert sorted(tree.match(tree.resolve("t"), {"stays": 1, "text": f"value{number}"})) == [0, number]
        room = room or tree.census().bytes
        tree.remove(number)
    assert tree.resolve("t").wanted == {"stays"}
    assert tree.census().bytes < 1.1 * room


def nodes_of(tree: Pst) -> list[Any]:
    """All forks and buckets, children before their fork."""
    contents = [end.content for end in tree.ends if end is not None and end.content is not None]
    return [node for content in contents for node in reversed(list(content.nodes()))]


def check_annotations(tree: Pst) -> None:
    """Annotating a node once more changes nothing, and what a fork counts is below it."""
    for node in nodes_of(tree):
        assert not node.annotate()
        if isinstance(node, tree.kernel.Fork):
            assert node.count == sum(child.count for child in node.children())


def over_edges(nodes: Iterable[Any]) -> TritVector:
    return reduce(parallel_combine, (node.annotation for node in nodes), NOWHERE)


def test_a_reordering_ends_in_idle_times_and_loses_nobody() -> None:
    tree = Pst(bucket_max=64)
    topic = TopicFilter.parse("t")
    before, after = "a = {} AND x = {}", "b = {} AND y = {}"
    filters = {n: Filter.parse((before if n < 400 else after).format(n % 20, n)) for n in range(1_500)}
    for number, content_filter in filters.items():
        tree.insert(number, topic, content_filter.predicates, number % 3)
        if number >= 400 and number % 3 == 0:
            tree.remove(number - 400)
        if tree.is_reordering:
            break
    assert tree.is_reordering
    present = [number for number in filters if number in tree]
    steps = 0
    while tree.is_reordering:
        tree.tend()
        check_annotations(tree)
        steps += 1
    assert steps > 1
    resolution = tree.resolve("t")
    for number in present:
        assert tree.match(resolution, dict.fromkeys("ab", number % 20) | dict.fromkeys("xy", number)) == [number]
