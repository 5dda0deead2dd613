"""Bridges: a remote that is new gets all that is retained here, also if the line breaks while it does."""

from __future__ import annotations

from edgebridge.upstream.rule import parse_rule
from edgebridge.upstream.terms import Terms
from edgebridge.wire.dialect import V5

from .bridging.world import World

TOPICS = 2_000


def test_what_is_retained_goes_on_after_the_line_broke() -> None:
    world = World(Terms("x", "uplink", [parse_rule("out/# out 1")], V5, identity="here"))
    for first in range(0, TOPICS, 500):
        batch = [(f"out/{number}", b"r", 1) for number in range(first, first + 500)]
        world.publish(world.here, batch, retain=True)
    cuts: list[int] = []

    def fail(step: int) -> None:
        if not cuts and world.splice.out.messages >= 300:
            cuts.append(step)
            world.cut()

    world.fail = fail
    world.begin()
    world.quiet()
    assert cuts
    assert all(world.there.frontend.retained.find(f"out/{number}") for number in range(TOPICS))
