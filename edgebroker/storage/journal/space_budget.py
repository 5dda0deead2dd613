"""The space budget of the journal: the bytes that are left on the disk, and those that a snapshot needs.

A disk that the journal has filled to its end takes no snapshot, and no acknowledgement: nothing would ever leave
it. So what is new is refused while the whole state still fits once more beside what is there, and some
acknowledgements.
"""

from __future__ import annotations

from typing import Final

from edgebroker.limits import MIB
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery_report import JournalSegment
from edgebroker.storage.journal.segments import Segments

PLENTY: Final = 1 << 60
"""What counts as left where nobody says."""
SHORT_SEGMENTS: Final = 3
"""So many segments, beyond the state: below that nothing new is taken. One for the header that names the snapshot, one
for what is acknowledged meanwhile, one for the next start, or for what is under way."""
LAST_SEGMENTS: Final = 2
"""Below that a snapshot is made, however little was written since the last one..."""
FITTING_SEGMENTS: Final = 1
"""...and below that none is begun: it would not fit."""
LOW_BYTES: Final = 256 * MIB
"""With less on the disk, the next segment but one is made as well: somebody else may take the rest."""
STATE_FACTOR: Final = 3
"""A snapshot takes so many times what is in the journal at most: copies that a message said in 9 bytes take 26 each."""


class SpaceBudget:
    """What is left, and what is needed. All in bytes."""

    def __init__(self, options: JournalOptions, segments: Segments) -> None:
        self.disk_bytes: int | None = None
        """What the disk has for anybody, as the world saw it last; None: nobody knows."""
        self.uncounted = 0
        """What was written since the owner last said what a snapshot would take: that may be in it too."""
        self._state_bytes = 0
        self.refusal = ""
        """Why the disk refused to make room, whatever it says that it has; empty: it did not."""
        self._segments = segments
        self._rest: int | None = None
        self._segment_bytes = options.segment_bytes
        self._frame_bytes_max = options.frame_bytes_max

    def written(self, size: int, segment: JournalSegment, offset: int) -> None:
        """*size* bytes were written: the segment in use is full up to *offset*."""
        self._rest = segment.bytes - offset
        self.uncounted += size

    def ended(self) -> None:
        """There is no segment in use."""
        self._rest = None

    def set_state_bytes(self, state_bytes: int) -> None:
        """The owner says what a snapshot would take now."""
        self._state_bytes, self.uncounted = state_bytes, 0

    @property
    def is_half_used(self) -> bool:
        """Whether less than half of the segment in use is left."""
        return self._rest is None or 2 * self._rest <= self._segment_bytes

    def wants_another(self) -> bool:
        """Whether the next segment should be made; where that failed, it shows when there is room again."""
        if not self._segments.free:
            return self.is_half_used or bool(self.refusal)
        is_low = self.disk_bytes is not None and self.disk_bytes < LOW_BYTES
        return (is_low or bool(self.refusal)) and len(self._segments.free) == 1 and self._rest is not None

    def bytes_left(self, waiting_bytes: int) -> int:
        """What records may still take beyond *waiting_bytes*, which wait already."""
        own = self._segments.spare_bytes + (self._rest or 0) - waiting_bytes
        if self.refusal:
            return own
        return own + (PLENTY if self.disk_bytes is None else self.disk_bytes)

    def needs_count(self, waiting_bytes: int) -> bool:
        """Whether the owner should say what a snapshot would take: there is not room for any."""
        least = STATE_FACTOR * self._segments.bytes + (SHORT_SEGMENTS + 1) * self._segment_bytes
        if self.bytes_left(waiting_bytes) < least:
            return True
        self.set_state_bytes(0)
        return False

    @property
    def needs_another(self) -> bool:
        """Whether much was written since the owner did."""
        return self.uncounted >= self._segment_bytes

    def refusal_reason(self, waiting_bytes: int) -> str:
        """Why nothing new should be taken; empty if there is room."""
        left = self.bytes_left(waiting_bytes)
        if self._rest is None or left >= self._needed(SHORT_SEGMENTS):
            return ""
        kept = f"{max(left, 0)} bytes, which are kept for what was promised"
        if self.refusal:
            return f"no more room can be made on the disk ({self.refusal}); the journal has {kept}"
        return f"there is room on the disk for {kept}"

    def is_last(self, waiting_bytes: int) -> bool:
        """Whether it is high time for a snapshot."""
        return self.bytes_left(waiting_bytes) < self._needed(LAST_SEGMENTS)

    def has_room_for(self, size: int, waiting_bytes: int) -> bool:
        """Whether there is room for *size* bytes, and for a snapshot, which says them once more."""
        return self.bytes_left(waiting_bytes) - size >= self._needed(FITTING_SEGMENTS, size)

    def _needed(self, segments: int, more: int = 0) -> int:
        # A frame that does not fit into the rest of a segment leaves it empty.
        share = self._segment_bytes + self._frame_bytes_max
        return (
            self._state_bytes + self.uncounted + more
        ) * share // self._segment_bytes + segments * self._segment_bytes
