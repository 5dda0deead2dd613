"""Normalisation: from a tree to a disjunction of predicates ([LM] section 1), within bounds.

Negation is pushed to the leaves, each leaf becomes one elementary test, and the tests are multiplied out. `<>`, `NOT
IN` and an OR over one attribute remain *one* test with several intervals, so only an OR over different attributes
multiplies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from edgebroker.errors import FilterTooComplex
from edgebroker.filters.elementary import accepted_by, both, either, implies
from edgebroker.filters.syntax import And, Node, Not, Or, Term, positive
from edgebroker.limits import FILTER_CONJUNCTIONS_MAX
from edgebroker.predicate import ElementaryTest, Pattern, Predicate

PRODUCT_MAX: Final = 4 * FILTER_CONJUNCTIONS_MAX
"""Distinct conjunctions while one AND is multiplied out. Merging seldom removes more than three of four, and its cost
grows faster than their number: with 256 the slowest known filter takes 65 ms.
"""

WORK_MAX: Final = 12_000
"""Steps of less than a microsecond for multiplying out and merging a filter. It bounds cases that the number of
conjunctions does not: 64 patterns on one attribute, as 64 alternatives, take 7,000 steps; where lists of patterns are
multiplied each alternative has many, and without a bound such a filter took 100 ms. Eight parts of a pattern count as
one more step: without that, twelve patterns of 110 parts took 14 ms, now 4; none of 15,000 filters took 7.
"""

_Conjunction: TypeAlias = frozenset[int]
"""Numbers of tests, at most one per attribute."""


def normalised(node: Node) -> tuple[tuple[Predicate, ...], int]:
    """Return the disjunction that accepts exactly the events for which *node* is true (`()` accepts none), and its cost
    in steps.

    No predicate is unsatisfiable, and none is covered by another one, as far as single attributes show. Raises
    FilterTooComplex if any part of the filter needs more than FILTER_CONJUNCTIONS_MAX predicates, or more than
    PRODUCT_MAX before equal ones are merged, or all of it more than WORK_MAX steps.
    """
    condition = positive(node)
    operands = condition.operands if isinstance(condition, And) else (condition,)
    terms = [operand for operand in operands if not isinstance(operand, (And, Or, Not))]
    if len(terms) == len(operands):
        conjunction = _conjunction(terms)
        return () if conjunction is None else (conjunction,), len(terms)
    normalisation = _Normalisation()
    return tuple(map(normalisation.predicate, normalisation.disjunction(condition))), normalisation.work


def _conjunction(terms: Iterable[Term]) -> Predicate | None:
    """Return the predicate of all *terms* joined by AND; None if it accepts nothing. Most filters have this form."""
    tests: dict[str, ElementaryTest] = {}
    for term in terms:
        test = accepted_by(term)
        if test is not None and term.attribute in tests:
            test = both(tests[term.attribute], test)
        if test is None:
            return None
        tests[term.attribute] = test
    return tuple(tests[attribute] for attribute in sorted(tests))


class _Normalisation:
    """Tests by number: conjunctions are small sets of numbers, and their attributes are bits of one mask."""

    def __init__(self) -> None:
        self.work = 0
        """Steps so far."""
        self._tests: list[ElementaryTest] = []
        self._patterns: list[frozenset[Pattern]] = []
        self._sizes: list[int] = []  # the cost of handling a test, whose patterns are hashed, and spelled to be sorted
        self._numbers: dict[ElementaryTest, int] = {}
        self._numbers_of: dict[str, set[int]] = {}
        self._bits: list[int] = []
        self._masks: dict[_Conjunction, int] = {}
        self._by_bits: dict[_Conjunction, dict[int, int]] = {}
        self._both: dict[tuple[int, int], int | None] = {}
        self._implies: dict[tuple[int, int], bool] = {}

    def predicate(self, conjunction: _Conjunction) -> Predicate:
        return tuple(sorted((self._tests[number] for number in conjunction), key=lambda test: test.attribute))

    def disjunction(self, node: Node) -> list[_Conjunction]:
        match node:
            case Or(operands):
                return self._simplified(one for operand in operands for one in self.disjunction(operand))
            case And(operands):
                # The shortest first: contradictions with single tests then remove products before they multiply.
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

    # -- multiplying ------------------------------------------------------------------------------------------

    def _product(self, left: list[_Conjunction], right: list[_Conjunction]) -> list[_Conjunction]:
        products: dict[_Conjunction, None] = {}
        for one in left:
            self._spend(2 * len(right))
            for other in right:
                conjunction = self._conjoined(one, other)
                if conjunction is not None:
                    products[conjunction] = None
                    if len(products) > PRODUCT_MAX:
                        raise _too_many(PRODUCT_MAX)
        return self._simplified(products)

    def _conjoined(self, one: _Conjunction, other: _Conjunction) -> _Conjunction | None:
        if not self._mask(one) & self._mask(other):
            return one | other
        self._spend(8)
        by_attribute = dict(self._by_bit(one))
        for bit, number in self._by_bit(other).items():
            present = by_attribute.setdefault(bit, number)
            if present != number:
                common = self._common(present, number)
                if common is None:
                    return None
                by_attribute[bit] = common
        return frozenset(by_attribute.values())

    def _common(self, one: int, other: int) -> int | None:
        pair = (one, other)
        if pair not in self._both:
            self._spend(32 + 2 * (self._sizes[one] + self._sizes[other]))
            test = both(self._tests[one], self._tests[other])
            self._both[pair] = None if test is None else self._number(test)
        return self._both[pair]

    # -- simplifying ------------------------------------------------------------------------------------------

    def _simplified(self, conjunctions: Iterable[_Conjunction]) -> list[_Conjunction]:
        """Merge conjunctions that differ in one attribute only, drop covered ones, and check the limits."""
        kept = list(dict.fromkeys(conjunctions))
        if len(kept) < 2:
            return kept
        common = frozenset.intersection(*kept)
        kept = [one - common for one in kept]
        count = len(kept) + 1
        while len(kept) < count:
            count = len(kept)
            for attribute in sorted({self._tests[number].attribute for one in kept for number in one}):
                self._spend(2 * len(kept))
                kept = self._merged(kept, self._numbers_of[attribute])
        if len(kept) > PRODUCT_MAX:
            raise _too_many(PRODUCT_MAX)
        kept = self._uncovered(kept)
        if len(kept) > FILTER_CONJUNCTIONS_MAX:
            raise _too_many(FILTER_CONJUNCTIONS_MAX)
        return [one | common for one in kept]

    def _merged(self, conjunctions: list[_Conjunction], of_attribute: set[int]) -> list[_Conjunction]:
        """Merge conjunctions that are equal except for their tests of one attribute, where one test can express
        both.
        """
        groups: dict[_Conjunction, list[_Conjunction]] = {}
        for conjunction in conjunctions:
            groups.setdefault(conjunction - of_attribute, []).append(conjunction)
        if len(groups) == len(conjunctions):
            return conjunctions
        merged: list[_Conjunction] = []
        for rest, group in groups.items():
            if len(group) == 1 or rest in group:  # alone, or one does not test the attribute and so covers all
                merged.append(group[0] if len(group) == 1 else rest)
                continue
            numbers = [number for one in group for number in one & of_attribute]
            self._spend(16 + sum(8 + self._sizes[number] for number in numbers))
            tests = either(self._tests[number] for number in numbers)
            merged.extend(rest | {self._number(test)} for test in tests)
            if not tests:
                merged.append(rest)
        return merged

    def _uncovered(self, conjunctions: list[_Conjunction]) -> list[_Conjunction]:
        """Return those that no other one covers. A conjunction covers none that tests fewer attributes."""
        # Masks decide most pairs without a call of 0.4 us: 64 conjunctions are 4,000 pairs.
        kept: list[tuple[int, _Conjunction, dict[int, int]]] = []
        for conjunction in sorted(conjunctions, key=len):
            mask, by_bit = self._mask(conjunction), self._by_bit(conjunction)
            self._spend(2 + len(kept) // 4)
            for wide, general, _ in kept:
                if not wide & ~mask and self._covers(general, by_bit):
                    break
            else:
                kept = [one for one in kept if mask & ~one[0] or not self._covers(conjunction, one[2])]
                kept.append((mask, conjunction, by_bit))
        return [conjunction for _, conjunction, _ in kept]

    def _covers(self, general: _Conjunction, have: dict[int, int]) -> bool:
        """Return whether every test of *general* follows from the special conjunction's test of the same attribute.

        *have*: the tests of the special conjunction by bit; the masks show that it tests every attribute of *general*.
        """
        self._spend(1)
        bits, patterns = self._bits, self._patterns
        for want in general:  # half the time of all() with a generator
            number = have[bits[want]]
            if number != want and not (patterns[want] <= patterns[number] and self._follows(number, want)):
                return False
        return True

    def _follows(self, have: int, want: int) -> bool:
        known = self._implies.get((have, want))
        if known is None:
            self._spend(16 + self._sizes[have] + self._sizes[want])
            known = self._implies[have, want] = implies(self._tests[have], self._tests[want])
        return known

    def _spend(self, steps: int) -> None:
        self.work += steps
        if self.work > WORK_MAX:
            raise FilterTooComplex(
                "multiplied out, the filter takes too long to simplify; write fewer ORs inside ANDs, or split the"
                " filter into several subscriptions"
            )

    # -- numbers ----------------------------------------------------------------------------------------------

    def _number(self, test: ElementaryTest) -> int:
        number = self._numbers.setdefault(test, len(self._tests))
        if number == len(self._tests):
            self._tests.append(test)
            self._patterns.append(frozenset(test.patterns))
            size = len(test.intervals) // 4 + sum(1 + len(pattern.parts) // 8 for pattern in test.patterns)
            self._sizes.append(size)
            self._spend(8 + size)
            same_attribute = self._numbers_of.setdefault(test.attribute, set())
            self._bits.append(self._bits[min(same_attribute)] if same_attribute else 1 << len(self._numbers_of))
            same_attribute.add(number)
        return number

    def _mask(self, conjunction: _Conjunction) -> int:
        mask = self._masks.get(conjunction)
        if mask is None:
            mask = self._masks[conjunction] = sum(self._bits[number] for number in conjunction)
        return mask

    def _by_bit(self, conjunction: _Conjunction) -> dict[int, int]:
        """Return the tests of *conjunction* by the bits of their attributes. Must not be changed."""
        known = self._by_bits.get(conjunction)
        if known is None:
            known = self._by_bits[conjunction] = {self._bits[number]: number for number in conjunction}
        return known


def _too_many(count_max: int) -> FilterTooComplex:
    return FilterTooComplex(
        f"multiplied out, a part of the filter has more than {count_max} alternatives; write fewer ORs inside ANDs,"
        " or split the filter into several subscriptions"
    )
