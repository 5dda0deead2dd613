"""Laws of explanations: what is told of a search is what the search does, whatever tree and event.

EDGEBROKER_TEST_SEED=7 .venv/bin/pytest tests/laws/test_trace_laws.py      other cases; one that fails names its number
"""

from __future__ import annotations

import random

import pytest

from edgebroker.matching.linktrace import LinkTrace, Why
from edgebroker.matching.placement import placements
from edgebroker.matching.portrait import Portrait, SketchKind
from edgebroker.matching.pst import Pst
from edgebroker.matching.trace import SearchTrace
from edgebroker.predicate import Value

from .matching.cases import SMALL, Case, case_of
from .matching.planting import growing, one_tree

CASES = 60
EVENTS = 6
MASKS = (1, 0b1010_1010, (1 << 200) - 1)


def grown(case: Case, rng: random.Random) -> Pst:
    """A tree with most subscriptions of *case*, some of which have come, gone and come again."""
    (tree,) = one_tree(case)
    with growing(case):
        for number, subscription in zip(case.numbers, case.subscriptions, strict=True):
            tree.insert(number, subscription.topic_filter, subscription.predicates, subscription.link)
        for number, subscription in zip(case.numbers, case.subscriptions, strict=True):
            if rng.random() < 0.3:
                tree.remove(number)
                if rng.random() < 0.5:
                    tree.insert(number, subscription.topic_filter, subscription.predicates, subscription.link)
    return tree


def event_of(case: Case, rng: random.Random) -> dict[str, Value]:
    return {name: rng.choice(values) for name, values in case.values.items() if rng.random() < case.presence}


@pytest.mark.parametrize("part", range(4))
def test_a_trace_is_the_search(part: int, seed: int) -> None:
    for number in range(part, CASES, 4):
        case = case_of(seed * 1_000 + number, SMALL)
        rng = random.Random(case.seed)
        tree = grown(case, rng)
        for _ in range(EVENTS):
            topic, attributes = rng.choice(case.topics), event_of(case, rng)
            trace = SearchTrace(tree, topic, attributes)
            about = f"case {number} of seed {seed}, {topic!r}, {attributes!r}"
            resolution = tree.resolve(topic)
            before = tree.steps
            matched = [*resolution.plain, *tree.match(resolution, attributes)]
            assert sorted(trace.numbers) == sorted(matched), about
            assert len(trace.steps) == tree.steps - before, about
            for member in [one for one in case.numbers if one in tree and tree.end_of(one) in trace.ends]:
                fates = trace.fates(member)
                assert any(fate.matches for fate in fates) == (member in trace.numbers and bool(fates)), about
                assert all(1 <= fate.step <= len(trace.steps) for fate in fates), about
            for mask in MASKS:
                links = LinkTrace(trace, mask)
                decision = tree.decide(resolution, attributes, mask)
                assert (links.yes, len(links.steps)) == (decision.yes, decision.steps), about
                assert sum(end.yes << end.link for end in links.ends) == decision.yes, about
                assert all(end.yes == (end.why in (Why.PLAIN, Why.CERTAIN, Why.FOUND)) for end in links.ends), about


def test_every_subscription_sits_where_its_leaf_is_and_every_leaf_is_in_the_portrait(seed: int) -> None:
    for number in range(CASES):
        case = case_of(seed * 1_000 + number, SMALL)
        tree = grown(case, random.Random(case.seed))
        sketches = [sketch for _, sketch in Portrait(tree).walk()]
        census = tree.census()
        leaves = sum(sketch.leaves for sketch in sketches if sketch.kind is SketchKind.BUCKET)
        assert (leaves, census.buckets) == (census.leaves, sum(one.kind is SketchKind.BUCKET for one in sketches)), (
            number
        )
        ends = [sketch.end for sketch in sketches if sketch.end is not None]
        assert sum(end.subscriptions for end in ends) == census.subscriptions, number
        assert len({end.text for end in ends}) == len(ends) == len(tree.topics), number
        for member, subscription in zip(case.numbers, case.subscriptions, strict=True):
            if member in tree:
                placed = placements(tree, member)
                assert {one.predicate for one in placed} <= set(subscription.predicates), number
                assert all(one.topic_filter == subscription.topic_filter.text for one in placed), number
