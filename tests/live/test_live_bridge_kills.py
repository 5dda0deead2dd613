"""Bridges of real processes that are killed, cut off and left hanging: nothing lost, nothing doubled, no loop."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from .bridgeworld import World
from .mosquitto import NEEDS_MOSQUITTO

RUNS = int(os.environ.get("EDGEBROKER_BRIDGE_LIVE_KILLS", "24"))
RUNS_OF_WORLD = 25
REMOTES = ("Mosquitto", "gateway", "Mosquitto killed")

pytestmark = [pytest.mark.live, pytest.mark.slow, NEEDS_MOSQUITTO]


@pytest.mark.parametrize("remote", REMOTES)
def test_nothing_is_lost_nothing_doubled_and_nothing_comes_back(tmp_path: Path, seed: int, remote: str) -> None:
    """A third of EDGEBROKER_BRIDGE_LIVE_KILLS runs; each is a burst of messages with one fault in it, or two."""
    runs = RUNS // len(REMOTES) + (REMOTES.index(remote) < RUNS % len(REMOTES))
    count = max(-(-runs // RUNS_OF_WORLD), 2)
    worlds = [
        World(tmp_path / str(number), remote, ("5", "3.1.1")[number % 2], Random(f"{seed} {remote} {number}"))
        for number in range(count)
    ]

    async def play() -> None:
        shares = (runs // count + (number < runs % count) for number in range(count))
        await asyncio.gather(*(world.play(share) for world, share in zip(worlds, shares, strict=True)))

    asyncio.run(play())
    faults = sum((world.faults for world in worlds), Counter[str]())
    said, heard = (
        sum(len(getattr(one, what)) for world in worlds for one in world.everybody)
        for what in ("acknowledged", "heard")
    )
    forgot = sum(world.forgotten for world in worlds)
    print(f"{runs} runs with {remote}, seed {seed}: {said:,} acknowledged, {heard:,} heard; {dict(faults)}; {forgot=}")
    complaints = [one for world in worlds for one in world.complaints()]
    again = f"EDGEBROKER_TEST_SEED={seed} EDGEBROKER_BRIDGE_LIVE_KILLS={RUNS} .venv/bin/pytest '{__file__}' -k"
    assert not complaints, "\n".join([f"{again} '{remote}'", *complaints])
    assert said > 8 * runs
