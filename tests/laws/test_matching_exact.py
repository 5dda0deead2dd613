"""The matcher is exact: trees beside brute force on a million pairs of a set of subscriptions and an event.

EDGEBROKER_EXACT_PAIRS=5000000 .venv/bin/pytest -n 2 tests/laws/test_matching_exact.py      as many pairs as wanted
EDGEBROKER_EXACT_CASE=wild:17:240 .venv/bin/pytest tests/laws/test_matching_exact.py -k one_case   one case again

A set is a state of a tree that subscriptions enter and leave all the time; the events are spread over its states. A
case that fails is shrunk, and told together with the command that repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from edgebroker.matching import reference
from edgebroker.matching.pst import Pst

from .matching.cases import SHAPES, SMALL, Case, case_of
from .matching.faults import FAULTS, KERNEL_FAULTS
from .matching.oracle import Oracle
from .matching.planting import COMPILED, Planting, growing, one_tree, twins
from .matching.shrinking import failure_of, shrunk, told
from .matching.trial import Disagreement, Trial, operations_of

PAIRS = int(os.environ.get("EDGEBROKER_EXACT_PAIRS", "1_000_000"))
QUICK_PAIRS = min(PAIRS, 100_000)
TWIN_PAIRS = PAIRS // 10  # each takes the time of both kernels
SHARDS = 20
EVENTS = 240
"""Of a case; a set that took long to make is asked about more events."""


def played(case: Case, planting: Planting, events: int = 0) -> int:
    """Play the case; return the number of pairs. Fails with the least operations that go wrong."""
    oracle = Oracle(case)
    events = events or EVENTS + len(case.subscriptions) // 2
    operations = operations_of(case, oracle, events)
    trial = Trial(case, oracle, planting(case))
    try:
        with growing(case):
            trial.play(operations)
    except Exception as error:
        least = shrunk(case, oracle, operations[: trial.played], planting)
        reason = failure_of(case, oracle, least, planting) or error
        raise Disagreement(
            f"{type(reason).__name__}: {reason}\n{told(case, least)}\n"
            f"with {case.bucket_max} predicates in one place; once more:\n"
            f"EDGEBROKER_EXACT_CASE='{case.shape}:{case.seed}:{events}' .venv/bin/pytest "
            f"tests/laws/test_matching_exact.py -k one_case"
        ) from reason
    return trial.pairs


def played_all(seed: int, shard: int, pairs: int, planting: Planting, shapes: Sequence[str] = tuple(SHAPES)) -> None:
    """Play cases that no other *shard* has until there have been so many *pairs*."""
    number = (seed * 1_000 + shard) * 1_000_000
    while pairs > 0:
        pairs -= played(case_of(number, shapes), planting)
        number += 1


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_tree_says_what_brute_force_says(shard: int, seed: int) -> None:
    played_all(seed, shard, QUICK_PAIRS // SHARDS, one_tree, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_tree_says_what_brute_force_says_a_million_times(shard: int, seed: int) -> None:
    if COMPILED is None and "EDGEBROKER_EXACT_PAIRS" not in os.environ:
        pytest.skip("takes minutes in pure Python; EDGEBROKER_EXACT_PAIRS=1000000 asks for it")
    played_all(seed, 100 + shard, (PAIRS - QUICK_PAIRS) // SHARDS, one_tree)


@pytest.mark.parametrize("shape", SHAPES)
def test_sets_of_every_shape_are_matched(shape: str, seed: int) -> None:
    played(case_of(seed, (shape,)), one_tree, events=60)


@pytest.mark.slow
@pytest.mark.skipif(COMPILED is None, reason="nothing is compiled here")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_both_kernels_do_the_same(shard: int, seed: int) -> None:
    played_all(seed, 300 + shard, TWIN_PAIRS // SHARDS, twins)


if "EDGEBROKER_EXACT_CASE" in os.environ:  # what a failure prints, to play it once more

    def test_one_case() -> None:
        shape, number, events = os.environ["EDGEBROKER_EXACT_CASE"].split(":")
        played(case_of(int(number), (shape,)), one_tree if COMPILED is None else twins, int(events))


@pytest.mark.parametrize("faulty", FAULTS, ids=lambda faulty: faulty.__name__)
def test_a_fault_is_noticed(faulty: type[Pst], seed: int) -> None:
    with pytest.raises(Disagreement, match="once more") as found:
        played_all(seed, 400, 20_000, lambda case: (faulty(bucket_max=case.bucket_max),), SMALL)
    assert len(str(found.value).splitlines()) < 20  # the least operations, each a line


@pytest.mark.parametrize("fault", KERNEL_FAULTS)
def test_a_fault_of_the_kernel_is_noticed(fault: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*KERNEL_FAULTS[fault])
    with pytest.raises(Disagreement, match="once more"):
        played_all(seed, 400, 20_000, lambda case: (Pst(reference, case.bucket_max),), SMALL)
