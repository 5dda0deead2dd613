"""A scenario: all of a storm as one value, drawn from one seed.

A crew is a shared subscription of several devices. A detour removes roads or gateways for so long that messages have to
take another route (P9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from edgebroker.instants import SECOND, Duration
from edgebroker.limits import JOURNAL_PAGE_MESSAGES
from edgelab.simworld.storms.device import SHARED, StormDevice
from edgelab.simworld.storms.faults import (
    AbandonedLine,
    BandwidthCliff,
    BrokenLine,
    BrownOut,
    ChokedLine,
    DriftingClock,
    FailingSync,
    FalseAcknowledgement,
    Fault,
    FaultPlaces,
    Flicker,
    FlippedBit,
    FullDisk,
    HalfOpen,
    JumpedClock,
    LimitedRate,
    NoClock,
    OneWay,
    PowerCut,
    ProcessDeath,
    RoadCut,
    RoadDelay,
    RoadFlap,
    RoadSilence,
    SiteAway,
    StalledLine,
    Strangers,
    TornRecord,
    Walk,
)
from edgelab.simworld.storms.shape import FederationShape

CREW_SHARE: Final = 0.12
"""The share of storms with a crew."""
SPREAD_SHARE: Final = 0.05
"""The share of the other storms with a crew at several gateways, whose group is shared over the federation."""
WORKERS: Final = (1, 2, 2)
CASUALS: Final = (0, 1, 1)
LINE_FAULTS: Final[tuple[type[Fault], ...]] = (AbandonedLine, BrokenLine, ChokedLine, StalledLine)
LINE_FAULTS_MAX: Final = 3


def draw_crew(seed: int, homes: tuple[str, ...], length: Duration) -> tuple[list[StormDevice], list[Fault]]:
    """Draw the crew of the storm of *seed*, at one or several of *homes*, and faults of its lines within *length*;
    possibly empty.

    It has a random source of its own: a storm without a crew is drawn as if crews did not exist.
    """
    chance = Random(f"crew {seed}")
    crew_homes = 1
    if chance.random() >= CREW_SHARE:
        chance = Random(f"spread crew {seed}")
        if len(homes) == 1 or chance.random() >= SPREAD_SHARE:
            return [], []
        crew_homes = chance.randint(2, min(3, len(homes)))
    at = chance.sample(homes, crew_homes) if crew_homes > 1 else [chance.choice(homes)]
    asks = tuple(chance.sample(list(SHARED), chance.randint(1, 2)))
    kinds = ["worker"] * chance.choice(WORKERS) + ["casual"] * chance.choice(CASUALS)
    kinds += ["worker"] * (crew_homes - len(kinds))
    crew = [
        replace(StormDevice.draw(kind, number, at[number % crew_homes], chance), asks=asks)
        for number, kind in enumerate(kinds)
    ]
    places = FaultPlaces((), (), tuple(one.name for one in crew))
    count = chance.randint(0, LINE_FAULTS_MAX)
    return crew, [chance.choice(LINE_FAULTS).draw(places, length, chance) for _ in range(count)]


WALK_SHARE: Final = 0.15
"""The share of storms in which devices walk from gateway to gateway."""
WALKS_MAX: Final = 5


def draw_walks(
    seed: int, gateways: int, devices: Iterable[StormDevice], faults: Iterable[Fault], length: Duration
) -> list[Fault]:
    """Draw the walks of the storm of *seed*, possibly none. It has a random source of its own, as `draw_crew`.

    Who walks has a session that is known everywhere when the storm begins, and has neither a will nor retained
    messages: other promises are about those.
    """
    chance = Random(f"walks {seed}")
    names = tuple(one.name for one in devices if one.kind == "steady" and not one.has_will and not one.retains)
    is_damaged = any(isinstance(fault, FlippedBit | NoClock | JumpedClock | DriftingClock) for fault in faults)
    if gateways == 1 or not names or is_damaged or chance.random() >= WALK_SHARE:
        return []
    return [Walk.draw(FaultPlaces((), (), names), length, chance) for _ in range(chance.randint(1, WALKS_MAX))]


DETOUR_THEME: Final = "detours"
DETOUR_SHARE: Final = 0.06
"""The share of storms with a detour."""
DETOUR_LENGTH: Final[Duration] = 9 * SECOND
DETOUR_EARLY: Final[Duration] = SECOND // 2
"""The latest time at which the detour begins."""
DETOUR_LASTS: Final[tuple[Duration, Duration]] = (7 * SECOND, 8 * SECOND)


def is_detour(seed: int) -> bool:
    """Return whether the storm of *seed* has a detour. It has a random source of its own: other storms are
    unaffected.
    """
    return Random(f"detour {seed}").random() < DETOUR_SHARE


def detour_shape(chance: Random) -> FederationShape:
    """Draw a shape that tolerates a missing connection, without slow disks or metered uplinks, which would excuse
    delays.
    """
    shape = FederationShape.draw(chance)
    while shape.topology().tolerated_connections < 1:
        shape = FederationShape.draw(chance)
    return replace(shape, slow_disks=(), uplinks=("wan",) * len(shape.uplinks))


def draw_detour(places: FaultPlaces, tolerated: int, devices: Iterable[StormDevice], chance: Random) -> list[Fault]:
    """Draw at most *tolerated* missing roads or gateways at different places; gateways without devices first."""
    homes = {device.home for device in devices}
    spare = [name for name in places.gateways if name not in homes]
    missing: list[Fault] = []
    for _ in range(chance.randint(1, tolerated)):
        kind = chance.choice((RoadCut, ProcessDeath))
        open_to = places.roads if kind is RoadCut else spare or places.gateways
        free = [where for where in open_to if where not in {fault.where for fault in missing}]
        if free:
            drawn = kind.draw(places, DETOUR_EARLY, chance)
            missing.append(replace(drawn, where=chance.choice(free), lasts=chance.randint(*DETOUR_LASTS)))
    return missing


AWAY_THEME: Final = "away"
AWAY_SHARE: Final = 0.06
"""The share of storms in which a site of three or more is away, and outboxes are small."""
AWAY_OUTBOX: Final = (24, 48)
"""Messages in an outbox: more than a device has unacknowledged. One of version 3.1.1 that is refused loses its
connection, and sends all of them again.
"""
AWAY_LASTS: Final[tuple[Duration, Duration]] = (5 * SECOND, 8 * SECOND)
AWAY_FAULTS: Final[tuple[type[Fault], ...]] = (RoadCut, Flicker, ProcessDeath, FailingSync, LimitedRate)


def is_away(seed: int) -> bool:
    """Return whether a site is away in the storm of *seed*. It has a random source of its own, as `is_detour`."""
    return Random(f"away {seed}").random() < AWAY_SHARE


def away_shape(chance: Random) -> FederationShape:
    """Draw a shape of three sites or more, with small outboxes."""
    shape = FederationShape.draw(chance)
    while len(shape.sites) < 3:
        shape = FederationShape.draw(chance)
    return replace(shape, outbox_messages=chance.choice(AWAY_OUTBOX))


def draw_away(places: FaultPlaces, chance: Random) -> list[Fault]:
    """Draw a site that is away for most of the storm, and up to two other faults."""
    away = replace(SiteAway.draw(places, DETOUR_EARLY, chance), lasts=chance.randint(*AWAY_LASTS))
    others = [chance.choice(AWAY_FAULTS).draw(places, DETOUR_LENGTH, chance) for _ in range(chance.randint(0, 2))]
    return [away, *others]


STRANGER_THEME: Final = "impostors"
STRANGER_SHARE: Final = 0.04
"""The share of storms in which somebody who is no gateway is at the ports for peers."""
STRANGER_FAULTS: Final[tuple[type[Fault], ...]] = (RoadCut, Flicker, ProcessDeath)


def has_strangers(seed: int) -> bool:
    """Return whether there are strangers in the storm of *seed*. It has a random source of its own, as `is_detour`."""
    return Random(f"impostors {seed}").random() < STRANGER_SHARE


def draw_strangers(places: FaultPlaces, length: Duration, chance: Random) -> list[Fault]:
    """Draw strangers, most of whom use the name of a gateway, and faults for which messages wait in outboxes."""
    kinds: list[type[Fault]] = [FalseAcknowledgement] * chance.randint(2, 6)
    kinds += [Strangers] * chance.randint(0, 2)
    kinds += [chance.choice(STRANGER_FAULTS) for _ in range(chance.randint(0, 3))]
    return [kind.draw(places, length, chance) for kind in kinds if getattr(places, kind.PLACES)]


THIN_THEME: Final = "thin uplinks"
THIN_SHARE: Final = 0.05
"""The share of storms in which a metered site sends one copy to a site that is not, which hands it on."""
THIN_FAULTS: Final[tuple[type[Fault], ...]] = (RoadCut, Flicker, ProcessDeath, PowerCut, RoadDelay, HalfOpen)


def is_thin(seed: int) -> bool:
    """Return whether a site is metered in the storm of *seed*. It has a random source of its own, as `is_detour`."""
    return Random(f"thin {seed}").random() < THIN_SHARE


def thin_shape(chance: Random) -> FederationShape:
    """Draw a shape of three sites or more, the first of which and perhaps others are metered, but not the last."""
    shape = FederationShape.draw(chance)
    while len(shape.sites) < 3:
        shape = FederationShape.draw(chance)
    others = [chance.choice(("metered", "wan")) for _ in shape.sites[2:]]
    return replace(shape, uplinks=("metered", *others, "wan"))


def draw_thin(places: FaultPlaces, length: Duration, chance: Random) -> list[Fault]:
    """Draw up to three faults; half of these storms have none that ends a connection, so that order is promised."""
    kinds: tuple[type[Fault], ...] = (RoadDelay, *LINE_FAULTS) if chance.random() < 0.5 else THIN_FAULTS
    return [chance.choice(kinds).draw(places, length, chance) for _ in range(chance.randint(0, 3))]


COMMON_KINDS: Final[tuple[type[Fault], ...]] = (
    RoadDelay,
    LimitedRate,
    BandwidthCliff,
    RoadCut,
    Flicker,
    HalfOpen,
    RoadSilence,
    OneWay,
    RoadFlap,
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
"""The kinds of fault that any storm may have."""
KINDS: Final = (*COMMON_KINDS, SiteAway, Strangers, FalseAcknowledgement, Walk)
"""Every kind of fault."""
LEASES: Final = "leases"
"""A theme with short leases: interests of a peer expire soon while its link is down; no link is down for so long."""
LEASE_S: Final = 5
LEASES_LENGTH: Final[Duration] = 9 * SECOND
"""The length of these storms, so that a lease would end within them."""
FLICKERS_MAX: Final = 2
"""After more of them, gateways wait longer than a lease before they dial again."""
THEMES: Final[Mapping[str, tuple[tuple[type[Fault], ...], int]]] = {
    "everything": (COMMON_KINDS, 5),
    "roads": (tuple(kind for kind in COMMON_KINDS if kind.PLACES == "roads"), 3),
    "dead": ((ProcessDeath, RoadCut), 3),
    LEASES: ((Flicker,), 1),
    "slow roads": ((RoadDelay, LimitedRate, BandwidthCliff), 1),
    "cut roads": ((RoadCut, BrokenLine, ChokedLine), 2),
    "power": ((PowerCut, ProcessDeath, TornRecord, BrownOut), 4),
    "power and roads": ((PowerCut, ProcessDeath, TornRecord, BrownOut, RoadCut, HalfOpen), 4),
    "disks": ((FullDisk, FailingSync, PowerCut), 2),
    "damage": ((FlippedBit, PowerCut), 2),
    "clocks": ((NoClock, JumpedClock, DriftingClock, RoadCut), 1),
    "lines": ((StalledLine, BrokenLine, ChokedLine, AbandonedLine), 3),
}
"""Faults that occur together, and weights: a random mixture would hardly ever combine them."""
FAULTS_MAX: Final = 9
LENGTH: Final[tuple[Duration, Duration]] = (3 * SECOND, 5 * SECOND)
DEVICES: Final = {"steady": (1, 3), "fickle": (0, 3), "talker": (1, 3)}


@dataclass(frozen=True, slots=True)
class StormScenario:
    """One storm. `length`: the time of faults and device actions; after it everything recovers and settles."""

    seed: int
    theme: str
    shape: FederationShape
    devices: tuple[StormDevice, ...]
    faults: tuple[Fault, ...]
    length: Duration
    page_messages: int = JOURNAL_PAGE_MESSAGES
    """Messages of a queue that are moved to the disk together."""

    def __str__(self) -> str:
        devices, faults = (", ".join(map(str, some)) or "none" for some in (self.devices, self.faults))
        length = f"{self.length / SECOND:.1f} s"
        return f"seed {self.seed}, {self.theme}, {length}; {self.shape}; devices {devices}; faults {faults}"


def draw(seed: int) -> StormScenario:
    """Return the scenario of a seed."""
    chance = Random(f"storm {seed}")
    if is_detour(seed):
        shape = detour_shape(chance)
        devices, places = _drawn(shape, chance)
        tolerated = shape.topology().tolerated_connections
        faults = draw_detour(places, tolerated, devices, chance)
        return _scenario(seed, DETOUR_THEME, shape, devices, faults, DETOUR_LENGTH)
    if is_away(seed):
        shape = away_shape(chance)
        devices, places = _drawn(shape, chance)
        return _scenario(seed, AWAY_THEME, shape, devices, draw_away(places, chance), DETOUR_LENGTH)
    if is_thin(seed):
        shape = thin_shape(chance)
        devices, places = _drawn(shape, chance)
        faults = draw_thin(places, LENGTH[1], chance)
        return _scenario(seed, THIN_THEME, shape, devices, faults, LENGTH[1])
    shape = FederationShape.draw(chance)
    devices, places = _drawn(shape, chance)
    length = chance.randint(*LENGTH)
    if has_strangers(seed):
        return _scenario(seed, STRANGER_THEME, shape, devices, draw_strangers(places, length, chance), length)
    theme = chance.choices(list(THEMES), [weight for _, weight in THEMES.values()])[0]
    kinds = [kind for kind in THEMES[theme][0] if getattr(places, kind.PLACES)]
    count = chance.randint(1, FAULTS_MAX) if kinds else 0
    if theme == LEASES:
        shape, count = replace(shape, lease_s=LEASE_S), min(count, FLICKERS_MAX)
    faults = [chance.choice(kinds).draw(places, length, chance) for _ in range(count)]
    if theme == LEASES:
        length = LEASES_LENGTH
    return _scenario(seed, theme, shape, devices, faults, length)


def _drawn(shape: FederationShape, chance: Random) -> tuple[list[StormDevice], FaultPlaces]:
    devices = []
    for kind, (fewest, most) in DEVICES.items():
        for number in range(chance.randint(fewest, most)):
            devices.append(StormDevice.draw(kind, number, chance.choice(shape.names), chance))
    gateways = shape.topology().gateways
    roads = sorted({"~".join(sorted((one.name, peer))) for one in gateways for peer in one.peers()})
    return devices, FaultPlaces(shape.names, tuple(roads), tuple(device.name for device in devices))


def _scenario(
    seed: int, theme: str, shape: FederationShape, devices: list[StormDevice], faults: list[Fault], length: Duration
) -> StormScenario:
    members, crew_faults = draw_crew(seed, shape.names, length)
    walks = draw_walks(seed, len(shape.names), devices, faults, length)
    all_faults = sorted([*faults, *crew_faults, *walks], key=lambda fault: fault.at)
    return StormScenario(seed, theme, shape, (*devices, *members), tuple(all_faults), length)
