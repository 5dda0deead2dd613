"""The space budget of the journal: the bytes that are left on the disk, and those that a snapshot needs.

If the journal filled the disk completely, no snapshot and no acknowledgement could be written any more, so no space
would ever be freed. So new messages are refused while there is still room for a snapshot of the whole state, beside the
existing segments, and for some acknowledgements.
"""

from __future__ import annotations

from typing import Final

from edgebroker.limits import MIB
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery_report import JournalSegment
from edgebroker.storage.journal.segments import Segments

PLENTY: Final = 1 << 60
"""The space that is assumed when the runtime reports none."""
SHORT_SEGMENTS: Final = 3
"""Segments beyond the state below which new messages are refused: one for the header that names the snapshot, one for
acknowledgements meanwhile, one for the next start or for records on their way.
"""
LAST_SEGMENTS: Final = 2
"""Below this a snapshot is made, however little was written since the last one..."""
FITTING_SEGMENTS: Final = 1
"""...and below this none is begun: it would not fit."""
LOW_BYTES: Final = 256 * MIB
"""With less on the disk, a second segment is allocated in advance, because other programs may take the space."""
STATE_FACTOR: Final = 3
"""The largest snapshot as a multiple of the journal's size: a copy of a message takes 9 bytes in its record, 26
alone.
"""


class SpaceBudget:
    """The space that is left, and the space that is needed. All in bytes."""

    def __init__(self, options: JournalOptions, segments: Segments) -> None:
        self.disk_bytes: int | None = None
        """Free bytes of the disk as last reported by the runtime; None: not reported."""
        self.uncounted = 0
        """Bytes written since the owner last reported the size of a snapshot; they may be part of the next one."""
        self._state_bytes = 0
        self.refusal = ""
        """The error of the last failed allocation, whatever space the disk reports; empty: it succeeded."""
        self._segments = segments
        self._segment_left: int | None = None
        self._segment_bytes = options.segment_bytes
        self._frame_bytes_max = options.frame_bytes_max

    def written(self, size: int, segment: JournalSegment, offset: int) -> None:
        """Count *size* written bytes: the segment in use is filled up to *offset*."""
        self._segment_left = segment.bytes - offset
        self.uncounted += size

    def ended(self) -> None:
        """Record that no segment is in use."""
        self._segment_left = None

    def set_state_bytes(self, state_bytes: int) -> None:
        """Set the size of a snapshot, as the owner reports it."""
        self._state_bytes, self.uncounted = state_bytes, 0

    @property
    def is_half_used(self) -> bool:
        """Whether less than half of the segment in use is left."""
        return self._segment_left is None or 2 * self._segment_left <= self._segment_bytes

    def wants_another(self) -> bool:
        """Return whether to allocate the next segment; after a failure, a retry shows whether there is room again."""
        if not self._segments.free:
            return self.is_half_used or bool(self.refusal)
        is_low = self.disk_bytes is not None and self.disk_bytes < LOW_BYTES
        return (is_low or bool(self.refusal)) and len(self._segments.free) == 1 and self._segment_left is not None

    def bytes_left(self, waiting_bytes: int) -> int:
        """Return the bytes left for records, beyond *waiting_bytes* that wait already."""
        own = self._segments.spare_bytes + (self._segment_left or 0) - waiting_bytes
        if self.refusal:
            return own
        return own + (PLENTY if self.disk_bytes is None else self.disk_bytes)

    def needs_count(self, waiting_bytes: int) -> bool:
        """Return whether the owner must report the size of a snapshot, because there is not room for one of any
        size.
        """
        least = STATE_FACTOR * self._segments.bytes + (SHORT_SEGMENTS + 1) * self._segment_bytes
        if self.bytes_left(waiting_bytes) < least:
            return True
        self.set_state_bytes(0)
        return False

    @property
    def needs_another(self) -> bool:
        """Whether so much was written that the owner must report it again."""
        return self.uncounted >= self._segment_bytes

    def refusal_reason(self, waiting_bytes: int) -> str:
        """Return why new messages must be refused; empty if there is room."""
        left = self.bytes_left(waiting_bytes)
        if self._segment_left is None or left >= self._needed(SHORT_SEGMENTS):
            return ""
        kept = f"{max(left, 0)} bytes, which are kept for what was promised"
        if self.refusal:
            return f"no more room can be made on the disk ({self.refusal}); the journal has {kept}"
        return f"there is room on the disk for {kept}"

    def is_last(self, waiting_bytes: int) -> bool:
        """Return whether a snapshot must be made now, while it still fits."""
        return self.bytes_left(waiting_bytes) < self._needed(LAST_SEGMENTS)

    def has_room_for(self, size: int, waiting_bytes: int) -> bool:
        """Return whether there is room for *size* bytes, and for a snapshot that contains them again."""
        return self.bytes_left(waiting_bytes) - size >= self._needed(FITTING_SEGMENTS, size)

    def _needed(self, segments: int, more: int = 0) -> int:
        """Return the bytes needed for a snapshot with *more* bytes, and for *segments* segments."""
        # A frame that does not fit into the rest of a segment leaves it empty.
        share = self._segment_bytes + self._frame_bytes_max
        return (
            self._state_bytes + self.uncounted + more
        ) * share // self._segment_bytes + segments * self._segment_bytes
