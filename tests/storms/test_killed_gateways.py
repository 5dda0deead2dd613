"""50 kills (SIGKILL) of a real gateway with live clients. `killing.py` says how to have thousands."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from .killing import run

KILLS = int(os.environ.get("EDGEBROKER_KILLS", "50"))


@pytest.mark.live
@pytest.mark.slow
def test_what_was_acknowledged_survives_every_kill(tmp_path: Path, seed: int) -> None:
    broken, counts = asyncio.run(run(KILLS, seed, tmp_path))
    assert not broken, "\n".join([f".venv/bin/python tests/storms/killing.py --cycles {KILLS} --seed {seed}", *broken])
    assert counts["acknowledged"] > 20 * KILLS
    assert counts["heard"] >= 3 * counts["acknowledged"]
