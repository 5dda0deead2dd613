"""Messages on their way to one client at QoS 1 or 2, from the first PUBLISH to the last acknowledgement.

QoS 1: PUBLISH > PUBACK.  QoS 2: PUBLISH > PUBREC > PUBREL > PUBCOMP (MQTT 5.0 section 4.3). An entry keeps its place
and its packet identifier over reconnects; so the order of PUBLISH packets survives them [MQTT-4.6.0-1].
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from edgebroker.publication import Publication


class QueueEntry:
    """One copy of a publication for one client. `packet_id` is 0 while it waits; `released`: PUBREC came.

    `number` names it in the journal, among the copies of its session; 0 if it is not kept there, or no longer.
    """

    __slots__ = ("identifiers", "number", "packet_id", "publication", "qos", "released", "retain", "text")

    def __init__(
        self, publication: Publication, qos: int, retain: bool, identifiers: tuple[int, ...], text: str
    ) -> None:
        self.publication = publication
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.text = text
        self.number = 0
        self.packet_id = 0
        self.released = False


def new_queue_entry(
    publication: Publication, qos: int, retain: bool, identifiers: tuple[int, ...], text: str
) -> QueueEntry:
    """`Entry()`, in half of the time: one is made for each copy."""
    made = QueueEntry.__new__(QueueEntry)
    made.publication = publication
    made.qos = qos
    made.retain = retain
    made.identifiers = identifiers
    made.text = text
    made.number = 0
    made.packet_id = 0
    made.released = False
    return made


class Inflight:
    """The window of unacknowledged messages. `window` is the client's receive maximum [MQTT-3.3.4-9].

    After a reconnect, entries wait in `unsent` until they are sent again: the new window may be smaller than the old.
    """

    __slots__ = ("_entries", "held_bytes", "last_id", "unsent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self._entries: dict[int, QueueEntry] = {}
        self.last_id = 0
        self.held_bytes = 0
        """What all entries hold. Who reads and never acknowledges gets nothing new once it is as much as a queue."""
        self.unsent: OrderedDict[int, QueueEntry] = OrderedDict()
        """By packet identifier, in their old order."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._entries.values())

    def has_room(self) -> bool:
        """Whether the client takes one more before it acknowledges something."""
        return len(self._entries) - len(self.unsent) < self.window

    def restart(self) -> None:
        """The connection is new: everything must be sent again, in its old order."""
        self.unsent = OrderedDict((entry.packet_id, entry) for entry in self._entries.values())

    def first_unsent(self) -> QueueEntry | None:
        """What is to be sent again next; None: everything was."""
        return next(iter(self.unsent.values()), None)

    def add(self, entry: QueueEntry) -> int:
        """Give *entry* a packet identifier and return it. The window must have room, so a free one exists."""
        packet_id = self.last_id
        while True:
            packet_id = packet_id + 1 if packet_id < 65_535 else 1
            if self._entries.setdefault(packet_id, entry) is entry:
                break
        self.last_id = packet_id
        entry.packet_id = packet_id
        self.held_bytes += entry.publication.held_bytes()
        return packet_id

    def restore(self, entry: QueueEntry) -> None:
        """Take *entry* back with the packet identifier it has; to be called in the order of sending."""
        self._entries[entry.packet_id] = entry
        self.last_id = entry.packet_id
        self.held_bytes += entry.publication.held_bytes()

    def find(self, packet_id: int) -> QueueEntry | None:
        """The entry with this packet identifier; None if there is none."""
        return self._entries.get(packet_id)

    def acknowledge(self, packet_id: int, qos: int) -> QueueEntry | None:
        """PUBACK (*qos* 1), PUBCOMP or a refusing PUBREC (2): the entry leaves. None if there is none of this QoS."""
        key = packet_id
        entry = self._entries.get(key)
        if entry is None or entry.qos != qos:
            return None
        del self._entries[key]
        self.held_bytes -= entry.publication.held_bytes()
        if self.unsent:
            self._is_sent(entry)
        return entry

    def release(self, packet_id: int) -> QueueEntry | None:
        """PUBREC: the client has the message. None if there is no such entry."""
        entry = self._entries.get(packet_id)
        if entry is None or entry.qos != 2:
            return None
        entry.released = True
        if self.unsent:
            self._is_sent(entry)
        return entry

    def _is_sent(self, entry: QueueEntry) -> None:
        """An acknowledgement came. If it was for the transmission before the reconnect, no other is needed."""
        self.unsent.pop(entry.packet_id, None)
