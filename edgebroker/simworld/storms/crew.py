"""A crew: devices of one gateway that share what they ask for, so one of them gets one copy of each message.

*Workers* keep their sessions and stay; a *casual* comes and goes, and need not keep its session.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from edgebroker.instants import Duration

from .device import SHARED, Device
from .fault import Fault, Places
from .linefaults import AbandonedLine, BrokenLine, ChokedLine, StalledLine

SHARE: Final = 0.12
"""How many storms have one."""
WORKERS: Final = (1, 2, 2)
CASUALS: Final = (0, 1, 1)
LINE_FAULTS: Final[tuple[type[Fault], ...]] = (AbandonedLine, BrokenLine, ChokedLine, StalledLine)
LINE_FAULTS_MAX: Final = 3


def draw(seed: int, homes: tuple[str, ...], length: Duration) -> tuple[list[Device], list[Fault]]:
    """The crew of the storm of *seed*, at one of *homes*, and what happens to its lines within *length*; or nobody.

    Its source of chance is its own: storms without one are drawn as if there were none.
    """
    chance = Random(f"crew {seed}")
    if chance.random() >= SHARE:
        return [], []
    home = chance.choice(homes)
    asks = tuple(chance.sample(list(SHARED), chance.randint(1, 2)))
    kinds = ["worker"] * chance.choice(WORKERS) + ["casual"] * chance.choice(CASUALS)
    crew = [replace(Device.draw(kind, number, home, chance), asks=asks) for number, kind in enumerate(kinds)]
    places = Places((), (), tuple(one.name for one in crew))
    count = chance.randint(0, LINE_FAULTS_MAX)
    return crew, [chance.choice(LINE_FAULTS).draw(places, length, chance) for _ in range(count)]
