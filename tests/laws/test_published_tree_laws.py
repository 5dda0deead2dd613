"""Laws of the tree as published: with every combination of its optimisations it answers as asking each subscription
would, and what its nodes know of the links is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.predicate import ElementaryTest, Interval, Predicate, Value, ValueType
from edgelab.experiment.published_tree import (
    PLAIN,
    Branch,
    FixedPst,
    FixedSubscription,
    Leaf,
    Node,
    Optimisations,
    OtherValue,
    collect,
    fewest_stars_first,
)

NAMES = ("a", "b", "c", "d")
DOMAIN = (1, 2, 3)
DOMAINS = dict.fromkeys(NAMES, DOMAIN)
EVENTS: list[dict[str, Value]] = [dict(zip(NAMES, values, strict=True)) for values in product(DOMAIN, repeat=4)]
ODD_VALUES: tuple[Value, ...] = (None, True, 0, 1.0, 2.5, 7, "", "x")
LINKS = 4


def equal(name: str, value: float) -> ElementaryTest:
    return ElementaryTest(name, ValueType.NUMBER, (Interval(value, True, value, True),))


def wide_tests(name: str) -> list[ElementaryTest]:
    return [
        ElementaryTest(name, ValueType.NULL),
        ElementaryTest(name, ValueType.NOT_NULL),
        ElementaryTest(name, ValueType.NUMBER, (Interval(low=1, low_closed=False),)),
        ElementaryTest(name, ValueType.NUMBER, (Interval(1, True, 1, True), Interval(3, True, 3, True))),
        ElementaryTest(name, ValueType.BOOLEAN, (Interval(True, True, True, True),)),
        ElementaryTest(name, ValueType.STRING, (Interval("a", True),)),
    ]


def accepts(predicate: Predicate, attributes: dict[str, Value]) -> bool:
    return all(test.accepts(attributes.get(test.attribute)) for test in predicate)


@st.composite
def predicates(draw: st.DrawFn, index_attributes: tuple[str, ...], *, wide: bool) -> Predicate:
    tests = []
    for name in NAMES:
        choices = [None, None, *(equal(name, value) for value in DOMAIN)]
        if wide and name not in index_attributes:
            choices += wide_tests(name)
        tests.append(draw(st.sampled_from(choices)))
    return tuple(test for test in tests if test is not None)


OPTIMISATIONS = st.builds(Optimisations, st.integers(0, 3), st.booleans(), st.booleans())


@dataclass
class Grown:
    """A tree after random changes, what should be in it, and how it was asked for."""

    tree: FixedPst
    kept: list[FixedSubscription]
    declared: bool
    optimisations: Optimisations
    order: tuple[str, ...]

    def fresh(
        self, kept: list[FixedSubscription] | None = None, optimisations: Optimisations | None = None
    ) -> FixedPst:
        """A tree that never held anything else."""
        tree = FixedPst(self.order, DOMAINS if self.declared else None, optimisations or self.optimisations)
        tree.insert_all(self.kept if kept is None else kept)
        return tree

    def links_for(self, attributes: dict[str, Value]) -> int:
        """Every link that leads to a subscription that accepts."""
        links = 0
        for each in self.kept:
            if accepts(each.predicate, attributes):
                links |= each.links
        return links


@st.composite
def grown_trees(draw: st.DrawFn) -> Grown:
    optimisations, declared = draw(OPTIMISATIONS), draw(st.booleans())
    order = tuple(draw(st.permutations(NAMES)))
    one = predicates(order[: optimisations.index_attributes], wide=not declared)
    found = draw(st.lists(st.tuples(one, st.integers(0, LINKS - 1), st.booleans()), max_size=16))
    tree = FixedPst(order, DOMAINS if declared else None, optimisations)
    grown = Grown(tree, [], declared, optimisations, order)
    for number, (predicate, link, _) in enumerate(found):
        grown.tree.insert(number, predicate, 1 << link)
    for number, (predicate, link, stays) in enumerate(found):
        if stays:
            grown.kept.append(FixedSubscription(number, predicate, 1 << link))
        else:
            grown.tree.remove(number)
    return grown


DECLARED_EVENTS = st.sampled_from(EVENTS)
ANY_EVENTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*DOMAIN, *ODD_VALUES]))


@given(grown_trees(), st.data(), st.integers(0, (1 << LINKS) - 1))
def test_matches_and_links_are_those_of_asking_every_subscription(grown: Grown, data: st.DataObject, mask: int) -> None:
    attributes = data.draw(DECLARED_EVENTS if grown.declared else ANY_EVENTS)
    found, steps = grown.tree.match(attributes)
    assert sorted(found) == [each.number for each in grown.kept if accepts(each.predicate, attributes)]
    decision = grown.tree.decide(attributes, mask)
    assert decision.yes == grown.links_for(attributes) & mask
    assert decision.steps <= steps
    assert len(grown.tree) == len(grown.kept)


def described(node: Node) -> object:
    """Everything about the sub-tree at *node*, to be compared."""
    if isinstance(node, Leaf):
        return node.members, node.annotation
    edges = {label: described(child) for label, child in node.edges()}
    return node.rank, edges, node.annotation, node.shared


@given(grown_trees())
def test_what_was_annotated_path_by_path_is_what_is_annotated_from_scratch(grown: Grown) -> None:
    kept = {key: described(root) for key, root in grown.tree.roots().items()}
    anew = {key: described(root) for key, root in grown.fresh().roots().items()}
    assert kept == anew


@given(grown_trees())
def test_yes_is_certain_and_no_is_impossible_for_every_event_that_comes_by(grown: Grown) -> None:
    links = {each.number: each.links for each in grown.kept}

    def check(node: Node, values: list[Value]) -> None:
        found: list[int] = []
        collect(node, values, found)
        wanted = 0
        for number in found:
            wanted |= links[number]
        assert node.annotation.yes & ~wanted == 0
        assert wanted & ~node.annotation.reach == 0
        if isinstance(node, Branch):
            for child in node.taken(values[node.rank]):
                check(child, values)
            if node.star is not None:
                check(node.star, values)

    for root in grown.tree.roots().values():
        for attributes in EVENTS[::7]:
            values = [attributes[name] for name in grown.order]
            check(root, values)


@given(grown_trees())
def test_optimisations_never_cost_steps(grown: Grown) -> None:
    plain = grown.fresh(optimisations=Optimisations(grown.optimisations.index_attributes))
    mask = (1 << LINKS) - 1
    for attributes in EVENTS[::5]:
        assert grown.tree.match(attributes)[1] <= plain.match(attributes)[1]
        assert grown.tree.decide(attributes, mask).steps <= plain.decide(attributes, mask).steps


@given(grown_trees(), DECLARED_EVENTS)
def test_brokers_side_by_side_in_one_tree_decide_as_each_would_alone(
    grown: Grown, attributes: dict[str, Value]
) -> None:
    # Broker A reaches them over links 0 to 3, broker B over 4 and 5.
    own = {"A": [each.links for each in grown.kept], "B": [1 << 4 + each.number % 2 for each in grown.kept]}
    alone = {
        broker: grown.fresh([each._replace(links=bits) for each, bits in zip(grown.kept, links, strict=True)])
        for broker, links in own.items()
    }
    shared = [each._replace(links=a | b) for each, a, b in zip(grown.kept, own["A"], own["B"], strict=True)]
    together = grown.fresh(shared)
    for broker, mask in (("A", 0b001111), ("B", 0b110000)):
        assert together.decide(attributes, mask) == alone[broker].decide(attributes, mask)


@given(grown_trees())
def test_nothing_remains_when_everything_is_taken_out(grown: Grown) -> None:
    for each in grown.kept:
        grown.tree.remove(each.number)
    assert (len(grown.tree), grown.tree.count_nodes(), grown.tree.roots()) == (0, 0, {})


# -- the small print --------------------------------------------------------------------------------------------------


def test_a_value_that_no_subscription_names_shares_the_tree_of_all_such_values() -> None:
    tree = FixedPst(NAMES, optimisations=Optimisations(index_attributes=1))
    tree.insert(1, (equal("a", 1), equal("b", 1)), 1)
    tree.insert(2, (equal("b", 1),), 2)
    assert set(tree.roots()) == {(1,), (OtherValue.OTHER,)}
    for value in (1, 2, 3):
        assert tree.decide({"a": value, "b": 1}, 3).yes == (3 if value == 1 else 2)
    tree.remove(1)
    assert set(tree.roots()) == {(OtherValue.OTHER,)}


def test_an_event_without_a_tree_takes_one_step_and_no_link() -> None:
    tree = FixedPst(NAMES, optimisations=Optimisations(index_attributes=1))
    tree.insert(1, (equal("a", 1),), 1)
    assert tree.decide({"a": 2}, 1) == (0, 1)
    assert tree.match({"a": 2}) == ([], 1)


def test_an_index_attribute_is_tested_for_one_value_or_not_at_all() -> None:
    tree = FixedPst(NAMES, optimisations=Optimisations(index_attributes=1))
    with pytest.raises(ValueError, match="index attribute a"):
        tree.insert(1, (wide_tests("a")[2],), 1)
    assert len(tree) == 0


def test_a_number_is_used_once() -> None:
    tree = FixedPst(NAMES)
    tree.insert(1, (), 1)
    with pytest.raises(ValueError, match="subscription 1 is in the tree"):
        tree.insert(1, (equal("a", 1),), 1)


def test_trivial_tests_are_eliminated() -> None:
    tree = FixedPst(NAMES, optimisations=Optimisations(trivial_test_elimination=True))
    tree.insert(1, (equal("d", 1),), 1)
    assert tree.count_nodes() == 2
    tree.insert(2, (equal("b", 1),), 1)
    assert tree.count_nodes() == 4
    tree.remove(2)
    assert tree.count_nodes() == 2


def test_a_branch_is_delayed_until_it_is_known_to_fail() -> None:
    predicate = (equal("a", 1), equal("d", 1))
    for optimisations, steps in ((PLAIN, 4), (Optimisations(delayed_branching=True), 2)):
        tree = FixedPst(NAMES, optimisations=optimisations)
        tree.insert(1, predicate, 1)
        assert tree.match({"a": 1, "b": 1, "c": 1, "d": 2}) == ([], steps)
        assert tree.match({"a": 1, "b": 1, "c": 1, "d": 1}) == ([1], 5)


def test_the_attribute_that_is_tested_most_comes_first() -> None:
    asked = [(equal("c", 1),), (equal("b", 1), equal("c", 2)), ()]
    assert fewest_stars_first(NAMES, asked) == ("c", "b", "a", "d")
