"""What happens to roads between gateways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import ClassVar

from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.simworld.roads import Surface

from .fault import Fault
from .world import World


@dataclass(frozen=True, slots=True)
class Delay(Fault):
    """Everything takes longer. `slowest`: how long a piece is under way, at most; half of it at least."""

    KIND: ClassVar[str] = "delay"
    slowest: Duration

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((20, 200, 1_000)) * MILLISECOND,)

    def strike(self, world: World) -> None:
        surface = replace(world.roads[self.where].surface, delay=(self.slowest // 2, self.slowest))
        world.resurface(self.where, surface, self.lasts)


@dataclass(frozen=True, slots=True)
class LimitedRate(Fault):
    """A road that takes so many bytes a second."""

    KIND: ClassVar[str] = "limited-rate"
    bytes_per_s: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((2_000, 8_000, 30_000)),)

    def strike(self, world: World) -> None:
        world.resurface(self.where, Surface(bytes_per_s=self.bytes_per_s, buffer_bytes=8_192), self.lasts)


@dataclass(frozen=True, slots=True)
class BandwidthCliff(Fault):
    """All at once hardly anything gets through, as over a modem that fell back; what was written waits behind it."""

    KIND: ClassVar[str] = "bandwidth-cliff"
    LONGEST: ClassVar[Duration] = 2 * SECOND
    bytes_per_s: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((150, 400, 1_000)),)

    def strike(self, world: World) -> None:
        surface = Surface((300 * MILLISECOND, 600 * MILLISECOND), self.bytes_per_s, buffer_bytes=2_048)
        world.resurface(self.where, surface, self.lasts)


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Both ends hear that the connection is over, what was under way is lost, and none can be made."""

    KIND: ClassVar[str] = "cut"
    LONGEST: ClassVar[Duration] = 5 * SECOND

    def strike(self, world: World) -> None:
        road = world.roads[self.where]
        road.cut()
        world.after(self.lasts, road.mend)


@dataclass(frozen=True, slots=True)
class Flicker(Cut):
    """A cut that is over before anybody has dialled again."""

    KIND: ClassVar[str] = "flicker"
    LONGEST: ClassVar[Duration] = 200 * MILLISECOND


@dataclass(frozen=True, slots=True)
class HalfOpen(Fault):
    """One end hears that the connection is over; the other thinks that it is alive. `end`: who hears, 0 dialled."""

    KIND: ClassVar[str] = "half-open"
    end: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(2),)

    def strike(self, world: World) -> None:
        world.roads[self.where].halve(self.end)


@dataclass(frozen=True, slots=True)
class Silence(Fault):
    """Nothing gets through, and nobody is told."""

    KIND: ClassVar[str] = "silence"
    LONGEST: ClassVar[Duration] = 20 * SECOND

    def strike(self, world: World) -> None:
        road = world.roads[self.where]
        road.is_silent = True
        world.after(self.lasts, road.mend)


@dataclass(frozen=True, slots=True)
class OneWay(Fault):
    """Nothing gets through one way, and nobody is told. `end`: whose bytes are lost, 0 dialled."""

    KIND: ClassVar[str] = "one-way"
    LONGEST: ClassVar[Duration] = 20 * SECOND
    end: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(2),)

    def strike(self, world: World) -> None:
        road = world.roads[self.where]
        road.silent[self.end] = True
        world.after(self.lasts, road.mend)


@dataclass(frozen=True, slots=True)
class Flapping(Fault):
    """The connection breaks again and again."""

    KIND: ClassVar[str] = "flapping"
    times: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randint(3, 8),)

    def strike(self, world: World) -> None:
        for number in range(self.times):
            world.after(self.lasts * number // self.times, partial(world.shake, self.where))
