"""Laws of covering: what is said to be covered is; without patterns what is not said is refuted by an event; and what a
neighbour was told accepts what the subscriptions accept, no more, no less, and nothing twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product

import pytest

from edgebroker.errors import TopicInvalid
from edgebroker.filters.announcement import CoveringAnnouncer, InterestDelta, LinkAnnouncer
from edgebroker.filters.boxes import is_like_all, is_like_any
from edgebroker.filters.covering import are_apart, common_example, counterexample, covers, merged
from edgebroker.filters.covering_index import SpanIndex
from edgebroker.filters.elementary import Span, complement, point, union
from edgebroker.filters.patterns import parts_of
from edgebroker.interest import Interest
from edgebroker.predicate import (
    COMPOSITE,
    Attributes,
    Bound,
    ElementaryTest,
    Interval,
    Pattern,
    Predicate,
    Value,
    ValueType,
)
from edgebroker.topics import TopicFilter

# -- random predicates and events: few values, and their neighbours --------------------------------------------------

NAMES = ("a", "b", "c")
ABOVE_ONE = math.nextafter(1, 2)
NUMBERS: tuple[Bound, ...] = (-1, 0, 0.5, 1, ABOVE_ONE, 2, 2.0**53, 2**53 + 1, 2**53 + 2, 10**30)
STRINGS: tuple[Bound, ...] = ("", "\0", "a", "a\0", "ab", "abc", "b", "ba", "\ud7ff", "\ue000", "\U0010ffff")
PATTERNS = tuple(
    parts_of(text, None, 1) for text in ("%a", "a%a", "_", "_%", "a_%", "%ab%", "ab%c", "%b%", "b_", "%_%")
)
GRID: tuple[Value, ...] = (
    *NUMBERS,
    *(-math.inf, -10, 5e-324, 0.25, math.nextafter(1, 0), 1.5, 3, 2**53 - 1, 2**53 + 3, 10**30 + 1, 10**400, math.inf),
    *STRINGS,
    *("aa", "aba", "abac", "abcc", "bb", "bab", "bz", "é", "\ud7ffz", "\U0010ffff\U0010ffff"),
    *(True, False, None, COMPOSITE),
)


def some_intervals(chance: random.Random, bounds: Sequence[Bound]) -> tuple[Interval, ...]:
    intervals = []
    for _ in range(chance.choice((1, 1, 2))):
        low, high = chance.choice((None, *bounds)), chance.choice((None, *bounds))
        if chance.random() < 0.3 and low is not None:
            intervals.append(point(low))
        elif low is None or high is None or low < high:  # both are of one kind
            intervals.append(Interval(low, chance.random() < 0.5, high, chance.random() < 0.5))
    return union(one for one in intervals if one.low is not None or one.high is not None) or (Interval(),)


def elementary_test(chance: random.Random, name: str, patterned: bool) -> ElementaryTest:
    match chance.randrange(8):
        case 0:
            return ElementaryTest(name, chance.choice((ValueType.NULL, ValueType.NOT_NULL)))
        case 1:
            return ElementaryTest(
                name, ValueType.BOOLEAN, tuple(map(point, chance.choice(((True,), (False,), (False, True)))))
            )
        case 2 | 3 | 4:
            return ElementaryTest(name, ValueType.NUMBER, some_intervals(chance, NUMBERS))
        case _:
            number = chance.choice((0, 1, 1, 2)) if patterned else 0
            patterns = tuple(Pattern(chance.choice(PATTERNS), chance.random() < 0.4) for _ in range(number))
            return ElementaryTest(name, ValueType.STRING, some_intervals(chance, STRINGS), patterns)


def predicate_of(chance: random.Random, patterned: bool) -> Predicate:
    names = sorted(chance.sample(NAMES, chance.choice((0, 1, 1, 2, 2, 3))))
    return tuple(elementary_test(chance, name, patterned) for name in names)


def filter_of(chance: random.Random, patterned: bool) -> tuple[Predicate, ...]:
    return tuple(predicate_of(chance, patterned) for _ in range(chance.choice((1, 1, 2, 3))))


def narrowed(chance: random.Random, predicates: Sequence[Predicate], patterned: bool) -> tuple[Predicate, ...]:
    """Predicates of which most accept less than one of *predicates*, often in several pieces."""
    pieces = []
    for _ in range(chance.choice((1, 2))):
        tests = {test.attribute: test for test in chance.choice(predicates or ((),))}
        for name in NAMES:
            test = tests.get(name)
            if test is None:
                if chance.random() < 0.4:
                    tests[name] = elementary_test(chance, name, patterned)
            elif test.kind is ValueType.NUMBER and chance.random() < 0.6:
                inside = [Interval(value, True, value, True) for value in NUMBERS if test.accepts(value)]
                tests[name] = ElementaryTest(name, ValueType.NUMBER, union(inside[:2]) or test.intervals)
            elif test.patterns and chance.random() < 0.5:
                tests[name] = ElementaryTest(name, test.kind, test.intervals, (*test.patterns, Pattern(PATTERNS[1])))
        pieces.append(tuple(tests[name] for name in sorted(tests)))
    return tuple(pieces)


def split(chance: random.Random, predicates: Sequence[Predicate]) -> tuple[Predicate, ...]:
    """The same filter with each predicate cut in two, where a number is tested, and with a hole now and then."""
    pieces: list[Predicate] = []
    for predicate in predicates:
        bound, closed = chance.choice(NUMBERS), chance.random() < 0.8
        below = Interval(high=bound, high_closed=chance.random() < 0.5)
        above = Interval(low=bound, low_closed=closed is not below.high_closed)
        halves = [test for test in predicate if test.kind is ValueType.NUMBER]
        if not halves:
            pieces.append(predicate)
            continue
        for half in (below, above):
            kept = complement(union([*complement(halves[0].intervals), *complement((half,))]))
            if kept:
                cut = ElementaryTest(halves[0].attribute, ValueType.NUMBER, kept)
                pieces.append(tuple(cut if test is halves[0] else test for test in predicate))
    return tuple(pieces)


def accepts(predicates: Sequence[Predicate], event: Attributes) -> bool:
    return any(all(test.accepts(event.get(test.attribute)) for test in predicate) for predicate in predicates)


@lru_cache(maxsize=10_000)
def accepted_values(test: ElementaryTest) -> tuple[Value, ...]:
    return tuple(value for value in GRID if test.accepts(value))


def events_in(chance: random.Random, predicates: Sequence[Predicate], count: int) -> Iterator[dict[str, Value]]:
    """Events that are likely to be accepted: each attribute from the part of the grid that a predicate accepts."""
    for _ in range(count):
        event = {name: chance.choice(GRID) for name in NAMES if chance.random() < 0.8}
        for test in chance.choice(predicates or ((),)):
            likely = accepted_values(test)
            if likely:
                event[test.attribute] = chance.choice(likely)
        yield event


def pairs(
    chance: random.Random, count: int, patterned: bool
) -> Iterator[tuple[Sequence[Predicate], Sequence[Predicate]]]:
    for number in range(count):
        general = filter_of(chance, patterned)
        special = filter_of(chance, patterned) if number % 4 == 0 else narrowed(chance, general, patterned)
        yield (split(chance, general) if number % 2 else general), special


# -- covering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patterned", [False, True])
def test_no_event_is_accepted_by_the_covered_and_refused_by_the_covering(
    chance: random.Random, patterned: bool
) -> None:
    covering = 0
    for general, special in pairs(chance, 1_000, patterned):
        if covers(general, special):
            covering += 1
            for event in events_in(chance, special, 20):
                assert accepts(general, event) or not accepts(special, event), (general, special, event)
    assert covering > 200


def test_without_patterns_what_is_not_covered_has_an_event_that_shows_it(chance: random.Random) -> None:
    refuted = 0
    for general, special in pairs(chance, 1_500, patterned=False):
        event = counterexample(general, special)
        assert (event is None) is covers(general, special), (general, special)
        if event is not None:
            refuted += 1
            assert accepts(special, event), (general, special, event)
            assert not accepts(general, event), (general, special, event)
    assert refuted > 150


def test_with_patterns_a_counterexample_is_one(chance: random.Random) -> None:
    refuted = 0
    for general, special in pairs(chance, 1_000, patterned=True):
        event = counterexample(general, special)
        if event is not None:
            refuted += 1
            assert accepts(special, event), (general, special, event)
            assert not accepts(general, event), (general, special, event)
            assert not covers(general, special)
    assert refuted > 100


@pytest.mark.parametrize("patterned", [False, True])
def test_filters_that_are_apart_share_no_event_and_others_show_one(chance: random.Random, patterned: bool) -> None:
    apart = 0
    for one, other in pairs(chance, 600, patterned):
        event = common_example(one, other)
        if are_apart(one, other):
            apart += 1
            assert event is None
            assert not any(accepts(other, each) and accepts(one, each) for each in events_in(chance, one, 20))
        else:
            assert event is not None or patterned
            assert event is None or (accepts(one, event) and accepts(other, event)), (one, other, event)
    assert apart > 20


def test_covering_is_an_order(chance: random.Random) -> None:
    for _ in range(300):
        top = filter_of(chance, patterned=True)
        middle = narrowed(chance, top, patterned=True)
        bottom = narrowed(chance, middle, patterned=False)
        assert covers(top, top)
        assert covers(top, ())
        assert covers(((),), top)
        if covers(top, middle) and covers(middle, bottom):
            assert not any(accepts(bottom, event) and not accepts(top, event) for event in events_in(chance, bottom, 5))


def test_two_predicates_merged_accept_what_either_accepted(chance: random.Random) -> None:
    count = 0
    for _ in range(800):
        one = predicate_of(chance, patterned=True)
        other = chance.choice((*split(chance, (one,)), *narrowed(chance, (one,), patterned=True)))
        whole = merged(one, other)
        if whole is not None:
            count += 1
            for event in (*events_in(chance, (one, other), 10), *events_in(chance, (whole,), 10)):
                assert accepts((whole,), event) is accepts((one, other), event), (one, other, whole, event)
    assert count > 200


# -- patterns and topic filters, against all short texts and topics ----------------------------------------------------


def test_patterns_are_compared_as_their_texts_are() -> None:
    texts = ["".join(letters) for length in range(7) for letters in product("ab", repeat=length)]
    texts += [
        "".join(letters) for length in range(5) for letters in product("abz", repeat=length)
    ]  # z is in no pattern
    all_parts = {parts_of("".join(s), None, 1) for length in range(4) for s in product("ab%_", repeat=length)}
    liked = {parts: frozenset(text for text in texts if Pattern(parts).accepts(text)) for parts in all_parts}
    for (one, texts_of_one), (other, texts_of_other) in product(liked.items(), repeat=2):
        assert is_like_all(one, other) is (texts_of_other <= texts_of_one), (one, other)
        assert is_like_any(one, other) is not texts_of_one.isdisjoint(texts_of_other), (one, other)


def valid(read: Callable[[str], TopicFilter], texts: Iterator[str]) -> Iterator[TopicFilter]:
    for text in texts:
        try:
            yield read(text)
        except TopicInvalid:
            continue


def test_topic_filters_cover_and_overlap_as_their_topics_say() -> None:
    topics = ["/".join(names) for length in range(1, 5) for names in product(("a", "$s", "", "z"), repeat=length)]
    texts = ("/".join(names) for length in range(1, 4) for names in product(("a", "$s", "", "+", "#"), repeat=length))
    filters = list(valid(TopicFilter.parse, texts))
    matched = [frozenset(topic for topic in topics if topic and each.matches(topic)) for each in filters]
    for (one, topics_of_one), (other, topics_of_other) in product(zip(filters, matched, strict=True), repeat=2):
        assert one.covers(other) is (topics_of_other <= topics_of_one), (one.text, other.text)
        assert one.overlaps(other) is not topics_of_one.isdisjoint(topics_of_other), (one.text, other.text)
        assert (one.longest_form == other.longest_form) is (topics_of_one == topics_of_other), (one.text, other.text)


def test_rows_find_the_spans_that_enclose_one_and_those_that_lie_in_it(chance: random.Random) -> None:
    def span() -> Span:
        low = chance.randrange(60)
        return (ValueType.NUMBER, low), (ValueType.NUMBER, low + chance.choice((1, 1, 2, 5, 40)))

    row: SpanIndex[int] = SpanIndex()
    held: dict[int, Span] = {}
    for number in range(1_500):
        if held and chance.random() < (0.3 if number < 1_000 else 0.7):
            gone = chance.choice(list(held))
            row.discard(held.pop(gone), gone)
        else:
            held[number] = span()
            row.add(held[number], number, number)
        low, high = span()
        assert sorted(row.enclosing((low, high))) == [n for n, (b, e) in sorted(held.items()) if b <= low and e >= high]
        assert sorted(row.enclosed((low, high))) == [n for n, (b, e) in sorted(held.items()) if b >= low and e <= high]
    for number, each in held.items():
        row.discard(each, number)
    assert not row


# -- announcements ----------------------------------------------------------------------------------------------------

LEVELS = ("x", "y", "", "$s", "+")


def topic_filter_of(chance: random.Random) -> TopicFilter:
    levels = [chance.choice(LEVELS) for _ in range(chance.choice((1, 1, 2, 3)))]
    if chance.random() < 0.3:
        levels[-1] = "#"
    return TopicFilter.parse("/".join(levels) or "#")


@pytest.mark.parametrize("shadows", [False, True])
@pytest.mark.parametrize("patterned", [False, True])
def test_what_is_announced_accepts_what_the_subscriptions_accept(
    chance: random.Random, patterned: bool, shadows: bool
) -> None:
    for _ in range(15):
        pool = [
            (topic_filter_of(chance), chance.choice(((), *(filter_of(chance, patterned) for _ in range(6)))))
            for _ in range(25)
        ]
        subscriptions: dict[int, tuple[TopicFilter, tuple[Predicate, ...]]] = {}
        announced, told = CoveringAnnouncer(shadows), set[Interest]()
        for number in range(60):
            if subscriptions and chance.random() < 0.45:
                gone = chance.choice(sorted(subscriptions))
                del subscriptions[gone]
                change = announced.remove(gone)
            else:
                subscriptions[number] = chance.choice(pool)
                change = announced.add(number, *subscriptions[number])
            assert told.isdisjoint(change.announce)
            assert told.issuperset(change.withdraw)
            told = (told | set(change.announce)) - set(change.withdraw)
            assert told == set(announced.interests)
            assert len(told) == len(announced.interests)
            check_announced(chance, told, subscriptions)
            if shadows:
                check_widest(chance, {one for one in told if not announced.is_shadowed(one)}, subscriptions)
        for number in chance.sample(sorted(subscriptions), len(subscriptions)):
            change = announced.remove(number)
            told = (told | set(change.announce)) - set(change.withdraw)
        assert not told
        assert not announced.interests
        assert not announced._announcer._index._root.below


def test_several_links_are_announced_as_each_of_them_alone(chance: random.Random) -> None:
    links = (1, 2, 4)
    for _ in range(8):
        pool = [
            (topic_filter_of(chance), chance.choice(((), *(filter_of(chance, True) for _ in range(6)))))
            for _ in range(20)
        ]
        together, alone = LinkAnnouncer(1), {link: CoveringAnnouncer(link == 1) for link in links}
        subscriptions: dict[int, tuple[int, TopicFilter, tuple[Predicate, ...]]] = {}
        told: dict[int, set[Interest]] = {link: set() for link in links}
        for number in range(80):
            if subscriptions and chance.random() < (0.45 if number < 50 else 0.9):
                gone = chance.choice(sorted(subscriptions))
                on, topic_filter, predicates = subscriptions.pop(gone)
                interests = [Interest(topic_filter, predicate) for predicate in predicates]
                changes = together.remove(interests, on)
                singly = {link: alone[link].remove(gone) for link in links if link & on}
            else:
                on, (topic_filter, predicates) = chance.choice((7, 7, 6, 5, 3)), chance.choice(pool)
                subscriptions[number] = on, topic_filter, predicates
                changes = together.add([Interest(topic_filter, predicate) for predicate in predicates], on)
                singly = {link: alone[link].add(number, topic_filter, predicates) for link in links if link & on}
            assert changes.keys() <= singly.keys()
            for link in links:
                change = changes.get(link, InterestDelta())
                assert told[link].isdisjoint(change.announce)
                assert told[link].issuperset(change.withdraw)
                told[link] = (told[link] | set(change.announce)) - set(change.withdraw)
                assert told[link] == set(together.interests(link))
                assert len(told[link]) == len(together.interests(link))
                there = {key: each[1:] for key, each in subscriptions.items() if each[0] & link}
                check_announced(chance, told[link], there)
                for one in alone[link].interests:  # which of two that accept the same is told, age decides
                    assert any(
                        other.topic_filter.covers(one.topic_filter) and covers((other.predicate,), (one.predicate,))
                        for other in told[link]
                    ), one


def check_widest(
    chance: random.Random, told: set[Interest], subscriptions: dict[int, tuple[TopicFilter, tuple[Predicate, ...]]]
) -> None:
    for one, other in product(told, repeat=2):
        if one is not other and one.topic_filter.covers(other.topic_filter):
            assert not covers((one.predicate,), (other.predicate,)), (one, other)
    check_announced(chance, told, subscriptions)


def check_announced(
    chance: random.Random, told: set[Interest], subscriptions: dict[int, tuple[TopicFilter, tuple[Predicate, ...]]]
) -> None:
    for _ in range(6):
        topic_filter, predicates = chance.choice([*subscriptions.values(), (TopicFilter.parse("x"), ())])
        topic = "/".join(chance.choice(LEVELS[:4]) if level in "+#" else level for level in topic_filter.levels) or "x"
        for event in events_in(chance, predicates, 2):
            wanted = any(each.matches(topic) and accepts(some, event) for each, some in subscriptions.values())
            crosses = any(one.topic_filter.matches(topic) and accepts((one.predicate,), event) for one in told)
            assert crosses is wanted, (topic, event)
