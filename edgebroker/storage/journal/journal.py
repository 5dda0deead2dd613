"""The journal: records go in, disk operations come out. SnapshotPolicy decides when a snapshot is worth its cost.

Theory of operation. A record is bytes whose first one is its kind; its owner defines its meaning. `append` gives it a
number, its LSN, and it waits. When the first record has waited for `commit_us`, or when enough records wait, `due` has
passed and `next_work` returns a *work*: one frame with all of them, written and synced. One work is in progress at a
time; when it is `done`, `synced` is the last durable LSN. So the runtime's part is a loop:

    if journal.due() is not None and journal.due() <= now and (work := journal.next_work(now)) is not None:
        ...carry out work.operations...; then journal.done(work, now) or journal.failed(work, reason, now)

After a failed write or sync the state of the disk is unknown: a later sync of the same file may succeed although the
pages never reached the disk (https://wiki.postgresql.org/wiki/Fsync_Errors). So the segment is not written to again.
Every record that is not known to be synced is still in memory and is written to a new segment, after a pause; until
that is done `is_refusing` is set, and nothing may be acknowledged.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.limits import JOURNAL_RECORD_BYTES_MAX, KIB, MIB, QUEUED_BYTES_LEAST
from edgebroker.storage.journal.format import (
    CLEAN,
    FRAMES_AT,
    RECORD_BYTES,
    STORE_BYTES,
    ControlRecord,
    SegmentHeader,
    encode_control,
    encode_frame,
    encode_header,
    fitting,
    frame_bytes,
    salt_of,
)
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.page_files import PageFiles
from edgebroker.storage.journal.recovery_report import JournalSegment, RecoveryReport
from edgebroker.storage.journal.segments import Segments
from edgebroker.storage.journal.work import DiskWork, Operation, Sync, SyncControl, WorkPurpose, Write, WriteControl

SPARSE_SEGMENTS: Final = 12
"""Segments in use that cause a snapshot, however little was written: 96 MiB, or 12 starts..."""
SPARSE_SEGMENTS_MIN: Final = 4
"""...or fewer, where the limit of the journal is less than twice as many; but never less than these."""
FULL_BYTES_PER_S: Final = 64 * KIB
"""A full journal makes snapshots however little was written, because an unknown part of it may be settled. Many free
nothing, so they are limited to this rate: 5.7 GB a day, which wears a card of 32 GB out in seven years.
"""


class SnapshotPolicy:
    """Decides when the next snapshot is due, from the bytes written since the last one and its size."""

    def __init__(self, options: JournalOptions, report: RecoveryReport | None = None) -> None:
        self.snapshot_bytes = 0
        """The size of the last snapshot."""
        self.wants_at_once = False
        """Whether damage, or the owner, requires a snapshot at once."""
        self._options = options
        self._written = 0  # bytes of all frames
        self._written_at_snapshot = 0  # bytes of all frames when the last snapshot was on the disk
        self._least_bytes = 0  # bytes of the segments in use then
        self._now: Instant = 0
        self._full_snapshot_at: Instant = 0
        if report is not None:
            self.snapshot_bytes = report.snapshot_bytes
            self._written_at_snapshot = min(0, report.snapshot_bytes - report.used_bytes)
            self.wants_at_once = bool(report.damage)  # a snapshot replaces the damaged segments

    def add_written(self, size: int, now: Instant) -> None:
        """Count *size* bytes that were written."""
        self._written += size
        self._now = now

    def snapshot_taken(self, segments_bytes: int, now: Instant) -> None:
        """Record that a snapshot is on the disk; *segments_bytes* is the size of the segments in use now."""
        self._written_at_snapshot = self._written
        self._least_bytes = segments_bytes
        self._full_snapshot_at = now + SECOND * self.snapshot_bytes // FULL_BYTES_PER_S

    def is_due(self, segments_bytes: int, is_full: bool, is_last: bool = False) -> bool:
        """Return whether to replace the segments in use, of *segments_bytes* bytes, by a snapshot.

        is_last: soon there will be no room for one.
        """
        if self.wants_at_once or self._is_sparse(segments_bytes):
            return True
        options, written = self._options, self._written - self._written_at_snapshot
        if is_last and written >= options.segment_bytes:
            return True
        if is_full:
            is_much = written >= max(options.segment_bytes, self.snapshot_bytes // 2)
            return is_much or self._now >= self._full_snapshot_at
        return written >= max(options.snapshot_min_bytes, options.snapshot_factor * self.snapshot_bytes)

    def _is_sparse(self, segments_bytes: int) -> bool:
        """Return whether many segments contain little: every start begins a new segment."""
        segment_bytes = self._options.segment_bytes
        half = self._options.bytes_max // (2 * segment_bytes)
        sparse_bytes = segment_bytes * min(SPARSE_SEGMENTS, max(SPARSE_SEGMENTS_MIN, half))
        is_much = segments_bytes >= max(sparse_bytes, 4 * self.snapshot_bytes)
        return is_much and segments_bytes > self._least_bytes


PAGES_DISK_SHARE: Final = 4
"""All pages together take a quarter of the disk at most: the journal, the delivery log and others need it too."""
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
    """The space that is left, and the space that is needed. All in bytes.

    If the journal filled the disk completely, no snapshot and no acknowledgement could be written any more, so no space
    would ever be freed. So new messages are refused while there is still room for a snapshot of the whole state, beside
    the existing segments, and for some acknowledgements.
    """

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


RETRY_US: Final[Duration] = 100 * MILLISECOND
"""The pause after a failure; it doubles with each further one in a row..."""
RETRY_US_MAX: Final[Duration] = 30 * SECOND
"""...up to this: a full disk is used again soon after space was freed."""
ROOM_PACE_US: Final[Duration] = 50 * MILLISECOND
"""The pause between two parts of an allocation: 8 MiB take 3 s, and commits get most of that time."""
ROOM_RETRY_US: Final[Duration] = 10 * SECOND
"""The pause after a failed allocation in advance. It is not urgent: the segment in use has room."""
LOST: Final = "what stood in a segment that was taken away is not on the disk again yet"


class Journal:
    """A journal with the id *store*, 16 random bytes; or the continuation of one, as described in *report*.

    skip: a random number below 65,536, different in every run. So many sequence numbers are skipped: if the previous
    run was killed while it began a segment, and left sectors but no trace of its sequence, those have another salt.
    Raises ValueError for a store of another length.
    """

    def __init__(
        self, store: bytes, options: JournalOptions | None = None, report: RecoveryReport | None = None, skip: int = 0
    ) -> None:
        if len(store) != STORE_BYTES:
            raise ValueError(f"a store is named by {STORE_BYTES} bytes, not {len(store)}")
        self.options = options = JournalOptions() if options is None else options
        self.store = store
        self.lsn = 0
        """The last appended record."""
        self.synced = 0
        """All records up to this one are on the disk."""
        self.is_refusing = False
        """Whether nothing more may be acknowledged: writes fail, or the journal is full. `refusal_reason` gives the
        cause.
        """
        self.refusal_reason = ""
        self.warning = ""
        """A problem for the operator that does not cause refusals yet."""
        self.replay_from = 1
        """The record at which recovery begins."""
        self.is_closed = False
        """Whether `close` was called and everything is on the disk."""
        self.failures = 0
        """The number of failed works of this run."""
        self.segments = Segments(options.segment_bytes, options.free_max, report, skip)
        self.space = SpaceBudget(options, self.segments)
        self.pages = PageFiles(store)
        self._was_page_work = False  # the last work was about pages: records that are due go first now
        self._batch_records = options.batch_records
        self._batch_bytes = options.batch_bytes
        self._waiting: list[bytes] = []
        self.waiting_bytes = 0  # with the heads of records, without those of frames
        self.commit_by: Instant = NEVER  # deadline of the waiting records
        self._in_flight: list[bytes] = []
        self._work: DiskWork | None = None
        self._segment: JournalSegment | None = None  # the segment in use; None: the next batch begins one
        self._offset = 0
        self._header: SegmentHeader | None = None  # of the segment that was begun last
        self._begun: JournalSegment | None = None  # a segment that the work in progress begins
        self._begun_replay_from = 1
        self._frame_bytes = 0
        self._maintenance_at: Instant = 0  # earliest time of the next allocation or removal of files
        self._retry_at: Instant = 0
        self._pause: Duration = RETRY_US
        self._is_broken = False
        self._is_closing = False
        self._is_final = False  # the work in progress writes the final frame of the run
        # -- snapshots
        self._is_snapshotting = False
        self._snapshot_first = 0
        self._snapshot_last = 0
        self._lost_upto = self._durable_before = 0  # the last record that may be lost; `durable_lsn` before the loss
        self._is_snapshot_complete = False  # a snapshot is complete, but no header on the disk names it yet
        self._rotates = False
        self._snapshot_policy = SnapshotPolicy(options, report)
        self._taken_bytes = 0  # bytes of all records in works so far
        self._state_bytes_at = 0
        if report is not None:
            self._resume(report)

    def _resume(self, report: RecoveryReport) -> None:
        self.lsn = report.lsn
        self.synced = report.lsn - len(report.unproven)
        self.replay_from = report.replay_from
        self._waiting = list(report.unproven)
        self.waiting_bytes = sum(map(len, self._waiting)) + RECORD_BYTES * len(self._waiting)
        self.commit_by = 0 if self._waiting else NEVER

    # -- records --------------------------------------------------------------------------------------------------

    def append(self, record: bytes, now: Instant, by: Instant | None = None) -> int:
        """Append a record, to be on the disk soon after *by*; the default is `commit_us` from now. Returns its LSN.

        It waits in memory until then: nothing that depends on it may be acknowledged before `synced`. Raises ValueError
        for an empty record and one beyond JOURNAL_RECORD_BYTES_MAX.
        """
        size = len(record)
        if not 0 < size <= JOURNAL_RECORD_BYTES_MAX:
            raise ValueError(f"a record of {size} bytes; records have 1 to {JOURNAL_RECORD_BYTES_MAX}")
        if by is None:
            by = now + self.options.commit_us
        if by < self.commit_by:
            self.commit_by = by
        waiting = self._waiting
        waiting.append(record)
        self.waiting_bytes += size + RECORD_BYTES
        if (self.waiting_bytes >= self._batch_bytes or len(waiting) >= self._batch_records) and now < self.commit_by:
            self.commit_by = now
        self.lsn += 1
        return self.lsn

    # -- the disk -------------------------------------------------------------------------------------------------

    @property
    def page_bytes_max(self) -> int:
        """What all pages may take on the disk: a quarter of what is free without them."""
        if self.space.disk_bytes is None:
            return QUEUED_BYTES_LEAST
        return (self.space.disk_bytes + self.pages.bytes) // PAGES_DISK_SHARE

    @property
    def is_busy(self) -> bool:
        """Whether a work is in progress."""
        return self._work is not None

    def due(self) -> Instant | None:
        """Return when to call `next_work`, possibly in the past; None while a work is in progress or there is nothing
        to do.
        """
        if self._work is not None or self.is_closed:
            return None
        deadline = min(self.commit_by, self._maintenance_at) if self._needs_maintenance else self.commit_by
        if self.pages.is_due(self.durable_lsn):
            deadline = 0
        if self._is_broken and deadline < self._retry_at:
            deadline = self._retry_at
        return None if deadline >= NEVER else deadline

    def next_work(self, now: Instant) -> DiskWork | None:
        """Return the next work. None while one is in progress, during the pause after a failure, and if there is
        nothing to do.

        It ignores `commit_by`: waiting records are written now.
        """
        if self._work is not None or self.is_closed or (self._is_broken and now < self._retry_at):
            return None
        work = None
        if self.pages.is_due(self.durable_lsn) and (now < self.commit_by or not self._was_page_work):
            self._was_page_work = True
            self._work = self.pages.next_work(self.durable_lsn)
            return self._work
        self._was_page_work = False
        if self._needs_maintenance and (
            now >= self._maintenance_at or (self._is_broken and not self.segments.is_held_up)
        ):
            work = self._maintenance()
        elif self._waiting or self._rotates or self._is_closing:
            work = self._batch()
        self._work = work
        return work

    def done(self, work: DiskWork, now: Instant) -> None:
        """Record that *work* was carried out. Raises ValueError if it is not in progress."""
        self._end(work)
        if work.purpose is WorkPurpose.BATCH:
            self._batch_done(work, now)
        elif work.purpose is WorkPurpose.PAGE:
            self.pages.done(work)
            self.warning = ""
        else:
            if work.purpose is WorkPurpose.ROOM:
                self.segments.room_made()
                self.warning = ""
                self.space.refusal = ""
            else:
                self.segments.tidied()
            self._maintenance_at = now + ROOM_PACE_US
        self._update_refusal()

    def failed(self, work: DiskWork, reason: str, now: Instant) -> None:
        """Record that *work* failed, as a whole or in part. Raises ValueError if it is not in progress."""
        self._end(work)
        self.failures += 1
        if work.purpose is WorkPurpose.ROOM:
            self.segments.room_failed()
            self.space.refusal = reason
            self._update_refusal()
            self.warning = f"no room can be made for the next segment: {reason}"
            self._maintenance_at = now + ROOM_RETRY_US
        elif work.purpose is WorkPurpose.TIDY:
            self.segments.tidy_failed()
            self.warning = f"files that are not needed cannot be removed: {reason}"
            self._maintenance_at = now + ROOM_RETRY_US
        elif work.purpose is WorkPurpose.PAGE:
            self.pages.failed(reason, self.lsn)
            self.warning = f"a part of a queue cannot be moved to the disk or back: {reason}"
        else:
            self._batch_failed(reason, now)

    def close(self, now: Instant) -> None:
        """Begin to close: no more records may be appended. Waiting records are written, then a final frame; then it
        `is_closed`.
        """
        self._is_closing = True
        self.pages.close()
        self._continue_closing(now)

    @property
    def durable_lsn(self) -> int:
        """The last LSN that may be acknowledged: `synced`, unless earlier synced records were lost and are not in a
        snapshot yet.
        """
        return self._durable_before if self.replay_from <= self._lost_upto else self.synced

    # -- snapshots ------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether it refuses although writes succeed: the journal has reached its limit, or the disk has little space
        left.
        """
        return self.is_refusing and not self._is_broken and self.refusal_reason != LOST

    @property
    def wants_snapshot(self) -> bool:
        """Whether a snapshot is worth its cost: it replaces what was written since the last one."""
        if self._is_snapshotting or self._is_snapshot_complete or self._is_broken or self._is_closing:
            return False
        if not self.space.has_room_for(0, self.waiting_bytes):
            return False
        return self._snapshot_policy.is_due(self.segments.bytes, self.is_full, self.space.is_last(self.waiting_bytes))

    def request_snapshot(self, is_lost: bool = False) -> None:
        """Request a snapshot, because the state has become much smaller, or (*is_lost*) because synced records are not
        on the disk any more. In that case nothing more is durable until the snapshot is complete.
        """
        self._snapshot_policy.wants_at_once = True
        if is_lost:
            self._durable_before, self._lost_upto = self.durable_lsn, self.synced
            self._is_snapshot_complete = self._is_snapshot_complete and self._snapshot_first > self._lost_upto

    def begin_snapshot(self, now: Instant) -> int:
        """Begin a snapshot: the owner appends records of its whole state, in any number, between other records.

        Returns the LSN of the first. Recovery will begin with it, so these records must not be older. Raises ValueError
        if a snapshot is already in progress.
        """
        if self._is_snapshotting:
            raise ValueError("a snapshot is being made")
        self._is_snapshotting = True
        self._snapshot_policy.wants_at_once = False
        self._snapshot_first = self.lsn + 1
        self._is_snapshot_complete = False
        self._state_bytes_at = self._taken_bytes + self.waiting_bytes
        return self._snapshot_first

    def end_snapshot(self, now: Instant) -> None:
        """End the snapshot. When all of it is on the disk, a new segment names it as the begin of recovery.

        Raises ValueError if none was begun.
        """
        if not self._is_snapshotting:
            raise ValueError("no snapshot is being made")
        self._is_snapshotting = False
        self._is_snapshot_complete = self._snapshot_first > max(self.replay_from, self._lost_upto)
        self._snapshot_last = self.lsn
        self._snapshot_policy.snapshot_bytes = self._taken_bytes + self.waiting_bytes - self._state_bytes_at
        self._rotate_if_synced(now)

    def _rotate_if_synced(self, now: Instant) -> None:
        if self._is_snapshot_complete and self.synced >= self._snapshot_last:
            self._rotates = True
            self.commit_by = min(self.commit_by, now)

    # -- batches --------------------------------------------------------------------------------------------------

    def _batch(self) -> DiskWork:
        first_lsn = self.lsn - len(self._waiting) + 1
        records = self._next_records()
        size = frame_bytes(len(records), sum(map(len, records)))
        self._is_final = self._is_closing and not records and not self._rotates
        segment = self._segment
        operations: list[Operation] = []
        after: list[Operation] = []
        head = b""
        offset = self._offset
        if segment is None or self._rotates or offset + size > segment.bytes:
            segment, operations, after = self.segments.begin(first_lsn, FRAMES_AT + size)
            self._begun, self._begun_replay_from, offset = segment, self._next_replay_from(), 0
            replay_from = self._begun_replay_from
            state_bytes = self._snapshot_policy.snapshot_bytes if replay_from > 1 else 0
            header = SegmentHeader(self.store, segment.sequence, first_lsn, segment.bytes, replay_from, state_bytes)
            self._header, head = header, encode_header(header)
        salt = salt_of(self.store, segment.sequence)
        frame = encode_frame(records, first_lsn, segment.sequence, salt, CLEAN if self._is_final else 0)
        data = head + frame if head else frame
        self._frame_bytes = len(data)
        self._in_flight = records
        operations.append(Write(segment.name, offset, data))
        operations.append(Sync(segment.name))
        upto = first_lsn + len(records) - 1
        if head or self._is_final:  # last: it names only what is on the disk, and a work that fails later removes it
            assert self._header is not None
            control = encode_control(ControlRecord(self._header, segment.name, upto))
            after = [*after, WriteControl(control), SyncControl()]
        return DiskWork(WorkPurpose.BATCH, (*operations, *after), upto)

    def _next_records(self) -> list[bytes]:
        records, limit = self._waiting, self.options.frame_bytes_max
        taken_bytes = self.waiting_bytes
        if frame_bytes(0, taken_bytes) > limit:
            count, taken_bytes = fitting(records, limit)
            self._waiting = records[count:]
            records = records[:count]
        else:
            self._waiting = []
        self.waiting_bytes -= taken_bytes
        self._taken_bytes += taken_bytes
        if not self._waiting:
            self.commit_by = NEVER
        return records

    def _next_replay_from(self) -> int:
        return (
            self._snapshot_first
            if self._is_snapshot_complete and self.synced >= self._snapshot_last
            else self.replay_from
        )

    def _batch_done(self, work: DiskWork, now: Instant) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self.segments.begun(begun)
            self._segment, self._offset = begun, 0
            self._rotates = False
            self.segments.retire(self._begun_replay_from)
            if self._begun_replay_from != self.replay_from:
                self.replay_from = self._begun_replay_from
                self._is_snapshot_complete = self._is_snapshot_complete and self._snapshot_first != self.replay_from
                self._snapshot_policy.snapshot_taken(self.segments.bytes, now)
                self.space.refusal = ""
        self._offset += self._frame_bytes
        assert self._segment is not None
        self.space.written(self._frame_bytes, self._segment, self._offset)
        self._snapshot_policy.add_written(self._frame_bytes, now)
        self.synced = work.upto
        self._is_broken = False
        self._pause = RETRY_US
        self._in_flight = []
        self._rotate_if_synced(now)
        if self._is_closing:
            self._continue_closing(now)

    def _update_refusal(self) -> None:
        """Update `is_refusing` and `refusal_reason`."""
        if not self._is_broken:
            is_lost = self.replay_from <= self._lost_upto
            self.refusal_reason = self.space.refusal_reason(self.waiting_bytes) or (LOST if is_lost else "")
            if self.segments.bytes > self.options.bytes_max:
                self.refusal_reason = (
                    f"the journal holds {self.segments.bytes} bytes; the limit is {self.options.bytes_max}"
                )
            self.is_refusing = bool(self.refusal_reason)

    def _batch_failed(self, reason: str, now: Instant) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self.segments.discard(begun)
        elif self._segment is not None:
            self._segment.is_sound = False
        self._segment = None
        self.space.ended()
        size = sum(map(len, self._in_flight)) + RECORD_BYTES * len(self._in_flight)
        self._waiting = self._in_flight + self._waiting
        self.waiting_bytes += size
        self._taken_bytes -= size
        self._in_flight = []
        self.commit_by = now
        self._is_broken = self.is_refusing = True
        self.refusal_reason = reason
        self._retry_at = now + self._pause
        self._pause = min(2 * self._pause, RETRY_US_MAX)

    def _end(self, work: DiskWork) -> None:
        if work is not self._work:
            raise ValueError("this work is not under way")
        self._work = None

    def _continue_closing(self, now: Instant) -> None:
        self.commit_by = now
        is_idle = not self._waiting and self._work is None and not self._rotates and not self._is_broken
        self.is_closed = is_idle and (self._is_final or self._segment is None)

    # -- allocation and removal of files ----------------------------------------------------------------------------

    @property
    def _needs_maintenance(self) -> bool:
        segments = self.segments
        if segments.unneeded:
            return True
        return not self._is_broken and not self._is_closing and self.space.wants_another()

    def _maintenance(self) -> DiskWork:
        operations = self.segments.tidy()
        if operations:
            return DiskWork(WorkPurpose.TIDY, tuple(operations))
        return DiskWork(WorkPurpose.ROOM, tuple(self.segments.make_room()))
