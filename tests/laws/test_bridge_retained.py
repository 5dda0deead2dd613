"""Bridges: a remote that is new gets all that is retained here, also if the line breaks or we die while it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from edgebridge.bridge.endpoints import BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.frontend import retained_replay
from edgebridge.frontend.bridge_session import BridgeQueueBounds
from edgebridge.frontend.retained_replay import ReplayQueue
from edgebridge.session.session import BridgeSyncState
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, Connect, Publish, Subscribe, SubscriptionOption
from edgebridge.wire.reasons import ReasonCode
from edgebroker.limits import MIB
from edgebroker.names import ClientId
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient

from ..support.bridge_world import World

TOPICS = 2_000


def with_retained(rule: str, qos: int, *, retained_again: bool = True) -> World:
    world = World(
        BridgeOptions("x", "uplink", [parse_rule(rule)], V5, identity="here", retained_again=retained_again),
        bounds=BridgeQueueBounds(messages_max=1_000),
    )
    for first in range(0, TOPICS, 500):
        batch = [(f"out/{number}", b"r", qos) for number in range(first, first + 500)]
        world.publish(world.here, batch, retain=True)
    return world


def has_all(world: World) -> bool:
    return all(world.there.frontend.retained.find(f"out/{number}") for number in range(TOPICS))


@pytest.mark.parametrize("qos", [0, 1])
def test_a_remote_that_comes_late_gets_all_that_is_retained(qos: int) -> None:
    """More than the queue of a bridge holds, although its rules were there before the remote."""
    world = with_retained("out/# out 1", qos)
    world.fail = lambda step: world.cut()
    world.begin()
    world.quiet(5)
    world.fail = lambda step: None
    world.quiet()
    assert has_all(world)


@pytest.mark.parametrize("fault", [World.cut, World.power_here], ids=["line", "power"])
def test_what_is_retained_goes_on_after_a_fault(fault: Callable[[World], None]) -> None:
    world = with_retained("out/# out 1", 1)
    faults: list[int] = []

    def fail(step: int) -> None:
        if not faults and world.bridge.outbound_counters.messages >= 300:
            faults.append(step)
            fault(world)

    world.fail = fail
    world.begin()
    world.quiet()
    assert faults
    assert has_all(world)


def test_what_was_retained_while_a_remote_was_never_there_comes_once() -> None:
    world = World(BridgeOptions("x", "uplink", [parse_rule("out/# out 2")], V5, identity="here"))
    world.sleeper(world.there, "#")
    world.fail = lambda step: world.cut()
    world.begin()
    world.quiet(1)
    world.publish(world.here, [(f"out/{number}", b"r", 2) for number in range(100)], retain=True)
    world.publish(world.here, [("out/7", b"later", 2), ("out/8", b"not retained", 2)])
    world.quiet(5)
    world.fail = lambda step: None
    world.quiet()
    assert world.read(world.there) == Counter(
        [*((f"out/{number}", b"r") for number in range(100)), ("out/7", b"later"), ("out/8", b"not retained")]
    )


def test_a_remote_that_was_told_is_not_told_again_after_a_crash() -> None:
    world = with_retained("out/# out 1", 1, retained_again=False)
    world.begin()
    world.quiet()
    before = world.bridge.outbound_counters.messages
    world.power_here()
    world.quiet()
    assert has_all(world)
    assert (before >= TOPICS, world.bridge.outbound_counters.messages) == (True, 0)


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
@pytest.mark.parametrize("forgets", [True, False], ids=["forgot", "knows us"])
@pytest.mark.parametrize("fault", [World.cut, World.power_here], ids=["line", "power"])
def test_a_connack_that_is_lost_hides_nothing(dialect: Dialect, forgets: bool, fault: Callable[[World], None]) -> None:
    """The next one says that there is a session: perhaps it is that which began with the one that was lost."""
    rules = [parse_rule("out/# out 1")]
    world = World(BridgeOptions("x", "uplink", rules, dialect, identity="here", retained_again=False))
    retained = [(f"out/{number}", b"r", 1) for number in range(20)]
    world.publish(world.here, retained, retain=True)
    world.begin()
    world.quiet()
    assert world.bridge.outbound_counters.messages == 20
    if forgets:
        for topic, _, _ in retained:
            world.there.frontend.retained.clear(topic)
        world.forget()
    else:
        world.cut()

    def loses_connack(step: int) -> None:
        if world.bridge.state is BridgeState.GREETING and world.there.frontend.connect_handler.sessions.get(
            ClientId("uplink")
        ):
            world.fail = lambda step: None
            fault(world)

    world.fail = loses_connack
    before = world.bridge
    world.quiet()
    assert (world.bridge.connects, world.bridge.capabilities.session_present) == (1 + (world.bridge is before), True)
    told = world.bridge.outbound_counters.messages
    assert told == (40 if world.bridge is before else 20), "it may have forgotten us"
    assert all(world.there.frontend.retained.find(topic) for topic, _, _ in retained)
    world.cut()
    world.quiet()
    assert world.bridge.outbound_counters.messages == told, "and now it is known that it has not"


def test_a_remote_that_refuses_us_or_is_away_is_not_told_again_after_a_crash() -> None:
    world = with_retained("out/# out 1", 1, retained_again=False)
    world.begin()
    world.quiet()

    def refuses(step: int) -> None:
        if world.bridge.state is BridgeState.GREETING:
            world.fail = lambda step: None
            busy = ConnAck(reason=ReasonCode.SERVER_BUSY)
            world.bridge.receive_remote(encode_packet(busy, V5), world.simulation.now)

    world.cut()
    world.fail = refuses
    world.quiet(2)
    assert world.bridge.reason == "the remote refuses us: server busy (0x89)"
    world.pause()
    world.quiet(2)
    world.power_here()
    world.quiet()
    assert (world.bridge.connects, world.bridge.outbound_counters.messages) == (1, 0)


def test_what_waits_for_a_remote_that_forgot_us_is_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_replay, "QUEUED_AT_ONCE", 100)
    count = 250
    bounds = BridgeQueueBounds(messages_max=10_000, bytes_max=MIB * 10)
    world = World(BridgeOptions("x", "uplink", [parse_rule("out/# out 2")], V5, identity="here"), bounds=bounds)
    world.begin()
    world.quiet(2)
    world.pause()
    world.publish(world.here, [(f"out/{number}", b"r", 2) for number in range(count)], retain=True)
    world.forget()
    looks: list[int] = []

    def look(replays: ReplayQueue) -> None:
        before = len(replays.sent_topics or ())
        was(replays)
        looks.append(len(replays.sent_topics or ()) - before)

    was = ReplayQueue.scan_queued
    monkeypatch.setattr(ReplayQueue, "scan_queued", look)
    world.go_on()
    world.quiet()
    assert looks == [100, 100, 50]
    assert world.memory.sync_state.has_sent_retained
    assert all(world.there.frontend.retained.find(f"out/{number}") for number in range(count))
    assert world.bridge.outbound_counters.messages == count, "once"


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_published_retained_while_a_remote_is_told_comes_once(qos: int) -> None:
    world = with_retained("out/# out 1", 1)
    writer = SimulatedClient("writer", world.here)
    writer.send(Connect("writer", dialect=V5))
    reader = SimulatedClient("reader", world.there)
    reader.send(Connect("reader", dialect=V5))
    reader.send(Subscribe(1, [SubscriptionOption("#", 0)]))
    late = [f"out/{number}" for number in range(0, TOPICS, 100)]

    def publish(step: int) -> None:
        if world.bridge.outbound_counters.messages >= 300:
            world.fail = lambda step: None
            for number, topic in enumerate(late, 1):
                writer.send(Publish(topic, b"later", qos, True, packet_id=number * bool(qos)))

    world.fail = publish
    world.begin()
    world.quiet()
    got = [(packet.topic, bytes(packet.payload)) for packet in reader.receive() if isinstance(packet, Publish)]
    assert {topic for topic, _ in got} == {f"out/{number}" for number in range(TOPICS)}
    assert Counter(topic for topic, payload in got if payload == b"later") == Counter(late)
    assert any((topic, b"r") not in got for topic in late), "some of it was still to be told"


@pytest.mark.parametrize("where", ["", " where v > 1"])
def test_what_is_retained_comes_once_by_the_first_rule_that_matches(where: str) -> None:
    rules = [parse_rule('out/x/# out 2 "" r/'), parse_rule("out/# out 2" + where)]
    world = World(BridgeOptions("x", "uplink", rules, V5, identity="here"))
    world.sleeper(world.there, "#")
    world.publish(world.here, [(topic, b'{"v":2}', 2) for topic in ("out/x/1", "out/2")], retain=True)
    world.begin()
    world.quiet()
    assert world.read(world.there) == {("r/out/x/1", b'{"v":2}'): 1, ("out/2", b'{"v":2}'): 1}


def test_a_rule_that_is_added_gives_nothing_a_second_name() -> None:
    first, added = parse_rule('out/x/# out 2 "" r/'), parse_rule("out/# out 2 where v > 1")
    world = World(BridgeOptions("x", "uplink", [first], V5, identity="here"))
    world.sleeper(world.there, "#")
    world.publish(world.here, [(topic, b'{"v":2}', 2) for topic in ("out/x/1", "out/2")], retain=True)
    world.begin()
    world.quiet()
    world.pause()
    world.options = BridgeOptions("x", "uplink", [first, added], V5, identity="here")
    world.begin()
    world.quiet()
    assert {topic for topic, _ in world.read(world.there)} == {"r/out/x/1", "out/2"}


@pytest.mark.parametrize(("condition", "stays"), [("temp > 30", True), ("temp > 30 OR $size = 0", False)])
def test_a_condition_says_whether_the_remote_hears_that_nothing_is_retained(condition: str, stays: bool) -> None:
    rules = [parse_rule(f"out/# both 1 where {condition}")]
    world = World(BridgeOptions("x", "uplink", rules, V5, identity="here"))
    world.begin()
    world.quiet(2)
    world.publish(world.here, [("out/1", b'{"temp": 31}', 1)], retain=True)
    world.quiet(2)
    assert world.there.frontend.retained.find("out/1")
    world.publish(world.here, [("out/1", b"", 1)], retain=True)
    world.quiet(2)
    assert bool(world.there.frontend.retained.find("out/1")) is stays


BOTH, OUT, IN = "t/# both 1", "t/# out 1", "t/# in 1"
DIALECTS = pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])


def between(rule: str, dialect: Dialect = V5, gateway: str = "", bounds: BridgeQueueBounds | None = None) -> World:
    """A bridge that is open. *gateway*: which one the remote says it is; empty: it is another broker."""
    options = BridgeOptions("x", "uplink", [parse_rule(rule)], dialect, identity="here")
    world = World(options, bounds=bounds, gateway=gateway)
    world.begin()
    world.quiet(2)
    assert world.bridge.state is BridgeState.OPEN
    return world


def retained(broker: SimulatedBroker, topics: Iterable[str]) -> dict[str, bytes]:
    """What is retained there under *topics*."""
    found = {topic: broker.frontend.retained.find(topic) for topic in topics}
    return {topic: bytes(one.payload) for topic, one in found.items() if one is not None}


@DIALECTS
@pytest.mark.parametrize("gateway", ["", "there"], ids=["broker", "gateway"])
@pytest.mark.parametrize("rule", [OUT, BOTH])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_after_a_pause_both_have_the_same_whatever_was_dropped(
    dialect: Dialect, gateway: str, rule: str, qos: int, policy: str
) -> None:
    """A full queue, and QoS 0, of which nothing waits; with what is cleared meanwhile."""
    world = between(rule, dialect, gateway, BridgeQueueBounds(messages_max=3, policy=policy))
    topics = [f"t/{number}" for number in range(20)]
    world.publish(world.here, [(topic, b"before", 1) for topic in topics[:10]], retain=True)
    world.quiet(5)
    assert len(retained(world.there, topics)) == 10
    world.pause()
    later = [(topic, b"later" if number % 3 else b"", qos) for number, topic in enumerate(topics)]
    world.publish(world.here, later, retain=True)
    world.go_on()
    world.quiet()
    expected = {topic: payload for topic, payload, _ in later if payload}
    assert retained(world.here, topics) == retained(world.there, topics) == expected


def test_what_the_queue_dropped_is_known_after_a_crash() -> None:
    world = between(OUT, gateway="there", bounds=BridgeQueueBounds(messages_max=3))
    topics = [f"t/{number}" for number in range(20)]
    world.pause()
    world.publish(world.here, [(topic, b"1", 1) for topic in topics], retain=True)
    world.power_here()
    world.quiet()
    assert len(retained(world.there, topics)) == 20


@pytest.mark.parametrize("gateway", ["", "there"], ids=["broker", "gateway"])
@pytest.mark.parametrize("rule", [OUT, BOTH])
@pytest.mark.parametrize("restarts", [1, 3])
def test_what_was_cleared_and_the_queue_dropped_is_cleared_there_after_a_crash(
    gateway: str, rule: str, restarts: int
) -> None:
    """Nothing here names those topics any more, but for the journal; of t/0 something is retained again."""
    world = between(rule, gateway=gateway, bounds=BridgeQueueBounds(messages_max=3))
    topics = [f"t/{number}" for number in range(20)]
    world.publish(world.here, [(topic, b"before", 1) for topic in topics[:10]], retain=True)
    world.publish(world.here, [(topic, b"before", 1) for topic in topics[10:]], retain=True)
    world.quiet(5)
    assert len(retained(world.there, topics)) == 20
    world.pause()
    world.publish(world.here, [(topic, b"", 1) for topic in topics], retain=True)
    world.publish(world.here, [("t/0", b"again", 1)], retain=True)
    for restart in range(restarts):
        if restart:
            world.here.frontend.journal.storage.request_snapshot()
            world.fail = lambda step: world.cut()
            world.quiet(5)
        world.power_here()
    world.fail = lambda step: None
    world.quiet()
    assert retained(world.there, topics) == {"t/0": b"again"}
    state = world.here.frontend.connect_handler.sessions[ClientId(world.options.local_client_id)]
    assert (state.bridge_sync, state.uncleared) == (BridgeSyncState.SYNCHRONISED, set())
    world.publish(world.there, [("t/5", b"theirs", 1)], retain=True)
    world.power_here()
    world.quiet()
    assert retained(world.there, ["t/5"]) == {"t/5": b"theirs"}, "it is cleared once"


@pytest.mark.parametrize("rule", [IN, BOTH])
def test_what_a_remote_retained_and_lost_on_the_way_comes_with_the_next_connection(rule: str) -> None:
    world = between(rule)
    world.publish(world.there, [("t/1", b"before", 1)], retain=True)
    world.quiet(2)
    world.pause()
    world.publish(world.there, [("t/1", b"later", 0), ("t/2", b"new", 0)], retain=True)
    world.go_on()
    world.quiet()
    assert retained(world.here, ["t/1", "t/2"]) == {"t/1": b"later", "t/2": b"new"}


@DIALECTS
def test_what_changed_here_is_not_replaced_by_what_was_there_before(dialect: Dialect) -> None:
    """Both tell each other: without an order each would end with what the other had."""
    world = between(BOTH, dialect)
    topics = [f"t/{number}" for number in range(10)]
    world.publish(world.here, [(topic, b"before", 1) for topic in topics], retain=True)
    world.quiet(5)
    world.pause()
    world.publish(world.here, [(topic, b"later", 1) for topic in topics[:5]], retain=True)
    world.publish(world.there, [(topic, b"theirs", 1) for topic in topics[5:]], retain=True)
    world.go_on()
    world.quiet()
    expected = {topic: b"later" if number < 5 else b"theirs" for number, topic in enumerate(topics)}
    assert retained(world.here, topics) == retained(world.there, topics) == expected


def test_a_broker_is_told_again_what_it_has_lost_and_a_gateway_nothing_that_it_has() -> None:
    told = {}
    for gateway in ("", "there"):
        world = between(OUT, gateway=gateway)
        world.publish(world.here, [("t/1", b"1", 1), ("t/2", b"2", 0)], retain=True)
        world.quiet(2)
        before = world.bridge.outbound_counters.messages
        world.cut()
        world.quiet(5)
        told[gateway] = world.bridge.outbound_counters.messages - before
    assert told == {"": 2, "there": 1}, "at QoS 0 nobody knows whether it arrived"
