"""Journal records of sessions and messages: kinds, layouts and encoders (docs/journal.md, "Records").

A record states one change. Replaying a record whose effect is already there changes nothing, so a snapshot is the
whole state written again. Numbers are big-endian; a text is its length in two bytes and UTF-8. Instants are
microseconds since 1970 of the stored clock, which never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

from edgebridge.session.acl import Acl
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.queue.page import QueuePage
from edgebridge.session.session import BridgeSyncState, Session
from edgebridge.session.subscription_text import SHARE_PREFIX
from edgebridge.wire.fields import U32_MAX, write_binary, write_text
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import encode_properties
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.publication import Publication


class SessionRecordKind(IntEnum):
    """The first byte of a record."""

    SESSION = 1
    """A session began or its terms changed; its client is connected."""
    ENDED = 2
    """A session and all it held is no more."""
    GONE = 3
    """The client of a session left, or will is settled."""
    SUBSCRIBED = 4
    UNSUBSCRIBED = 5
    MESSAGE = 6
    """A publication and its copies for kept sessions, and what must be true together with that or not at all."""
    COPY = 7
    """One more copy of a message said before; only in snapshots."""
    SENT = 8
    """A copy that waited got a packet identifier."""
    RELEASED = 9
    """PUBREC came: the client has the message."""
    SETTLED = 10
    """Copies have their fate: all of one commit together, in rows."""
    RECEIVED = 11
    """A QoS 2 message of which no copy is kept was taken from its publisher."""
    FORGOTTEN = 12
    """PUBREL came: the identifier may mean another message."""
    RETAINED = 13
    CLEARED = 14
    """A topic has no retained message any more."""
    CLOCK = 15
    """The stored clock."""
    STATED = 16
    """A snapshot ends here: everything was said again."""
    TOGETHER = 17
    """The records from here to the next WHOLE count all together, or none of them does."""
    WHOLE = 18
    UNDONE = 19
    """The run before ended in between: nothing since the last TOGETHER counts."""
    CLOCK_SET = 20
    """The machine knows the time, and did not before: the stored clock was moved, and all that was stored with it."""
    PAGED = 21
    """Copies of a session are in a page file."""
    UNPAGED = 22
    """A page file is not needed any more. Its content follows if its copies are still on their way."""
    RETAINED_BY = 23
    """The account of the client that published the retained message of a topic, where rules say who may."""
    UNCLEARED = 24
    """The remote of a bridge may still retain a topic's message: its clearing was dropped. Until it is synchronised."""
    TRANSFER = 25
    """A session moves to or from another gateway (`transfer_records`)."""
    COPY_EVENT = 26
    """The event of a copy for a session that moves."""
    KNOWN_EVENTS = 27
    """Events that came with a session that moves."""
    LAST_EVENTS = 28
    """The last event of each publisher that the gateways have seen from which a session comes."""


SESSION: Final = Struct(">BIIB")  # kind, session, expiry s, flags
GONE: Final = Struct(">BIIBQ")  # kind, session, expiry s, flags, stored clock
ONE: Final = Struct(">BI")  # kind, session
BATCH: Final = Struct(">I")  # of SESSION: milliseconds
PACKET: Final = Struct(">BIH")  # kind, session, packet identifier
COPY: Final = Struct(">BII")  # kind, session, copy
SENT: Final = Struct(">BIIH")  # kind, session, copy, packet identifier
SUBSCRIPTION: Final = Struct(">BIBI")  # kind, session, options, identifier
MESSAGE: Final = Struct(">BBQH")  # kind, flags, accepted at, copies; then what the flags say, in their order
NUMBER: Final = Struct(">Q")
INSTANT: Final = Struct(">Q")
CAUSE: Final = Struct(">IH")  # session, packet identifier of its QoS 2; 0: it is the session's will
PLACE: Final = Struct(">II")  # session, copy
ONE_COPY: Final = Struct(">IIB")  # session, copy, flags; then what the flags say, in their order
U16: Final = Struct(">H")
COPY_OF: Final = Struct(">BQ")  # kind, number of the message
ROW: Final = Struct(">IIB")  # of SETTLED: session, first copy, how many
CLOCK: Final = Struct(">BQ")  # kind, stored clock
PAGED: Final = Struct(">BIQIIIQQQIQ")
"""Kind, session, page, first copy, copies, bytes of the file, bytes that they hold, stored clock when the oldest and
the newest were accepted, how many expire, and when the last of them does (0: some never do). Rows of the copies as they
were numbered in the journal until then follow."""
PAGED_ROW: Final = Struct(">II")  # of PAGED: first copy, how many
UNPAGED: Final = Struct(">BIQIQ")  # kind, session, page, first copy, oldest accepted at; the content may follow
KNOWN_CHARS_MAX: Final = 128  # longer texts are written anew each time: 512 of the others take 0.2 MiB at most

WILL: Final = 0x01  # flag of SESSION: a will follows; of GONE: it still waits
CLAIMS: Final = 0x02  # flag of SESSION: rules of a token follow, which narrow what the client may do
BRIDGE_SYNC: Final = 0x70  # flags of SESSION and of GONE: a BridgeSyncState, 0 for none
BRIDGE_SYNC_SHIFT: Final = 4
OLD_BRIDGE_SYNC: Final = {
    U32_MAX - 3: BridgeSyncState.IN_DOUBT,
    U32_MAX - 2: BridgeSyncState.RETAINED_PENDING,
    U32_MAX - 1: BridgeSyncState.NOT_CONNECTED,
    U32_MAX: BridgeSyncState.SYNCHRONISED,
}
"""In records without such a flag: expiry s of a session of a bridge -> its state."""
AWAY: Final = 0x04  # flag of SESSION: said again while its client is away; since when, GONE says
BATCHED: Final = 0x08  # flag of SESSION: answers do not wait for the disk, records wait for others; how long follows
QOS: Final = 0x03  # flags of messages, copies and subscription options
RETAIN: Final = 0x04
NUMBERED: Final = 0x08  # flags of messages: a number follows; without it, that of the record
EXPIRES: Final = 0x10
CAUSED: Final = 0x20
INSTEAD: Final = 0x40  # one copy takes the place of another, which is settled
PROPERTIES: Final = 0x80  # they stand before the payload
IS_RELEASED: Final = 0x08  # flags of copies
SENT_AS: Final = 0x10  # a packet identifier follows
LABELLED: Final = 0x20  # how much of the topic its label begins with (2), and the rest; without it, it is the topic
IDENTIFIED: Final = 0x40  # subscription identifiers follow
NO_LOCAL: Final = 0x04  # subscription options
AS_PUBLISHED: Final = 0x08
OWED: Final = 0x10  # what is retained is on its way
OPTIONS_AT: Final = 5  # in SUBSCRIBED
ROW_MAX: Final = 0xFF  # so that nobody must look for 65,535 copies because of ten bytes


def session_record(session: Session, is_away: bool = False) -> bytes:
    """SESSION: the terms of *session*, its will if it has one, and what its token allows at most if that says so.

    What it was promised (`session.durability`) is one of the terms: it holds after a restart too, until its client
    comes again. Where nothing is said it is `sync`: who was promised less has more then, in journals from before.
    """
    will, claims = session.will, session.claims
    flags = (WILL if will else 0) | (CLAIMS if claims is not None else 0) | (AWAY if is_away else 0)
    flags |= (0 if session.waits_for_sync else BATCHED) | _bridge_sync(session)
    head = SESSION.pack(SessionRecordKind.SESSION, session.number, session.expiry_s, flags)
    head += write_text(session.client_id) + write_text(session.user)
    batch = b"" if session.waits_for_sync else BATCH.pack(session.sync_delay_us // MILLISECOND)
    return head + (_will(will) if will else b"") + _claims(claims) + batch


def gone_record(session: Session, at: Instant) -> bytes:
    """GONE: its client left at *at*, or the will that waited since then is settled."""
    flags = (WILL if session.will else 0) | _bridge_sync(session)
    return GONE.pack(SessionRecordKind.GONE, session.number, session.expiry_s, flags, at)


def _bridge_sync(session: Session) -> int:
    return (session.bridge_sync or 0) << BRIDGE_SYNC_SHIFT


def read_bridge_sync(flags: int, expiry_s: int) -> tuple[BridgeSyncState | None, int]:
    """The state of a bridge that the *flags* of SESSION or GONE hold, None for other clients, and the session's expiry.

    Older gateways wrote the state of a bridge into the last four values of *expiry_s*. Raises ValueError.
    """
    if flags & BRIDGE_SYNC:
        return BridgeSyncState((flags & BRIDGE_SYNC) >> BRIDGE_SYNC_SHIFT), expiry_s
    state = OLD_BRIDGE_SYNC.get(expiry_s)
    return state, expiry_s if state is None else U32_MAX


def subscription_record(
    session: int,
    text: str,
    where: str,
    qos: int,
    no_local: bool,
    as_published: bool,
    identifier: int,
    is_owed: bool = False,
) -> bytes:
    """SUBSCRIBED: *text* as the client wrote it; *where* is the value of its user property, "" if it has none.
    is_owed: not all that is retained of it was sent; until it is said again without that.
    """
    options = qos | no_local << 2 | as_published << 3 | is_owed << 4
    head = SUBSCRIPTION.pack(SessionRecordKind.SUBSCRIBED, session, options, identifier)
    return head + write_text(text) + write_text(where)


def is_owed(record: bytes) -> bool:
    """Whether SUBSCRIBED says that what is retained is on its way."""
    return record[OPTIONS_AT] & OWED != 0


def owed(record: bytes, is_owed: bool = True) -> bytes:
    """The same SUBSCRIBED with that, or without."""
    options = record[OPTIONS_AT] & ~OWED | is_owed << 4
    return record[:OPTIONS_AT] + bytes((options,)) + record[OPTIONS_AT + 1 :]


def unsubscription_record(session: int, text: str) -> bytes:
    """UNSUBSCRIBED."""
    return ONE.pack(SessionRecordKind.UNSUBSCRIBED, session) + write_text(text)


def message_record(
    publication: Publication,
    clock: int,
    copies: Iterable[tuple[Session, QueueEntry]],
    cause: tuple[int, int] | None = None,
    instead_of: tuple[int, int] | None = None,
    is_brief: bool = False,
) -> bytes:
    """MESSAGE. *clock* is what to add to an instant for the stored clock.

    cause: (session, packet identifier) of a QoS 2 publisher; with 0 as identifier it is the session's will. instead_of:
    (session, copy) of which the one copy takes the place; (0, 0): of none that is kept. If the message was said before,
    even that is told, or the copy would be taken for what a snapshot says again, which was sent before all else.
    is_brief: what copies are for is left out, if they are for no group: they are for the topic then. 20,000 filters of
    2 KiB are larger than a record.
    """
    rows = []
    for session, entry in copies:  # not a comprehension, whose variables would have no C types
        rows.append(_copy(session.number, entry, is_brief))
    flags = 0 if publication.stored == publication.stated else NUMBERED
    said = NUMBER.pack(publication.stored) if flags else b""
    if publication.expires_at is not None:
        flags |= EXPIRES
        said += INSTANT.pack(publication.expires_at + clock)
    if cause is not None:
        flags |= CAUSED
        said += CAUSE.pack(*cause)
    if instead_of is not None and (instead_of[0] or flags & NUMBERED):
        flags |= INSTEAD
        said += PLACE.pack(*instead_of)
    return _message(SessionRecordKind.MESSAGE, publication, flags, clock, said, rows)


def copy_record(publication: Publication, session: Session, entry: QueueEntry) -> bytes:
    """COPY: *entry* of *session* is one of *publication*, whose MESSAGE stands in the same snapshot."""
    return COPY_OF.pack(SessionRecordKind.COPY, publication.stored) + _copy(session.number, entry)


def settled_record(copies: list[tuple[int, int]]) -> bytes:
    """SETTLED: *copies* as (session, copy). Those of a session that follow one another take no more than one."""
    rows: list[bytes] = [bytes((SessionRecordKind.SETTLED,))]
    copies = sorted(copies)
    session, first = copies[0]
    count = 0
    for one, copy in copies:
        if one == session and copy == first + count and count < ROW_MAX:
            count += 1
        else:
            rows.append(ROW.pack(session, first, count))
            session, first, count = one, copy, 1
    rows.append(ROW.pack(session, first, count))
    return b"".join(rows)


def paged_message_record(publication: Publication, clock: int, session: int, entry: QueueEntry) -> bytes:
    """MESSAGE with *entry*, the copy for *session*, and the number of the message: what UNPAGED says of it."""
    flags, said = NUMBERED, NUMBER.pack(publication.stored)
    if publication.expires_at is not None:
        flags |= EXPIRES
        said += INSTANT.pack(publication.expires_at + clock)
    return _message(SessionRecordKind.MESSAGE, publication, flags, clock, said, [_copy(session, entry)])


def paged_record(session: int, page: QueuePage, clock: int, copies: Sequence[int] = ()) -> bytes:
    """PAGED: *copies*, in ascending order, are in *page* from now on; none if it is said again."""
    expires_at = 0 if page.expires_at is None else page.expires_at + clock
    head = PAGED.pack(
        SessionRecordKind.PAGED,
        session,
        page.number,
        page.first,
        page.count,
        page.file_bytes,
        page.held_bytes,
        page.accepted_at + clock,
        page.newest_at + clock,
        page.expiring,
        expires_at,
    )
    rows: list[tuple[int, int]] = []
    for copy in copies:
        if rows and rows[-1][0] + rows[-1][1] == copy:
            rows[-1] = rows[-1][0], rows[-1][1] + 1
        else:
            rows.append((copy, 1))
    return head + b"".join([PAGED_ROW.pack(first, count) for first, count in rows])


def unpaged_record(session: int, page: QueuePage, clock: int, content: bytes = b"") -> bytes:
    """UNPAGED: the copies of *page* are on their way again, and *content* is that of its file; or they are given up."""
    head = UNPAGED.pack(SessionRecordKind.UNPAGED, session, page.number, page.first, page.accepted_at + clock)
    return head + content


def retained_record(publication: Publication, clock: int) -> bytes:
    """RETAINED: the topic's message from now on."""
    if publication.expires_at is None:
        return _message(SessionRecordKind.RETAINED, publication, RETAIN, clock, b"", [])
    expires_at = INSTANT.pack(publication.expires_at + clock)
    return _message(SessionRecordKind.RETAINED, publication, RETAIN | EXPIRES, clock, expires_at, [])


def retained_by_record(topic: str, account: str) -> bytes:
    """RETAINED_BY: who published the message that the RETAINED before it says."""
    return bytes((SessionRecordKind.RETAINED_BY,)) + write_text(topic) + write_text(account)


def cleared_record(topic: str) -> bytes:
    """CLEARED."""
    return bytes((SessionRecordKind.CLEARED,)) + write_text(topic)


def uncleared_record(session: int, topic: str) -> bytes:
    """UNCLEARED."""
    return ONE.pack(SessionRecordKind.UNCLEARED, session) + write_text(topic)


def _message(
    kind: SessionRecordKind, publication: Publication, flags: int, clock: int, said: bytes, rows: list[bytes]
) -> bytes:
    flags |= publication.qos | publication.retain << 2
    body = _text(publication.publisher) + _text(publication.topic)
    if publication.properties:
        flags |= PROPERTIES
        body += encode_properties(publication.properties)
    head = MESSAGE.pack(kind, flags, publication.accepted_at + clock, len(rows))
    return b"".join((head, said, *rows, body, publication.payload))


def _text(text: str) -> bytes:
    """`write_text`: the same publishers and topics come again and again."""
    return _known_text(text) if len(text) <= KNOWN_CHARS_MAX else write_text(text)


def _label(text: str, topic: str) -> bytes:
    """What a copy of a message under *topic* is for: how far *text* is the same, and the rest of it."""
    same = max(text.find("+"), 0) or max(text.find("#"), 0)  # up to there both are the same, unless it is "$..."
    if not topic.startswith(text[:same]):
        same = 0
    return U16.pack(same) + write_text(text[same:])


_known_text = lru_cache(maxsize=256)(write_text)
_known_label = lru_cache(maxsize=256)(_label)


def _copy(session: int, entry: QueueEntry, is_brief: bool = False) -> bytes:
    flags = entry.qos | entry.retain << 2 | entry.released << 3
    said = b""
    if entry.packet_id:
        flags |= SENT_AS
        said = U16.pack(entry.packet_id)
    text, topic = entry.text, entry.publication.topic
    if text != topic and not (is_brief and not text.startswith(SHARE_PREFIX)):
        flags |= LABELLED
        said += _known_label(text, topic) if len(text) + len(topic) <= KNOWN_CHARS_MAX else _label(text, topic)
    identifiers = entry.identifiers
    if identifiers:
        flags |= IDENTIFIED
        said += U16.pack(len(identifiers)) + b"".join([identifier.to_bytes(4, "big") for identifier in identifiers])
    return ONE_COPY.pack(session, entry.number, flags) + said


def _claims(claims: Acl | None) -> bytes:
    if claims is None:
        return b""
    return len(claims.patterns).to_bytes(2, "big") + b"".join([write_text(str(rule)) for rule in claims.patterns])


def _will(will: Will) -> bytes:
    flags = will.qos | will.retain << 2
    return bytes((flags,)) + write_text(will.topic) + write_binary(will.payload) + encode_properties(will.properties)
