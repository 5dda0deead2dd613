"""The account of a run and the commands around it: arithmetic, journal, addresses, options, host telemetry."""

from __future__ import annotations

import io
import json
import os
import socket
from collections import Counter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.instants import SECOND
from edgedevices import BrokerUnreachable, InputInvalid
from edgedevices.__main__ import main
from edgedevices.broker import BrokerAddress
from edgedevices.host import HostTelemetry
from edgedevices.ledger import MessageLedger
from edgedevices.message import DeviceMessage, PayloadForm
from edgedevices.options import journal_file
from edgedevices.progress import PlainProgress, describe

CAUSES = ("connection lost", "backlog full")


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from((None, *CAUSES)))))
def test_published_is_the_sum_of_the_fates(fates: list[tuple[int, str | None]]) -> None:
    journal = io.StringIO()
    ledger = MessageLedger(journal)
    for seq, (qos, cause) in enumerate(fates, 1):
        message = DeviceMessage("m", seq, "a/b", {"device": "m", "seq": seq}, PayloadForm.JSON, qos)
        ledger.publish(message)
        assert ledger.open == 1
        if cause is not None:
            ledger.fail(message, cause)
        elif qos:
            ledger.acknowledge(message)
        else:
            ledger.send(message)
        assert ledger.open == 0
    summary = ledger.summary()
    assert summary["published"] == len(fates)
    assert summary["published"] == summary["acknowledged"] + summary["sent"] + summary["failed"]
    assert summary["failures"] == Counter(cause for _, cause in fates if cause is not None)
    for qos, account in summary["qos"].items():
        assert account["published"] == sum(level == int(qos) for level, _ in fates)
        assert account["published"] == sum(number for name, number in account.items() if name != "published")
    records = [json.loads(line) for line in journal.getvalue().splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(fates) + 1))
    assert Counter(record["outcome"] for record in records) == Counter(
        {name: summary[name] for name in ("acknowledged", "sent", "failed") if summary[name]}
    )
    assert [record.get("cause") for record in records] == [cause for _, cause in fates]


def test_a_journal_line_holds_the_whole_message() -> None:
    journal = io.StringIO()
    body = {"device": "m", "seq": 3, "site": "Süd", "axes": [1, 2.5]}
    MessageLedger(journal).send(DeviceMessage("m", 3, "a/b", body, PayloadForm.CBOR, 0, retain=True, sent_us=1_000))
    assert json.loads(journal.getvalue()) == {
        "topic": "a/b",
        "qos": 0,
        "retain": True,
        "device": "m",
        "seq": 3,
        "form": "cbor",
        "payload": body,
        "outcome": "sent",
        "sent_us": 1_000,
    }


def test_json_payloads_refuse_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        PayloadForm.JSON.encode({"value": float("nan")})


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("10.0.0.1:1884", "10.0.0.1", 1884, "10.0.0.1:1884"),
        ("gateway", "gateway", 1883, "gateway:1883"),
        ("[::1]:1884", "::1", 1884, "[::1]:1884"),
        ("[::1]", "::1", 1883, "[::1]:1883"),
        ("fe80::1", "fe80::1", 1883, "[fe80::1]:1883"),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    address = BrokerAddress.parse(text)
    assert (address.host, address.port, str(address)) == (host, port, shown)


@pytest.mark.parametrize("text", ["", ":1883", "host:", "host:0", "host:65536", "host:mqtt", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputInvalid, match="write HOST:PORT"):
        BrokerAddress.parse(text)


def test_nobody_listening_is_said_with_the_address(free_port: int) -> None:
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{free_port}"):
        BrokerAddress("127.0.0.1", free_port).check_reachable()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fleet", "--seconds", "soon"], "'soon' is no duration"),
        (["fleet", "--seconds", "0"], "'0' is no duration"),
        (["fleet", "--devices", "0"], "--devices"),
        (["fleet", "--broker", "x:y"], "'x:y' is no address"),
        (["fleet", "--journal", "{tmp}/none/journal"], "cannot write"),
        (["host", "--topic-prefix", "a/#"], "no topic to publish to"),
        (["replay", "{tmp}/none.csv", "--time-column", "t", "--topic", "x"], "cannot read"),
        (["replay", "{tmp}/bad.csv", "--time-column", "t", "--topic", "x"], "no usable row; line 2: time 'x'"),
        (["replay", "{tmp}/bad.csv", "--time-column", "t", "--topic", "x", "--speed", "-1"], "'-1' is no speed"),
    ],
)
def test_mistakes_of_usage_give_exit_code_two_and_say_why(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "bad.csv").write_text("t\nx\n")
    result = CliRunner().invoke(main, [argument.replace("{tmp}", str(tmp_path)) for argument in arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_no_broker_gives_one_line_and_exit_code_two(free_port: int) -> None:
    result = CliRunner().invoke(main, ["fleet", "--broker", f"127.0.0.1:{free_port}"])
    assert result.exit_code == 2
    assert result.output == f"edgedevices: cannot reach a broker at 127.0.0.1:{free_port}: Connection refused\n"


def test_the_host_measures_itself() -> None:
    host = HostTelemetry("rack/{hostname}/", every_us=SECOND, duration_us=3 * SECOND)
    shaper_options, sent = [], []
    while (due_us := host.due_us) is not None:
        shaper_options.append(due_us)
        sent.append(host.emit())
    assert shaper_options == [SECOND, 2 * SECOND, 3 * SECOND]
    assert [message.body["seq"] for message in sent] == [1, 2, 3]
    for message in sent:
        prefix, name, last = message.topic.split("/")
        assert (prefix, last) == ("rack", "telemetry")
        assert message.device == message.body["device"] == f"host-{name}"
        for key in ("cpu_percent", "memory_percent", "disk_percent"):
            assert 0 <= message.body[key] <= 100  # type: ignore[operator]
        assert message.body["uptime_s"] > 0  # type: ignore[operator]
        assert json.loads(message.payload()) == message.body


def test_progress_for_logs_is_one_line_in_five_seconds() -> None:
    stream, ledger = io.StringIO(), MessageLedger()
    progress = PlainProgress(stream)
    for half_seconds in range(21):
        progress.show(ledger, 40, half_seconds / 2)
    lines = stream.getvalue().splitlines()
    assert lines == [describe(ledger, 40, seconds) for seconds in (0.0, 5.0, 10.0)]
    assert "0/40 online" in lines[0]


def test_devices_are_dealt_to_brokers_in_turn() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        brokers = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
        options = ["--broker", brokers[0], "--broker", brokers[1], "--devices", "3", "--seconds", "1", "--json"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("edgedevices.fleet.live", lambda *_, **__: None)  # nobody connects
            result = CliRunner().invoke(main, ["fleet", *options])
    dealt = json.loads(result.stdout)["dealt"]
    assert dealt == {
        brokers[0]: ["truck-1-unit-01", "truck-3-unit-01"],
        brokers[1]: ["truck-2-unit-01"],
    }


@pytest.mark.parametrize("arguments", [["host", "--every", "0.0000001"], ["fleet", "--seconds", "1e300"]])
def test_a_duration_that_cannot_be_lived_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "is no duration of 1ms to 366 days" in result.stderr) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to offer")
def test_a_journal_that_the_disk_does_not_take_is_told_once_and_ends_no_run() -> None:
    @click.command()
    def command() -> None:
        with journal_file(Path("/dev/full")) as journal:
            for _ in range(10_000):
                journal.write("x" * 100)  # type: ignore[union-attr]
        click.echo(f"broken {journal.is_broken}")  # type: ignore[union-attr]

    result = CliRunner().invoke(command)
    assert (result.exit_code, result.stdout) == (0, "broken True\n")
    assert result.stderr == "edgedevices: cannot write /dev/full: No space left on device; it ends there\n"


def test_a_csv_file_without_a_header_or_from_a_pipe_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text('"a"b,c\n1,2\n')
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("bad.csv", "its first line is no CSV header"), ("pipe", "is a pipe")):
        result = CliRunner().invoke(main, ["replay", str(tmp_path / name), "--time-column", "a", "--topic", "t"])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert words in result.stderr
