"""The journal records of links: messages that wait, acknowledged and received numbers, bytes spent.

A record is its kind in one byte, then a CBOR array. The message in ENTRY is as it stands alone on a link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, TypeAlias

import cbor2

from edgebroker.dataclasses import dataclass
from edgebroker.header import LAYOUT, EventHeader
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.cbor import ARRAY, BYTES, NULL, TEXT, UNSIGNED, StrictCborReader, head
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.messages import alone, interest_values, read_alone, read_interest
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import SHARED, TrafficClass


class LinkRecordKind(IntEnum):
    """The first byte of a record."""

    ENTRY = 0x21
    """[peer, class, number, stored clock at which it expires or null, message]"""
    SETTLED = 0x22
    """[peer, class, number]: nothing up to this number waits any more."""
    HEARD = 0x23
    """[peer, its store, {class: number}]: all up to these numbers was received, and handled before this record."""
    SPENT = 0x24
    """[peer, day since 1970, bytes]"""
    RUN = 0x25
    """[number, numbers]: the gateway's run, which grows, may give up to so many numbers to publishers and questions."""
    STAMP = 0x26
    """[topic, header]: with this header the topic's retained message came or went."""
    RESERVED = 0x27
    """[peer, number]: numbers up to this may have been given, in any class."""
    HELD = 0x28
    """[entered the cluster here, stored clock at which it expires or null, message]: an event waits to be handed on."""
    HANDED = 0x29
    """[publisher, sequence]: it was."""
    LEARNED = 0x2A
    """[neighbour, interests that it has now, interests that it has no more]"""


_SERVICES: Final = {int(service): service for service in SHARED}
"""Quicker than Kind(number), 1 us, where there are a million records."""


def entry_record(peer: str, service: TrafficClass, number: int, expires_at: int | None, item: bytes) -> bytes:
    """A message was taken into the outbox towards *peer*."""
    until = NULL if expires_at is None else head(UNSIGNED, expires_at)
    place = head(UNSIGNED, service) + head(UNSIGNED, number)
    return b"".join((_named(peer), place, until, head(BYTES, len(item)), item))


@lru_cache(maxsize=64)
def _named(peer: str) -> bytes:
    """How an entry for *peer* begins. One is written for every message: cbor2 takes four times as long for a whole."""
    octets = peer.encode()
    return bytes((LinkRecordKind.ENTRY,)) + head(ARRAY, 5) + head(TEXT, len(octets)) + octets


def settled_record(peer: str, service: TrafficClass, number: int) -> bytes:
    """*peer* has everything up to *number*, or it expired."""
    return _record(LinkRecordKind.SETTLED, [peer, int(service), number])


def received_record(peer: str, store: bytes, upto: Mapping[TrafficClass, int]) -> bytes:
    """Everything up to these numbers was received of *peer* and handled."""
    return _record(LinkRecordKind.HEARD, [peer, store, {int(service): number for service, number in upto.items()}])


def spent_record(peer: str, day: int, octets: int) -> bytes:
    """So much was spent on the link to *peer* on *day*."""
    return _record(LinkRecordKind.SPENT, [peer, day, octets])


def boot_record(number: int, numbers: int) -> bytes:
    """The run *number* may give *numbers* in all, with those of earlier runs."""
    return _record(LinkRecordKind.RUN, [number, numbers])


def header_record(topic: str, header: EventHeader) -> bytes:
    """The retained message of *topic* has this header."""
    return _record(LinkRecordKind.STAMP, [topic, header.pack()])


def reserved_record(peer: str, number: int) -> bytes:
    """Numbers up to *number* may have been given to messages for *peer*."""
    return _record(LinkRecordKind.RESERVED, [peer, number])


def held_record(event: Forward, is_entry: bool, expires_at: int | None) -> bytes:
    """*event* waits for others that it may have overtaken."""
    return _record(LinkRecordKind.HELD, [is_entry, expires_at, alone(event, TrafficClass.LIVE)])


def delivered_record(eid: tuple[int, int]) -> bytes:
    """The event *eid*, which waited so, was handed on."""
    return _record(LinkRecordKind.HANDED, [*eid])


def interests_record(peer: str, announce: Iterable[Interest], withdraw: Iterable[Interest]) -> bytes:
    """The neighbour *peer* announced interests, and withdrew others."""
    return _record(LinkRecordKind.LEARNED, [peer, [*map(interest_values, announce)], [*map(interest_values, withdraw)]])


@dataclass(slots=True)
class StoredLink:
    """What a journal says of the link to one peer."""

    entries: dict[TrafficClass, dict[int, tuple[int | None, bytes]]] = field(default_factory=dict)
    """Class -> number -> stored clock at which it expires, message."""
    last: dict[TrafficClass, int] = field(default_factory=dict)
    """Class -> the last number that was given."""
    settled: dict[TrafficClass, int] = field(default_factory=dict)
    """Class -> nothing up to this number waits."""
    store: bytes = b""
    heard: dict[TrafficClass, int] = field(default_factory=dict)
    reserved: int = 0
    day: int = 0
    spent: int = 0


class StoredLinks:
    """What records say of all links. `apply` them in their order."""

    def __init__(self) -> None:
        self.links: dict[str, StoredLink] = {}
        self.run = 0
        """The number of the last run."""
        self.numbers = 0
        """How many numbers it, and those before it, may have given to publishers and questions."""
        self.stamps: dict[str, EventHeader] = {}
        """Topic -> header of its retained message."""
        self.held: dict[tuple[int, int], tuple[Forward, bool, int | None]] = {}
        """By identity: events that wait to be handed on, as `held_record` says."""
        self.interests: dict[str, dict[Interest, None]] = {}
        """Neighbour -> what it announced."""
        self.is_damaged = False
        """Records are missing, perhaps those that said which numbers were given."""
        self.misunderstood = 0
        """Records of these kinds that say something else."""

    def apply(self, record: bytes) -> bool:
        """Take what *record* says; False: it is of another kind."""
        known = _KINDS.get(record[0])
        if known is None:
            return False
        if len(record) < _SHORTEST:
            self.misunderstood += 1
            return True
        # What is no record is found out without an error wherever that is not much to ask: one takes 1 to 2 us.
        shapes, take, has_class = known
        try:
            reader = StrictCborReader(record)
            reader.at = 1
            reader.items_max = len(record)  # what a neighbour announced at once is in one record
            values = reader.item()
            if type(values) is not list or not _is_fit(values, shapes):
                self.misunderstood += 1
            elif not has_class:
                take(self, *values)
            elif (service := _SERVICES.get(values[1])) is not None:
                take(self, values[0], service, *values[2:])
            else:
                self.misunderstood += 1
        except FrameBroken:
            self.misunderstood += 1
        return True

    def shift(self, by: int) -> None:
        """Every instant on the stored clock is *by* microseconds later."""
        for link in self.links.values():
            for entries in link.entries.values():
                for number, (at, item) in entries.items():
                    if at is not None:
                        entries[number] = (at + by, item)
        for eid, (event, is_entry, at) in self.held.items():
            if at is not None:
                self.held[eid] = (event, is_entry, at + by)

    def _link(self, peer: str) -> StoredLink:
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = StoredLink()
        return link

    def _entry(self, peer: str, service: TrafficClass, number: int, expires_at: int | None, item: bytes) -> None:
        link = self._link(peer)
        if number > link.settled.get(service, 0):  # else a snapshot says again what was settled meanwhile
            link.entries.setdefault(service, {})[number] = (expires_at, item)
        link.last[service] = max(number, link.last.get(service, 0))

    def _settled(self, peer: str, service: TrafficClass, upto: int) -> None:
        link = self._link(peer)
        if lane := link.entries.get(service):
            for number in [*takewhile(upto.__ge__, lane)]:
                del lane[number]
        link.settled[service] = max(upto, link.settled.get(service, 0))
        link.last[service] = max(upto, link.last.get(service, 0))

    def _heard(self, peer: str, store: bytes, upto: dict[Any, Any]) -> None:
        heard = {}
        for place, number in upto.items():
            service = _SERVICES.get(place) if type(place) is int else None
            if service is None or type(number) is not int or not 0 <= number < _NUMBERS:
                self.misunderstood += 1
                return
            heard[service] = number
        link = self._link(peer)
        link.store, link.heard = store, heard

    def _spent(self, peer: str, day: int, octets: int) -> None:
        link = self._link(peer)
        link.day, link.spent = day, octets

    def _run(self, number: int, numbers: int) -> None:
        self.run = max(self.run, number)
        self.numbers = max(self.numbers, numbers)

    def _stamp(self, topic: str, header: bytes) -> None:
        if len(header) == LAYOUT.size:
            self.stamps[topic] = EventHeader.unpack(header)
        else:
            self.misunderstood += 1

    def _reserved(self, peer: str, upto: int) -> None:
        link = self._link(peer)
        link.reserved = max(link.reserved, upto)

    def _held(self, is_entry: bool, expires_at: int | None, item: bytes) -> None:
        event, _ = read_alone(item)
        if not isinstance(event, Forward):
            raise FrameBroken("what waits to be handed on is an event")
        self.held[event.header.eid] = (event, is_entry, expires_at)

    def _handed(self, publisher: int, sequence: int) -> None:
        self.held.pop((publisher, sequence), None)

    def _learned(self, peer: str, announced: list[Any], withdrawn: list[Any]) -> None:
        interests = self.interests.setdefault(peer, {})
        interests.update(dict.fromkeys(map(read_interest, announced)))
        for interest in map(read_interest, withdrawn):
            interests.pop(interest, None)


def _is_fit(values: list[Any], shapes: tuple[tuple[type, ...], ...]) -> bool:
    if tuple(map(type, values)) not in shapes:
        return False
    for value in values:  # noqa: SIM110  `all` calls a generator for each, which takes three times as long
        if type(value) is int and not 0 <= value < _NUMBERS:
            return False
    return True


_SHORTEST: Final = 3
"""Bytes of a record: its kind, the head of a row, a value. That a row ends too soon is found out by an error, 1 us."""
_NUMBERS: Final = 1 << 64
_NONE: Final = type(None)
_Known: TypeAlias = tuple[tuple[tuple[type, ...], ...], Callable[..., None], bool]


def _known(kind: LinkRecordKind, take: Callable[..., None], *shapes: tuple[type, ...]) -> tuple[int, _Known]:
    """Where a Service is the second value, it stands as its number."""
    written = tuple(tuple(int if kind is TrafficClass else kind for kind in shape) for shape in shapes)
    return int(kind), (written, take, written != shapes)


_KINDS: Final[dict[int, _Known]] = dict(
    (
        _known(
            LinkRecordKind.ENTRY,
            StoredLinks._entry,
            (str, TrafficClass, int, int, bytes),
            (str, TrafficClass, int, _NONE, bytes),
        ),
        _known(LinkRecordKind.SETTLED, StoredLinks._settled, (str, TrafficClass, int)),
        _known(LinkRecordKind.HEARD, StoredLinks._heard, (str, bytes, dict)),
        _known(LinkRecordKind.SPENT, StoredLinks._spent, (str, int, int)),
        _known(LinkRecordKind.RUN, StoredLinks._run, (int, int)),
        _known(LinkRecordKind.STAMP, StoredLinks._stamp, (str, bytes)),
        _known(LinkRecordKind.RESERVED, StoredLinks._reserved, (str, int)),
        _known(LinkRecordKind.HELD, StoredLinks._held, (bool, int, bytes), (bool, _NONE, bytes)),
        _known(LinkRecordKind.HANDED, StoredLinks._handed, (int, int)),
        _known(LinkRecordKind.LEARNED, StoredLinks._learned, (str, list, list)),
    )
)
"""By their first byte: the types of what they say, and who takes it. To ask for one kind after the other, and for each
value by a call, took twice as long. Nobody is told more of a record that does not fit than that there was one.
"""


def _record(kind: LinkRecordKind, values: list[Any]) -> bytes:
    return bytes((kind,)) + cbor2.dumps(values)
