"""`/health` fails while acknowledged messages are at risk, and warns of clocks that differ."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from edgebroker.instants import DAY, HOUR, MINUTE, SECOND, Duration
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.budget import OutboxFull
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.messages import STATUS_REPORT_BYTES_MAX
from edgebroker.runtime.peers.status import CLOCK_OFFSET_MAX, RECENT, LinkWatch, decode_report, encode_report

from ..support.link_pair import LinkPair

LEASE_S = 24 * 3_600
SMALL = LinkOptions(bounds=OutboxBounds(messages=80, policy=OutboxFull.DROP_NEWEST))


def watch_of(pair: LinkPair) -> LinkWatch:
    return LinkWatch(pair.a.links, LEASE_S, pair.simulation.now)


def test_a_peer_that_is_away_for_a_while_is_no_risk() -> None:
    pair = LinkPair().start()
    watch = watch_of(pair)
    watch.peer_up("b")
    assert watch.risks(pair.simulation.now + 10 * DAY) == []
    watch.peer_down("b", pair.simulation.now)
    assert watch.risks(pair.simulation.now + 17 * HOUR) == []


@pytest.mark.parametrize(("away", "told"), [(18, "18.0 h"), (23, "23.0 h")])
def test_a_lease_that_is_about_to_end_is_a_risk(away: int, told: str) -> None:
    pair = LinkPair()
    watch, begun = watch_of(pair), pair.simulation.now  # it never came since the start
    [line] = watch.risks(begun + away * HOUR)
    left = "6.0 h" if away == 18 else "60.0 min"
    assert line == (
        f"b has not been reached for {told}: nothing more is kept for its sessions from {left} on (overlay.lease_s)"
    )
    watch.peer_down("b", begun + 2 * HOUR)  # a dial that came to nothing is no new beginning
    assert watch.risks(begun + away * HOUR) == [line]
    assert watch.risks(begun + 25 * HOUR) == []
    assert watch.warnings(begun + 25 * HOUR) == [
        "links: nothing is kept for the sessions of b any more (overlay.lease_s)"
    ]
    watch.peer_up("b")
    assert watch.risks(begun + away * HOUR) == watch.warnings(begun + 25 * HOUR) == []


def test_an_outbox_that_is_nearly_full_is_a_risk_and_so_is_what_it_dropped() -> None:
    pair = LinkPair(SMALL).start()
    watch = watch_of(pair)
    watch.peer_up("b")
    pair.road.is_silent = True
    for _ in range(69):
        assert pair.publish() is Cause.NONE
    assert watch.risks(pair.simulation.now) == []
    pair.publish()
    [line] = watch.risks(pair.simulation.now)
    assert line.startswith("the outbox for b is nearly full (")
    for _ in range(20):
        pair.publish()
    assert watch.check(pair.simulation.now) == []
    now = pair.simulation.now
    dropped = "messages for b were dropped in the last 15 minutes, because its outbox was full"
    line = line.replace("70 messages", "80 messages")
    assert watch.risks(now) == [line, dropped]
    assert watch.risks(now + RECENT) == [line]


class Clock:
    """Sets the clock of gateway b, and lets it be measured."""

    def __init__(self) -> None:
        self.pair = LinkPair().start()
        self.watch = watch_of(self.pair)

    def put(self, by: Duration) -> Iterator[tuple[str, str, str]]:
        """Moves the clock of b by so much, and looks after some heartbeats."""
        link = self.pair.b.links["a"]
        link.set_clock(link.outbox.clock + by)
        self.pair.run(8 * MINUTE)
        return ((notice.name, notice.text, notice.peer) for notice in self.watch.check(self.pair.simulation.now))


@pytest.mark.parametrize(("by", "text"), [(75 * SECOND, "75 s ahead of"), (-3 * HOUR, "3.0 h behind")])
def test_a_clock_that_is_a_minute_off_is_told_once_and_counted(by: Duration, text: str) -> None:
    clock = Clock()
    assert not list(clock.put(CLOCK_OFFSET_MAX - SECOND))
    assert not list(clock.put(SECOND - CLOCK_OFFSET_MAX))
    assert list(clock.put(by)) == [("clock-differs", f"the clock of b is {text} this one", "b")]
    now = clock.pair.simulation.now
    assert list(clock.put(0)) == []
    assert clock.watch.warnings(now)[-1] == f"clocks: the clock of b is {text} this one"
    assert clock.watch.clock_differences == {"b": 1}
    assert list(clock.put(-by)) == [("clock-agrees", "the clock of b agrees with this one again", "b")]
    clock.watch.peer_up("b")
    assert clock.watch.warnings(now) == []


def rows(count: int) -> list[dict[str, Any]]:
    """What a gateway with so many peers tells of its links; every hundredth is down."""
    return [
        {
            "peer": f"gateway-{number:04}",
            "up": number % 100 != 50,
            "refused": False,
            "reason": ""
            if number % 100 != 50
            else f"10.0.{number}: no answer, as {number * 7_919 % 10_007} times before",
            "round_trip_ms": number * 7.77 % 31,
            "offset_ms": number * 3.33 % 17,
            "waiting": number * 7_919 % 1_000,
            "waiting_bytes": number * 104_729 % 1_000_000,
            "dropped": {},
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 3, 200, 1_000])
def test_a_report_has_every_link_also_of_a_gateway_with_many(count: int) -> None:
    encoded = encode_report(rows(count))
    assert len(encoded) <= STATUS_REPORT_BYTES_MAX
    assert decode_report(encoded) == {"links": rows(count)}
    if count <= 200:
        assert json.loads(encoded) == {"links": rows(count)}, "an older gateway can read it"


def test_what_a_report_has_no_room_for_is_up_and_counted() -> None:
    encoded = encode_report(rows(5_000))
    assert len(encoded) <= STATUS_REPORT_BYTES_MAX
    report = decode_report(encoded)
    assert report["left_out"] > 0
    assert len(report["links"]) + report["left_out"] == 5_000
    assert sum(not row["up"] for row in report["links"]) == 50


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"[]",
        b"{}",
        b'{"links": 1}',
        b'{"links": [',
        zlib.compress(b"7"),
        zlib.compress(bytes(1 << 23)),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_what_is_no_report_or_too_large_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match=r"report|Expecting|header"):
        decode_report(encoded)
