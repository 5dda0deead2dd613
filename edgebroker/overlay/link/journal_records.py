"""The journal records of links: waiting messages, acknowledged and received numbers, spent bytes.

A record is its kind in one byte, then a CBOR array. The message in ENTRY and ENTRIES is encoded without reference to
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeAlias

from edgebroker.cbor import ARRAY, BYTES, NULL, UNSIGNED, CborReader, encode_cbor, encode_text, head
from edgebroker.dataclasses import dataclass
from edgebroker.header import LAYOUT, EventHeader
from edgebroker.instants import NEVER
from edgebroker.interest import Interest
from edgebroker.overlay.link.backlog import PageRow, decode_rows
from edgebroker.overlay.link.class_queue import LinkPage
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.messages import alone, interest_values, link_cbor, read_alone, read_interest
from edgebroker.overlay.messages import Forward, GroupCount, GroupMembers, Message
from edgebroker.overlay.traffic_class import SHARED, TrafficClass


class LinkRecordKind(IntEnum):
    """The first byte of a record."""

    ENTRY = 0x21
    """[peer, class, number, stored clock at which it expires or null, message]"""
    SETTLED = 0x22
    """[peer, class, number]: no message up to this number waits any more."""
    RECEIVED = 0x23
    """[peer, its store, {class: number}]: all messages up to these numbers were received, and handled before this
    record.
    """
    SPENT = 0x24
    """[peer, day since 1970, bytes]"""
    RUN = 0x25
    """[number, numbers]: the gateway's run, which grows, may allocate up to so many numbers to publishers and
    queries.
    """
    HEADER = 0x26
    """[topic, header]: the header of the event that last set or cleared the topic's retained message."""
    RESERVED = 0x27
    """[peer, number]: numbers up to this may have been used, in any class."""
    HELD = 0x28
    """[arrival, stored clock at which it expires or null, message]: an event waits in the reorder buffer. `arrival` is
    the neighbour from which it came, empty if it entered the cluster here, and null for an event of a local client that
    waits for the answers of other clusters. Earlier versions wrote a boolean for the first two cases.
    """
    DELIVERED = 0x29
    """[publisher, sequence]: that event was delivered, or left. Of events that did not wait, those of QoS 2 alone."""
    INTERESTS = 0x2A
    """[neighbour, new interests, withdrawn interests]"""
    PAGED = 0x2B
    """[peer, page, first number, last number, messages, bytes of their topics and payloads, bytes of the file, stored
    clock from which expiry in the file counts, stored clock at which the last message expires or null, flows]: the
    entries of BACKLOG with these numbers are in a page file.
    """
    UNPAGED = 0x2C
    """[peer, page, stored clock from which expiry counts, content]: the messages of a page wait in memory again, as the
    content of its file says; if that is empty, they were given up.
    """
    ENTRIES = 0x2D
    """[stored clock at which it expires or null, message, copies]: one event waits for several peers. Each copy is
    [peer, class, number], or, if its marks differ from those of the message, [peer, class, number, CIV, aLinks walked,
    was marked, gateways passed, predecessors (cluster, distance, cluster, distance ...)].
    """
    GROUPS = 0x2E
    """[gateway, number, [name, connected members, kept members, name ...]]: the latest GroupMembers of a gateway."""


_SERVICES: Final = {int(service): service for service in SHARED}
"""A dictionary is faster than `TrafficClass(number)`, which takes 1 us, when there are a million records."""


def entry_record(peer: str, service: TrafficClass, number: int, expires_at: int | None, item: bytes) -> bytes:
    """Return the record of a message that the outbox for *peer* accepted."""
    until = NULL if expires_at is None else head(UNSIGNED, expires_at)
    place = head(UNSIGNED, service) + head(UNSIGNED, number)
    return b"".join((_entry_head(peer), place, until, head(BYTES, len(item)), item))


@lru_cache(maxsize=64)
def _entry_head(peer: str) -> bytes:
    """Return the beginning of an entry for *peer*. One is written for every message."""
    return bytes((LinkRecordKind.ENTRY,)) + head(ARRAY, 5) + encode_text(peer)


class EntryRow(NamedTuple):
    """One copy of an event in ENTRIES."""

    peer: str
    service: TrafficClass
    number: int
    marked: Forward | None = None
    """The event as this peer gets it, if its marks differ from those of the message in the record."""


def entries_record(rows: Iterable[EntryRow], expires_at: int | None, item: bytes) -> bytes:
    """Return the record of an event that the outboxes of several peers accepted; *item* is the message."""
    copies: list[list[Any]] = []
    for peer, service, number, marked in rows:
        copy = [peer, int(service), number]
        copies.append(copy if marked is None else [*copy, *_marks_of(marked)])
    return _record(LinkRecordKind.ENTRIES, [expires_at, item, copies])


def _marks_of(event: Forward) -> list[Any]:
    predecessors = [number for pair in event.predecessors for number in pair]
    return [event.header.civ, event.walked, event.was_marked, [*event.passed], predecessors]


def _with_marks(
    item: bytes, civ: int, walked: int, was_marked: bool, passed: list[Any], predecessors: list[Any]
) -> bytes:
    """Return the message *item* with these marks. Raises FrameBroken if it, or they, cannot be."""
    event, service = read_alone(item)
    fits = civ < 1 << 16 and walked < 1 << 8 and all(type(each) is int and 0 <= each < 1 << 16 for each in passed)
    are_numbers = all(type(each) is int and 0 <= each < 1 << 32 for each in predecessors)
    fits = fits and are_numbers and not len(predecessors) % 2
    if not isinstance(event, Forward) or not fits:
        raise FrameBroken("marks of what is no event, or none that an event can have")
    header = replace(event.header, civ=civ)
    pairs = tuple(zip(predecessors[::2], predecessors[1::2], strict=True))
    marked = replace(
        event, header=header, walked=walked, was_marked=was_marked, passed=tuple(passed), predecessors=pairs
    )
    return alone(marked, service, event.expires_in_ms)


def settled_record(peer: str, service: TrafficClass, number: int) -> bytes:
    """Return the record that *peer* has everything up to *number*, or that it expired."""
    return _record(LinkRecordKind.SETTLED, [peer, int(service), number])


def received_record(peer: str, store: bytes, upto: Mapping[TrafficClass, int]) -> bytes:
    """Return the record that everything up to these numbers was received from *peer* and handled."""
    return _record(LinkRecordKind.RECEIVED, [peer, store, {int(service): number for service, number in upto.items()}])


def spent_record(peer: str, day: int, octets: int) -> bytes:
    """Return the record of the bytes spent on the link to *peer* on *day*."""
    return _record(LinkRecordKind.SPENT, [peer, day, octets])


def boot_record(number: int, numbers: int) -> bytes:
    """Return the record that run *number* may allocate *numbers* numbers in all, earlier runs included."""
    return _record(LinkRecordKind.RUN, [number, numbers])


def header_record(topic: str, header: EventHeader) -> bytes:
    """Return the record of the header of *topic*'s retained message."""
    return _record(LinkRecordKind.HEADER, [topic, header.pack()])


def reserved_record(peer: str, number: int) -> bytes:
    """Return the record that reserves message numbers for *peer* up to *number*."""
    return _record(LinkRecordKind.RESERVED, [peer, number])


def held_record(event: Forward, arrival: str | None, expires_at: int | None) -> bytes:
    """Return the record of *event*, which is held."""
    return _record(LinkRecordKind.HELD, [arrival, expires_at, alone(event, TrafficClass.LIVE)])


def delivered_record(eid: tuple[int, int]) -> bytes:
    """Return the record that the held event *eid* was delivered, or left."""
    return _record(LinkRecordKind.DELIVERED, [*eid])


def interests_record(peer: str, announce: Iterable[Interest], withdraw: Iterable[Interest]) -> bytes:
    """Return the record of interests that the neighbour *peer* announced and withdrew."""
    return _record(
        LinkRecordKind.INTERESTS, [peer, [*map(interest_values, announce)], [*map(interest_values, withdraw)]]
    )


def groups_record(members: GroupMembers) -> bytes:
    """Return the record of the members that another gateway has in groups that are shared over the federation."""
    counts = [value for group in members.groups for value in (group.name, group.connected, group.kept)]
    return _record(LinkRecordKind.GROUPS, [members.gateway, members.number, counts])


def paged_record(peer: str, page: LinkPage, clock: int) -> bytes:
    """Return the record that names the file of *page*; *clock* is what to add to an instant for the stored clock."""
    numbers = [page.number, page.first, page.last, page.count, page.held_bytes, page.file_bytes]
    expires_at = None if page.expires_at is None else page.expires_at + clock
    return _record(LinkRecordKind.PAGED, [peer, *numbers, page.written_at + clock, expires_at, page.flows])


def unpaged_record(peer: str, page: int, written_at: int, content: bytes) -> bytes:
    """Return the record that page file *page* is not needed any more; *content* is what it contains, or empty."""
    return _record(LinkRecordKind.UNPAGED, [peer, page, written_at, content])


def describe_page_record(record: bytes) -> dict[str, Any] | None:
    """Return what PAGED or UNPAGED says, by name; None for other records, and for one that is not understood."""
    if record[0] not in (LinkRecordKind.PAGED, LinkRecordKind.UNPAGED):
        return None
    try:
        values = CborReader(record[1:], _CBOR).item()
        if type(values) is not list or not _is_fit(values, _KINDS[record[0]][0]):
            return None
        if record[0] == LinkRecordKind.UNPAGED:
            peer, page, _, content = values
            return {"kind": "link_unpaged", "peer": peer, "page": page, "messages": len(_page_rows(content))}
    except FrameBroken:
        return None
    names = ("peer", "page", "first", "last", "count", "held_bytes", "file_bytes", "written_at", "expires_at")
    return {"kind": "link_paged", **dict(zip(names, values[:-1], strict=True)), "flows": len(values[-1]) // 2}


def _page_rows(content: bytes) -> list[PageRow]:
    return decode_rows(content) if content else []


@dataclass(slots=True)
class StoredLink:
    """The state of the link to one peer in the journal."""

    entries: dict[TrafficClass, dict[int, tuple[int | None, bytes]]] = field(default_factory=dict)
    """Class -> number -> (stored clock at which it expires, message)."""
    last: dict[TrafficClass, int] = field(default_factory=dict)
    """Class -> the last used number."""
    settled: dict[TrafficClass, int] = field(default_factory=dict)
    """Class -> no message up to this number waits."""
    store: bytes = b""
    pages: dict[int, LinkPage] = field(default_factory=dict)
    """Page number -> the page, a part of BACKLOG; its instants are those of the stored clock."""
    received: dict[TrafficClass, int] = field(default_factory=dict)
    reserved: int = 0
    day: int = 0
    spent: int = 0
    messages: dict[bytes, Message] = field(default_factory=dict)
    """Item -> the message in it, as far as it was decoded: links that wait with the same one share it."""


class StoredLinks:
    """The state of all links in the journal. Call `apply` with the records in their order."""

    def __init__(self) -> None:
        self.links: dict[str, StoredLink] = {}
        self.messages: dict[bytes, Message] = {}
        """What the links have decoded; to be cleared when all of them are restored."""
        self.run = 0
        """The number of the last run."""
        self.numbers = 0
        """Numbers that it and earlier runs may have allocated to publishers and queries."""
        self.stamps: dict[str, EventHeader] = {}
        """Topic -> header of its retained message."""
        self.held: dict[tuple[int, int], tuple[Forward, str | None, int | None]] = {}
        """Identity -> a held event, as in `held_record`."""
        self.last_events: dict[int, int] = {}
        """Publisher -> the sequence of its last event of which it is known that it was delivered, or left."""
        self.interests: dict[str, dict[Interest, None]] = {}
        """Neighbour -> the interests that it announced."""
        self.groups: dict[int, GroupMembers] = {}
        """Number of a gateway -> the members that it has in groups that are shared over the federation."""
        self.last_page = 0
        """The highest number of a page that any record knows."""
        self.is_damaged = False
        """Whether records are missing, which may have reserved numbers."""
        self.misunderstood = 0
        """The number of records of these kinds with unexpected content."""

    def apply(self, record: bytes) -> bool:
        """Apply *record*; returns False if it is of another kind."""
        spec = _KINDS.get(record[0])
        if spec is None:
            return False
        if len(record) < _SHORTEST:
            self.misunderstood += 1
            return True
        # Malformed records are detected without an exception where possible, because one takes 1 to 2 us.
        shapes, handler, has_class = spec
        try:
            reader = CborReader(record, _CBOR)
            reader.at = 1
            values = reader.item()
            if type(values) is not list or not _is_fit(values, shapes):
                self.misunderstood += 1
            elif not has_class:
                handler(self, *values)
            elif (service := _SERVICES.get(values[1])) is not None:
                handler(self, values[0], service, *values[2:])
            else:
                self.misunderstood += 1
        except FrameBroken:
            self.misunderstood += 1
        return True

    def shift(self, by: int) -> None:
        """Shift every instant on the stored clock by *by* microseconds."""
        for link in self.links.values():
            for entries in link.entries.values():
                for number, (at, item) in entries.items():
                    if at is not None:
                        entries[number] = (at + by, item)
            for page in link.pages.values():
                page.written_at += by
                page.expires_at = None if page.expires_at is None else page.expires_at + by
        for eid, (event, arrival, at) in self.held.items():
            if at is not None:
                self.held[eid] = (event, arrival, at + by)

    def _link(self, peer: str) -> StoredLink:
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = StoredLink(messages=self.messages)
        return link

    def _entry(self, peer: str, service: TrafficClass, number: int, expires_at: int | None, item: bytes) -> None:
        link = self._link(peer)
        if number > link.settled.get(service, 0):  # else a snapshot repeats an entry that was settled meanwhile
            link.entries.setdefault(service, {})[number] = (expires_at, item)
        link.last[service] = max(number, link.last.get(service, 0))

    def _entries(self, expires_at: int | None, item: bytes, copies: list[Any]) -> None:
        entries = []
        for copy in copies:
            if type(copy) is not list or not _is_fit(copy, _COPY_TYPES) or copy[1] not in _SERVICES:
                raise FrameBroken("a copy that is none")
            peer, service, number, *marks = copy
            entries.append((peer, _SERVICES[service], number, _with_marks(item, *marks) if marks else item))
        for peer, where, number, message in entries:
            self._entry(peer, where, number, expires_at, message)

    def _settled(self, peer: str, service: TrafficClass, upto: int) -> None:
        link = self._link(peer)
        if entries := link.entries.get(service):
            for number in [*takewhile(upto.__ge__, entries)]:
                del entries[number]
        if service is TrafficClass.BACKLOG and link.pages and next(iter(link.pages.values())).last <= upto:
            link.pages = {number: page for number, page in link.pages.items() if page.last > upto}
        link.settled[service] = max(upto, link.settled.get(service, 0))
        link.last[service] = max(upto, link.last.get(service, 0))

    def _paged(self, peer: str, number: int, first: int, last: int, count: int, *rest: Any) -> None:
        held_bytes, file_bytes, written_at, expires_at, flows = rest
        if not 0 < count <= last - first + 1 or len(flows) % 2 or max(number, written_at, expires_at or 0) >= NEVER:
            raise FrameBroken("a page that no gateway writes")
        page = LinkPage(number, first, last, count, held_bytes)
        page.file_bytes, page.written_at, page.expires_at, page.flows = file_bytes, written_at, expires_at, flows
        link = self._link(peer)
        entries = link.entries.get(TrafficClass.BACKLOG, {})
        for entry in range(first, last + 1) if last - first < len(entries) else [*entries]:
            if first <= entry <= last:
                entries.pop(entry, None)
        if last > link.settled.get(TrafficClass.BACKLOG, 0):
            link.pages[number] = page
        link.last[TrafficClass.BACKLOG] = max(last, link.last.get(TrafficClass.BACKLOG, 0))
        self.last_page = max(self.last_page, number)

    def _unpaged(self, peer: str, number: int, written_at: int, content: bytes) -> None:
        rows = _page_rows(content)
        if max(number, written_at) >= NEVER:
            raise FrameBroken("a page that no gateway has")
        self._link(peer).pages.pop(number, None)
        self.last_page = max(self.last_page, number)
        for row in rows:
            expires_at = None if row.expires_in is None else written_at + row.expires_in
            self._entry(peer, TrafficClass.BACKLOG, row.number, expires_at, row.item)

    def _received(self, peer: str, store: bytes, upto: dict[Any, Any]) -> None:
        received = {}
        for place, number in upto.items():
            service = _SERVICES.get(place) if type(place) is int else None
            if service is None or type(number) is not int or not 0 <= number < _NUMBERS:
                self.misunderstood += 1
                return
            received[service] = number
        link = self._link(peer)
        link.store, link.received = store, received

    def _spent(self, peer: str, day: int, octets: int) -> None:
        link = self._link(peer)
        link.day, link.spent = day, octets

    def _run(self, number: int, numbers: int) -> None:
        self.run = max(self.run, number)
        self.numbers = max(self.numbers, numbers)

    def _header(self, topic: str, header: bytes) -> None:
        if len(header) == LAYOUT.size:
            self.stamps[topic] = EventHeader.unpack(header)
        else:
            self.misunderstood += 1

    def _reserved(self, peer: str, upto: int) -> None:
        link = self._link(peer)
        link.reserved = max(link.reserved, upto)

    def _held(self, arrival: str | bool | None, expires_at: int | None, item: bytes) -> None:
        event, _ = read_alone(item)
        if not isinstance(event, Forward):
            raise FrameBroken("what waits to be handed on is an event")
        self.held[event.header.eid] = (event, "" if isinstance(arrival, bool) else arrival, expires_at)

    def _delivered(self, publisher: int, sequence: int) -> None:
        self.held.pop((publisher, sequence), None)
        self.last_events[publisher] = max(sequence, self.last_events.get(publisher, 0))

    def _interests(self, peer: str, announced: list[Any], withdrawn: list[Any]) -> None:
        interests = self.interests.setdefault(peer, {})
        interests.update(dict.fromkeys(map(read_interest, announced)))
        for interest in map(read_interest, withdrawn):
            interests.pop(interest, None)

    def _groups(self, gateway: int, number: int, counts: list[Any]) -> None:
        names, connected, kept = counts[::3], counts[1::3], counts[2::3]
        are_counts = all(type(each) is int and 0 <= each < 1 << 32 for each in (*connected, *kept))
        if len(names) != len(kept) or not are_counts or not all(type(name) is str for name in names):
            raise FrameBroken("members of groups that are none")
        groups = tuple(map(GroupCount, names, connected, kept))
        self.groups[gateway] = GroupMembers(gateway, number, groups)


def _is_fit(values: list[Any], shapes: tuple[tuple[type, ...], ...]) -> bool:
    if tuple(map(type, values)) not in shapes:
        return False
    for value in values:  # noqa: SIM110  `all` calls a generator for each, which takes three times as long
        if type(value) is int and not 0 <= value < _NUMBERS:
            return False
    return True


_COPY_TYPES: Final = ((str, int, int), (str, int, int, int, int, bool, list, list))
_SHORTEST: Final = 3
"""The least bytes of a record: its kind, the head of an array, a value. A shorter array is detected by an exception, 1
us.
"""
_NUMBERS: Final = 1 << 64
_CBOR: Final = link_cbor(_NUMBERS >> 2)
"""No bound but the length of the record: what a neighbour announced at once is in one record."""
_NONE: Final = type(None)
_KindSpec: TypeAlias = tuple[tuple[tuple[type, ...], ...], Callable[..., None], bool]


def _spec(kind: LinkRecordKind, handler: Callable[..., None], *shapes: tuple[type, ...]) -> tuple[int, _KindSpec]:
    """Return kind -> (types of the values, handler, whether the second value is a class, which is stored as its
    number).
    """
    written = tuple(tuple(int if kind is TrafficClass else kind for kind in shape) for shape in shapes)
    return int(kind), (written, handler, written != shapes)


_KINDS: Final[dict[int, _KindSpec]] = dict(
    (
        _spec(
            LinkRecordKind.ENTRY,
            StoredLinks._entry,
            (str, TrafficClass, int, int, bytes),
            (str, TrafficClass, int, _NONE, bytes),
        ),
        _spec(LinkRecordKind.SETTLED, StoredLinks._settled, (str, TrafficClass, int)),
        _spec(LinkRecordKind.RECEIVED, StoredLinks._received, (str, bytes, dict)),
        _spec(LinkRecordKind.SPENT, StoredLinks._spent, (str, int, int)),
        _spec(LinkRecordKind.RUN, StoredLinks._run, (int, int)),
        _spec(LinkRecordKind.HEADER, StoredLinks._header, (str, bytes)),
        _spec(LinkRecordKind.RESERVED, StoredLinks._reserved, (str, int)),
        _spec(
            LinkRecordKind.HELD,
            StoredLinks._held,
            *((arrival, at, bytes) for arrival in (str, bool, _NONE) for at in (int, _NONE)),
        ),
        _spec(LinkRecordKind.DELIVERED, StoredLinks._delivered, (int, int)),
        _spec(LinkRecordKind.INTERESTS, StoredLinks._interests, (str, list, list)),
        _spec(
            LinkRecordKind.PAGED,
            StoredLinks._paged,
            (str, *[int] * 7, int, bytes),
            (str, *[int] * 7, _NONE, bytes),
        ),
        _spec(LinkRecordKind.UNPAGED, StoredLinks._unpaged, (str, int, int, bytes)),
        _spec(LinkRecordKind.GROUPS, StoredLinks._groups, (int, int, list)),
        _spec(LinkRecordKind.ENTRIES, StoredLinks._entries, (int, bytes, list), (_NONE, bytes, list)),
    )
)
"""First byte -> the types of the values, and the method that applies them. Checking one kind after the other, and each
value by a call, took twice as long. A malformed record is only counted.
"""


def _record(kind: LinkRecordKind, values: list[Any]) -> bytes:
    return bytes((kind,)) + encode_cbor(values)
