"""The options of a journal."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, Duration
from edgebroker.limits import (
    JOURNAL_BATCH_BYTES,
    JOURNAL_BATCH_RECORDS,
    JOURNAL_BYTES_MAX,
    JOURNAL_ENOUGH_BYTES,
    JOURNAL_ENOUGH_RECORDS,
    JOURNAL_PAGE_BYTES,
    JOURNAL_PAGE_MESSAGES,
    JOURNAL_PAGE_MESSAGES_MAX,
    JOURNAL_SEGMENT_BYTES,
    JOURNAL_SEGMENT_BYTES_MAX,
)

from .format import FRAMES_AT, PAGE_BYTES


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Sizes and times of a journal. Raises ValueError for values that cannot work."""

    segment_bytes: int = JOURNAL_SEGMENT_BYTES
    commit_us: Duration = 5 * MILLISECOND
    """How long a record may wait for others to share a commit."""
    enough_bytes: int = JOURNAL_ENOUGH_BYTES
    """Bytes of records with waiting acknowledgements that are committed without delay."""
    enough_records: int = JOURNAL_ENOUGH_RECORDS
    """The same in records: those of QoS 2 handshakes are small, and each lets a message proceed."""
    batch_records: int = JOURNAL_BATCH_RECORDS
    """Records that are committed without delay, acknowledged or not."""
    batch_bytes: int = JOURNAL_BATCH_BYTES
    """The same in bytes; it is also the largest commit, unless a single record is larger."""
    bytes_max: int = JOURNAL_BYTES_MAX
    """Bytes of segments in use beyond which the journal refuses records (`is_refusing`) until a snapshot has freed
    some.
    """
    snapshot_min_bytes: int = 4 * JOURNAL_SEGMENT_BYTES
    """Bytes written since the last snapshot before the next one is worth its cost."""
    snapshot_factor: int = 2
    """A snapshot also waits for this multiple of the last one's size: with 2, snapshots cost half as much as everything
    else.
    """
    free_max: int = 4
    """Free segments that are kept for reuse; more are removed."""
    page_messages: int = JOURNAL_PAGE_MESSAGES
    """Messages of a queue that are moved to a page file, or back into memory, together."""
    page_bytes: int = JOURNAL_PAGE_BYTES
    """The same in bytes of their payloads, topics and properties; a page ends with the message that reaches it."""

    def __post_init__(self) -> None:
        if self.segment_bytes % PAGE_BYTES or not PAGE_BYTES < self.segment_bytes <= JOURNAL_SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes is {self.segment_bytes}, not a multiple of {PAGE_BYTES} "
                f"from {2 * PAGE_BYTES} to {JOURNAL_SEGMENT_BYTES_MAX}"
            )
        if self.commit_us < 0 or self.batch_records < 1 or self.batch_bytes < 1 or self.snapshot_factor < 1:
            raise ValueError("times are 0 or more, batches and the snapshot factor 1 or more")
        if not 1 <= self.page_messages <= JOURNAL_PAGE_MESSAGES_MAX or self.page_bytes < 1:
            raise ValueError(f"a page has 1 to {JOURNAL_PAGE_MESSAGES_MAX} messages and at least one byte")
        if self.bytes_max < 4 * self.segment_bytes:
            raise ValueError(f"bytes_max is {self.bytes_max}; a journal needs 4 segments of {self.segment_bytes}")

    def pace(self, records: int, record_bytes: int) -> Duration:
        """Return how long after the last commit the next one begins, if this many records with waiting acknowledgements
        wait.

        Records that fill their sectors do not wait: more of them would save the disk almost nothing.
        """
        is_enough = records >= self.enough_records or record_bytes >= self.enough_bytes
        return 0 if is_enough else self.commit_us

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame of several records."""
        return min(self.batch_bytes + 2 * PAGE_BYTES, self.segment_bytes - FRAMES_AT)
