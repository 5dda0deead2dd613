"""Durations by powers of two, for the eye and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

NS_PER_US = 1_000
BAR = 24
"""Characters of the longest bar."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many waited, and how many held the thread, for `from_us` or longer and less than `to_us`."""

    from_us: int
    to_us: int
    waits: int
    holds: int


def buckets(waits_ns: Sequence[int], holds_ns: Sequence[int]) -> list[Bucket]:
    """Count both into under 1 us, 1 to 2, 2 to 4, ... us, up to the longest."""
    counts = [tally(waits_ns), tally(holds_ns)]
    size = max(map(len, counts))
    waits, holds = (count + [0] * (size - len(count)) for count in counts)
    return [Bucket(2**power >> 1, 2**power, waits[power], holds[power]) for power in range(size)]


def tally(spans_ns: Sequence[int]) -> list[int]:
    """Position n counts the spans whose whole microseconds have n binary digits."""
    counts = [0]
    for span in spans_ns:
        power = (span // NS_PER_US).bit_length()
        while len(counts) <= power:
            counts.append(0)
        counts[power] += 1
    return counts


def drawn(found: Sequence[Bucket]) -> Iterator[str]:
    """The lines of a picture. Bars grow with the logarithm: the one event in a million is what we look for."""
    most = max([2, *(bucket.waits for bucket in found), *(bucket.holds for bucket in found)])
    yield f"{'':>25}  {'events waited':<{BAR + 12}}  changes held the thread"
    for bucket in found:
        waits, holds = (f"{count:>10,}  {bar(count, most):<{BAR}}" for count in (bucket.waits, bucket.holds))
        yield f"{bucket.from_us:>9,} .. {bucket.to_us:>9,} us  {waits}  {holds}".rstrip()


def bar(count: int, most: int) -> str:
    """A bar for *count*, as long as its logarithm beside that of *most*."""
    return "#" * -int(-BAR * log(1 + count) / log(1 + most) // 1)
