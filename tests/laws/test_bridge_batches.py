"""Bridges that carry messages together: whatever dies, and whenever, nothing is lost at QoS 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from edgebridge.bridge import batching
from edgebridge.bridge.batching import decode_envelope
from edgebridge.bridge.json_cbor import PayloadFormat
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.wire.dialect import V5, V311, Dialect
from edgelab.simworld.broker import SimulatedBroker

from ..support.bridge_world import World
from .test_bridge_laws import FAULTS, KILLS, strike

RULES = ("out/# out 1 batch_messages=3 batch_s=2 batch_topic=together", "# in 1 unbatch=true batch_topic=apart")
OUT = [("out/a", b"%d" % number, number % 5 > 0) for number in range(14)]
IN = [(f"in/{number % 3}", b"i%d" % number, 1) for number in range(14)]


@pytest.fixture(autouse=True)
def _little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages in a turn."""
    monkeypatch.setattr(batching, "BYTES_PER_TURN", 2 * batching.ENTRY_BYTES)


def play(dialect: Dialect, fail: Callable[[World, int], None], inflight_max: int = 8) -> World:
    """Messages wait on both sides; the bridge comes, and *fail* is asked at each step what goes wrong."""
    rules = [parse_rule(rule) for rule in RULES]
    world = World(
        BridgeOptions("x", "uplink", rules, dialect, identity="here", inflight_max=inflight_max, receive_maximum=4)
    )
    world.sleeper(world.here, "in/#")
    world.sleeper(world.there, "together", "out/#")
    world.begin()
    world.quiet(2)
    world.pause()
    world.publish(world.here, OUT)
    world.publish(
        world.there,
        [("apart", sealed(IN[:9], PayloadFormat.CBOR), 1), ("apart", sealed(IN[9:], PayloadFormat.JSON), 1)],
    )
    world.steps = 0
    world.fail = lambda step: fail(world, step)
    world.go_on()
    world.quiet()
    return world


def sealed(messages: list[tuple[str, bytes, int]], form: PayloadFormat) -> bytes:
    return batching.encode_envelope(
        form, 0, [batching.encode_entry(form, 0, topic, payload) for topic, payload, _ in messages]
    )


def complaints(world: World) -> list[str]:
    sent_on = Counter(
        (one.topic, one.payload) for payload in batches(world, world.there) for one in decode_envelope(payload).entries
    )
    found = [f"there: {payload!r} is lost" for topic, payload, qos in OUT if qos and not sent_on[topic, payload]]
    came_in = world.read(world.here)
    found += [f"here: {payload!r} is lost" for topic, payload, _ in IN if not came_in[topic, payload]]
    known = {(topic, payload) for topic, payload, _ in [*OUT, *IN]}
    return found + [f"{one!r} does not belong here" for one in [*sent_on, *came_in] if one not in known]


def batches(world: World, broker: SimulatedBroker) -> list[bytes]:
    """What waits there, in its order."""
    read = world.read(broker).items()
    return [payload for (topic, payload), count in read for _ in range(count) if topic == "together"]


@pytest.mark.parametrize("spoken", [V5, V311], ids=["5", "3.1.1"])
@pytest.mark.parametrize(("inflight_max", "sizes"), [(8, [3, 3, 3, 2]), (2, [2] * 5 + [1])])
def test_all_arrives_once_and_in_order_if_nothing_fails(spoken: Dialect, inflight_max: int, sizes: list[int]) -> None:
    world = play(spoken, lambda world, step: None, inflight_max)
    assert not complaints(world)
    readings = [decode_envelope(payload).entries for payload in batches(world, world.there)]
    assert [len(one) for one in readings] == sizes, "full, or at the end of its time, or when nothing more can come"
    kept = [(topic, payload) for topic, payload, qos in OUT if qos]  # at QoS 0 nobody waited for the bridge
    assert [(one.topic, one.payload) for some in readings for one in some] == kept
    assert world.read(world.here) == Counter((topic, payload) for topic, payload, _ in IN)
    assert not world.bridge.outbound_counters.dropped


def test_many_faults_at_any_steps(seed: int) -> None:
    """EDGEBROKER_BRIDGE_KILLS=1000 makes it 1,000 runs with up to six faults each."""
    for number in range(seed, seed + KILLS // 2):
        chance = Random(number)
        plan = {chance.randrange(1, 100): chance.choice(list(FAULTS)) for _ in range(chance.randint(2, 6))}
        world = play(chance.choice([V5, V311]), lambda world, step, plan=plan: strike(world, step, plan))
        assert not complaints(world), f"seed {number}: {plan}: {complaints(world)}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_every_step(fault: str) -> None:
    steps = play(V5, lambda world, step: None).steps
    for at in range(1, steps + 1):
        world = play(V5, lambda world, step, at=at: FAULTS[fault](world) if step == at else None)
        assert not complaints(world), (fault, at, complaints(world))
