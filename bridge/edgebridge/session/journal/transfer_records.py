"""Journal records of sessions that move between gateways: where they come from and go to, and which events they have.

While a session moves, its messages come to both gateways for a moment. An event has the same identity at both, so the
new gateway can tell which ones it has twice, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import IntFlag
from struct import Struct
from typing import Final

from edgebridge.session.journal.session_records import SessionRecordKind
from edgebridge.wire.fields import read_text, write_text
from edgebroker.dataclasses import dataclass
from edgebroker.log_schema import EventId

TRANSFER: Final = Struct(">BIBHHQI")
"""Kind, session, flags, number of the other gateway, number of the gateway that claimed the session, number of the
claim, and the last piece that was sent or came; the client's name follows."""
COPY_EVENT: Final = Struct(">BIIBII")  # kind, session, copy, whether it is held, publisher and sequence of the event
KNOWN_EVENTS: Final = Struct(">BI")  # kind, session; then rows, as in LAST_EVENTS
EVENT_ROW: Final = Struct(">II")  # publisher and sequence of the event
DEPARTING_PREFIX: Final = "$roaming/"
"""Begins the name of a session that goes to another gateway: its client's own name may be in use here again."""


class TransferFlag(IntFlag):
    """The state of a move."""

    DEPARTURE = 1
    """The session goes; without that, it comes."""
    READY = 2
    """Its client can be served: what had to go first has gone, or come."""
    RELEASED = 4
    """The other gateways know where its client is."""
    LAST = 8
    """The last piece has come."""
    ADDITION = 16
    """What comes belongs to an earlier session of a client that has begun a new one meanwhile."""
    OVER = 32
    """Nothing of it need be known any longer."""


@dataclass(slots=True)
class StoredTransfer:
    """A move, as the journal knows it."""

    flags: TransferFlag
    peer: int
    gateway: int
    number: int
    sequence: int
    client: str

    @property
    def key(self) -> tuple[int, int, int]:
        """What tells it from other moves of the session: two gateways may have answered one claim."""
        return self.gateway, self.number, 0 if self.flags & TransferFlag.DEPARTURE else self.peer + 1


@dataclass(slots=True)
class StoredRoamingState:
    """What the journal knows of a session that moves."""

    transfers: dict[tuple[int, int, int], StoredTransfer] = field(default_factory=dict)
    events: dict[int, tuple[EventId, bool]] = field(default_factory=dict)
    """Copy -> its event, and whether the copy is held until the session has come as a whole."""
    known: dict[EventId, None] = field(default_factory=dict)
    """Events that came with the session."""
    last: dict[int, int] = field(default_factory=dict)
    """Publisher -> the sequence of its last event that the gateways have seen from which the session comes."""

    def transfer(self, record: bytes) -> StoredTransfer:
        """Take in a TRANSFER."""
        _, _, flags, peer, gateway, number, sequence = TRANSFER.unpack_from(record)
        client, _ = read_text(record, TRANSFER.size)
        stored = StoredTransfer(TransferFlag(flags), peer, gateway, number, sequence, client)
        if stored.flags & TransferFlag.OVER:
            self.transfers.pop(stored.key, None)
            if not self.transfers:
                self.known.clear()
                self.last.clear()
        else:
            self.transfers[stored.key] = stored
        return stored

    def copy_event(self, record: bytes) -> None:
        """Take in a COPY_EVENT."""
        _, _, copy, is_held, publisher, sequence = COPY_EVENT.unpack(record)
        self.events[copy] = (publisher, sequence), bool(is_held)

    def known_events(self, record: bytes) -> None:
        """Take in a KNOWN_EVENTS."""
        for publisher, sequence in EVENT_ROW.iter_unpack(memoryview(record)[KNOWN_EVENTS.size :]):
            self.known[publisher, sequence] = None

    def last_events(self, record: bytes) -> None:
        """Take in a LAST_EVENTS."""
        for publisher, sequence in EVENT_ROW.iter_unpack(memoryview(record)[KNOWN_EVENTS.size :]):
            self.last[publisher] = max(sequence, self.last.get(publisher, 0))


def departing_name(gateway: int, number: int, client: str) -> str:
    """Return the name of the session of *client* that the claim *number* of *gateway* takes away."""
    return f"{DEPARTING_PREFIX}{gateway}/{number}/{client}"


def client_of(name: str) -> str:
    """Return the client whose session has this *name*: the name itself, unless the session departs."""
    return name.split("/", 3)[3] if name.startswith(DEPARTING_PREFIX) else name


def transfer_record(session: int, transfer: StoredTransfer) -> bytes:
    """TRANSFER."""
    return TRANSFER.pack(
        SessionRecordKind.TRANSFER,
        session,
        transfer.flags,
        transfer.peer,
        transfer.gateway,
        transfer.number,
        transfer.sequence,
    ) + write_text(transfer.client)


def copy_event_record(session: int, copy: int, event: EventId, is_held: bool) -> bytes:
    """COPY_EVENT."""
    return COPY_EVENT.pack(SessionRecordKind.COPY_EVENT, session, copy, is_held, *event)


def known_events_record(session: int, events: Iterable[EventId]) -> bytes:
    """KNOWN_EVENTS."""
    rows = b"".join([EVENT_ROW.pack(*event) for event in events])
    return KNOWN_EVENTS.pack(SessionRecordKind.KNOWN_EVENTS, session) + rows


def last_events_record(session: int, events: Iterable[EventId]) -> bytes:
    """LAST_EVENTS."""
    rows = b"".join([EVENT_ROW.pack(*event) for event in events])
    return KNOWN_EVENTS.pack(SessionRecordKind.LAST_EVENTS, session) + rows
