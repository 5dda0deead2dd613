"""The workload of the experiments [LM]: what subscribers ask for and publishers say, with taste by region."""

from __future__ import annotations

from random import Random
from typing import Final

from edgebroker.event import Value
from edgebroker.predicate import ElementaryTest, Interval, Kind, Predicate

VALUES: Final = (1, 2, 3)
"""The values of every attribute."""
FIRST_TESTED: Final = 0.98
"""How likely a subscription tests the first attribute."""


class Interests:
    """Random predicates and events.

    Attribute i (from 1) is tested with probability `FIRST_TESTED * decline ** (i - 1)`. Values have a Zipf distribution
    with s = 1; which of them comes first is drawn anew for every region and attribute, and holds for the region's
    subscribers and publishers alike.
    """

    def __init__(self, chance: Random, regions: int, attributes: int, decline: float) -> None:
        self._chance = chance
        self.names = tuple(f"a{number}" for number in range(1, attributes + 1))
        self.domains: dict[str, tuple[Value, ...]] = dict.fromkeys(self.names, VALUES)
        self._tested = [FIRST_TESTED * decline**place for place in range(attributes)]
        self._rankings = [[chance.sample(VALUES, len(VALUES)) for _ in self.names] for _ in range(regions)]
        self._weights = [1 / rank for rank in range(1, len(VALUES) + 1)]
        self._tests = {
            (name, value): ElementaryTest(name, Kind.NUMBER, (Interval(value, True, value, True),))
            for name in self.names
            for value in VALUES
        }

    def predicate(self, region: int) -> Predicate:
        """What a subscriber in *region* asks for."""
        tested = [place for place, probability in enumerate(self._tested) if self._chance.random() < probability]
        tests = [self._tests[self.names[place], self._value(region, place)] for place in tested]
        return tuple(sorted(tests, key=lambda test: test.attribute))

    def event(self, region: int) -> dict[str, Value]:
        """What a publisher in *region* says."""
        return {name: self._value(region, place) for place, name in enumerate(self.names)}

    def _value(self, region: int, place: int) -> int:
        return self._chance.choices(self._rankings[region][place], self._weights)[0]
