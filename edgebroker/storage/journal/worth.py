"""Whether it is worth it to state everything again: what lies before a snapshot is not needed any more."""

from __future__ import annotations

from typing import Final

from edgebroker.instants import SECOND, Instant
from edgebroker.limits import KIB

from .found import Found
from .options import JournalOptions

SPARSE_SEGMENTS: Final = 12
"""So many segments in use are a reason for a snapshot, however little was written: 96 MiB, or 12 starts..."""
SPARSE_SEGMENTS_MIN: Final = 4
"""...or fewer, where the journal may not have twice as many; but never less than these."""
FULL_BYTES_PER_S: Final = 64 * KIB
"""A full journal is stated again however little was written, for nobody knows what was settled meanwhile. In vain as
often as not, so at this pace: 5.7 GB a day, of which a card of 32 GB takes seven years."""


class Worth:
    """What was written since the last snapshot, and what that took."""

    def __init__(self, options: JournalOptions, found: Found | None = None) -> None:
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

    def wrote(self, size: int, now: Instant) -> None:
        """*size* bytes more are on the disk."""
        self._written += size
        self._now = now

    def stated(self, segments_bytes: int, now: Instant) -> None:
        """The last snapshot is on the disk, and the segments that are in use now take *segments_bytes*."""
        self._stated_at = self._written
        self._least_bytes = segments_bytes
        self._full_again_at = now + SECOND * self.snapshot_bytes // FULL_BYTES_PER_S

    def is_reached(self, segments_bytes: int, is_full: bool, is_last: bool = False) -> bool:
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
