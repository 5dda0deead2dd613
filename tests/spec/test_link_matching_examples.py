"""The worked examples of link matching: annotations of one node, and broker C in a network of four brokers."""

from __future__ import annotations

import pytest

from edgebroker.matching.outcomes import format_trits, refine
from edgebroker.predicate import ElementaryTest, Interval, Predicate, Value, ValueType
from edgelab.experiment.published_tree import STAR, FixedPst
from tests.support.trits import parse_trits

NAMES = ("a1", "a2", "a3", "a4", "a5")
L1, L2, L3 = 1, 2, 4


def predicate(**values: int) -> Predicate:
    """`a1=1, a2=2` as a conjunction of equality tests."""
    return tuple(
        ElementaryTest(name, ValueType.NUMBER, (Interval(value, True, value, True),))
        for name, value in sorted(values.items())
    )


def event(*values: int) -> dict[str, Value]:
    return dict(zip(NAMES, values, strict=True))


# -- one node -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "star", "annotation"),
    [
        ((1, 3), "YYN", "YYM"),
        ((1, 2, 3), "YYN", "YYM"),
        ((1, 3), None, "MYM"),
        ((1, 2, 3), None, "MMM"),  # value 2 matches nothing: without that alternative it would wrongly be MYM
        (None, None, "MMM"),  # the same for a domain that is not declared
        (None, "YYN", "YYM"),
    ],
)
def test_one_node_with_the_children_1_and_3(domain: tuple[int, ...] | None, star: str | None, annotation: str) -> None:
    # Child 1 is MYY and child 3 is NYN. A second attribute that is tested for one value makes the M.
    tree = FixedPst(("a", "b"), {"a": domain} if domain else {})
    tree.insert(1, predicate(a=1, b=1), L1)
    tree.insert(2, predicate(a=1), L2)
    tree.insert(3, predicate(a=1), L3)
    tree.insert(4, predicate(a=3), L2)
    if star is not None:
        tree.insert(5, (), L1)
        tree.insert(6, (), L2)
        assert format_trits(tree.annotation([STAR]), 3) == star
    assert format_trits(tree.annotation([1]), 3) == "MYY"
    assert format_trits(tree.annotation([3]), 3) == "NYN"
    assert format_trits(tree.annotation(), 3) == annotation


# -- broker C ---------------------------------------------------------------------------------------------------------

SUBSCRIPTIONS: list[tuple[int, Predicate, int]] = [
    (1, predicate(a1=1, a2=2, a3=3, a5=3), L1),  # of client C1
    (2, predicate(a1=2, a3=3), L2),  # C6
    (3, predicate(), L2),  # C7
    (4, predicate(a1=2, a2=1, a4=1), L3),  # C5
    (5, predicate(a1=2), L1),  # C3
    (6, predicate(a1=1, a2=2, a5=2), L3),  # C5
]

P1 = "NMM"  # events of publisher P1 come in over L1
P2 = "MMM"  # publisher P2 is a client of C itself


@pytest.fixture
def at_c() -> FixedPst:
    tree = FixedPst(NAMES, dict.fromkeys(NAMES, (1, 2, 3, 4)))
    for number, tests, link in SUBSCRIPTIONS:
        tree.insert(number, tests, link)
    return tree


def test_the_tree_has_26_nodes(at_c: FixedPst) -> None:
    assert at_c.count_nodes() == 26


ANNOTATIONS = {
    "MYM": [""],
    "MNM": ["1", "12"],
    "MNN": ["123", "123*"],
    "YNN": ["123*3", "2**", "2***", "2****"],
    "NNM": ["12*", "12**", "21", "21*"],
    "NNY": ["12**2", "21*1", "21*1*"],
    "YMM": ["2"],
    "YMN": ["2*"],
    "NYN": ["2*3", "2*3*", "2*3**", "*", "**", "***", "****", "*****"],
}


@pytest.mark.parametrize(
    ("path", "annotation"), [(path, annotation) for annotation, paths in ANNOTATIONS.items() for path in paths]
)
def test_the_annotations_at_c(at_c: FixedPst, path: str, annotation: str) -> None:
    labels = [STAR if letter == "*" else int(letter) for letter in path]
    assert format_trits(at_c.annotation(labels), 3) == annotation


def test_all_26_annotations_are_listed() -> None:
    assert sum(map(len, ANNOTATIONS.values())) == 26


@pytest.mark.parametrize(
    ("mask", "values", "after_root", "result", "matching", "steps", "centralised_steps"),
    [
        (P1, (2, 1, 3, 2, 3), "NYM", "NYN", [2, 3, 5], 6, 16),
        (P2, (2, 1, 3, 2, 3), "MYM", "YYN", [2, 3, 5], 6, 16),
        (P2, (1, 2, 3, 1, 2), "MYM", "NYY", [3, 6], 9, 13),
        (P2, (1, 2, 3, 4, 3), "MYM", "YYN", [1, 3], 9, 13),
        (P1, (2, 1, 3, 1, 4), "NYM", "NYY", [2, 3, 4, 5], 5, 18),
        (P2, (4, 4, 4, 4, 4), "MYM", "NYN", [3], 2, 6),
    ],
)
def test_the_events_at_c(
    at_c: FixedPst,
    mask: str,
    values: tuple[int, ...],
    after_root: str,
    result: str,
    matching: list[int],
    steps: int,
    centralised_steps: int,
) -> None:
    initial = parse_trits(mask)
    assert format_trits(refine(initial, at_c.annotation()), 3) == after_root
    decision = at_c.decide(event(*values), initial.maybe)
    assert (decision.yes, decision.steps) == (parse_trits(result).yes, steps)
    found, visited = at_c.match(event(*values))
    assert (sorted(found), visited) == (matching, centralised_steps)


def test_only_the_mask_keeps_an_event_from_going_back(at_c: FixedPst) -> None:
    # The tree alone says that C3, reached over L1, wants the event; P1's events come from there.
    assert at_c.decide(event(2, 1, 3, 2, 3), parse_trits(P2).maybe).yes & L1
    assert not at_c.decide(event(2, 1, 3, 2, 3), parse_trits(P1).maybe).yes & L1


def test_nothing_remains_of_subscriptions_taken_out_in_any_order(at_c: FixedPst) -> None:
    for number in (3, 1, 6, 5, 2, 4):
        at_c.remove(number)
    assert at_c.count_nodes() == 0
