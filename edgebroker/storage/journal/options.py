"""What a user or a test may choose about a journal."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, Duration
from edgebroker.limits import (
    JOURNAL_BATCH_BYTES,
    JOURNAL_BATCH_RECORDS,
    JOURNAL_BYTES_MAX,
    JOURNAL_ENOUGH_BYTES,
    JOURNAL_ENOUGH_RECORDS,
    JOURNAL_SEGMENT_BYTES,
    JOURNAL_SEGMENT_BYTES_MAX,
)

from .format import FRAMES_AT, PAGE_BYTES


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Sizes and times of a journal. Raises ValueError for what cannot work."""

    segment_bytes: int = JOURNAL_SEGMENT_BYTES
    commit_us: Duration = 5 * MILLISECOND
    """How long a record may wait for others that go to the disk with it."""
    enough_bytes: int = JOURNAL_ENOUGH_BYTES
    """Where somebody waits for them, so many bytes of records do not wait any longer."""
    enough_records: int = JOURNAL_ENOUGH_RECORDS
    """The same in records: those of the handshakes of QoS 2 are small, and each is a step of a message."""
    batch_records: int = JOURNAL_BATCH_RECORDS
    """So many records do not wait any longer."""
    batch_bytes: int = JOURNAL_BATCH_BYTES
    """The same in bytes; and no commit writes more, unless a single record is larger."""
    bytes_max: int = JOURNAL_BYTES_MAX
    """Segments in use beyond this: the journal asks to be spared (`is_refusing`) until a snapshot has freed some."""
    snapshot_min_bytes: int = 4 * JOURNAL_SEGMENT_BYTES
    """A snapshot is not worth it before so much was written since the last one."""
    snapshot_factor: int = 2
    """Nor before this many times what the last one took: at 2, snapshots cost half as much as everything else."""
    free_max: int = 4
    """Segments kept for use again; more are removed."""

    def __post_init__(self) -> None:
        if self.segment_bytes % PAGE_BYTES or not PAGE_BYTES < self.segment_bytes <= JOURNAL_SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes is {self.segment_bytes}, not a multiple of {PAGE_BYTES} "
                f"from {2 * PAGE_BYTES} to {JOURNAL_SEGMENT_BYTES_MAX}"
            )
        if self.commit_us < 0 or self.batch_records < 1 or self.batch_bytes < 1 or self.snapshot_factor < 1:
            raise ValueError("times are 0 or more, batches and the snapshot factor 1 or more")
        if self.bytes_max < 4 * self.segment_bytes:
            raise ValueError(f"bytes_max is {self.bytes_max}; a journal needs 4 segments of {self.segment_bytes}")

    def pace(self, records: int, record_bytes: int) -> Duration:
        """How long after the last commit the next one begins, if so much waits, and somebody for it.

        What fills its sectors does not wait: more of it would spare the disk next to nothing.
        """
        is_enough = records >= self.enough_records or record_bytes >= self.enough_bytes
        return 0 if is_enough else self.commit_us

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame of several records."""
        return min(self.batch_bytes + 2 * PAGE_BYTES, self.segment_bytes - FRAMES_AT)
