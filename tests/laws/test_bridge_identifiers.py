"""Bridges: a packet identifier of QoS 2 that is left over from before takes no later message for a repetition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.session.session import Session
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebroker.names import ClientId
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.store import SimulatedStore

from ..support.bridge_world import World

LOCAL = "$bridge/x"


@pytest.fixture(params=[V5, V311], ids=["5", "3.1.1"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


def options(dialect: Dialect, *rules: str) -> BridgeOptions:
    return BridgeOptions("x", "uplink", [parse_rule(rule) for rule in rules], dialect, identity="here")


def session(broker: SimulatedBroker, client: str) -> Session:
    found: Session = broker.frontend.connect_handler.sessions[ClientId(client)]
    return found


def cut_once(world: World, when: Callable[[], bool]) -> None:
    """Go on until *when*; the line breaks then."""
    cuts: list[int] = []

    def fail(step: int) -> None:
        if not cuts and when():
            cuts.append(step)
            world.cut()

    world.fail = fail
    world.go_on()
    while not cuts:
        world.simulation.run_until(world.simulation.now + 10_000)
    world.fail = lambda step: None


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_handshake_whose_rule_is_gone_leaves_no_identifier_behind(dialect: Dialect, way: str) -> None:
    world = World(options(dialect, f"old/# {way} 2", f"new/# {way} 2"))
    sender, reader = (world.there, world.here) if way == "in" else (world.here, world.there)
    sending, reading = ("uplink", LOCAL) if way == "in" else (LOCAL, "uplink")
    world.sleeper(reader, "new/#")
    world.begin()
    world.quiet(2)
    world.pause()
    world.publish(sender, [("old/a", b"old", 2)])
    cut_once(world, lambda: bool(session(reader, reading).received))
    world.pause()
    world.options = options(dialect, f"new/# {way} 2")
    world.begin()
    world.quiet(20)
    assert not session(reader, reading).received
    session(sender, sending).inflight.last_id = 0  # 65,535 messages later
    world.publish(sender, [("new/b", b"new", 2)])
    world.quiet(20)
    assert world.read(reader) == {("new/b", b"new"): 1}


def test_another_remote_uses_the_identifiers_that_one_before_had_begun(dialect: Dialect) -> None:
    world = World(options(dialect, "in/# in 2"))
    first, second = world.there, SimulatedBroker(world.simulation, store=SimulatedStore(world.simulation))
    world.sleeper(world.here, "in/#")
    world.begin()
    world.quiet(2)
    world.there = second
    world.cut()
    world.quiet(10)
    world.pause()
    world.publish(second, [("in/a", b"of the second", 2)])
    world.publish(first, [("in/b", b"of the first", 2)])
    cut_once(world, lambda: bool(session(world.here, LOCAL).received))
    world.there = first
    world.quiet()
    assert world.read(world.here) == {("in/a", b"of the second"): 1, ("in/b", b"of the first"): 1}


@pytest.mark.parametrize("way", ["in", "out"])
def test_under_its_first_name_again_it_knows_nothing_of_what_it_began_under_that(dialect: Dialect, way: str) -> None:
    """The remote was away each time the name changed: its sessions are still there."""
    world = World(options(dialect, "in/# in 2", "out/# out 2"))
    sender, reader = (world.there, world.here) if way == "in" else (world.here, world.there)
    sending, reading = ("uplink", LOCAL) if way == "in" else (LOCAL, "uplink")
    world.sleeper(reader, f"{way}/#")
    world.begin()
    world.quiet(2)
    world.pause()
    world.publish(sender, [(f"{way}/a", b"old", 2)])
    cut_once(world, lambda: bool(session(reader, reading).received))
    world.pause()
    first = world.options
    for name in ("second", first.client_id):
        world.options = replace(first, client_id=name)
        world.begin()
        world.quiet(20)
        world.pause()
    session(sender, sending).inflight.last_id = 0  # 65,535 messages later
    world.publish(sender, [(f"{way}/b", b"new", 2)])
    world.go_on()
    world.quiet(20)
    assert world.read(reader)[f"{way}/b", b"new"] == 1
