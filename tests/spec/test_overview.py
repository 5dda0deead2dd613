"""What `top`, `status` and `check` make of a gateway's answer: it fits, it adds up, and the judgement is right."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebroker import PURE_COSTS
from edgebroker.cli.check import ProbeState, Thresholds, judge_status, probe_line
from edgebroker.cli.clients import _cells
from edgebroker.cli.display import columns, count, fitted, octets, shortened, span
from edgebroker.cli.parameters import HttpAddress, HttpAddressType
from edgebroker.cli.status import SORTS, overview, table
from edgebroker.cli.top import screen_lines


def client(name: str, **more: Any) -> dict[str, Any]:
    row = {"client": name, "connected": True, "paused": False, "version": "3.1.1 (bridge)"}
    return row | dict.fromkeys(SORTS, 0) | more


def status(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": "truck-3",
        "version": "0.1.0",
        "pid": 1,
        "uptime_s": 100.0,
        "health": {
            "status": "ok",
            "reasons": [],
            "checks": {"loop_lag": {"ok": True, "p50_ms": 0.1, "p99_ms": 0.3, "max_ms": 2.0}},
        },
        "messages": {"published": 5_000, "filtered": 1, "refused": 0},
        "copies": {"made": 5_000, "delivered": 4_000, "expired": 0, "open": 1_000, "dropped": {"queue_full": 12}},
        "bytes": {"received": 1 << 20, "sent": 1 << 30},
        "connections": {"open": 2, "accepted": 9, "paused": 1, "refusals": {"server_busy": 3}},
        "sessions": {"connected": 2, "away": 1},
        "subscriptions": 7,
        "retained": {"messages": 1, "bytes": 28},
        "queue": {"messages": 1_000, "bytes": 64_000, "longest": 1_000, "paged_bytes": 0},
        "inflight": {"messages": 4, "bytes": 256},
        "unsent_bytes": 512,
        "process": {"cpu_s": 10.0, "resident_bytes": 33 << 20, "descriptors": 20, "descriptors_max": 1_024},
        "clients": [client("slow", queue=1_000, bytes=64_000), client("b", subscriptions=3)],
    }
    return found | more


# -- figures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1 k"),
        (1_234, "1.23 k"),
        (99_960, "100 k"),
        (999_499, "999 k"),
        (999_500, "1 M"),
    ],
)
def test_counts_are_short(number: int, text: str) -> None:
    assert count(number) == text


@given(st.integers(0, 10**13))
def test_figures_have_room_in_their_columns(number: int) -> None:
    assert len(count(number)) <= 7
    assert len(octets(number)) <= 9


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (10_240, "10 KiB"), (1 << 30, "1.0 GiB")]
)
def test_octets_are_short(number: int, text: str) -> None:
    assert octets(number) == text
    assert octets(None) == "?"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_661, "1 h 1 min"), (86_400, "1 d"), (90_061, "1 d 1 h")],
)
def test_spans_have_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


@given(st.text(), st.integers(1, 60))
def test_any_name_fits_its_column_and_does_nothing_to_the_terminal(name: str, width: int) -> None:
    shown = fitted(name, width)
    assert columns(shown) == width
    assert shown.isprintable()


# -- the picture ------------------------------------------------------------------------------------------------


def test_a_name_of_wide_letters_is_shown_whole() -> None:
    row = {"client": "ポンプ", "connected": False, "peer": None, "silent_s": None, "dropped": {}}
    cells = _cells({**row, "subscriptions": 0, "queue": 0, "bytes": 0, "paged_bytes": 0, "inflight": 0})
    assert cells[0] == "ポンプ"
    assert shortened("e\u0301") == "e\u0301"
    assert (shortened("ポンプ", 5), shortened("a\nb")) == ("ポン…", "a·b")


def test_why_clients_were_refused_is_shown() -> None:
    connections = {"paused": 0, "refusals": {"server_busy": 3}, "turned_away": {"no-tls": 2}}
    lines = overview(status(connections=connections), None, 100)
    assert lines[2].endswith(" 5 refused")
    assert "refused   server_busy 3, no-tls 2" in lines
    quiet = overview(status(connections={"paused": 0, "refusals": {}, "turned_away": {}}), None, 100)
    assert not any(line.startswith("refused") for line in quiet)


def test_a_gateway_in_pure_python_says_what_that_costs() -> None:
    told = f"build     pure Python: {PURE_COSTS}"
    assert len(told) <= 120, "as wide as `status` is at most"
    assert told in overview(status(compiled=False), None, 120)
    assert not [line for line in overview(status(compiled=True), None, 120) if line.startswith("build")]


def test_why_messages_were_not_taken_is_shown() -> None:
    messages = {"published": 9, "filtered": 0, "refused": 3, "refused_by": {"unread": 2, "disk_full": 1}}
    lines = overview(status(messages={**messages, "not_retained": 4}), None, 100)
    assert "not taken unread 2, disk_full 1, not retained 4" in lines


@pytest.mark.parametrize("before", [None, status(uptime_s=98.0)], ids=["first", "later"])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 8), (200, 60), (20, 5)])
def test_the_picture_fits_the_screen(before: dict[str, Any] | None, width: int, height: int) -> None:
    clients = [client(f"name-名前-\x1b[31m-{'x' * number}", queue=number) for number in range(100)]
    lines = screen_lines(status(clients=clients), before, width, height, "queue")
    assert len(lines) < height
    assert all(columns(shown) <= width for shown in lines)
    assert all(shown.isprintable() for shown in lines)


def test_rates_come_from_two_looks() -> None:
    before = status(uptime_s=98.0, messages={"published": 4_000, "filtered": 0, "refused": 0})
    lines = screen_lines(status(), before, 80, 24, "queue")
    assert "messages  500/s, 5 k published, 1 for nobody, 0 refused" in lines
    assert "dropped   queue_full 12" in lines


@pytest.mark.parametrize("other", [{"pid": 2}, {"uptime_s": 100.0}])
def test_another_process_gives_no_rates(other: dict[str, Any]) -> None:
    lines = screen_lines(status(), status(**({"uptime_s": 98.0} | other)), 80, 24, "queue")
    assert not any("/s" in shown for shown in lines)


def test_a_gateway_that_is_not_well_says_why_at_the_top() -> None:
    health = status()["health"] | {"status": "failing", "reasons": ["log: 3 MiB are free"]}
    assert screen_lines(status(health=health), None, 80, 24, "queue")[0].endswith("FAILING: log: 3 MiB are free")


def test_a_gateway_among_others_says_how_it_stands_with_them() -> None:
    assert not any(line.startswith("peers") for line in screen_lines(status(), None, 80, 24, "queue"))
    peers = {"known": 4, "up": 3, "waiting": 1_234, "waiting_bytes": 2_048, "dropped": 5}
    line = "peers     3 of 4 connected; 1.23 k messages wait for them (2.0 KiB), 5 dropped"
    assert line in screen_lines(status(peers=peers), None, 80, 24, "queue")


def test_what_is_kept_on_disk_has_a_line_of_its_own() -> None:
    journal = {"waiting": 3, "sync_p50_ms": 1.25, "sync_p99_ms": 9.0, "card_bytes": 4_096, "trouble": ""}
    line = "disk      3 records wait, syncs take 1.2 ms (99 %: 9.0), 4.0 KiB written"
    assert line in screen_lines(status(journal=journal), None, 80, 24, "queue")
    shown = screen_lines(status(journal=journal | {"trouble": "no space"}), None, 100, 24, "queue")
    assert f"{line}; no space" in shown
    worn = journal | {"bytes_per_day": 1 << 30, "card_years": 43.8}
    shown = screen_lines(status(journal=worn), None, 120, 24, "queue")
    assert f"{line}, 1.0 GiB a day: the card lasts 43.8 years" in shown


@pytest.mark.parametrize("sort", SORTS)
def test_the_sorted_column_is_marked(sort: str) -> None:
    assert f"{SORTS[sort]}*" in table(status(), 80, 5, sort)[0]
    assert table(status(clients=[]), 80, 5, sort)[1] == f"no client has anything under {SORTS[sort]}"


# -- the verdict ------------------------------------------------------------------------------------------------

PERFDATA = re.compile(r"[a-z0-9_]+=[0-9.]+(ms|B|c)?;[0-9.]*;[0-9.]*;0")


@pytest.mark.parametrize(
    ("bounds", "state", "words"),
    [
        ({}, ProbeState.OK, "truck-3: up 1 min 40 s, 2 clients"),
        ({"warn_queue": 1_000}, ProbeState.OK, "up"),
        ({"warn_queue": 999}, ProbeState.WARNING, "queue is 1000, more than 999"),
        ({"warn_queue": 10, "crit_queue": 999}, ProbeState.CRITICAL, "queue is 1000, more than 999"),
        ({"warn_lag_ms": 0.2}, ProbeState.WARNING, "loop_lag_p99 is 0.3ms, more than 0.2"),
        ({"warn_lag_ms": 0.1, "crit_lag_ms": 0.2}, ProbeState.CRITICAL, "loop_lag_p99 is 0.3ms, more than 0.2"),
    ],
)
def test_bounds_decide(bounds: dict[str, Any], state: ProbeState, words: str) -> None:
    found, said = judge_status(status(), Thresholds(**bounds))
    assert found is state
    text, _, perfdata = said.partition(" | ")
    assert text.startswith(f"EDGEBROKER {state.name} - ")
    assert words in text
    assert all(PERFDATA.fullmatch(one) for one in perfdata.split(" "))
    assert "queue=1000;" in perfdata
    assert f"memory={33 << 20}B;" in perfdata, "to the last byte"


def test_a_gateway_that_just_started_is_not_judged_by_its_first_beats() -> None:
    lag = {"ok": True, "p50_ms": 0.1, "p99_ms": 600.0, "max_ms": 900.0}
    for is_judged, expected in ((False, ProbeState.OK), (True, ProbeState.CRITICAL)):
        health = status()["health"] | {"checks": {"loop_lag": {**lag, "is_judged": is_judged}}}
        assert judge_status(status(health=health), Thresholds())[0] is expected


def test_a_gateway_that_is_not_well_is_critical_whatever_the_bounds() -> None:
    health = status()["health"] | {"status": "failing", "reasons": ["log: a | b"]}
    state, said = judge_status(status(health=health), Thresholds(None, None))
    assert (state, said.count("|")) == (ProbeState.CRITICAL, 1)
    assert "log: a / b" in probe_line(state, "log: a | b")
    assert probe_line(state, "one\n  two").endswith(" - one two"), "one line, whatever is told"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9883", ("127.0.0.1", 9883)),
        ("gateway-3:1", ("gateway-3", 1)),
        ("[::1]:9883", ("::1", 9883)),
        ("http://10.0.0.1:80/", ("10.0.0.1", 80)),
        ("65536", None),
        ("a b:1", None),
        ("::1:9883", None),
        ("", None),
        ("host", None),
    ],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    if address is None:
        with pytest.raises(click.BadParameter, match="is no address"):
            HttpAddressType().convert(text, None, None)
    else:
        found = HttpAddressType().convert(text, None, None)
        assert found == HttpAddress(*address)
        assert HttpAddressType().convert(str(found), None, None) == found
