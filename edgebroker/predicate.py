"""Predicates: the normal form of a content filter, and the attribute values of an event that it is compared with ([LM]
section 1). An absent attribute is NULL.

A *predicate* is a conjunction of *elementary tests*, at most one per attribute, sorted by attribute. A filter is a
disjunction of predicates. Predicates contain no negation: every test states the values that it accepts. This is
possible because a comparison with NULL or with a value of another type is unknown, and an event for which a filter is
unknown is not delivered: `NOT a > 3` accepts exactly the *numbers* that are at most 3. A LIKE with a text of more than
LIKE_CHARS_MAX characters is unknown too: every message is compared with every pattern, and the work for one message
cannot be divided between turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.limits import LIKE_CHARS_MAX


class Composite:
    """The value of an attribute that is present but cannot be compared: an object, an array, bytes, NaN.

    `x IS NOT NULL` holds for it; every comparison with it is unknown.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "COMPOSITE"


COMPOSITE: Final = Composite()

Value: TypeAlias = bool | int | float | str | Composite | None
"""A value that a filter is compared with. None is NULL: the attribute is absent or null."""

Attributes: TypeAlias = Mapping[str, Value]
"""Canonical attribute name -> value. A missing name is NULL."""


Bound: TypeAlias = bool | int | float | str


class ValueType(IntEnum):
    """The kinds of values that an elementary test can accept."""

    NULL = 0
    """The attribute is absent or null."""
    NOT_NULL = 1
    """The attribute has any value, composite ones included."""
    NUMBER = 2
    """A number (not a boolean) in one of the intervals."""
    STRING = 3
    """A string in one of the intervals (by code point) that also satisfies all patterns."""
    BOOLEAN = 4
    """A boolean in one of the intervals."""


@dataclass(frozen=True, slots=True)
class Interval:
    """All values between `low` and `high`; None is unbounded. `low == high`, both closed, is a single value."""

    low: Bound | None = None
    low_closed: bool = False
    high: Bound | None = None
    high_closed: bool = False

    @property
    def is_point(self) -> bool:
        """Whether the interval holds exactly one value."""
        return self.low is not None and self.low_closed and self.high_closed and self.low == self.high

    def contains(self, value: Bound) -> bool:
        """Return whether *value*, which must be of the type of the bounds, lies inside."""
        low, high = self.low, self.high
        if low is not None and not (low < value or (self.low_closed and low == value)):  # type: ignore[operator]
            return False
        return high is None or value < high or (self.high_closed and value == high)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A `LIKE` that is not a plain prefix. `parts`: literal texts, ANY_RUN (`%`) and ANY_ONE (`_`) in order."""

    parts: tuple[str | int, ...]
    negated: bool = False
    weight: int = field(init=False, repr=False, compare=False)
    """The cost of one comparison, in patterns of less than 128 characters (`%` counts as four): 1 us, and 1 to 2 more
    for each KiB of text.
    """
    _like: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = [len(part) if isinstance(part, str) else 4 if part == ANY_RUN else 1 for part in self.parts]
        object.__setattr__(self, "weight", 1 + sum(sizes) // 128)
        object.__setattr__(self, "_like", _compile_like(self.parts))

    def accepts(self, text: str) -> bool:
        """Return whether the whole *text* is like the pattern (or not like it, if negated).

        The parts between two runs are searched from left to right, each in one pass over the text, or in one pass per
        128 characters of the part: 4 KiB take 5 to 8 us with a pattern of 100 characters and 70 us with 2 KiB,
        compiled.
        """
        return self._like(text) is not self.negated


ANY_RUN = 0
"""In `Pattern.parts`: any run of characters, possibly empty (`%`)."""
ANY_ONE = 1
"""In `Pattern.parts`: exactly one character (`_`)."""


_Segment: TypeAlias = tuple[str, ...]
"""The places between two runs: each a character, or "" for any one character."""


def _compile_like(parts: tuple[str | int, ...]) -> Callable[[str], bool]:
    """Return a function that tells whether a text is like *parts*. A pattern is compiled once, because every event is
    compared with it.
    """
    segments: list[list[str | int]] = [[]]
    for part in parts:
        if part == ANY_RUN:
            segments.append([])
        else:
            segments[-1].append(part)
    if len(segments) > 1 and all(segment == [] or [type(one) for one in segment] == [str] for segment in segments):
        return _compile_literal_like(["".join(map(str, segment)) for segment in segments])
    first, last = segments[0], segments[-1]
    between = [_search_plan(segment) for segment in segments[1:-1] if segment]
    is_whole = len(segments) == 1
    tail = _length(last)
    least = sum(map(_length, segments))

    def is_like(text: str) -> bool:
        if len(text) < least:
            return False
        at = _end(first, text, 0)
        if is_whole:
            return at == len(text)
        begin = len(text) - tail
        if at < 0 or _end(last, text, begin) < 0:
            return False
        for before, literal, after, places in between:
            if places:
                at = end_of_places(places, text, at, begin)
            else:
                at = end_of_text(literal, text, at + before, begin - after)
                at += after if at >= 0 else 0
            if at < 0:
                return False
        return at <= begin

    return is_like


def _length(segment: list[str | int]) -> int:
    """Return the number of characters that *segment* matches."""
    return sum(len(part) if isinstance(part, str) else 1 for part in segment)


def _compile_literal_like(texts: list[str]) -> Callable[[str], bool]:
    """As `_compile_like`, for literal texts with runs between them; takes a third of the time."""
    first, *between, last = texts
    middle = [text for text in between if text]
    begin, tail, least = len(first), len(last), sum(map(len, texts))

    def is_like(text: str) -> bool:
        end = len(text) - tail
        if len(text) < least or not text.startswith(first) or not text.endswith(last):
            return False
        at = begin
        for one in middle:
            at = end_of_text(one, text, at, end)
            if at < 0:
                return False
        return True

    return is_like


def _end(segment: list[str | int], text: str, at: int) -> int:
    """Return the end of *segment* if it matches at *at*; -1 if it does not."""
    for part in segment:
        if not isinstance(part, str):
            at += 1
        elif text.startswith(part, at):
            at += len(part)
        else:
            return -1
    return at if at <= len(text) else -1


def _search_plan(segment: list[str | int]) -> tuple[int, str, int, _Segment]:
    """Return how to search for *segment*: a single text with the counts of ANY_ONE before and after it, or place by
    place.
    """
    texts = [part for part in segment if isinstance(part, str)]
    if len(texts) == 1:
        before = segment.index(texts[0])
        return before, texts[0], len(segment) - 1 - before, ()
    return 0, "", 0, tuple(place for part in segment for place in (part if isinstance(part, str) else ("",)))


def end_of_places_plainly(places: _Segment, text: str, at: int, stop: int) -> int:
    """Return the end of the first run in `text[at:stop]` that matches *places*; -1 if there is none.

    All candidate starts are followed at once: bit n of `alive` is set if the last n + 1 characters match the first n +
    1 places (the Shift-And algorithm of Baeza-Yates and Gonnet).
    """
    fits: dict[str, int] = {}
    fits_all = 0
    for number, place in enumerate(places):
        if place:
            fits[place] = fits.get(place, 0) | 1 << number
        else:
            fits_all |= 1 << number
    complete, alive = 1 << len(places) - 1, 0
    for here in range(at, stop):
        alive = (alive << 1 | 1) & (fits.get(text[here], 0) | fits_all)
        if alive & complete:
            return here + 1
    return -1


def end_of_text_plainly(literal: str, text: str, at: int, stop: int) -> int:
    """Return the end of the first *literal* in `text[at:stop]`; -1 if there is none."""
    found = text.find(literal, at, stop)
    return found + len(literal) if found >= 0 else -1


if TYPE_CHECKING:
    end_of_places, end_of_text = end_of_places_plainly, end_of_text_plainly
else:
    try:
        from edgebroker.like.segments import end_of_places, end_of_text  # compiled: 1 ns a character instead of 100
    except ImportError:
        end_of_places, end_of_text = end_of_places_plainly, end_of_text_plainly


@dataclass(frozen=True, slots=True)
class ElementaryTest:
    """The values that one predicate accepts for one attribute.

    `intervals` are sorted, disjoint and not empty for NUMBER, STRING and BOOLEAN, and `()` for NULL and NOT_NULL. All
    `patterns` must match in addition (STRING only); none matches a text of more than LIKE_CHARS_MAX characters.
    """

    attribute: str
    kind: ValueType
    intervals: tuple[Interval, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    def accepts(self, value: Value) -> bool:
        """Return whether the test accepts *value*. The reference for every faster search."""
        if _KINDS.get(type(value)) is not self.kind:
            return self._accepts_by_presence(value)
        for interval in self.intervals:
            if interval.contains(value):  # type: ignore[arg-type]
                if self.patterns and len(value) > LIKE_CHARS_MAX:  # type: ignore[arg-type]
                    return False
                for pattern in self.patterns:  # noqa: SIM110 - half the time of all() with a generator
                    if not pattern.accepts(value):  # type: ignore[arg-type]
                        return False
                return True
        return False

    def pattern_work(self, text: str) -> int:
        """Return the cost of comparing *text* with the patterns, in units of about a microsecond: the sum of their
        weights, and that again for each KiB; 0 if the text is too long to be compared.
        """
        if len(text) > LIKE_CHARS_MAX:
            return 0
        return sum([pattern.weight for pattern in self.patterns]) * (1 + (len(text) >> 10))

    def _accepts_by_presence(self, value: Value) -> bool:
        """As `accepts`, for a value whose Python type is not exactly one that the test compares with."""
        if self.kind is ValueType.NULL:
            return value is None
        if value is None:
            return False
        if self.kind is ValueType.NOT_NULL:
            return True
        if isinstance(value, Composite) or type(value) in _KINDS or kind_of(value) is not self.kind:
            return False
        return ElementaryTest.accepts(self, _plain(value))


Predicate: TypeAlias = tuple[ElementaryTest, ...]
"""A conjunction, sorted by attribute, each attribute at most once. `()` accepts every event."""


def kind_of(value: bool | int | float | str) -> ValueType:
    """Return the type of a comparable value."""
    if isinstance(value, bool):
        return ValueType.BOOLEAN
    return ValueType.STRING if isinstance(value, str) else ValueType.NUMBER


def _plain(value: bool | int | float | str) -> Bound:
    """Return *value*, of a subclass of a filter's types, as that type itself."""
    return str(value) if isinstance(value, str) else float(value) if isinstance(value, float) else int(value)


_KINDS: Final = {float: ValueType.NUMBER, int: ValueType.NUMBER, str: ValueType.STRING, bool: ValueType.BOOLEAN}
"""The type of a filter's value by its Python type, for the types that payloads are parsed into."""
