"""The state of a bridge survives a crash: the journal of its local session restores it."""

from __future__ import annotations

import pytest

from edgebridge.bridge.endpoints import BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.frontend.bridge_session import BridgeSession
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebroker.names import ClientId

from ..support.bridge_world import World


def world(dialect: Dialect, *rules: str) -> World:
    found = World(BridgeOptions("x", "uplink", [parse_rule(rule) for rule in rules], dialect, identity="here"))
    found.sleeper(found.there, "out/#")
    return found


def session_of(world: World) -> BridgeSession:
    return BridgeSession(world.here.frontend, world.options.local_client_id)


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
def test_a_session_that_never_met_the_remote_begins_a_clean_one_there_after_a_crash_too(dialect: Dialect) -> None:
    """The remote still has the packet identifiers of an earlier gateway, which was set up anew."""
    world_ = world(dialect, "out/# out 2")
    world_.begin()
    world_.quiet(2)
    remote = world_.there.frontend.connect_handler.sessions[ClientId("uplink")]
    world_.pause()
    remote.received.update(range(1, 5))  # of that earlier life, which is over
    world_.here.frontend.connect_handler.expire_session(session_of(world_).session, world_.simulation.now)
    world_.fail = lambda step: None if world_.bridge.state is not BridgeState.GREETING else world_.pause()
    # ^ the remote cannot be reached...
    world_.begin()
    world_.quiet(2)
    assert session_of(world_).is_known()
    assert not session_of(world_).sync_state.has_remote_session
    world_.fail = lambda step: None
    world_.power_here()  # ...and the power fails before it can
    world_.publish(world_.here, [("out/a", b"1", 2)])
    world_.quiet()
    assert world_.read(world_.there) == {("out/a", b"1"): 1}


def test_what_is_sent_again_because_the_remote_forgot_is_sent_again_after_a_crash_too() -> None:
    world_ = world(V5, "out/# out 2")
    world_.begin()
    world_.quiet(2)
    world_.pause()
    world_.publish(world_.here, [("out/a", b"1", 2)])

    def dies_after_pubrec(step: int) -> None:
        session = session_of(world_).session
        if session is not None and any(entry.released for entry in session.inflight):
            world_.fail = lambda step: None
            world_.pause()

    world_.fail = dies_after_pubrec
    world_.go_on()
    world_.quiet(2)
    assert world_.bridge.state is BridgeState.PAUSED
    world_.there.frontend.connect_handler.expire_session(
        world_.there.frontend.connect_handler.sessions[ClientId("uplink")], world_.simulation.now
    )
    before = world_.read(world_.there)[("out/a", b"1")]

    def dies_before_it_is_sent(step: int) -> None:
        if world_.bridge.retransmitted and world_.bridge._outbound.unacknowledged:
            world_.fail = lambda step: None
            world_.power_here()

    world_.fail = dies_before_it_is_sent
    world_.go_on()
    world_.quiet()
    assert world_.read(world_.there)[("out/a", b"1")] == before + 1, "the remote forgot: it has it twice, and not never"
    assert not list(session_of(world_).session.inflight)


def test_requests_have_packet_identifiers_that_no_message_has() -> None:
    world_ = world(V5, "out/# out 2")
    world_.begin()
    world_.quiet(2)
    world_.pause()
    session = session_of(world_).session
    assert session is not None
    session.inflight.last_id = 65_533
    world_.publish(world_.here, [("out/a", b"%d" % number, 1) for number in range(4)])
    world_.fail = lambda step: world_.pause() if len(session.inflight) == 4 else None
    world_.go_on()
    world_.quiet(2)
    assert [entry.packet_id for entry in session.inflight] == [65_534, 65_535, 1, 2]
    assert session_of(world_).free_packet_ids(3) == [65_533, 65_532, 65_531]


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
def test_more_retained_messages_than_there_is_room_for_come_all_the_same(dialect: Dialect) -> None:
    world_ = World(BridgeOptions("x", "uplink", [parse_rule("# in 1")], dialect, identity="here"))
    world_.here.frontend.retained.messages_max = 2
    world_.sleeper(world_.here, "#")
    sent = [(f"in/{number}", b"1", 1) for number in range(6)]
    world_.publish(world_.there, sent, retain=True)
    world_.begin()
    world_.quiet()
    assert world_.bridge.state is BridgeState.OPEN
    assert set(world_.read(world_.here)) == {(topic, payload) for topic, payload, _ in sent}
    assert len(world_.here.frontend.retained) == 2
    connects = world_.bridge.connects
    world_.publish(world_.there, [*sent, ("in/0", b"2", 1)], retain=True)
    world_.quiet()
    assert world_.bridge.connects == connects
    kept = world_.here.frontend.retained.find("in/0")
    assert kept is not None
    assert kept.payload == b"2", "what has room is retained as ever"
    assert world_.here.frontend.retained.not_retained == 2 * 5, "our own feature has one place; told by status"


def test_a_message_on_which_the_remote_hangs_up_every_time_is_named() -> None:
    world_ = world(V5, "out/# out 1")
    world_.begin()
    world_.quiet(2)
    world_.pause()
    world_.publish(world_.here, [("out/forbidden", b"12345", 1)])
    told: list[str] = []

    def hangs_up(step: int) -> None:
        if world_.bridge._outbound.unacknowledged and world_.bridge.state is BridgeState.OPEN:
            world_.cut()
            told.append(world_.bridge.reason)

    world_.fail = hangs_up
    world_.go_on()
    world_.quiet(60)
    assert told[:2] == ["cut", "cut"]
    assert "a message of 5 bytes under out/forbidden" in told[2]
    world_.fail = lambda step: None
    world_.quiet()
    assert world_.bridge.reason == ""
