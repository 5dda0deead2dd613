"""A bridge that stands by subscribes to nothing at either end, sends what waits for it, and may become active."""

from __future__ import annotations

import pytest

from edgebridge.bridge.endpoints import BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.frontend.bridge_session import BridgeSession
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebroker.names import ClientId

from ..support.bridge_world import World

RULES = ("out/# out 2", "in/# in 1")


def world(dialect: Dialect, stands_by: bool) -> World:
    rules = [parse_rule(rule) for rule in RULES]
    options = BridgeOptions("x", "uplink", rules, dialect, notification_topic="note", stands_by=stands_by)
    found = World(options)
    found.sleeper(found.there, "out/#")
    found.sleeper(found.here, "in/#")
    found.begin()
    found.quiet(2)
    assert found.bridge.state is BridgeState.OPEN
    return found


def subscriptions(world: World) -> tuple[int, int]:
    """How many the bridge has here and there."""
    there = world.there.frontend.node.subscriptions.of(ClientId("uplink"))
    return len(BridgeSession(world.here.frontend, world.options.local_client_id).subscribed()), len(there)


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
def test_a_bridge_that_stands_by_carries_nothing_until_it_is_active(dialect: Dialect) -> None:
    made = world(dialect, stands_by=True)
    assert subscriptions(made) == (0, 0)
    made.publish(made.here, [("out/a", b"1", 2)])
    made.publish(made.there, [("in/a", b"2", 1)])
    made.quiet(2)
    assert made.there.frontend.retained.find("note") is None
    made.change(stands_by=False)
    made.quiet(2)
    assert subscriptions(made) == (1, 1)
    made.publish(made.here, [("out/a", b"3", 2)])
    made.publish(made.there, [("in/a", b"4", 1)])
    made.quiet(2)
    assert (made.read(made.there), made.read(made.here)) == ({("out/a", b"3"): 1}, {("in/a", b"4"): 1})


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
def test_what_waits_for_a_bridge_that_stands_by_from_now_on_is_sent_in_both_directions(dialect: Dialect) -> None:
    made = world(dialect, stands_by=False)
    made.pause()
    made.publish(made.here, [("out/a", b"1", 2), ("out/b", b"2", 1)])
    made.publish(made.there, [("in/a", b"3", 1)])
    made.change(stands_by=True)
    made.quiet(2)
    assert subscriptions(made) == (0, 0)
    made.publish(made.here, [("out/a", b"4", 2)])
    made.publish(made.there, [("in/a", b"5", 1)])
    made.quiet(2)
    assert made.read(made.there) == {("out/a", b"1"): 1, ("out/b", b"2"): 1}
    assert made.read(made.here) == {("in/a", b"3"): 1}


def test_a_bridge_that_becomes_active_tells_the_remote_all_that_is_retained() -> None:
    made = world(V5, stands_by=True)
    made.publish(made.here, [("out/kept", b"1", 1)], retain=True)
    made.quiet(2)
    assert made.there.frontend.retained.find("out/kept") is None
    made.change(stands_by=False)
    made.quiet(2)
    found = made.there.frontend.retained.find("out/kept")
    assert found is not None
    assert found.payload == b"1"
