"""The files of a journal: which hold records, which may be used again, and the next one being made."""

from __future__ import annotations

from edgebroker.limits import JOURNAL_QUARANTINE_FILES_MAX, KIB
from edgebroker.storage.journal.recovery_report import JournalSegment, RecoveryReport

from .format import PAGE_BYTES
from .work import Create, Fill, Operation, Remove, SetAside, Sync, SyncFolder

ROOM_SLICE_BYTES = 128 * KIB  # a slow card takes 30 ms for it, and a commit may have to wait so long
SUFFIX = ".ebj"


def slot_name(number: int) -> str:
    """The name of the file in slot *number*. Names say nothing about the order of segments: headers do."""
    return f"segment-{number:04d}{SUFFIX}"


class Segments:
    """Files by name; what to do with them comes out as operations."""

    def __init__(self, segment_bytes: int, free_max: int, found: RecoveryReport | None = None, skip: int = 0) -> None:
        self.segment_bytes = segment_bytes
        self.live: list[JournalSegment] = []
        """Those that hold records, in order; the last one is being written."""
        self.free: list[str] = []
        """Files of the usual size that hold nothing of use."""
        self.set_aside = 0
        """Files in quarantine."""
        self.next_sequence = 1
        self._free_max = free_max
        self._making = ""  # the file being made, and how much of it is there
        self._made = 0
        self._doomed: list[Remove | SetAside] = []
        self._tidying: list[Remove | SetAside] = []
        self.is_held_up = False
        """What is to be removed or set aside could not be when it was tried last."""
        self._names: set[str] = set()
        self._unsure: set[str] = set()  # files of earlier runs, which were not begun anew in this one
        self._has_unsure_names = False  # a run that was killed may have made files, and not synced their names
        if found is not None:
            self.next_sequence = found.next_sequence + skip
            self._has_unsure_names = True
            self.set_aside = found.quarantined
            self.live = list(found.segments)
            self._names = {segment.name for segment in self.live} | set(found.free) | set(found.strangers)
            self._unsure = set(self._names)
            for name, size in found.free.items():
                if size == segment_bytes and len(self.free) < free_max:
                    self.free.append(name)
                else:  # its making was not over, or segments have another size now
                    self._remove(name)
            for number, name in enumerate(found.strangers):
                self._set_aside(name, f"stranger-{self.next_sequence}-{number}-{name}")
            self.retire(found.proven_from)  # a disk that is full has no other room for what a run writes first

    @property
    def bytes(self) -> int:
        """What the segments that hold records take."""
        return sum(segment.bytes for segment in self.live)

    # -- a new segment ------------------------------------------------------------------------------------------

    def begin(self, first_lsn: int, least_bytes: int) -> tuple[JournalSegment, list[Operation], list[Operation]]:
        """A segment with room for *least_bytes*; what must be done before it is written to, and after its sync."""
        size = self.segment_bytes
        before: list[Operation] = []
        after: list[Operation] = []
        if least_bytes > size:
            size = least_bytes + -least_bytes % PAGE_BYTES
            name = self._new_name()
            before += [Create(name), Fill(name, least_bytes, size - least_bytes)]  # the frame fills the rest
            after.append(SyncFolder())
        elif self.free:
            name = self.free.pop()
            if name in self._unsure:  # perhaps its room was never synced: recovery takes a segment's end for sure
                self._unsure.discard(name)
                before.append(Fill(name, size - PAGE_BYTES, PAGE_BYTES))
        else:
            name, made = self._making or self._new_name(), self._made
            self._making, self._made = "", 0
            if not made:
                before.append(Create(name))
            before.append(Fill(name, made, size - made))
            after.append(SyncFolder())
        if self._has_unsure_names:
            after = [SyncFolder()]
        segment = JournalSegment(name, size, self.next_sequence, first_lsn)
        self.next_sequence += 1
        return segment, before, after

    def begun(self, segment: JournalSegment) -> None:
        """*segment* was written and synced, and so was all that had to be done after it."""
        self.live.append(segment)
        self._has_unsure_names = False

    # -- room ahead of need ---------------------------------------------------------------------------------------

    @property
    def spare_bytes(self) -> int:
        """What files take that wait for their use, and the one that is being made."""
        return len(self.free) * self.segment_bytes + self._made

    def make_room(self) -> list[Operation]:
        """The next part of the file that is made ahead of need. `room_made` or `room_failed` must follow."""
        operations: list[Operation] = []
        if not self._making:
            self._making = self._new_name()
            operations.append(Create(self._making))
        size = min(ROOM_SLICE_BYTES, self.segment_bytes - self._made)
        operations += [Fill(self._making, self._made, size), Sync(self._making)]
        if self._made + size == self.segment_bytes:
            operations.append(SyncFolder())
        return operations

    def room_made(self) -> None:
        """The part is there."""
        self._made = min(self._made + ROOM_SLICE_BYTES, self.segment_bytes)
        if self._made == self.segment_bytes:
            self.free.append(self._making)
            self._making, self._made = "", 0

    def room_failed(self) -> None:
        """The part could not be made: what there is of the file goes, and its room with it."""
        self._remove(self._making)
        self._making, self._made = "", 0

    # -- the end of a segment -------------------------------------------------------------------------------------

    def retire(self, replay_from: int) -> None:
        """A header that names *replay_from* is on the disk: what lies wholly before is not needed any more."""
        while len(self.live) > 1 and self.live[1].first_lsn <= replay_from:
            segment = self.live.pop(0)
            if segment.is_damaged:
                self._set_aside(segment.name, f"{segment.sequence:08d}-{segment.name}")
            elif segment.is_sound and segment.bytes == self.segment_bytes and len(self.free) < self._free_max:
                self.free.append(segment.name)
            else:
                self._remove(segment.name)

    def discard(self, segment: JournalSegment) -> None:
        """A segment that was begun and could not be written: nothing in it was promised."""
        self._remove(segment.name)

    def tidy(self) -> list[Operation]:
        """What is to be removed, and then what is to be set aside, which may need room. `tidied` or `tidy_failed` must
        follow unless there is nothing.
        """
        self._tidying, self._doomed = sorted(self._doomed, key=lambda one: isinstance(one, SetAside)), []
        return [*self._tidying, SyncFolder()] if self._tidying else []

    def tidied(self) -> None:
        """That was done."""
        self._names.difference_update(operation.name for operation in self._tidying)
        self._tidying = []
        self.is_held_up = False

    def tidy_failed(self) -> None:
        """It was done in part, or not at all: it is tried again, all of it."""
        self._tidying, self._doomed = [], self._tidying + self._doomed
        self.is_held_up = True

    @property
    def is_tidy(self) -> bool:
        """Whether `tidy` would return nothing."""
        return not self._doomed

    def _remove(self, name: str) -> None:
        self._doomed.append(Remove(name))

    def _set_aside(self, name: str, to: str) -> None:
        if self.set_aside >= JOURNAL_QUARANTINE_FILES_MAX:
            self._remove(name)
            return
        self.set_aside += 1
        self._doomed.append(SetAside(name, to))

    def _new_name(self) -> str:
        number = 1
        while slot_name(number) in self._names:
            number += 1
        name = slot_name(number)
        self._names.add(name)
        return name
