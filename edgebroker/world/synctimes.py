"""How long syncs took: a small histogram that metrics can read."""

from __future__ import annotations

from collections.abc import Iterator

from edgebroker.instants import Duration

STEPS = 4  # buckets per doubling: a quantile is right to 19 %
OCTAVES = 30  # up to 18 minutes


class SyncTimes:
    """Counts of durations in buckets that grow by 2^(1/4). Takes 1 KiB however many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.total_us: Duration = 0
        self.longest_us: Duration = 0
        self._buckets = [0] * (STEPS * OCTAVES)

    def add(self, took_us: Duration) -> None:
        """One more sync."""
        self.count += 1
        self.total_us += took_us
        self.longest_us = max(self.longest_us, took_us)
        self._buckets[_bucket_of(took_us)] += 1

    def quantile(self, share: float) -> Duration:
        """The duration that *share* of all syncs did not exceed, rounded up to the end of its bucket; 0 if none was."""
        rank, seen = share * self.count, 0
        for number, count in enumerate(self._buckets):
            seen += count
            if count and seen >= rank:
                return min(_end_of(number), self.longest_us)
        return self.longest_us

    def buckets(self) -> Iterator[tuple[Duration, int]]:
        """(upper bound in microseconds, syncs up to it), one for each doubling, as OpenMetrics counts."""
        seen = 0
        for number, count in enumerate(self._buckets):
            seen += count
            if number % STEPS == STEPS - 1:
                yield _end_of(number), seen


def _bucket_of(took_us: Duration) -> int:
    octave = max(took_us, 1).bit_length() - 1
    step = (max(took_us, 1) - (1 << octave)) * STEPS >> octave
    return min(octave * STEPS + step, STEPS * OCTAVES - 1)


def _end_of(bucket: int) -> Duration:
    octave, step = divmod(bucket, STEPS)
    return (1 << octave) + ((step + 1 << octave) + STEPS - 1) // STEPS
