"""Widening: few interests that accept every event that any of many accepts, and as few others as possible.

A gateway tells gateways of other sites what its own site wants, in a limited number of bytes. Where the interests do
not fit, the nearest ones are merged: boxes in which the same attributes are tested, and topic filters that differ in
few levels. What comes out may accept more than what went in, never less: whatever is done to a test here makes it
accept more values, or removes it, and whatever is done to a topic filter makes it match more topics.

The result depends on the interests and their order only. It takes 20 to 60 us for each interest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count, pairwise
from struct import pack, unpack
from typing import Final, NamedTuple, TypeAlias

from edgebroker.filters.boxes import Box
from edgebroker.filters.elementary import either, point
from edgebroker.filters.regions import region_of
from edgebroker.interest import Interest
from edgebroker.predicate import Bound, ElementaryTest, Interval, Predicate, ValueType
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, TopicFilter

REPEATED_BYTES: Final = 2
"""What a topic filter or an attribute name counts when it occurs again: deflated, it is a reference of two bytes."""
INTERVALS_MAX: Final = 64
"""Intervals of a test that two interests are merged into; of more the nearest are joined."""
COMPARED_BYTES: Final = 32
"""For so many bytes one interest is compared with its neighbours, 128 for 4 KiB; of more, neighbours are merged first.
A comparison takes 50 to 100 us.
"""
CUT_CHARS: Final = 64
"""Shorter topic filters are not cut to a prefix."""
LEVELS_UNITED: Final = 16
"""The levels of a topic filter in which filters may differ to be united without loss."""

_MIDDLE: Final = 0.9
"""The share of all values that is thought to lie between the least and the greatest bound."""
_PRESENCE: Final = 0.5
"""The share of the events that are thought to have an attribute at all."""
_ENDS: Final = 0.5
"""The share of the topics that are thought to end where a topic filter without `#` does."""

_Tests: TypeAlias = dict[str, "_MeasuredTest"]


class InterestSummary(NamedTuple):
    """The result. `is_exact`: it accepts nothing more than what went in."""

    interests: tuple[Interest, ...]
    is_exact: bool


def widened(interests: tuple[Interest, ...], octets: int) -> InterestSummary | None:
    """Return interests that cover all *interests* and take at most *octets* bytes, as `octets_of` counts them.

    None: there are none, which is possible only if topics below different roots with `$` are wanted.
    """
    if octets_of(interests) <= octets:
        return InterestSummary(interests, True)
    covers = _united(list(map(_Cover.of, interests)))
    if _octets(covers) <= octets:
        return InterestSummary(tuple(cover.interest for cover in covers), True)
    covers = _merged([cover.rounded() for cover in covers], octets)
    return InterestSummary(tuple(cover.interest for cover in covers), False) if _octets(covers) <= octets else None


@lru_cache(maxsize=256)
def octets_of(interests: tuple[Interest, ...]) -> int:
    """Return the bytes that a list of *interests* takes between gateways, about as they are when they are deflated: a
    topic filter or an attribute name counts in full only once.

    It is remembered: the same interests are wanted of the publishers of many topics.
    """
    return _octets(map(_Cover.of, interests))


def is_covered(interest: Interest, covering: Iterable[Interest]) -> bool:
    """Return whether one of *covering* accepts every event that *interest* accepts. True is certain."""
    box: Box | None = None
    for wide in covering:
        if not wide.topic_filter.covers(interest.topic_filter):
            continue
        box = box or Box.of(_with_level_tests(interest))
        wide_box = _box_of(wide)
        if box is None or (wide_box is not None and wide_box.covers(box)):
            return True
    return False


@lru_cache(maxsize=1_024)
def _box_of(interest: Interest) -> Box | None:
    return Box.of(interest.predicate)


def _with_level_tests(interest: Interest) -> Predicate:
    """Return the predicate with a test for each level that the topic filter names: merged interests test those."""
    tests = {test.attribute: test for test in interest.predicate}
    for at, level in enumerate(interest.topic_filter.levels):
        if level not in (SINGLE_LEVEL, MULTI_LEVEL):
            tests.setdefault(_level_name(at), _names_test(at, (level,)))
    return tuple(tests[name] for name in sorted(tests))


class _MeasuredTest:
    """A test with its bytes, and its share of all values once that was asked for. Treat it as immutable."""

    __slots__ = ("_share", "octets", "test")

    def __init__(self, test: ElementaryTest) -> None:
        self.test = test
        self.octets = _test_octets(test)
        self._share = -1.0

    def share(self, scale: _Scale) -> float:
        """Return the share of the values that it is thought to accept."""
        if self._share < 0:
            self._share = scale.share(self.test)
        return self._share


class _Cover:
    """An interest that is widened: the levels of its topic filter, and its tests by attribute.

    `octets`: its bytes without those of the names in it. Treat it as immutable.
    """

    __slots__ = ("levels", "octets", "tests", "topic")

    def __init__(self, levels: tuple[str, ...], tests: _Tests) -> None:
        self.levels = levels
        self.tests = tests
        self.topic = SEPARATOR.join(levels)
        self.octets = 2 + REPEATED_BYTES + sum([each.octets for each in tests.values()])

    @classmethod
    def of(cls, interest: Interest) -> _Cover:
        """Return the cover that is *interest*."""
        return cls(interest.topic_filter.levels, {test.attribute: _MeasuredTest(test) for test in interest.predicate})

    @property
    def interest(self) -> Interest:
        """The interest itself."""
        return Interest(TopicFilter.parse(self.topic), tuple(self.tests[name].test for name in sorted(self.tests)))

    @property
    def names(self) -> tuple[str, ...]:
        """The texts that count in full only once."""
        return (self.topic, *self.tests)

    @property
    def own_octets(self) -> int:
        """The bytes with those of the topic filter, which two neighbours seldom share."""
        return self.octets + len(self.topic)

    @property
    def place(self) -> tuple[object, ...]:
        """The place in the order in which neighbours are near each other."""
        names = sorted(self.tests)
        return self.levels, names, [region_of(self.tests[name].test) for name in names]

    def rounded(self) -> _Cover:
        """Return the cover with the ends of ranges of numbers rounded outwards to 24 bits, which takes half the
        bytes.
        """
        tests = {name: _MeasuredTest(_rounded(each.test)) for name, each in self.tests.items()}
        return _Cover(self.levels, tests)

    def with_test(self, test: ElementaryTest) -> _Cover:
        """Return the cover with *test* in place of that of the same attribute."""
        return _Cover(self.levels, self.tests | {test.attribute: _MeasuredTest(test)})

    def without(self, attribute: str) -> _Cover:
        """Return the cover without a test of *attribute*."""
        return _Cover(self.levels, {name: each for name, each in self.tests.items() if name != attribute})

    def volume(self, scale: _Scale) -> float:
        """Return the share of all events that it is thought to accept."""
        volume = 1.0 if self.levels[-1] == MULTI_LEVEL else _ENDS
        for at, level in enumerate(self.levels):
            if level not in (SINGLE_LEVEL, MULTI_LEVEL):
                volume *= scale.level_shares[at]
        for each in self.tests.values():
            volume *= each.share(scale)
        return volume

    def smaller(self, scale: _Scale) -> _Cover | None:
        """Return a wider cover with fewer bytes; None if it is a short topic filter alone."""
        if not self.tests:
            if len(self.levels) < 2 or len(self.topic) < CUT_CHARS:
                return None
            body = self.levels[:-1] if self.levels[-1] == MULTI_LEVEL else self.levels
            return _Cover((*body[: max(1, len(body) // 2)], MULTI_LEVEL), {})
        longest = max(self.tests.values(), key=lambda each: (len(each.test.intervals), each.test.attribute)).test
        if len(longest.intervals) > 1:
            return self.with_test(_joined(longest, max(1, len(longest.intervals) // 8)))
        return self.without(max(self.tests, key=lambda name: (self.tests[name].share(scale), name)))


class _Scale:
    """The share of all events that a test may accept, as far as the bounds in all interests tell: the values are
    thought to be spread evenly between them.
    """

    def __init__(self, covers: Iterable[_Cover]) -> None:
        bounds: dict[tuple[str, ValueType], set[Bound]] = {}
        for cover in covers:
            for name, each in cover.tests.items():
                ends = (end for end in _ends(each.test.intervals) if end is not None)
                bounds.setdefault((name, each.test.kind), set()).update(ends)
            for at, level in enumerate(cover.levels):
                bounds.setdefault((_level_name(at), ValueType.STRING), set()).add(level)
        self._places = {key: _places(found) for key, found in bounds.items() if found}
        self.level_shares: list[float] = []
        """The share of the topics that have one certain name in each level."""
        while found := self._places.get((_level_name(len(self.level_shares)), ValueType.STRING)):
            self.level_shares.append(_MIDDLE / (2 * len(found)))

    def share(self, test: ElementaryTest) -> float:
        """Return the share of the values of an attribute that *test* is thought to accept, from 0 to 1."""
        places = self._places.get((test.attribute, test.kind))
        if not places:
            return _PRESENCE
        least, share = _MIDDLE / (2 * len(places)), 0.0
        for each in test.intervals:
            low = 0.0 if each.low is None else places[each.low]
            high = 1.0 if each.high is None else places[each.high]
            share += max(high - low, least)
        return share


def _places(bounds: set[Bound]) -> dict[Bound, float]:
    """Return the place of each of *bounds* between 0 and 1: near ones are as near as numbers or texts are."""
    ordered = sorted(bounds)
    steps = [0.0, *(_distance(low, high) for low, high in pairwise(ordered))]
    whole = sum(step for step in steps if step < math.inf) or 1.0
    places, reached = {}, (1 - _MIDDLE) / 2
    for bound, step in zip(ordered, steps, strict=True):
        reached += _MIDDLE * min(step, whole) / whole
        places[bound] = min(1.0, reached)
    return places


# -- bytes -------------------------------------------------------------------------------------------------------------


def _octets(covers: Iterable[_Cover]) -> int:
    names: set[str] = set()
    total = 0
    for cover in covers:
        total += cover.octets
        names.update(cover.names)
    return total + sum(map(_text_octets, names))


def _text_octets(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return size + (1 if size < 24 else 2 if size < 256 else 3)


def _test_octets(test: ElementaryTest) -> int:
    intervals = sum(2 + _bound_octets(each.low) + _bound_octets(each.high) for each in test.intervals)
    patterns = sum(2 + sum(_bound_octets(part) for part in pattern.parts) for pattern in test.patterns)
    return 4 + REPEATED_BYTES + intervals + patterns


def _bound_octets(bound: Bound | None) -> int:
    if bound is None or isinstance(bound, bool):
        return 1
    if isinstance(bound, str):
        return _text_octets(bound)
    if isinstance(bound, float):
        return 9 if _single(bound) != bound else 5
    bits = (bound if bound >= 0 else ~bound).bit_length()
    return 1 + max(1, (bits + 7) // 8) if bits <= 16 else 5 if bits <= 32 else 9 if bits <= 64 else 4 + bits // 8


def _single(number: float) -> float:
    """Return the nearest number with 24 bits."""
    try:
        found: float = unpack(">f", pack(">f", number))[0]
    except OverflowError:
        return number
    return found


# -- without loss ------------------------------------------------------------------------------------------------------


def _united(covers: list[_Cover]) -> list[_Cover]:
    """Return *covers* with those united that differ in one test, or in one level of the topic, where that saves
    bytes.
    """
    attributes = Counter(name for cover in covers for name in cover.tests)
    for name in sorted(name for name, uses in attributes.items() if uses > 1):
        groups: dict[object, list[_Cover]] = {}
        for cover in covers:
            test = cover.tests.get(name)
            if test is None or not test.test.intervals:
                groups[cover] = [cover]
                continue
            others = frozenset(each.test for each in cover.tests.values() if each is not test)
            groups.setdefault((cover.topic, test.test.kind, test.test.patterns, others), []).append(cover)
        covers = [_by_test(group, name) for group in groups.values()]
    for at in range(min(LEVELS_UNITED, max((len(cover.levels) for cover in covers), default=0))):
        groups = {}
        for cover in covers:
            if not _is_literal(cover, at):
                groups[cover] = [cover]
                continue
            key = (cover.levels[:at], cover.levels[at + 1 :], frozenset(each.test for each in cover.tests.values()))
            groups.setdefault(key, []).append(cover)
        covers = [each for group in groups.values() for each in _by_level(group, at)]
    return covers


def _is_literal(cover: _Cover, at: int) -> bool:
    """Return whether level *at* of the topic filter is a name that a test can take the place of."""
    if at >= len(cover.levels) or _level_name(at) in cover.tests:
        return False
    level = cover.levels[at]
    return level not in (SINGLE_LEVEL, MULTI_LEVEL) and not (at == 0 and level.startswith("$"))


def _by_test(group: list[_Cover], name: str) -> _Cover:
    """Return the one cover for a *group* whose tests of attribute *name* alone differ."""
    if len(group) == 1:
        return group[0]
    [test] = either(cover.tests[name].test for cover in group)
    return group[0].with_test(test)


def _by_level(group: list[_Cover], at: int) -> list[_Cover]:
    """Return one cover for a *group* whose topic filters differ in level *at* alone; the group if it takes less."""
    if len(group) == 1:
        return group
    first = group[0]
    levels = (*first.levels[:at], SINGLE_LEVEL, *first.levels[at + 1 :])
    one = _Cover(levels, first.tests).with_test(_names_test(at, (cover.levels[at] for cover in group)))
    return [one] if one.own_octets + len(_level_name(at)) < sum(cover.own_octets for cover in group) else group


def _level_name(at: int) -> str:
    return f"$level{at + 1}"


def _names_test(at: int, names: Iterable[str]) -> ElementaryTest:
    return ElementaryTest(_level_name(at), ValueType.STRING, tuple(point(name) for name in sorted(set(names))))


# -- with as little loss as possible -----------------------------------------------------------------------------------


class _MergeQueue:
    """Covers in order, and what could be done with each: merge it with the next one, or take fewer bytes for it. What
    adds the fewest events for each byte that it saves is done first.
    """

    def __init__(self, covers: Iterable[_Cover]) -> None:
        self.covers: dict[int, _Cover] = dict(enumerate(covers))
        self.octets = _octets(self.covers.values())
        self._scale = _Scale(self.covers.values())
        self._volumes = {at: cover.volume(self._scale) for at, cover in self.covers.items()}
        self._names = Counter(name for cover in self.covers.values() for name in cover.names)
        self._after = {at: at + 1 for at in self.covers if at + 1 in self.covers}
        self._before = {at + 1: at for at in self._after}
        self._heap: list[tuple[float, int, tuple[int, ...], _Cover]] = []
        self._tickets = count()
        self._last = len(self.covers)
        for at in self.covers:
            self._offer(at)

    def step(self) -> bool:
        """Do what is nearest. Return False if nothing is left to do."""
        while self._heap:
            _, _, places, cover = heappop(self._heap)
            if all(at in self.covers for at in places):
                self._replace(places, cover)
                return True
        return False

    def _offer(self, at: int) -> None:
        one = self.covers[at]
        smaller = one.smaller(self._scale)
        if smaller is not None:
            self._push((at,), smaller, one.own_octets - smaller.own_octets)
        behind = self._after.get(at)
        if behind is not None:
            other = self.covers[behind]
            cover = _pair(one, other)
            if cover is not None:
                self._push((at, behind), cover, one.own_octets + other.own_octets - cover.own_octets)

    def _push(self, places: tuple[int, ...], cover: _Cover, saved: int) -> None:
        added = cover.volume(self._scale) - sum(self._volumes[at] for at in places)
        heappush(self._heap, (max(0.0, added) / max(1, saved), next(self._tickets), places, cover))

    def _replace(self, places: tuple[int, ...], cover: _Cover) -> None:
        """Put *cover* where the neighbours at *places* are."""
        for at in places:
            old = self.covers.pop(at)
            self.octets -= old.octets
            for name in old.names:
                self._names[name] -= 1
                if not self._names[name]:
                    self.octets -= _text_octets(name)
        new, self._last = self._last, self._last + 1
        self.octets += cover.octets + sum(_text_octets(name) for name in cover.names if not self._names[name])
        self._names.update(cover.names)
        self.covers[new] = cover
        self._volumes[new] = cover.volume(self._scale)
        left, right = self._before.get(places[0]), self._after.get(places[-1])
        if right is not None:
            self._after[new], self._before[right] = right, new
        if left is not None:
            self._after[left], self._before[new] = new, left
            self._offer(left)
        self._offer(new)


def _merged(covers: list[_Cover], octets: int) -> list[_Cover]:
    """Merge the nearest of *covers*, or make them smaller, until all take at most *octets* bytes.

    Only neighbours in the order of topics, attributes and ranges are compared, so the number of comparisons is linear.
    """
    covers = sorted(covers, key=lambda cover: cover.place)
    run = -(-len(covers) // max(1, octets // COMPARED_BYTES))
    if run > 1:
        covers = [each for at in range(0, len(covers), run) for each in _folded(covers[at : at + run])]
    queue = _MergeQueue(covers)
    while queue.octets > octets and queue.step():
        pass
    return sorted(queue.covers.values(), key=lambda cover: cover.place)


def _folded(covers: list[_Cover]) -> list[_Cover]:
    """Return one cover for all *covers*; more where topics differ in a first level with `$`."""
    folded = [covers[0]]
    for cover in covers[1:]:
        pair = _pair(folded[-1], cover)
        folded[-1:] = [folded[-1], cover] if pair is None else [pair]
    return folded


def _pair(one: _Cover, other: _Cover) -> _Cover | None:
    """Return a cover of both that takes fewer bytes; None if there is none."""
    levels, left, right = one.levels, one.tests, other.tests
    if one.levels != other.levels:
        general = _general(one, other)
        if general is None:
            return None
        levels, left, right = general
    tests: _Tests = {}
    for name, mine in left.items():
        theirs = right.get(name)
        if theirs is None:
            continue
        if mine.test == theirs.test:
            tests[name] = mine
        elif (test := _hull(mine.test, theirs.test)) is not None:
            tests[name] = _MeasuredTest(test)
    cover = _Cover(levels, tests)
    while cover.own_octets >= one.own_octets + other.own_octets and cover.tests:
        cover = cover.without(max(cover.tests, key=lambda name: (cover.tests[name].octets, name)))
    return cover


def _general(one: _Cover, other: _Cover) -> tuple[tuple[str, ...], _Tests, _Tests] | None:
    """Return the levels of a topic filter that covers those of both, and the tests of both, in which tests of level
    names take the place of names that differ.

    None: topics that begin with `$` are matched by no wildcard in the first level.
    """
    mine, theirs = (cover.levels[: -1 if cover.levels[-1] == MULTI_LEVEL else None] for cover in (one, other))
    is_same = len(mine) == len(theirs) and (one.levels[-1] == MULTI_LEVEL) == (other.levels[-1] == MULTI_LEVEL)
    levels: list[str] = []
    tests = dict(one.tests), dict(other.tests)
    for at, pair in enumerate(zip(mine, theirs, strict=False)):
        if pair[0] == pair[1]:
            levels.append(pair[0])
            continue
        levels.append(SINGLE_LEVEL)
        for name, changed in zip(pair, tests, strict=True):
            if name != SINGLE_LEVEL:
                changed[_level_name(at)] = _MeasuredTest(_names_test(at, (name,)))
    first = levels[0] if levels else MULTI_LEVEL
    if first in (SINGLE_LEVEL, MULTI_LEVEL) and any(each.levels[0].startswith("$") for each in (one, other)):
        return None
    has_tail = one.levels[-1] == MULTI_LEVEL or not is_same
    return (*levels, MULTI_LEVEL) if has_tail else tuple(levels), *tests


def _hull(one: ElementaryTest, other: ElementaryTest) -> ElementaryTest | None:
    """Return a test of the same attribute that accepts what either accepts; None: it would accept everything."""
    if one.kind is not other.kind:
        return None if ValueType.NULL in (one.kind, other.kind) else ElementaryTest(one.attribute, ValueType.NOT_NULL)
    if len(one.intervals) == len(other.intervals) == 1 and not one.patterns and not other.patterns:
        return ElementaryTest(one.attribute, one.kind, _both(one.intervals[0], other.intervals[0]))
    patterns = one.patterns if one.patterns == other.patterns else ()
    [test] = either([ElementaryTest(one.attribute, one.kind, each.intervals, patterns) for each in (one, other)])
    return _joined(test, len(test.intervals) - INTERVALS_MAX) if len(test.intervals) > INTERVALS_MAX else test


def _both(one: Interval, other: Interval) -> tuple[Interval, ...]:
    """Return the values in either of two intervals; as `elementary.union`, in a fifth of the time."""
    low, high = one, other
    if high.low is None or (low.low is not None and (high.low, not high.low_closed) < (low.low, not low.low_closed)):
        low, high = high, low
    touches = low.high_closed or high.low_closed
    last = low
    if low.high is not None:
        if high.low is not None and not ((high.low, False) < (low.high, touches)):
            return low, high
        if high.high is None or (low.high, low.high_closed) < (high.high, high.high_closed):
            last = high
    return (Interval(low.low, low.low_closed, last.high, last.high_closed),)


def _distance(low: Bound | None, high: Bound | None) -> float:
    """Return how far apart two bounds are: numbers by their difference, texts by what they do not share."""
    if isinstance(low, str) and isinstance(high, str):
        shared = next((at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), len(low))
        return 2.0**-shared
    try:
        return float(high) - float(low)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def _joined(test: ElementaryTest, most: int) -> ElementaryTest:
    """Return *test* with the *most* narrowest gaps between its ranges closed."""
    intervals = test.intervals
    gaps = [_distance(one.high, other.low) for one, other in pairwise(intervals)]
    closed = sorted(range(len(gaps)), key=lambda at: (gaps[at], at))[:most]
    joined = [intervals[0]]
    shut = set(closed)
    for at, each in enumerate(intervals[1:]):
        if at in shut:
            low = joined[-1]
            joined[-1] = Interval(low.low, low.low_closed, each.high, each.high_closed)
        else:
            joined.append(each)
    return ElementaryTest(test.attribute, test.kind, tuple(joined), test.patterns)


def _rounded(test: ElementaryTest) -> ElementaryTest:
    if test.kind is not ValueType.NUMBER or not any(isinstance(end, float) for end in _ends(test.intervals)):
        return test
    intervals = [
        each
        if each.is_point
        else Interval(_outwards(each.low, -1), each.low_closed, _outwards(each.high, 1), each.high_closed)
        for each in test.intervals
    ]
    rounded = ElementaryTest(test.attribute, test.kind, tuple(intervals))
    return rounded if len(intervals) < 2 else either([rounded])[0]


def _ends(intervals: Iterable[Interval]) -> Iterator[Bound | None]:
    for each in intervals:
        yield each.low
        yield each.high


def _outwards(bound: Bound | None, sign: int) -> Bound | None:
    """Return the nearest number with 24 bits that is not below *bound*, or, with *sign* -1, not above it."""
    if not isinstance(bound, float):
        return bound
    near = _single(bound)
    if math.isinf(near) or near == bound:
        return bound
    if (near < bound) == (sign > 0):  # the nearest one is on the wrong side: take the next one
        [bits] = unpack(">i", pack(">f", near))
        away = (near > 0) == (sign > 0) if near else None
        if away is None:
            return bound
        near = unpack(">f", pack(">i", bits + (1 if away else -1)))[0]
    return bound if math.isinf(near) or math.isnan(near) else near
