"""Entries of outboxes in the journal: an event that waits for several links is written once, with the set of links.

Seven records of an event of 850 bytes for seven links took 9.2 KB; one record for all takes 1.3 KB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from edgebroker.overlay.link.class_queue import QueuedMessage
from edgebroker.overlay.link.codec.events import AloneWriter
from edgebroker.overlay.link.codec.messages import alone
from edgebroker.overlay.link.journal_records import EntryRow, entries_record, entry_record
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.overlay.traffic_class import TrafficClass


class LinkStorage(Protocol):
    """The journal, as links use it."""

    def append(self, record: bytes, waits: bool) -> int:
        """Append *record* and return its LSN. *waits*: `synced` must be called as soon as it is on disk."""
        ...


class SharedEntry:
    """The copies of one event, or of one series of QoS 1, in several outboxes, which are one record of the journal.

    Give it to `LinkOutbox.enqueue` as `following` returns it. Nothing is in the journal before `append`, which must
    follow before anything else is appended that depends on the event.
    """

    def __init__(self, storage: LinkStorage) -> None:
        self._storage = storage
        self._message: Forward | EventSeries | None = None
        self._item = b""
        self._expires_at: int | None = None
        self._copies: list[tuple[EntryRow, QueuedMessage]] = []

    def following(self, message: Message) -> SharedEntry | None:
        """Return it for *message*, None if that has a record of its own or none; append what is of another event."""
        event = message.first if isinstance(message, EventSeries) else message
        if type(event) is not Forward or not event.qos:
            self.append()
            return None
        known = self._message
        if known is not None and known is not message:
            first = known.first if isinstance(known, EventSeries) else known
            if event is not message or first.header.eid != event.header.eid or first.payload is not event.payload:
                self.append()
        return self

    def add(
        self,
        peer: str,
        service: TrafficClass,
        entry: QueuedMessage,
        event: Forward | EventSeries,
        expires_at: int | None,
        writer: AloneWriter,
    ) -> None:
        """Add the copy *entry* for *peer*, which contains *event*; *expires_at*: on the stored clock. The copies of a
        series have the same marks.
        """
        if self._message is None:
            item = writer.write(event, int(service)) if isinstance(event, Forward) else alone(event, service)
            self._message, self._item, self._expires_at = event, item, expires_at
        marked = event if isinstance(event, Forward) and event is not self._message else None
        self._copies.append((EntryRow(peer, service, entry.number, marked), entry))

    def append(self) -> None:
        """Append the record, if there is any copy. Copies of QoS 2 are not sent before it is on disk."""
        event, copies = self._message, self._copies
        if event is None:
            return
        self._message, self._copies = None, []
        lsn = self._storage.append(_record([row for row, _ in copies], self._expires_at, self._item), waits=True)
        if isinstance(event, Forward) and event.qos == 2:
            for _, entry in copies:
                entry.lsn = lsn


class RepeatedEntries:
    """The messages of all outboxes that a snapshot repeats: each once, with the links for which it waits."""

    def __init__(self) -> None:
        self._copies: dict[tuple[int, int | None], tuple[Message, list[tuple[str, TrafficClass, QueuedMessage]]]] = {}

    def add(self, peer: str, service: TrafficClass, entry: QueuedMessage, expires_at: int | None) -> None:
        """Add *entry* of the outbox for *peer*; *expires_at*: on the stored clock."""
        key = id(entry.message), expires_at
        if key not in self._copies:
            self._copies[key] = entry.message, []
        self._copies[key][1].append((peer, service, entry))

    def records(self) -> Iterator[bytes]:
        """Iterate over the records. Messages may be settled and others appended meanwhile."""
        for (_, expires_at), (message, copies) in self._copies.items():
            # Without a number it was moved to a page meanwhile, and its marks may have changed: other records say so.
            rows = [
                EntryRow(peer, service, entry.number)
                for peer, service, entry in copies
                if entry.number and entry.message is message
            ]
            if rows:
                yield _record(rows, expires_at, alone(message, rows[0].service))


def _record(rows: list[EntryRow], expires_at: int | None, item: bytes) -> bytes:
    """Return the record of the message *item* for the links of *rows*."""
    if len(rows) > 1:
        return entries_record(rows, expires_at, item)
    peer, service, number, _ = rows[0]
    return entry_record(peer, service, number, expires_at, item)
