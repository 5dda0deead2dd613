"""What one end of a link writes, the other reads: every kind of message, alone, in frames, however they are cut."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, get_args

import cbor2
import pytest

from edgebroker.cbor import CborReader, encode_cbor
from edgebroker.overlay.link.class_queue import events_of
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.events import (
    NAMES_BYTES_MAX,
    RELIABLE_SERIES_MAX,
    SLOTS_MAX,
    AloneWriter,
    FlowReader,
    FlowWriter,
)
from edgebroker.overlay.link.codec.frames import FrameReader, FrameWriter, Item, NumberedMessage
from edgebroker.overlay.link.codec.messages import LINK_CBOR, alone, body, read_alone
from edgebroker.overlay.link.journal_records import EntryRow, LinkRecordKind, StoredLinks, entries_record, entry_record
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.overlay.traffic_class import TrafficClass

from .link.samples import SOME, some_forward, some_message, some_series


def test_there_are_samples_of_every_kind() -> None:
    assert set(SOME) == set(get_args(Message)) - {EventSeries}  # they do not stand alone: `some_series`


def expires_of(message: Message) -> int | None:
    return message.expires_in_ms if isinstance(message, Forward) else None


def test_a_message_alone_is_read_as_it_was_written(chance: Random) -> None:
    for _ in range(2_000):
        message, service = some_message(chance), chance.choice(list(TrafficClass)[1:])
        assert read_alone(alone(message, service, expires_of(message))) == (message, service)


def test_an_entry_in_the_journal_is_the_cbor_that_others_write(chance: Random) -> None:
    """It is written by hand, for every message that waits for a peer."""
    for _ in range(2_000):
        peer = "".join(chance.choices("gw-ä7", k=chance.randrange(1, 40)))
        number, until = chance.getrandbits(chance.randrange(1, 65)), chance.getrandbits(chance.randrange(1, 61))
        values = [
            peer,
            chance.choice(list(TrafficClass)),
            number,
            chance.choice([None, until]),
            bytes(chance.randrange(300)),
        ]
        assert entry_record(*values) == bytes((LinkRecordKind.ENTRY,)) + cbor2.dumps(
            [peer, int(values[1]), *values[2:]]
        )


def test_a_record_for_several_links_says_what_one_record_for_each_says(chance: Random) -> None:
    for _ in range(500):
        event = some_forward(chance)
        expires_at = chance.choice([None, chance.getrandbits(50)])
        together, apart = StoredLinks(), StoredLinks()
        rows = []
        for peer in chance.sample("abcdefgh", chance.randrange(1, 8)):
            service, number = chance.choice([TrafficClass.LIVE, TrafficClass.BACKLOG]), chance.getrandbits(40)
            marked = None if chance.random() < 0.5 else remarked(chance, event)
            rows.append(EntryRow(peer, service, number, marked))
            item = alone(marked or event, TrafficClass.LIVE, event.expires_in_ms)
            assert apart.apply(entry_record(peer, service, number, expires_at, item))
        item = alone(event, TrafficClass.LIVE, event.expires_in_ms)
        assert together.apply(entries_record(rows, expires_at, item))
        assert together.misunderstood == apart.misunderstood == 0
        assert together.links == apart.links


def remarked(chance: Random, event: Forward) -> Forward:
    """The copy of *event* for a link on a detour."""
    return replace(
        event,
        header=replace(event.header, civ=chance.getrandbits(16)),
        walked=chance.getrandbits(8),
        was_marked=chance.random() < 0.5,
        passed=tuple(chance.getrandbits(16) for _ in range(chance.randrange(3))),
    )


@pytest.mark.parametrize(
    "copies",
    [
        [["a", 2, 1, 0, 0, True]],
        [["a", 2, 1], ["b", 99, 1]],
        [["a", 2, 1], ["b", 2, -1]],
        [["a", 2, 1], 7],
        [["a", 2, 1], ["b", 2, 1, 1 << 16, 0, True, []]],
        [["a", 2, 1], ["b", 2, 1, 0, 1 << 8, True, []]],
        [["a", 2, 1], ["b", 2, 1, 0, 0, True, ["c"]]],
    ],
    ids=str,
)
def test_a_record_with_a_copy_that_is_none_is_left_out_whole(copies: list[Any], chance: Random) -> None:
    stored = StoredLinks()
    item = alone(some_forward(chance), TrafficClass.LIVE)
    assert stored.apply(bytes((LinkRecordKind.ENTRIES,)) + cbor2.dumps([None, item, copies]))
    assert stored.misunderstood == 1
    assert not stored.links


def test_a_message_that_ends_too_soon_or_too_late_is_refused(chance: Random) -> None:
    for kind in SOME:
        item = alone(SOME[kind](chance), TrafficClass.LIVE)
        for size in (*range(min(len(item), 200)), len(item) - 1):
            with pytest.raises(FrameBroken):
                read_alone(item[:size])
        with pytest.raises(FrameBroken):
            read_alone(item + b"\0")


def test_events_that_stand_alone_are_the_same_whoever_wrote_before(chance: Random) -> None:
    writer = AloneWriter()
    for _ in range(2_000):
        forward, service = some_forward(chance), chance.choice(list(TrafficClass)[1:])
        assert writer.write(forward, int(service)) == alone(forward, service)


def test_a_series_is_its_events(chance: Random) -> None:
    for _ in range(300):
        series = some_series(chance)
        events = list(series.events())
        first = series.first
        assert b"".join(event.payload for event in events) == first.payload
        assert [event.header.sequence for event in events] == [first.header.sequence + n for n in range(series.count)]
        assert {(event.topic, event.client, event.header.publisher, event.qos) for event in events} == {
            (first.topic, first.client, first.header.publisher, first.qos)
        }
        parts = list(series.parts(chance.choice([1, 30, 100, 10_000])))
        assert [event for part in parts for event in events_of(part)] == events


@pytest.mark.parametrize("deflates", [False, True])
def test_frames_are_read_however_they_are_cut(deflates: bool, chance: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """And in however many turns."""
    monkeypatch.setattr("edgebroker.overlay.link.codec.frames.ITEMS_PER_TURN", 10)
    turns = 0
    flows, writer, reader = FlowWriter(), FrameWriter(deflates), FrameReader(deflates)
    written: list[tuple[TrafficClass, Message]] = []
    read: list[tuple[TrafficClass, Message]] = []
    stream = bytearray()
    for _ in range(1_500):
        message, service = some_message(chance), chance.choice(list(TrafficClass)[1:])
        if chance.random() < 0.1:
            message = some_series(chance)
        written.append((service, message))
        if isinstance(message, EventSeries):
            writer.add(flows.write_series(message, int(service)))
        elif isinstance(message, Forward):
            writer.add(flows.write(message, int(service), message.expires_in_ms))
        else:
            writer.add(body(message, service))
        if chance.random() < 0.3 or writer.size > 20_000:
            stream += writer.take()
    stream += writer.take()
    at = 0
    while at < len(stream):
        size = chance.choice([1, 3, 50, 2_000, 70_000])
        items: list[Item] = []
        reader.feed(bytes(stream[at : at + size]), items)
        while reader.has_more:
            turns += 1
            reader.feed(b"", items)
        for item in items:
            if isinstance(item, NumberedMessage):
                read.append((item.service, item.message))
            else:
                read.append((TrafficClass.LIVE, item))  # what has no number does not say its class
        at += size
    assert turns > 30
    assert [message for _, message in read] == [message for _, message in written]
    numbered = [(one, other) for one, other in zip(read, written, strict=True) if one[0] is not TrafficClass.LIVE]
    assert len(numbered) > 500
    assert all(one == other for one, other in numbered)


def test_both_ends_forget_the_same_flows(chance: Random) -> None:
    """Many more flows than slots, some of them with long names: memory stays bounded, and nothing is mistaken."""
    writer, reader = FlowWriter(), FlowReader()
    for number in range(4 * SLOTS_MAX):
        event: Forward | EventSeries
        if chance.random() < 0.2:
            event = some_series(chance, 2 * SLOTS_MAX)
            item = writer.write_series(event, int(TrafficClass.LIVE))
        else:
            event = some_forward(chance, 2 * SLOTS_MAX)
            item = writer.write(event, int(TrafficClass.LIVE), event.expires_in_ms)
        source = CborReader(item, LINK_CBOR)
        assert reader.read(source, source.array()) == event, number
    assert len(reader._slots) == len(writer._slots) == SLOTS_MAX
    assert len(writer._flows) < SLOTS_MAX
    assert all(len(flow.topic) <= NAMES_BYTES_MAX for flow in reader._slots[1:])


def some_value(chance: Random, depth: int = 0) -> object:
    kind = chance.randrange(6 if depth > 3 else 8)
    if kind == 6:
        return [some_value(chance, depth + 1) for _ in range(chance.randrange(5))]
    if kind == 7:
        return {chance.choice([number, str(number)]): some_value(chance, depth + 1) for number in range(3)}
    return chance.choice(
        [
            None,
            chance.random() < 0.5,
            chance.choice([1, -1]) * chance.getrandbits(chance.choice([3, 8, 16, 32, 64, 65, 200])),
            chance.choice([0.0, -1.5, 1e300, float("-inf"), chance.random()]),
            chance.randbytes(chance.choice([0, 3, 30, 300])),
            "ü" * chance.choice([0, 1, 20, 200]),
        ]
    )


def test_what_cbor2_writes_is_read_as_it_was_and_written_alike(chance: Random) -> None:
    for _ in range(2_000):
        value = some_value(chance)
        assert encode_cbor(value) == cbor2.dumps(value)
        for canonical in (False, True):  # canonical: floats as short as they can be
            reader = CborReader(cbor2.dumps(value, canonical=canonical), LINK_CBOR)
            assert reader.item() == value
            assert reader.at == len(reader.data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "18",
        "9fff",
        "bfff",
        "5f4100ff",
        "1c",
        "f7",
        "f800",
        "ff",
        "c000",
        "d8204161",
        "62c328",
        "a1f600",
        "a200000000",
        "9b7fffffffffffffff",
        "5b7fffffffffffffff",
        "fb00",
        "b841" + "0000" * 0x41,
        "81" * 13 + "00",
    ],
)
def test_what_is_not_spoken_here_is_refused(text: str) -> None:
    with pytest.raises(FrameBroken):
        CborReader(bytes.fromhex(text), LINK_CBOR).item()


SERIES = bytes.fromhex("8601010143616263a003")  # three payloads of one byte each, on slot 1


@pytest.mark.parametrize(
    "item",
    [
        "8601010143616263a002",  # no two payloads of one size
        "8601010143616263a004",
        "8601010143616263a001",  # one event is no series
        "8601010143616263a000",
        "8601010140a003",  # nothing in them
        "8601010143616263a103011a",  # cut off
        "8601010143616263a1040203",  # QoS 2
        "8601010143616263a105f503",  # retained
        "8601010143616263a1130503",  # of use for 5 ms
        "8601" + "1afffffffd" + "0143616263a003",  # past the last sequence
        "8602010143616263a003",  # of a slot of which nothing was told
    ],
)
def test_what_is_no_series_is_refused(item: str) -> None:
    def reader() -> FlowReader:
        flows = FlowReader()
        told = CborReader(bytes.fromhex("8501010140a2006174011903e7"), LINK_CBOR)
        flows.read(told, told.array())
        return flows

    good = CborReader(SERIES, LINK_CBOR)
    series = reader().read(good, good.array())
    assert isinstance(series, EventSeries)
    assert (series.count, series.first.payload, series.first.header.sequence) == (3, b"abc", 2)
    source = CborReader(bytes.fromhex(item), LINK_CBOR)
    with pytest.raises(FrameBroken):
        reader().read(source, source.array())


def test_a_series_of_qos_1_has_a_bound_and_stands_alone_in_the_journal_only(chance: Random) -> None:
    series = replace(some_series(chance), count=RELIABLE_SERIES_MAX)
    series = replace(series, first=replace(series.first, payload=bytes(series.count), qos=1, topic="t", client="c"))
    item = alone(series, TrafficClass.BULK)
    assert read_alone(item, may_be_series=True) == (series, TrafficClass.BULK)
    longer = replace(series, first=replace(series.first, payload=bytes(series.count + 1)), count=series.count + 1)
    bare = replace(series, first=replace(series.first, qos=0))
    for each, is_journal in ((series, False), (longer, True), (bare, True)):
        with pytest.raises(FrameBroken):
            read_alone(alone(each, TrafficClass.BULK), is_journal)


def test_a_series_does_not_stand_alone() -> None:
    with pytest.raises(FrameBroken, match="alone"):
        read_alone(bytes.fromhex("8601010143616263a200617401070a")[:-1] + b"\x03")
