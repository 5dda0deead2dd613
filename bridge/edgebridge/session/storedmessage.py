"""A publication in the journal's records, which is read when somebody asks for it."""

from __future__ import annotations

from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from edgebridge.session.records import (
    CAUSE,
    CAUSED,
    EXPIRES,
    IDENTIFIED,
    INSTANT,
    INSTEAD,
    LABELLED,
    MESSAGE,
    NUMBER,
    NUMBERED,
    ONE_COPY,
    PLACE,
    PROPERTIES,
    QOS,
    RETAIN,
    SENT_AS,
    U16,
)
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.fields import read_text
from edgebridge.wire.properties import Carrier, Properties, Property, read_properties, text, user_properties
from edgebridge.wire.tracecontext import sampled
from edgebroker.publication import Publication

MISREAD: Final = (KeyError, IndexError, ValueError, OverflowError, StructError, ProtocolError)
"""What reading bytes that are no record raises. OverflowError is of compiled code: instants there have 63 bits."""


class StoredMessage:
    """A publication and how many copies of it are open. Its instants are those of the stored clock.

    What the record says of it is read when somebody asks. Most messages are settled again a few records later, and
    nobody does: a recovery takes two thirds of the time.
    """

    __slots__ = ("_publication", "_said", "copies", "number")

    def __init__(self, publication: Publication | None = None, number: int = 0) -> None:
        self.copies = 0
        self.number = number
        self._publication = publication
        self._said: tuple[bytes, int, int, int, int] | None = None

    def say(self, record: bytes, at: int, flags: int, accepted_at: int, expires_at: int) -> None:
        """The publication stands at *at* of *record*. What was said first counts."""
        if self._said is None:
            self._said = record, at, flags, accepted_at, expires_at

    @property
    def publication(self) -> Publication:
        """The publication. Raises one of MISREAD; not after `Stored.finish`, which drops what cannot be read."""
        if self._publication is None:
            assert self._said is not None
            self._publication = publication_of(*self._said, self.number)
        return self._publication

    @property
    def can_be_read(self) -> bool:
        """Whether the record holds a publication."""
        try:
            return self.publication is not None
        except MISREAD:
            return False


class Head(NamedTuple):
    """What MESSAGE and RETAINED say before their copies."""

    at: int
    """Where the copies begin."""
    flags: int
    number: int
    accepted_at: int
    copies: int
    expires_at: int = 0
    """0: never."""
    cause: tuple[int, int] | None = None
    """Session and packet identifier of a QoS 2 publisher; with 0 as identifier it is the session's will."""
    instead_of: tuple[int, int] | None = None
    """Session and copy of which the one copy takes the place."""


def read_head(record: bytes, lsn: int) -> Head:
    """What stands before the copies of a MESSAGE or RETAINED, which is the record *lsn*. Raises one of MISREAD."""
    _, flags, accepted_at, copies = MESSAGE.unpack_from(record)
    at = MESSAGE.size
    if not flags & (NUMBERED | EXPIRES | CAUSED | INSTEAD):  # most
        return Head(at, flags, lsn, accepted_at, copies)
    number, expires_at = lsn, 0
    cause = instead_of = None
    if flags & NUMBERED:
        (number,) = NUMBER.unpack_from(record, at)
        at += NUMBER.size
    if flags & EXPIRES:
        (expires_at,) = INSTANT.unpack_from(record, at)
        at += INSTANT.size
    if flags & CAUSED:
        cause = CAUSE.unpack_from(record, at)
        at += CAUSE.size
    if flags & INSTEAD:
        instead_of = PLACE.unpack_from(record, at)
        at += PLACE.size
    return Head(at, flags, number, accepted_at, copies, expires_at, cause, instead_of)


Label: TypeAlias = tuple[int | None, str]
"""With so much of the topic it begins (None: with all of it), and so it ends."""
TOPIC: Final[Label] = (None, "")


def read_copy(record: bytes, at: int) -> tuple[int, int, int, int, int, Label, tuple[int, ...]]:
    """A copy at *at*: where it ends, session, copy, flags, packet identifier (0: never sent), label and subscription
    identifiers. Raises one of MISREAD.
    """
    session, copy, flags = ONE_COPY.unpack_from(record, at)
    at += ONE_COPY.size
    packet_id, label = 0, TOPIC
    identifiers: tuple[int, ...] = ()
    if flags & SENT_AS:
        (packet_id,) = U16.unpack_from(record, at)
        at += U16.size
    if flags & LABELLED:
        (same,) = U16.unpack_from(record, at)
        rest, at = read_text(record, at + U16.size)
        label = same, rest
    if flags & IDENTIFIED:
        (count,) = U16.unpack_from(record, at)
        start = at + U16.size
        at = start + 4 * count
        if at > len(record):
            raise ValueError("identifiers end beyond the record")
        identifiers = tuple([int.from_bytes(record[one : one + 4], "big") for one in range(start, at, 4)])
    return at, session, copy, flags, packet_id, label, identifiers


def publication_of(record: bytes, at: int, flags: int, accepted_at: int, expires_at: int, number: int) -> Publication:
    """The publication whose publisher, topic, properties and payload stand at *at*, the last things in *record*."""
    publisher, at = read_text(record, at)
    topic, at = read_text(record, at)
    properties: Properties = {}
    properties_bytes = 0
    if flags & PROPERTIES:
        start = at
        properties, at = read_properties(record, at, Carrier.PUBLISH)
        properties_bytes = at - start
    user = user_properties(properties)
    publication = Publication(
        publisher,
        topic,
        record[at:],
        flags & QOS,
        flags & RETAIN != 0,
        accepted_at,
        properties=properties or None,
        expires_at=expires_at or None,
        user=user,
        content_type=text(properties, Property.CONTENT_TYPE) or None,
        properties_bytes=properties_bytes,
        trace=sampled(user),
    )
    publication.stored = number
    return publication
