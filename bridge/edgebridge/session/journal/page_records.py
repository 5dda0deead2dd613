"""What a page file contains: for each message its number in the accounts, and its MESSAGE record with one copy."""

from __future__ import annotations

from struct import Struct
from typing import Final

from edgebridge.session.inflight import QueueEntry, new_queue_entry
from edgebridge.session.journal.copy_record import TOPIC
from edgebridge.session.journal.deliveries import StoredCopy, StoredDeliveries
from edgebridge.session.journal.message import READ_ERRORS
from edgebridge.session.journal.session_records import pack_records, paged_message_record, unpack_records
from edgebroker.errors import JournalDamaged
from edgebroker.instants import Instant

NUMBER: Final = Struct(">Q")
NO_SESSION: Final = 0
"""The session in the records of a page: it may get another number in the journal before the page is read."""


def page_content(entries: list[QueueEntry], clock: Instant) -> bytes:
    """Return the content of a page with *entries*; *clock* is what to add to an instant for the stored clock."""
    return pack_records(
        [
            NUMBER.pack(entry.publication.number) + paged_message_record(entry.publication, clock, NO_SESSION, entry)
            for entry in entries
        ]
    )


def read_page(content: bytes, clock: Instant) -> list[QueueEntry]:
    """Return the entries of a page, with the numbers in the accounts and among the copies that they had when it was
    written. Raises JournalDamaged if a record is not understood.
    """
    deliveries = StoredDeliveries(lambda session: None)
    copies: dict[int, StoredCopy] = {}
    deliveries.add_session(NO_SESSION, copies, set())
    numbers: list[int] = []
    try:
        for record in unpack_records(content):
            (number,) = NUMBER.unpack_from(record)
            numbers.append(number)
            deliveries.apply(record[NUMBER.size :])
        entries = [_entry(copy, clock) for copy in copies.values()]
    except READ_ERRORS as error:
        raise JournalDamaged(f"a record that is not understood: {error}") from error
    if len(entries) != len(numbers):
        raise JournalDamaged(f"{len(entries)} messages in {len(numbers)} records")
    for entry, number in zip(entries, numbers, strict=True):
        entry.publication.number = number
    return entries


def _entry(copy: StoredCopy, clock: Instant) -> QueueEntry:
    message = copy.message
    publication = message.publication
    if not message.is_requeued:  # a session may have several copies of a message
        message.is_requeued = True
        publication.accepted_at -= clock
        if publication.expires_at is not None:
            publication.expires_at -= clock
    text = publication.topic if copy.label is TOPIC else copy.text
    entry = new_queue_entry(publication, copy.qos, copy.retain, copy.identifiers, text)
    entry.number = copy.number
    return entry
