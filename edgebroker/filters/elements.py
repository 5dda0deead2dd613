"""Tests of any element of an array: `tags[*] = 'x'` is true if some element is 'x', and false if none is.

The parser makes such a test a boolean attribute whose name is the test itself, so the matcher, covering and the links
between gateways treat it as any other attribute. Only the extractor looks at elements: it asks an `ElementArray` for
each path. An element that a test cannot be asked of, because it is of another kind, does not satisfy it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from edgebroker.filters.elementary import accepted_by
from edgebroker.filters.names import ANY_ELEMENT, AttributeName, Step, is_element_test
from edgebroker.filters.parser import parse_element_test
from edgebroker.filters.syntax import InTest, Term
from edgebroker.predicate import ElementaryTest, Interval, Value, ValueType

ELEMENTS_MAX: Final = 256
"""Elements of an array that are looked at; what a test does not find among these is unknown if there are more. To bring
so many in order takes 50 us, once for all tests of the array; then a comparison takes about 1 us.
"""
SCAN_WEIGHT: Final = 16
"""`LIKE` is tried on each element, up to 350 us for 256 of them: as much as so many patterns for one long text."""
TESTS_REMEMBERED: Final = 4_096
"""Cached tests, which many topics share: 10 us and a kilobyte each."""

_TYPES: Final = {ValueType.NUMBER: (int, float), ValueType.STRING: (str,), ValueType.BOOLEAN: (bool,)}


class ElementTest:
    """One test, by the canonical *name* of the attribute that it is. `test` is None if no value can satisfy it."""

    __slots__ = ("name", "path", "rest", "terms", "test")

    def __init__(self, name: str) -> None:
        """Raises FilterInvalid if *name* is none."""
        term = parse_element_test(name)
        steps = AttributeName.parse(term.attribute).steps
        at = steps.index(ANY_ELEMENT)
        self.name = name
        self.path: tuple[Step, ...] = steps[:at]
        """The path of the array."""
        self.rest: tuple[Step, ...] = steps[at + 1 :]
        """The path inside of each element."""
        self.terms = len(term.values) if isinstance(term, InTest) else 1
        self.test: ElementaryTest | None = accepted_by(term)

    @property
    def weight(self) -> int:
        """The cost besides that of an attribute, in `LIKE` patterns."""
        return 0 if self.test is None else SCAN_WEIGHT * sum(pattern.weight for pattern in self.test.patterns)


@lru_cache(TESTS_REMEMBERED)
def element_test(name: str) -> ElementTest:
    """Return the test that the attribute *name* is. Raises FilterInvalid."""
    return ElementTest(name)


def literals_of(term: Term) -> int:
    """Return the number of terms that *term* counts as: that of the values of a list."""
    if isinstance(term, InTest):
        return len(term.values)
    return element_test(term.attribute).terms if is_element_test(term.attribute) else 1


class ElementArray:
    """The tests of the elements of one array, which are brought together once per message."""

    __slots__ = ("path", "rest", "tests", "weight")

    def __init__(self, path: tuple[Step, ...], rest: tuple[Step, ...], tests: Sequence[ElementTest]) -> None:
        self.path = path
        self.rest = rest
        self.tests = tests
        self.weight = 4 + sum(one.weight for one in tests)
        """The cost of 32 elements, in about microseconds."""

    def true_tests(self, values: Sequence[Value]) -> set[str]:
        """Return the names of the tests that one of *values* satisfies."""
        ordered: dict[ValueType, list[Any]] = {}
        found: set[str] = set()
        for one in self.tests:
            test = one.test
            if test is None:
                continue
            if test.kind in (ValueType.NULL, ValueType.NOT_NULL):
                nulls = values.count(None)
                is_true = nulls > 0 if test.kind is ValueType.NULL else nulls < len(values)
            else:
                present = ordered.get(test.kind)
                if present is None:
                    types = _TYPES[test.kind]
                    present = ordered[test.kind] = sorted({value for value in values if type(value) in types})
                if test.patterns:
                    is_true = any(map(test.accepts, present))
                else:
                    is_true = any(_has_value_in(interval, present) for interval in test.intervals)
            if is_true:
                found.add(one.name)
        return found


def _has_value_in(interval: Interval, ordered: Sequence[Any]) -> bool:
    """Return whether one of the values in *ordered*, of the kind of the interval's ends, is in *interval*."""
    if interval.low is None:
        at = 0
    else:
        at = (bisect_left if interval.low_closed else bisect_right)(ordered, interval.low)
    return at < len(ordered) and interval.contains(ordered[at])


def arrays_of(names: Iterable[str]) -> tuple[ElementArray, ...]:
    """Return the arrays that the attributes *names*, tests of elements, are about. Raises FilterInvalid."""
    tests: dict[tuple[tuple[Step, ...], tuple[Step, ...]], list[ElementTest]] = {}
    for name in names:
        one = element_test(name)
        tests.setdefault((one.path, one.rest), []).append(one)
    return tuple(ElementArray(path, rest, some) for (path, rest), some in tests.items())
