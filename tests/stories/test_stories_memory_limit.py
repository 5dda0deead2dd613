"""Events about the memory that clients hold, and their end."""

from __future__ import annotations

from typing import Any

from edgebridge.frontend.options import Quota
from edgebroker.instants import MINUTE
from edgebroker.publication import Publication


def test_what_is_held_no_more_is_told_no_more(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", quota=Quota(memory_bytes_max=100_000))
    frontend, now = play.broker.frontend, play.broker.simulation.now
    memory = frontend.memory_limit
    frontend.retained.retain(Publication("p", "k", bytes(85_000), 0, True, 0))
    memory.check(now)
    assert memory.held_bytes > 85_000
    frontend.retained.clear("k")
    memory.check_if_due(now + MINUTE - 1)
    assert memory.held_bytes > 85_000, "to measure costs something"
    memory.check_if_due(now + MINUTE)
    assert memory.held_bytes < 10_000
