"""What a journal says: sessions, copies and retained messages, record by record, without a broker around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Final

from edgebridge.session.grouped import Grouped
from edgebridge.session.records import (
    AS_PUBLISHED,
    AWAY,
    CLAIMS,
    CLOCK,
    COPY,
    COPY_OF,
    GONE,
    IS_RELEASED,
    NO_LOCAL,
    ONE,
    PACKET,
    QOS,
    RETAIN,
    ROW,
    SENT,
    SESSION,
    SUBSCRIPTION,
    WILL,
    Kind,
)
from edgebridge.session.storedmessage import MISREAD, Label, StoredMessage, publication_of, read_copy, read_head
from edgebridge.wire.fields import VARIABLE_MAX, read_binary, read_text, read_u16
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Carrier, read_properties
from edgebroker.dataclasses import dataclass
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebroker.overlay.link.records import StoredLinks

LINK_KINDS: Final = range(0x21, 0x40)
"""Records of links (`overlay.link.records`)."""
AGAIN: Final = 1 << 62
"""More than any number of a record."""


@dataclass(slots=True)
class StoredCopy:
    """One copy on its way to one session. `packet_id` is 0 if it was never sent; of two the lower `sent` was first."""

    message: StoredMessage
    number: int
    qos: int
    retain: bool
    released: bool
    packet_id: int
    identifiers: tuple[int, ...]
    label: Label
    sent: int = 0

    @property
    def text(self) -> str:
        """The subscription it is for."""
        same, rest = self.label
        return self.message.publication.topic[:same] + rest


@dataclass(slots=True)
class StoredSubscription:
    """A subscription as it was asked for."""

    text: str
    where: str
    qos: int
    no_local: bool
    as_published: bool
    identifier: int


@dataclass(slots=True)
class StoredSession:
    """A session. `gone_at` is 0 while its client is connected: it is gone since the end of the records."""

    number: int
    client_id: str
    user: str = ""
    claims: tuple[str, ...] | None = None
    """Rules of the client's token, which narrow what it may do; None if it had none."""
    expiry_s: int = 0
    gone_at: int = 0
    will: Will | None = None
    subscriptions: dict[str, StoredSubscription] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    copies: dict[int, StoredCopy] = field(default_factory=dict)


class RecordInvalid(Exception):
    """Bytes that are no record: written by another version, or by nobody."""


class Stored:
    """The state that records lead to. `apply` them in their order, then `finish`.

    What a record says of a session or copy that is not known is passed over: inside a snapshot it will be said again.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, StoredSession] = {}
        self.retained: dict[str, Publication] = {}
        self.clock = 0
        """The latest stored clock that any record knows."""
        self.last_session = 0
        """The highest number of a session that any record knows."""
        self._number_of: dict[str, int] = {}
        """Client -> the number of its session: it has one."""
        self._messages: dict[int, StoredMessage] = {}
        self._is_begun = False
        self._is_in_snapshot = False  # until it ends, a message may be named before its copies
        self._lsn = 0  # of the record that is taken in
        self._grouped = Grouped(self._take_in)
        self.is_undone = False
        """The records end in the middle of a group: the next run has to say UNDONE before anything else."""
        self._links: StoredLinks | None = None
        self.invalid = 0
        """Records that were intact and not understood."""
        self._apply: Final[dict[int, Callable[[bytes], None]]] = {
            Kind.SESSION: self._session,
            Kind.ENDED: self._ended,
            Kind.GONE: self._gone,
            Kind.SUBSCRIBED: self._subscribed,
            Kind.UNSUBSCRIBED: self._unsubscribed,
            Kind.MESSAGE: self._message,
            Kind.COPY: self._copy,
            Kind.SENT: self._sent,
            Kind.RELEASED: self._released,
            Kind.SETTLED: self._settled,
            Kind.RECEIVED: self._received,
            Kind.FORGOTTEN: self._forgotten,
            Kind.RETAINED: self._retained,
            Kind.CLEARED: self._cleared,
            Kind.CLOCK: self._clock,
            Kind.STATED: self._stated,
            **dict.fromkeys(LINK_KINDS, self._link),
        }

    def apply_numbered(self, lsn: int, record: bytes) -> None:
        """Take *record* in, the one numbered *lsn*. What is not understood is counted, and passed over."""
        if lsn > 1 and not self._is_begun:
            self._is_in_snapshot = True  # recovery begins with a snapshot, or with the first record of all
        self._is_begun = True
        self._grouped.take(lsn, record)

    def _take_in(self, lsn: int, record: bytes) -> None:
        self._lsn = lsn
        try:
            self._apply[record[0]](record)
        except MISREAD:
            self.invalid += 1

    def apply(self, record: bytes) -> None:
        """Take *record* in, as the next one. Raises RecordInvalid."""
        self._lsn += 1
        try:
            self._apply[record[0]](record)
        except MISREAD as error:
            raise RecordInvalid(f"no record: {record[:32].hex(' ')}: {error}") from error

    def finish(self) -> None:
        """There are no more records."""
        self.is_undone = self._grouped.is_open
        self.invalid += 0 if self._links is None else self._links.misunderstood
        self._stated(b"")
        bad = {number for number, message in self._messages.items() if not message.can_be_read}
        self.invalid += len(bad)
        for session in self.sessions.values() if bad else ():
            session.copies = {copy: kept for copy, kept in session.copies.items() if kept.message.number not in bad}
        for session in self.sessions.values():
            self._settle_reused(session)

    def _settle_reused(self, session: StoredSession) -> None:
        """An identifier that a later copy has was free: that the earlier one was settled is lost in damage."""
        latest: dict[int, int] = {}
        for number in sorted(session.copies):
            packet_id = session.copies[number].packet_id
            if packet_id in latest:
                self._leave(session.copies.pop(latest[packet_id]))
            if packet_id:
                latest[packet_id] = number

    @property
    def links(self) -> StoredLinks:
        """What is said of links to other gateways. Most gateways have none, and need not know how to read it."""
        if self._links is None:
            from edgebroker.overlay.link.records import StoredLinks

            self._links = StoredLinks()
        return self._links

    def _link(self, record: bytes) -> None:
        self.links.apply(record)

    # -- sessions -----------------------------------------------------------------------------------------------

    def _session(self, record: bytes) -> None:
        _, number, expiry_s, flags = SESSION.unpack_from(record)
        client_id, at = read_text(record, SESSION.size)
        user, at = read_text(record, at)
        will = None
        if flags & WILL:
            qos = record[at]
            topic, at = read_text(record, at + 1)
            payload, at = read_binary(record, at)
            properties, at = read_properties(record, at, Carrier.WILL)
            will = Will(topic, payload, qos & QOS, qos & RETAIN != 0, properties)
        claims = None
        if flags & CLAIMS:
            count, at = read_u16(record, at)
            rules = []
            for _ in range(count):
                rule, at = read_text(record, at)
                rules.append(rule)
            claims = tuple(rules)
        session = self.sessions.get(number)
        if session is None or session.client_id != client_id:
            # Of damage the end of an earlier session may be lost: the later one took its place.
            self._forget(self._number_of.get(client_id))
            self._forget(number)
            session = self.sessions[number] = StoredSession(number, client_id)
            self._number_of[client_id] = number
            self.last_session = max(self.last_session, number)
        session.claims = claims
        session.user, session.expiry_s, session.will = user, expiry_s, will
        if not flags & AWAY:
            session.gone_at = 0

    def _ended(self, record: bytes) -> None:
        self._forget(ONE.unpack(record)[1])

    def _forget(self, number: int | None) -> None:
        session = None if number is None else self.sessions.pop(number, None)
        if session is not None:
            del self._number_of[session.client_id]
            for copy in session.copies.values():
                self._leave(copy)

    def _gone(self, record: bytes) -> None:
        _, number, expiry_s, flags, at = GONE.unpack(record)
        self.clock = max(self.clock, at)
        session = self.sessions.get(number)
        if session is not None:
            session.gone_at, session.expiry_s = at, expiry_s
            if not flags & WILL:
                session.will = None

    def _subscribed(self, record: bytes) -> None:
        _, number, options, identifier = SUBSCRIPTION.unpack_from(record)
        if identifier > VARIABLE_MAX:
            raise ValueError("a subscription identifier that no packet can carry")
        topic_filter, at = read_text(record, SUBSCRIPTION.size)
        where, _ = read_text(record, at)
        session = self.sessions.get(number)
        if session is not None:
            session.subscriptions[topic_filter] = StoredSubscription(
                topic_filter,
                where,
                options & QOS,
                options & NO_LOCAL != 0,
                options & AS_PUBLISHED != 0,
                identifier,
            )

    def _unsubscribed(self, record: bytes) -> None:
        session = self.sessions.get(ONE.unpack_from(record)[1])
        topic_filter, _ = read_text(record, ONE.size)
        if session is not None:
            session.subscriptions.pop(topic_filter, None)

    # -- messages -----------------------------------------------------------------------------------------------

    def _message(self, record: bytes) -> None:
        at, flags, number, accepted_at, copies, expires_at, cause, instead_of = read_head(record, self._lsn)
        if number >> 62:
            raise ValueError("a number that no message reaches")  # the next ones would not fit 63 bits
        if accepted_at > self.clock:
            self.clock = accepted_at
        message = self._messages.get(number)
        if message is None:
            message = StoredMessage(None, number)
        try:
            is_again = number != self._lsn and instead_of is None  # what is handed over is sent now
            for _ in range(copies):
                at = self._take_copy(record, at, message, is_again)
        except MISREAD:
            message.say(b"", 0, 0, 0, 0)  # the copies that were read have no message: `finish` drops them
            self._messages[number] = message
            raise
        message.say(record, at, flags, accepted_at, expires_at)
        if message.copies or self._is_in_snapshot:
            self._messages[number] = message
        if instead_of is not None:
            moved = self._find(*instead_of)
            if moved is not None:
                del self.sessions[instead_of[0]].copies[moved.number]
                self._leave(moved)
        session = None if cause is None else self.sessions.get(cause[0])
        if cause is not None and session is not None:
            if cause[1]:
                session.received.add(cause[1])
            else:
                session.will = None

    def _copy(self, record: bytes) -> None:
        message = self._messages.get(COPY_OF.unpack_from(record)[1])
        if message is not None:
            self._take_copy(record, COPY_OF.size, message, True)

    def _take_copy(self, record: bytes, at: int, message: StoredMessage, is_again: bool) -> int:
        """Read one copy of *message* at *at*; the offset behind it. *is_again*: it is said of what was there before."""
        end, number, copy, flags, packet_id, label, identifiers = read_copy(record, at)
        session = self.sessions.get(number)
        if session is not None:
            held = session.copies.get(copy)
            if held is None or held.message is not message:
                message.copies += 1
                if held is not None:
                    self._leave(held)
            released = flags & IS_RELEASED != 0
            sent = 0 if held is None else held.sent
            if packet_id and not sent:  # what a snapshot says was sent before all that it was told of meanwhile
                sent = self._lsn - AGAIN if is_again else self._lsn
            session.copies[copy] = StoredCopy(
                message, copy, flags & QOS, flags & RETAIN != 0, released, packet_id, identifiers, label, sent
            )
        return end

    def _sent(self, record: bytes) -> None:
        _, number, copy, packet_id = SENT.unpack(record)
        found = self._find(number, copy)
        if found is not None:
            found.packet_id = packet_id
            found.sent = found.sent or self._lsn
            found.released = False  # and once more, if who had it has lost its memory

    def _released(self, record: bytes) -> None:
        found = self._find(*COPY.unpack(record)[1:])
        if found is not None:
            found.released = True

    def _settled(self, record: bytes) -> None:
        for number, first, count in ROW.iter_unpack(memoryview(record)[1:]):
            session = self.sessions.get(number)
            if session is not None and session.copies:
                take = session.copies.pop
                for copy in range(first, first + count):
                    found = take(copy, None)
                    if found is not None:
                        self._leave(found)

    def _received(self, record: bytes) -> None:
        _, number, packet_id = PACKET.unpack(record)
        if number in self.sessions:
            self.sessions[number].received.add(packet_id)

    def _forgotten(self, record: bytes) -> None:
        _, number, packet_id = PACKET.unpack(record)
        if number in self.sessions:
            self.sessions[number].received.discard(packet_id)

    def _find(self, session: int, copy: int) -> StoredCopy | None:
        found = self.sessions.get(session)
        return None if found is None else found.copies.get(copy)

    def _leave(self, copy: StoredCopy) -> None:
        message = copy.message
        message.copies -= 1
        if not message.copies and not self._is_in_snapshot:
            self._messages.pop(message.number, None)

    # -- the rest -----------------------------------------------------------------------------------------------

    def _retained(self, record: bytes) -> None:
        head = read_head(record, 0)
        self.clock = max(self.clock, head.accepted_at)
        publication = publication_of(record, head.at, head.flags, head.accepted_at, head.expires_at, 0)
        self.retained[publication.topic] = publication

    def _cleared(self, record: bytes) -> None:
        self.retained.pop(read_text(record, 1)[0], None)

    def _clock(self, record: bytes) -> None:
        self.clock = max(self.clock, CLOCK.unpack(record)[1])

    def _stated(self, _: bytes) -> None:
        self._is_in_snapshot = False
        self._messages = {number: message for number, message in self._messages.items() if message.copies}
