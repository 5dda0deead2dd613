"""docs/link-vectors.toml, in both directions: its bytes are what is written, and what is read of them is what was
meant.

Bytes that differ are another version of the protocol.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from edgebroker.header import Header
from edgebroker.interest import Interest
from edgebroker.overlay.classes import Service
from edgebroker.overlay.link.bodies import alone, read_alone
from edgebroker.overlay.link.cbor import CborReader
from edgebroker.overlay.link.flows import FlowReader, FlowWriter
from edgebroker.overlay.link.frames import FrameReader, FrameWriter, Item, Numbered, Said, Word, word
from edgebroker.overlay.link.hello import (
    Heard,
    Hello,
    HelloRefused,
    Refusal,
    decode_hello,
    encode_hello,
    encode_refusal,
)
from edgebroker.overlay.link.records import (
    StoredLinks,
    entry_record,
    heard_record,
    reserved_record,
    settled_record,
    spent_record,
)
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    ClusterBits,
    ClusterBitsHeld,
    Crowded,
    Differ,
    Digest,
    Forward,
    Message,
    Recall,
    Recalled,
    Relay,
    Restate,
    Series,
    Told,
    Unadvertise,
    Unreached,
    Withdraw,
)
from edgebroker.predicate import ANY_ONE, ANY_RUN, ElementaryTest, Interval, Kind, Pattern
from edgebroker.topics import TopicFilter

FILE = Path(__file__).resolve().parents[2] / "docs" / "link-vectors.toml"

PUBLISHER = 3 << 22 | 7
READING = Forward(
    Header(PUBLISHER, 1, 3 << 22 | 1, 2, epoch=9, published_ms=1_800_000_000_000),
    "plant/press-7/temp",
    b'{"t":21.5}',
    1,
    False,
    "press-7",
)


def later(forward: Forward, step: int, delay: int, payload: bytes, **changes: Any) -> Forward:
    old = forward.header
    header = Header(
        old.publisher,
        old.sequence + step,
        old.adv,
        old.hc,
        changes.pop("civ", old.civ),
        old.epoch,
        published_ms=old.published_ms + delay,
    )
    return Forward(header, forward.topic, payload, forward.qos, forward.retain, forward.client, **changes)


EVENTS = [
    READING,
    later(READING, 1, 1_000, b'{"t":21.6}'),
    later(READING, 3, 61_000, b"x" * 30),
    later(
        READING, 4, 61_500, b"", civ=5, user=(("site", "north"),), expires_in_ms=60_000, was_marked=True, passed=(4,)
    ),
    later(READING, 2, 1_500, b"late", civ=5, user=(("site", "north"),), was_marked=True, passed=(4,)),
    Forward(Header(PUBLISHER, 6, 0, 2, published_ms=1_800_000_000_000), "t/" + "long" * 300, b"", 0, True, "press-7"),
]
SERIES = Series(
    Forward(
        Header(PUBLISHER, 7, 3 << 22 | 1, 2, epoch=9, published_ms=1_800_000_062_000), "t", b"onetwosix", 0, False, "p"
    ),
    3,
)
INTEREST = Interest(
    TopicFilter.parse("plant/+/temp"),
    (
        ElementaryTest("$qos", Kind.NUMBER, (Interval(None, False, 1, False), Interval(1, False, None, False))),
        ElementaryTest("gone", Kind.NULL),
        ElementaryTest(
            "name",
            Kind.STRING,
            (Interval("p", True, "q", False),),
            (Pattern((ANY_RUN, "x", ANY_ONE), True),),
        ),
        ElementaryTest("ok", Kind.BOOLEAN, (Interval(True, True, True, True),)),
        ElementaryTest("t", Kind.NUMBER, (Interval(30.5, False, 1 << 70, True),)),
        ElementaryTest("unit", Kind.NOT_NULL),
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
    "cluster-bits-held": ClusterBitsHeld(2, 1 << 40),
    "digest": Digest(Told.INTERESTS, 9, 3, 0xFEDC_BA98_7654_3210),
    "differ": Differ(Told.ADVERTISEMENTS, (0, (1 << 64) - 1)),
    "restate": Restate(Told.ADVERTISEMENTS, 4, 3, 9, (), (ADVERTISE,)),
    "recall": Recall(3 << 22 | 5, PLAIN),
    "recalled": Recalled(3 << 22 | 5, READING),
    "unreached": Unreached(3, 12, (4, 1_023)),
    "relay": Relay(3, 4, 7, Withdraw((PLAIN,), 1)),
    "relayed-event": Relay(3, 4, 7, READING),
    "crowded": Crowded(3, 1 << 33, 4, (INTEREST, PLAIN)),
    "event-alone": READING,
}
WORDS: dict[str, tuple[Word, list[Any]]] = {
    "ack": (Word.ACK, [0, 12, 1, 1 << 33]),
    "ping": (Word.PING, [1]),
    "pong": (Word.PONG, [1, 1_800_000_000_000_000, 0]),
    "next": (Word.NEXT, [2, 1_048_577]),
    "bye": (Word.BYE, [0, "the gateway stops"]),
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
    Heard(b"\x33" * 8, b"\x44" * 8, {Service.CONTROL: 4, Service.LIVE: 1_048_577}),
    frozenset(("crowded", "deflate", "series")),
)
REFUSED = HelloRefused(Refusal.TOPOLOGY, "the topologies of gw-b1 and gw-a1 differ in topology")


def written() -> dict[str, bytes]:
    """Everything as this implementation writes it."""
    flows, frames = FlowWriter(), FrameWriter(False)
    items = [flows.write(event, int(Service.LIVE), event.expires_in_ms) for event in EVENTS]
    series = [flows.write_series(SERIES, int(Service.LIVE)), flows.write(after(SERIES), int(Service.LIVE), None)]
    frames.add(word(*flat(WORDS["next"])))
    frames.add(items[0])
    frames.add(items[1])
    return {
        "hello": encode_hello(HELLO),
        "refusal": encode_refusal(REFUSED),
        "frame": frames.take(),
        **{f"event-{number}": item for number, item in enumerate(items, 1)},
        "series": series[0],
        "event-after-series": series[1],
        **{name: word(*flat(each)) for name, each in WORDS.items()},
        **{name: alone(message, service_of(message)) for name, message in MESSAGES.items()},
        "record-entry": entry_record("gw-b1", Service.LIVE, 9, 1_800_000_060_000_000, alone(READING, Service.LIVE)),
        "record-settled": settled_record("gw-b1", Service.LIVE, 9),
        "record-heard": heard_record("gw-b1", b"\x44" * 8, {Service.LIVE: 9, Service.BACKLOG: 2}),
        "record-reserved": reserved_record("gw-b1", 1_048_577),
        "record-spent": spent_record("gw-b1", 20_833, 1_000_000),
    }


def after(series: Series) -> Forward:
    """The next event of the flow."""
    *_, last = series.events()
    return later(last, 1, 5, b"ten")


def flat(each: tuple[Word, list[Any]]) -> tuple[Any, ...]:
    return each[0], *each[1]


def service_of(message: Message) -> Service:
    return Service.LIVE if isinstance(message, Forward | Relay) else Service.CONTROL


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
        reader = CborReader(file[f"event-{number}"])
        assert flows.read(reader, reader.array()) == event
        assert reader.at == len(reader.data)
    for name, event in (("series", SERIES), ("event-after-series", after(SERIES))):
        reader = CborReader(file[name])
        assert flows.read(reader, reader.array()) == event


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_read(name: str) -> None:
    assert read_alone(vectors()[name]) == (MESSAGES[name], service_of(MESSAGES[name]))


@pytest.mark.parametrize("name", WORDS)
def test_words_are_read(name: str) -> None:
    item = vectors()[name]
    assert read(FrameReader(False), len(item).to_bytes(4) + item) == [Said(*WORDS[name])]


def test_hellos_are_read() -> None:
    assert decode_hello(vectors()["hello"]) == HELLO
    with pytest.raises(HelloRefused, match=str(REFUSED)) as caught:
        decode_hello(vectors()["refusal"])
    assert caught.value.code is REFUSED.code


def test_frames_are_read() -> None:
    items = [Said(*WORDS["next"]), Numbered(Service.LIVE, EVENTS[0]), Numbered(Service.LIVE, EVENTS[1])]
    assert read(FrameReader(False), vectors()["frame"]) == items
    reader = FrameReader(True)
    assert read(reader, vectors()["deflated-1"]) == items
    assert read(reader, vectors()["deflated-2"]) == [Numbered(Service.LIVE, EVENTS[2])]


def test_records_are_read() -> None:
    stored, file = StoredLinks(), vectors()
    for name in ("record-entry", "record-heard", "record-reserved", "record-spent"):
        assert stored.apply(file[name])
    link = stored.links["gw-b1"]
    assert link.entries == {Service.LIVE: {9: (1_800_000_060_000_000, file["event-alone"])}}
    assert (link.store, link.heard) == (b"\x44" * 8, {Service.LIVE: 9, Service.BACKLOG: 2})
    assert link.reserved == 1_048_577
    assert (link.day, link.spent) == (20_833, 1_000_000)
    assert stored.apply(file["record-settled"])
    assert (link.entries, link.last, stored.misunderstood) == ({Service.LIVE: {}}, {Service.LIVE: 9}, 0)
