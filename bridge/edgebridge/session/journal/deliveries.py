"""Unfinished deliveries that recovery builds from the journal: copies of messages to sessions, and QoS 2 identifiers.

Nearly all records are of these kinds, so they are applied in rows: a call for each record takes longer than reading
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from edgebridge.session.journal.copy_record import CopyReader, Label
from edgebridge.session.journal.message import READ_ERRORS, StoredMessage, read_publication
from edgebridge.session.journal.message_header import MessageHeader
from edgebridge.session.journal.session_records import (
    COPY,
    COPY_OF,
    IS_RELEASED,
    PACKET,
    QOS,
    RETAIN,
    ROW,
    SENT,
    SessionRecordKind,
)
from edgebridge.session.journal.text import TextInterner
from edgebroker.publication import Publication

SNAPSHOT_OFFSET: Final = 1 << 62
"""More than any number of a record."""
MISSES_MAX: Final = 4_096
"""Copies that are looked for one by one and are not there, as where a snapshot ends. Damage may name as many as 64 KiB
hold, 1.8 million, which took 28 ms: beyond these, the numbers of a session's copies are kept in order.
"""
PAGE_BITS: Final = 10
"""Of 1,024 numbers one bit each, 136 bytes at most: a row of SETTLED, 255 numbers, is in two pages at most."""
PAGE: Final = 1 << PAGE_BITS
_ONE = 1  # a number of Python's, also where this is compiled: a page does not fit 64 bits
# C numbers, where this is compiled
IS_MESSAGE, IS_SETTLED = int(SessionRecordKind.MESSAGE), int(SessionRecordKind.SETTLED)
_MISSES_MAX = MISSES_MAX
_QOS, _RETAIN, _RELEASED = QOS, RETAIN, IS_RELEASED
KINDS: Final = frozenset(
    map(
        int,
        (
            SessionRecordKind.MESSAGE,
            SessionRecordKind.COPY,
            SessionRecordKind.SENT,
            SessionRecordKind.RELEASED,
            SessionRecordKind.SETTLED,
            SessionRecordKind.RECEIVED,
            SessionRecordKind.FORGOTTEN,
        ),
    )
)
"""Those that are about copies."""
SHORTEST: Final[dict[int, int]] = {
    SessionRecordKind.COPY: COPY_OF.size,
    SessionRecordKind.SENT: SENT.size,
    SessionRecordKind.RELEASED: COPY.size,
    SessionRecordKind.RECEIVED: PACKET.size,
    SessionRecordKind.FORGOTTEN: PACKET.size,
}
"""Bytes of a record of these kinds at least: to find out by an error takes 1 us more."""


class HeldNumbers:
    """A set of numbers as bitmaps of 1,024 bits: removing a range costs what it holds, not its length."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._pages: dict[int, int] = {}
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        """*number* is held from now on, once, however often it is added."""
        page = number >> PAGE_BITS
        self._pages[page] = self._pages.get(page, 0) | _ONE << (number & PAGE - 1)

    def remove_range(self, first: int, count: int) -> list[int]:
        """Those of the *count* numbers from *first* on that are held, in order. They are held no longer."""
        taken: list[int] = []
        end = first + count
        while first < end:
            page = first >> PAGE_BITS
            upto = min(end, page + 1 << PAGE_BITS)
            held = self._pages.get(page)
            if held is not None:
                found = held & (_ONE << upto - first) - _ONE << (first & PAGE - 1)
                if found == held:
                    del self._pages[page]
                elif found:
                    self._pages[page] = held ^ found
                while found:
                    lowest = found & -found
                    taken.append((page << PAGE_BITS) + lowest.bit_length() - 1)
                    found ^= lowest
            first = upto
        return taken


class StoredCopy:
    """One copy on its way to one session. `packet_id` is 0 if it was never sent; of two the lower `sent` was first."""

    __slots__ = ("identifiers", "label", "message", "number", "packet_id", "qos", "released", "retain", "sent")

    message: StoredMessage
    number: int
    qos: int
    retain: bool
    released: bool
    packet_id: int
    identifiers: tuple[int, ...]
    label: Label
    sent: int

    @property
    def text(self) -> str:
        """The subscription it is for."""
        same, rest = self.label
        return self.message.publication.topic[:same] + rest


class StoredDeliveries:
    """What is on its way to sessions, and from them. What is said of a session that is not known is passed over."""

    def __init__(self, will_published: Callable[[int], None]) -> None:
        """*will_published*: the will of that session is a message now."""
        self.clock = 0
        """The latest stored clock that any record knows."""
        self.lsn = 0
        """Of the record that is taken in."""
        self.is_in_snapshot = False
        """Until it ends, a message may be named before its copies."""
        self.messages: dict[int, StoredMessage] = {}
        self.texts = TextInterner()
        self._header = MessageHeader()
        self._copy_reader = CopyReader()
        self._copies: dict[int, dict[int, StoredCopy]] = {}
        self._received: dict[int, set[int]] = {}
        self.misread = 0
        """Records of KINDS that were not understood, and passed over."""
        self._misses = 0
        self._numbers: dict[int, HeldNumbers] = {}  # session -> those of its copies, once too many were missed
        self._sent_early: dict[tuple[int, int], int] = {}  # (session, copy) sent while it waited to be said: the record
        self._will_published = will_published
        self._apply: Final[dict[int, Callable[[bytes], None]]] = {
            SessionRecordKind.MESSAGE: self._message,
            SessionRecordKind.COPY: self._copy,
            SessionRecordKind.SENT: self._sent,
            SessionRecordKind.RELEASED: self._released,
            SessionRecordKind.SETTLED: self._settled,
            SessionRecordKind.RECEIVED: self._was_received,
            SessionRecordKind.FORGOTTEN: self._forgotten,
        }

    def add_session(self, session: int, copies: dict[int, StoredCopy], received: set[int]) -> None:
        """A session is known from now on: *copies* are on their way to it, and *received* came from it."""
        self._copies[session] = copies
        self._received[session] = received

    def remove_session(self, session: int) -> None:
        """A session is no more."""
        del self._received[session]
        self._numbers.pop(session, None)
        for copy in self._copies.pop(session).values():
            self.remove_copy(copy)

    def end_snapshot(self) -> None:
        """The snapshot is over: a message without copies has none."""
        if not self.is_in_snapshot:
            return  # no message waits for copies
        self.is_in_snapshot = False
        self._sent_early.clear()
        for message in [message for message in self.messages.values() if not message.copies]:
            del self.messages[message.number]

    def finish(self) -> set[int]:
        """There are no more records. The numbers of messages that cannot be read."""
        messages, self.messages = self.messages, {}  # the copies know theirs
        return {number for number, message in messages.items() if not message.can_be_read(self.texts)}

    def shift(self, by: int) -> None:
        """Every instant is *by* later, and so is the clock."""
        self.clock += by
        known = {id(message): message for message in self.messages.values()}
        for copies in self._copies.values():
            for copy in copies.values():
                known[id(copy.message)] = copy.message
        for message in known.values():
            message.shift(by)

    def remove_copy(self, copy: StoredCopy) -> None:
        """*copy* is on its way no longer."""
        message = copy.message
        message.copies -= 1
        if not message.copies and not self.is_in_snapshot:
            self.messages.pop(message.number, None)

    def remove_copies(self, session: int, first: int, count: int) -> None:
        """Of *session*, the *count* copies from *first* on are on their way no longer."""
        copies = self._copies.get(session)
        if copies:
            for copy in [copy for copy in range(first, first + count) if copy in copies]:
                self.remove_copy(copies.pop(copy))

    # -- records ------------------------------------------------------------------------------------------------

    def apply_row(self, first: int, records: list[bytes], at: int) -> int:
        """Take in *records*, of which the one at 0 is numbered *first*, from the one at *at* on.

        Returns where the first one stands that is of another kind, or how many there are.
        """
        for index in range(at, len(records)):
            record = records[index]
            if not record:
                self.misread += 1
                continue
            self.lsn = first + index
            kind = record[0]
            try:
                if kind == IS_MESSAGE:
                    self._message(record)
                elif kind == IS_SETTLED:
                    self._settled(record)
                elif kind in KINDS:
                    if len(record) < SHORTEST.get(kind, 0):
                        self.misread += 1
                    else:
                        self._apply[kind](record)
                else:
                    return index
            except READ_ERRORS:
                self.misread += 1
        return len(records)

    def apply(self, record: bytes) -> None:
        """Take in *record*, which is of one of KINDS. Raises one of MISREAD."""
        self._apply[record[0]](record)

    def _message(self, record: bytes) -> None:
        head = self._header
        head.read(record, self.lsn)
        at, number, copies = head.at, head.number, head.copies
        if number >> 62:
            raise ValueError("a number that no message reaches")  # the next ones would not fit 63 bits
        if head.accepted_at > self.clock:
            self.clock = head.accepted_at
        key = number
        message = self.messages.get(key)
        if message is None:
            message = StoredMessage(number)
        is_again = number != self.lsn and head.instead_of is None  # what is handed over is sent now
        try:
            while copies:
                at = self._take_copy(record, at, message, is_again)
                copies -= 1
        except READ_ERRORS:
            message.mark_unreadable()  # the copies that were read have no message: `finish` drops them
            if message.copies or self.is_in_snapshot:
                self.messages[key] = message
            raise
        message.set_content(record, at, head.flags, head.accepted_at, head.expires_at, self.texts)
        if message.copies or self.is_in_snapshot:
            self.messages[key] = message
        if head.instead_of is not None:
            session, copy = head.instead_of
            moved = self._find(session, copy)
            if moved is not None:
                del self._copies[session][moved.number]
                self.remove_copy(moved)
        if head.cause is not None:
            session, packet_id = head.cause
            if session in self._received:
                if packet_id:
                    self._received[session].add(packet_id)
                else:
                    self._will_published(session)

    def retained(self, record: bytes) -> Publication:
        """The publication that RETAINED says, with the texts that messages share. Raises one of MISREAD."""
        head = self._header
        head.read(record, 0)
        if head.accepted_at > self.clock:
            self.clock = head.accepted_at
        return read_publication(record, head.at, head.flags, head.accepted_at, head.expires_at, 0, self.texts)

    def _copy(self, record: bytes) -> None:
        message = self.messages.get(COPY_OF.unpack_from(record)[1])
        if message is not None:
            self._take_copy(record, COPY_OF.size, message, True)

    def _take_copy(self, record: bytes, at: int, message: StoredMessage, is_again: bool) -> int:
        """Read one copy of *message* at *at*; the offset behind it. *is_again*: it is said of what was there before."""
        said = self._copy_reader
        said.read(record, at)
        end, copy, flags = said.end, said.copy, said.flags
        copies = self._copies.get(said.session)
        if copies is None:
            return end
        held = copies.get(copy)
        if held is None or held.message is not message:
            message.copies += 1
            if held is not None:
                self.remove_copy(held)
        if self._misses > _MISSES_MAX and held is None and said.session in self._numbers:
            self._numbers[said.session].add(copy)
        sent = 0 if held is None else held.sent
        if said.packet_id and not sent:
            sent = self.lsn
            if is_again:  # what a snapshot says was sent before all that it was told of meanwhile, unless that was told
                sent = self._sent_early.get((said.session, copy), sent - SNAPSHOT_OFFSET)
        made = StoredCopy.__new__(StoredCopy)
        made.message = message
        made.number = copy
        made.qos = flags & _QOS
        made.retain = flags & _RETAIN != 0
        made.released = flags & _RELEASED != 0
        made.packet_id = said.packet_id
        made.identifiers = said.identifiers
        made.label = said.label
        made.sent = sent
        copies[copy] = made
        return end

    def _sent(self, record: bytes) -> None:
        _, session, copy, packet_id = SENT.unpack(record)
        found = self._find(session, copy)
        if found is not None:
            found.packet_id = packet_id
            found.sent = found.sent or self.lsn
            found.released = False  # and once more, if who had it has lost its memory
        elif self.is_in_snapshot and session in self._copies:
            self._sent_early[session, copy] = self.lsn

    def _released(self, record: bytes) -> None:
        _, session, copy = COPY.unpack(record)
        found = self._find(session, copy)
        if found is not None:
            found.released = True

    def _settled(self, record: bytes) -> None:
        for session, first, count in ROW.iter_unpack(memoryview(record)[1:]):
            copies = self._copies.get(session)
            if copies:
                if self._misses > _MISSES_MAX:
                    self._settle_held(session, copies, first, count)
                    continue
                self._misses += count
                for copy in range(first, first + count):
                    found = copies.pop(copy, None)
                    if found is not None:
                        self._misses -= 1
                        self.remove_copy(found)

    def _settle_held(self, session: int, copies: dict[int, StoredCopy], first: int, count: int) -> None:
        numbers = self._numbers.get(session)
        if numbers is None:
            numbers = self._numbers[session] = HeldNumbers(copies)
        for copy in numbers.remove_range(first, count):
            found = copies.pop(copy, None)
            if found is not None:  # else it went otherwise: another one took its place
                self.remove_copy(found)

    def _was_received(self, record: bytes) -> None:
        _, session, packet_id = PACKET.unpack(record)
        if session in self._received:
            self._received[session].add(packet_id)

    def _forgotten(self, record: bytes) -> None:
        _, session, packet_id = PACKET.unpack(record)
        if session in self._received:
            self._received[session].discard(packet_id)

    def _find(self, session: int, copy: int) -> StoredCopy | None:
        copies = self._copies.get(session)
        return None if copies is None else copies.get(copy)
