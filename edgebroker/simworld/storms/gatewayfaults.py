"""What happens to gateways: their power, their process, their disk and their clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import ClassVar, Final

from edgebroker.instants import HOUR, MILLISECOND, SECOND, Duration
from edgebroker.simworld.store import WALL

from .fault import Fault
from .world import World

STEPS_MAX: Final = 30
"""Between which two of the actions that follow a crash may come: so in the middle of whatever was begun."""
BROWN_STEPS: Final = 200
"""Within so many actions a gateway has begun, met its peers, and let its devices in."""
TORN_AFTER: Final = (0, 0, 2, 4, 8, 16)
"""So many actions after something was written: on a quick disk a sync is over after two or three."""
TORN_STEPS: Final = 3_000
"""How many actions a power cut waits for a write that is not synced."""


@dataclass(frozen=True, slots=True)
class Crash(Fault):
    """A gateway is off for a while. `steps`: so many actions after its instant, wherever that is."""

    PLACES: ClassVar[str] = "gateways"
    LONGEST: ClassVar[Duration] = 4 * SECOND
    IS_POWER_CUT: ClassVar[bool] = True
    steps: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX),)

    def strike(self, world: World) -> None:
        left = self.steps

        def look() -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                self._fall(world)
            return left <= 0

        world.simulation.between(look)

    def _fall(self, world: World) -> None:
        world.fall(self.where, self.IS_POWER_CUT, self.lasts)


@dataclass(frozen=True, slots=True)
class PowerCut(Crash):
    """The power fails: unsynced writes may be lost, and peers hear nothing."""

    KIND: ClassVar[str] = "power-cut"


@dataclass(frozen=True, slots=True)
class ProcessDeath(Crash):
    """The process is killed: what it wrote is there, and peers hear that their connections are over."""

    KIND: ClassVar[str] = "process-death"
    LONGEST: ClassVar[Duration] = 8 * SECOND
    IS_POWER_CUT: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class TornRecord(Crash):
    """The power fails while something is written and not yet synced: some of its sectors are there, others are not.

    Not before `steps` actions have passed since it was written, if the disk takes so long: others may know of it.
    """

    KIND: ClassVar[str] = "torn-record"

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice(TORN_AFTER),)

    def strike(self, world: World) -> None:
        store = world.store(self.where)
        left, since = TORN_STEPS, 0

        def look() -> bool:
            nonlocal left, since
            left -= 1
            is_dirty = any(file.dirty for file in store.disk.files.values())
            since = since + 1 if is_dirty else 0
            is_time = since > self.steps or left <= 0
            if is_time:
                self._fall(world)
            return is_time

        world.simulation.between(look)


@dataclass(frozen=True, slots=True)
class BrownOut(Crash):
    """The power comes back and fails again, before the gateway has gone far. `times`: how often it fails."""

    KIND: ClassVar[str] = "brown-out"
    LONGEST: ClassVar[Duration] = SECOND
    times: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(BROWN_STEPS), chance.randint(2, 4))

    def _fall(self, world: World) -> None:
        if world.fall(self.where, True, self.lasts) and self.times > 1:
            again = replace(self, steps=self.steps // 2 + 1, times=self.times - 1)
            world.after(self.lasts, partial(again.strike, world))


@dataclass(frozen=True, slots=True)
class FlippedBit(Crash):
    """While the gateway is off, a bit of its journal turns around. `place`: which, of all that is written there."""

    KIND: ClassVar[str] = "flipped-bit"
    place: float

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX), round(chance.random(), 6))

    def _fall(self, world: World) -> None:
        if world.fall(self.where, True, self.lasts):
            world.damage(self.where, self.place)


@dataclass(frozen=True, slots=True)
class FullDisk(Fault):
    """There is no room but for so many bytes more."""

    KIND: ClassVar[str] = "full-disk"
    PLACES: ClassVar[str] = "gateways"
    bytes: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((0, 512, 20_000)),)

    def strike(self, world: World) -> None:
        world.fill(self.where, self.bytes, self.lasts)


@dataclass(frozen=True, slots=True)
class FailingSync(Fault):
    """Syncs and writes fail now and then. `share`: how likely a sync does; a write does a quarter as often."""

    KIND: ClassVar[str] = "failing-sync"
    PLACES: ClassVar[str] = "gateways"
    share: float

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((0.1, 0.5, 1.0)),)

    def strike(self, world: World) -> None:
        world.spoil(self.where, self.share, self.lasts)


@dataclass(frozen=True, slots=True)
class NoClock(Crash):
    """A gateway without a clock of its own comes back and believes that it is 1970."""

    KIND: ClassVar[str] = "no-clock"

    def _fall(self, world: World) -> None:
        world.store(self.where).wall = 0
        world.fall(self.where, True, self.lasts)


@dataclass(frozen=True, slots=True)
class JumpedClock(Crash):
    """When the gateway comes back, its clock is set wrong. `by`: so far."""

    KIND: ClassVar[str] = "jumped-clock"
    IS_POWER_CUT: ClassVar[bool] = False
    by: Duration

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX), chance.choice((-HOUR, -SECOND, -50 * MILLISECOND, SECOND, HOUR)))

    def _fall(self, world: World) -> None:
        world.store(self.where).wall = WALL + self.by
        world.fall(self.where, self.IS_POWER_CUT, self.lasts)


@dataclass(frozen=True, slots=True)
class DriftingClock(Crash):
    """A gateway's clock goes wrong, which it learns when it comes back. `ppm`: so many millionths too fast."""

    KIND: ClassVar[str] = "drifting-clock"
    IS_POWER_CUT: ClassVar[bool] = False
    ppm: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX), chance.choice((-100_000, -200, 200, 100_000)))

    def _fall(self, world: World) -> None:
        world.store(self.where).drift_ppm = self.ppm
        world.fall(self.where, self.IS_POWER_CUT, self.lasts)
