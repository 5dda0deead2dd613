"""From a storm that broke a promise to the smallest one that still breaks it: fewer faults, then fewer devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from edgebroker.instants import SECOND

from .scenario import Scenario
from .storm import Outcome, live


def shrink(outcome: Outcome, tried: Callable[[int], None] = lambda count: None) -> Outcome:
    """The outcome of the smallest storm found that still breaks one of the promises that *outcome* has broken.

    Parts are left out one after the other, the larger first, until no single one can be spared. *tried* is told how
    many storms were lived through.
    """
    wanted = set(outcome.promises)
    count = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(outcome.scenario):
            count += 1
            tried(count)
            attempt = live(smaller)
            if wanted & set(attempt.promises):
                outcome, is_smaller = attempt, True
                break
    return outcome


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Without the second half of its faults, without the first, without each, and then without each device."""
    faults = scenario.faults
    if len(faults) > 3:
        yield replace(scenario, faults=faults[: len(faults) // 2])
        yield replace(scenario, faults=faults[len(faults) // 2 :])
    for index in range(len(faults)):
        yield replace(scenario, faults=faults[:index] + faults[index + 1 :])
    for device in scenario.devices:
        others = tuple(one for one in scenario.devices if one is not device)
        yield replace(scenario, devices=others, faults=tuple(fault for fault in faults if fault.where != device.name))
    if scenario.length > SECOND:
        kept = scenario.length * 2 // 3
        yield replace(scenario, length=kept, faults=tuple(fault for fault in faults if fault.at < kept))
