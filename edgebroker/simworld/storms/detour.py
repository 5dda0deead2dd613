"""A storm that takes away so little that all others stay connected, for so long that messages have to go around (P9).

Where faults are drawn from everything that can happen, hardly one message in a hundred is said while nothing but a road
or a gateway is missing, and has been for so long that everybody knows: of 300 such storms one had such a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from edgebroker.instants import SECOND, Duration

from .device import Device
from .fault import Fault, Places
from .gatewayfaults import ProcessDeath
from .roadfaults import Cut
from .shape import Shape

THEME: Final = "detours"
SHARE: Final = 0.06
"""How many storms are such."""
LENGTH: Final[Duration] = 9 * SECOND
EARLY: Final[Duration] = SECOND // 2
"""When the last of it is gone, at the latest."""
LASTS: Final[tuple[Duration, Duration]] = (7 * SECOND, 8 * SECOND)


def is_detour(seed: int) -> bool:
    """Whether the storm of *seed* is such. Its source of chance is its own: all others stay as they are."""
    return Random(f"detour {seed}").random() < SHARE


def federation(chance: Random) -> Shape:
    """One in which something may be missing. What comes late has no excuse: neither slow disks, nor metered uplinks."""
    shape = Shape.draw(chance)
    while shape.topology().tolerated_connections < 1:
        shape = Shape.draw(chance)
    return replace(shape, slow_disks=(), uplinks=("wan",) * len(shape.uplinks))


def faults(places: Places, tolerated: int, devices: Iterable[Device], chance: Random) -> list[Fault]:
    """*tolerated* things at most that are missing, each somewhere else; gateways without devices first."""
    homes = {device.home for device in devices}
    spare = [name for name in places.gateways if name not in homes]
    missing: list[Fault] = []
    for _ in range(chance.randint(1, tolerated)):
        kind = chance.choice((Cut, ProcessDeath))
        open_to = places.roads if kind is Cut else spare or places.gateways
        free = [where for where in open_to if where not in {fault.where for fault in missing}]
        if free:
            drawn = kind.draw(places, EARLY, chance)
            missing.append(replace(drawn, where=chance.choice(free), lasts=chance.randint(*LASTS)))
    return missing
