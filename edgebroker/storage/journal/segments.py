"""The files of a journal: segments with records, free segments for reuse, and the next one in allocation."""

from __future__ import annotations

from edgebroker.limits import JOURNAL_QUARANTINE_FILES_MAX, KIB
from edgebroker.storage.journal.recovery_report import JournalSegment, RecoveryReport

from .format import PAGE_BYTES
from .work import Create, Fill, Operation, Remove, SetAside, Sync, SyncFolder

ROOM_SLICE_BYTES = 128 * KIB  # a slow card takes 30 ms for it, which may delay a commit
SUFFIX = ".ebj"


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
        self.bytes = 0
        """The size of all segments with records."""
        self.spare_bytes = 0
        """The size of free files, and of the part of the one in allocation."""
        self.set_aside = 0
        """The number of files in quarantine."""
        self.next_sequence = 1
        self._free_max = free_max
        self._allocating = ""  # the file in allocation, and how much of it is allocated
        self._allocated_bytes = 0
        self.unneeded: list[Remove | SetAside] = []
        """The files that `tidy` removes or sets aside."""
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
        self._recount()

    def _recount(self) -> None:
        self.bytes = sum(segment.bytes for segment in self.live)
        self.spare_bytes = len(self.free) * self.segment_bytes + self._allocated_bytes

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
        self._recount()
        return segment, before, after

    def begun(self, segment: JournalSegment) -> None:
        """Record that *segment* was written and synced, with all operations that follow."""
        self.live.append(segment)
        self._has_unsynced_names = False
        self._recount()

    # -- allocation in advance ------------------------------------------------------------------------------------

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
        self._recount()

    def room_failed(self) -> None:
        """Remove the file whose allocation failed, to free its space."""
        self._remove(self._allocating)
        self._allocating, self._allocated_bytes = "", 0
        self._recount()

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
        self._recount()

    def discard(self, segment: JournalSegment) -> None:
        """Remove a segment whose first write failed: no record in it was acknowledged."""
        self._remove(segment.name)

    def tidy(self) -> list[Operation]:
        """Return the operations that remove files, then those that move files to quarantine, which may need room.
        `tidied` or `tidy_failed` must follow unless it is empty.
        """
        self._tidying, self.unneeded = sorted(self.unneeded, key=lambda one: isinstance(one, SetAside)), []
        return [*self._tidying, SyncFolder()] if self._tidying else []

    def tidied(self) -> None:
        """Record that they were carried out."""
        self._names.difference_update(operation.name for operation in self._tidying)
        self._tidying = []
        self.is_held_up = False

    def tidy_failed(self) -> None:
        """Record that one failed: all of them will be tried again."""
        self._tidying, self.unneeded = [], self._tidying + self.unneeded
        self.is_held_up = True

    def _remove(self, name: str) -> None:
        self.unneeded.append(Remove(name))

    def _set_aside(self, name: str, to: str) -> None:
        if self.set_aside >= JOURNAL_QUARANTINE_FILES_MAX:
            self._remove(name)
            return
        self.set_aside += 1
        self.unneeded.append(SetAside(name, to))

    def _new_name(self) -> str:
        number = 1
        while slot_name(number) in self._names:
            number += 1
        name = slot_name(number)
        self._names.add(name)
        return name
