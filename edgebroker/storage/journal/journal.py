"""The journal: records go in, operations for the disk come out. SnapshotPolicy decides when a snapshot is worth
its cost.

Theory of operation. A record is bytes whose first one is its kind; what it means is its owner's business. `append`
gives it a number, its LSN, and it waits. When the first one has waited for `commit_us`, or when enough of them
wait, `due` says so and `next_work` returns a *work*: one frame with all of them, written and synced. One work is
under way at a time; when it is `done`, `synced` says how far the promise reaches. So the world's part is a loop:

    if journal.due() is not None and journal.due() <= now and (work := journal.next_work(now)) is not None:
        ...carry out work.operations...; then journal.done(work, now) or journal.failed(work, reason, now)

When a write or a sync fails, nobody knows what is on the disk: a later sync of the same file may succeed although
the pages never got there (https://wiki.postgresql.org/wiki/Fsync_Errors). So the segment is not written to again.
Every record that was not known to be synced is still in memory and goes to a new segment, after a pause; until that
is done `is_refusing` says that nothing more may be promised.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.limits import JOURNAL_RECORD_BYTES_MAX, KIB
from edgebroker.storage.journal.format import (
    CLEAN,
    FRAMES_AT,
    RECORD_BYTES,
    STORE_BYTES,
    SegmentHeader,
    encode_frame,
    encode_header,
    fitting,
    frame_bytes,
    salt_of,
)
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery_report import JournalSegment, RecoveryReport
from edgebroker.storage.journal.segments import Segments
from edgebroker.storage.journal.space_budget import SpaceBudget
from edgebroker.storage.journal.work import DiskWork, Operation, Sync, WorkPurpose, Write

SPARSE_SEGMENTS: Final = 12
"""So many segments in use are a reason for a snapshot, however little was written: 96 MiB, or 12 starts..."""
SPARSE_SEGMENTS_MIN: Final = 4
"""...or fewer, where the journal may not have twice as many; but never less than these."""
FULL_BYTES_PER_S: Final = 64 * KIB
"""A full journal is stated again however little was written, for nobody knows what was settled meanwhile. In vain as
often as not, so at this pace: 5.7 GB a day, of which a card of 32 GB takes seven years."""


class SnapshotPolicy:
    """What was written since the last snapshot, and what that took."""

    def __init__(self, options: JournalOptions, found: RecoveryReport | None = None) -> None:
        self.snapshot_bytes = 0
        """What the last snapshot took."""
        self.wants_at_once = False
        """There is a reason of its own: of damage, or the owner has one."""
        self._options = options
        self._written = 0  # bytes of all frames...
        self._stated_at = 0  # ...and how many there were when the last snapshot was on the disk
        self._least_bytes = 0  # of the segments in use then
        self._now: Instant = 0
        self._full_again_at: Instant = 0
        if found is not None:
            self.snapshot_bytes = found.snapshot_bytes
            self._stated_at = min(0, found.snapshot_bytes - found.used_bytes)
            self.wants_at_once = bool(found.damage)  # the sooner all is said again, the sooner the bad part may go

    def add_written(self, size: int, now: Instant) -> None:
        """*size* bytes more are on the disk."""
        self._written += size
        self._now = now

    def snapshot_taken(self, segments_bytes: int, now: Instant) -> None:
        """The last snapshot is on the disk, and the segments that are in use now take *segments_bytes*."""
        self._stated_at = self._written
        self._least_bytes = segments_bytes
        self._full_again_at = now + SECOND * self.snapshot_bytes // FULL_BYTES_PER_S

    def is_due(self, segments_bytes: int, is_full: bool, is_last: bool = False) -> bool:
        """Whether the segments in use, which take *segments_bytes*, should be exchanged for a snapshot.

        is_last: soon there will be no room for one.
        """
        if self.wants_at_once or self._is_sparse(segments_bytes):
            return True
        options, written = self._options, self._written - self._stated_at
        if is_last and written >= options.segment_bytes:
            return True
        if is_full:
            is_much = written >= max(options.segment_bytes, self.snapshot_bytes // 2)
            return is_much or self._now >= self._full_again_at
        return written >= max(options.snapshot_min_bytes, options.snapshot_factor * self.snapshot_bytes)

    def _is_sparse(self, segments_bytes: int) -> bool:
        """Every start begins a segment: after many, much room is taken by little."""
        segment_bytes = self._options.segment_bytes
        half = self._options.bytes_max // (2 * segment_bytes)
        sparse_bytes = segment_bytes * min(SPARSE_SEGMENTS, max(SPARSE_SEGMENTS_MIN, half))
        is_much = segments_bytes >= max(sparse_bytes, 4 * self.snapshot_bytes)
        return is_much and segments_bytes > self._least_bytes


RETRY_US: Final[Duration] = 100 * MILLISECOND
"""The pause after a failure; it doubles with each one in a row..."""
RETRY_US_MAX: Final[Duration] = 30 * SECOND
"""...up to this: a disk that was full is used again soon after somebody made room."""
ROOM_PACE_US: Final[Duration] = 50 * MILLISECOND
"""Between two parts of the next segment: 8 MiB take 3 s, and commits the greater part of that time."""
ROOM_RETRY_US: Final[Duration] = 10 * SECOND
"""Between two tries to make room ahead of need. There is no hurry: the segment in use has room."""
LOST: Final = "what stood in a segment that was taken away is not on the disk again yet"


class Journal:
    """A journal of the store *store*, 16 random bytes; or of *found*, going on where recovery says.

    skip: a random number below 65,536, different in every run. So many sequence numbers are not used: if the run before
    died while it began a segment and left sectors but no trace of its number, they have another salt than ours.
    Raises ValueError for a store of another length.
    """

    def __init__(
        self, store: bytes, options: JournalOptions | None = None, found: RecoveryReport | None = None, skip: int = 0
    ) -> None:
        if len(store) != STORE_BYTES:
            raise ValueError(f"a store is named by {STORE_BYTES} bytes, not {len(store)}")
        self.options = options = JournalOptions() if options is None else options
        self.store = store
        self.lsn = 0
        """The last record appended."""
        self.synced = 0
        """All records up to this one are on the disk."""
        self.is_refusing = False
        """Nothing more may be promised: the disk takes nothing, or the journal is full. `trouble` says why."""
        self.refusal_reason = ""
        self.warning = ""
        """What an operator should know although nothing is refused yet."""
        self.replay_from = 1
        """Recovery begins with this record."""
        self.is_closed = False
        """`close` was called and everything is on the disk."""
        self.failures = 0
        """Works that failed, over the whole run."""
        self.segments = Segments(options.segment_bytes, options.free_max, found, skip)
        self.space = SpaceBudget(options, self.segments)
        self._batch_records = options.batch_records
        self._batch_bytes = options.batch_bytes
        self._waiting: list[bytes] = []
        self.waiting_bytes = 0  # on the disk, without what frames them
        self.commit_by: Instant = NEVER  # when the waiting ones want to go to the disk
        self._in_flight: list[bytes] = []
        self._work: DiskWork | None = None
        self._segment: JournalSegment | None = None  # the one being written; None: the next batch begins one
        self._offset = 0
        self._begun: JournalSegment | None = None  # by the work under way
        self._begun_replay_from = 1
        self._frame_bytes = 0
        self._aside_at: Instant = 0  # when room may be made, or what is not needed be removed
        self._retry_at: Instant = 0
        self._pause: Duration = RETRY_US
        self._is_broken = False
        self._is_closing = False
        self._is_marking = False  # the work under way ends the run
        # -- snapshots
        self._is_stating = False
        self._state_first = 0
        self._state_last = 0
        self._lost_upto = self._promised_before = 0  # the last that may be lost; what was promised until then
        self._is_stated = False  # a snapshot is complete, and no header on the disk names it yet
        self._rotates = False
        self._snapshot_policy = SnapshotPolicy(options, found)
        self._taken_bytes = 0  # bytes of all records that were taken
        self._state_bytes_at = 0
        if found is not None:
            self._resume(found)

    def _resume(self, found: RecoveryReport) -> None:
        self.lsn = found.lsn
        self.synced = found.lsn - len(found.unproven)
        self.replay_from = found.replay_from
        self._waiting = list(found.unproven)
        self.waiting_bytes = sum(map(len, self._waiting)) + RECORD_BYTES * len(self._waiting)
        self.commit_by = 0 if self._waiting else NEVER

    # -- records --------------------------------------------------------------------------------------------------

    def append(self, record: bytes, now: Instant, by: Instant | None = None) -> int:
        """Take a record, to be on the disk soon after *by*; the default is `commit_us` from now. Returns its LSN.

        It waits in memory until then: whoever promises something because of it waits for `synced`. Raises ValueError
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
    def is_busy(self) -> bool:
        """Whether a work is under way."""
        return self._work is not None

    def due(self) -> Instant | None:
        """When to call `take`; None while a work is under way or there is nothing to do. It may have passed."""
        if self._work is not None or self.is_closed:
            return None
        when = min(self.commit_by, self._aside_at) if self._has_aside else self.commit_by
        if self._is_broken and when < self._retry_at:
            when = self._retry_at
        return None if when >= NEVER else when

    def next_work(self, now: Instant) -> DiskWork | None:
        """What to do on the disk next. None while a work is under way, after a failure, and if there is nothing.

        It does not ask whether anything is due: records that wait go to the disk now.
        """
        if self._work is not None or self.is_closed or (self._is_broken and now < self._retry_at):
            return None
        work = None
        if self._has_aside and (now >= self._aside_at or (self._is_broken and not self.segments.is_held_up)):
            work = self._aside()
        elif self._waiting or self._rotates or self._is_closing:
            work = self._batch()
        self._work = work
        return work

    def done(self, work: DiskWork, now: Instant) -> None:
        """*work* was carried out. Raises ValueError if it is not the one under way."""
        self._end(work)
        if work.purpose is WorkPurpose.BATCH:
            self._batch_done(work, now)
        else:
            if work.purpose is WorkPurpose.ROOM:
                self.segments.room_made()
                self.warning = ""
                self.space.refusal = ""
            else:
                self.segments.tidied()
            self._aside_at = now + ROOM_PACE_US
        self._judge()

    def failed(self, work: DiskWork, reason: str, now: Instant) -> None:
        """*work* could not be carried out, or only in part. Raises ValueError if it is not the one under way."""
        self._end(work)
        self.failures += 1
        if work.purpose is WorkPurpose.ROOM:
            self.segments.room_failed()
            self.space.refusal = reason
            self._judge()
            self.warning = f"no room can be made for the next segment: {reason}"
            self._aside_at = now + ROOM_RETRY_US
        elif work.purpose is WorkPurpose.TIDY:
            self.segments.tidy_failed()
            self.warning = f"files that are not needed cannot be removed: {reason}"
            self._aside_at = now + ROOM_RETRY_US
        else:
            self._batch_failed(reason, now)

    def close(self, now: Instant) -> None:
        """Append nothing more. What waits goes to the disk, then a mark that says so; then the journal `is_closed`."""
        self._is_closing = True
        self._go_on_closing(now)

    @property
    def durable_lsn(self) -> int:
        """What counts of `synced`: nothing more while something that was before it is lost and not stated again."""
        return self._promised_before if self.replay_from <= self._lost_upto else self.synced

    # -- snapshots ------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether it refuses although the disk takes what it gets: it holds too much, or the disk has little left."""
        return self.is_refusing and not self._is_broken and self.refusal_reason != LOST

    @property
    def wants_snapshot(self) -> bool:
        """Whether it is worth it to state everything again: half of what was written then need not be read again."""
        if self._is_stating or self._is_stated or self._is_broken or self._is_closing:
            return False
        if not self.space.has_room_for(0, self.waiting_bytes):
            return False
        return self._snapshot_policy.is_due(self.segments.bytes, self.is_full, self.space.is_last(self.waiting_bytes))

    def request_snapshot(self, is_lost: bool = False) -> None:
        """The owner has a reason to state everything again: it holds much less than it did, or (*is_lost*) what was
        synced is not on the disk any more. Then nothing more is promised until all is there again.
        """
        self._snapshot_policy.wants_at_once = True
        if is_lost:
            self._promised_before, self._lost_upto = self.durable_lsn, self.synced
            self._is_stated = self._is_stated and self._state_first > self._lost_upto

    def begin_snapshot(self, now: Instant) -> int:
        """The owner states everything again from here on, in as many records as it likes, between other records.

        Returns the LSN of the first. Replay will begin with it, so what is stated must not be older than that. Raises
        ValueError if one was begun already.
        """
        if self._is_stating:
            raise ValueError("a snapshot is being made")
        self._is_stating = True
        self._snapshot_policy.wants_at_once = False
        self._state_first = self.lsn + 1
        self._is_stated = False
        self._state_bytes_at = self._taken_bytes + self.waiting_bytes
        return self._state_first

    def end_snapshot(self, now: Instant) -> None:
        """Everything was stated. When it is on the disk, a new segment says that replay begins with it.

        Raises ValueError if none was begun.
        """
        if not self._is_stating:
            raise ValueError("no snapshot is being made")
        self._is_stating = False
        self._is_stated = self._state_first > max(self.replay_from, self._lost_upto)  # else no header is to say so
        self._state_last = self.lsn
        self._snapshot_policy.snapshot_bytes = self._taken_bytes + self.waiting_bytes - self._state_bytes_at
        self._rotate_if_synced(now)

    def _rotate_if_synced(self, now: Instant) -> None:
        if self._is_stated and self.synced >= self._state_last:
            self._rotates = True
            self.commit_by = min(self.commit_by, now)

    # -- batches --------------------------------------------------------------------------------------------------

    def _batch(self) -> DiskWork:
        first_lsn = self.lsn - len(self._waiting) + 1
        records = self._next_records()
        size = frame_bytes(len(records), sum(map(len, records)))
        self._is_marking = self._is_closing and not records and not self._rotates
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
            head = encode_header(header)
        salt = salt_of(self.store, segment.sequence)
        frame = encode_frame(records, first_lsn, segment.sequence, salt, CLEAN if self._is_marking else 0)
        data = head + frame if head else frame
        self._frame_bytes = len(data)
        self._in_flight = records
        operations.append(Write(segment.name, offset, data))
        operations.append(Sync(segment.name))
        return DiskWork(WorkPurpose.BATCH, (*operations, *after), first_lsn + len(records) - 1)

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
        return self._state_first if self._is_stated and self.synced >= self._state_last else self.replay_from

    def _batch_done(self, work: DiskWork, now: Instant) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self.segments.begun(begun)
            self._segment, self._offset = begun, 0
            self._rotates = False
            self.segments.retire(self._begun_replay_from)
            if self._begun_replay_from != self.replay_from:
                self.replay_from = self._begun_replay_from
                self._is_stated = self._is_stated and self._state_first != self.replay_from
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
            self._go_on_closing(now)

    def _judge(self) -> None:
        """Whether more may be promised."""
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

    def _go_on_closing(self, now: Instant) -> None:
        self.commit_by = now
        is_idle = not self._waiting and self._work is None and not self._rotates and not self._is_broken
        self.is_closed = is_idle and (self._is_marking or self._segment is None)

    # -- everything else on the disk --------------------------------------------------------------------------------

    @property
    def _has_aside(self) -> bool:
        segments = self.segments
        if not segments.is_tidy:
            return True
        return not self._is_broken and not self._is_closing and self.space.wants_another()

    def _aside(self) -> DiskWork:
        operations = self.segments.tidy()
        if operations:
            return DiskWork(WorkPurpose.TIDY, tuple(operations))
        return DiskWork(WorkPurpose.ROOM, tuple(self.segments.make_room()))
