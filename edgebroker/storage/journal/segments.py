"""The files of a journal: segments with records, free segments for reuse, the next one in allocation; and their space.

If the journal filled the disk completely, no snapshot and no acknowledgement could be written any more, so no space
would ever be freed. So new messages are refused while there is still room for a snapshot of the whole state, beside the
existing segments, and for some acknowledgements.
"""

from __future__ import annotations

from typing import Final

from edgebroker.limits import JOURNAL_QUARANTINE_FILES_MAX, KIB, MIB
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery_report import JournalSegment, RecoveryReport

from .format import PAGE_BYTES
from .work import Create, Fill, Operation, Remove, SetAside, Sync, SyncFolder

ROOM_SLICE_BYTES = 128 * KIB  # a slow card takes 30 ms for it, which may delay a commit
SUFFIX = ".ebj"
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


def slot_name(number: int) -> str:
    """Return the file name of slot *number*. Names do not give the order of segments; headers do."""
    return f"segment-{number:04d}{SUFFIX}"


class Segments:
    """The state of all files; changes are returned as operations."""

    def __init__(self, segment_bytes: int, free_max: int, report: RecoveryReport | None = None, skip: int = 0) -> None:
        self.segment_bytes = segment_bytes
        self.live: list[JournalSegment] = []
        """Segments with records, in order; the last one is being written."""
        self.free: list[str] = []
        """Files of the usual size without needed records."""
        self.set_aside = 0
        """The number of files in quarantine."""
        self.next_sequence = 1
        self._free_max = free_max
        self._allocating = ""  # the file in allocation, and how much of it is allocated
        self._allocated_bytes = 0
        self._unneeded: list[Remove | SetAside] = []
        self._tidying: list[Remove | SetAside] = []
        self.is_held_up = False
        """Whether the last removal or quarantine of a file failed."""
        self._names: set[str] = set()
        self._unsynced: set[str] = set()  # files of earlier runs, which may have been killed before a sync
        self._has_unsynced_names = False  # such a run may have created files without syncing the folder
        if report is not None:
            self.next_sequence = report.next_sequence + skip
            self._has_unsynced_names = True
            self.set_aside = report.quarantined
            self.live = list(report.segments)
            self._names = {segment.name for segment in self.live} | set(report.free) | set(report.strangers)
            self._unsynced = set(self._names)
            for name, size in report.free.items():
                if size == segment_bytes and len(self.free) < free_max:
                    self.free.append(name)
                else:  # its allocation was not complete, or the segment size has changed
                    self._remove(name)
            for number, name in enumerate(report.strangers):
                self._set_aside(name, f"stranger-{self.next_sequence}-{number}-{name}")
            self.retire(report.proven_from)  # on a full disk this is the only room for the first commit

    @property
    def bytes(self) -> int:
        """The size of all segments with records."""
        return sum(segment.bytes for segment in self.live)

    # -- a new segment ------------------------------------------------------------------------------------------

    def begin(self, first_lsn: int, least_bytes: int) -> tuple[JournalSegment, list[Operation], list[Operation]]:
        """Return a segment with room for *least_bytes*, the operations before its first write, and those after that
        one's sync.
        """
        size = self.segment_bytes
        before: list[Operation] = []
        after: list[Operation] = []
        if least_bytes > size:
            size = least_bytes + -least_bytes % PAGE_BYTES
            name = self._new_name()
            before += [Create(name), Fill(name, least_bytes, size - least_bytes)]  # the frame is written in front
            after.append(SyncFolder())
        elif self.free:
            name = self.free.pop()
            if name in self._unsynced:  # its size may not be synced, and recovery reports a short segment as damaged
                self._unsynced.discard(name)
                before.append(Fill(name, size - PAGE_BYTES, PAGE_BYTES))
        else:
            name, allocated_bytes = self._allocating or self._new_name(), self._allocated_bytes
            self._allocating, self._allocated_bytes = "", 0
            if not allocated_bytes:
                before.append(Create(name))
            before.append(Fill(name, allocated_bytes, size - allocated_bytes))
            after.append(SyncFolder())
        if self._has_unsynced_names:
            after = [SyncFolder()]
        segment = JournalSegment(name, size, self.next_sequence, first_lsn)
        self.next_sequence += 1
        return segment, before, after

    def begun(self, segment: JournalSegment) -> None:
        """Record that *segment* was written and synced, with all operations that follow."""
        self.live.append(segment)
        self._has_unsynced_names = False

    # -- allocation in advance ------------------------------------------------------------------------------------

    @property
    def spare_bytes(self) -> int:
        """The size of free files, and of the part of the one in allocation."""
        return len(self.free) * self.segment_bytes + self._allocated_bytes

    def make_room(self) -> list[Operation]:
        """Return the operations that allocate the next part of a file. `room_made` or `room_failed` must follow."""
        operations: list[Operation] = []
        if not self._allocating:
            self._allocating = self._new_name()
            operations.append(Create(self._allocating))
        size = min(ROOM_SLICE_BYTES, self.segment_bytes - self._allocated_bytes)
        operations += [Fill(self._allocating, self._allocated_bytes, size), Sync(self._allocating)]
        if self._allocated_bytes + size == self.segment_bytes:
            operations.append(SyncFolder())
        return operations

    def room_made(self) -> None:
        """Record that the part is allocated."""
        self._allocated_bytes = min(self._allocated_bytes + ROOM_SLICE_BYTES, self.segment_bytes)
        if self._allocated_bytes == self.segment_bytes:
            self.free.append(self._allocating)
            self._allocating, self._allocated_bytes = "", 0

    def room_failed(self) -> None:
        """Remove the file whose allocation failed, to free its space."""
        self._remove(self._allocating)
        self._allocating, self._allocated_bytes = "", 0

    # -- the end of a segment -------------------------------------------------------------------------------------

    def retire(self, replay_from: int) -> None:
        """Retire segments that lie wholly before *replay_from*, which a header on the disk names."""
        while len(self.live) > 1 and self.live[1].first_lsn <= replay_from:
            segment = self.live.pop(0)
            if segment.is_damaged:
                self._set_aside(segment.name, f"{segment.sequence:08d}-{segment.name}")
            elif segment.is_sound and segment.bytes == self.segment_bytes and len(self.free) < self._free_max:
                self.free.append(segment.name)
            else:
                self._remove(segment.name)

    def discard(self, segment: JournalSegment) -> None:
        """Remove a segment whose first write failed: no record in it was acknowledged."""
        self._remove(segment.name)

    def tidy(self) -> list[Operation]:
        """Return the operations that remove files, then those that move files to quarantine, which may need room.
        `tidied` or `tidy_failed` must follow unless it is empty.
        """
        self._tidying, self._unneeded = sorted(self._unneeded, key=lambda one: isinstance(one, SetAside)), []
        return [*self._tidying, SyncFolder()] if self._tidying else []

    def tidied(self) -> None:
        """Record that they were carried out."""
        self._names.difference_update(operation.name for operation in self._tidying)
        self._tidying = []
        self.is_held_up = False

    def tidy_failed(self) -> None:
        """Record that one failed: all of them will be tried again."""
        self._tidying, self._unneeded = [], self._tidying + self._unneeded
        self.is_held_up = True

    @property
    def is_tidy(self) -> bool:
        """Whether `tidy` would return nothing."""
        return not self._unneeded

    def _remove(self, name: str) -> None:
        self._unneeded.append(Remove(name))

    def _set_aside(self, name: str, to: str) -> None:
        if self.set_aside >= JOURNAL_QUARANTINE_FILES_MAX:
            self._remove(name)
            return
        self.set_aside += 1
        self._unneeded.append(SetAside(name, to))

    def _new_name(self) -> str:
        number = 1
        while slot_name(number) in self._names:
            number += 1
        name = slot_name(number)
        self._names.add(name)
        return name


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
