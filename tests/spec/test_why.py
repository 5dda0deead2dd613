"""`edgebroker why` follows a message through the logs of several gateways, and says what they do not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgebroker.cli.why.account import sentence
from edgebroker.log_schema import MIGRATION, Cause, Fate, TraceParent
from edgebroker.runtime.delivery_log import OpenSegment
from edgebroker.storage.deliverylog.writer import DeliveryLog

TRACE = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
NOON_US = 1_700_000_000_000_000
EVENT = (12_582_913, 41)
ID = "12582913-41"


def write(folder: Path, log: DeliveryLog, *, is_final: bool = True) -> None:
    (folder / log.node).mkdir(exist_ok=True)
    segment = OpenSegment(folder / log.node, log.header(0, NOON_US))
    for block in log.take(10_000, closing=True):
        segment.append(block)
    segment.finish(final=is_final)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Gateway *a*, where `probe` publishes; *b*, where `slow` does not get it; and other messages around it."""
    a, b = DeliveryLog("a", "b1"), DeliveryLog("b", "b2")
    a.published(90, "other", 1, 1, "t", 1, 8, 1)
    a.matched(90, "other", "view", 1, 1, 1)
    a.published(100, "probe", 2, 1, "t", 1, 31, 2, event=EVENT)
    for subscriber, text, at in (("gateway:b", "", 1_100), ("view", "t", 400)):
        a.matched(100, "probe", subscriber, 2, 1, 1)
        a.fate(at, "probe", subscriber, 2, 1, "t", text, 1, Fate.DELIVERED, 0, at - 100, 31)
    a.filtered(500, "lonely", 3, 1, "u", 1, Cause.NO_SUBSCRIBER, 8)
    a.published(500, "lonely", 3, 1, "u", 1, 8, 0)
    b.published(700, "probe", 7, 1, "t", 1, 31, 1, TRACE, event=EVENT)
    b.matched(700, "probe", "slow", 7, 1, 1)
    b.fate(900, "probe", "slow", 7, 1, "t", "$filter/v%3E1/t", 1, Fate.DROPPED, Cause.QUEUE_FULL, 200, 31, TRACE)
    write(tmp_path, a)
    write(tmp_path, b)
    return tmp_path


def why(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["why", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    result = why(*arguments, "--json")
    (line,) = result.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_event_is_followed_from_gateway_to_gateway(logs: Path) -> None:
    result = why(ID, "--log", logs)
    assert result.exit_code == 1, "slow has not got it"
    assert result.stdout.splitlines() == [
        f"event {ID}: probe published 31 bytes to t, QoS 1, on 2023-11-14 (UTC)",
        "  22:13:20.000100  a  accepted, as message b1/2; 2 copies",
        "  22:13:20.000400  a  view (t) has it after 0.3 ms",
        "  22:13:20.001100  a  gateway b has it after 1.0 ms",
        "  22:13:20.000700  b  came from another gateway, as message b2/7; 1 copy",
        "  22:13:20.000900  b  dropped for slow ($filter/v%3E1/t) after 0.2 ms: as many messages or bytes waited for"
        " its reader as may (queue_full)",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        [ID],
        ["b1/2"],
        ["b2/7"],
        [TRACE.trace_id],
        [f"00-{TRACE.trace_id}-{TRACE.parent_id}-01"],
        ["--client", "probe"],
        ["--client", "probe", "--topic", "t"],
        ["--topic", "t"],
        [ID, "--client", "probe"],
    ],
)
def test_every_way_to_name_it_finds_the_whole_trail(asked: list[str], logs: Path) -> None:
    found = told(*asked, "--log", logs / "a", "--log", logs / "b")
    assert found["event"] == ID
    assert [(stop["gateway"], stop["message"], stop["copies"]) for stop in found["stops"]] == [
        ("a", "b1/2", 2),
        ("b", "b2/7", 1),
    ]
    assert not found["has_arrived"]
    ends = {end["subscriber"]: end["fate"] for stop in found["stops"] for end in stop["ends"]}
    assert ends == {"gateway:b": "delivered", "view": "delivered", "slow": "dropped"}


def test_the_log_of_one_gateway_names_the_next(logs: Path) -> None:
    result = why(ID, "--log", logs / "a")
    assert result.exit_code == 0, "as far as this log goes, everybody has it"
    assert "b  has it; its log is not here: add it with --log DIR" in result.stdout


def test_a_peer_whose_log_is_there_and_knows_nothing(logs: Path) -> None:
    for file in (logs / "b").iterdir():
        file.unlink()
    ignorant = DeliveryLog("b", "b9")
    ignorant.published(1, "somebody", 1, 1, "x", 1, 1, 0)
    write(logs, ignorant)
    assert "b  has it; its log says nothing of it" in why(ID, "--log", logs).stdout


def test_a_message_for_nobody_says_why(logs: Path) -> None:
    result = why("--client", "lonely", "--log", logs)
    assert result.exit_code == 0
    assert "for nobody: no subscription has a matching topic filter" in result.stdout


def test_an_open_copy_is_found_by_the_difference_of_digests(logs: Path) -> None:
    found = told("b1/1", "--log", logs)
    (stop,) = found["stops"]
    assert (stop["open"], stop["waiting_for"], stop["is_over"]) == (1, {"view": 1}, True)
    assert "waits, or has no end in the log: 1 copy, for view" in why("b1/1", "--log", logs).stdout


def test_of_several_open_copies_each_may_be_the_one(tmp_path: Path) -> None:
    log = DeliveryLog("a", "b1")
    for number in (1, 2):
        log.published(number, "p", number, 1, "t", 1, 8, 1)
        log.matched(number, "p", "gateway:b", number, 1, 1)
    write(tmp_path, log, is_final=False)
    result = why("b1/2", "--log", tmp_path)
    assert result.exit_code == 1
    assert "1 copy, for gateway b (one of 2)" in result.stdout
    assert "the run goes on or was cut short" in result.stdout


@pytest.mark.parametrize("end", [Fate.EXPIRED, Fate.QUEUED])
def test_every_end_has_words(end: Fate, tmp_path: Path) -> None:
    log = DeliveryLog("a", "b1")
    log.published(1, "p", 1, 1, "t", 1, 8, 1)
    log.matched(1, "p", "s", 1, 1, 1)
    log.fate(5, "p", "s", 1, 1, "t", "t", 1, end, Cause.NONE, 4, 8)
    write(tmp_path, log)
    words = {Fate.EXPIRED: "expired while it waited for s (t)", Fate.QUEUED: "waited for s (t) when the run ended"}
    assert words[end] in why("b1/1", "--log", tmp_path).stdout


def test_the_last_messages_of_a_topic_come_in_order(logs: Path) -> None:
    lines = why("--topic", "t", "--last", 9, "--log", logs, "--json").stdout.splitlines()
    assert [json.loads(line)["publisher"] for line in lines] == ["other", "probe"]


def test_what_no_log_knows_is_said(logs: Path) -> None:
    result = why("1-1", "--log", logs)
    assert result.exit_code == 1
    assert "no such message in the logs of a, b" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["what"], "'what' is neither an event (PUBLISHER-SEQUENCE)"),
        ([], "which message?"),
        (["1-1"], "which log? Give --log DIR, or --config FILE"),
        (["1-1", "--log", "nowhere"], "does not exist"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], problem: str) -> None:
    result = why(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_settings_name_the_log(logs: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[log]\ndir = "{logs / "a"}"\n')
    assert why(ID, "--config", settings).exit_code == 0
    settings.write_text("")
    result = why(ID, "--config", settings)
    assert (result.exit_code, "writes no delivery log" in result.stderr) == (2, True)


def test_the_moves_of_its_publisher_follow(logs: Path) -> None:
    log = DeliveryLog("a", "b3")
    costs = (4_000, 1_000, 1_100, 2_000, 1_000, 1_000, 8_000, 0, 0)
    for publisher, pause_us in (("probe", 138_200), ("other", -1)):
        log.placed(90, MIGRATION, [(90, publisher, "b", "automatic", "closed", "arrived", 30, pause_us, *costs)])
    write(logs, log)
    moved = "probe was moved from a to b, plan automatic: arrived, without a connection for 138 ms"
    assert [line for line in why("--client", "probe", "--log", logs).stdout.splitlines() if "moved" in line] == [moved]
    assert why("--client", "other", "--log", logs).stdout.splitlines()[-1].endswith("plan automatic: arrived")
    [move] = told("--client", "probe", "--log", logs)["moves"]
    assert (move["node"], move["target"], move["delay_realised_us"]) == ("a", "b", 1_100)


def test_damage_is_told_once(logs: Path) -> None:
    (file,) = (logs / "b").glob("*.edl")
    data = bytearray(file.read_bytes())
    data[150] ^= 1
    file.write_bytes(data)
    result = why(ID, "--log", logs)
    assert result.stderr.count("block 0 at offset") == 1


def test_a_cause_that_is_not_known_is_said_to_be() -> None:
    assert sentence(999) == "cause 999, which this program does not know"


def test_the_last_message_is_that_of_the_latest_time_not_of_the_last_file(tmp_path: Path) -> None:
    for node, at, number in (("a", 900_000, 5), ("z", 100, 7)):  # files are read in the order of their names
        log = DeliveryLog(node, f"boot-{node}")
        log.published(at, "roamer", number, 1, "t", 1, 8, 0)
        write(tmp_path, log)
    assert told("--client", "roamer", "--log", tmp_path)["stops"][0]["message"] == "boot-a/5"
    lines = why("--client", "roamer", "--last", 2, "--log", tmp_path, "--json").stdout.splitlines()
    assert [json.loads(line)["stops"][0]["gateway"] for line in lines] == ["z", "a"]


def test_times_are_those_of_the_clock_once_it_was_right(tmp_path: Path) -> None:
    log = DeliveryLog("gateway", "b1")
    log.published(100, "probe", 1, 1, "t", 1, 8, 0)
    log.anchor(500, NOON_US + 86_400_000_000 + 500)  # somebody has told the gateway what day it is
    write(tmp_path, log)
    assert told("b1/1", "--log", tmp_path)["stops"][0]["unix_us"] == NOON_US + 86_400_000_000 + 100


def test_nobody_stands_before_who_gave_it_to_him_whatever_the_clocks_say(logs: Path) -> None:
    behind = DeliveryLog("0", "b0")  # has it from b, and its clock is a minute behind
    behind.published(-60_000_000, "probe", 9, 1, "t", 1, 31, 0, event=EVENT)
    b = DeliveryLog("b", "b3")
    b.published(700, "probe", 7, 1, "t", 1, 31, 1, event=EVENT)
    b.fate(900, "probe", "gateway:0", 7, 1, "t", "", 1, Fate.DELIVERED, 0, 200, 31)
    for file in (logs / "b").iterdir():
        file.unlink()
    write(logs, behind)
    write(logs, b)
    assert [stop["gateway"] for stop in told(ID, "--log", logs)["stops"]] == ["a", "b", "0"]
    lines = why(ID, "--log", logs).stdout.splitlines()
    assert "accepted, as message b1/2" in lines[1]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_copy_that_was_handed_over_is_judged_by_its_next_reader(is_done: bool, tmp_path: Path) -> None:
    log = DeliveryLog("gateway", "b1")
    log.published(100, "probe", 1, 1, "t", 1, 8, 1)
    log.matched(100, "probe", "gone", 1, 1, 1)
    log.fate(200, "probe", "gone", 1, 1, "t", "$share/g/t", 1, Fate.DROPPED, Cause.HANDED_OVER, 100, 8)
    log.matched(200, "probe", "next", 1, 1, 1)
    if is_done:
        log.fate(300, "probe", "next", 1, 1, "t", "$share/g/t", 1, Fate.DELIVERED, 0, 100, 8)
    write(tmp_path, log)
    assert why("b1/1", "--log", tmp_path).exit_code == (0 if is_done else 1)
    (stop,) = told("b1/1", "--log", tmp_path)["stops"]
    assert (stop["open"], stop["waiting_for"]) == ((0, {}) if is_done else (1, {"next": 1}))


def test_a_copy_for_a_session_on_its_way_to_another_gateway_says_so(tmp_path: Path) -> None:
    log = DeliveryLog("gateway", "b1")
    log.published(100, "probe", 1, 1, "t", 1, 8, 1)
    log.matched(100, "probe", "$roaming/3/1800000000000/pump", 1, 1, 1)
    write(tmp_path, log)
    assert "for pump, whose session is on its way to another gateway" in why("b1/1", "--log", tmp_path).stdout


def test_another_day_is_named_and_a_clock_that_no_calendar_has(tmp_path: Path) -> None:
    log = DeliveryLog("gateway", "b1")
    log.published(100, "probe", 1, 1, "two\nlines", 1, 8, 1)
    log.fate(86_400_000_000, "probe", "view", 1, 1, "two\nlines", "#", 1, Fate.DELIVERED, 0, 86_399_999_900, 8)
    write(tmp_path, log)
    first, _, last = why("b1/1", "--log", tmp_path).stdout.splitlines()
    assert first.endswith(r"to two\nlines, QoS 1, on 2023-11-14 (UTC)")
    assert "on 2023-11-15: view (#) has it" in last
    log = DeliveryLog("lost", "b2")
    log.anchor(0, 2**62)
    log.published(100, "probe", 1, 1, "t", 1, 8, 0)
    write(tmp_path, log)
    assert "on an unknown day" in why("b2/1", "--log", tmp_path).stdout
