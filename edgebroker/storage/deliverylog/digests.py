"""Audit digests: count, sum and xor of the message numbers of every flow's fate, a minute at a time.

With one number missing, the difference of two sums *is* that number; with one number twice, likewise. So loss and
duplicates are seen, and single ones named, although rows are sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from edgebroker.records import SUM_MODULUS

Flow: TypeAlias = tuple[str, str, int, int, int]
"""publisher, subscriber, QoS, fate, cause"""


def sum_of_run(first: int, count: int) -> int:
    """The sum of first, first + 1, ...: *count* numbers."""
    return count * (2 * first + count - 1) // 2


def xor_of_run(first: int, count: int) -> int:
    """The exclusive or of first, first + 1, ...: *count* numbers."""
    return xor_below(first + count) ^ xor_below(first)


def xor_below(end: int) -> int:
    """0 ^ 1 ^ ... ^ (end - 1): every aligned group of four cancels out, so at most three numbers are left."""
    return (0, end - 1, 1, end)[end & 3]


class Digests:
    """The digests of one minute, by flow."""

    __slots__ = ("texts_chars", "totals")

    def __init__(self) -> None:
        self.totals: dict[Flow, list[int]] = {}
        """[count, sum, xor]; the sum is reduced when it is written."""
        self.texts_chars = 0

    def add(self, flow: Flow, first: int, count: int) -> None:
        """Count the run of *count* numbers from *first*, in constant time."""
        total = self.totals.get(flow)
        if total is None:
            total = self.totals[flow] = [0, 0, 0]
            self.texts_chars += len(flow[0]) + len(flow[1])
        total[0] += count
        if count == 1:
            total[1] += first
            total[2] ^= first
        else:
            total[1] += sum_of_run(first, count)
            total[2] ^= xor_of_run(first, count)

    def take(self, minute: int) -> Iterator[tuple[object, ...]]:
        """The rows of `records.DIGEST`, made one by one as they are asked for; nothing is left behind."""
        totals, self.totals = self.totals, {}
        self.texts_chars = 0
        return ((minute, *flow, count, total % SUM_MODULUS, xor) for flow, (count, total, xor) in totals.items())
