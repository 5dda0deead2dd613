"""Messages that wait for a remote which is away: age, order, and the refusal of publishers when the queue is full."""

from __future__ import annotations

from typing import Any

from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.shaper import ShaperOptions
from edgebridge.frontend.bridge_session import BridgeQueueBounds, queue_report
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PubAck, Publish
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgelab.simworld.client import SimulatedClient

from ..support.bridge_world import World


def away(bounds: BridgeQueueBounds, rule: str = "# out 2", **more: Any) -> World:
    """A bridge that has met its remote, and is paused."""
    world = World(BridgeOptions("x", "uplink", [parse_rule(rule)], V5, identity="here", **more), bounds=bounds)
    world.sleeper(world.there, "#")
    world.begin()
    world.quiet(2)
    world.pause()
    return world


def say(world: World, *texts: str, qos: int = 1, **more: Any) -> None:
    """Publish `TOPIC PAYLOAD` here."""
    world.publish(world.here, [(topic, payload.encode(), qos) for topic, payload in map(str.split, texts)], **more)


def arrived(world: World) -> list[str]:
    session = world.there.frontend.connect_handler.sessions[ClientId("sleeper")]
    entries = [*session.inflight, *session.outbox]
    return [f"{entry.publication.topic} {bytes(entry.publication.payload).decode()}" for entry in entries]


def test_what_waits_for_too_long_is_dropped_and_a_restart_does_not_make_it_younger() -> None:
    world = away(BridgeQueueBounds(age_us=60 * SECOND))
    say(world, "a 1", "a 2", qos=2)
    world.quiet(30)
    world.power_here()
    world.pause()
    say(world, "a 3", "b 1")
    assert world.memory.described(world.simulation.now)["messages"] == 4
    assert 30 < world.memory.described(world.simulation.now)["oldest_s"] < 40
    world.quiet(30)  # 60 s and more since the first two
    found = world.memory.described(world.simulation.now)
    assert (found["messages"], found["dropped"]) == (2, {"too_old": 2})
    assert world.here.ledger.dropped == {Cause.TOO_OLD: 2}
    world.power_here()
    world.quiet(10)
    assert arrived(world) == ["a 3", "b 1"]
    empty = {"messages": 0, "bytes": 0, "paged": 0, "paged_bytes": 0, "oldest_s": None, "dropped": {}}
    assert world.memory.described(world.simulation.now) == empty


def test_nothing_too_old_is_sent_even_before_the_queue_was_looked_at() -> None:
    world = away(BridgeQueueBounds())
    say(world, "a 1")
    world.quiet(30)
    say(world, "a 2")
    world.bounds = BridgeQueueBounds(age_us=30 * SECOND)
    world.go_on()
    world.quiet(2)
    assert arrived(world) == ["a 2"]


def test_what_becomes_too_old_while_it_waits_for_its_turn_is_not_sent_either() -> None:
    world = away(BridgeQueueBounds(age_us=30 * SECOND), shaper_options=ShaperOptions(rate_bytes_s=20))
    say(world, *(f"a {number}" for number in range(60)), qos=2)
    world.go_on()
    world.quiet(100)
    sent, dropped = len(arrived(world)), world.bridge.outbound_counters.dropped["too_old"]
    assert sent + dropped == 60
    assert 10 < sent < 50
    assert arrived(world) == [f"a {number}" for number in range(sent)]
    assert world.memory.described(world.simulation.now)["dropped"] == {"refused": dropped}


def test_what_waited_for_its_turn_when_the_line_broke_gets_too_old_like_everything_else() -> None:
    world = away(BridgeQueueBounds(age_us=30 * SECOND), shaper_options=ShaperOptions(rate_bytes_s=20))
    say(world, *(f"a {number}" for number in range(60)), qos=2)
    world.go_on()
    world.quiet(5)
    world.cut()
    world.pause()
    sent = len(arrived(world))
    assert sent < 30
    world.quiet(60)
    world.go_on()
    world.quiet(60)
    assert len(arrived(world)) - sent <= 1, "but for one that was on its way"
    assert world.bridge.outbound_counters.dropped["too_old"] == 60 - len(arrived(world))


def test_what_is_on_its_way_is_finished_however_old_it_is() -> None:
    world = away(BridgeQueueBounds(age_us=10 * SECOND))
    say(world, "a 1", qos=2)
    world.fail = lambda step: world.cut() if world.memory.session.inflight else None  # type: ignore[union-attr]
    world.go_on()
    world.quiet(1)
    world.pause()
    world.fail = lambda step: None
    world.quiet(60)
    assert world.memory.described(world.simulation.now)["oldest_s"] > 60
    world.go_on()
    world.quiet(2)
    assert arrived(world) == ["a 1"]


def test_what_is_retained_waits_on_as_long_as_it_is_what_its_topic_has() -> None:
    world = away(BridgeQueueBounds(age_us=60 * SECOND))
    say(world, "door open", "lamp on", retain=True)
    say(world, "a 1")
    world.quiet(70)
    found = world.memory.described(world.simulation.now)
    assert (found["messages"], found["dropped"]) == (2, {"too_old": 1})
    say(world, "door shut", retain=True)
    world.quiet(70)
    found = world.memory.described(world.simulation.now)
    assert (found["messages"], found["dropped"]) == (2, {"too_old": 2})
    world.power_here()
    world.quiet(10)
    assert arrived(world) == ["lamp on", "door shut"]


def test_that_nothing_is_retained_any_more_waits_on_too() -> None:
    world = away(BridgeQueueBounds(age_us=60 * SECOND))
    say(world, "door open", retain=True)
    world.publish(world.here, [("door", b"", 1)], retain=True)
    world.quiet(70)
    found = world.memory.described(world.simulation.now)
    assert (found["messages"], found["dropped"]) == (1, {"too_old": 1})


def test_many_that_become_too_old_at_once_go_in_several_turns() -> None:
    world = away(BridgeQueueBounds(messages_max=5_000, age_us=60 * SECOND))
    for _ in range(3):
        say(world, *(f"a {number}" for number in range(900)))
    assert len(world.memory.session.outbox) == 2_700  # type: ignore[union-attr]
    world.quiet(70)
    assert world.memory.described(world.simulation.now)["dropped"] == {"too_old": 2_700}


def test_what_is_live_goes_before_the_backlog_which_keeps_its_share() -> None:
    world = away(BridgeQueueBounds(is_live_first=True), inflight_max=1)
    say(world, *(f"old {number}" for number in range(12)))
    published = []

    def fail(step: int) -> None:
        if not published and len(arrived(world)) == 2:
            published.append(step)
            client = SimulatedClient("live", world.here)
            client.send(Connect("live", dialect=V5))
            for number in range(10):
                client.send(Publish("new", b"%d" % number, 1, packet_id=number + 1))

    world.fail = fail
    world.go_on()
    world.quiet(10)
    sent = arrived(world)
    assert [one for one in sent if one.startswith("old")] == [f"old {number}" for number in range(12)]
    assert [one for one in sent if one.startswith("new")] == [f"new {number}" for number in range(10)]
    first, last = sent.index("new 0"), sent.index("new 9")
    assert last - first == 10, "one of the backlog in between: the eighth"
    world.pause()
    say(world, "old again")
    world.power_here()
    world.quiet(10)
    assert arrived(world)[-1] == "old again"


def test_what_was_sent_is_sent_again_in_the_order_of_sending_after_a_restart() -> None:
    """Also if what was published later was sent before."""
    world = away(BridgeQueueBounds(is_live_first=True), inflight_max=3)
    say(world, *(f"old {number}" for number in range(12)))

    def orders() -> list[int]:
        session = world.memory.session
        assert session is not None
        return [entry.number for entry in session.inflight]

    def fail(step: int) -> None:
        if len(arrived(world)) >= 2 and not seen:
            seen.append([])
            client = SimulatedClient("live", world.here)
            client.send(Connect("live", dialect=V5))
            for number in range(20):
                client.send(Publish("new", b"%d" % number, 1, packet_id=number + 1))
        if orders() != sorted(orders()) and len(seen) == 1:
            seen.append(orders())
            world.pause()

    seen: list[list[int]] = []
    world.fail = fail
    world.go_on()
    world.quiet(5)
    before = orders()
    assert len(seen) == 2
    assert before != sorted(before)
    world.power_here()
    assert orders() == before
    world.quiet(10)
    assert len(arrived(world)) == 32


def test_what_a_new_rule_finds_retained_waits_in_the_queue_as_long_as_that_is_so() -> None:
    world = away(BridgeQueueBounds(age_us=60 * SECOND), "a/# out 1")
    world.options = BridgeOptions(
        "x", "uplink", [parse_rule("a/# out 1"), parse_rule("b/# out 1")], V5, identity="here"
    )
    say(world, *(f"b/{number} 1" for number in range(10)), "a/1 1", retain=True)
    say(world, "a/2 1")
    world.fail = lambda step: world.cut()
    world.begin()
    world.quiet(5)
    session = world.memory.session
    assert session is not None
    assert len(session.inflight) <= 1, "nothing is on its way to nobody"
    world.quiet(70)
    assert world.here.ledger.dropped == {Cause.TOO_OLD: 1}
    world.fail = lambda step: None
    world.quiet()
    assert set(arrived(world)) == {"a/1 1", *(f"b/{number} 1" for number in range(10))}


def test_what_finds_the_remote_away_at_qos_0_is_counted_with_its_bridge() -> None:
    world = away(BridgeQueueBounds())
    say(world, "a 1", "b 2", qos=0)
    say(world, "c 3")
    found = queue_report(world.memory.session, 0)
    assert (found["messages"], found["dropped"]) == (1, {"offline": 2})


def test_what_was_not_written_yet_at_qos_0_when_the_remote_went_is_counted_with_its_bridge() -> None:
    world = away(BridgeQueueBounds())
    world.go_on()
    world.quiet(2)
    session, frontend, now = world.memory.session, world.here.frontend, world.simulation.now
    assert session is not None
    writer = frontend.opened("writer", now)
    for packet in (Connect("writer", dialect=V5), Publish("a", b"1"), Publish("b", b"2")):
        frontend.feed(writer, encode_packet(packet, V5), now)
    assert session.connection.out_messages == 2
    frontend.closed(session.connection, now)
    assert world.here.ledger.dropped == {Cause.CONNECTION_LOST: 2}
    assert queue_report(session, now)["dropped"] == {"connection_lost": 2}


def test_a_full_queue_of_a_bridge_may_refuse_publishers_and_no_other_is_asked() -> None:
    world = away(BridgeQueueBounds(messages_max=2, policy="refuse"))
    world.sleeper(world.here, "#")  # its queue drops what comes
    client = SimulatedClient("writer", world.here)
    client.send(Connect("writer", dialect=V5))
    for number in range(4):
        client.send(Publish("a", b"%d" % number, 1, packet_id=number + 1))
    world.quiet(1)
    answers = [packet.reason for packet in client.receive() if isinstance(packet, PubAck)]
    assert answers == [ReasonCode.SUCCESS] * 2 + [ReasonCode.QUOTA_EXCEEDED] * 2
    assert world.here.ledger.dropped == {}
    world.go_on()
    world.quiet(2)
    assert arrived(world) == ["a 0", "a 1"]
    client.send(Publish("a", b"5", 1, packet_id=5))
    world.quiet(1)
    assert arrived(world)[-1] == "a 5"


def test_bounds_that_are_taken_back_are_those_of_other_clients_again() -> None:
    world = away(BridgeQueueBounds(messages_max=2, policy="drop-oldest", age_us=60 * SECOND, is_live_first=True))
    say(world, "a 1", "a 2", "a 3")
    world.bounds = BridgeQueueBounds()
    world.bound_session()
    session, options = world.memory.session, world.here.frontend.options
    assert session is not None
    outbox = session.outbox
    assert (outbox.messages_max, outbox.policy, outbox.age_us) == (options.queue_messages_max, options.queue_full, 0)
    world.quiet(70)
    world.go_on()
    world.quiet(2)
    assert arrived(world) == ["a 2", "a 3"]
