"""Links over bad roads: cuts, silence, crashes with torn and unsynced disks, in both directions.

EDGEBROKER_LINK_TRIALS=20000 .venv/bin/pytest -n 2 tests/laws/test_link_laws.py          as many as wanted
EDGEBROKER_LINK_TRIAL=4711 .venv/bin/pytest tests/laws/test_link_laws.py -k one_trial    one trial again
"""

from __future__ import annotations

import os

import pytest

from .link.trial import Broken, Trial

TRIALS = int(os.environ.get("EDGEBROKER_LINK_TRIALS", "36"))
SHARDS = 6
STEPS = 80
HERE = "tests/laws/test_link_laws.py"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_a_link_was_given_arrives_once_and_in_order(shard: int, seed: int) -> None:
    kept = words = crashes = cuts = silences = disks = duplicates = 0
    for number in range(shard, TRIALS, SHARDS):
        trial = Trial(seed + number)
        try:
            trial.live(STEPS)
        except Broken as broken:
            pytest.fail(f"{broken}\nEDGEBROKER_LINK_TRIAL={seed + number} .venv/bin/pytest {HERE} -k one_trial")
        kept += sum(len(gateway.kept) for gateway in trial.gateways)
        words += trial.words_reached
        crashes += trial.crashes
        cuts += trial.cuts
        silences += trial.silences
        disks += trial.disks
        duplicates += sum(link.acks.positions.duplicates for gateway in trial.gateways for link in gateway.links)
    print(f"{kept} events, {words} words, {crashes} crashes, {disks} lost disks, {cuts} cuts, {silences} silences")
    print(f"{duplicates} duplicates")
    assert min(kept / 10, words, crashes, cuts, silences) >= TRIALS / SHARDS / 2


def test_one_trial() -> None:
    Trial(int(os.environ.get("EDGEBROKER_LINK_TRIAL", "1"))).live(STEPS)
