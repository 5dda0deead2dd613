"""The messages by which a session moves from one gateway to another, and how they are written.

A client that connects at another gateway than before is served there as if nothing had happened. Its gateway *claims*
the session from the gateway that holds it; that sends it in *pieces*, the terms, the subscriptions and what is on its
way first, then the queue. The pieces are journal records of the session, as docs/journal.md specifies them.

All these messages are events for one gateway: they wait in outboxes while it cannot be reached, arrive once, and in
their order. What a gateway does because of one is in one transaction of its journal with the record that it came.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

_HEAD: Final = Struct(">BHQH")  # kind, number of the claiming gateway, number of the claim, bytes of the client's name
_PIECE: Final = Struct(">IBH")  # sequence, flags, items
_ITEM: Final = Struct(">III")  # publisher and sequence of an event, 0 and 0: none; bytes of the record
_CLAIM: Final = Struct(">BH")  # whether it is clean, number of the gateway that was asked; the user's name follows
_DENIAL: Final = Struct(">HBQH")  # gateway that was asked, whether it refuses, number and gateway of a later claim
_FLAG: Final = Struct(">B")
_SEQUENCE: Final = Struct(">I")
NO_EVENT: Final = (0, 0)
NO_CLAIM: Final = (0, 0)


class _Kind(IntEnum):
    CLAIM = 1
    DENIAL = 2
    PIECE = 3
    RECEIPT = 4
    RELEASE = 5


class TransferKey(NamedTuple):
    """The identity of one move of a session."""

    gateway: int
    """The number of the gateway to which the session goes."""
    number: int
    """Grows with each claim of that gateway, also over restarts."""
    client: str


class SessionClaim(NamedTuple):
    """The client is here: the receiver ends its connection, and sends the session if it has one."""

    key: TransferKey
    asked: int
    """The number of the gateway to which the claiming one sent it; that may hand it on to where the session went."""
    is_clean: bool = False
    """The client wants a new session: the old one ends, and nothing is sent."""
    user: str = ""
    """Who the client proved to be; empty: nobody in particular."""


class SessionDenial(NamedTuple):
    """The sender has no session of the client, or none for it."""

    key: TransferKey
    asked: int
    """As in the claim: for which gateway the sender answers."""
    is_refused: bool = False
    """The session belongs to another user, so this one may not use the client identifier."""
    later: tuple[int, int] = NO_CLAIM
    """The number of a later claim of the session, and the gateway at which the client is since then."""


class PieceFlag(IntFlag):
    """The place of a piece in a session."""

    FIRST = 1
    READY = 2
    """Terms, subscriptions and what was on its way have been sent: the client can be served."""
    LAST = 4


class PieceItem(NamedTuple):
    """A record of the session."""

    record: bytes
    event: tuple[int, int] = NO_EVENT
    """Of a message that came when the session was claimed already: the event. It may come to the new gateway too."""


class SessionPiece(NamedTuple):
    """A part of the session, up to some 64 KiB."""

    key: TransferKey
    sequence: int
    """Counts from 1."""
    flags: PieceFlag
    items: tuple[PieceItem, ...]


class PieceReceipt(NamedTuple):
    """The piece *sequence* is in the journal of the new gateway."""

    key: TransferKey
    sequence: int


class SessionRelease(NamedTuple):
    """The old gateway need not take messages for the client much longer: all gateways know that it is elsewhere."""

    key: TransferKey
    is_immediate: bool
    """It need not take any: the client has begun another session."""


TransferMessage: TypeAlias = SessionClaim | SessionDenial | SessionPiece | PieceReceipt | SessionRelease


def encode_transfer(message: TransferMessage) -> bytes:
    """Return *message* as the payload of an event."""
    match message:
        case SessionClaim(key, asked, is_clean, user):
            return _head(_Kind.CLAIM, key) + _CLAIM.pack(is_clean, asked) + user.encode()
        case SessionDenial(key, asked, is_refused, later):
            return _head(_Kind.DENIAL, key) + _DENIAL.pack(asked, is_refused, *later)
        case SessionPiece(key, sequence, flags, items):
            parts = [_head(_Kind.PIECE, key), _PIECE.pack(sequence, flags, len(items))]
            for item in items:
                parts += (_ITEM.pack(*item.event, len(item.record)), item.record)
            return b"".join(parts)
        case PieceReceipt(key, sequence):
            return _head(_Kind.RECEIPT, key) + _SEQUENCE.pack(sequence)
        case SessionRelease(key, is_immediate):
            return _head(_Kind.RELEASE, key) + _FLAG.pack(is_immediate)


def read_transfer(payload: bytes) -> TransferMessage | None:
    """Return the message in the payload of an event; None if it cannot be read."""
    try:
        kind, gateway, number, size = _HEAD.unpack_from(payload)
        at = _HEAD.size + size
        key = TransferKey(gateway, number, payload[_HEAD.size : at].decode())
        match _Kind(kind):
            case _Kind.CLAIM:
                is_clean, asked = _CLAIM.unpack_from(payload, at)
                return SessionClaim(key, asked, bool(is_clean), payload[at + _CLAIM.size :].decode())
            case _Kind.DENIAL:
                asked, is_refused, number, gateway = _DENIAL.unpack_from(payload, at)
                return SessionDenial(key, asked, bool(is_refused), (number, gateway))
            case _Kind.PIECE:
                return _read_piece(key, payload, at)
            case _Kind.RECEIPT:
                return PieceReceipt(key, _SEQUENCE.unpack_from(payload, at)[0])
            case _Kind.RELEASE:
                return SessionRelease(key, bool(_FLAG.unpack_from(payload, at)[0]))
    except (StructError, ValueError):
        return None


def _head(kind: _Kind, key: TransferKey) -> bytes:
    client = key.client.encode()
    return _HEAD.pack(kind, key.gateway, key.number, len(client)) + client


def _read_piece(key: TransferKey, payload: bytes, at: int) -> SessionPiece:
    sequence, flags, count = _PIECE.unpack_from(payload, at)
    at += _PIECE.size
    items = []
    for _ in range(count):
        publisher, number, size = _ITEM.unpack_from(payload, at)
        at += _ITEM.size
        record = payload[at : at + size]
        if len(record) != size:
            raise ValueError("the record is longer than its piece")
        items.append(PieceItem(record, (publisher, number)))
        at += size
    return SessionPiece(key, sequence, PieceFlag(flags), tuple(items))
