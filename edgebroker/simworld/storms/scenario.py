"""A scenario: everything that a storm will be, as one value, drawn from one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from edgebroker.instants import SECOND, Duration

from . import crew, detour
from .device import Device
from .fault import Fault, Places
from .gatewayfaults import (
    BrownOut,
    DriftingClock,
    FailingSync,
    FlippedBit,
    FullDisk,
    JumpedClock,
    NoClock,
    PowerCut,
    ProcessDeath,
    TornRecord,
)
from .linefaults import AbandonedLine, BrokenLine, ChokedLine, StalledLine
from .roadfaults import BandwidthCliff, Cut, Delay, Flapping, Flicker, HalfOpen, LimitedRate, OneWay, Silence
from .shape import Shape

KINDS: Final[tuple[type[Fault], ...]] = (
    Delay,
    LimitedRate,
    BandwidthCliff,
    Cut,
    Flicker,
    HalfOpen,
    Silence,
    OneWay,
    Flapping,
    PowerCut,
    ProcessDeath,
    TornRecord,
    BrownOut,
    FlippedBit,
    FullDisk,
    FailingSync,
    NoClock,
    JumpedClock,
    DriftingClock,
    StalledLine,
    BrokenLine,
    ChokedLine,
    AbandonedLine,
)
"""Every kind of fault."""
LEASES: Final = "leases"
"""What peers told is forgotten soon while a link is down; none is down for so long, so nothing may be forgotten."""
LEASE_S: Final = 5
LEASES_LENGTH: Final[Duration] = 9 * SECOND
"""So much is said that a lease would end before."""
FLICKERS_MAX: Final = 2
"""After more, gateways wait longer than a lease before they dial again."""
THEMES: Final[Mapping[str, tuple[tuple[type[Fault], ...], int]]] = {
    "everything": (KINDS, 5),
    "roads": (tuple(kind for kind in KINDS if kind.PLACES == "roads"), 3),
    "dead": ((ProcessDeath, Cut), 3),
    LEASES: ((Flicker,), 1),
    "slow roads": ((Delay, LimitedRate, BandwidthCliff), 1),
    "cut roads": ((Cut, BrokenLine, ChokedLine), 2),
    "power": ((PowerCut, ProcessDeath, TornRecord, BrownOut), 4),
    "power and roads": ((PowerCut, ProcessDeath, TornRecord, BrownOut, Cut, HalfOpen), 4),
    "disks": ((FullDisk, FailingSync, PowerCut), 2),
    "damage": ((FlippedBit, PowerCut), 2),
    "clocks": ((NoClock, JumpedClock, DriftingClock, Cut), 1),
    "lines": ((StalledLine, BrokenLine, ChokedLine, AbandonedLine), 3),
}
"""What may happen together, and how often: faults that meet by chance alone would hardly ever do so."""
FAULTS_MAX: Final = 9
LENGTH: Final[tuple[Duration, Duration]] = (3 * SECOND, 5 * SECOND)
DEVICES: Final = {"steady": (1, 3), "fickle": (0, 3), "talker": (1, 3)}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One storm. `length`: how long faults strike and devices talk; then everything comes back and to rest."""

    seed: int
    theme: str
    shape: Shape
    devices: tuple[Device, ...]
    faults: tuple[Fault, ...]
    length: Duration

    def __str__(self) -> str:
        devices, faults = (", ".join(map(str, some)) or "none" for some in (self.devices, self.faults))
        length = f"{self.length / SECOND:.1f} s"
        return f"seed {self.seed}, {self.theme}, {length}; {self.shape}; devices {devices}; faults {faults}"


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    chance = Random(f"storm {seed}")
    if detour.is_detour(seed):
        shape = detour.federation(chance)
        devices, places = _drawn(shape, chance)
        tolerated = shape.topology().tolerated_connections
        faults = detour.faults(places, tolerated, devices, chance)
        return _scenario(seed, detour.THEME, shape, devices, faults, detour.LENGTH)
    shape = Shape.draw(chance)
    devices, places = _drawn(shape, chance)
    length = chance.randint(*LENGTH)
    theme = chance.choices(list(THEMES), [weight for _, weight in THEMES.values()])[0]
    kinds = [kind for kind in THEMES[theme][0] if getattr(places, kind.PLACES)]
    count = chance.randint(1, FAULTS_MAX) if kinds else 0
    if theme == LEASES:
        shape, count = replace(shape, lease_s=LEASE_S), min(count, FLICKERS_MAX)
    faults = [chance.choice(kinds).draw(places, length, chance) for _ in range(count)]
    if theme == LEASES:
        length = LEASES_LENGTH
    return _scenario(seed, theme, shape, devices, faults, length)


def _drawn(shape: Shape, chance: Random) -> tuple[list[Device], Places]:
    devices = []
    for kind, (least, most) in DEVICES.items():
        for number in range(chance.randint(least, most)):
            devices.append(Device.draw(kind, number, chance.choice(shape.names), chance))
    gateways = shape.topology().gateways
    roads = sorted({"~".join(sorted((one.name, peer))) for one in gateways for peer in one.peers()})
    return devices, Places(shape.names, tuple(roads), tuple(device.name for device in devices))


def _scenario(
    seed: int, theme: str, shape: Shape, devices: list[Device], faults: list[Fault], length: Duration
) -> Scenario:
    members, more = crew.draw(seed, shape.names, length)
    together = sorted([*faults, *more], key=lambda fault: fault.at)
    return Scenario(seed, theme, shape, (*devices, *members), tuple(together), length)
