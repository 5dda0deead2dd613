"""The records in a journal, and the broker that begins with what they say."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from edgebridge.frontend.frontend import Frontend
from edgebridge.session.journal.dump import describe
from edgebridge.session.journal.session_records import (
    CAUSED,
    CLOCK,
    COPY,
    COPY_OF,
    EXPIRES,
    GONE,
    IDENTIFIED,
    INSTEAD,
    LABELLED,
    MESSAGE,
    NUMBERED,
    ONE,
    ONE_COPY,
    PACKET,
    PROPERTIES,
    ROW,
    SENT,
    SENT_AS,
    SESSION,
    SessionRecordKind,
    retained_by_record,
    settled_record,
    subscription_record,
    uncleared_record,
    unsubscription_record,
)
from edgebridge.session.journal.state import JournalState
from edgebridge.session.journal.transfer_records import (
    StoredTransfer,
    TransferFlag,
    copy_event_record,
    known_events_record,
    last_events_record,
    transfer_record,
)
from edgebridge.wire.fields import write_text
from edgebroker.instants import CLOCK_IS_SET_AFTER, SECOND
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.journal.format import RECORD_BYTES
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

from .broker import OPTIONS


def records_of(data: bytes) -> list[bytes]:
    """The records in *data*, each with its length in two bytes before it."""
    found, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2])
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def packed(*records: bytes) -> bytes:
    """The reverse."""
    return b"".join(len(record).to_bytes(2) + record for record in records)


def within(data: bytes) -> bytes:
    """As many of the records in *data* as BOMB_BYTES of a journal hold."""
    kept, left = [], BOMB_BYTES
    for record in records_of(data):
        left -= RECORD_BYTES + len(record)
        if left < 0:
            break
        kept.append(record)
    return packed(*kept)


def read_records(data: bytes) -> None:
    """Records in any order and of any content: a broker begins with what they say, and its books are right."""
    stored = JournalState()
    for lsn, record in enumerate(records_of(data), data[0] if data else 1):
        stored.apply_row(lsn, [record])
        assert describe(record, lsn) is not None
    stored.finish()
    ledger = Ledger()
    journal = Journal(b"fuzz" * 4, JournalOptions())
    frontend = Frontend(Node(ledger), OPTIONS, lambda: "assigned", journal=journal)
    frontend.start(0)
    frontend.recovery.begin(stored, CLOCK_IS_SET_AFTER, 0)
    frontend.recovery.restore(stored, 0)
    sessions = frontend.connect_handler.sessions
    for now in (1, 3_600 * SECOND):
        frontend.fire(now)
        waiting = sum(len(session.inflight) + len(session.outbox) for session in sessions.values())
        assert ledger.queued == waiting


def applied(data: bytes) -> Iterator[None]:
    """The reading alone, of records that are at hand as recovery has them."""
    found = records_of(data)
    yield
    stored = JournalState()
    stored.apply_row(1, found)
    stored.finish()
    yield


def body(topic: str, payload: bytes, properties: bytes = b"") -> bytes:
    """The end of MESSAGE and RETAINED."""
    return write_text("publisher") + write_text(topic) + properties + payload


def one_copy(session: int, copy: int, flags: int = 1, packet_id: int = 0, identifiers: tuple[int, ...] = ()) -> bytes:
    """A copy inside MESSAGE and COPY."""
    flags |= LABELLED | (SENT_AS if packet_id else 0) | (IDENTIFIED if identifiers else 0)
    said = packet_id.to_bytes(2) if packet_id else b""
    said += b"\0\2" + write_text("#")
    said += len(identifiers).to_bytes(2) if identifiers else b""
    return ONE_COPY.pack(session, copy, flags) + said + b"".join(one.to_bytes(4) for one in identifiers)


ALICE = SESSION.pack(SessionRecordKind.SESSION, 1, 3_600, 0) + write_text("alice") + write_text("anna")
BOB = (
    SESSION.pack(SessionRecordKind.SESSION, 2, 60, 3)
    + write_text("bob")
    + write_text("")
    + b"\1"
    + write_text("will")
    + write_text("gone")
    + b"\x05\x18\0\0\0\5"
    + b"\0\1"
    + write_text("read a/# where x > 1")
)
MESSAGE_1 = (
    MESSAGE.pack(SessionRecordKind.MESSAGE, 1 | NUMBERED | EXPIRES | CAUSED | PROPERTIES, 1_000, 2)
    + (7).to_bytes(8)
    + (9_000_000_000).to_bytes(8)
    + (2).to_bytes(4)
    + (5).to_bytes(2)
    + one_copy(1, 1, 1, 0, (1, 9))
    + one_copy(2, 1, 2, 4)
)
MESSAGE_2 = (
    MESSAGE.pack(SessionRecordKind.MESSAGE, 2 | INSTEAD, 1_500, 1)
    + (1).to_bytes(4)
    + (1).to_bytes(4)
    + one_copy(2, 3, 2)
)
HISTORY = (
    ALICE,
    BOB,
    subscription_record(1, "a/#", "x > 1", 1, False, True, 9),
    subscription_record(1, "$share/g/$filter/x > 1/a", "", 2, False, False, 0),
    MESSAGE_1 + body("a/b", b'{"x":2}', b"\x07\x26\0\1k\0\1v"),
    COPY_OF.pack(SessionRecordKind.COPY, 7) + one_copy(2, 2, 2),
    SENT.pack(SessionRecordKind.SENT, 1, 1, 3),
    COPY.pack(SessionRecordKind.RELEASED, 2, 1),
    PACKET.pack(SessionRecordKind.RECEIVED, 1, 8),
    MESSAGE_2 + body("a/c", b"moved"),
    MESSAGE.pack(SessionRecordKind.MESSAGE, 1 | CAUSED, 1_600, 1)
    + bytes((0, 0, 0, 2, 0, 0))
    + one_copy(1, 4)
    + body("will", b""),
    MESSAGE.pack(SessionRecordKind.RETAINED, 5, 2_000, 0) + body("r", b"kept"),
    retained_by_record("r", "user anna"),
    uncleared_record(1, "r"),
    GONE.pack(SessionRecordKind.GONE, 2, 60, 1, 5_000),
    CLOCK.pack(SessionRecordKind.CLOCK, 6_000),
    bytes((SessionRecordKind.STATED,)),
    settled_record([(1, 1), (1, 2), (2, 3)]),
    PACKET.pack(SessionRecordKind.FORGOTTEN, 1, 8),
    unsubscription_record(1, "a/#"),
    bytes((SessionRecordKind.CLEARED,)) + write_text("r"),
    transfer_record(1, StoredTransfer(TransferFlag.READY, 4, 3, 1_700, 2, "alice")),
    copy_event_record(1, 4, (9, 3), True),
    known_events_record(1, [(9, 3), (8, 1)]),
    last_events_record(1, [(9, 3), (7, 2)]),
    transfer_record(2, StoredTransfer(TransferFlag.DEPARTURE, 5, 5, 1_800, 1, "bob")),
    transfer_record(1, StoredTransfer(TransferFlag.OVER, 4, 3, 1_700, 2, "alice")),
    ONE.pack(SessionRecordKind.ENDED, 2),
)


def shuffled(chance: Random) -> bytes:
    """Records of the history, in any order, some of them again."""
    return packed(*(chance.choice(HISTORY) for _ in range(chance.randrange(1, 20))))


def kept(properties: bytes) -> bytes:
    """Retained messages with these, each of another topic."""
    head = MESSAGE.pack(SessionRecordKind.RETAINED, 1 | PROPERTIES, 1, 0) + b"\0\0"
    return within(packed(*(head + write_text(f"{number:x}") + properties for number in range(3_000))))


RECORD_BOMBS = {
    "a message with many copies": lambda: packed(
        ALICE,
        MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, 6_500)
        + b"".join(ONE_COPY.pack(1, n, 1) for n in range(6_500))
        + body("a", b""),
    ),
    "many identifiers of a copy": lambda: packed(
        ALICE,
        MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, 1) + one_copy(1, 1, 1, 0, tuple(range(16_000))) + body("a", b""),
    ),
    "a message with many properties": lambda: packed(
        MESSAGE.pack(SessionRecordKind.RETAINED, 1 | PROPERTIES, 1, 0)
        + body("a", b"", b"\xe8\x7f" + filled(b"\x26\0\0\0\0", size=16_360).ljust(16_360, b"\0"))
    ),
    "rows of copies that are not there": lambda: within(
        packed(
            ALICE,
            MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, 3_000)
            + b"".join(ONE_COPY.pack(1, n, 1) for n in range(3_000))
            + body("a", b""),
            bytes((SessionRecordKind.SETTLED,)) + b"".join(ROW.pack(1, 5_000, 255) for _ in range(3_400)),
        )
    ),
    "rows between copies": lambda: within(
        packed(
            ALICE,
            MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, 1_000)
            + b"".join(ONE_COPY.pack(1, n << 8, 1) for n in range(1_000))
            + body("a", b""),
            *(
                bytes((SessionRecordKind.SETTLED,))
                + b"".join(ROW.pack(1, n % 1_000 << 8 | 1, 255) for n in range(6_000)),
            ),
        )
    ),
    "rows of one copy, and copies": lambda: within(
        packed(
            ALICE,
            settled_record([(1, n) for n in range(1)]),
            *(
                one
                for n in range(900)
                for one in (
                    MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, 1) + ONE_COPY.pack(1, n << 12, 1) + body("a", b""),
                    bytes((SessionRecordKind.SETTLED,)) + ROW.pack(1, (n << 12) - 100 & 0xFFFFFFFF, 255),
                )
            ),
        )
    ),
    "ends of snapshots": lambda: within(
        packed(
            ALICE,
            *(
                MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, 1) + ONE_COPY.pack(1, n, 1) + body("a", b"")
                for n in range(600)
            ),
        )
        + filled(b"\0\1\x10")
    ),
    "sessions of one byte": lambda: within(filled(b"\0\1\1")),
    "clocks of one byte": lambda: within(filled(b"\0\1\x0f")),
    "groups": lambda: within(filled(b"\0\1\x11")),
    "a group of one byte": lambda: within(b"\0\1\x11" + b"\0\1\1" * 7_270 + b"\0\1\x12"),
    "links of one byte": lambda: within(filled(b"\0\1\x22")),
    "unknown records": lambda: within(filled(b"\0\1\xff")),
    "records of nothing": lambda: within(filled(b"\0\0")),
    "packets of one byte": lambda: within(filled(b"\0\1\x0b")),
    "copies of no message": lambda: within(filled(b"\0\1\7")),
    "other sessions in turn": lambda: within(
        packed(
            *(
                SESSION.pack(SessionRecordKind.SESSION, n & 1, 0, 0) + write_text("a" if n & 2 else "b") + b"\0\0"
                for n in range(3_000)
            )
        )
    ),
    "sessions": lambda: within(
        packed(*(SESSION.pack(SessionRecordKind.SESSION, n, 0, 0) + write_text(str(n)) + b"\0\0" for n in range(3_000)))
    ),
    "subscriptions": lambda: within(
        packed(ALICE, *(subscription_record(1, str(n), "", 0, False, False, 0) for n in range(3_200)))
    ),
    "records of one byte": lambda: within(filled(b"\0\1\6")),
    "retained messages with a property": lambda: kept(b"\5\x26\0\0\0\0"),
    "retained messages with a property and an identifier": lambda: kept(b"\7\x26\0\0\0\0\x0b\1"),
    "retained messages of no known format": lambda: kept(b"\2\1\2"),
    "topics that are no text": lambda: within(filled(b"\0\4\x0e\0\1\xff")),
    "topic filters that are no text": lambda: within(packed(ALICE) + filled(b"\0\x08\5\0\0\0\1\0\1\xff")),
    "rules of a token": lambda: packed(
        SESSION.pack(SessionRecordKind.SESSION, 1, 0, 2) + b"\0\0\0\0" + (32_000).to_bytes(2) + bytes(64_000)
    ),
    "rules of tokens": lambda: within(
        packed(
            *(SESSION.pack(SessionRecordKind.SESSION, n, 0, 2) + b"\0\0\0\0\0\x40" + bytes(128) for n in range(1, 480))
        )
    ),
}


TARGETS = (
    Target(
        "records",
        read_records,
        (packed(*HISTORY), *(packed(ALICE, BOB, record) for record in HISTORY)),
        (),
        tuple(map(packed, HISTORY)),
        shuffled,
        bombs=RECORD_BOMBS,
        steps=applied,
    ),
)
