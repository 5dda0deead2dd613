"""The demo's end-to-end audit finds every planted loss, duplicate and wrong delivery, and nothing in a clean run."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebridge.session.subscription_text import parse_subscription
from edgebridge.wire.dialect import V5
from edgebridge.wire.properties import user_properties
from edgebroker.cli import main
from edgelab.demo.audit import (
    ACKNOWLEDGED,
    SENT,
    DevicePublication,
    JournalInvalid,
    LineCounter,
    Receipt,
    SubscriberAccount,
    audit,
    encoded,
    read_journal,
)
from edgelab.demo.outcome import DemoOutcome, duration
from edgelab.demo.play import FILES, clear
from edgelab.demo.subscriber_specs import SUBSCRIBER_SPECS, FilterCarrier, SubscriberSpec

EVERYTHING = SubscriberSpec("all", "#", 1, V5)
WARM = SubscriberSpec("warm", "trucks/#", 1, V5, "temperature > 8")


def publication(device: str, seq: int, temperature: float, qos: int = 1, form: str = "json") -> DevicePublication:
    body = {"device": device, "seq": seq, "temperature": temperature}
    outcome = ACKNOWLEDGED if qos else SENT
    return DevicePublication(device, seq, f"trucks/{device}", encoded(body, form), qos, False, outcome)


def receipt(message: DevicePublication, wish: SubscriberSpec) -> Receipt:
    return Receipt(message.topic, message.payload, min(message.qos, wish.qos))


PUBLISHED = [
    publication("a", 1, 7.5),
    publication("a", 2, 8.5),
    publication("b", 1, 9, qos=0, form="cbor"),
    publication("b", 2, 3, qos=0, form="cbor"),
    publication("c", 1, 12, qos=2),
]
WANTED = [PUBLISHED[1], PUBLISHED[2], PUBLISHED[4]]
RECEIVED = [receipt(message, WARM) for message in WANTED]


def findings(account: SubscriberAccount) -> tuple[int, int, int, int]:
    return len(account.lost), len(account.duplicates), len(account.wrong), len(account.reordered)


def test_a_clean_run_has_no_findings() -> None:
    account = audit(WARM, PUBLISHED, RECEIVED)
    assert (account.candidates, account.wanted, account.received) == (5, 3, 3)
    assert findings(account) == (0, 0, 0, 0)
    assert account.is_right


def test_only_messages_of_the_topic_are_candidates() -> None:
    elsewhere = replace(PUBLISHED[1], topic="elsewhere/a")
    account = audit(WARM, [*PUBLISHED, elsewhere], RECEIVED)
    assert (account.candidates, account.is_right) == (5, True)


@pytest.mark.parametrize("missing", range(3), ids=["QoS 1", "QoS 0", "QoS 2"])
def test_a_lost_message_is_named(missing: int) -> None:
    account = audit(WARM, PUBLISHED, RECEIVED[:missing] + RECEIVED[missing + 1 :])
    assert findings(account) == (1, 0, 0, 0)
    assert account.lost == [str(WANTED[missing])]


@pytest.mark.parametrize("doubled", range(3), ids=["QoS 1", "QoS 0", "QoS 2"])
def test_a_duplicate_is_named(doubled: int) -> None:
    account = audit(WARM, PUBLISHED, [*RECEIVED, RECEIVED[doubled]])
    assert findings(account) == (0, 1, 0, 0)
    assert account.duplicates == [str(WANTED[doubled])]


def test_a_message_that_the_filter_does_not_want_is_wrong() -> None:
    account = audit(WARM, PUBLISHED, [*RECEIVED, receipt(PUBLISHED[0], WARM)])
    assert findings(account) == (0, 0, 1, 0)
    assert account.wrong == [f"not wanted: {PUBLISHED[0]}"]


def test_a_message_that_nobody_published_is_wrong() -> None:
    account = audit(WARM, PUBLISHED, [*RECEIVED, Receipt("trucks/a", b"?", 1)])
    assert findings(account) == (0, 0, 1, 0)
    assert "never published: trucks/a b'?'" in account.wrong[0]


def test_an_altered_message_is_both_wrong_and_lost() -> None:
    altered = replace(RECEIVED[0], payload=RECEIVED[0].payload.replace(b"8.5", b"8.6"))
    assert findings(audit(WARM, PUBLISHED, [altered, *RECEIVED[1:]])) == (1, 0, 1, 0)


def test_a_message_on_another_topic_is_both_wrong_and_lost() -> None:
    moved = replace(RECEIVED[0], topic="trucks/b")
    assert findings(audit(WARM, PUBLISHED, [moved, *RECEIVED[1:]])) == (1, 0, 1, 0)


@pytest.mark.parametrize("qos", [0, 2])
def test_a_message_with_another_qos_than_agreed_is_wrong(qos: int) -> None:
    account = audit(WARM, PUBLISHED, [replace(RECEIVED[0], qos=qos), *RECEIVED[1:]])
    assert findings(account) == (0, 0, 1, 0)


def test_messages_of_one_device_out_of_order_are_named() -> None:
    received = [receipt(message, EVERYTHING) for message in PUBLISHED]
    received[0], received[1] = received[1], received[0]
    account = audit(EVERYTHING, PUBLISHED, received)
    assert findings(account) == (0, 0, 0, 1)
    assert account.reordered == [f"{PUBLISHED[0]} after #2"]


def test_messages_of_different_devices_may_come_in_any_order() -> None:
    assert audit(WARM, PUBLISHED, RECEIVED[::-1]).is_right


def test_qos_1_may_repeat_after_a_broken_connection_and_nothing_else_may() -> None:
    received = [*RECEIVED, *RECEIVED]
    account = audit(WARM, PUBLISHED, received, may_repeat=lambda *_: True)
    assert account.repeated == 2, "the copies with QoS 1, of which one was published with QoS 2"
    assert account.duplicates == [str(PUBLISHED[2])]


def test_a_message_that_its_device_gave_up_may_arrive_or_not() -> None:
    published = [replace(message, outcome="failed") for message in PUBLISHED]
    assert audit(WARM, published, []).is_right
    assert audit(WARM, published, RECEIVED).is_right
    assert findings(audit(WARM, published, [*RECEIVED, RECEIVED[0]])) == (0, 1, 0, 0)


def test_every_random_mishap_is_counted(chance: random.Random) -> None:
    published = [publication(f"d{n % 7}", n, chance.uniform(0, 16), chance.choice((0, 1, 2))) for n in range(1, 400)]
    wanted = [message for message in published if json.loads(message.payload)["temperature"] > 8]
    unwanted = [message for message in published if message not in wanted]
    lost = set(chance.sample(range(len(wanted)), 11))
    kept = [message for at, message in enumerate(wanted) if at not in lost]
    received = [receipt(message, WARM) for message in [*kept, *kept[:5], *chance.sample(unwanted, 3)]]
    account = audit(WARM, published, received)
    assert findings(account) == (11, 5, 3, 0)
    assert account.lost == [str(wanted[at]) for at in sorted(lost)]


# -- journals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "cbor"])
def test_a_journal_gives_back_the_bytes_that_were_sent(form: str, tmp_path: Path) -> None:
    message = publication("t\u00fcr", 1, 1e-7, form=form)
    body = {"device": message.device, "seq": 1, "temperature": 1e-7}
    record = {"topic": message.topic, "qos": 1, "retain": False, "device": message.device, "seq": 1, "form": form}
    journal = tmp_path / "fleet.jsonl"
    journal.write_text(json.dumps(record | {"payload": body, "outcome": ACKNOWLEDGED}) + "\n", encoding="utf-8")
    assert read_journal(journal) == [message]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"topic": "a"'])
def test_a_broken_journal_is_refused_with_file_and_line(line: str, tmp_path: Path) -> None:
    journal = tmp_path / "fleet.jsonl"
    journal.write_text(line + "\n")
    with pytest.raises(JournalInvalid, match=r"fleet\.jsonl, line 1"):
        read_journal(journal)


def test_a_missing_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalInvalid, match="cannot be read"):
        read_journal(tmp_path / "none.jsonl")


def test_the_growth_of_a_file_is_counted_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    growth = LineCounter(path)
    counts = [growth.lines()]
    for text in ("a\nb", "c\n", "", "d\ne\n"):
        with path.open("a") as file:
            file.write(text)
        counts.append(growth.lines())
    assert counts == [0, 1, 2, 2, 4]


# -- the outcome ---------------------------------------------------------------------------------------------------

REPORT = {
    "ok": True,
    "verdict": "0 lost, 0 duplicated",
    "runs": {"complete": 1},
    "damages": 0,
    "published": 5,
    "copies": 3,
    "delivered": 3,
    "filtered": 0,
    "latency_us": {"1": {"p50": 412, "p90": 1_250, "p99": 20_400}},
}


def outcome(account: SubscriberAccount | None = None, **report: object) -> DemoOutcome:
    accounts = [account or audit(WARM, PUBLISHED, RECEIVED)]
    return DemoOutcome(20.0, 3, PUBLISHED, accounts, REPORT | report, "demo-output/report.html")


def test_a_clean_outcome_has_no_problems_and_says_its_figures() -> None:
    clean = outcome()
    assert clean.problems() == []
    lines = list(clean.lines())
    assert lines[0].startswith("messages    5 from 3 devices and this machine: 2 with QoS 0, 2 with QoS 1, 1 with")
    assert lines[1] == "deliveries  3 to 1 subscribers; filters held back 40% of 5"
    assert "latency     QoS 1   p50 412 us   p90 1.25 ms   p99 20.4 ms" in lines
    assert "audit       end to end: lost 0, duplicates 0, wrong 0, out of order 0" in lines
    assert lines[-1] == "report      demo-output/report.html"
    assert clean.as_object()["ok"] is True


@pytest.mark.parametrize(
    ("received", "problem"),
    [
        (RECEIVED[1:], "lost 1, first a #2"),
        ([*RECEIVED, RECEIVED[0]], "duplicates 1, first a #2"),
        ([*RECEIVED, receipt(PUBLISHED[0], WARM)], "wrong 1, first not wanted: a #1"),
    ],
)
def test_one_finding_is_one_problem(received: list[Receipt], problem: str) -> None:
    found = outcome(audit(WARM, PUBLISHED, received), copies=len(received), delivered=len(received))
    (told,) = found.problems()
    assert problem in told
    assert f"FAILED      {told}" in list(found.lines())
    assert found.as_object()["ok"] is False


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        ({"ok": False, "verdict": "1 lost, 0 duplicated"}, "1 lost"),
        ({"runs": {"complete": 1, "open": 1}}, "could not judge"),
        ({"runs": {}}, "could not judge"),
        ({"damages": 2}, "2 damaged places"),
        ({"published": 6}, "the delivery log says 6 published, devices and subscribers say 5"),
        ({"copies": 4}, "4 copies"),
        ({"delivered": 2}, "2 delivered"),
        ({"filtered": 1}, "1 filtered"),
    ],
)
def test_whatever_spark_finds_is_a_problem(report: dict[str, object], problem: str) -> None:
    (told,) = outcome(**report).problems()
    assert problem in told


def test_a_demo_in_which_nothing_was_published_has_failed() -> None:
    empty = DemoOutcome(1.0, 3, [], [audit(WARM, [], [])], REPORT | {"published": 0, "copies": 0, "delivered": 0}, "r")
    assert empty.problems() == ["the devices published nothing"]


def test_messages_given_up_and_troubles_are_problems() -> None:
    published = [replace(PUBLISHED[0], outcome="failed"), *PUBLISHED[1:]]
    found = DemoOutcome(1.0, 3, published, [audit(WARM, published, RECEIVED)], {}, "r", ("report: no Java",))
    assert found.problems() == ["report: no Java", "1 messages were given up by their devices"]


@pytest.mark.parametrize(
    ("us", "text"), [(0, "0 us"), (999, "999 us"), (1_000, "1 ms"), (12_345, "12.3 ms"), (2_500_000, "2.5 s")]
)
def test_durations_have_three_digits(us: int, text: str) -> None:
    assert duration(us) == text


# -- wishes and files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", SUBSCRIBER_SPECS, ids=lambda wish: wish.name)
def test_every_subscription_is_carried_as_it_is_meant(wish: SubscriberSpec) -> None:
    where = dict(user_properties(wish.properties)).get("$where")
    request = parse_subscription(wish.option.topic_filter, where)
    assert (request.topic_filter, request.filter) == (wish.topic_filter, wish.content_filter)
    assert wish.option.qos == wish.qos


def test_the_subscriptions_use_both_carriers_both_versions_and_every_qos() -> None:
    filtered = [wish for wish in SUBSCRIBER_SPECS if wish.where]
    assert {wish.carrier for wish in filtered} == set(FilterCarrier)
    assert {wish.dialect.version for wish in SUBSCRIBER_SPECS} == {"3.1.1", "5"}
    assert {wish.qos for wish in SUBSCRIBER_SPECS} == {0, 1, 2}


def test_an_earlier_demos_files_are_cleared_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    clear(folder)
    own = [*(folder / name for name in FILES), folder / "log" / "n-1.edl", folder / "log" / "current-1.edl.part"]
    others = [folder / "notes.txt", folder / "log" / "notes.txt"]
    for path in (*own, *others):
        path.write_text("x")
    clear(folder)
    assert not any(path.exists() for path in own)
    assert all(path.exists() for path in others)


def test_missing_extras_are_named_before_anything_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgelab.demo.find_spec", lambda name: None if name in ("paho", "pyspark") else object())
    result = CliRunner().invoke(main, ["demo", "--dir", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "the demo needs paho, pyspark: pip install 'edgebroker[analytics,sim]'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["demo", "--dir", str(tmp_path / "file" / "out")])
    assert result.exit_code == 2
    assert "--dir" in result.stderr
