"""What a journal holds of links: messages that wait, what was acknowledged, what was received, what was spent.

A record is its kind in one byte, then a CBOR array. The message in ENTRY is as it stands alone on a link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

import cbor2

from edgebroker.dataclasses import dataclass
from edgebroker.errors import HeaderInvalid
from edgebroker.header import Header
from edgebroker.interest import Interest
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import Forward

from .bodies import alone, read_alone
from .broken import FrameBroken, shown
from .cbor import ARRAY, BYTES, NULL, TEXT, UNSIGNED, CborReader, head
from .interests import read, written


class Kind(IntEnum):
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


KINDS: Final = frozenset(Kind)
_KINDS: Final = {int(kind): kind for kind in Kind}
_SERVICES: Final = {int(service): service for service in Service}
"""Quicker than Kind(number), 1 us, where there are a million records."""


def entry_record(peer: str, service: Service, number: int, expires_at: int | None, item: bytes) -> bytes:
    """A message was taken into the outbox towards *peer*."""
    until = NULL if expires_at is None else head(UNSIGNED, expires_at)
    place = head(UNSIGNED, service) + head(UNSIGNED, number)
    return b"".join((_named(peer), place, until, head(BYTES, len(item)), item))


@lru_cache(maxsize=64)
def _named(peer: str) -> bytes:
    """How an entry for *peer* begins. One is written for every message: cbor2 takes four times as long for a whole."""
    octets = peer.encode()
    return bytes((Kind.ENTRY,)) + head(ARRAY, 5) + head(TEXT, len(octets)) + octets


def settled_record(peer: str, service: Service, number: int) -> bytes:
    """*peer* has everything up to *number*, or it expired."""
    return _record(Kind.SETTLED, [peer, int(service), number])


def heard_record(peer: str, store: bytes, upto: Mapping[Service, int]) -> bytes:
    """Everything up to these numbers was received of *peer* and handled."""
    return _record(Kind.HEARD, [peer, store, {int(service): number for service, number in upto.items()}])


def spent_record(peer: str, day: int, octets: int) -> bytes:
    """So much was spent on the link to *peer* on *day*."""
    return _record(Kind.SPENT, [peer, day, octets])


def run_record(number: int, numbers: int) -> bytes:
    """The run *number* may give *numbers* in all, with those of earlier runs."""
    return _record(Kind.RUN, [number, numbers])


def stamp_record(topic: str, header: Header) -> bytes:
    """The retained message of *topic* has this header."""
    return _record(Kind.STAMP, [topic, header.pack()])


def reserved_record(peer: str, number: int) -> bytes:
    """Numbers up to *number* may have been given to messages for *peer*."""
    return _record(Kind.RESERVED, [peer, number])


def held_record(event: Forward, is_entry: bool, expires_at: int | None) -> bytes:
    """*event* waits for others that it may have overtaken."""
    return _record(Kind.HELD, [is_entry, expires_at, alone(event, Service.LIVE)])


def handed_record(eid: tuple[int, int]) -> bytes:
    """The event *eid*, which waited so, was handed on."""
    return _record(Kind.HANDED, [*eid])


def learned_record(peer: str, announce: Iterable[Interest], withdraw: Iterable[Interest]) -> bytes:
    """The neighbour *peer* announced interests, and withdrew others."""
    return _record(Kind.LEARNED, [peer, [*map(written, announce)], [*map(written, withdraw)]])


@dataclass(slots=True)
class StoredLink:
    """What a journal says of the link to one peer."""

    entries: dict[Service, dict[int, tuple[int | None, bytes]]] = field(default_factory=dict)
    """Class -> number -> stored clock at which it expires, message."""
    last: dict[Service, int] = field(default_factory=dict)
    """Class -> the last number that was given."""
    settled: dict[Service, int] = field(default_factory=dict)
    """Class -> nothing up to this number waits."""
    store: bytes = b""
    heard: dict[Service, int] = field(default_factory=dict)
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
        self.stamps: dict[str, Header] = {}
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
        if record[0] not in KINDS:
            return False
        try:
            reader = CborReader(record)
            reader.at = 1
            reader.items_max = len(record)  # what a neighbour announced at once is in one record
            values = reader.item()
            if type(values) is not list or not values:
                raise FrameBroken("a record is a row of values")
            kind = _KINDS[record[0]]
            shape = _SHAPES[kind]
            is_fit = len(values) == len(shape)
            for value, fits in zip(values, shape, strict=False):
                is_fit = is_fit and fits(value)
            if not is_fit:
                raise FrameBroken(f"a record of {kind.name} says {shown(values)}")
            if kind is Kind.RUN:
                self.run = max(self.run, values[0])
                self.numbers = max(self.numbers, values[1])
            elif kind is Kind.STAMP:
                self.stamps[values[0]] = Header.unpack(values[1])
            elif kind is Kind.HELD:
                event, _ = read_alone(values[2])
                if not isinstance(event, Forward):
                    raise FrameBroken("what waits to be handed on is an event")
                self.held[event.header.eid] = (event, values[0], values[1])
            elif kind is Kind.HANDED:
                self.held.pop((values[0], values[1]), None)
            elif kind is Kind.LEARNED:
                self._learn(values[0], map(read, values[1]), map(read, values[2]))
            else:
                self._apply(kind, self.links.setdefault(values[0], StoredLink()), values[1:])
        except (FrameBroken, HeaderInvalid):
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

    def _learn(self, peer: str, announced: Iterable[Interest], withdrawn: Iterable[Interest]) -> None:
        interests = self.interests.setdefault(peer, {})
        interests.update(dict.fromkeys(announced))
        for interest in withdrawn:
            interests.pop(interest, None)

    def _apply(self, kind: Kind, link: StoredLink, values: list[Any]) -> None:
        if kind is Kind.ENTRY:
            service, number, expires_at, item = _SERVICES[values[0]], values[1], values[2], values[3]
            if number > link.settled.get(service, 0):  # else a snapshot says again what was settled meanwhile
                link.entries.setdefault(service, {})[number] = (expires_at, item)
            link.last[service] = max(number, link.last.get(service, 0))
        elif kind is Kind.SETTLED:
            service, upto = _SERVICES[values[0]], values[1]
            if lane := link.entries.get(service):
                for number in [*takewhile(lambda number: number <= upto, lane)]:
                    del lane[number]
            link.settled[service] = max(upto, link.settled.get(service, 0))
            link.last[service] = max(upto, link.last.get(service, 0))
        elif kind is Kind.HEARD:
            if not all(_is_service(service) and _is_number(upto) for service, upto in values[1].items()):
                raise FrameBroken("what was heard is numbers by class")
            link.store = values[0]
            link.heard = {Service(service): upto for service, upto in values[1].items()}
        elif kind is Kind.SPENT:
            link.day, link.spent = values
        else:
            link.reserved = max(link.reserved, values[0])


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_service(value: Any) -> bool:
    return type(value) is int and Service.LIVE <= value <= Service.LOGS


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_octets(value: Any) -> bool:
    return type(value) is bytes


def _is_map(value: Any) -> bool:
    return type(value) is dict


def _is_list(value: Any) -> bool:
    return type(value) is list


_SHAPES: Final[dict[Kind, tuple[Callable[[Any], bool], ...]]] = {
    Kind.ENTRY: (_is_text, _is_service, _is_number, _is_number_or_none, _is_octets),
    Kind.SETTLED: (_is_text, _is_service, _is_number),
    Kind.HEARD: (_is_text, _is_octets, _is_map),
    Kind.SPENT: (_is_text, _is_number, _is_number),
    Kind.RUN: (_is_number, _is_number),
    Kind.STAMP: (_is_text, _is_octets),
    Kind.RESERVED: (_is_text, _is_number),
    Kind.HELD: (_is_flag, _is_number_or_none, _is_octets),
    Kind.HANDED: (_is_number, _is_number),
    Kind.LEARNED: (_is_text, _is_list, _is_list),
}
"""What they say."""


def _record(kind: Kind, values: list[Any]) -> bytes:
    return bytes((kind,)) + cbor2.dumps(values)
