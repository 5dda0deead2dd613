"""Explanations of the engine: where a subscription sits and what it costs, and what an event does on its way."""

from __future__ import annotations

import pytest

from edgebroker.filters import Filter
from edgebroker.matching.linktrace import LinkTrace, Why
from edgebroker.matching.outcomes import TritVector, format_trits
from edgebroker.matching.placement import Placement, SettlementKind, placements
from edgebroker.matching.pst import Pst
from edgebroker.matching.trace import SearchTrace
from edgebroker.predicate import Value
from edgebroker.topics import TopicFilter

BUCKET = 40


class Garden:
    """A tree of buckets of BUCKET predicates whose subscriptions have names."""

    def __init__(self) -> None:
        self.tree = Pst(bucket_max=BUCKET)
        self.numbers: dict[str, int] = {}

    def plant(self, name: str, topic: str, where: str | None, link: int = 0) -> None:
        number = self.numbers[name] = len(self.numbers) + 1
        predicates = Filter.parse(where).predicates if where is not None else ((),)
        self.tree.insert(number, TopicFilter.parse(topic), predicates, link)

    def placed(self, name: str) -> tuple[Placement, ...]:
        return placements(self.tree, self.numbers[name])


@pytest.fixture(scope="module")
def garden() -> Garden:
    """`t/#` is a fork on site with a bucket for each and one for `*`; `u` a bucket with columns; `v` a small one.

    Sites a and b are reached over links 0 and 1, and the fork's `*` edge over link 2.
    """
    made = Garden()
    for link, site in enumerate("ab"):
        for note in range(20):
            made.plant(f"{site}{note}", "t/#", f"site = '{site}' AND note LIKE '%{note}'", link)
    made.plant("star", "t/#", "note LIKE '%z'", 2)
    made.plant("all of a", "t/#", "site = 'a'", 0)
    made.plant("twin of a0", "t/#", "note LIKE '%0' AND site = 'a'", 0)
    for number in range(31):
        made.plant(f"u{number}", "u", f"n = {number % 4} AND m > {number // 4}", 3)
    made.plant("pattern", "u", "rare LIKE '%x' AND n = 1", 3)
    made.plant("either", "v", "n = 1 OR site = 'a'", 4)
    made.plant("plain", "v/+", None, 5)
    made.plant("hopeless", "v", "n = 1 AND n = 2", 5)
    return made


# -- where a subscription sits ----------------------------------------------------------------------------------------


def test_a_path_is_told_edge_by_edge(garden: Garden) -> None:
    (placed,) = garden.placed("b3")
    assert placed.topic_filter == "t/#"
    assert [(turn.attribute, turn.label, turn.reason, turn.edges, turn.leaves) for turn in placed.turns] == [
        ("site", "site: 'b'", "", 3, 20)
    ]
    assert (placed.steps, placed.leaves, placed.members) == (2, 20, 1)


def test_a_star_edge_says_why_it_was_taken(garden: Garden) -> None:
    (placed,) = garden.placed("star")
    assert [(turn.label, turn.reason) for turn in placed.turns] == [("*", "not tested")]
    wide = Garden()
    for number in range(BUCKET + 1):
        wide.plant(f"{number}", "t", f"a = {number % 5} AND note LIKE '%{number}'")
    wide.plant("wide", "t", "a > 0 AND note LIKE '%x'")
    (placed,) = wide.placed("wide")
    assert [(turn.label, turn.reason) for turn in placed.turns][:1] == [("*", "accepts most values")]


def test_each_test_is_settled_by_the_path_or_compared_where_there_is_no_column(garden: Garden) -> None:
    (placed,) = garden.placed("a3")
    assert [(one.test.attribute, one.settled) for one in placed.tests] == [
        ("note", SettlementKind.UNCUT),
        ("site", SettlementKind.PATH),
    ]
    assert placed.is_verified
    assert placed.has_few_neighbours
    (certain,) = garden.placed("all of a")
    assert certain.is_certain
    assert not certain.is_verified


def test_columns_decide_or_narrow_down(garden: Garden) -> None:
    (placed,) = garden.placed("u1")
    assert sorted(placed.columns) == ["m", "n"]
    assert [(one.test.attribute, one.settled) for one in placed.tests] == [
        ("m", SettlementKind.CELLS),
        ("n", SettlementKind.CELLS),
    ]
    assert not placed.is_verified
    (pattern,) = garden.placed("pattern")
    assert [one.settled for one in pattern.tests] == [SettlementKind.CELLS, SettlementKind.UNCUT]


def test_bounds_inside_a_cell_are_loose() -> None:
    crowd = Garden()
    crowd.tree = Pst(bucket_max=100)
    for number in range(64):
        crowd.plant(f"{number}", "t", f"a > {number}")
    settled = {crowd.placed(f"{number}")[0].tests[0].settled for number in range(64)}
    assert settled == {
        SettlementKind.CELLS,
        SettlementKind.LOOSE,
    }  # 64 cuts are too many; those that were kept decide their own


def test_equal_predicates_share_a_leaf(garden: Garden) -> None:
    (placed,), (twin,) = garden.placed("a0"), garden.placed("twin of a0")
    assert placed == twin
    assert placed.members == 2


def test_every_predicate_of_a_filter_is_placed_and_a_topic_alone_has_none(garden: Garden) -> None:
    assert [len(one.predicate) for one in garden.placed("either")] == [1, 1]
    assert garden.placed("plain") == garden.placed("hopeless") == ()
    with pytest.raises(KeyError):
        placements(garden.tree, 10_000)


def test_a_fork_that_tests_nothing_says_so() -> None:
    same = Garden()
    for number in range(BUCKET + 1):
        same.plant(f"{number}", "t", f"note LIKE '%{number}'")
    (placed,) = same.placed("0")
    assert [(turn.attribute, turn.reason) for turn in placed.turns] == [("", "nothing tells the predicates apart")]


# -- what an event does -----------------------------------------------------------------------------------------------


def names_of(garden: Garden, numbers: object) -> set[str]:
    by_number = {number: name for name, number in garden.numbers.items()}
    return {by_number[number] for number in numbers}  # type: ignore[attr-defined]


def trace(garden: Garden, topic: str, **attributes: Value) -> SearchTrace:
    return SearchTrace(garden.tree, topic, attributes)


def test_edges_taken_and_left_are_told(garden: Garden) -> None:
    fork, site, star = trace(garden, "t/x", site="b", note="z3").steps
    assert fork.is_fork
    assert (fork.number, fork.depth, fork.attribute, fork.value, fork.leaves) == (1, 0, "site", "b", 42)
    assert [(edge.label, edge.taken) for edge in fork.edges] == [
        ("site: 'a'", False),
        ("site: 'b'", True),
        ("*", True),
    ]
    assert [(step.number, step.depth, step.label, step.topic_filter) for step in (site, star)] == [
        (2, 1, "site: 'b'", "t/#"),
        (3, 1, "*", "t/#"),
    ]


def test_what_was_compared_in_vain_is_told_with_the_test_that_failed(garden: Garden) -> None:
    _, site, star = trace(garden, "t/x", site="b", note="13").steps
    assert (site.left, len(site.compared), len(site.in_vain)) == (20, 20, 18)
    failed = {name for one in site.in_vain for name in names_of(garden, one.numbers)}
    assert failed == {f"b{note}" for note in range(20)} - {"b3", "b13"}
    assert {one.failed.attribute for one in (*site.in_vain, *star.in_vain) if one.failed} == {"note"}


def test_what_matches_is_found_with_and_without_comparing(garden: Garden) -> None:
    found = trace(garden, "t/x", site="a", note="z0")
    assert names_of(garden, found.numbers) == {"a0", "all of a", "twin of a0"}
    assert names_of(garden, found.steps[1].decided) == {"all of a"}
    columns = trace(garden, "u", n=1, m=2, rare="ax")
    assert names_of(garden, columns.numbers) == {"u1", "u5", "pattern"}
    (step,) = columns.steps
    assert (sorted(step.columns), step.left) == (["m", "n"], 3)
    assert names_of(garden, step.decided) == {"u1", "u5"}


def test_topic_filters_without_content_take_no_step(garden: Garden) -> None:
    found = trace(garden, "v/x")
    assert [end.text for end in found.ends] == ["v/+"]
    assert (found.steps, names_of(garden, found.numbers)) == ([], {"plain"})


def test_the_fate_of_a_subscription_names_the_step_and_the_cause(garden: Garden) -> None:
    found = trace(garden, "t/x", site="b", note="z3")
    (lost,) = found.fates(garden.numbers["a3"])
    assert (lost.step, lost.edge, lost.matches) == (1, "site: 'a'", False)
    (failed,) = found.fates(garden.numbers["b4"])
    assert (failed.step, failed.failed and failed.failed.attribute, failed.matches) == (2, "note", False)
    (matched,) = found.fates(garden.numbers["b3"])
    assert (matched.step, matched.matches) == (2, True)
    columns = trace(garden, "u", n=1, m=2)
    (left_out,) = columns.fates(garden.numbers["u9"])
    assert (left_out.step, left_out.column, left_out.matches) == (1, "m", False)
    assert trace(garden, "v").fates(garden.numbers["hopeless"]) == ()
    with pytest.raises(KeyError):
        columns.fates(garden.numbers["a0"])


def test_a_number_between_two_floats_settles_nothing(garden: Garden) -> None:
    between = 2**53 + 1
    found = trace(garden, "u", n=1, m=between)
    (step,) = found.steps
    assert step.decided == ()  # the value lies inside a cell, so that each predicate left over is compared
    assert names_of(garden, found.numbers) == {f"u{number}" for number in range(1, 31, 4)}


# -- how links are decided --------------------------------------------------------------------------------------------

LINKS = 6
ALL = (1 << LINKS) - 1


def letters(trits: TritVector) -> str:
    return format_trits(trits, LINKS)


def test_the_mask_is_told_at_every_node(garden: Garden) -> None:
    links = LinkTrace(trace(garden, "t/x", site="b", note="z3"), ALL)
    assert [
        (step.number, letters(step.mask), letters(step.annotation), letters(step.refined)) for step in links.steps
    ] == [
        (1, "MMMMMM", "MMMNNN", "MMMNNN"),
        (2, "MMMNNN", "NMNNNN", "NMNNNN"),
        (3, "MYMNNN", "NNMNNN", "NYMNNN"),
    ]
    assert letters(TritVector(links.yes, 0)) == "NYNNNN"


def test_every_link_ends_with_a_reason(garden: Garden) -> None:
    links = LinkTrace(trace(garden, "t/x", site="a", note="z3"), ALL)
    assert [(end.link, end.yes, end.why, end.step) for end in links.ends] == [
        (0, True, Why.CERTAIN, 2),
        (1, False, Why.CLOSED, 2),
        (2, False, Why.SEARCHED, 3),
        (3, False, Why.CLOSED, 1),
        (4, False, Why.CLOSED, 1),
        (5, False, Why.CLOSED, 1),
    ]
    assert [(end.link, end.why) for end in LinkTrace(trace(garden, "v/x"), 0b110000).ends] == [
        (4, Why.NOBODY),
        (5, Why.PLAIN),
    ]


def test_only_the_links_of_the_mask_are_searched_for(garden: Garden) -> None:
    links = LinkTrace(trace(garden, "t/x", site="a", note="z"), 0b1000)
    assert [(end.link, end.yes) for end in links.ends] == [(3, False)]
    assert len(links.steps) == 1


def test_the_search_for_links_ends_when_none_is_open(garden: Garden) -> None:
    links = LinkTrace(trace(garden, "t/x", site="a", note="z"), 0b0001)
    assert (links.yes, len(links.steps)) == (1, 2)  # the `*` edge is not visited
    plain = LinkTrace(trace(garden, "v/x"), 0b100000)
    assert (plain.yes, plain.steps) == (0b100000, [])


def test_an_event_that_takes_no_edge_closes_its_links_there() -> None:
    bare = Garden()
    for number in range(BUCKET + 1):
        bare.plant(f"{number}", "t", f"site = '{number % 5}' AND note LIKE '%{number}'")
    (end,) = LinkTrace(trace(bare, "t", site="nowhere"), 1).ends
    assert (end.yes, end.why, end.step) == (False, Why.NO_EDGE, 1)
