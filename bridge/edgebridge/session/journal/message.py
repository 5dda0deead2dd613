"""A message that recovery found in the journal; its publication is decoded only when it is read."""

from __future__ import annotations

from struct import error as StructError
from typing import Final

from edgebridge.session.journal.session_records import PROPERTIES, QOS, RETAIN
from edgebridge.session.journal.text import TextInterner
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.properties import Carrier, Properties, Property, read_properties
from edgebridge.wire.user_properties import sampled
from edgebroker.instants import NEVER
from edgebroker.publication import Publication, plain

READ_ERRORS: Final = (KeyError, IndexError, ValueError, OverflowError, StructError, ProtocolError)
"""What reading bytes that are no record raises. OverflowError is of compiled code: numbers there have 63 bits."""
# Looked up once, as docs/decisions.md says
_USER_PROPERTY: Final = Property.USER_PROPERTY
_CONTENT_TYPE: Final = Property.CONTENT_TYPE


class StoredMessage:
    """A publication and how many copies of it are open. Its instants are those of the stored clock.

    It is made when somebody asks. Most messages are settled again a few records later, and nobody does; and of the
    others a small gateway has no room for the record as well as the publication. Properties are left in their record.
    """

    __slots__ = (
        "_accepted_at",
        "_at",
        "_content",
        "_expires_at",
        "_flags",
        "_publication",
        "_publisher",
        "_topic",
        "copies",
        "is_requeued",
        "number",
    )

    def __init__(self, number: int) -> None:
        self.copies = 0
        self.is_requeued = False
        """A broker has it: its instants are those of this run."""
        self.number = number
        self._publication: Publication | None = None
        self._publisher: str | None = None
        self._topic = ""
        self._content: bytes | None = None  # the payload; the record if there are properties, or it cannot be read
        self._at = self._flags = self._expires_at = 0
        self._accepted_at = 0

    def set_content(
        self, record: bytes, at: int, flags: int, accepted_at: int, expires_at: int, texts: TextInterner
    ) -> None:
        """The publication stands at *at* of *record*. What was said first counts."""
        if self._content is not None:
            return
        self._flags, self._accepted_at, self._expires_at = flags, accepted_at, expires_at
        if flags & PROPERTIES:
            self._content, self._at = record, at
            return
        try:
            publisher = texts.read(record, at)
            self._topic = texts.read(record, texts.end)
        except READ_ERRORS:
            self.mark_unreadable()
        else:
            octet = record  # compiled it is a pointer: a slice is one allocation, and no slice object
            self._publisher, self._content = publisher, octet[texts.end : len(record)]

    def mark_unreadable(self) -> None:
        """The record is not understood: there is no publication, unless one was said before."""
        if self._content is None:
            self._content = b""

    def can_be_read(self, texts: TextInterner) -> bool:
        """Whether there is a publication."""
        if self._publisher is None:
            try:
                self.read(texts)
            except READ_ERRORS:
                return False
        return True

    def read(self, texts: TextInterner) -> Publication:
        """The publication; its publisher and topic are those of *texts*. Raises one of MISREAD."""
        made = self._publication
        if made is None:
            said = self._content
            assert said is not None
            if self._publisher is None:
                made = read_publication(
                    said, self._at, self._flags, self._accepted_at, self._expires_at, self.number, texts
                )
            else:
                made = plain(self._publisher, self._topic, said, self._flags & QOS, self._accepted_at)
                made.retain = self._flags & RETAIN != 0
                made.expires_at = self._expires_at or None
                made.stored = self.number
            self._publication = made
            self._content = b""
        return made

    def shift(self, by: int) -> None:
        """Its instants are *by* later."""
        if self._accepted_at < NEVER:
            self._accepted_at += by
        if 0 < self._expires_at < NEVER:
            self._expires_at += by
        if self._publication is not None:
            shift(self._publication, by)

    @property
    def publication(self) -> Publication:
        """The publication. Raises one of MISREAD; not after `Stored.finish`, which drops what cannot be read."""
        return self.read(TextInterner())


def shift(publication: Publication, by: int) -> None:
    """The instants of *publication*, which are those of the stored clock, are *by* later."""
    publication.accepted_at += by
    if publication.expires_at is not None:
        publication.expires_at += by


def read_publication(
    record: bytes, at: int, flags: int, accepted_at: int, expires_at: int, number: int, texts: TextInterner
) -> Publication:
    """The publication whose publisher, topic, properties and payload stand at *at*, the last things in *record*."""
    publisher = texts.read(record, at)
    topic = texts.read(record, texts.end)
    at = start = texts.end
    properties: Properties = {}
    if flags & PROPERTIES:
        properties, at = read_properties(record, at, Carrier.PUBLISH)
    made = plain(publisher, topic, record[at:], flags & QOS, accepted_at)
    if properties:
        made.properties = properties
        made.properties_bytes = at - start
        user: list[tuple[str, str]] | None = properties.get(_USER_PROPERTY)  # type: ignore[assignment]
        if user is not None:
            made.user = user
            made.trace = sampled(user)
        made.content_type = properties.get(_CONTENT_TYPE) or None  # type: ignore[assignment]
    made.retain = flags & RETAIN != 0
    made.expires_at = expires_at or None
    made.stored = number
    return made
