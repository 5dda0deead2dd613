"""Boxes: the events that one predicate accepts, one region per attribute, prepared for comparison with other boxes.
`LIKE` patterns are compared with each other as sets of states.

A pattern is a row of states; state *n* has matched its first *n* symbols (characters and `_`). States are bits of one
integer, and the *other* pattern is read like a text (Shift-And, Baeza-Yates and Gonnet): a step costs one pass over the
bits, so two patterns of 2 KiB take about 1 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters.elementary import Span
from edgebroker.filters.names import AttributeName, AttributeSource, is_element_test
from edgebroker.filters.patterns import prefix_of
from edgebroker.filters.regions import (
    EVERYTHING,
    Region,
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
    """Return whether every text that is like *narrow* is like *wide*.

    True is certain. False is certain as far as we know: a wildcard of *narrow* stands for characters that *wide* does
    not name, which only wildcards match, and all patterns of up to four symbols over two letters were compared.
    """
    pattern = _PatternStates(wide)
    states = 1
    for symbol in _symbols(narrow):
        stay = states & pattern.loops
        if symbol == ANY_RUN:
            states = stay
        else:
            states = (states & (pattern.ones if symbol == ANY_ONE else pattern.fits(symbol))) << 1 | stay
        if not states:
            return False
    return bool(states & pattern.final)


def is_like_any(one: Parts, other: Parts) -> bool:
    """Return whether some text is like both. Exact."""
    pattern = _PatternStates(one)
    states = 1
    for symbol in _symbols(other):
        stay = states & pattern.loops
        if symbol == ANY_RUN:
            states = pattern.every & -(states & -states)  # some text leads from the first state to every later one
        else:
            states = (states if symbol == ANY_ONE else states & pattern.fits(symbol)) << 1 & pattern.every | stay
        if not states:
            return False
    return bool(states & pattern.final)


class _PatternStates:
    """A pattern as states: `loops` accept any run, `ones` any one character, `final` is reached at the end."""

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
        # `_%` and `%_` are "at least one character": such a state may loop before its transition and after it.
        spread = 0
        while spread != self.loops:
            spread = self.loops
            self.loops |= (spread & self.ones) << 1 | (spread >> 1 & self.ones)

    def fits(self, character: str | int) -> int:
        """Return the states with a transition for *character*."""
        return self._fits.get(character, 0) | self.ones


def _symbols(parts: Parts) -> Iterator[str | int]:
    for part in parts:
        if isinstance(part, str):
            yield from part
        else:
            yield part


_STRING: Final = whole(ValueType.STRING)
_TRUTHS: Final = union((whole(ValueType.BOOLEAN), whole(ValueType.NULL)))
"""The values of a test of any element of an array."""
_DOMAINS: Final[Mapping[AttributeSource, Region]] = {
    AttributeSource.TOPIC: _STRING,
    AttributeSource.LEVEL: union((_STRING, whole(ValueType.NULL))),
    AttributeSource.QOS: union(map(point, (0, 1, 2))),
    AttributeSource.RETAIN: whole(ValueType.BOOLEAN),
    AttributeSource.SIZE: region_of(ElementaryTest("$size", ValueType.NUMBER, (Interval(0, True),))),
    AttributeSource.CLIENT: _STRING,
    AttributeSource.USER: union((_STRING, whole(ValueType.NULL))),
}
"""Source -> the values that an attribute can have; in the payload it can have any."""

_IMPOSSIBLE: Final = {
    AttributeSource.TOPIC: frozenset("\0+#"),
    AttributeSource.LEVEL: frozenset("\0+#/"),
    AttributeSource.CLIENT: frozenset("\0"),
    AttributeSource.USER: frozenset("\0"),
}
"""Source -> characters that a text never contains."""


def domain_of(attribute: str) -> Region:
    """Return the values that *attribute*, a canonical name, can have."""
    if not attribute.startswith("$"):
        return _TRUTHS if is_element_test(attribute) else EVERYTHING
    return _STRING if attribute == "$level1" else _DOMAINS[AttributeName.parse(attribute).source]


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """The events with every attribute in its region; a string must also match the attribute's patterns."""

    predicate: Predicate
    regions: dict[str, Region]
    """Attribute -> region. Attributes that are not restricted are left out. None of the regions is empty."""
    patterns: dict[str, tuple[Pattern, ...]]

    @classmethod
    def of(cls, predicate: Predicate) -> Box | None:
        """Return the box of *predicate*; None if a region shows that it accepts no event."""
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
        """Return the values that *attribute* may have, apart from patterns."""
        return self.regions.get(attribute) or domain_of(attribute)

    def covers(self, other: Box) -> bool:
        """Return whether this box contains every event in *other*. Exact, apart from patterns."""
        return next(self.failing(other), None) is None

    def failing(self, other: Box) -> Iterator[str]:
        """Iterate over the attributes for which *other* may have a value that this box excludes."""
        for attribute, region in self.regions.items():
            narrow = other.region(attribute)
            if not includes(region, narrow) or not all(
                _satisfied(pattern, span, other.patterns.get(attribute, ()))
                for pattern in self.patterns.get(attribute, ())
                for span in narrow
            ):
                yield attribute

    def accepts(self, attributes: Attributes) -> bool:
        """Return whether an event with these *attributes* is in the box."""
        return all(test.accepts(attributes.get(test.attribute)) for test in self.predicate)


def example_event(regions: Mapping[str, Region], boxes: Iterable[Box]) -> dict[str, Value]:
    """Return an event with attributes in *regions*; if *boxes* have patterns it tries to match one of them."""
    event = {attribute: example_of(region) for attribute, region in regions.items()}
    for box in boxes:
        for attribute, patterns in box.patterns.items():
            for pattern in patterns:
                likely = not pattern.negated and intersection(regions[attribute], point(_text_like(pattern.parts)))
                if likely:
                    event[attribute] = example_of(likely)
    return event


def are_independent(attributes: Iterable[str]) -> bool:
    """Return whether each of *attributes* can have any of its values, whatever the others are.

    False if one is inside another, if two are under one key and one of these is about elements, or if two of them are
    derived from the topic.
    """
    names = [AttributeName.parse(attribute) for attribute in set(attributes)]
    paths = {name.steps for name in names if name.source is AttributeSource.PAYLOAD}
    nested = any(steps[:length] in paths for steps in paths for length in range(1, len(steps)))
    elements = [name.steps[0] for name in names if name.source is AttributeSource.ELEMENT]
    if elements:  # two tests of the same elements decide one another, or not
        keys = [*elements, *{steps[0] for steps in paths}]
        nested = nested or len(set(keys)) < len(keys)
    return not nested and sum(name.source in (AttributeSource.TOPIC, AttributeSource.LEVEL) for name in names) < 2


def is_possible(attribute: str, value: Value) -> bool:
    """Return whether *attribute* can have *value*, which is in its domain: MQTT texts contain no U+0000, a size is
    whole.
    """
    source = AttributeName.parse(attribute).source
    if source is AttributeSource.SIZE:
        return isinstance(value, int)
    if source is AttributeSource.PAYLOAD or not isinstance(value, str):
        return True
    return _IMPOSSIBLE[source].isdisjoint(value) and (
        value != "" or source in (AttributeSource.LEVEL, AttributeSource.USER)
    )


def _satisfied(pattern: Pattern, span: Span, known: tuple[Pattern, ...]) -> bool:
    """Return whether every string in *span* that matches the *known* patterns matches *pattern*. True is certain."""
    only = point_of(span)
    if only is not None:
        return isinstance(only[0], str) and pattern.accepts(only[0])
    if not known:  # the span contains texts that are too long to match
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
    """Return the longest common prefix of all strings in *span*."""
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
    """Return a text that is like the pattern."""
    return "".join(part if isinstance(part, str) else "_" if part == ANY_ONE else "" for part in parts)
