"""What the journal holds of links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgebroker.filters import Filter
from edgebroker.header import EventHeader
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.messages import alone
from edgebroker.overlay.link.journal_entries import RepeatedEntries
from edgebroker.overlay.link.journal_records import (
    EntryRow,
    StoredLinks,
    delivered_record,
    entries_record,
    entry_record,
    held_record,
    interests_record,
    received_record,
    reserved_record,
    settled_record,
    spent_record,
)
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Forward, Relay
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import TopicFilter
from tests.fuzz.frame.target import Target, filled

from .links import HERE, READING
from .records import packed, records_of, within


def read_links(data: bytes) -> None:
    """Records of links in any order and of any content: a link begins with what they say, and says it again."""
    stored = StoredLinks()
    for record in records_of(data):
        if record:
            stored.apply(record)
    if (before := stored.links.get("a")) is None:
        return
    link = Link("a", HERE, 0, lambda: 0.5, stored=before, clock=1_000)
    again = StoredLinks()
    repeated = RepeatedEntries()
    for record in (*link.records(repeated), *repeated.records()):
        assert again.apply(record)
    assert again.misunderstood == 0
    waiting = {service: len(lane) for service, lane in link.outbox.queues.items() if len(lane)}
    assert waiting == {service: len(lane) for service, lane in again.links["a"].entries.items() if lane}


def applied(data: bytes) -> Iterator[None]:
    """The reading alone, of records that are at hand as recovery has them."""
    found = [record for record in records_of(data) if record]
    yield
    stored = StoredLinks()
    for record in found:
        stored.apply(record)
    yield


HOT = Filter.parse("x > 1 AND y LIKE 'a%b_'").predicates[0]


def small(number: int) -> Forward:
    """An event as small as there are."""
    return Forward(EventHeader(1, number, 0, 0), "a", b"", 0, False, "")


def interest(number: int) -> Interest:
    """One in all events of a topic."""
    return Interest(TopicFilter.parse(f"{number:x}"), ())


RECORDS = (
    entry_record("a", TrafficClass.LIVE, 1, None, alone(READING, TrafficClass.LIVE)),
    entry_record("a", TrafficClass.LIVE, 5, 1 << 50, alone(READING, TrafficClass.LIVE)),
    entry_record("a", TrafficClass.BACKLOG, 2, None, alone(Relay(1, 2, 3, READING), TrafficClass.BACKLOG)),
    entries_record(
        [
            EntryRow("a", TrafficClass.LIVE, 6),
            EntryRow("b", TrafficClass.BACKLOG, 1),
            EntryRow("c", TrafficClass.LIVE, 1, replace(READING, walked=1, was_marked=True, passed=(7,))),
        ],
        1 << 50,
        alone(READING, TrafficClass.LIVE),
    ),
    settled_record("a", TrafficClass.LIVE, 1),
    received_record("a", b"S" * 8, {TrafficClass.LIVE: 4}),
    spent_record("a", 20_000, 5),
    reserved_record("a", 1 << 20),
    settled_record("a", TrafficClass.LIVE, 1 << 16_000),
    held_record(small(1), True, 1 << 50),
    delivered_record((1, 1)),
    interests_record("a", [interest(1), interest(2)], [interest(1)]),
    interests_record("a", [Interest(TopicFilter.parse("a/#"), HOT)], []),
)


BROKEN = {
    "entries": lambda: packed(
        *(entry_record("a", TrafficClass.LIVE, number, None, RECORDS[0][-60:]) for number in range(1, 600))
    ),
    "entries of several links": lambda: within(filled(b"\0\x0f\x2d\x83\xf6\x40\x81\x87\x61a\2\1\0\0\xf5\x80")),
    "settled": lambda: packed(*(settled_record("a", TrafficClass.LIVE, number) for number in range(1, 3_600))),
    "reserved": lambda: within(packed(*(reserved_record("a", number) for number in range(1, 5_500)))),
    "handed on": lambda: within(packed(*(delivered_record((number, 1)) for number in range(5_500)))),
    "records of one byte": lambda: within(filled(b"\0\1\x22")),
    "records of nothing": lambda: within(filled(b"\0\2\x22\x80")),
    "records of other values": lambda: within(filled(b"\0\3\x22\x81\0")),
    "numbers below all": lambda: within(filled(b"\0\4\x25\x82\0\x20")),
    "heard of classes that do not exist": lambda: within(filled(b"\0\x08\x23\x83\x61a\x40\xa1\0\0")),
    "headers that are none": lambda: within(filled(b"\0\5\x26\x82\x61a\x40")),
    "headers of other versions": lambda: within(filled(b"\0\x16\x26\x82\x60\x51" + bytes(17))),
    "events that are none": lambda: within(filled(b"\0\5\x28\x83\xf4\xf6\x40")),
    "events of no kind": lambda: within(filled(b"\0\7\x28\x83\xf4\xf6\x42\x81\0")),
    "interests that are none": lambda: within(filled(b"\0\6\x2a\x83\x60\x81\0\x80")),
    "interests without a topic": lambda: within(filled(b"\0\7\x2a\x83\x60\x81\x81\0\x80")),
    "classes that do not exist": lambda: within(filled(b"\0\6\x22\x83\x61a\0\0")),
}
WHOLE = {
    "events that wait": lambda: within(packed(*(held_record(small(number), True, None) for number in range(4_000)))),
    "interests": lambda: within(packed(interests_record("a", map(interest, range(9_000)), ()))),
    "one interest again and again": lambda: within(packed(interests_record("a", [interest(0)] * 16_000, ()))),
    "interests one by one": lambda: within(packed(*(interests_record("a", [interest(n)], ()) for n in range(5_000)))),
}


TARGETS = (
    Target(
        "link-records",
        read_links,
        (packed(*RECORDS), *map(packed, RECORDS)),
        (),
        tuple(map(packed, RECORDS)),
        bombs=BROKEN,
        steps=applied,
        bound_ms=20,  # the own disk, read before there are clients
    ),
    Target(
        "link-records-whole",
        read_links,
        (packed(*RECORDS),),
        (),
        tuple(map(packed, RECORDS)),
        bombs=WHOLE,
        steps=applied,
        bound_ms=60,  # 16,000 interests take 2.5 us each
    ),
)
