"""A publication in the journal's records, which is read when somebody asks for it."""

from __future__ import annotations

from struct import error as StructError
from typing import Final, NamedTuple

from edgebridge.session.knowntexts import KnownTexts
from edgebridge.session.records import (
    CAUSE,
    CAUSED,
    EXPIRES,
    INSTANT,
    INSTEAD,
    MESSAGE,
    NUMBER,
    NUMBERED,
    PLACE,
    PROPERTIES,
    QOS,
    RETAIN,
)
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.properties import Carrier, Property, read_properties, text, user_properties
from edgebridge.wire.tracecontext import sampled
from edgebroker.publication import Publication, plain

MISREAD: Final = (KeyError, IndexError, ValueError, OverflowError, StructError, ProtocolError)
"""What reading bytes that are no record raises. OverflowError is of compiled code: instants there have 63 bits."""


class StoredMessage:
    """A publication and how many copies of it are open. Its instants are those of the stored clock.

    What the record says of it is read when somebody asks. Most messages are settled again a few records later, and
    nobody does: a recovery takes two thirds of the time.
    """

    __slots__ = (
        "_accepted_at",
        "_at",
        "_expires_at",
        "_flags",
        "_is_said",
        "_publication",
        "_record",
        "copies",
        "is_back",
        "number",
    )

    def __init__(self, number: int) -> None:
        self.copies = 0
        self.is_back = False
        """A broker has it: its instants are those of this run."""
        self.number = number
        self._publication: Publication | None = None
        self._is_said = False

    def say(self, record: bytes, at: int, flags: int, accepted_at: int, expires_at: int) -> None:
        """The publication stands at *at* of *record*. What was said first counts."""
        if not self._is_said:
            self._is_said = True
            self._record, self._at, self._flags = record, at, flags
            self._accepted_at, self._expires_at = accepted_at, expires_at

    def read(self, texts: KnownTexts) -> Publication:
        """The publication; its publisher and topic are those of *texts*. Raises one of MISREAD."""
        if self._publication is None:
            assert self._is_said
            self._publication = publication_of(
                self._record, self._at, self._flags, self._accepted_at, self._expires_at, self.number, texts
            )
            self._record = b""  # or the payload would be there twice
        return self._publication

    @property
    def publication(self) -> Publication:
        """The publication. Raises one of MISREAD; not after `Stored.finish`, which drops what cannot be read."""
        return self.read(KnownTexts())


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


def publication_of(
    record: bytes, at: int, flags: int, accepted_at: int, expires_at: int, number: int, texts: KnownTexts
) -> Publication:
    """The publication whose publisher, topic, properties and payload stand at *at*, the last things in *record*."""
    publisher = texts.read(record, at)
    topic = texts.read(record, texts.end)
    at = texts.end
    if not flags & PROPERTIES:
        made = plain(publisher, topic, record[at:], flags & QOS, accepted_at)
    else:
        start = at
        properties, at = read_properties(record, at, Carrier.PUBLISH)
        user = user_properties(properties)
        made = Publication(
            publisher,
            topic,
            record[at:],
            flags & QOS,
            False,
            accepted_at,
            properties=properties or None,
            user=user,
            content_type=text(properties, Property.CONTENT_TYPE) or None,
            properties_bytes=at - start,
            trace=sampled(user),
        )
    made.retain = flags & RETAIN != 0
    made.expires_at = expires_at or None
    made.stored = number
    return made
