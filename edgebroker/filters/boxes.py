"""Boxes: the events that one predicate accepts, one region per attribute, ready for comparison with other boxes.
`LIKE` patterns are compared with each other as sets of states.

A pattern is a row of states; state *n* has seen what its first *n* symbols (characters and `_`) want. States are
bits of one whole number, and the *other* pattern is read as if it were the text (Shift-And, Baeza-Yates and
Gonnet): a step costs one pass over the bits, so two patterns of 2 KiB take about 1 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters.names import AttributeName, AttributeSource
from edgebroker.filters.patterns import prefix_of
from edgebroker.filters.regions import (
    EVERYTHING,
    Region,
    Span,
    beginning_with,
    example_of,
    includes,
    intersection,
    point,
    point_of,
    region_of,
    union,
    whole,
)
from edgebroker.predicate import (
    ANY_ONE,
    ANY_RUN,
    Attributes,
    ElementaryTest,
    Interval,
    Pattern,
    Predicate,
    Value,
    ValueType,
)

Parts: TypeAlias = tuple[str | int, ...]
"""As in `edgebroker.predicate.Pattern`."""


def is_like_all(wide: Parts, narrow: Parts) -> bool:
    """Whether every text that is like *narrow* is like *wide*.

    True is certain. So is False as far as we know: a wildcard of *narrow* stands for characters that *wide* does not
    name, which only wildcards meet, and all patterns of up to four symbols over two letters were compared.
    """
    row = _PatternStates(wide)
    states = 1
    for symbol in _symbols(narrow):
        stay = states & row.loops
        if symbol == ANY_RUN:
            states = stay
        else:
            states = (states & (row.ones if symbol == ANY_ONE else row.fits(symbol))) << 1 | stay
        if not states:
            return False
    return bool(states & row.final)


def is_like_any(one: Parts, other: Parts) -> bool:
    """Whether some text is like both. Exact."""
    row = _PatternStates(one)
    states = 1
    for symbol in _symbols(other):
        stay = states & row.loops
        if symbol == ANY_RUN:
            states = row.every & -(states & -states)  # some text leads from the first state to every later one
        else:
            states = (states if symbol == ANY_ONE else states & row.fits(symbol)) << 1 & row.every | stay
        if not states:
            return False
    return bool(states & row.final)


class _PatternStates:
    """A pattern as states: `loops` stay whatever comes, `ones` go on with any one character, `final` has seen all."""

    def __init__(self, parts: Parts) -> None:
        self.loops = self.ones = 0
        self._fits: dict[str | int, int] = {}
        bit = 1
        for symbol in _symbols(parts):
            if symbol == ANY_RUN:
                self.loops |= bit
                continue
            if symbol == ANY_ONE:
                self.ones |= bit
            else:
                self._fits[symbol] = self._fits.get(symbol, 0) | bit
            bit <<= 1
        self.final = bit
        self.every = (bit << 1) - 1
        # `_%` and `%_` are "at least one character": such a state may wait before it goes on as well as afterwards.
        spread = 0
        while spread != self.loops:
            spread = self.loops
            self.loops |= (spread & self.ones) << 1 | (spread >> 1 & self.ones)

    def fits(self, character: str | int) -> int:
        """The states that go on with *character*."""
        return self._fits.get(character, 0) | self.ones


def _symbols(parts: Parts) -> Iterator[str | int]:
    for part in parts:
        if isinstance(part, str):
            yield from part
        else:
            yield part


_STRING: Final = whole(ValueType.STRING)
_DOMAINS: Final[Mapping[AttributeSource, Region]] = {
    AttributeSource.TOPIC: _STRING,
    AttributeSource.LEVEL: union((_STRING, whole(ValueType.NULL))),
    AttributeSource.QOS: union(map(point, (0, 1, 2))),
    AttributeSource.RETAIN: whole(ValueType.BOOLEAN),
    AttributeSource.SIZE: region_of(ElementaryTest("$size", ValueType.NUMBER, (Interval(0, True),))),
    AttributeSource.CLIENT: _STRING,
    AttributeSource.USER: union((_STRING, whole(ValueType.NULL))),
}
"""What an attribute can be, by where it comes from; in the payload it can be anything."""

_IMPOSSIBLE: Final = {
    AttributeSource.TOPIC: frozenset("\0+#"),
    AttributeSource.LEVEL: frozenset("\0+#/"),
    AttributeSource.CLIENT: frozenset("\0"),
    AttributeSource.USER: frozenset("\0"),
}
"""Characters that a text from there never holds."""


def domain_of(attribute: str) -> Region:
    """The values that *attribute*, a canonical name, can have."""
    if not attribute.startswith("$"):
        return EVERYTHING
    return _STRING if attribute == "$level1" else _DOMAINS[AttributeName.parse(attribute).source]


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """The events for which every attribute lies in its region; a string must also satisfy the attribute's patterns."""

    predicate: Predicate
    regions: dict[str, Region]
    """Attributes that may be anything they can be are left out. None of the regions is empty."""
    patterns: dict[str, tuple[Pattern, ...]]

    @classmethod
    def of(cls, predicate: Predicate) -> Box | None:
        """The box of *predicate*; None if a region shows that it accepts no event."""
        regions: dict[str, Region] = {}
        patterns: dict[str, tuple[Pattern, ...]] = {}
        for test in predicate:
            domain = domain_of(test.attribute)
            region = intersection(region_of(test), domain)
            if test.patterns:
                points = [point_of(span) for span in region]
                if None in points:
                    patterns[test.attribute] = test.patterns
                region = tuple(
                    span for span, one in zip(region, points, strict=True) if one is None or test.accepts(one[0])
                )
            if not region:
                return None
            if region != domain or test.attribute in patterns:
                regions[test.attribute] = region
        return cls(predicate, regions, patterns)

    def region(self, attribute: str) -> Region:
        """What *attribute* may be, patterns apart."""
        return self.regions.get(attribute) or domain_of(attribute)

    def covers(self, other: Box) -> bool:
        """Whether every event in *other* is in this box. Patterns apart, exact."""
        return next(self.failing(other), None) is None

    def failing(self, other: Box) -> Iterator[str]:
        """The attributes for which *other* may have a value that this box has not."""
        for attribute, region in self.regions.items():
            narrow = other.region(attribute)
            if not includes(region, narrow) or not all(
                _satisfied(pattern, span, other.patterns.get(attribute, ()))
                for pattern in self.patterns.get(attribute, ())
                for span in narrow
            ):
                yield attribute

    def accepts(self, attributes: Attributes) -> bool:
        """Whether an event with these *attributes* is in the box."""
        return all(test.accepts(attributes.get(test.attribute)) for test in self.predicate)


def example_event(regions: Mapping[str, Region], boxes: Iterable[Box]) -> dict[str, Value]:
    """An event whose attributes lie in *regions*; where *boxes* have patterns it tries to satisfy one of them."""
    event = {attribute: example_of(region) for attribute, region in regions.items()}
    for box in boxes:
        for attribute, patterns in box.patterns.items():
            for pattern in patterns:
                likely = not pattern.negated and intersection(regions[attribute], point(_text_like(pattern.parts)))
                if likely:
                    event[attribute] = example_of(likely)
    return event


def are_independent(attributes: Iterable[str]) -> bool:
    """Whether each of *attributes* may have any value that it can have, whatever the others are.

    Not if one lies inside another, and two that speak of the topic are not taken to be.
    """
    names = [AttributeName.parse(attribute) for attribute in set(attributes)]
    paths = {name.steps for name in names if name.source is AttributeSource.PAYLOAD}
    nested = any(steps[:length] in paths for steps in paths for length in range(1, len(steps)))
    return not nested and sum(name.source in (AttributeSource.TOPIC, AttributeSource.LEVEL) for name in names) < 2


def is_possible(attribute: str, value: Value) -> bool:
    """Whether *attribute* can have *value*, which is in its domain: no text of MQTT holds U+0000, a size is whole."""
    source = AttributeName.parse(attribute).source
    if source is AttributeSource.SIZE:
        return isinstance(value, int)
    if source is AttributeSource.PAYLOAD or not isinstance(value, str):
        return True
    return _IMPOSSIBLE[source].isdisjoint(value) and (
        value != "" or source in (AttributeSource.LEVEL, AttributeSource.USER)
    )


def _satisfied(pattern: Pattern, span: Span, known: tuple[Pattern, ...]) -> bool:
    """Whether every string in *span* that satisfies the *known* patterns satisfies *pattern*. True is certain."""
    only = point_of(span)
    if only is not None:
        return isinstance(only[0], str) and pattern.accepts(only[0])
    if not known:  # it has texts that are too long to be asked about
        return False
    likes: list[Parts] = [(_shared_prefix(span), ANY_RUN), *(one.parts for one in known if not one.negated)]
    if not pattern.negated:
        return any(is_like_all(pattern.parts, like) for like in likes)
    if not intersection((span,), beginning_with(prefix_of(pattern.parts))):
        return True
    return any(not is_like_any(pattern.parts, like) for like in likes) or any(
        is_like_all(one.parts, pattern.parts) for one in known if one.negated
    )


def _shared_prefix(span: Span) -> str:
    """The longest text with which all strings in *span* begin."""
    text: str = span[0][1] if len(span[0]) > 1 else ""
    least, most = 0, len(text)
    while least < most:
        middle = (least + most + 1) // 2
        if includes(beginning_with(text[:middle]), (span,)):
            least = middle
        else:
            most = middle - 1
    return text[:least]


def _text_like(parts: Parts) -> str:
    """A text that is like the pattern."""
    return "".join(part if isinstance(part, str) else "_" if part == ANY_ONE else "" for part in parts)
