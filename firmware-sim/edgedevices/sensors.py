"""Signals like those of physics: each is a pure function of its random stream and of the time.

Times are seconds of simulated time and never decrease between two calls. Random processes advance on their own fixed
grid, not at the times of the calls, so two devices with the same stream (two units in one truck) have the same door and
the same storm whatever their message rates are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

MINUTE_S = 60.0
HOUR_S = 3_600.0
DAY_S = 86_400.0


def day_cycle(t_s: float, peak_hour: float = 15.0) -> float:
    """Returns the time of day as a wave from -1 to 1 with its maximum at *peak_hour*. Time 0 is midnight."""
    return math.cos(2 * math.pi * (t_s / DAY_S - peak_hour / 24))


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent random streams by name. Each process has its own, so that none disturbs another."""

    seed: str

    def named(self, name: str) -> Random:
        """Returns the stream *name*. Random(str) hashes the whole text (SHA-512): streams of similar names are
        unrelated.
        """
        return Random(f"{self.seed}/{name}")


class RandomWalk:
    """A random walk that returns to its mean (Ornstein-Uhlenbeck), exact on its grid and linear between.

    deviation: standard deviation in the long run. memory_s: after this time 1/e of a disturbance is left.
    """

    def __init__(self, random: Random, mean: float, deviation: float, memory_s: float) -> None:
        # Twenty grid points per memory: the line between two of them hides 5 % of the noise, and a walk stays cheap.
        self._step_s = memory_s / 20
        self._keep = math.exp(-self._step_s / memory_s)
        self._kick = deviation * math.sqrt(1 - self._keep**2)
        self._random = random
        self._mean = mean
        self._point = 0
        self._before = random.gauss(mean, deviation)
        self._after = self._next(self._before)

    def at(self, t_s: float) -> float:
        """Returns the value at simulated time *t_s*."""
        position = t_s / self._step_s
        while position >= self._point + 1:
            self._point += 1
            self._before, self._after = self._after, self._next(self._after)
        share = position - self._point
        return self._before + share * (self._after - self._before)

    def _next(self, value: float) -> float:
        return self._mean + (value - self._mean) * self._keep + self._random.gauss(0.0, self._kick)


class Episodes:
    """A state that is on now and then: doors, storms, standstills. Gaps and lengths are exponential."""

    def __init__(self, random: Random, gap_s: float, length_s: float) -> None:
        self._random = random
        self._means_s = (gap_s, length_s)
        self._on = random.random() < length_s / (gap_s + length_s)  # as if it had been running for ever
        self._until_s = self._draw()

    def at(self, t_s: float) -> bool:
        """Whether the episode is on at simulated time *t_s*."""
        while t_s >= self._until_s:
            self._on = not self._on
            self._until_s += self._draw()
        return self._on

    def _draw(self) -> float:
        return self._random.expovariate(1 / self._means_s[self._on])


class ThermalLag:
    """A value that follows its surroundings with a delay: a cold box, a bearing, a storm that builds up."""

    def __init__(self, value: float) -> None:
        self.value = value
        self._t_s: float | None = None

    def towards(self, target: float, memory_s: float, t_s: float) -> float:
        """Advances to *t_s*: per *memory_s* the distance to *target* falls to 1/e. The first call only sets the
        time.
        """
        if self._t_s is not None:
            self.value += (target - self.value) * -math.expm1((self._t_s - t_s) / memory_s)
        self._t_s = t_s
        return self.value


class RoundTrip:
    """A round trip by road: a smooth closed curve about 45 km across, driven at roughly 50 km/h."""

    _SIZE_DEG = 0.2  # of latitude: 22 km to each side
    _ROUND_S = 2.5 * HOUR_S

    def __init__(self, random: Random) -> None:
        self._latitude = random.uniform(47.5, 53.5)
        self._longitude = random.uniform(7.0, 13.5)
        self._phase = random.uniform(0, 2 * math.pi)

    def at(self, t_s: float) -> tuple[float, float]:
        """Returns latitude and longitude in degrees at simulated time *t_s*."""
        angle = 2 * math.pi * t_s / self._ROUND_S + self._phase
        widen = 1 / math.cos(math.radians(self._latitude))  # a degree of longitude is shorter up north
        return (
            self._latitude + self._SIZE_DEG * math.sin(angle),
            self._longitude + self._SIZE_DEG * widen * math.cos(angle) * (1 + 0.3 * math.sin(2 * angle)),
        )
