"""The matching cost of content filters, counted per client and per source (a user or an address)."""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.filters import Filter
from edgebroker.filters.elements import element_test
from edgebroker.filters.names import is_element_test
from edgebroker.predicate import ElementaryTest

FILTER_BYTES: Final = 700
"""The memory of a content filter besides its elementary tests..."""
TEST_BYTES: Final = 350
"""...and of one of those: two tests took 1,100 to 1,750 bytes (`session.footprint`)."""
INTERVALS_PER_TEST: Final = 8
"""A test on many intervals (`IN` with 64 values) is looked up, not tried: eight of them count as one more test."""


@dataclass(frozen=True, slots=True)
class FilterCost:
    """What one content filter costs, at worst, for every publication that its topic filter matches."""

    tests: int
    """Elementary tests of all its alternatives: 10 to 30 ns each where no column of the tree passes over them."""
    patterns: int
    """`LIKE` patterns that are no plain prefix, each as often as it stands in another test, and one more for each 128
    characters: 1 us each for a short text, 8 us for one of 4,096 characters. A pattern that is asked of any element of
    an array counts as 16: it is tried on 256 elements."""
    attributes: frozenset[str]
    """The names it asks for: 50 ns each that the payload has, and a route more to make when one is new."""

    @property
    def held_bytes(self) -> int:
        """The footprint of the filter."""
        return FILTER_BYTES + TEST_BYTES * self.tests

    @classmethod
    def of(cls, content_filter: Filter) -> FilterCost:
        """That of *content_filter*, as the matching tree holds it."""
        tests = patterns = 0
        for test, uses in _uses(content_filter).items():
            tests += uses * (1 + len(test.intervals) // INTERVALS_PER_TEST)
            patterns += sum(pattern.weight for pattern in test.patterns)
        patterns += sum(element_test(name).weight for name in content_filter.attributes if is_element_test(name))
        return cls(tests, patterns, content_filter.attributes)


def _uses(content_filter: Filter) -> dict[ElementaryTest, int]:
    uses: dict[ElementaryTest, int] = {}
    for predicate in content_filter.predicates:
        for test in predicate:
            uses[test] = uses.get(test, 0) + 1
    return uses


class UsageTotals:
    """The sum of many weights. An attribute counts once, however many filters ask for it."""

    __slots__ = ("_uses", "patterns", "tests")

    def __init__(self) -> None:
        self.tests = 0
        self.patterns = 0
        self._uses: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.tests or self._uses)

    @property
    def attributes(self) -> int:
        """How many different ones."""
        return len(self._uses)

    def attributes_with(self, weight: FilterCost) -> int:
        """How many there would be with *weight* too."""
        return len(self._uses) + sum(name not in self._uses for name in weight.attributes)

    def add(self, weight: FilterCost) -> None:
        """One filter more."""
        self.tests += weight.tests
        self.patterns += weight.patterns
        for name in weight.attributes:
            self._uses[name] = self._uses.get(name, 0) + 1

    def subtract(self, weight: FilterCost) -> None:
        """One filter less."""
        self.tests -= weight.tests
        self.patterns -= weight.patterns
        for name in weight.attributes:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]


class FilterUsage:
    """What one client's filters cost, entered into its own tally and into that of its source."""

    __slots__ = ("_by_text", "_source", "_sources", "own")

    def __init__(self, sources: dict[tuple[str, str], UsageTotals], source: tuple[str, str]) -> None:
        """sources: the tallies of all sources that have filters.  source: the client's."""
        self._by_text: dict[str, FilterCost] = {}
        self._sources = sources
        self._source = source
        self.own = UsageTotals()

    @property
    def held_bytes(self) -> int:
        """The footprint of the client's filters."""
        return FILTER_BYTES * len(self._by_text) + TEST_BYTES * self.own.tests

    @property
    def shared(self) -> UsageTotals:
        """The tally of the source."""
        return self._sources.setdefault(self._source, UsageTotals())

    def charge(self, text: str, weight: FilterCost) -> None:
        """The subscription *text* has a filter of *weight*. It had none before."""
        self._by_text[text] = weight
        self.own.add(weight)
        self.shared.add(weight)

    def release(self, text: str) -> FilterCost | None:
        """The subscription *text* has no filter any more; what it weighed, None if it had none."""
        weight = self._by_text.pop(text, None)
        if weight is not None:
            self.own.subtract(weight)
            shared = self.shared
            shared.subtract(weight)
            if not shared:
                del self._sources[self._source]
        return weight

    def release_all(self) -> None:
        """The client's subscriptions are over."""
        for text in list(self._by_text):
            self.release(text)
