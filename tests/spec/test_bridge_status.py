"""What `edgebroker bridge status` makes of what a gateway says of a bridge."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.bridge.counters import BridgeCounters, BridgeDropCause
from edgebroker.cli.bridge import described, listed, toml_setting


def row_of(out: BridgeCounters, **dropped: int) -> dict[str, Any]:
    """A bridge of which *out* was carried, and of whose queue this was *dropped*."""
    shaper = dict.fromkeys(("rate_bytes_s", "rate_messages_s", "bytes_per_day", "warning", "held", "closed_until"), 0)
    return {
        "name": "up",
        "state": "open",
        "since_s": 1.0,
        "reason": "",
        "addresses": ["h:1883"],
        "address": "h:1883",
        "version": "5",
        "client_id": "c",
        "connects": 1,
        "sent_again": 0,
        "warnings": [],
        "waiting": 0,
        "waiting_bytes": 0,
        "spool": {"messages": 0, "bytes": 0, "paged_bytes": 0, "oldest_s": None, "dropped": dropped},
        "toll": {**shaper, "schedule": []},
        "out": out.described(),
        "in": BridgeCounters().described(),
        "rules": [],
    }


def test_what_was_refused_is_shown_once_by_reason() -> None:
    counters = BridgeCounters()
    counters.dropped[BridgeDropCause.REFUSED] += 3
    counters.dropped[BridgeDropCause.NO_RULE] += 1
    counters.refused["not_authorized"] += 2
    counters.refused["quota_exceeded"] += 1
    [out] = [line for line in described(row_of(counters)) if line.startswith("  out ")]
    assert out.endswith("; not carried: 1 no_rule, 2 refused: not_authorized, 1 refused: quota_exceeded")


def test_what_was_lost_before_the_bridge_had_it_counts_as_dropped() -> None:
    _, line = listed([row_of(BridgeCounters(), queue_full=2, offline=3, connection_lost=4, refused=9)])
    assert line.split()[-1] == "9", "who refused it is counted by `out`"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("rate_bytes_s=500", "rate_bytes_s = 500"),
        ("origin=false", "origin = false"),
        ("username=gw", 'username = "gw"'),
        ('username="1234"', 'username = "1234"'),
        ("addresses=['a:1', 'b:2']", "addresses = ['a:1', 'b:2']"),
    ],
)
def test_a_key_is_set_as_it_is_written(said: str, line: str) -> None:
    assert toml_setting(said) == line
