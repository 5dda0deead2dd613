"""20,000 crash images of journals: torn, unsynced, flipped bits, a full disk, failed writes and syncs, and images of
which the newest segment was deleted, emptied, zeroed or cut off behind its header.

EDGEBROKER_CRASH_IMAGES=1000000 .venv/bin/pytest -n 2 tests/laws/test_journal_crashes.py      as many as wanted
EDGEBROKER_CRASH_TRIAL=4711 .venv/bin/pytest tests/laws/test_journal_crashes.py -k one_trial    one trial again
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import pytest

from .journal.faults import FAULTS
from .journal.trial import Broken, trial_of

IMAGES = int(os.environ.get("EDGEBROKER_CRASH_IMAGES", "20000"))
IMAGES_PER_TRIAL = 50
SHARDS = 20
HERE = "tests/laws/test_journal_crashes.py"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_was_synced_comes_back_from_every_crash(shard: int, seed: int) -> None:
    images = damaged = taken = refusals = lives = 0
    number = seed * 1_000_000 + shard * 10_000
    while images < IMAGES / SHARDS:
        trial = trial_of(number)
        try:
            trial.live(300, IMAGES_PER_TRIAL)
        except Broken as broken:
            pytest.fail(f"{broken}\nEDGEBROKER_CRASH_TRIAL={number} .venv/bin/pytest {HERE} -k one_trial")
        images += trial.images
        damaged += trial.damaged_images
        taken += trial.taken_images
        refusals += trial.refusals
        lives += trial.lives
        number += 1
    # The trials are worth something: there was damage to be found, disks refused, and lives followed upon lives.
    assert min(damaged, taken, refusals, lives) > images / 200, (images, damaged, taken, refusals, lives)


def test_one_trial() -> None:
    trial_of(int(os.environ.get("EDGEBROKER_CRASH_TRIAL", "1"))).live(300, IMAGES_PER_TRIAL)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_journal_that(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    for number in range(400):
        try:
            trial_of(number).live(300, IMAGES_PER_TRIAL)
        except (Broken, KeyError, struct.error):
            return
    pytest.fail("nobody noticed")
