"""Laws of widening, by random interests and every event of a grid: what any interest accepts, one of the few that they
became accepts; they take no more bytes than they may; and what is said to be exact accepts nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import product

import pytest

from edgebroker.filters import Filter
from edgebroker.filters.elementary import union
from edgebroker.filters.widening import is_covered, octets_of, widened
from edgebroker.interest import Interest
from edgebroker.predicate import Attributes, Interval
from edgebroker.topics import TopicFilter

FILTERS = tuple("# s/# s/a/# s/+/x s/a/x s/b/x s/c/x s/a/y s/a t +/a/x /x s//x +/+ $a/x".split())
TOPICS = tuple("s s/a s/b s/a/x s/b/x s/c/x s/d/x s/a/y s/a/x/z t t/a/x /x s//x $a/x q".split())
NUMBERS = (None, 0, 0.1, 1, 1.5, 2, 3, 3.7, 2**53 + 1, True, "a")
TEXTS = (None, "", "a", "ab", "abc", "b", "zz", False, 1)
CONDITIONS = (
    "v > {0}", "v < {0}", "v = {0}", "v <> {0}", "v BETWEEN {0} AND {1}", "v IN ({0}, {1})",
    "v IS NULL", "v IS NOT NULL", "v = TRUE", "v = 'a'",
    "w = '{2}'", "w > '{2}'", "w LIKE '{2}%'", "w LIKE '%{2}_'", "w NOT LIKE '{2}%b'", "w IN ('{2}', 'zz')",
    "w IS NULL",
    "$level2 = '{2}'", "$level2 IN ('a', '{2}')", "$level1 <> 's'", "$topic > 's/b'",
)  # fmt: skip


def condition(chance: random.Random) -> str:
    low, high = sorted(chance.choices((0, 0.1, 1, 1.5, 2, 3.7, 16777217.5), k=2))
    return chance.choice(CONDITIONS).format(low, high, chance.choice(("a", "ab", "b", "")))


def some_interests(chance: random.Random, count: int) -> list[Interest]:
    interests: dict[Interest, None] = {}
    while len(interests) < count:
        topic_filter = TopicFilter.parse(chance.choice(FILTERS))
        terms = [condition(chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 3)))]
        predicates = Filter.parse(" AND ".join(terms)).predicates if terms else ((),)
        interests |= {Interest(topic_filter, predicate): None for predicate in predicates}
    return [*interests]


def events() -> Iterator[tuple[str, Attributes]]:
    for topic, number, text in product(TOPICS, NUMBERS, TEXTS):
        levels = {f"$level{at}": level for at, level in enumerate(topic.split("/"), 1)}
        yield topic, {"v": number, "w": text, "$topic": topic, **levels}


EVENTS = tuple(events())


def accepted(interests: tuple[Interest, ...]) -> set[int]:
    return {
        at for at, (topic, attributes) in enumerate(EVENTS) if any(one.accepts(topic, attributes) for one in interests)
    }


@pytest.mark.parametrize("seed", range(60))
def test_it_is_never_too_narrow(seed: int) -> None:
    chance = random.Random(f"{seed} widening")
    interests = tuple(some_interests(chance, chance.choice((2, 5, 10, 30))))
    wanted, octets = accepted(interests), octets_of(interests)
    for share in (1.0, 0.9, 0.6, 0.3, 0.1):
        widening = widened(interests, math.floor(octets * share))
        if widening is None:
            assert any(one.topic_filter.text.startswith("$") for one in interests) or octets * share < 30
            continue
        found = accepted(widening.interests)
        assert wanted <= found, [EVENTS[at] for at in sorted(wanted - found)[:3]]
        assert octets_of(widening.interests) <= octets * share
        assert not widening.is_exact or found == wanted
        assert widening == widened(interests, math.floor(octets * share)), "the same interests give the same result"


@pytest.mark.parametrize("seed", range(30))
def test_what_is_covered_accepts_nothing_else(seed: int) -> None:
    chance = random.Random(f"{seed} covered")
    covering, one = tuple(some_interests(chance, 3)), some_interests(chance, 1)[0]
    assert not is_covered(one, covering) or accepted((one,)) <= accepted(covering)


@pytest.mark.parametrize("seed", range(10))
def test_all_that_was_widened_is_covered(seed: int) -> None:
    chance = random.Random(f"{seed} all")
    names = [f"plant/line/device-{chance.randrange(10_000):04}/set" for _ in range(300)]
    interests = tuple(Interest(TopicFilter.parse(name), ()) for name in dict.fromkeys(names))
    widening = widened(interests, 2_048)
    assert widening is not None
    assert not widening.is_exact
    assert all(is_covered(one, widening.interests) for one in interests)
    assert len(widening.interests) < 3, "they differ in one level"
    [test] = widening.interests[0].predicate
    assert test.intervals == union(test.intervals)
    assert Interval() not in test.intervals
