"""Storms notice bugs: the product with one bug seeded into it breaks a promise, and without it keeps all.

.venv/bin/pytest -s tests/storms/test_mutants.py                                     each from the storm noted for it on
EDGEBROKER_MUTANT_STORMS=500 .venv/bin/pytest -s -n 2 tests/storms/test_mutants.py   each looked for from seed 0 on

Where storms come to be drawn in another way another one notices, so more are tried than the one that is noted.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from edgelab.simworld.storms.scenario import draw
from edgelab.simworld.storms.storm import live

from .mutants.mutant import Mutant, TextNotThere, Tree, mutants

STORMS = int(os.environ.get("EDGEBROKER_MUTANT_STORMS", "0"))
"""How many storms to look for each mutant in, from seed 0 on; 0: it is looked for from the one on that is noted."""
TRIES = 500
MUTANTS = tuple(mutants())


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(root, tmp_path_factory.mktemp("mutants") / "pure")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_storms_notice_it(mutant: Mutant, tree: Tree) -> None:
    first, scenarios = (0, STORMS) if STORMS else (mutant.seed, TRIES)
    broken = tree.noticed(mutant, first, scenarios)
    assert broken is not None, f"{scenarios} storms from seed {first} on break none of {mutant.breaks}"
    print(f"{mutant.name}: the storm of seed {broken['seed']} broke {', '.join(broken['promises'])}")


@pytest.mark.slow
def test_without_them_the_same_storms_break_nothing() -> None:
    for seed in sorted({mutant.seed for mutant in MUTANTS}):
        assert not live(draw(seed)).broken, f"edgebroker simulate --scenarios 1 --seed {seed}"


def test_each_is_one_change_of_one_text(root: Path) -> None:
    for mutant in MUTANTS:
        source = (root / mutant.file).read_text(encoding="utf-8")
        compile(mutant.seeded(source), mutant.file, "exec")


def test_they_have_names_of_their_own_and_break_many_promises() -> None:
    assert len(MUTANTS) >= 20
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert {f"P{number}" for number in range(1, 10)} <= {promise for mutant in MUTANTS for promise in mutant.breaks}


def test_a_text_that_is_not_there_is_told() -> None:
    mutant = MUTANTS[0]
    with pytest.raises(TextNotThere, match=f"{mutant.name}: its text is 0 times in {mutant.file}"):
        mutant.seeded("")
    with pytest.raises(TextNotThere, match="2 times"):
        mutant.seeded(2 * mutant.text)
