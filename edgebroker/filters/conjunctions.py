"""Normalisation: from a tree to a disjunction of predicates (link-matching section 1), within bounds.

Negation goes to the leaves, each leaf becomes one elementary test, and the tests are multiplied out. `<>`, `NOT IN`
and an OR over one attribute stay *one* test with several intervals, so that only an OR over different attributes
multiplies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from edgebroker.errors import FilterTooComplex
from edgebroker.filters.elementary import accepted_by, both, either, implies
from edgebroker.filters.syntax import And, Node, Not, Or, positive
from edgebroker.limits import FILTER_CONJUNCTIONS_MAX
from edgebroker.predicate import ElementaryTest, Predicate

PRODUCT_MAX: Final = 4 * FILTER_CONJUNCTIONS_MAX
"""Different conjunctions while one AND is multiplied out. Merging seldom takes away more than three of four, and it
costs more the more there are: 256 keep the worst filter we found below 100 ms."""

_Conjunction: TypeAlias = frozenset[int]
"""Numbers of tests, at most one per attribute."""


def predicates_of(node: Node) -> tuple[Predicate, ...]:
    """The disjunction that accepts exactly the events for which *node* is true; `()` accepts none.

    No predicate can accept nothing, and none accepts only what another one does, as far as single attributes tell.
    Raises FilterTooComplex: any part of the filter needs more than FILTER_CONJUNCTIONS_MAX predicates, or more than
    PRODUCT_MAX before equal ones are merged.
    """
    normalisation = _Normalisation()
    disjunction = normalisation.disjunction(positive(node))
    return tuple(sorted(map(normalisation.predicate, disjunction), key=repr))


class _Normalisation:
    """Tests by number: conjunctions are then small sets of numbers, cheap to compare and to hash."""

    def __init__(self) -> None:
        self._tests: list[ElementaryTest] = []
        self._numbers: dict[ElementaryTest, int] = {}
        self._both: dict[tuple[int, int], int | None] = {}
        self._implies: dict[tuple[int, int], bool] = {}

    def predicate(self, conjunction: _Conjunction) -> Predicate:
        return tuple(sorted((self._tests[number] for number in conjunction), key=lambda test: test.attribute))

    def disjunction(self, node: Node) -> list[_Conjunction]:
        match node:
            case Or(operands):
                return self._simplified(one for operand in operands for one in self.disjunction(operand))
            case And(operands):
                # The shortest first: single tests then contradict, and so remove, products before these multiply.
                factors = sorted((self.disjunction(operand) for operand in operands), key=len)
                product: list[_Conjunction] = [frozenset()]
                for factor in factors:
                    product = self._product(product, factor)
                return product
            case Not():
                raise AssertionError("negation has been pushed to the leaves")
            case _:
                test = accepted_by(node)
                return [] if test is None else [frozenset((self._number(test),))]

    def _product(self, left: list[_Conjunction], right: list[_Conjunction]) -> list[_Conjunction]:
        products: dict[_Conjunction, None] = {}
        for one in left:
            for other in right:
                conjunction = self._conjoined(one, other)
                if conjunction is not None:
                    products[conjunction] = None
                    if len(products) > PRODUCT_MAX:
                        raise _too_many(PRODUCT_MAX)
        return self._simplified(products) if len(products) > 1 else list(products)

    def _conjoined(self, one: _Conjunction, other: _Conjunction) -> _Conjunction | None:
        if other <= one:
            return one
        by_attribute = {self._tests[number].attribute: number for number in one}
        for number in other:
            attribute = self._tests[number].attribute
            present = by_attribute.setdefault(attribute, number)
            if present != number:
                common = self._common(present, number)
                if common is None:
                    return None
                by_attribute[attribute] = common
        return frozenset(by_attribute.values())

    def _simplified(self, conjunctions: Iterable[_Conjunction]) -> list[_Conjunction]:
        """Merge what differs in one attribute only, drop what another one covers, and count."""
        kept = list(dict.fromkeys(conjunctions))
        merged = True
        while merged and len(kept) > 1:
            count = len(kept)
            for attribute in self._differing(kept):
                kept = self._merged(kept, attribute)
            merged = len(kept) < count
        if len(kept) > PRODUCT_MAX:
            raise _too_many(PRODUCT_MAX)
        kept = self._uncovered(kept)
        if len(kept) > FILTER_CONJUNCTIONS_MAX:
            raise _too_many(FILTER_CONJUNCTIONS_MAX)
        return kept

    def _differing(self, conjunctions: list[_Conjunction]) -> list[str]:
        """The attributes that are not tested alike by all."""
        common = frozenset.intersection(*conjunctions)
        return sorted({self._tests[number].attribute for one in conjunctions for number in one - common})

    def _merged(self, conjunctions: list[_Conjunction], attribute: str) -> list[_Conjunction]:
        """Conjunctions that are equal but for their test of *attribute* become one where one test can say both."""
        groups: dict[_Conjunction, list[int | None]] = {}
        for conjunction in conjunctions:
            tested = next((number for number in conjunction if self._tests[number].attribute == attribute), None)
            rest = conjunction if tested is None else conjunction - {tested}
            groups.setdefault(rest, []).append(tested)
        merged: list[_Conjunction] = []
        for rest, numbers in groups.items():
            tests = [] if None in numbers else either(self._tests[number] for number in numbers if number is not None)
            merged.extend(rest | {self._number(test)} for test in tests)
            if not tests:
                merged.append(rest)
        return merged

    def _uncovered(self, conjunctions: list[_Conjunction]) -> list[_Conjunction]:
        kept: list[_Conjunction] = []
        for conjunction in sorted(conjunctions, key=len):  # a longer one never covers a shorter one
            if not any(self._covers(general, conjunction) for general in kept):
                kept = [one for one in kept if len(one) < len(conjunction) or not self._covers(conjunction, one)]
                kept.append(conjunction)
        return kept

    def _covers(self, general: _Conjunction, special: _Conjunction) -> bool:
        """Whether every test of *general* follows from some test of *special*."""
        return all(any(self._follows(have, want) for have in special) for want in general - special)

    def _follows(self, have: int, want: int) -> bool:
        known = self._implies.get((have, want))
        if known is None:
            one, other = self._tests[have], self._tests[want]
            known = self._implies[have, want] = one.attribute == other.attribute and implies(one, other)
        return known

    def _common(self, one: int, other: int) -> int | None:
        pair = (one, other)
        if pair not in self._both:
            test = both(self._tests[one], self._tests[other])
            self._both[pair] = None if test is None else self._number(test)
        return self._both[pair]

    def _number(self, test: ElementaryTest) -> int:
        number = self._numbers.setdefault(test, len(self._tests))
        if number == len(self._tests):
            self._tests.append(test)
        return number


def _too_many(most: int) -> FilterTooComplex:
    return FilterTooComplex(
        f"multiplied out, a part of the filter has more than {most} alternatives; write fewer ORs inside ANDs,"
        " or split the filter into several subscriptions"
    )
