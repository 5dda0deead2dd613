"""Recordings of traffic: what is written is read again, block by block, and damage costs no more than its block."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import cbor2
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, Packet, Publish, SubAck
from edgebridge.wire.reasons import ReasonCode
from edgebroker.cli import main as broker_main
from edgebroker.instants import SECOND
from edgebroker.log_schema import TABLES
from edgebroker.storage.deliverylog.reader import Block, iter_blocks
from edgedevices import InputInvalid
from edgedevices.__main__ import main
from edgedevices.broker import ANYONE, BrokerAddress
from edgedevices.ledger import MessageLedger
from edgedevices.session import DeviceDialect
from edgedevices.station import Station
from edgedevices.traffic.playback import FRUITLESS_MAX, Playback, PlaybackOptions
from edgedevices.traffic.recorder import Recorder, RecordOptions
from edgedevices.traffic.recording import (
    MESSAGE_BYTES_MAX,
    RecordedMessage,
    RecordFile,
    RecordWriter,
    decode_properties,
    encode_properties,
    is_recording,
)

BEGAN_US = 5_000 * SECOND


def heard(number: int, payload: bytes | None = None, client: str = "") -> RecordedMessage:
    content = f"reading {number}".encode() if payload is None else payload
    return RecordedMessage(
        BEGAN_US + number * SECOND, client, f"site/{number % 3}/meter", number % 3, number % 2 == 1, content
    )


def record(path: Path, messages: list[RecordedMessage]) -> Path:
    writer = RecordWriter(path, "127.0.0.1:1883")
    assert all(writer.add(message) for message in messages)
    writer.close()
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    binary = bytes(range(256))
    messages = [heard(0), heard(1, b""), heard(2, binary, "probe"), heard(3, binary, "probe")]
    recording = RecordFile(record(tmp_path / "a.edl", messages))
    assert list(recording.messages_in_order()) == messages
    assert (recording.messages, recording.damage, recording.first_us) == (4, [], BEGAN_US)
    assert recording.header.node == "127.0.0.1:1883"
    assert is_recording(tmp_path / "a.edl")


def test_a_recorder_that_died_leaves_what_it_had_flushed(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a.edl", "")
    for number in range(100):
        writer.add(heard(number))
    writer.flush()
    writer.add(heard(100))
    del writer  # neither closed nor flushed
    recording = RecordFile(tmp_path / "a.edl")
    assert [message.t_us for message in recording.messages_in_order()] == [heard(n).t_us for n in range(100)]
    assert recording.damage == [
        f"block {recording.damage[0].split()[1]} at offset {(tmp_path / 'a.edl').stat().st_size}: "
        "the file ends without a footer: it was cut short, or never closed"
    ]


def test_damage_costs_its_block_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.edl"
    writer = RecordWriter(path, "")
    for number in range(30):
        writer.add(heard(number))
        if number % 10 == 9:
            writer.flush()
    writer.close()
    data = bytearray(path.read_bytes())
    blocks = [block for block in iter_blocks(bytes(data), tables=()) if isinstance(block, Block)]
    data[blocks[2].end - 1] ^= 1  # block 0 is the clock anchor
    path.write_bytes(data)
    recording = RecordFile(path)
    numbers = [(message.t_us - BEGAN_US) // SECOND for message in recording.messages_in_order()]
    assert numbers == [*range(10), *range(20, 30)]
    assert recording.damage == [
        f"block 2 at offset {blocks[2].offset}: checksum of the body is wrong; 10 rows of traffic lost"
    ]


def test_a_reader_of_delivery_logs_passes_over_traffic(tmp_path: Path) -> None:
    data = record(tmp_path / "a.edl", [heard(0)]).read_bytes()
    found = [(item.table, item.head.table) for item in iter_blocks(data) if isinstance(item, Block)]
    assert found == [("anchor", 3), ("", 128), ("anchor", 3)]
    assert max(range(len(TABLES))) < 128


def test_people_can_read_a_recording(tmp_path: Path) -> None:
    path = str(record(tmp_path / "a.edl", [heard(0, b'{"temp": 3}', "probe"), heard(1, b"\xff\x00")]))
    cat = CliRunner().invoke(broker_main, ["log", "cat", "--table", "traffic", path, "--json"])
    first, second = map(json.loads, cat.output.splitlines())
    assert (first["client"], first["topic"], first["payload"]) == ("probe", "site/0/meter", '{"temp": 3}')
    assert second["payload"] == "0xff00"
    stat = CliRunner().invoke(broker_main, ["log", "stat", path, "--json"])
    summary = json.loads(stat.output)
    assert (summary["records"]["traffic"], summary["ended"], stat.exit_code) == (2, "cleanly", 0)


def test_a_large_recording_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    random = Random(7)
    messages = (heard(number, random.randbytes(1_000)) for number in range(5_000))
    tracemalloc.start()
    writer = RecordWriter(tmp_path / "a.edl", "")
    assert all(writer.add(message) for message in messages)
    writer.close()
    recording = RecordFile(tmp_path / "a.edl")
    read = sum(1 for _ in recording.messages_in_order())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read == 5_000
    assert writer.bytes > 4_500_000
    assert peak < 3_500_000


def test_a_message_larger_than_a_block_is_refused_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a.edl", "")
    largest = MESSAGE_BYTES_MAX - len(heard(1).topic)
    assert [writer.add(heard(0)), writer.add(heard(1, bytes(largest))), writer.add(heard(2, bytes(largest + 1)))] == [
        True,
        True,
        False,
    ]
    writer.close()
    assert [len(message.payload) for message in RecordFile(writer.path).messages_in_order()] == [9, largest]


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.edl").write_text("dear")
    with pytest.raises(InputInvalid, match="never written over"):
        RecordWriter(tmp_path / "a.edl", "")
    assert (tmp_path / "a.edl").read_text() == "dear"


@pytest.mark.parametrize("content", [b"", b"time,value\n", b"\x89EDL\r\n\x1a\n"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.edl").write_bytes(content)
    with pytest.raises(InputInvalid, match=r"a\.edl"):
        RecordFile(tmp_path / "a.edl")


def score(recording: RecordFile, manner: PlaybackOptions, count: int) -> list[tuple[int, int]]:
    """(seconds at which it is due, number) of the first messages."""
    playback = Playback(recording, MessageLedger(), manner)
    return [
        (due // SECOND, (said.t_us - BEGAN_US) // SECOND) for due, said in islice(playback._timed_messages(), count)
    ]


def test_the_first_message_is_due_at_once_and_rounds_keep_the_length_of_the_recording(tmp_path: Path) -> None:
    recording = RecordFile(record(tmp_path / "a.edl", [heard(number) for number in (10, 11, 14)]))
    # The recorder's own clock, in the anchor at the end, is far from these made-up instants.
    recording.length_us = 6 * SECOND
    assert score(recording, PlaybackOptions(), 9) == [(0, 10), (1, 11), (4, 14)]
    looping = [(0, 10), (1, 11), (4, 14), (6, 10), (7, 11), (10, 14), (12, 10)]
    assert score(recording, PlaybackOptions(loops=True), 7) == looping


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "user": st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3) | st.integers(),
        "content_type": st.text(max_size=5) | st.binary(max_size=5),
        "response_topic": st.text(max_size=5),
        "correlation": st.binary(max_size=5) | st.none(),
        "format": st.integers(-1, 3),
        "expiry": st.integers(-1, 2**33),
        "unknown": st.integers(),
    },
)


@settings(max_examples=60)
@given(PROPERTIES.map(cbor2.dumps) | st.binary(max_size=40))
def test_properties_from_any_file_are_left_out_or_can_be_sent(kept: bytes) -> None:
    properties = decode_properties(kept)
    assert decode_properties(encode_properties(properties)) == properties
    assert encode_packet(Publish("a", properties=properties), V5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "a.edl", "--qos", "1"], "--qos means nothing here: a.edl is a recording"),
        (["replay", "a.edl", "--broker", "a", "--broker", "b"], "a recording goes to one broker"),
        (["replay", "a.edl", "--password-file", "p"], "--password-file goes with --username NAME"),
        (["replay", "a.edl", "--cert", "c"], "--cert and --key go together"),
        (["replay", "a.csv"], "a.csv is no recording: for CSV give --time-column NAME and --topic TOPIC"),
        (["replay", "a.csv", "--loop"], "--loop means nothing here: a.csv is no recording"),
        (["replay", "absent.edl"], "cannot read absent.edl: No such file or directory"),
        (["record", "b.edl", "--client-level", "1", "--client-property", "p"], "both name the publisher"),
        (["record", "b.edl", "--mqtt", "3.1.1", "--client-property", "p"], "--client-property needs --mqtt 5"),
        (["record", "b.edl", "--broker", "127.0.0.1:1"], "cannot reach a broker at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    record(Path("a.edl"), [heard(0)])
    Path("a.csv").write_text("time,value\n2024-05-01T00:00:00Z,1\n")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1
    assert not Path("b.edl").exists()


def test_a_full_file_is_followed_by_the_next_number_that_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedevices.traffic.recording.FILE_BLOCKS_MAX", 1)  # the clock anchor is a block
    other = tmp_path / "a-2.edl"
    other.write_bytes(b"of somebody else")
    recorder = Recorder(
        BrokerAddress.parse("127.0.0.1:1"), DeviceDialect.V5, ANYONE, RecordOptions(messages=2), tmp_path / "a.edl"
    )
    for _ in range(2):
        recorder.on_publish(Publish("a/b"))
    assert [path.name for path in recorder.files] == ["a.edl", "a-3.edl", "a-4.edl"]
    assert other.read_bytes() == b"of somebody else"
    assert [RecordFile(path).damage for path in recorder.files[:2]] == [[], []]
    recorder.close()


def test_a_file_is_closed_whole_though_none_can_follow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedevices.traffic.recording.FILE_BLOCKS_MAX", 1)
    folder = tmp_path / "here"
    folder.mkdir()
    recorder = Recorder(BrokerAddress.parse("127.0.0.1:1"), DeviceDialect.V5, ANYONE, RecordOptions(), folder / "a.edl")
    folder.rename(tmp_path / "away")
    recorder.on_publish(Publish("a/b"))
    assert recorder.has_ended
    recorder.close()
    assert RecordFile(tmp_path / "away" / "a.edl").messages == 1


def test_messages_of_no_qos_are_left_out_and_counted(tmp_path: Path) -> None:
    messages = [heard(0), replace(heard(1), qos=3), replace(heard(2), qos=255), heard(3)]
    recording = RecordFile(record(tmp_path / "a.edl", messages))
    ledger = MessageLedger()
    playback = Playback(recording, ledger, PlaybackOptions(None))
    playback.begin(0)
    (client,) = playback.wake(0)
    client.session.was_up = True
    playback.wake(0)
    assert playback.has_ended
    assert playback.not_publishable == 2
    assert ledger.published.total() == 2


def answer(station: Station, now: int, *packets: Packet) -> None:
    """Let *station*, which dials, have its connection, and these answers."""
    station.wake(now)
    station.opened(now)
    station.received(b"".join(encode_packet(packet, V5) for packet in packets), now)


def test_a_client_that_the_broker_refuses_delays_nobody(tmp_path: Path) -> None:
    messages = [heard(number, client=client) for number, client in enumerate(("", "barred", "", "barred"))]
    said: list[str] = []
    ledger = MessageLedger()
    playback = Playback(
        RecordFile(record(tmp_path / "a.edl", messages)), ledger, PlaybackOptions(), print_line=said.append
    )
    playback.begin(0)
    (welcome,) = playback.wake(0)
    answer(welcome, 0, ConnAck())
    welcome.session.was_up = True  # the connection that counts comes after this one, which wipes
    playback.wake(0)
    (barred,) = playback.wake(SECOND)
    answer(barred, SECOND, ConnAck(reason=ReasonCode.NOT_AUTHORIZED))
    playback.wake(3 * SECOND)
    assert playback.has_ended
    assert dict(ledger.failures) == {"refused: Not authorized": 2}
    assert said == ["client barred: refused: Not authorized; its messages are counted as failed"]


def test_a_message_that_the_broker_cannot_bear_is_given_up_after_some_connections(tmp_path: Path) -> None:
    ledger = MessageLedger()
    playback = Playback(
        RecordFile(record(tmp_path / "a.edl", [heard(n) for n in range(1, 100, 3)])), ledger, PlaybackOptions(None)
    )
    playback.begin(0)
    (station,) = playback.wake(0)
    station.session.is_clean = True  # as after the connection that wipes
    now = 0
    for _ in range(FRUITLESS_MAX + 1):
        answer(station, now, ConnAck(True))
        for _ in range(2):  # until a window's worth is on its way, and as much waits
            playback.wake(now)
            station.wake(now)
        assert (playback.due is None) == (station.session.connections_without_ack <= FRUITLESS_MAX)
        station.ended("connection lost", now)
        now += 60 * SECOND
        station.wake(now)
    playback.wake(now)
    assert dict(ledger.failures) == {f"refused: {FRUITLESS_MAX} connections ended over it": 1}
    assert next(iter(station.session.in_flight)) == 2
    assert playback.has_ended


@pytest.mark.parametrize("kept", [True, False])
def test_a_recorder_comes_back_and_says_what_it_missed(tmp_path: Path, kept: bool) -> None:
    said: list[str] = []
    address = BrokerAddress.parse("127.0.0.1:1")
    recorder = Recorder(address, DeviceDialect.V5, ANYONE, RecordOptions(messages=2), tmp_path / "a.edl", said.append)
    station = recorder.station
    station.session.is_clean = True  # as after the connection that wipes
    station.begin(0)
    answer(station, 0, ConnAck(), SubAck(1, [2]), Publish("a", b"1"))
    station.ended("connection lost", 2 * SECOND)
    answer(station, 3 * SECOND, ConnAck(kept), *([] if kept else [SubAck(2, [2])]), Publish("a", b"2"))
    assert recorder.has_ended
    assert [(gap.at_us, gap.reason, gap.kept) for gap in recorder.gaps] == [(2 * SECOND, "connection lost", kept)]
    assert ("QoS 0 is missing" in said[-1]) == kept
    recorder.close()
    assert [said.payload for said in RecordFile(tmp_path / "a.edl").messages_in_order()] == [b"1", b"2"]


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_recording_is_read_as_far_as_it_is_intact(tmp_path: Path, seed: int) -> None:
    """`pytest tests/spec/test_recording.py -k "intact and [SEED]"` repeats it."""
    random, path = Random(seed), tmp_path / "a.edl"
    messages = [heard(number, random.randbytes(random.randrange(40)), "probe") for number in range(60)]
    writer = RecordWriter(path, "broker")
    for number, message in enumerate(messages):
        writer.add(message)
        if number % 15 == 14:
            writer.flush()
    writer.close()
    data = bytearray(path.read_bytes())
    for _ in range(random.randrange(1, 6)):
        match random.randrange(3):
            case 0:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            case 1:
                del data[random.randrange(len(data)) :]
            case _:
                at = random.randrange(len(data))
                data[at:at] = random.randbytes(random.randrange(20))
        if not data:
            break
    path.write_bytes(data)
    try:
        recording = RecordFile(path)
    except InputInvalid:
        return  # nothing of it is left
    found = list(recording.messages_in_order())
    assert recording.damage
    assert len(found) == recording.messages
    assert [message for message in messages if message in found] == found, "whole, once, and in order"
