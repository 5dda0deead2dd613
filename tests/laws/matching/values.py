"""Chance for the laws of matching: attributes with the bounds that filters name, and the values that events bring.

The values are chosen for where a matcher can go wrong: at a bound and right beside it, in another type, absent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgebroker.predicate import ANY_ONE, ANY_RUN, COMPOSITE, Bound, ElementaryTest, Interval, Pattern, Value, ValueType

Number = int | float

SMALLEST = math.ulp(0.0)
LARGEST = 1.7976931348623157e308
NUMBERS: tuple[Number, ...] = (
    *(0, 0.0, -0.0, 1, 1.0, -1, 0.5, 2, 2.5, 3, 10, 0.1, 1 / 3),
    *(SMALLEST, -SMALLEST, 2.2250738585072014e-308, -2.225073858507201e-308, 1 - 2.0**-53, 1 + 2.0**-52),
    *(2**31, -(2**31) - 1, 2**53 - 1, 2**53, 2**53 + 1, 2.0**53, -(2**53) - 1, 2**62, 2**63 - 1, 2**63, 2.0**63),
    *(-(2**63), -(2**63) - 1, 2**64, 2**64 + 1, 10**30, 1e30, 10**400, -(10**400), LARGEST, -LARGEST, int(LARGEST) + 1),
)
BEYOND: tuple[Number, ...] = (math.inf, -math.inf, 10**401, -(10**401))
"""Values of events that lie outside all bounds; filters cannot spell infinity."""

SHARED = "site/berlin/"
"""More bytes than a matcher might keep of a string."""
STRINGS = (
    *("", "a", "ab", "abc", "abd", "b", "ba", "A", " ", "%", "_", "a%b", "a_b", "'", "it's", "!", "1", "1.0", "TRUE"),
    *("\0", "a\0", "a\0b", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\U0010ffff\U0010ffff"),
    *("é", "e\u0301", "éa", "ß", "ss", "İ", "n\u0303", "\u200d", "12345678", "123456789", "1234567", "1234567\0"),
    *(SHARED, SHARED + "a", SHARED + "b", SHARED + "a\0", SHARED + "é", SHARED + "\U00010000", SHARED + "\uffff"),
    *("x" * 255, "x" * 256, "x" * 300 + "y", "x" * 300 + "z"),
)


# -- bounds -----------------------------------------------------------------------------------------------------------


def few(rng: random.Random) -> list[Number]:
    return list(range(rng.randint(1, 4)))


def special(rng: random.Random) -> list[Number]:
    return rng.sample(NUMBERS, rng.randint(2, 12))


def adjacent(rng: random.Random) -> list[Number]:
    """Floats without another one between them."""
    number = rng.choice((rng.uniform(-100, 100), 0.0, 1.0, 2.0**53, -LARGEST, -3 * SMALLEST))
    return [number := math.nextafter(number, math.inf) for _ in range(rng.randint(2, 6))]


def huge(rng: random.Random) -> list[Number]:
    """Whole numbers that are one apart, where floats are not."""
    number = rng.choice((2**53, -(2**53), 2**63, 2**64, 10**30, 10**400, -(10**400)))
    return [number + rng.randint(-2, 2) for _ in range(4)]


def spread(rng: random.Random) -> list[Number]:
    return [rng.choice((rng.randint(-50, 50), round(rng.uniform(-50, 50), 2))) for _ in range(rng.randint(5, 40))]


def many(rng: random.Random) -> list[Number]:
    return rng.sample(range(100_000), 1_500)


def nested(rng: random.Random) -> list[Number]:
    size = rng.choice((20, 100, 600))
    return list(range(-size, size + 1))


def one(rng: random.Random) -> list[Number]:
    return [rng.choice(NUMBERS)]


def short(rng: random.Random) -> list[str]:
    return rng.sample(("", "a", "ab", "abc", "b", "ba", "c", "é"), rng.randint(1, 6))


def odd(rng: random.Random) -> list[str]:
    return rng.sample(STRINGS, rng.randint(2, 12))


def alike(rng: random.Random) -> list[str]:
    """Strings that begin with the same eight bytes or more."""
    return [SHARED + "".join(rng.choices("ab\0é\U00010000", k=rng.randint(0, 4))) for _ in range(rng.randint(2, 20))]


def devices(rng: random.Random) -> list[str]:
    return [f"device-{number:06}" for number in rng.sample(range(100_000), 2_000)]


@dataclass(frozen=True)
class Attribute:
    """An attribute and what filters compare it with. `skew`: how strongly the first bounds are preferred, from 1."""

    name: str
    numbers: Sequence[Number]
    strings: Sequence[str]
    kinds: tuple[ValueType, ...]
    """NUMBER, STRING and BOOLEAN, each as often as it is to be compared with."""
    skew: float = 1.0

    def bounds(self, kind: ValueType) -> Sequence[Bound]:
        if kind is ValueType.BOOLEAN:
            return (False, True)
        return self.numbers if kind is ValueType.NUMBER else self.strings

    def bound(self, rng: random.Random, kind: ValueType) -> Bound:
        bounds = self.bounds(kind)
        return bounds[int(rng.random() ** self.skew * len(bounds))]

    def ascending(self, rng: random.Random, kind: ValueType, count: int) -> list[Bound]:
        """At most *count* different bounds in order."""
        return sorted({self.bound(rng, kind) for _ in range(count)})  # type: ignore[type-var]

    def values(self, rng: random.Random) -> list[Value]:
        """What events may bring: every bound, what lies beside it, and what is of another type."""
        bounds: list[Value] = [bound for kind in set(self.kinds) for bound in self.bounds(kind)]
        if len(bounds) > 200:
            bounds = rng.sample(bounds, 200)
        beside = [beside for bound in bounds for beside in neighbours(bound)]
        strange = [*rng.sample(NUMBERS, 2), *rng.sample(STRINGS, 2), rng.choice(BEYOND)]
        rare = [True, False, COMPOSITE, None]
        return bounds + rng.sample(beside, min(len(beside), 2 * len(bounds), 40)) + strange + rare


def neighbours(bound: Value) -> list[Value]:
    """The values beside *bound*, and those equal to it in another type."""
    match bound:
        case bool():
            return [int(bound), float(bound), str(bound)]
        case int():
            as_float: list[Value] = [float(bound)] if abs(bound) < 10**300 else []
            return [bound - 1, bound + 1, *as_float, str(bound)[:50]]
        case float():
            whole: list[Value] = [int(bound)] if bound.is_integer() else []
            return [math.nextafter(bound, -math.inf), math.nextafter(bound, math.inf), -bound, *whole]
        case str():
            after = [bound[:-1] + chr(ord(bound[-1]) + 1)] if bound and bound[-1] < "\ud700" else []
            return [bound + "\0", bound + "a", bound[:-1], bound.upper(), *after]
        case _:
            return []


# -- elementary tests -------------------------------------------------------------------------------------------------

Style = Callable[[random.Random, Attribute, ValueType], tuple[Interval, ...]]


def point(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    value = attribute.bound(rng, kind)
    return (Interval(value, True, value, True),)


def points(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    return tuple(Interval(value, True, value, True) for value in attribute.ascending(rng, kind, rng.randint(2, 8)))


def side(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    bound, closed = attribute.bound(rng, kind), rng.random() < 0.5
    return (Interval(bound, closed) if rng.random() < 0.5 else Interval(None, False, bound, closed),)


def between(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    ends = attribute.ascending(rng, kind, 2)
    if len(ends) == 1:
        return (Interval(ends[0], True, ends[0], True),)
    return (Interval(ends[0], rng.random() < 0.5, ends[1], rng.random() < 0.5),)


def around(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    """From the n-th bound to the n-th last: each interval lies inside all longer ones."""
    bounds = attribute.bounds(kind)
    distance = rng.randrange(max(1, len(bounds) // 2))
    return (Interval(bounds[distance], rng.random() < 0.9, bounds[-1 - distance], rng.random() < 0.9),)


def unequal(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    """Everything but a few points."""
    gaps = [None, *attribute.ascending(rng, kind, rng.randint(1, 3)), None]
    return tuple(Interval(low, False, high, False) for low, high in pairwise(gaps))


def pieces(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    """What lies between some positions, each just before or just after a bound; intervals may touch."""
    bounds = attribute.ascending(rng, kind, rng.randint(1, 4))
    positions = [(bound, after) for bound in bounds for after in (False, True) if rng.random() < 0.6]
    ends = [None, *positions, None]
    found = [
        Interval(low and low[0], low is not None and not low[1], high and high[0], high is not None and high[1])
        for low, high in pairwise(ends)
    ]
    return tuple(piece for piece in found if rng.random() < 0.6) or (found[0],)


def whole(rng: random.Random, attribute: Attribute, kind: ValueType) -> tuple[Interval, ...]:
    return (Interval(),)


def pattern(rng: random.Random, attribute: Attribute) -> Pattern:
    text = rng.choice(attribute.strings)
    start = rng.randint(0, len(text))
    parts = (text[:1], text[start : start + 2], "a", ANY_RUN, ANY_RUN, ANY_ONE)
    return Pattern(tuple(part for part in rng.choices(parts, k=rng.randint(1, 4)) if part != ""), rng.random() < 0.3)


def presence(rng: random.Random, attribute: Attribute) -> ElementaryTest:
    return ElementaryTest(attribute.name, rng.choice((ValueType.NULL, ValueType.NOT_NULL)))


def elementary_test(rng: random.Random, attribute: Attribute, styles: Sequence[Style]) -> ElementaryTest:
    """A test of *attribute* in one of the *styles*; of strings sometimes with patterns."""
    kind = rng.choice(attribute.kinds)
    intervals = rng.choice(styles)(rng, attribute, kind)
    if kind is ValueType.BOOLEAN:  # filters spell these as single values, never as a range
        truths = [truth for truth in (False, True) if any(each.contains(truth) for each in intervals)] or [True]
        intervals = tuple(Interval(truth, True, truth, True) for truth in truths)
    patterns: tuple[Pattern, ...] = ()
    if kind is ValueType.STRING and rng.random() < 0.15:
        patterns = tuple(pattern(rng, attribute) for _ in range(rng.randint(1, 2)))
    return ElementaryTest(attribute.name, kind, intervals, patterns)


# -- the same as text -------------------------------------------------------------------------------------------------


def literal(value: Bound) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def term(rng: random.Random, attribute: Attribute) -> str:
    """One comparison in the filter language; all operators occur."""
    kind = rng.choice(attribute.kinds)
    name, no = attribute.name, rng.choice(("", "NOT "))
    bound = literal(attribute.bound(rng, kind))
    if rng.random() < 0.1:
        return f"{name} IS {no}NULL"
    if kind is ValueType.BOOLEAN:
        return rng.choice((name, f"{name} = {bound}", f"{name} <> {bound}", f"{name} {no}IN (FALSE, TRUE)"))
    operator = rng.choice(("=", "=", "<>", "<", "<=", ">", ">="))
    forms = [f"{name} {operator} {bound}", f"{bound} {operator} {name}"]
    if rng.random() < 0.4:
        forms = [
            f"{name} {no}IN ({', '.join(literal(attribute.bound(rng, kind)) for _ in range(rng.randint(1, 5)))})",
            f"{name} {no}BETWEEN {bound} AND {literal(attribute.bound(rng, kind))}",
        ]
    if kind is ValueType.STRING and rng.random() < 0.4:
        text = rng.choice(attribute.strings)[:40]
        like = rng.choice((text + "%", text[:1] + "%", "%" + text, text[:1] + "_%", "%" + text[1:2] + "%", text))
        forms = [f"{name} {no}LIKE {literal(like)}", f"{name} {no}LIKE {literal(text[:2] + '!%_%')} ESCAPE '!'"]
    return rng.choice(forms)
