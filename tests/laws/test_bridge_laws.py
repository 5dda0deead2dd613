"""Bridges: whatever dies, and whenever, nothing is lost at QoS 1 and 2, and nothing is doubled at QoS 2."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from edgebridge.bridge.budget import parse_span
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.shaper import UNSHAPED, ShaperOptions
from edgebridge.frontend.bridge_session import BridgeQueueBounds, BridgeSession
from edgebridge.session.retained import RetainedStore
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebroker.instants import SECOND, Instant
from edgebroker.names import ClientId
from edgebroker.publication import Publication

from ..support.bridge_world import World

KILLS = int(os.environ.get("EDGEBROKER_BRIDGE_KILLS", "40"))
RULES = ("out/# out 2", "in/# in 2", "both/# both 2")
OUT = [("out/a", b"1", 1), ("out/a", b"2", 2), ("both/a", b"3", 2)]
LATE = [("out/b", b"%d" % number, 1 + number % 2) for number in range(10, 16)]
IN = [("in/a", b"4", 1), ("in/a", b"5", 2), ("both/b", b"6", 2)]
SLOW = ShaperOptions(rate_bytes_s=100, schedule=(parse_span("00:00-00:10 closed"),))
"""Messages wait for their turn, and for each greeting; and there are hours in which nobody is dialled."""
TWICE = {b"1", b"4", b"10", b"12", b"14"}
"""Messages of QoS 1: they may come more than once."""
QUEUE_BOUNDS = BridgeQueueBounds(age_us=3_600 * SECOND, is_live_first=True)
FAULTS: dict[str, Callable[[World], None]] = {
    "power here": lambda world: world.power_here(),
    "killed here": lambda world: world.power_here(is_power_cut=False),
    "power there": lambda world: world.power_there(),
    "killed there": lambda world: world.power_there(is_power_cut=False),
    "cut": lambda world: world.cut(),
}
CHANGES: dict[str, Callable[[World], None]] = {
    "other rules": lambda world: world.change(rules=[*world.options.rules[1:], world.options.rules[0]]),
    "another rule": lambda world: world.change(rules=[*world.options.rules, parse_rule("more/# both 1")]),
    "fewer in flight": lambda world: world.change(inflight_max=1),
}
"""What an operator may do: nothing is lost by it, and nothing doubled."""
STRANGERS: dict[str, Callable[[World], None]] = {
    "forgets": lambda world: world.forget(),
    "another name": lambda world: world.change(client_id="second" if world.options.client_id == "uplink" else "uplink"),
}
"""The remote does not know us any more: what it had for us is lost with the session, and what we have not finished it
gets again."""


def options(dialect: Dialect, *rules: str, **more: Any) -> BridgeOptions:
    return BridgeOptions("x", "uplink", [parse_rule(rule) for rule in rules], dialect, identity="here", **more)


def play(
    dialect: Dialect,
    fail: Callable[[World, int], None],
    bounds: BridgeQueueBounds | None = None,
    late: Sequence[tuple[str, bytes, int]] = (),
    **more: Any,
) -> World:
    """Messages wait on both sides; the bridge comes, and *fail* is asked at each step what goes wrong.

    *late* is published here then; of what was acknowledged, `world.sure` has the payloads.
    """
    world = World(options(dialect, *RULES, **more), bounds=bounds)
    world.sleeper(world.here, "in/#", "both/#")
    world.sleeper(world.there, "out/#", "both/#")
    world.begin()
    world.quiet(2)  # both know the bridge
    world.pause()
    world.publish(world.here, OUT)
    world.publish(world.there, IN)
    world.steps = 0
    world.fail = lambda step: fail(world, step)
    world.go_on()
    world.publish_late(late)
    world.quiet()
    return world


def complaints(world: World, late: Sequence[tuple[str, bytes, int]] = ()) -> list[str]:
    found = []
    for name, broker, sent, own in (
        ("here", world.here, IN, [OUT[2]]),
        ("there", world.there, [*OUT, *(one for one in late if one[1] in world.sure)], [IN[2]]),
    ):
        read = world.read(broker)
        for topic, payload, qos in late:
            if payload not in world.sure and (qos == 1 or read[topic, payload] <= 1):
                del read[topic, payload]  # its publisher does not know
        for topic, payload, _ in [*sent, *own]:
            count = read.pop((topic, payload), 0)
            if not count:
                found.append(f"{name}: {payload!r} is lost")
            elif count > 1 and payload not in TWICE:
                found.append(f"{name}: {payload!r} came {count} times")
        found += [f"{name}: {one!r} does not belong here" for one in read]
    return found


@pytest.fixture(scope="module", params=[V5, V311], ids=["5", "3.1.1"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


def test_all_arrives_once_if_nothing_fails(dialect: Dialect) -> None:
    world = play(dialect, lambda world, step: None)
    assert not complaints(world)
    assert world.steps > 40
    assert Counter(world.read(world.here)).most_common(1)[0][1] == 1


def test_many_faults_at_any_steps(seed: int) -> None:
    """EDGEBROKER_BRIDGE_KILLS=1000 makes it 1,000 runs with up to six faults each."""
    for number in range(seed, seed + KILLS):
        chance = Random(number)
        dialect, shaper_options = chance.choice([V5, V311]), chance.choice([UNSHAPED, SLOW])
        faults = [*FAULTS, *CHANGES, *(["closed hours"] if shaper_options is SLOW else [])]
        plan = {chance.randrange(1, 160): chance.choice(faults) for _ in range(chance.randint(2, 6))}
        world = play(dialect, lambda world, step, plan=plan: strike(world, step, plan), shaper_options=shaper_options)
        assert not complaints(world), f"seed {number}: {plan}: {complaints(world)}"


def test_many_faults_while_live_messages_overtake_the_backlog(seed: int) -> None:
    """One message is on its way at a time, so what waits and what comes are in each other's way; none gets too old."""
    for number in range(seed, seed + KILLS // 4):
        chance = Random(number)
        plan = {chance.randrange(1, 200): chance.choice(list(FAULTS)) for _ in range(chance.randint(2, 6))}
        fail = lambda world, step, plan=plan: strike(world, step, plan)  # noqa: E731
        world = play(chance.choice([V5, V311]), fail, QUEUE_BOUNDS, LATE, inflight_max=1)
        assert not complaints(world, LATE), f"seed {number}: {plan}: {complaints(world, LATE)}"


def test_what_gets_too_old_between_faults_is_dropped_for_good(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message arrives or was dropped, none both, whatever became of the record that it was dropped."""
    dropped: set[bytes] = set()

    def asked_when_too_old(retained: RetainedStore, publication: Publication) -> bool:
        dropped.add(publication.payload)
        return False

    def asked_before_all_is_told(memory: BridgeSession, now: Instant, *more: Any) -> None:
        before = set(dropped)
        tell_all(memory, now, *more)
        dropped.intersection_update(before)

    tell_all = BridgeSession.begin_retained_sync
    monkeypatch.setattr(RetainedStore, "holds", asked_when_too_old)
    monkeypatch.setattr(BridgeSession, "begin_retained_sync", asked_before_all_is_told)
    monkeypatch.setattr(BridgeSession, "waiting_retained", lambda memory: frozenset())  # it asks of all that waits
    for number in range(seed, seed + KILLS // 4):
        chance = Random(number)
        dropped.clear()
        plan = {chance.randrange(1, 60): chance.choice(list(FAULTS)) for _ in range(chance.randint(2, 6))}
        fail = lambda world, step, plan=plan: strike(world, step, plan)  # noqa: E731
        world = play(chance.choice([V5, V311]), fail, BridgeQueueBounds(age_us=7 * SECOND), inflight_max=1)
        read = world.read(world.there)
        for topic, payload, _ in OUT:
            count = read.get((topic, payload), 0)
            assert (count > 0) != (payload in dropped), f"seed {number}: {plan}: {payload!r} {count} {dropped}"
            assert count < 2 or payload in TWICE, f"seed {number}: {plan}: {payload!r} {count}"


def test_a_remote_that_does_not_know_us_any_more_gets_all_of_ours_all_the_same(seed: int) -> None:
    for number in range(seed, seed + KILLS // 2):
        chance = Random(number)
        plan = {chance.randrange(1, 90): chance.choice([*FAULTS, *STRANGERS, *STRANGERS]) for _ in range(6)}
        world = play(chance.choice([V5, V311]), lambda world, step, plan=plan: strike(world, step, plan))
        read = world.read(world.there)
        assert {(topic, payload) for topic, payload, _ in [*OUT, IN[2]]} == read.keys(), (
            f"seed {number}: {plan}: {read}"
        )
        here = {(topic, payload) for topic, payload, _ in [*IN, OUT[2]]}
        assert world.read(world.here).keys() <= here, f"seed {number}: {plan}"
        world.fail = lambda step: None
        STRANGERS["another name"](world)  # also one under which handshakes were begun, and not ended
        world.quiet(10)
        for broker, client in ((world.here, world.options.local_client_id), (world.there, world.options.client_id)):
            broker.frontend.connect_handler.sessions[ClientId(client)].inflight.last_id = 0  # 65,535 messages later
        world.publish(world.here, [("out/z", b"%d" % one, 2) for one in range(20, 28)])
        world.publish(world.there, [("in/z", b"%d" % one, 2) for one in range(20, 28)])
        world.quiet(10)
        for topic, broker in (("out/z", world.there), ("in/z", world.here)):
            came = [world.read(broker)[topic, b"%d" % one] for one in range(20, 28)]
            assert came == [1] * 8, f"seed {number}: {plan}: {topic} came {came} times"


def strike(world: World, step: int, plan: dict[int, str]) -> None:
    if step in plan:
        {**FAULTS, **CHANGES, **STRANGERS}.get(plan[step], World.hours)(world)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_every_step(dialect: Dialect, fault: str) -> None:
    steps = play(dialect, lambda world, step: None).steps
    for at in range(1, steps + 1):
        world = play(dialect, lambda world, step, at=at: FAULTS[fault](world) if step == at else None)
        assert not complaints(world), (fault, at, complaints(world))
