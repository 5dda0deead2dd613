"""What another gateway says, and what the journal holds of links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import cbor2

from edgebroker.header import EventHeader
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.events import FlowWriter
from edgebroker.overlay.link.codec.frames import (
    FRAME_BYTES_MAX,
    FrameReader,
    FrameWriter,
    Item,
    LinkSignal,
    NumberedMessage,
    PartialMessage,
    SignalCode,
    signal_item,
)
from edgebroker.overlay.link.codec.messages import alone, body
from edgebroker.overlay.link.handshake import (
    HEAD_BYTES,
    MAGIC,
    GatewayIdentity,
    Hello,
    HelloRefused,
    ReceiveState,
    RefusalCode,
    decode_hello,
    encode_hello,
    encode_refusal,
    hello_bytes,
)
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.messages import Announce, EventSeries, Forward, Message, Relay, Unadvertise
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import ElementaryTest, Interval, Pattern, ValueType
from edgebroker.topics import TopicFilter
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

HELLO = Hello(
    "f", "a", 0, {"t": b"d"}, b"r" * 8, b"s" * 8, 1, "b", ReceiveState(b"R" * 8, b"S" * 8, {TrafficClass.LIVE: 3})
)
HERE = GatewayIdentity("f", "b", 1, {"t": b"d"}, {"a": 0}, b"R" * 8, b"S" * 8)
READING = Forward(EventHeader(7, 1, 1, 2, published_ms=1 << 40), "a/b", b'{"t":1}', 1, False, "c")
TESTS = (
    ElementaryTest("n", ValueType.NUMBER, (Interval(1, True, 2, False), Interval(3, True, None, False))),
    ElementaryTest("s", ValueType.STRING, (Interval("a", True, "b", True),), (Pattern(("a", 0), False),)),
)
INTEREST = Interest(TopicFilter.parse("a/+"), TESTS)


def gateway(deflates: bool) -> LinkTable:
    """A gateway with one peer."""
    options = LinkOptions(dials=False, deflates=deflates)
    return LinkTable(HERE, [Link("a", HERE, 0, lambda: 0.5, options)])


def read_stream(data: bytes) -> None:
    """All that comes over a connection, from its first byte. However it is cut, the same arrives."""
    told = []
    for size in (len(data) or 1, 7):
        links = gateway(True)
        stream = links.accept(0)
        for at in range(0, len(data), size):
            stream.feed(data[at : at + size], at)
            while stream.has_more:
                stream.feed(b"", at)
            stream.flush(at, 1 << 16)
        link = links["a"]
        link.handled(1)
        received = [event for event in link.take_events() if hasattr(event, "messages")]
        told.append((stream.is_over, [message for event in received for message in event.messages]))
    assert told[0] == told[1]


def stream_in_turns(data: bytes) -> Iterator[None]:
    """The reading alone, in one piece; clients have their turn whenever the stream says so."""
    links = gateway(True)
    stream = links.accept(0)
    yield
    stream.feed(data, 0)
    while stream.has_more:
        taken(links["a"])
        yield
        stream.feed(b"", 0)
    taken(links["a"])
    yield


def taken(link: Link) -> None:
    """What came is routed: it is not the link's any more."""
    link.handled(1)
    link.take_events()


def read_hello(data: bytes) -> None:
    """A hello alone."""
    if hello_bytes(data) == len(data):
        decode_hello(data)


def read_frames(data: bytes) -> None:
    """Frames alone; what they say can be said again."""
    items = [item for turn in turns_of(data) for item in turn]
    for item in items:
        if isinstance(item, LinkSignal):
            signal_item(item.code, *item.values)
        elif isinstance(item, NumberedMessage | PartialMessage):
            alone(item.message, item.service)
        elif isinstance(item, EventSeries):
            FlowWriter().write_series(item, int(TrafficClass.LIVE))
        else:
            alone(item, TrafficClass.LIVE)


def turns_of(data: bytes) -> Iterator[list[Item]]:
    """The items of all frames, turn by turn."""
    reader = FrameReader(True)
    items: list[Item] = []
    reader.feed(data, items)
    yield items
    while reader.has_more:
        items = []
        reader.feed(b"", items)
        yield items


def frames_in_turns(data: bytes) -> Iterator[object]:
    """The reading alone; what a turn brought is not kept."""
    yield
    for items in turns_of(data):
        items.clear()
        yield


def frame(*items: bytes, deflates: bool = False) -> bytes:
    """One frame."""
    writer = FrameWriter(deflates)
    for item in items:
        writer.add(item)
    return writer.take()


def event(forward: Forward) -> bytes:
    """The first event of a flow."""
    return FlowWriter().write(forward, int(TrafficClass.LIVE), None)


def series(first: Forward, count: int) -> bytes:
    """A series in a flow of its own."""
    return FlowWriter().write_series(EventSeries(first, count), int(TrafficClass.LIVE))


NEXT = b"".join(signal_item(SignalCode.NEXT, int(service), 9) for service in TrafficClass)
MESSAGES: tuple[Message, ...] = (Announce((INTEREST,), 1), Unadvertise((1, 2)), Relay(1, 2, 3, READING), READING)
ITEMS = (
    *(alone(message, TrafficClass.LIVE) for message in MESSAGES),
    event(READING) + bytes.fromhex("84010101417884010101417985010101417aa10003"),
    series(replace(READING, qos=0), len(READING.payload)) + bytes.fromhex("8601010143616263a0038501010140a10401"),
    signal_item(SignalCode.ACK, 0, 1, 1, 2),
    signal_item(SignalCode.PING, 1),
    signal_item(SignalCode.PONG, 1, 2, 3),
    signal_item(SignalCode.BYE, 0, "bye"),
    signal_item(SignalCode.PART, 1, False, alone(READING, TrafficClass.LIVE)[:20])
    + signal_item(SignalCode.PART, 1, True, alone(READING, TrafficClass.LIVE)[20:]),
)
HUGE = 1 << 16_000
"""More than 4,300 digits, of which Python writes none."""
HUGE_ITEMS = tuple(
    cbor2.dumps(item)
    for item in (
        [0, 1, 1, b"", {0: "t", 1: HUGE}],
        [0, 1, 1, b"", {HUGE: 1}],
        [int(SignalCode.ACK), 1, HUGE],
        [-11, 0, HUGE],
        [-9, 0, [["a", [["s", 4, [[HUGE, None, 1]], []]]]], 1],
    )
)
FRAMES = (*(frame(NEXT, item) for item in ITEMS), frame(NEXT, *ITEMS, deflates=True), frame(NEXT) + frame(*ITEMS))
DEFLATING = encode_hello(
    Hello(**{**{name: getattr(HELLO, name) for name in HELLO.__slots__}, "capabilities": {"deflate"}})
)
FRAMES += tuple(frame(item) for item in HUGE_ITEMS)
STREAMS = (encode_hello(HELLO) + FRAMES[0], *(DEFLATING + one for one in FRAMES), encode_hello(HELLO)[:9])
WORDS = (
    MAGIC,
    b"\x80\0\0\5",
    b"\0\0\xff\xff",
    *(bytes((0x20 + kind,)) for kind in range(22)),
    *(
        cbor2.dumps({number: value})
        for number, value in enumerate(("t", 1, "c", 3, 1, True, 1, 1, 1, 1, 1, 1, 1, [["k", "v"]]))
    ),
    b"\x85\x01\x01\x00\x40",
    b"\x84\x01\x01\x00\x40",
    b"\x86\x01\x01\x00\x42ab\xa0\x02",
)


def whole_frames(data: bytes) -> bytes:
    """*data* with lengths that lead from one frame to the next."""
    out, at = bytearray(), 0
    while at + 4 <= len(data):
        size = min(int.from_bytes(data[at : at + 4]) & 0x7FFF_FFFF, len(data) - at - 4, FRAME_BYTES_MAX)
        out += (data[at] >> 7 << 31 | size).to_bytes(4) + data[at + 4 : at + 4 + size]
        at += 4 + size
    return bytes(out)


def some_frames(chance: Random) -> bytes:
    """Items in any order."""
    items = [chance.choice(ITEMS) for _ in range(chance.randrange(1, 6))]
    return frame(NEXT, *items, deflates=chance.random() < 0.3)


def whole_hello(data: bytes) -> bytes:
    """*data* with the mark and the length of a hello."""
    rest = data[HEAD_BYTES:]
    return MAGIC + len(rest).to_bytes(2) + rest if len(rest) < 4_096 else data


HUGE_HELLOS = tuple(
    whole_hello(MAGIC + b"\0\0" + cbor2.dumps(cbor2.loads(encode_hello(HELLO)[HEAD_BYTES:]) | {field: value}))
    for field, value in ((0, HUGE), (3, HUGE), (6, HUGE), (10, [b"R" * 8, b"S" * 8, {HUGE: 1}]), (1, [HUGE, "x"]))
)


ROOM = BOMB_BYTES - 64


def one_frame(body: bytes) -> bytes:
    """*body* as a frame."""
    return len(body).to_bytes(4) + body


def letters(size: int) -> bytes:
    """A message of *size* bytes with interests of one letter each, as gateways made before they divided such."""
    return body(Announce((Interest(TopicFilter.parse("a"), ()),) * (size // 4 - 8), 1), 0)


def deflated(item: bytes) -> bytes:
    """*item* in frames that inflate to as much as they may."""
    writer = FrameWriter(True)
    out = bytearray(one_frame(NEXT + event(READING)))
    while len(out) < ROOM:
        for _ in range(300):
            writer.add(item)
        out += writer.take()
    return bytes(out[:BOMB_BYTES])


STEADY = bytes.fromhex("8401010040")
BOMBS = {
    "events without a payload": lambda: one_frame(NEXT + event(READING) + filled(STEADY, size=ROOM - 200)),
    "flows": lambda: one_frame(
        b"".join(cbor2.dumps([slot, 1, 1, b"", {0: "t", 1: 1}]) for slot in [*range(1_024), *range(1_024)] * 3)[
            : ROOM // 16 * 16
        ]
    ),
    "changes": lambda: one_frame(event(READING) + filled(bytes.fromhex("8501010040a10301"), size=ROOM - 200)),
    "user properties": lambda: one_frame(
        cbor2.dumps([0, 1, 1, b"", {0: "t", 1: 1, 13: [["", ""]] * (ROOM // 3 - 20)}])
    ),
    "as many as there may be": lambda: one_frame(
        b"".join(cbor2.dumps([slot, 1, 1, b"", {0: "t", 1: 1, 13: [["", ""]] * 2_048}]) for slot in range(10))
    ),
    "series of two": lambda: one_frame(
        series(replace(READING, qos=0), 7) + filled(bytes.fromhex("86010100426162a002"), size=ROOM - 200)
    ),
    "a series of many": lambda: one_frame(series(replace(READING, qos=0, payload=b"x" * (ROOM - 200)), ROOM - 200)),
    "empty frames": lambda: filled(bytes(4)),
    "pings": lambda: one_frame(filled(signal_item(SignalCode.PING, 1), size=ROOM)),
    "acknowledgements": lambda: one_frame(cbor2.dumps([-1, *[1, 1] * (ROOM // 2 - 4)])),
    "interests": lambda: one_frame(letters(ROOM)),
    "interests in parts": lambda: one_frame(
        b"".join(
            signal_item(SignalCode.PART, 0, at + 8_000 >= ROOM - 200, letters(ROOM - 200)[at : at + 8_000])
            for at in range(0, ROOM - 200, 8_000)
        )
    ),
    "interests in a relay": lambda: one_frame(cbor2.dumps([-21, 0, 1, 2, 3, letters(ROOM - 40), False])),
    "interests restated": lambda: one_frame(cbor2.dumps([-17, 0, 0, 1, 0, 1, [["a", []]] * (ROOM // 4 - 8), []])),
    "interests with tests": lambda: one_frame(
        cbor2.dumps([-9, 0, [["a", [["n", 2, [[1, 2, 3]], []]]]] * (ROOM // 14 - 8), 1])
    ),
    "one interest of too much": lambda: one_frame(cbor2.dumps([-9, 0, [["a", [["n", 2, [[]] * (ROOM - 20), []]]]], 1])),
    "intervals": lambda: one_frame(
        cbor2.dumps([-9, 0, [["a", [["n", 2, [[n, n, 3] for n in range(0, ROOM // 4, 2)][:6_000], []]]]], 1])
    ),
    "patterns": lambda: one_frame(
        cbor2.dumps([-9, 0, [["a", [["n", 3, [["", None, 1]], [[False, *[0, 1] * (ROOM // 2 - 20)]]]]]], 1])
    ),
    "lists in a word": lambda: one_frame(cbor2.dumps([-3, [[]] * (ROOM - 20)])),
    "empty lists": lambda: one_frame(b"\x83\x2b\0\x99\xff\0" + filled(b"\x80", size=0xFF00)),
    "parts": lambda: one_frame(filled(signal_item(SignalCode.PART, 1, False, b"x"), size=ROOM)),
}


SECTIONS = b"\xa2\x00\x01\x05\xb8\x40" + b"".join(b"\x62%02d\x58\x38" % number + bytes(56) for number in range(64))
TARGETS = (
    Target(
        "link",
        read_stream,
        STREAMS,
        (),
        WORDS,
        bombs={"pings": lambda: DEFLATING + BOMBS["pings"](), "events": lambda: DEFLATING + BOMBS["changes"]()},
        steps=stream_in_turns,
    ),
    Target(
        "link-hello",
        read_hello,
        (encode_hello(HELLO), DEFLATING, encode_refusal(HelloRefused(RefusalCode.TOPOLOGY, "x")), *HUGE_HELLOS),
        (FrameBroken, HelloRefused),
        WORDS,
        mend=whole_hello,
        bombs={"topology": lambda: whole_hello(MAGIC + b"\0\0" + SECTIONS)},
        plain=read_hello,
    ),
    Target(
        "link-frames",
        read_frames,
        FRAMES,
        (FrameBroken,),
        WORDS,
        some_frames,
        whole_frames,
        BOMBS,
        steps=frames_in_turns,
    ),
    Target(
        "link-deflated",
        read_frames,
        FRAMES,
        (FrameBroken,),
        WORDS,
        some_frames,
        whole_frames,
        {"events of a third of a byte": lambda: deflated(STEADY)},
        steps=frames_in_turns,
    ),
)
