"""The decoder of one copy in a record: MESSAGE holds the copies of a message one after the other, COPY holds one."""

from __future__ import annotations

from typing import Final, TypeAlias

from edgebridge.session.journal.session_records import IDENTIFIED, LABELLED, ONE_COPY, SENT_AS
from edgebridge.session.journal.text import INTERNED_BYTES_MAX, INTERNED_TEXTS_MAX, read_text

Label: TypeAlias = tuple[int | None, str]
"""With so much of the topic it begins (None: with all of it), and so it ends."""
TOPIC: Final[Label] = (None, "")

HAS_MORE = SENT_AS | LABELLED | IDENTIFIED
HEAD_BYTES = ONE_COPY.size


class CopyReader:
    """Reads copies, one at a time. `packet_id` is 0 if it was never sent; the next thing in the record is at `end`."""

    __slots__ = ("_labels", "copy", "end", "flags", "identifiers", "label", "packet_id", "session")

    def __init__(self) -> None:
        self.session = 0
        self.copy = 0
        self.flags = 0
        self.packet_id = 0
        self.label: Label = TOPIC
        self.identifiers: tuple[int, ...] = ()
        self.end = 0
        self._labels: dict[bytes, Label] = {}

    def read(self, record: bytes, at: int) -> None:
        """Be the copy at *at*. Raises one of `storedmessage.MISREAD`."""
        if at + HEAD_BYTES > len(record):
            raise ValueError("a copy ends beyond its record")
        octet = record  # compiled it is a pointer: numbers and slices of it need no objects in between
        high = octet[at]
        self.session = high << 24 | octet[at + 1] << 16 | octet[at + 2] << 8 | octet[at + 3]
        high = octet[at + 4]
        self.copy = high << 24 | octet[at + 5] << 16 | octet[at + 6] << 8 | octet[at + 7]
        flags = octet[at + 8]
        self.flags = flags
        self.packet_id = 0
        self.label = TOPIC
        self.identifiers = ()
        self.end = at + HEAD_BYTES
        if flags & HAS_MORE:
            self._read_more(record, self.end, flags)

    def _read_more(self, record: bytes, at: int, flags: int) -> None:
        if flags & SENT_AS:
            self.packet_id = record[at] << 8 | record[at + 1]
            at += 2
        if flags & LABELLED:
            end = at + 4 + (record[at + 2] << 8 | record[at + 3])
            if end > len(record):
                raise ValueError("a label ends beyond its record")
            octet = record
            key = octet[at:end]  # says itself how long it is
            label = self._labels.get(key)
            if label is None:
                label = record[at] << 8 | record[at + 1], read_text(record, at + 2)[0]
                if len(key) <= INTERNED_BYTES_MAX:
                    if len(self._labels) >= INTERNED_TEXTS_MAX:
                        self._labels.clear()
                    self._labels[key] = label
            self.label = label
            at = end
        if flags & IDENTIFIED:
            start = at + 2
            at = start + 4 * (record[at] << 8 | record[at + 1])
            if at > len(record):
                raise ValueError("identifiers end beyond the record")
            self.identifiers = tuple([int.from_bytes(record[one : one + 4], "big") for one in range(start, at, 4)])
        self.end = at
