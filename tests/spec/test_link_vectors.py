"""docs/link-vectors.toml, in both directions: its bytes are what is written, and what is read of them is what was
meant.

Bytes that differ are another version of the protocol.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cbor import CborReader
from edgebroker.header import EventHeader
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.events import FlowReader, FlowWriter
from edgebroker.overlay.link.codec.frames import (
    FrameReader,
    FrameWriter,
    Item,
    LinkSignal,
    NumberedMessage,
    SignalCode,
    signal_item,
)
from edgebroker.overlay.link.codec.messages import LINK_CBOR, alone, read_alone
from edgebroker.overlay.link.handshake import (
    Hello,
    HelloRefused,
    ReceiveState,
    RefusalCode,
    decode_hello,
    encode_hello,
    encode_refusal,
)
from edgebroker.overlay.link.journal_records import (
    EntryRow,
    StoredLinks,
    entries_record,
    entry_record,
    received_record,
    reserved_record,
    settled_record,
    spent_record,
)
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    Backpressure,
    ClusterBits,
    ClusterBitsAck,
    ConditionalRetainedQuery,
    Differ,
    Digest,
    EventSeries,
    Forward,
    GroupCount,
    GroupMembers,
    InterestFlush,
    InterestFlushed,
    LinkStateUpdate,
    Message,
    PendingWill,
    PendingWills,
    Relay,
    Restate,
    RetainedDigest,
    RetainedQuery,
    RetainedReply,
    RetainedUnmodified,
    SendAgain,
    StateKind,
    StatusQuery,
    StatusReply,
    Unadvertise,
    Withdraw,
)
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import ANY_ONE, ANY_RUN, ElementaryTest, Interval, Pattern, ValueType
from edgebroker.topics import TopicFilter
from edgebroker.trace_records import (
    QueueDelays,
    TraceInformationAnswer,
    TraceInformationRequest,
    TraceRecord,
)

FILE = Path(__file__).resolve().parents[2] / "docs" / "link-vectors.toml"

PUBLISHER = 3 << 22 | 7
READING = Forward(
    EventHeader(PUBLISHER, 1, 3 << 22 | 1, 2, epoch=9, published_ms=1_800_000_000_000),
    "plant/press-7/temp",
    b'{"t":21.5}',
    1,
    False,
    "press-7",
)


def later(forward: Forward, step: int, delay: int, payload: bytes, **changes: Any) -> Forward:
    old = forward.header
    header = EventHeader(
        old.publisher,
        old.sequence + step,
        old.adv,
        old.hc,
        changes.pop("civ", old.civ),
        old.epoch,
        published_ms=old.published_ms + delay,
    )
    return Forward(header, forward.topic, payload, forward.qos, forward.retain, forward.client, **changes)


ON_A_DETOUR = later(READING, 0, 0, READING.payload, civ=5, was_marked=True)
EVENTS = [
    READING,
    later(READING, 1, 1_000, b'{"t":21.6}'),
    later(READING, 3, 61_000, b"x" * 30),
    later(
        READING, 4, 61_500, b"", civ=5, user=(("site", "north"),), expires_in_ms=60_000, was_marked=True, passed=(4,)
    ),
    later(READING, 2, 1_500, b"late", civ=5, user=(("site", "north"),), was_marked=True, passed=(4,)),
    Forward(
        EventHeader(PUBLISHER, 6, 0, 2, published_ms=1_800_000_000_000), "t/" + "long" * 300, b"", 0, True, "press-7"
    ),
]
SERIES = EventSeries(
    Forward(
        EventHeader(PUBLISHER, 7, 3 << 22 | 1, 2, epoch=9, published_ms=1_800_000_062_000),
        "t",
        b"onetwosix",
        0,
        False,
        "p",
    ),
    3,
)
RELIABLE_SERIES = replace(SERIES, first=replace(SERIES.first, qos=1))
INTEREST = Interest(
    TopicFilter.parse("plant/+/temp"),
    (
        ElementaryTest("$qos", ValueType.NUMBER, (Interval(None, False, 1, False), Interval(1, False, None, False))),
        ElementaryTest("gone", ValueType.NULL),
        ElementaryTest(
            "name",
            ValueType.STRING,
            (Interval("p", True, "q", False),),
            (Pattern((ANY_RUN, "x", ANY_ONE), True),),
        ),
        ElementaryTest("ok", ValueType.BOOLEAN, (Interval(True, True, True, True),)),
        ElementaryTest("t", ValueType.NUMBER, (Interval(30.5, False, 1 << 70, True),)),
        ElementaryTest("unit", ValueType.NOT_NULL),
    ),
)
PLAIN = Interest(TopicFilter.parse("#"), ())
ADVERTISE = Advertise(3 << 22 | 1, PUBLISHER, "press-7", TopicFilter.parse("plant/press-7/#"), 2, 60, True)
MESSAGES: dict[str, Message] = {
    "announce": Announce((INTEREST, PLAIN), 65_535),
    "withdraw": Withdraw((PLAIN,), 0),
    "advertise": ADVERTISE,
    "unadvertise": Unadvertise((1, 1 << 31)),
    "cluster-bits": ClusterBits((ADVERTISE.adv,), 2, 1 << 40, True, (PLAIN,)),
    "cluster-bits-cleared": ClusterBits((), 15, 1, False, None),
    "cluster-bits-held": ClusterBitsAck(2, 1 << 40),
    "digest": Digest(StateKind.INTERESTS, 9, 3, 0xFEDC_BA98_7654_3210),
    "differ": Differ(StateKind.ADVERTISEMENTS, (0, (1 << 64) - 1)),
    "restate": Restate(StateKind.ADVERTISEMENTS, 4, 3, 9, (), (ADVERTISE,)),
    "recall": RetainedQuery(3 << 22 | 5, PLAIN),
    "recalled": RetainedReply(3 << 22 | 5, READING),
    "unreached": LinkStateUpdate(3, 12, (4, 1_023)),
    "relay": Relay(3, 4, 7, Withdraw((PLAIN,), 1)),
    "relayed-event": Relay(3, 4, 7, READING),
    "crowded": Backpressure(3, 1 << 33, 4, (INTEREST, PLAIN)),
    "status-query": StatusQuery(3 << 22 | 6),
    "status-reply": StatusReply(3 << 22 | 6, 4, b'{"links": []}'),
    "interest-flush": InterestFlush(3 << 22 | 7),
    "interest-flushed": InterestFlushed(3 << 22 | 7),
    "send-again": SendAgain(bytes(range(8)), (1, 1_048_600, 2, 7)),
    "conditional-recall": ConditionalRetainedQuery(3 << 22 | 8, PLAIN, (RetainedDigest(4, (0, (1 << 64) - 1)),)),
    "pending-wills": PendingWills(
        1_800_000_000,
        True,
        False,
        (PendingWill("press-7", 5, False, 1, True, "plant/press-7", b"off", b""),),
        ("press-8",),
    ),
    "group-members": GroupMembers(3, 1 << 33, (GroupCount("$share/workers/jobs/#", 2, 1),)),
    "unmodified": RetainedUnmodified(3 << 22 | 8, 4, b"\x02"),
    "trace-request": TraceInformationRequest(PUBLISHER, 801, 31),
    "trace-answer": TraceInformationAnswer(
        PUBLISHER,
        801,
        (
            TraceRecord("gw-b1", 0b1_0000_0001, 3, 100, 1, QueueDelays(120, 45, 0, {"gw-a1": 300}, {"gw-a1": 15_000})),
            TraceRecord("gw-b2", 0, 0, 2, 0, QueueDelays()),
        ),
        False,
    ),
    "event-alone": READING,
    "event-in-order": replace(READING, predecessors=((0, 1), (2, 0))),
}
WORDS: dict[str, tuple[SignalCode, list[Any]]] = {
    "ack": (SignalCode.ACK, [0, 12, 1, 1 << 33]),
    "ping": (SignalCode.PING, [1]),
    "pong": (SignalCode.PONG, [1, 1_800_000_000_000_000, 0]),
    "next": (SignalCode.NEXT, [2, 1_048_577]),
    "bye": (SignalCode.BYE, [0, "the gateway stops"]),
}
HELLO = Hello(
    "field",
    "gw-a1",
    3,
    {"topology": bytes.fromhex("0123456789abcdef")},
    b"\x11" * 8,
    b"\x22" * 8,
    7,
    "gw-b1",
    ReceiveState(b"\x33" * 8, b"\x44" * 8, {TrafficClass.CONTROL: 4, TrafficClass.LIVE: 1_048_577}),
    frozenset(("crowded", "deflate", "series")),
)
REFUSED = HelloRefused(RefusalCode.TOPOLOGY, "the topologies of gw-b1 and gw-a1 differ in topology")


def written() -> dict[str, bytes]:
    """Everything as this implementation writes it."""
    flows, frames = FlowWriter(), FrameWriter(False)
    items = [flows.write(event, int(TrafficClass.LIVE), event.expires_in_ms) for event in EVENTS]
    series = [
        flows.write_series(SERIES, int(TrafficClass.LIVE)),
        flows.write(after(SERIES), int(TrafficClass.LIVE), None),
    ]
    frames.add(signal_item(*flat(WORDS["next"])))
    frames.add(items[0])
    frames.add(items[1])
    return {
        "hello": encode_hello(HELLO),
        "refusal": encode_refusal(REFUSED),
        "frame": frames.take(),
        **{f"event-{number}": item for number, item in enumerate(items, 1)},
        "series": series[0],
        "event-after-series": series[1],
        "series-qos1": alone(RELIABLE_SERIES, TrafficClass.LIVE),
        **{name: signal_item(*flat(each)) for name, each in WORDS.items()},
        **{name: alone(message, service_of(message)) for name, message in MESSAGES.items()},
        "record-entry": entry_record(
            "gw-b1", TrafficClass.LIVE, 9, 1_800_000_060_000_000, alone(READING, TrafficClass.LIVE)
        ),
        "record-entry-series": entry_record(
            "gw-b1", TrafficClass.LIVE, 12, None, alone(RELIABLE_SERIES, TrafficClass.LIVE)
        ),
        "record-entries": entries_record(
            [
                EntryRow("gw-b1", TrafficClass.LIVE, 9),
                EntryRow("gw-c1", TrafficClass.BACKLOG, 4),
                EntryRow("gw-d1", TrafficClass.LIVE, 7, ON_A_DETOUR),
            ],
            None,
            alone(READING, TrafficClass.LIVE),
        ),
        "record-settled": settled_record("gw-b1", TrafficClass.LIVE, 9),
        "record-heard": received_record("gw-b1", b"\x44" * 8, {TrafficClass.LIVE: 9, TrafficClass.BACKLOG: 2}),
        "record-reserved": reserved_record("gw-b1", 1_048_577),
        "record-spent": spent_record("gw-b1", 20_833, 1_000_000),
    }


def after(series: EventSeries) -> Forward:
    """The next event of the flow."""
    *_, last = series.events()
    return later(last, 1, 5, b"ten")


def flat(each: tuple[SignalCode, list[Any]]) -> tuple[Any, ...]:
    return each[0], *each[1]


def service_of(message: Message) -> TrafficClass:
    return TrafficClass.LIVE if isinstance(message, Forward | Relay) else TrafficClass.CONTROL


def vectors() -> dict[str, bytes]:
    table = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {name: bytes.fromhex(each["hex"]) for name, each in table.items()}


def test_what_is_written_is_what_the_file_says() -> None:
    file = vectors()
    deflated = {"deflated-1", "deflated-2"}  # another release of zlib may write the same in other bytes
    assert {name: data.hex() for name, data in written().items()} == {
        name: data.hex() for name, data in file.items() if name not in deflated
    }


def read(reader: FrameReader, data: bytes) -> list[Item]:
    items: list[Item] = []
    reader.feed(data, items)
    return items


def test_events_are_read() -> None:
    flows, file = FlowReader(), vectors()
    for number, event in enumerate(EVENTS, 1):
        reader = CborReader(file[f"event-{number}"], LINK_CBOR)
        assert flows.read(reader, reader.array()) == event
        assert reader.at == len(reader.data)
    for name, event in (("series", SERIES), ("event-after-series", after(SERIES))):
        reader = CborReader(file[name], LINK_CBOR)
        assert flows.read(reader, reader.array()) == event
    assert read_alone(file["series-qos1"], may_be_series=True) == (RELIABLE_SERIES, TrafficClass.LIVE)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_read(name: str) -> None:
    assert read_alone(vectors()[name]) == (MESSAGES[name], service_of(MESSAGES[name]))


@pytest.mark.parametrize("name", WORDS)
def test_words_are_read(name: str) -> None:
    item = vectors()[name]
    assert read(FrameReader(False), len(item).to_bytes(4) + item) == [LinkSignal(*WORDS[name])]


def test_hellos_are_read() -> None:
    assert decode_hello(vectors()["hello"]) == HELLO
    with pytest.raises(HelloRefused, match=str(REFUSED)) as caught:
        decode_hello(vectors()["refusal"])
    assert caught.value.code is REFUSED.code


def test_frames_are_read() -> None:
    items = [
        LinkSignal(*WORDS["next"]),
        NumberedMessage(TrafficClass.LIVE, EVENTS[0]),
        NumberedMessage(TrafficClass.LIVE, EVENTS[1]),
    ]
    assert read(FrameReader(False), vectors()["frame"]) == items
    reader = FrameReader(True)
    assert read(reader, vectors()["deflated-1"]) == items
    assert read(reader, vectors()["deflated-2"]) == [NumberedMessage(TrafficClass.LIVE, EVENTS[2])]


def test_records_are_read() -> None:
    stored, file = StoredLinks(), vectors()
    for name in ("record-entry", "record-heard", "record-reserved", "record-spent"):
        assert stored.apply(file[name])
    link = stored.links["gw-b1"]
    assert link.entries == {TrafficClass.LIVE: {9: (1_800_000_060_000_000, file["event-alone"])}}
    assert (link.store, link.received) == (b"\x44" * 8, {TrafficClass.LIVE: 9, TrafficClass.BACKLOG: 2})
    assert link.reserved == 1_048_577
    assert (link.day, link.spent) == (20_833, 1_000_000)
    assert stored.apply(file["record-entries"])
    entries = {peer: each.entries for peer, each in stored.links.items()}
    assert [*entries["gw-c1"][TrafficClass.BACKLOG]] == [4]
    _, item = entries["gw-d1"][TrafficClass.LIVE][7]
    assert read_alone(item) == (ON_A_DETOUR, TrafficClass.LIVE)
    assert entries["gw-b1"][TrafficClass.LIVE][9] == (None, file["event-alone"])
    assert stored.apply(file["record-entry-series"])
    assert entries["gw-b1"][TrafficClass.LIVE].pop(12) == (None, file["series-qos1"])
    assert stored.apply(file["record-settled"])
    assert (link.entries, link.last, stored.misunderstood) == ({TrafficClass.LIVE: {}}, {TrafficClass.LIVE: 12}, 0)
