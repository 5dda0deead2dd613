"""Laws of the parallel search tree: whatever was inserted and removed, it answers as asking every subscription
would.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgebroker.event import COMPOSITE, Value
from edgebroker.matching.linkmatch import decide
from edgebroker.matching.pst import Pst
from edgebroker.matching.published.cells import Cells
from edgebroker.matching.published.labels import key_of
from edgebroker.matching.published.nodes import LEAF, NONE, Nodes
from edgebroker.matching.trits import NOWHERE, TritVector, alternative_combine, parallel_combine
from edgebroker.predicate import ANY_ONE, ANY_RUN, Bound, ElementaryTest, Interval, Kind, Pattern, Predicate
from edgebroker.topics import TopicFilter

# -- random subscriptions and events ----------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
LEVELS = ("x", "y", "", "$s")
NUMBERS: tuple[int | float, ...] = (-1, 0, 0.5, 1, 1.0, 2, 2.5, 3)
STRINGS = ("", "a", "ab", "abc", "b", "ba", "é")
VALUES: tuple[Value, ...] = (*NUMBERS, *STRINGS, True, False, None, COMPOSITE, float("inf"), 10**30)


@st.composite
def intervals_of(draw: st.DrawFn, bounds: tuple[Bound, ...]) -> tuple[Interval, ...]:
    """Sorted, disjoint, not empty: what lies between neighbouring ones of a few chosen positions."""
    positions = draw(st.lists(st.tuples(st.sampled_from(bounds), st.booleans()), min_size=0, max_size=5, unique=True))
    positions.sort()
    ends = [None, *positions, None]
    pieces = [
        Interval(
            low[0] if low else None, low is not None and not low[1], high[0] if high else None, bool(high and high[1])
        )
        for low, high in pairwise(ends)
        if low is None or high is None or low != high
    ]
    chosen = draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
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


def elementary_tests(name: str) -> st.SearchStrategy[ElementaryTest]:
    def build(kind: Kind, bounds: tuple[Bound, ...]) -> st.SearchStrategy[ElementaryTest]:
        intervals = st.one_of(points(bounds), intervals_of(bounds))
        patterns = st.lists(PATTERNS, max_size=2).map(tuple) if kind is Kind.STRING else st.just(())
        return st.builds(ElementaryTest, st.just(name), st.just(kind), intervals, patterns)

    return st.one_of(
        st.builds(ElementaryTest, st.just(name), st.sampled_from([Kind.NULL, Kind.NOT_NULL])),
        build(Kind.NUMBER, NUMBERS),
        build(Kind.STRING, STRINGS),
        build(Kind.BOOLEAN, (False, True)),
    )


PREDICATES: st.SearchStrategy[Predicate] = st.sets(st.sampled_from(NAMES), max_size=3).flatmap(
    lambda names: st.tuples(*map(elementary_tests, sorted(names)))
)


@st.composite
def topic_filters(draw: st.DrawFn) -> TopicFilter:
    levels = draw(st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=3))
    if draw(st.booleans()):
        levels.append("#")
        levels = levels[draw(st.integers(0, 1)) :]
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
CHANGES = st.lists(st.one_of(SUBSCRIPTIONS, SUBSCRIPTIONS, SUBSCRIPTIONS, REMOVED), max_size=25)


@dataclass
class Grown:
    """A tree after random changes, and what should be in it."""

    tree: Pst = field(default_factory=Pst)
    subscriptions: dict[int, Subscription] = field(default_factory=dict)


@st.composite
def grown_trees(draw: st.DrawFn) -> Grown:
    grown = Grown()
    for number, change in enumerate(draw(CHANGES)):
        if change is not None:
            grown.tree.insert(number, change.topic_filter, change.predicates, change.link)
            grown.subscriptions[number] = change
        elif grown.subscriptions:
            gone = draw(st.sampled_from(sorted(grown.subscriptions)))
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
    assert sorted(resolution.content_numbers()) == sorted(content)
    # The attributes of a whole content tree are wanted, so of every subscription in it.
    tests = [test for number in content for predicate in here[number].predicates for test in predicate]
    assert resolution.wanted == {test.attribute for test in tests}


@given(grown_trees(), TOPICS, ATTRIBUTES, st.integers(0, 31))
def test_the_links_decided_are_the_links_of_the_matches(
    grown: Grown, topic: str, attributes: dict[str, Value], mask: int
) -> None:
    expected = 0
    for each in grown.subscriptions.values():
        if each.matches(topic, attributes):
            expected |= 1 << each.link
    assert decide(grown.tree, topic, attributes, mask) == expected & mask


@given(grown_trees())
def test_annotations_kept_path_by_path_are_those_made_from_scratch(grown: Grown) -> None:
    nodes = grown.tree.nodes
    check_annotations(nodes, nodes.stars[NONE])


@given(grown_trees(), st.randoms(use_true_random=False))
def test_nothing_remains_when_everything_is_taken_out(grown: Grown, rng: random.Random) -> None:
    numbers = list(grown.subscriptions)
    rng.shuffle(numbers)
    for number in numbers:
        epoch = grown.tree.epoch
        grown.tree.remove(number)
        assert grown.tree.epoch > epoch
    assert len(grown.tree) == 0
    assert len(grown.tree.nodes) == 0
    assert not grown.tree.schemas


@given(
    st.lists(st.tuples(intervals_of(NUMBERS), st.booleans()), max_size=12), st.sampled_from(NUMBERS), st.integers(0, 4)
)
def test_cells_find_the_intervals_that_contain_a_value(
    sets: list[tuple[tuple[Interval, ...], bool]], value: float, allowance: int
) -> None:
    cells = Cells(allowance)
    for child, (intervals, _) in enumerate(sets, start=1):
        for interval in intervals:
            cells.add(interval, child)
    for child, (intervals, removed) in enumerate(sets, start=1):
        if removed:
            for interval in intervals:
                cells.discard(interval, child)
    found: list[int] = []
    cells.find(value, found)
    assert sorted(found) == [
        child
        for child, (intervals, removed) in enumerate(sets, start=1)
        if not removed and any(interval.contains(value) for interval in intervals)
    ]
    assert bool(cells) is any(not removed for _, removed in sets)


def test_nested_intervals_take_room_in_proportion_to_their_number() -> None:
    cells = Cells()
    for child in range(1, 2_001):
        cells.add(Interval(-child, True, child, True), child)
    assert cells.entries <= 64 * 2_000
    found: list[int] = []
    cells.find(1_500.5, found)
    assert sorted(found) == list(range(1_501, 2_001))
    for child in range(1, 2_001):
        cells.discard(Interval(-child, True, child, True), child)
    assert not cells
    assert cells.entries == 0


def test_one_hundred_and_fifty_predicates_on_one_topic_survive_every_change_of_order() -> None:
    rng = random.Random(11)
    tree = Pst()
    topic_filter = TopicFilter.parse("plant/+/line/#")
    subscriptions: dict[int, Subscription] = {}
    for number in range(150):
        # The last names are tested most, and they come last: each look at the order changes it.
        names = [name for weight, name in enumerate("abcdef", start=1) if rng.random() < weight / 7]
        predicate = tuple(
            ElementaryTest(name, Kind.NUMBER, (Interval(low, True, low + rng.choice((0, 1)), True),))
            for name, low in zip(names, rng.choices(range(3), k=len(names)), strict=True)
        )
        subscriptions[number] = Subscription(topic_filter, [predicate, predicate[:1]], rng.randrange(5))
        tree.insert(number, topic_filter, subscriptions[number].predicates, subscriptions[number].link)
        check_annotations(tree.nodes, tree.nodes.stars[NONE])
        attributes: dict[str, Value] = {name: rng.randrange(4) for name in "abcdef" if rng.random() < 0.9}
        resolution = tree.resolve("plant/1/line")
        found = [*resolution.plain, *tree.match(resolution, attributes)]
        assert sorted(found) == [i for i, each in subscriptions.items() if each.matches("plant/1/line", attributes)]
    (schema,) = tree.schemas.values()
    assert schema.names[-1] == "a"
    for number in rng.sample(sorted(subscriptions), k=150):
        tree.remove(number)
        check_annotations(tree.nodes, tree.nodes.stars[NONE])
    assert len(tree.nodes) == 0


def test_attribute_names_that_come_and_go_take_no_room() -> None:
    tree = Pst()
    topic_filter = TopicFilter.parse("t")
    tree.insert(0, topic_filter, [(ElementaryTest("stays", Kind.NOT_NULL),)])
    for number in range(1, 500):
        tree.insert(number, topic_filter, [(ElementaryTest(f"name{number}", Kind.NULL),)])
        assert sorted(tree.match(tree.resolve("t"), {"stays": 1})) == [0, number]
        tree.remove(number)
    (schema,) = tree.schemas.values()
    assert len(schema.names) == 2
    assert tree.resolve("t").wanted == {"stays"}


# -- annotations by the book ------------------------------------------------------------------------------------------

REPRESENTATIVES: tuple[Value, ...] = (
    *VALUES,
    *(-5, -0.5, 0.25, 0.75, 1.5, 2.25, 2.75, 7),  # between the bounds that the tests above use
    *("0", "aa", "abb", "abz", "az", "bz", "z"),
)


def check_annotations(nodes: Nodes, node: int) -> TritVector:
    """Compare every annotation below *node* with A over cells, P over edges, and P with `*`, leaves first."""
    if not node:
        return NOWHERE
    kept = TritVector(nodes.yeses[node], nodes.maybes[node])
    if nodes.ranks[node] == LEAF:
        yes = 0
        for link in nodes.members[node].values():
            yes |= 1 << link
        assert kept == TritVector(yes, 0)
        return kept
    children = {child: check_annotations(nodes, child) for child in nodes.value_children(node)}
    star = check_annotations(nodes, nodes.stars[node])
    values: list[object] = [*REPRESENTATIVES, *LEVELS, "another level"]
    keys = nodes.domains.get(nodes.ranks[node]) or [key_of(value) for value in values]
    annotation: TritVector | None = None
    for key in keys:
        accepting: list[int] = []
        nodes.find(node, key, accepting)
        cell = NOWHERE
        for child in accepting:
            cell = parallel_combine(cell, children[child])
        annotation = cell if annotation is None else alternative_combine(annotation, cell)
    assert annotation is not None
    expected = parallel_combine(annotation, star)
    assert kept.yes == expected.yes
    # A cell of patterns that no representative meets would be missing from the reference, never from the tree.
    assert kept.reach & expected.reach == expected.reach
    reach = star.reach
    for trits in children.values():
        reach |= trits.reach
    assert kept.reach == (expected.reach if nodes.ranks[node] in nodes.domains else reach)
    return kept
