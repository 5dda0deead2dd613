"""The content of a page file: the messages of a part of a queue, compressed together. docs/journal.md describes it.

It is read as a whole or not at all, so texts that many messages share are written once.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final

from edgebridge.session.inflight import QueueEntry, new_queue_entry
from edgebridge.session.journal.message import READ_ERRORS, shift
from edgebridge.session.journal.text import read_text
from edgebridge.wire.fields import write_text
from edgebridge.wire.properties import Carrier, Properties, Property, encode_properties, read_properties
from edgebridge.wire.user_properties import sampled
from edgebroker.errors import JournalDamaged
from edgebroker.instants import NEVER, Instant
from edgebroker.limits import JOURNAL_PAGE_MESSAGES_MAX, JOURNAL_RECORD_BYTES_MAX
from edgebroker.publication import Publication, plain

HEAD: Final = Struct(">II")  # messages, texts; the texts follow
MESSAGE: Final = Struct(">QQQQBHHHHIII")
"""Number in the journal, number in the accounts, stored clock when it was accepted and when it expires (0: never),
flags, the places of its publisher, its topic and its subscription among the texts, how many subscription identifiers,
what its properties hold in memory, bytes of its properties, bytes of its payload. The three follow in this order."""
MESSAGE_QOS: Final = 0x03
MESSAGE_RETAIN: Final = 0x04
COPY_QOS_SHIFT: Final = 3
COPY_RETAIN: Final = 0x20
IDENTIFIER_BYTES: Final = 4
FAILURES: Final = (*READ_ERRORS, zlib.error)
"""What reading bytes that are no page raises."""
COMPRESSION: Final = 1
"""The fastest level of zlib: 512 messages of 64 bytes shrink to a half in 0.5 ms."""


def page_content(entries: list[QueueEntry], clock: Instant) -> bytes:
    """Return the content of a page with *entries*; *clock* is what to add to an instant for the stored clock."""
    texts: dict[str, int] = {}
    parts: list[bytes] = []
    for entry in entries:
        publication = entry.publication
        properties = encode_properties(publication.properties) if publication.properties else b""
        expires_at = publication.expires_at
        flags = publication.qos | publication.retain << 2 | entry.qos << COPY_QOS_SHIFT | entry.retain << 5
        parts.append(
            MESSAGE.pack(
                publication.stored,
                publication.number,
                publication.accepted_at + clock,
                0 if expires_at is None else expires_at + clock,
                flags,
                texts.setdefault(publication.publisher, len(texts)),
                texts.setdefault(publication.topic, len(texts)),
                texts.setdefault(entry.text, len(texts)),
                len(entry.identifiers),
                publication.properties_bytes,
                len(properties),
                len(publication.payload),
            )
        )
        for identifier in entry.identifiers:
            parts.append(identifier.to_bytes(IDENTIFIER_BYTES, "big"))
        if properties:
            parts.append(properties)
        parts.append(publication.payload)
    head = HEAD.pack(len(entries), len(texts)) + b"".join([write_text(text) for text in texts])
    return zlib.compress(head + b"".join(parts), COMPRESSION)


def read_page(content: bytes, first: int, oldest_at: Instant) -> list[QueueEntry]:
    """Return the entries of a page, numbered from *first* on. Raises JournalDamaged if it is not understood.

    *oldest_at*: when the oldest message was accepted, by the clock that all instants are to be of. The page may be of
    another clock, because the gateway learned what time it is after the page was written.
    """
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, JOURNAL_RECORD_BYTES_MAX)
        if not stream.eof or stream.unused_data:
            raise ValueError("it does not end, or is larger than any page")
        return _read(data, first, oldest_at)
    except FAILURES as error:
        raise JournalDamaged(f"its content is not understood: {error}") from error


def _read(data: bytes, first: int, oldest_at: Instant) -> list[QueueEntry]:
    count, text_count = HEAD.unpack_from(data)
    if count > JOURNAL_PAGE_MESSAGES_MAX or text_count > 3 * count:
        raise ValueError("more messages or texts than any page has")
    at = HEAD.size
    texts: list[str] = []
    for _ in range(text_count):
        text, at = read_text(data, at)
        texts.append(text)
    entries: list[QueueEntry] = []
    known: dict[int, Publication] = {}
    for copy in range(first, first + count):
        fields = MESSAGE.unpack_from(data, at)
        stored, number, accepted_at, expires_at, flags, publisher, topic, label, identifiers, held, size, length = (
            fields
        )
        if max(stored, number, accepted_at, expires_at) >= NEVER:
            raise ValueError("an instant that no clock reaches")
        own_at = at + MESSAGE.size
        properties_at = own_at + IDENTIFIER_BYTES * identifiers
        payload_at = properties_at + size
        at = payload_at + length
        if at > len(data):
            raise ValueError("a message ends beyond the page")
        publication = known.get(stored)
        if publication is None:  # a session may have several copies of a message
            publication = plain(texts[publisher], texts[topic], data[payload_at:at], flags & MESSAGE_QOS, accepted_at)
            publication.retain = flags & MESSAGE_RETAIN != 0
            publication.expires_at = expires_at or None
            publication.stored, publication.number = stored, number
            if size:
                _read_properties(publication, data, properties_at, payload_at)
                publication.properties_bytes = held
            known[stored] = publication
        own = _identifiers(data, own_at, properties_at) if identifiers else ()
        qos = flags >> COPY_QOS_SHIFT & MESSAGE_QOS
        entry = new_queue_entry(publication, qos, flags & COPY_RETAIN != 0, own, texts[label])
        entry.number = copy
        entries.append(entry)
    if at != len(data):
        raise ValueError("something follows the last message")
    by = oldest_at - min([publication.accepted_at for publication in known.values()], default=oldest_at)
    for publication in known.values():
        shift(publication, by)
    return entries


def _identifiers(data: bytes, at: int, end: int) -> tuple[int, ...]:
    return tuple(
        [int.from_bytes(data[one : one + IDENTIFIER_BYTES], "big") for one in range(at, end, IDENTIFIER_BYTES)]
    )


def _read_properties(publication: Publication, data: bytes, at: int, end: int) -> None:
    properties: Properties
    properties, behind = read_properties(data, at, Carrier.PUBLISH)
    if behind != end:
        raise ValueError("properties of another length")
    publication.properties = properties
    user: list[tuple[str, str]] | None = properties.get(Property.USER_PROPERTY)  # type: ignore[assignment]
    if user is not None:
        publication.user = user
        publication.trace = sampled(user)
    publication.content_type = properties.get(Property.CONTENT_TYPE) or None  # type: ignore[assignment]
