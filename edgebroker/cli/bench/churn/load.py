"""Sensor readings and the ranges that subscribers watch: the workload of `edgebroker bench churn`."""

from __future__ import annotations

import random
from itertools import accumulate

ATTRIBUTES = ("temperature", "humidity", "pressure", "co2", "light", "vibration", "voltage", "noise")
"""What every reading has, each uniform in 0..DOMAIN. The first is the most popular with subscribers."""

DOMAIN = 100.0
TESTED = (3, 4, 5)
"""Attributes a filter tests, equally often: of eight it leaves 37 to 62 % open."""

HOT_SPOTS = 100
"""Places that ranges lie around, popular by Zipf's law: the limits that people know and set again and again."""

SPREAD = 0.3
"""A range may be so much wider or narrower than the selectivity asks for. It is so on average."""

RANGE_SHARE = 0.6
"""Of all tests are BETWEEN; the others are `<` and `>`, half each."""


class RangeLoad:
    """Filters and readings, endless and always the same for one seed.

    A range has the width w in a filter with k tests such that w^k is the selectivity; it never reaches beyond the
    domain. So a reading matches `selectivity` of all filters on average, whatever the popular places are.
    """

    def __init__(self, seed: int, selectivity: float) -> None:
        self._filters = random.Random(f"{seed} filters")
        self._readings = random.Random(f"{seed} readings")
        self._selectivity = selectivity
        self._popular = list(range(HOT_SPOTS))
        self._filters.shuffle(self._popular)
        self._popularity = list(accumulate(1 / rank for rank in range(1, HOT_SPOTS + 1)))

    def where(self) -> str:
        """The next content filter."""
        chance = self._filters
        count = chance.choice(TESTED)
        width = self._selectivity ** (1 / count)
        return " AND ".join(self._test(name, width) for name in self._names(count))

    def reading(self) -> dict[str, float]:
        """The next payload."""
        return {name: round(self._readings.uniform(0, DOMAIN), 2) for name in ATTRIBUTES}

    def _names(self, count: int) -> list[str]:
        """*count* attributes by popularity: the weight of the n-th is 1/n, and nobody names one twice."""
        weights = {name: 1 / rank for rank, name in enumerate(ATTRIBUTES, 1)}
        chosen = []
        for _ in range(count):
            [name] = self._filters.choices(list(weights), list(weights.values()))
            del weights[name]
            chosen.append(name)
        return sorted(chosen, key=ATTRIBUTES.index)

    def _test(self, name: str, width: float) -> str:
        chance = self._filters
        width *= chance.uniform(1 - SPREAD, 1 + SPREAD)
        if chance.random() >= RANGE_SHARE:
            return chance.choice((f"{name} < {DOMAIN * width:.2f}", f"{name} > {DOMAIN * (1 - width):.2f}"))
        [spot] = chance.choices(self._popular, cum_weights=self._popularity)
        low = DOMAIN * (1 - width) * (spot + chance.random()) / HOT_SPOTS
        return f"{name} BETWEEN {low:.2f} AND {low + DOMAIN * width:.2f}"
