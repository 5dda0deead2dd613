"""What the journal holds of sessions and messages: one record for each change, as bytes (docs/journal.md, "Records").

A record says one thing about one noun and may be said again: replaying a record whose effect is there already changes
nothing. So a snapshot is nothing but the whole state said again. Numbers are big-endian; a text is its length in two
bytes and UTF-8. Instants are those of the stored clock: microseconds since 1970 that never go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

from edgebridge.session.acl import Acl
from edgebridge.session.inflight import Entry
from edgebridge.wire.fields import write_binary, write_text
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import encode_properties
from edgebroker.instants import Instant
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebridge.session.session import Session


class Kind(IntEnum):
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
    """A publication and its copies for kept sessions; perhaps its publisher's QoS 2 identifier too."""
    COPY = 7
    """One more copy of a message said before; only in snapshots."""
    SENT = 8
    """A copy that waited got a packet identifier."""
    RELEASED = 9
    """PUBREC came: the client has the message."""
    SETTLED = 10
    """A copy has its fate."""
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


SESSION: Final = Struct(">BIIB")  # kind, session, expiry s, flags
GONE: Final = Struct(">BIIBQ")  # kind, session, expiry s, flags, stored clock
ONE: Final = Struct(">BI")  # kind, session
PACKET: Final = Struct(">BIH")  # kind, session, packet identifier
COPY: Final = Struct(">BII")  # kind, session, copy
SENT: Final = Struct(">BIIH")  # kind, session, copy, packet identifier
SUBSCRIPTION: Final = Struct(">BIBI")  # kind, session, options, identifier
# kind, flags, number, accepted at, expires at (0: never), session and identifier of the publisher's QoS 2, copies
MESSAGE: Final = Struct(">BBQQQIHH")
ONE_COPY: Final = Struct(">IIBHH")  # session, copy, flags, packet identifier, subscription identifiers
COPY_OF: Final = Struct(">BQ")  # kind, number of the message
CLOCK: Final = Struct(">BQ")  # kind, stored clock

WILL: Final = 0x01  # flag of SESSION: a will follows; of GONE: it still waits
CLAIMS: Final = 0x02  # flag of SESSION: rules of a token follow, which narrow what the client may do
QOS: Final = 0x03  # flags of messages, copies and subscription options
RETAIN: Final = 0x04
IS_RELEASED: Final = 0x08
NO_LOCAL: Final = 0x04  # subscription options
AS_PUBLISHED: Final = 0x08


def session_record(session: Session) -> bytes:
    """SESSION: the terms of *session*, its will if it has one, and what its token allows at most if that says so."""
    will, claims = session.will, session.claims
    flags = (WILL if will else 0) | (CLAIMS if claims is not None else 0)
    head = SESSION.pack(Kind.SESSION, session.number, session.expiry_s, flags)
    head += write_text(session.client_id) + write_text(session.user)
    return head + (_will(will) if will else b"") + _claims(claims)


def gone_record(session: Session, at: Instant) -> bytes:
    """GONE: its client left at *at*, or the will that waited since then is settled."""
    return GONE.pack(Kind.GONE, session.number, session.expiry_s, WILL if session.will else 0, at)


def subscription_record(
    session: int, text: str, where: str, qos: int, no_local: bool, as_published: bool, identifier: int
) -> bytes:
    """SUBSCRIBED: *text* as the client wrote it; *where* is the value of its user property, "" if it has none."""
    options = qos | no_local << 2 | as_published << 3
    head = SUBSCRIPTION.pack(Kind.SUBSCRIBED, session, options, identifier)
    return head + write_text(text) + write_text(where)


def unsubscription_record(session: int, text: str) -> bytes:
    """UNSUBSCRIBED."""
    return ONE.pack(Kind.UNSUBSCRIBED, session) + write_text(text)


def message_record(
    publication: Publication,
    clock: int,
    copies: Iterable[tuple[Session, Entry]],
    publisher: Session | None = None,
    packet_id: int = 0,
) -> bytes:
    """MESSAGE. *clock* is what to add to an instant for the stored clock; *publisher* has QoS 2 as *packet_id*."""
    pieces = [b""]
    for session, entry in copies:
        pieces += _copy(session.number, entry)
    pieces[0] = MESSAGE.pack(
        Kind.MESSAGE,
        publication.qos | publication.retain << 2,
        publication.stored,
        publication.accepted_at + clock,
        0 if publication.expires_at is None else publication.expires_at + clock,
        0 if publisher is None else publisher.number,
        packet_id,
        len(pieces) // 2,
    )
    return b"".join(pieces) + _body(publication)


def copy_record(publication: Publication, session: Session, entry: Entry) -> bytes:
    """COPY: *entry* of *session* is one of *publication*, whose MESSAGE stands in the same snapshot."""
    return COPY_OF.pack(Kind.COPY, publication.stored) + b"".join(_copy(session.number, entry))


def retained_record(publication: Publication, clock: int) -> bytes:
    """RETAINED: the topic's message from now on."""
    return MESSAGE.pack(
        Kind.RETAINED,
        publication.qos | RETAIN,
        0,
        publication.accepted_at + clock,
        0 if publication.expires_at is None else publication.expires_at + clock,
        0,
        0,
        0,
    ) + _body(publication)


def cleared_record(topic: str) -> bytes:
    """CLEARED."""
    return bytes((Kind.CLEARED,)) + write_text(topic)


def _body(publication: Publication) -> bytes:
    properties = encode_properties(publication.properties) if publication.properties else b"\0"
    return write_text(publication.publisher) + write_text(publication.topic) + properties + publication.payload


def _copy(session: int, entry: Entry) -> tuple[bytes, bytes]:
    flags = entry.qos | entry.retain << 2 | entry.released << 3
    identifiers = entry.identifiers
    head = ONE_COPY.pack(session, entry.number, flags, entry.packet_id, len(identifiers))
    text = entry.text
    label = b"\0\0" if text == entry.publication.topic else write_text(text)  # most ask for the topic itself
    if identifiers:
        label += b"".join([identifier.to_bytes(4, "big") for identifier in identifiers])
    return head, label


def _claims(claims: Acl | None) -> bytes:
    if claims is None:
        return b""
    return len(claims.patterns).to_bytes(2, "big") + b"".join([write_text(str(rule)) for rule in claims.patterns])


def _will(will: Will) -> bytes:
    flags = will.qos | will.retain << 2
    return bytes((flags,)) + write_text(will.topic) + write_binary(will.payload) + encode_properties(will.properties)
