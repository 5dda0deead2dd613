"""The faults of a storm: of lines to devices, of roads between gateways, and of gateways themselves.

Every fault begins at an instant, at a place, and ends at another instant.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random
from typing import ClassVar, Final, NamedTuple, Self

from edgebroker.instants import HOUR, MILLISECOND, SECOND, Duration, Instant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.store import WALL
from edgelab.simworld.storms.world import StormWorld

STRANGERS_MAX: Final = 12
"""The most connections that somebody opens at once."""


class FaultPlaces(NamedTuple):
    """The places at which a fault may occur."""

    gateways: tuple[str, ...]
    roads: tuple[str, ...]
    """`a0~a1` is the road between a0 and a1."""
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `at`: its start, from the beginning of the storm."""

    KIND: ClassVar[str] = ""
    PLACES: ClassVar[str] = "roads"
    """The field of `FaultPlaces` from which its place is drawn."""
    DISTURBS: ClassVar[bool] = True
    """Whether it excuses anything. What does not is no disturbance: every promise has to be kept beside it."""
    LONGEST: ClassVar[Duration] = 3 * SECOND

    at: Instant
    where: str
    lasts: Duration

    @classmethod
    def draw(cls, places: FaultPlaces, length: Duration, chance: Random) -> Self:
        """Draw a fault of this kind, within *length*."""
        where = chance.choice(getattr(places, cls.PLACES))
        return cls(chance.randrange(length), where, chance.randint(20 * MILLISECOND, cls.LONGEST), *cls._more(chance))

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        """Draw the values of the fields that only this kind has."""
        return ()

    def __str__(self) -> str:
        more = "".join(f" {one.name}={getattr(self, one.name)}" for one in fields(self)[3:])
        return f"{self.at / SECOND:.3f} s {self.KIND} {self.where} for {self.lasts / SECOND:.3f} s{more}"

    def strike(self, world: StormWorld) -> None:
        """Begin the fault, and plan its end."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StalledLine(Fault):
    """A device stops reading for a while."""

    KIND: ClassVar[str] = "stalled-line"
    PLACES: ClassVar[str] = "devices"
    LONGEST: ClassVar[Duration] = 5 * SECOND

    def strike(self, world: StormWorld) -> None:
        world.stall(self.where, self.lasts)


@dataclass(frozen=True, slots=True)
class BrokenLine(Fault):
    """The line breaks, possibly within a packet; the gateway notices at once."""

    KIND: ClassVar[str] = "broken-line"
    PLACES: ClassVar[str] = "devices"

    def strike(self, world: StormWorld) -> None:
        world.break_line(self.where)


@dataclass(frozen=True, slots=True)
class ChokedLine(Fault):
    """A device stops reading, and then its line breaks: all bytes in transit by then are lost."""

    KIND: ClassVar[str] = "choked-line"
    PLACES: ClassVar[str] = "devices"

    def strike(self, world: StormWorld) -> None:
        world.stall(self.where, self.lasts + 1)
        world.after(self.lasts, partial(world.break_line, self.where))


@dataclass(frozen=True, slots=True)
class AbandonedLine(Fault):
    """A device restarts and connects again; the gateway may still consider the old line open."""

    KIND: ClassVar[str] = "abandoned-line"
    PLACES: ClassVar[str] = "devices"

    def strike(self, world: StormWorld) -> None:
        device = world.devices[self.where]
        if not device.home.is_off:
            device.connect()


@dataclass(frozen=True, slots=True)
class Walk(Fault):
    """A device connects to another gateway, where it finds its session. Its old line may still seem to be open there.
    *share* chooses the gateway.
    """

    KIND: ClassVar[str] = "walk"
    PLACES: ClassVar[str] = "devices"
    LONGEST: ClassVar[Duration] = 20 * MILLISECOND
    share: float

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.random(),)

    def strike(self, world: StormWorld) -> None:
        world.walk(self.where, self.share)


@dataclass(frozen=True, slots=True)
class RoadDelay(Fault):
    """All bytes take longer. `slowest`: the longest delay of a piece; the shortest is half of it."""

    KIND: ClassVar[str] = "delay"
    slowest: Duration

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((20, 200, 1_000)) * MILLISECOND,)

    def strike(self, world: StormWorld) -> None:
        road_conditions = replace(world.roads[self.where].conditions, delay=(self.slowest // 2, self.slowest))
        world.set_conditions(self.where, road_conditions, self.lasts)


@dataclass(frozen=True, slots=True)
class LimitedRate(Fault):
    """A road has a limited rate, in bytes per second."""

    KIND: ClassVar[str] = "limited-rate"
    bytes_per_s: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((2_000, 8_000, 30_000)),)

    def strike(self, world: StormWorld) -> None:
        world.set_conditions(self.where, RoadConditions(bytes_per_s=self.bytes_per_s, buffer_bytes=8_192), self.lasts)


@dataclass(frozen=True, slots=True)
class BandwidthCliff(Fault):
    """The rate suddenly drops to almost nothing, as with a modem that fell back; bytes already written wait."""

    KIND: ClassVar[str] = "bandwidth-cliff"
    LONGEST: ClassVar[Duration] = 2 * SECOND
    bytes_per_s: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((150, 400, 1_000)),)

    def strike(self, world: StormWorld) -> None:
        road_conditions = RoadConditions((300 * MILLISECOND, 600 * MILLISECOND), self.bytes_per_s, buffer_bytes=2_048)
        world.set_conditions(self.where, road_conditions, self.lasts)


@dataclass(frozen=True, slots=True)
class RoadCut(Fault):
    """Both ends are notified that the connection has ended, bytes in transit are lost, and no new one can be opened."""

    KIND: ClassVar[str] = "cut"
    LONGEST: ClassVar[Duration] = 5 * SECOND

    def strike(self, world: StormWorld) -> None:
        road = world.roads[self.where]
        road.cut()
        world.after(self.lasts, road.mend)


@dataclass(frozen=True, slots=True)
class Flicker(RoadCut):
    """A cut that ends before any gateway has dialled again."""

    KIND: ClassVar[str] = "flicker"
    LONGEST: ClassVar[Duration] = 200 * MILLISECOND


@dataclass(frozen=True, slots=True)
class HalfOpen(Fault):
    """One end is notified that the connection has ended; the other considers it open. `end`: the notified end, 0
    dialled.
    """

    KIND: ClassVar[str] = "half-open"
    end: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(2),)

    def strike(self, world: StormWorld) -> None:
        world.roads[self.where].halve(self.end)


@dataclass(frozen=True, slots=True)
class RoadSilence(Fault):
    """No bytes pass, and neither end is notified."""

    KIND: ClassVar[str] = "silence"
    LONGEST: ClassVar[Duration] = 20 * SECOND

    def strike(self, world: StormWorld) -> None:
        road = world.roads[self.where]
        road.is_silent = True
        world.after(self.lasts, road.mend)


@dataclass(frozen=True, slots=True)
class OneWay(Fault):
    """No bytes pass in one direction, and neither end is notified. `end`: the end whose bytes are held back, 0
    dialled.
    """

    KIND: ClassVar[str] = "one-way"
    LONGEST: ClassVar[Duration] = 20 * SECOND
    end: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(2),)

    def strike(self, world: StormWorld) -> None:
        road = world.roads[self.where]
        road.silent[self.end] = True
        world.after(self.lasts, road.mend)


@dataclass(frozen=True, slots=True)
class RoadFlap(Fault):
    """The connection breaks again and again."""

    KIND: ClassVar[str] = "flapping"
    times: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randint(3, 8),)

    def strike(self, world: StormWorld) -> None:
        for number in range(self.times):
            world.after(self.lasts * number // self.times, partial(world.shake, self.where))


STEPS_MAX: Final = 30
"""The number of actions after which a crash may occur: in the middle of whatever was begun."""
BROWN_STEPS: Final = 200
"""The number of actions in which a gateway has started, met its peers, and accepted its devices."""
TORN_AFTER: Final = (0, 0, 2, 4, 8, 16)
"""Numbers of actions after a write: on a quick disk a sync takes two or three."""
TORN_STEPS: Final = 3_000
"""The number of actions for which a power cut waits for an unsynced write."""


@dataclass(frozen=True, slots=True)
class Crash(Fault):
    """A gateway is off for a while. `steps`: number of actions after its instant, at which it fails."""

    PLACES: ClassVar[str] = "gateways"
    LONGEST: ClassVar[Duration] = 4 * SECOND
    IS_POWER_CUT: ClassVar[bool] = True
    steps: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX),)

    def strike(self, world: StormWorld) -> None:
        left = self.steps

        def probe() -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                self._fail(world)
            return left <= 0

        world.simulation.between(probe)

    def _fail(self, world: StormWorld) -> None:
        world.power_off(self.where, self.IS_POWER_CUT, self.lasts)


@dataclass(frozen=True, slots=True)
class PowerCut(Crash):
    """The power fails: unsynced writes may be lost, and peers are not notified."""

    KIND: ClassVar[str] = "power-cut"


@dataclass(frozen=True, slots=True)
class ProcessDeath(Crash):
    """The process is killed: its writes remain, and peers are notified that their connections have ended."""

    KIND: ClassVar[str] = "process-death"
    LONGEST: ClassVar[Duration] = 8 * SECOND
    IS_POWER_CUT: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class SiteAway(Fault):
    """All gateways of a site are off, so that nobody reaches it: more waits for it than its outboxes hold. `where`: a
    gateway of the site.
    """

    KIND: ClassVar[str] = "site-away"
    PLACES: ClassVar[str] = "gateways"
    LONGEST: ClassVar[Duration] = 8 * SECOND
    is_power_cut: bool

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.random() < 0.5,)

    def strike(self, world: StormWorld) -> None:
        topology = world.gateways.topology
        for gateway in topology.gateways:
            if gateway.cluster == topology.gateway(self.where).cluster:
                world.power_off(gateway.name, self.is_power_cut, self.lasts)


@dataclass(frozen=True, slots=True)
class Strangers(Fault):
    """Somebody who is no gateway opens connections to the port for peers, and says nothing on them, or not enough."""

    KIND: ClassVar[str] = "strangers"
    PLACES: ClassVar[str] = "gateways"
    DISTURBS: ClassVar[bool] = False
    count: int
    says: bytes

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randint(1, STRANGERS_MAX), chance.choice((b"", b"EBLK", b"EBLK\x00\xff")))

    def strike(self, world: StormWorld) -> None:
        for _ in range(self.count):
            world.visit(self.where, self.says)


@dataclass(frozen=True, slots=True)
class FalseAcknowledgement(Fault):
    """Somebody who has seen the hello of a gateway greets its peer with it, and acknowledges messages that were never
    sent. *from_first*: the gateway whose name it uses is the one at the first end of the road.
    """

    KIND: ClassVar[str] = "false-ack"
    DISTURBS: ClassVar[bool] = False
    from_first: bool
    ahead: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.random() < 0.5, chance.choice((1, 50, 1 << 40)))

    def strike(self, world: StormWorld) -> None:
        first, second = self.where.split("~")
        claimed, target = (first, second) if self.from_first else (second, first)
        world.pretend(claimed, target, self.ahead)


@dataclass(frozen=True, slots=True)
class TornRecord(Crash):
    """The power fails between a write and its sync: some of its sectors are on disk, others are not.

    At least `steps` actions have passed since the write, if the disk takes that long: other gateways may already depend
    on it.
    """

    KIND: ClassVar[str] = "torn-record"

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice(TORN_AFTER),)

    def strike(self, world: StormWorld) -> None:
        store = world.store(self.where)
        left, since = TORN_STEPS, 0

        def probe() -> bool:
            nonlocal left, since
            left -= 1
            is_dirty = any(file.dirty for file in store.disk.files.values())
            since = since + 1 if is_dirty else 0
            is_time = since > self.steps or left <= 0
            if is_time:
                self._fail(world)
            return is_time

        world.simulation.between(probe)


@dataclass(frozen=True, slots=True)
class BrownOut(Crash):
    """The power returns and fails again, before the gateway has started completely. `times`: number of failures."""

    KIND: ClassVar[str] = "brown-out"
    LONGEST: ClassVar[Duration] = SECOND
    times: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(BROWN_STEPS), chance.randint(2, 4))

    def _fail(self, world: StormWorld) -> None:
        if world.power_off(self.where, True, self.lasts) and self.times > 1:
            again = replace(self, steps=self.steps // 2 + 1, times=self.times - 1)
            world.after(self.lasts, partial(again.strike, world))


@dataclass(frozen=True, slots=True)
class FlippedBit(Crash):
    """While the gateway is off, a bit of its journal flips. `place`: its position, as a share of all written bytes."""

    KIND: ClassVar[str] = "flipped-bit"
    place: float

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX), round(chance.random(), 6))

    def _fail(self, world: StormWorld) -> None:
        if world.power_off(self.where, True, self.lasts):
            world.corrupt_journal(self.where, self.place)


@dataclass(frozen=True, slots=True)
class FullDisk(Fault):
    """The disk has only this many bytes left."""

    KIND: ClassVar[str] = "full-disk"
    PLACES: ClassVar[str] = "gateways"
    bytes: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((0, 512, 20_000)),)

    def strike(self, world: StormWorld) -> None:
        world.fill_disk(self.where, self.bytes, self.lasts)


@dataclass(frozen=True, slots=True)
class FailingSync(Fault):
    """Syncs and writes fail now and then. `share`: the probability for a sync; that of a write is a quarter."""

    KIND: ClassVar[str] = "failing-sync"
    PLACES: ClassVar[str] = "gateways"
    share: float

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.choice((0.1, 0.5, 1.0)),)

    def strike(self, world: StormWorld) -> None:
        world.fail_disk(self.where, self.share, self.lasts)


@dataclass(frozen=True, slots=True)
class NoClock(Crash):
    """A gateway without a real-time clock starts in 1970."""

    KIND: ClassVar[str] = "no-clock"

    def _fail(self, world: StormWorld) -> None:
        world.store(self.where).wall = 0
        world.power_off(self.where, True, self.lasts)


@dataclass(frozen=True, slots=True)
class JumpedClock(Crash):
    """When the gateway starts again, its clock is set wrong. `by`: the error."""

    KIND: ClassVar[str] = "jumped-clock"
    IS_POWER_CUT: ClassVar[bool] = False
    by: Duration

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX), chance.choice((-HOUR, -SECOND, -50 * MILLISECOND, SECOND, HOUR)))

    def _fail(self, world: StormWorld) -> None:
        world.store(self.where).wall = WALL + self.by
        world.power_off(self.where, self.IS_POWER_CUT, self.lasts)


@dataclass(frozen=True, slots=True)
class DriftingClock(Crash):
    """A gateway's clock runs wrong, which it notices when it starts again. `ppm`: millionths too fast."""

    KIND: ClassVar[str] = "drifting-clock"
    IS_POWER_CUT: ClassVar[bool] = False
    ppm: int

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        return (chance.randrange(STEPS_MAX), chance.choice((-100_000, -200, 200, 100_000)))

    def _fail(self, world: StormWorld) -> None:
        world.store(self.where).drift_ppm = self.ppm
        world.power_off(self.where, self.IS_POWER_CUT, self.lasts)
