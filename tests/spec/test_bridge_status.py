"""What `edgebroker bridge status` makes of what a gateway says of a bridge."""

from __future__ import annotations

from edgebridge.upstream.tally import Cause, Tally
from edgebroker.cli.bridge import described


def test_what_was_refused_is_shown_once_by_reason() -> None:
    tally = Tally()
    tally.dropped[Cause.REFUSED] += 3
    tally.dropped[Cause.NO_RULE] += 1
    tally.refused["not_authorized"] += 2
    tally.refused["quota_exceeded"] += 1
    toll = dict.fromkeys(("rate_bytes_s", "rate_messages_s", "bytes_per_day", "warning", "held", "closed_until"), 0)
    row = {
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
        "spool": {"messages": 0, "bytes": 0, "oldest_s": None, "dropped": {}},
        "toll": {**toll, "schedule": []},
        "out": tally.described(),
        "in": Tally().described(),
        "rules": [],
    }
    [out] = [line for line in described(row) if line.startswith("  out ")]
    assert out.endswith("; not carried: 1 no_rule, 2 refused: not_authorized, 1 refused: quota_exceeded")
