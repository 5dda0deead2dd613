"""Requeueing after recovery: copies from the journal return to the outbox and the window of their session."""

from __future__ import annotations

from collections.abc import Callable

from edgebridge.session.inflight import QueueEntry, new_queue_entry
from edgebridge.session.journal.copy_record import TOPIC
from edgebridge.session.journal.deliveries import StoredCopy
from edgebridge.session.journal.text import TextInterner
from edgebridge.session.session import Session
from edgebroker.publication import Publication


def requeue_copies(
    copies: dict[int, StoredCopy], session: Session, clock: int, take_up: Callable[[Publication, int], None]
) -> None:
    """Queue *copies* for *session*, in the order in which they were made; what was sent waits to be sent again.

    They are taken out of *copies*: both would not fit into a small gateway. Of a message that comes for the first time
    *take_up* is told, and how many copies of it there are in all; its instants are those of this run then, of which
    *clock* says where it stands.
    """
    sent: list[tuple[int, int, QueueEntry]] = []
    known, labels = TextInterner(), dict[str, str]()
    outbox = session.outbox
    first_paged = outbox.pages[0].first if outbox.pages else 0
    for number in sorted(copies):
        copy = copies.pop(number)
        message = copy.message
        publication = message.read(known)
        if not message.is_requeued:
            message.is_requeued = True
            publication.accepted_at -= clock
            if publication.expires_at is not None:
                publication.expires_at -= clock
            take_up(publication, message.copies)
        text = publication.topic
        if copy.label is not TOPIC:
            text = copy.text
            text = labels.setdefault(text, text)
        entry = new_queue_entry(publication, copy.qos, copy.retain, copy.identifiers, text)
        entry.number = session.last_copy = number
        entry.released = copy.released
        if copy.packet_id:
            entry.packet_id = copy.packet_id
            sent.append((copy.sent, number, entry))
        elif number < first_paged:
            outbox.restore_head(entry)
        else:
            outbox.restore(entry)
    sent.sort()
    for _, _, entry in sent:  # [MQTT-4.6.0-1]; what was live may have overtaken what was not
        session.inflight.restore(entry)
