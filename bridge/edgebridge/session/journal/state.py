"""The state that recovery builds from the journal: sessions, subscriptions, copies and retained messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Final

from edgebridge.session.acl import TOKEN_RULES_MAX
from edgebridge.session.durability import SYNC, Durability, batched
from edgebridge.session.journal.deliveries import KINDS, SHORTEST, StoredCopy, StoredDeliveries
from edgebridge.session.journal.message import READ_ERRORS, shift
from edgebridge.session.journal.page_records import read_page
from edgebridge.session.journal.session_records import (
    AS_PUBLISHED,
    AWAY,
    BATCH,
    BATCHED,
    CLAIMS,
    CLOCK,
    GONE,
    MESSAGE,
    NO_LOCAL,
    ONE,
    OWED,
    PAGED,
    PAGED_ROW,
    QOS,
    RETAIN,
    SESSION,
    SUBSCRIPTION,
    UNPAGED,
    WILL,
    SessionRecordKind,
    paged_message_record,
    read_bridge_sync,
)
from edgebridge.session.journal.text import read_text
from edgebridge.session.journal.transfer_records import (
    COPY_EVENT,
    KNOWN_EVENTS,
    TRANSFER,
    StoredRoamingState,
    TransferFlag,
    departing_name,
)
from edgebridge.session.queue.page import QueuePage
from edgebridge.session.session import BridgeSyncState
from edgebridge.wire.fields import VARIABLE_MAX, read_binary, read_u16
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Carrier, read_properties
from edgebroker.dataclasses import dataclass
from edgebroker.errors import JournalDamaged
from edgebroker.instants import CLOCK_IS_SET_AFTER, NEVER
from edgebroker.limits import JOURNAL_PAGE_MESSAGES_MAX
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebroker.overlay.link.journal_records import StoredLinks

LINK_KINDS: Final = range(0x21, 0x40)
"""Records of links (`overlay.link.records`)."""
_SHORTEST_ALONE: Final[dict[int, int]] = {
    SessionRecordKind.SESSION: SESSION.size + 4,
    SessionRecordKind.ENDED: ONE.size,
    SessionRecordKind.GONE: GONE.size,
    SessionRecordKind.SUBSCRIBED: SUBSCRIPTION.size + 4,
    SessionRecordKind.UNSUBSCRIBED: ONE.size + 2,
    SessionRecordKind.RETAINED: MESSAGE.size + 4,
    SessionRecordKind.CLEARED: 3,
    SessionRecordKind.RETAINED_BY: 5,
    SessionRecordKind.UNCLEARED: ONE.size + 2,
    SessionRecordKind.CLOCK: CLOCK.size,
    SessionRecordKind.CLOCK_SET: CLOCK.size,
    SessionRecordKind.PAGED: PAGED.size,
    SessionRecordKind.UNPAGED: UNPAGED.size,
    SessionRecordKind.TRANSFER: TRANSFER.size + 2,
    SessionRecordKind.COPY_EVENT: COPY_EVENT.size,
    SessionRecordKind.KNOWN_EVENTS: KNOWN_EVENTS.size,
    SessionRecordKind.LAST_EVENTS: KNOWN_EVENTS.size,
}
"""Bytes of a record at least. Of those that are shorter 64 KiB hold most, and to find out by an error takes longest."""
_ALONE: Final = frozenset(bytes((kind,)) for kind in _SHORTEST_ALONE)
"""How records begin that are of no group and no message on its way: the shortest way saves a fifth of the time."""
_SHORTEST: Final = SHORTEST | _SHORTEST_ALONE
_BEGIN, _COMMIT, _ABORT = (
    int(SessionRecordKind.TOGETHER),
    int(SessionRecordKind.WHOLE),
    int(SessionRecordKind.UNDONE),
)  # a member is looked up by a call


class TransactionBuffer:
    """Hands records on to *take_in*, those between TOGETHER and WHOLE only at WHOLE; UNDONE discards them."""

    def __init__(self, take_in: Callable[[int, bytes], None]) -> None:
        self._take_in = take_in
        self._transaction: list[tuple[int, bytes]] | None = None
        self._last = 0

    @property
    def is_open(self) -> bool:
        """Whether the last group has no end: unless UNDONE comes next, what follows would be taken for a part of it."""
        return self._transaction is not None

    def append(self, lsn: int, record: bytes) -> None:
        """The record numbered *lsn*. If some before it are missing, they are damaged, and a group lost its end."""
        if self._transaction is not None and lsn != self._last + 1:
            self._end()
        self._last = lsn
        kind = record[0] if record else None  # an empty one is not understood, like any other that is not
        if kind == _BEGIN:
            self._end()
            self._transaction = []
        elif kind == _COMMIT:
            self._end()
        elif kind == _ABORT:
            self._transaction = None
        elif self._transaction is None:
            self._take_in(lsn, record)
        else:
            self._transaction.append((lsn, record))

    def _end(self) -> None:
        group, self._transaction = self._transaction, None
        for lsn, record in group or ():
            self._take_in(lsn, record)


@dataclass(slots=True)
class StoredSubscription:
    """A subscription as it was asked for."""

    text: str
    where: str
    qos: int
    no_local: bool
    as_published: bool
    identifier: int
    is_owed: bool = False
    """Not all that is retained of it was sent."""


@dataclass(slots=True)
class StoredSession:
    """A session. `gone_at` is 0 while its client is connected: it is gone since the end of the records."""

    number: int
    client_id: str
    user: str = ""
    claims: tuple[str, ...] | None = None
    """Rules of the client's token, which narrow what it may do; None if it had none."""
    expiry_s: int = 0
    bridge_sync: BridgeSyncState | None = None
    disconnected_at: int = 0
    will: Will | None = None
    durability: Durability = SYNC
    """What its client was promised."""
    subscriptions: dict[str, StoredSubscription] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    copies: dict[int, StoredCopy] = field(default_factory=dict)
    uncleared: set[str] = field(default_factory=set)
    """Topics that the remote of this bridge may still retain."""
    pages: dict[int, QueuePage] = field(default_factory=dict)
    """Page number -> the page; its instants are those of the stored clock."""
    roaming: StoredRoamingState | None = None
    """None: it does not move."""


class RecordInvalid(Exception):
    """Bytes that are no record: written by another version, or by nobody."""


class JournalState:
    """The state that records lead to. `apply` them in their order, then `finish`.

    What a record says of a session or copy that is not known is passed over: inside a snapshot it will be said again.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, StoredSession] = {}
        self.retained: dict[str, Publication] = {}
        self.retained_by: dict[str, str] = {}
        """Topic -> the account of the client that published its retained message, where that is known."""
        self.last_session = 0
        """The highest number of a session that any record knows."""
        self.last_page = 0
        """The highest number of a page that any record knows."""
        self._number_of: dict[str, int] = {}
        """Client -> the number of its session: it has one."""
        self._deliveries = StoredDeliveries(self._will_published)
        self._is_begun = False
        self._transactions = TransactionBuffer(self._take_in)
        self.has_open_transaction = False
        """The records end in the middle of a group: the next run has to say UNDONE before anything else."""
        self._links: StoredLinks | None = None
        self.invalid = 0
        """Records that were intact and not understood."""
        self.is_damaged = False
        """Records are missing: nobody knows what they said."""
        self._apply: Final[dict[int, Callable[[bytes], None]]] = {
            SessionRecordKind.SESSION: self._session,
            SessionRecordKind.ENDED: self._ended,
            SessionRecordKind.GONE: self._gone,
            SessionRecordKind.SUBSCRIBED: self._subscribed,
            SessionRecordKind.UNSUBSCRIBED: self._unsubscribed,
            SessionRecordKind.RETAINED: self._retained,
            SessionRecordKind.CLEARED: self._cleared,
            SessionRecordKind.RETAINED_BY: self._retained_by,
            SessionRecordKind.UNCLEARED: self._uncleared,
            SessionRecordKind.CLOCK: self._clock,
            SessionRecordKind.CLOCK_SET: self._clock_set,
            SessionRecordKind.STATED: self._stated,
            SessionRecordKind.PAGED: self._paged,
            SessionRecordKind.UNPAGED: self._unpaged,
            SessionRecordKind.TRANSFER: self._transfer,
            SessionRecordKind.COPY_EVENT: self._copy_event,
            SessionRecordKind.KNOWN_EVENTS: self._known_events,
            SessionRecordKind.LAST_EVENTS: self._last_events,
            **dict.fromkeys(KINDS, self._deliveries.apply),
            **dict.fromkeys(LINK_KINDS, self._link),
        }

    @property
    def clock(self) -> int:
        """The latest stored clock that any record knows."""
        return self._deliveries.clock

    def apply_row(self, first: int, records: list[bytes]) -> None:
        """Take *records* in, which are numbered from *first* on. What is not understood is counted, and passed over."""
        if first > 1 and not self._is_begun:
            self._deliveries.is_in_snapshot = True  # recovery begins with a snapshot, or with the first record of all
        self._is_begun = True
        at, grouped, traffic = 0, self._transactions, self._deliveries
        while at < len(records):
            if not grouped.is_open:
                at = traffic.apply_row(first, records, at)
                while at < len(records) and records[at][:1] in _ALONE:
                    self._take_in(first + at, records[at])
                    at += 1
            if at < len(records):
                grouped.append(first + at, records[at])
                at += 1
        self.invalid += traffic.misread
        traffic.misread = 0

    def _take_in(self, lsn: int, record: bytes) -> None:
        self._deliveries.lsn = lsn
        apply = self._apply.get(record[0]) if record else None
        if apply is None or len(record) < _SHORTEST.get(record[0], 0):
            self.invalid += 1
            return
        try:
            apply(record)
        except READ_ERRORS:
            self.invalid += 1

    def apply(self, record: bytes) -> None:
        """Take *record* in, as the next one. Raises RecordInvalid."""
        self._deliveries.lsn += 1
        try:
            self._apply[record[0]](record)
        except READ_ERRORS as error:
            raise RecordInvalid(f"no record: {record[:32].hex(' ')}: {error}") from error

    def set_clock(self, at: int) -> bool:
        """The machine says that it is *at*. Returns whether it did not know that when all this was stored.

        Then CLOCK_SET is to be said, and everything is moved: it is as long ago as it was at the end of the records.
        Nobody knows how long the machine was off, and half a century would end all sessions.
        """
        if not 0 < self.clock < CLOCK_IS_SET_AFTER <= at:
            return False
        by = at - self.clock
        self._deliveries.shift(by)
        for session in self.sessions.values():
            session.disconnected_at += by if session.disconnected_at else 0
            for page in session.pages.values():
                page.accepted_at += by
                page.newest_at += by
                page.expires_at = None if page.expires_at is None else page.expires_at + by
        for publication in self.retained.values():
            shift(publication, by)
        if self._links is not None:
            self._links.shift(by)
        return True

    def finish(self) -> None:
        """There are no more records."""
        if self._links is not None:
            self.last_page = max(self.last_page, self._links.last_page)
        self.has_open_transaction = self._transactions.is_open
        self.invalid += 0 if self._links is None else self._links.misunderstood
        self._stated(b"")
        bad = self._deliveries.finish()
        self.invalid += len(bad)
        for session in self.sessions.values() if bad else ():
            for copy in [copy for copy, kept in session.copies.items() if kept.message.number in bad]:
                del session.copies[copy]
        for session in self.sessions.values():
            self._settle_reused(session)

    def _settle_reused(self, session: StoredSession) -> None:
        """An identifier that a later copy has was free: that the earlier one was settled is lost in damage."""
        latest: dict[int, int] = {}
        for number in sorted([number for number, copy in session.copies.items() if copy.packet_id]):
            packet_id = session.copies[number].packet_id
            if packet_id in latest:
                self._deliveries.remove_copy(session.copies.pop(latest[packet_id]))
            latest[packet_id] = number

    @property
    def links(self) -> StoredLinks:
        """What is said of links to other gateways. Most gateways have none, and need not know how to read it."""
        if self._links is None:
            from edgebroker.overlay.link.journal_records import StoredLinks

            self._links = StoredLinks()
        self._links.is_damaged = self.is_damaged
        return self._links

    def link_pages(self) -> list[int]:
        """The numbers of the pages that are parts of outboxes for other gateways."""
        links = () if self._links is None else self._links.links.values()
        return [number for link in links for number in link.pages]

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
            if count > TOKEN_RULES_MAX:
                raise ValueError("more rules than any token has")  # 32,000 of them take 9 ms
            rules = []
            for _ in range(count):
                rule, at = read_text(record, at)
                rules.append(rule)
            claims = tuple(rules)
        durability = batched(BATCH.unpack_from(record, at)[0]) if flags & BATCHED else SYNC
        session = self.sessions.get(number)
        if session is None or session.client_id != client_id:
            # Of damage the end of an earlier session may be lost: the later one took its place.
            self._forget(self._number_of.get(client_id))
            self._forget(number)
            session = self.sessions[number] = StoredSession(number, client_id)
            self._number_of[client_id] = number
            self._deliveries.add_session(number, session.copies, session.received)
            self.last_session = max(self.last_session, number)
        session.claims, session.durability = claims, durability
        session.user, session.will = user, will
        self._set_terms(session, flags, expiry_s)
        if not flags & AWAY:
            session.disconnected_at = 0

    @staticmethod
    def _set_terms(session: StoredSession, flags: int, expiry_s: int) -> None:
        session.bridge_sync, session.expiry_s = read_bridge_sync(flags, expiry_s)
        if session.bridge_sync is BridgeSyncState.SYNCHRONISED:
            session.uncleared.clear()

    def _ended(self, record: bytes) -> None:
        self._forget(ONE.unpack(record)[1])

    def _forget(self, number: int | None) -> None:
        session = None if number is None else self.sessions.pop(number, None)
        if session is not None:
            del self._number_of[session.client_id]
            self._deliveries.remove_session(session.number)

    def _will_published(self, number: int) -> None:
        self.sessions[number].will = None

    def _gone(self, record: bytes) -> None:
        _, number, expiry_s, flags, at = GONE.unpack(record)
        self._deliveries.clock = max(self.clock, at)
        session = self.sessions.get(number)
        if session is not None:
            session.disconnected_at = at
            self._set_terms(session, flags, expiry_s)
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
                options & OWED != 0,
            )

    def _unsubscribed(self, record: bytes) -> None:
        session = self.sessions.get(ONE.unpack_from(record)[1])
        topic_filter, _ = read_text(record, ONE.size)
        if session is not None:
            session.subscriptions.pop(topic_filter, None)

    # -- pages --------------------------------------------------------------------------------------------------

    def _paged(self, record: bytes) -> None:
        _, number, page_number, first, count, file_bytes, held_bytes, oldest, newest, expiring, expires_at = (
            PAGED.unpack_from(record)
        )
        rows = list(PAGED_ROW.iter_unpack(memoryview(record)[PAGED.size :]))
        if max(oldest, newest, expires_at, page_number, held_bytes) >= NEVER or count > JOURNAL_PAGE_MESSAGES_MAX:
            raise ValueError("an instant that no clock reaches, or a page that no gateway writes")
        if sum([length for _, length in rows]) not in (0, count):
            raise ValueError("other copies than those of the page")
        self.last_page = max(self.last_page, page_number)
        session = self.sessions.get(number)
        if session is None:
            return
        for begin, length in rows:
            self._deliveries.remove_copies(number, begin, length)
        page = QueuePage(page_number, first, count, held_bytes, file_bytes)
        page.accepted_at, page.newest_at, page.expiring = oldest, newest, expiring
        page.expires_at = expires_at or None
        session.pages[page_number] = page

    def _unpaged(self, record: bytes) -> None:
        _, number, page_number, first, oldest_at = UNPAGED.unpack_from(record)
        try:
            entries = read_page(record[UNPAGED.size :], first, oldest_at) if len(record) > UNPAGED.size else []
        except JournalDamaged as error:
            raise ValueError(str(error)) from error
        if max(page_number, oldest_at) >= NEVER:
            raise ValueError("a page that no gateway has")
        self.last_page = max(self.last_page, page_number)
        session = self.sessions.get(number)
        if session is not None:
            session.pages.pop(page_number, None)
        for entry in entries:
            self._deliveries.apply(paged_message_record(entry.publication, 0, number, entry))

    # -- moves between gateways ---------------------------------------------------------------------------------

    def _roaming(self, record: bytes) -> StoredRoamingState | None:
        session = self.sessions.get(ONE.unpack_from(record)[1])
        if session is None:
            return None
        if session.roaming is None:
            session.roaming = StoredRoamingState()
        return session.roaming

    def _transfer(self, record: bytes) -> None:
        roaming = self._roaming(record)
        if roaming is None:
            return
        transfer = roaming.transfer(record)
        session = self.sessions[ONE.unpack_from(record)[1]]
        if transfer.flags & TransferFlag.DEPARTURE and session.client_id == transfer.client:
            del self._number_of[session.client_id]
            session.client_id = departing_name(transfer.gateway, transfer.number, transfer.client)
            self._number_of[session.client_id] = session.number

    def _copy_event(self, record: bytes) -> None:
        roaming = self._roaming(record)
        if roaming is not None:
            roaming.copy_event(record)

    def _known_events(self, record: bytes) -> None:
        roaming = self._roaming(record)
        if roaming is not None:
            roaming.known_events(record)

    def _last_events(self, record: bytes) -> None:
        roaming = self._roaming(record)
        if roaming is not None:
            roaming.last_events(record)

    # -- the rest -----------------------------------------------------------------------------------------------

    def _retained(self, record: bytes) -> None:
        publication = self._deliveries.retained(record)
        self.retained[publication.topic] = publication
        self.retained_by.pop(publication.topic, None)

    def _retained_by(self, record: bytes) -> None:
        topic, at = read_text(record, 1)
        account, _ = read_text(record, at)
        if topic in self.retained:
            self.retained_by[topic] = account

    def _cleared(self, record: bytes) -> None:
        topic, _ = read_text(record, 1)
        self.retained.pop(topic, None)
        self.retained_by.pop(topic, None)

    def _uncleared(self, record: bytes) -> None:
        session = self.sessions.get(ONE.unpack_from(record)[1])
        topic, _ = read_text(record, ONE.size)
        if session is not None:
            session.uncleared.add(topic)

    def _clock(self, record: bytes) -> None:
        self._deliveries.clock = max(self.clock, CLOCK.unpack(record)[1])

    def _clock_set(self, record: bytes) -> None:
        at = CLOCK.unpack(record)[1]
        if at >= NEVER:
            raise ValueError("an instant that no clock reaches")
        self.set_clock(at)

    def _stated(self, _: bytes) -> None:
        self._deliveries.end_snapshot()
