"""The tree as text, and the small print of the tree's interface."""

from __future__ import annotations

import pytest

from edgebroker.matching.portrait import portrait
from edgebroker.matching.pst import Pst
from edgebroker.predicate import ANY_RUN, ElementaryTest, Interval, Kind, Pattern, Predicate
from edgebroker.topics import TopicFilter

WARM: Predicate = (ElementaryTest("temp", Kind.NUMBER, (Interval(low=30),)),)
HERE: Predicate = (
    ElementaryTest("open", Kind.BOOLEAN, (Interval(True, True, True, True),)),
    ElementaryTest("site", Kind.STRING, (Interval("x", True, "x", True),)),
)
ODD: Predicate = (
    ElementaryTest("note", Kind.NOT_NULL),
    ElementaryTest("site", Kind.STRING, (Interval(),), (Pattern((ANY_RUN, "it's"), negated=True),)),
    ElementaryTest("temp", Kind.NUMBER, (Interval(0, True, 5), Interval(7, True, 7, True))),
)


def tree_of(*subscriptions: tuple[str, list[Predicate]]) -> Pst:
    tree = Pst()
    for number, (text, predicates) in enumerate(subscriptions, start=1):
        tree.insert(number, TopicFilter.parse(text), predicates)
    return tree


def test_a_portrait_shows_tests_and_subscriptions() -> None:
    tree = tree_of(("a/+", [()]), ("a/#", [WARM]), ("a/#", [HERE, WARM]), ("a/b", [ODD]), ("a/b", [(ODD[0],)]))
    assert portrait(tree) == "\n".join(
        [
            "level 1: a",
            "  level 2: b",
            "    level 3: none",
            "      note IS NOT NULL",
            "        site NOT LIKE '%it''s'",
            "          0 <= temp < 5 or temp = 7",
            "            -> 4",
            "        site: *",
            "          -> 5",
            "  level 2: +",
            "    level 3: none",
            "      -> 1",
            "  level 2: #",
            "    30 < temp",
            "      -> 2, 3",
            "    temp: *",
            "      open = TRUE",
            "        site = 'x'",
            "          -> 3",
        ]
    )


def test_a_large_portrait_is_cut() -> None:
    assert portrait(tree_of(("a/b/c", [()])), lines_max=2) == "level 1: a\n  level 2: b\n..."


def test_an_empty_tree_has_an_empty_portrait() -> None:
    assert portrait(Pst()) == ""


def test_a_number_is_used_once() -> None:
    tree = tree_of(("a", [()]))
    with pytest.raises(ValueError, match="subscription 1"):
        tree.insert(1, TopicFilter.parse("b"), [()])
    assert 1 in tree
    tree.remove(1)
    with pytest.raises(KeyError):
        tree.remove(1)


def test_a_resolution_is_good_for_its_epoch_only() -> None:
    tree = tree_of(("a", [WARM]))
    resolution = tree.resolve("a")
    assert tree.match(resolution, {"temp": 31}) == [1]
    tree.insert(2, TopicFilter.parse("other"), [()])
    with pytest.raises(ValueError, match="epoch"):
        tree.match(resolution, {"temp": 31})


def test_matching_steps_are_counted() -> None:
    tree = tree_of(("a", [WARM]), ("a", [HERE]))
    tree.match(tree.resolve("a"), {"temp": 31})
    assert tree.steps == 3  # the nodes of "temp" and "open", and the leaf of subscription 1


def test_a_tree_says_about_how_large_it_is() -> None:
    small, large = tree_of(("a", [WARM])), tree_of(*(("a", [HERE, WARM, ODD]) for _ in range(10)))
    assert 0 < small.bytes_estimate() < large.bytes_estimate()
