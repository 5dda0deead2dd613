"""A publication in the journal's records, which is read when somebody asks for it."""

from __future__ import annotations

from struct import error as StructError
from typing import Final

from edgebridge.session.records import QOS, RETAIN
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.fields import read_text
from edgebridge.wire.properties import Carrier, Properties, Property, read_properties, text, user_properties
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


def publication_of(record: bytes, at: int, flags: int, accepted_at: int, expires_at: int, number: int) -> Publication:
    """The publication whose publisher, topic, properties and payload stand at *at*, the last things in *record*."""
    publisher, at = read_text(record, at)
    topic, at = read_text(record, at)
    start = at
    properties: Properties = {}
    properties_bytes = 0
    if record[at]:
        properties, at = read_properties(record, at, Carrier.PUBLISH)
        properties_bytes = at - start
    else:
        at += 1
    publication = Publication(
        publisher,
        topic,
        record[at:],
        flags & QOS,
        flags & RETAIN != 0,
        accepted_at,
        properties=properties or None,
        expires_at=expires_at or None,
        user=user_properties(properties),
        content_type=text(properties, Property.CONTENT_TYPE) or None,
        properties_bytes=properties_bytes,
    )
    publication.stored = number
    return publication
