"""A budget of time, spent by several processes on many targets: certain to end, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from .finding import shrunk
from .run import Report, run
from .target import Target

GRACE_S = 30.0
"""A process may take so long beyond the budget to make small what it found (finding.TRIES_S). Then it is killed."""
LEAST_S = 0.05
"""A target for which less is left is left out."""
STEPS = 50
"""Halvings until the share of a kind is known: to less than a millionth of a second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target."""

    report: Report
    told: str = ""
    """What is wrong, and the command that repeats it; empty if nothing was found."""


def per_kind(names: Sequence[str], seconds: float, most: float, share_of: Callable[[str, float], float]) -> float:
    """The seconds, *most* at most, to give each kind so that all targets together take no more than *seconds*."""
    low, high = 0.0, most
    for _ in range(STEPS):
        middle = (low + high) / 2
        if sum(share_of(name, middle) for name in names) <= seconds:
            low = middle
        else:
            high = middle
    return low


def spent(
    shares: Sequence[tuple[Target, float]], budget: float, jobs: int, seed: int, grace: float = GRACE_S
) -> Iterator[Outcome]:
    """Each target for its share of seconds, in *jobs* processes, within *budget* seconds. Outcomes come as they come.

    A process that dies, or does not end, is an outcome too.
    """
    hands = [_Hand(hand, seed, time.monotonic() + budget) for hand in _dealt(shares, jobs)]
    last = time.monotonic() + budget + grace
    open_hands = {hand.pipe: hand for hand in hands}
    while open_hands:
        ready = wait(list(open_hands), max(0.0, last - time.monotonic()))
        for pipe in ready or list(open_hands):
            hand = open_hands[pipe]  # type: ignore[index]
            if not ready:
                hand.process.kill()
            try:
                heard = hand.pipe.recv()
            except (EOFError, OSError):  # the latter if it ended within a word
                del open_hands[hand.pipe]
                yield from hand.ended("did not end in time" if not ready else "")
                continue
            if isinstance(heard, str):
                hand.busy = heard
            else:
                hand.busy = ""
                yield heard


class _Hand:
    """A process, the targets it was dealt, and which of them it is busy with."""

    def __init__(self, shares: Sequence[tuple[Target, float]], seed: int, ends: float) -> None:
        context = get_context("fork")  # targets are functions, and much is imported by now
        self.pipe, other = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(target=_work, args=(shares, seed, ends, other), daemon=True)
        self.process.start()
        other.close()
        self.busy = ""
        self._seed = seed

    def ended(self, why: str) -> Iterator[Outcome]:
        """The process is over. While it was busy, it should not have been."""
        self.process.join()
        self.pipe.close()
        if self.busy:
            command = f".venv/bin/python -m tests.fuzz.frame {self.busy} --seconds 600 --seed {self._seed}"
            told = f"{self.busy}: the process {why or f'ended with {self.process.exitcode}'}\n{command}"
            yield Outcome(Report(self.busy), told)


def _dealt(shares: Sequence[tuple[Target, float]], jobs: int) -> list[list[tuple[Target, float]]]:
    """The longest first, each to whoever has least to do."""
    hands: list[list[tuple[Target, float]]] = [[] for _ in range(jobs)]
    for share in sorted(shares, key=lambda share: -share[1]):
        min(hands, key=lambda hand: sum(seconds for _, seconds in hand)).append(share)
    return [hand for hand in hands if hand]


def _work(shares: Sequence[tuple[Target, float]], seed: int, ends: float, pipe: Connection) -> None:
    """One process. If time ran away, what is left is divided among the targets that are left."""
    due = sum(seconds for _, seconds in shares)
    for target, share in shares:
        seconds = min(share, (ends - time.monotonic()) * share / due)
        due -= share
        if seconds < LEAST_S:
            pipe.send(Outcome(Report(target.name)))
            continue
        pipe.send(target.name)
        report = run(target, seed, seconds)
        told = str(shrunk(report.finding)) if report.finding is not None else ""
        pipe.send(Outcome(replace(report, finding=None), told))
