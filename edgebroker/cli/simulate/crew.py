"""Storms one after the other, or several at once in processes of their own; their outcomes in the order of seeds."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import get_context

from edgebroker.simworld.storms.storm import Outcome, storm


def outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    """What became of each. Whoever stops asking ends the processes."""
    if jobs == 1:
        yield from map(storm, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(storm, seeds)
