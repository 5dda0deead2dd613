"""The decoder of the header of a message record: MESSAGE and RETAINED begin with it."""

from __future__ import annotations

from edgebridge.session.journal.session_records import (
    CAUSE,
    CAUSED,
    EXPIRES,
    INSTANT,
    INSTEAD,
    MESSAGE,
    NUMBER,
    NUMBERED,
    PLACE,
)

# C numbers, where this is compiled
HEAD_BYTES = MESSAGE.size
HAS_MORE = NUMBERED | EXPIRES | CAUSED | INSTEAD
_NUMBERED, _EXPIRES, _CAUSED, _INSTEAD = NUMBERED, EXPIRES, CAUSED, INSTEAD


class MessageHeader:
    """Reads heads, one at a time. The copies begin at `at`."""

    __slots__ = ("accepted_at", "at", "cause", "copies", "expires_at", "flags", "instead_of", "number")

    def __init__(self) -> None:
        self.at = 0
        self.flags = 0
        self.number = 0
        """Of the message, which is that of the record if nothing else is said."""
        self.accepted_at = 0
        self.copies = 0
        self.expires_at = 0
        """0: never."""
        self.cause: tuple[int, int] | None = None
        """Session and packet identifier of a QoS 2 publisher; with 0 as identifier it is the session's will."""
        self.instead_of: tuple[int, int] | None = None
        """Session and copy of which the one copy takes the place."""

    def read(self, record: bytes, lsn: int) -> None:
        """Be the head of *record*, which is the one numbered *lsn*. Raises one of `storedmessage.MISREAD`."""
        if len(record) < HEAD_BYTES:
            raise ValueError("a message ends within its head")
        octet = record  # compiled it is a pointer: numbers need no objects in between
        self.flags = flags = octet[1]
        since = octet[2]
        for index in range(3, 10):
            since = since << 8 | octet[index]
        self.accepted_at = since
        self.copies = octet[10] << 8 | octet[11]
        self.at = HEAD_BYTES
        self.number = lsn
        self.expires_at = 0
        self.cause = self.instead_of = None
        if flags & HAS_MORE:  # few
            self._read_more(record, flags)

    def _read_more(self, record: bytes, flags: int) -> None:
        at = self.at
        if flags & _NUMBERED:
            (self.number,) = NUMBER.unpack_from(record, at)
            at += NUMBER.size
        if flags & _EXPIRES:
            (self.expires_at,) = INSTANT.unpack_from(record, at)
            at += INSTANT.size
        if flags & _CAUSED:
            self.cause = CAUSE.unpack_from(record, at)
            at += CAUSE.size
        if flags & _INSTEAD:
            self.instead_of = PLACE.unpack_from(record, at)
            at += PLACE.size
        self.at = at
