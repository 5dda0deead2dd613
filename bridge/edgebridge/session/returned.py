"""Copies that a journal kept, on their way again to the session they are for."""

from __future__ import annotations

from collections.abc import Callable

from edgebridge.session.inflight import Entry, entry_of
from edgebridge.session.knowntexts import KnownTexts
from edgebridge.session.saidcopy import TOPIC
from edgebridge.session.session import Session
from edgebridge.session.storedtraffic import StoredCopy
from edgebroker.publication import Publication


def take_back(
    copies: dict[int, StoredCopy], session: Session, clock: int, take_up: Callable[[Publication, int], None]
) -> None:
    """Queue *copies* for *session*, in the order in which they were made; what was sent waits to be sent again.

    They are taken out of *copies*: both would not fit into a small gateway. Of a message that comes for the first time
    *take_up* is told, and how many copies of it there are in all; its instants are those of this run then, of which
    *clock* says where it stands.
    """
    sent: list[tuple[int, int, Entry]] = []
    known, labels = KnownTexts(), dict[str, str]()
    for number in sorted(copies):
        copy = copies.pop(number)
        message = copy.message
        publication = message.read(known)
        if not message.is_back:
            message.is_back = True
            publication.accepted_at -= clock
            if publication.expires_at is not None:
                publication.expires_at -= clock
            take_up(publication, message.copies)
        text = publication.topic
        if copy.label is not TOPIC:
            text = copy.text
            text = labels.setdefault(text, text)
        entry = entry_of(publication, copy.qos, copy.retain, copy.identifiers, text)
        entry.number = session.last_copy = number
        entry.released = copy.released
        if copy.packet_id:
            entry.packet_id = copy.packet_id
            sent.append((copy.sent, number, entry))
        else:
            session.outbox.restore(entry)
    sent.sort()
    for _, _, entry in sent:  # [MQTT-4.6.0-1]; what was live may have overtaken what was not
        session.inflight.restore(entry)
