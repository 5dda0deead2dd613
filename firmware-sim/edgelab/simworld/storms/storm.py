"""One storm from its start to the check of the promises, and the smallest scenario that still breaks one."""

from __future__ import annotations

import gc
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Final

from edgebroker.instants import SECOND, Duration
from edgebroker.limits import JOURNAL_PAGE_MESSAGES
from edgelab.simworld.storms.device import KEEPERS
from edgelab.simworld.storms.faults import Walk
from edgelab.simworld.storms.promises import Broken, PromiseChecker
from edgelab.simworld.storms.scenario import StormScenario, draw
from edgelab.simworld.storms.world import StormWorld

MEETING: Final[Duration] = 3 * SECOND
"""The longest time until all links are up without faults."""
KNOWN: Final[Duration] = 2 * SECOND
"""The longest time until all gateways know the interests of steady devices without faults."""
REST_MAX: Final[Duration] = 900 * SECOND
"""The longest time until everything has settled: gateways dial again after 30 s at most, one link after the other."""
STEPS_MAX: Final = 400_000
"""The most actions: fifty times those of a usual storm."""


@dataclass(frozen=True, slots=True)
class StormOutcome:
    """The outcome of a scenario."""

    scenario: StormScenario
    broken: tuple[Broken, ...]
    trace: str
    """A hash of the whole run: the same for the same seed."""
    said: int
    heard: int
    faults: Counter[str]

    @property
    def promises(self) -> tuple[str, ...]:
        """Return the broken promises, in order."""
        return tuple(sorted({promise for promise, _ in self.broken}))


RECALLED: Final[Duration] = 5 * SECOND
"""The longest time until retained messages arrive from other sites without faults."""
LATECOMERS: Final = 2
REPEATED: Final = 25
"""One of this many storms is run twice (P10)."""


class StormUnsettled(Exception):
    """A run does not settle."""


def live(scenario: StormScenario) -> StormOutcome:
    """Run *scenario* and check it. Never raises: an exception of the product is reported as broken `error`."""
    with _without_garbage_collection():
        return _run_scenario(scenario)


def _run_scenario(scenario: StormScenario) -> StormOutcome:
    roams = any(isinstance(fault, Walk) for fault in scenario.faults)
    world = StormWorld(scenario.seed, scenario.shape, scenario.devices, scenario.page_messages, roams)
    broken: list[Broken] = []
    try:
        blow(world, scenario)
        broken += PromiseChecker(world).broken()
    except StormUnsettled as error:
        broken.append(("rest", str(error)))
    except Exception:
        broken.append(("error", traceback.format_exc()))
    return StormOutcome(
        scenario,
        tuple(broken),
        _trace(world),
        sum(len(one.published) for one in world.devices.values()),
        sum(len(one.received) for one in world.devices.values()),
        Counter(fault.KIND for fault in scenario.faults),
    )


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: nearly all of a world, 2 MB, is in use until its end.

    The collector would scan it some hundred times, which is a tenth of the time of a storm.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def blow(world: StormWorld, scenario: StormScenario) -> None:
    """Run *scenario* on *world*, which was made for it. Raises StormUnsettled."""
    _begin(world)
    _storm(world, scenario)
    _settle(world)


def storm(seed: int, page_messages: int = JOURNAL_PAGE_MESSAGES) -> StormOutcome:
    """Run the storm of *seed*; one in REPEATED is run twice and compared (P10). *page_messages*: of the queues, which
    are moved to the disk together.
    """
    scenario = replace(draw(seed), page_messages=page_messages)
    outcome = live(scenario)
    if seed % REPEATED == 0 and (second_run := live(scenario)).trace != outcome.trace:
        difference = ("P10", f"the same seed gave the traces {outcome.trace} and {second_run.trace}")
        outcome = replace(outcome, broken=(*outcome.broken, difference))
    return outcome


def _begin(world: StormWorld) -> None:
    """Without faults: gateways connect, devices connect, steady ones subscribe, and their interests spread."""
    if not world.run_until(MEETING, lambda: world.is_connected):
        raise StormUnsettled("the gateways did not meet, and nothing was in their way")
    steady = [one for one in world.devices.values() if one.device.kind in KEEPERS]
    for one in steady:
        one.connect()
    world.run_for(SECOND // 2)
    world.run_until(KNOWN, lambda: all(one.is_ready for one in steady))  # disks may be slow that are asked for sessions
    for one in steady:
        one.resubscribe()
    world.run_for(KNOWN)
    for one in steady:
        if one.subscribed != one.wanted:
            raise StormUnsettled(f"{one.name} was not granted what it asked for")


def _storm(world: StormWorld, scenario: StormScenario) -> None:
    begin = world.simulation.now
    world.slow_down()
    for fault in scenario.faults:
        strike = partial(fault.strike, world)
        if fault.DISTURBS:
            world.schedule_fault(begin + fault.at, fault.KIND, fault.where, fault.lasts, strike)
        else:
            world.simulation.at(begin + fault.at, strike)
    for one in world.devices.values():
        world.after(one.chance.randrange(SECOND // 2), one.begin)
    world.run_for(scenario.length)


def _settle(world: StormWorld) -> None:
    """Without faults again, until every acknowledged message has been delivered."""
    world.end_faults()

    def is_at_rest() -> bool:
        if world.simulation.steps > STEPS_MAX:
            raise StormUnsettled(f"more than {STEPS_MAX:,} things happened")
        return all(one.is_settled for one in world.devices.values()) and not any(
            gateway.ledger.queued for gateway in world.gateways
        )

    is_resting = world.run_until(REST_MAX, lambda: is_at_rest() and world.is_connected, SECOND)
    if is_resting:
        homes = sorted({device.home.name for device in world.devices.values()})
        for kind in ("late", "again"):  # the second time, other gateways send nothing that has not changed
            world.add_latecomers(homes[:LATECOMERS], kind)
            world.run_for(RECALLED)
        for _ in range(2):  # a gateway without the time learns by the first how late it is for the one that keeps it
            world.clear_elsewhere()
            world.run_for(RECALLED)
        world.add_last_comers(homes[-LATECOMERS:])
        world.run_for(RECALLED)
        is_resting = world.run_until(REST_MAX, is_at_rest, SECOND)
    if is_resting and world.is_connected:
        world.ask(homes[0])
    world.forget_clearings()
    if not is_resting:
        unsettled = [one.name for one in world.devices.values() if not one.is_settled]
        queued = {gateway.name: gateway.ledger.queued for gateway in world.gateways if gateway.ledger.queued}
        links = "up" if world.is_connected else "not up"
        raise StormUnsettled(
            f"after {REST_MAX // SECOND} s: links {links}, unsettled {unsettled}, copies open {queued}"
        )


def _trace(world: StormWorld) -> str:
    simulation = world.simulation
    digest = sha256(f"{simulation.now} {simulation.steps} {simulation.random.getrandbits(64)}".encode())
    for gateway in world.gateways:
        disk = world.store(gateway.name).disk
        digest.update(f" {gateway.name} {gateway.digest} {disk.bytes_written} {disk.syncs}".encode())
    for name, road in world.roads.items():
        digest.update(f" {name} {road.dials} {road.bytes}".encode())
    return digest.hexdigest()


def shrink(outcome: StormOutcome, tried: Callable[[int], None] = lambda count: None) -> StormOutcome:
    """Return the outcome of the smallest storm found that still breaks one of the promises broken in *outcome*.

    Parts are left out one after the other, the larger first, until each is necessary. *tried* is called with the number
    of storms run so far.
    """
    promises = set(outcome.promises)
    count = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(outcome.scenario):
            count += 1
            tried(count)
            attempt = live(smaller)
            if promises & set(attempt.promises):
                outcome, is_smaller = attempt, True
                break
    return outcome


def _smaller(scenario: StormScenario) -> Iterator[StormScenario]:
    """Yield the scenario without the second half of its faults, the first half, each fault, and then each device."""
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
