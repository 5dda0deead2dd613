"""Sets of subscriptions of many shapes, each from a seed, and the events they are asked about."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from edgebroker.errors import FilterTooComplex
from edgebroker.filters import Filter
from edgebroker.predicate import Predicate, Value, ValueType
from edgebroker.topics import TopicFilter

from . import values
from .values import Attribute, Number, Style

NAMES = ("a", "b", "temp", "pos.lat", "tags[0]", '"odd key"', "$qos", "$client", "é", "mode", "unit", "serial")
"""Canonical names of attributes; more are numbered."""
SIZES = (16, 24, 32, 64, 128, 256, 512, 1_024, 1_025, 2_048)
"""Numbers of subscriptions at which a matcher may change how it keeps them."""
BUCKETS = (8, 8, 16, 64, 1_024)
LARGE_BUCKETS = (100, 256, 1_024, 4_096)
"""How many predicates the trees keep in one place, for sets of up to 200 subscriptions and for larger ones."""
NUMBER, STRING, BOOLEAN = ValueType.NUMBER, ValueType.STRING, ValueType.BOOLEAN


@dataclass(frozen=True)
class Subscription:
    topic_filter: TopicFilter
    predicates: tuple[Predicate, ...]
    link: int
    filter: Filter | None = None
    """Where the predicates come from, if from a text."""

    def accepts(self, topic: str, attributes: dict[str, Value]) -> bool:
        """By definition: the filter's text is true, or else every test of some predicate accepts."""
        if not self.topic_filter.matches(topic):
            return False
        if self.filter is not None:
            return self.filter.accepts(attributes)
        return any(all(test.accepts(attributes.get(test.attribute)) for test in each) for each in self.predicates)


@dataclass(frozen=True)
class Case:
    """Subscriptions, and what events about them may hold."""

    seed: int
    shape: str
    subscriptions: Sequence[Subscription]
    numbers: Sequence[int]
    """The numbers under which they are inserted."""
    values: dict[str, list[Value]]
    topics: Sequence[str]
    presence: float
    """The share of attributes that an event has."""
    bucket_max: int
    """How many predicates the trees are to keep in one place: with few, few subscriptions make all structures."""


@dataclass(frozen=True)
class Shape:
    """What the sets of one kind have in common. Pairs are the least and the greatest number."""

    weight: float
    attributes: tuple[int, int] = (2, 6)
    tests: tuple[int, int] = (1, 3)
    predicates: tuple[int, ...] = (0, 1, 1, 1, 1, 1, 2, 3)
    counts: Callable[[random.Random], int] = field(default=lambda rng: rng.randint(1, 80))
    numbers: Sequence[Callable[[random.Random], list[Number]]] = (values.few, values.special, values.spread)
    strings: Sequence[Callable[[random.Random], list[str]]] = (values.short, values.odd)
    kinds: tuple[ValueType, ...] = (NUMBER, NUMBER, STRING, BOOLEAN)
    styles: Sequence[Style] = (values.point, values.points, values.side, values.between, values.unequal, values.pieces)
    presences: float = 0.1  # the share of tests that are IS [NOT] NULL
    texts: float = 0.3  # the share of subscriptions whose predicates come from a text
    repeats: float = 0.1  # the share of subscriptions that equal an earlier one but for number and link
    topics: float = 0.2  # the share of subscriptions with a topic filter of their own
    levels: Sequence[str] = ("x", "y", "plant", "", "$s")
    skew: float = 1.0
    drift: bool = False  # whether later subscriptions test other attributes than earlier ones


def large(rng: random.Random) -> int:
    return rng.randint(300, 3_000)


def critical(rng: random.Random) -> int:
    return rng.choice(SIZES) + rng.randint(-1, 1)


RANGES: tuple[Style, ...] = (values.side, values.between, values.between)
EQUALITIES: tuple[Style, ...] = (values.point, values.point, values.point, values.points)

SHAPES = {
    "mixed": Shape(24),
    "texts": Shape(12, texts=1.0, counts=lambda rng: rng.randint(1, 30)),
    "wild": Shape(
        12, numbers=(values.special, values.adjacent, values.huge), strings=(values.odd, values.alike), presences=0.2
    ),
    "equalities": Shape(
        10, (3, 10), (1, 5), numbers=(values.few,), kinds=(NUMBER,), styles=EQUALITIES, presences=0.0, texts=0.0
    ),
    "topics": Shape(6, topics=1.0, tests=(0, 1)),
    "many topics": Shape(
        0.5, tests=(0, 1), counts=large, topics=1.0, levels=("x", "y", "$s", *map(str, range(12))), texts=0.02
    ),
    "ranges": Shape(
        10, (1, 5), numbers=(values.spread, values.adjacent), kinds=(NUMBER, NUMBER, STRING), styles=RANGES, texts=0.1
    ),
    "one bound": Shape(6, (1, 3), numbers=(values.one,), strings=(lambda rng: ["same"],), kinds=(NUMBER, STRING)),
    "nested": Shape(4, (1, 2), (1, 2), numbers=(values.nested,), kinds=(NUMBER,), styles=(values.around,), texts=0.0),
    "alike strings": Shape(6, (1, 3), (1, 2), strings=(values.alike,), kinds=(STRING,), presences=0.05),
    "skewed": Shape(6, (4, 8), skew=4.0, numbers=(values.spread,), texts=0.1),
    "many attributes": Shape(2, (80, 300), (1, 3), numbers=(values.few,), strings=(values.short,), texts=0.1),
    "drifting": Shape(
        6, (3, 6), numbers=(values.spread, values.few), kinds=(NUMBER,), texts=0.0, topics=0.0, drift=True
    ),
    "large drifting": Shape(
        0.3, (3, 5), (1, 3), (1,), large, (values.many,), kinds=(NUMBER,), texts=0.0, topics=0.0, drift=True
    ),
    "critical sizes": Shape(1.2, (1, 6), (1, 3), counts=critical, texts=0.02, topics=0.0, predicates=(1, 1, 1, 2)),
    "large equalities": Shape(
        0.5, (3, 10), (1, 5), (1,), large, (values.few,), kinds=(NUMBER,), styles=EQUALITIES, texts=0.0, presences=0.0
    ),
    "large ranges": Shape(
        0.4, (2, 8), (1, 3), (1, 1, 2), large, (values.many,), kinds=(NUMBER,), styles=RANGES, texts=0.0, topics=0.01
    ),
    "large nested": Shape(
        0.2, (1, 2), (1, 1), (1,), large, (values.nested,), kinds=(NUMBER,), styles=(values.around,), texts=0.0
    ),
    "many strings": Shape(
        0.4, (1, 3), (1, 2), (1,), large, (values.few,), (values.devices,), (STRING,), EQUALITIES, texts=0.0, topics=0.0
    ),
}


SMALL = tuple(name for name, shape in SHAPES.items() if shape.counts not in (large, critical))


def case_of(seed: int, shapes: Sequence[str] = tuple(SHAPES)) -> Case:
    """The case of *seed*, of one of the *shapes*, those that weigh more more often."""
    rng = random.Random(seed)
    name = rng.choices(shapes, [SHAPES[shape].weight for shape in shapes])[0]
    return _Drawing(rng, SHAPES[name]).case(seed, name)


class _Drawing:
    """One case while it is drawn."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng = rng
        self.shape = shape
        count = rng.randint(*shape.attributes)
        names = [*rng.sample(NAMES, len(NAMES)), *(f"name{number}" for number in range(count))][:count]
        kinds = rng.choices(shape.kinds, k=rng.randint(1, 3))
        self.attributes = [
            Attribute(name, rng.choice(shape.numbers)(rng), rng.choice(shape.strings)(rng), tuple(kinds), shape.skew)
            for name in names
        ]
        self.links = rng.choice((1, 2, 8, 8, 8, 63, 64, 65, 128, 200))
        self.common = TopicFilter.parse(rng.choice(("x", "x/y", "+", "x/#", "#", "plant/+/y")))
        self.bare = 0.04 if rng.random() < 0.5 else 0.0
        """The share of subscriptions without content filter."""
        self.done = 0.0
        """The share of subscriptions that are drawn."""

    def case(self, seed: int, shape: str) -> Case:
        rng = self.rng
        subscriptions: list[Subscription] = []
        count = self.shape.counts(rng)
        for number in range(count):
            self.done = number / count
            if subscriptions and rng.random() < self.shape.repeats:
                subscriptions.append(replace(rng.choice(subscriptions), link=rng.randrange(self.links)))
            else:
                subscriptions.append(self.subscription())
        numbers = list(range(len(subscriptions)))
        if rng.random() < 0.2:
            numbers = rng.sample(range(2**31 - 1), len(subscriptions))
        return Case(
            seed,
            shape,
            subscriptions,
            numbers,
            {attribute.name: attribute.values(rng) for attribute in self.attributes},
            [self.topic(rng.choice(subscriptions).topic_filter) for _ in range(4)],
            rng.choice((0.5, 0.9, 1.0)),
            rng.choice(BUCKETS if len(subscriptions) <= 200 else LARGE_BUCKETS),
        )

    def subscription(self) -> Subscription:
        rng, shape = self.rng, self.shape
        topic_filter = self.topic_filter() if rng.random() < shape.topics else self.common
        link = rng.randrange(self.links)
        if rng.random() < self.bare:
            return Subscription(topic_filter, ((),), link)
        if rng.random() < shape.texts:
            filter_ = self.filter()
            return Subscription(topic_filter, filter_.predicates, link, filter_)
        predicates = [self.predicate() for _ in range(rng.choice(shape.predicates))]
        if predicates and rng.random() < 0.05:
            predicates.append(rng.choice(predicates))
        return Subscription(topic_filter, tuple(predicates), link)

    def tested(self) -> list[Attribute]:
        """The attributes that one predicate tests; the first ones more often if the shape is skewed."""
        count = self.rng.randint(*self.shape.tests)
        draws = (self.rng.random() ** self.shape.skew * len(self.attributes) for _ in range(count))
        indexes = sorted(set(map(int, draws)))
        if self.shape.drift:
            first = int(self.done * (len(self.attributes) - 1))
            indexes = [index for index in indexes if first <= index <= first + 1] or [first]
        return [self.attributes[index] for index in indexes]

    def predicate(self) -> Predicate:
        rng, shape = self.rng, self.shape
        tests = [
            values.presence(rng, attribute)
            if rng.random() < shape.presences
            else values.elementary_test(rng, attribute, shape.styles)
            for attribute in self.tested()
        ]
        return tuple(sorted(tests, key=lambda test: test.attribute))

    def filter(self) -> Filter:
        while True:
            try:
                return Filter.parse(self.condition(self.rng.choice((0, 1, 1, 2, 3))))
            except FilterTooComplex:
                continue

    def condition(self, depth: int) -> str:
        rng = self.rng
        if not depth:
            return values.term(rng, rng.choice(self.attributes))
        operands = [self.condition(depth - 1) for _ in range(rng.choice((1, 2, 2, 2, 3)))]
        text = rng.choice((" AND ", " AND ", " OR ")).join(f"({each})" for each in operands)
        return f"NOT ({text})" if rng.random() < 0.2 else text

    def topic_filter(self) -> TopicFilter:
        """One of its own, or one that shares topics with the common one."""
        rng = self.rng
        levels = rng.choices((*self.shape.levels, "+"), k=rng.randint(1, 4))
        if rng.random() < 0.4:
            levels = [level if rng.random() < 0.6 else "+" for level in self.common.levels if level != "#"]
        if rng.random() < 0.3:
            levels = [*levels[: rng.randint(0, len(levels))], "#"]
        return TopicFilter.parse("/".join(levels) or "x")

    def topic(self, meant: TopicFilter) -> str:
        """A topic that *meant* matches, most of the time."""
        levels = [level for level in meant.levels if level != "#"]
        if meant.levels[-1] == "#":
            levels += self.rng.choices(self.shape.levels, k=self.rng.randint(0, 2))
        levels = [self.rng.choice(self.shape.levels) if level == "+" else level for level in levels]
        if self.rng.random() < 0.15:
            levels.append(self.rng.choice(self.shape.levels))
        return "/".join(levels) or "x"
