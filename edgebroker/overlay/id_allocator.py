"""The allocator of the numbers that a gateway gives to its publishers, its advertisements and its queries."""

from __future__ import annotations

from typing import Final

from edgebroker.header import HOSTED_MAX, EventHeader, host_of, hosted

SEQUENCES: Final = 1 << 20
"""The distance between the first sequences of two runs of a gateway that start in different seconds: more than any
publisher sends in a second.
"""
RUNS: Final = 1 << 11
"""The number of different first sequences. They take half of the 32-bit range; the rest is left for publishers that run
for years.
"""


class IdAllocator:
    """The allocator of one gateway. Other gateways remember state by number, so no number is reused for a long time."""

    def __init__(self, gateway: int, allocated: int = 0, boot: int = 0) -> None:
        """allocated: how many numbers were allocated before, by earlier runs too. boot: the run, by the second of its
        start.
        """
        self._gateway = gateway
        self.allocated = allocated
        self.before_first = boot % RUNS * SEQUENCES
        """Publishers' sequences begin after it. A gateway restored from an older copy of its disk allocates the same
        numbers again; the different sequences keep its new events apart from those that others remember.
        """

    def next(self) -> int:
        """Return a number that was not among the last HOSTED_MAX ones."""
        number = self.allocated % HOSTED_MAX + 1
        self.allocated += 1
        return hosted(self._gateway, number)


def is_newer(header: EventHeader, other: EventHeader) -> bool:
    """Return whether the event with *header* was published after the one with *other*.

    As a rule their ages decide. But a gateway without a clock that runs while it is off may start a run with an earlier
    time than its last events had, if those were not on its disk yet. So of two events of one gateway, the one of the
    later run is newer: it has the later number of a publisher, and a first sequence that is behind the other one's.
    """
    if header.publisher == other.publisher or host_of(header.publisher) != host_of(other.publisher):
        return header.age > other.age
    runs = (header.sequence // SEQUENCES - other.sequence // SEQUENCES) % RUNS
    is_later_run = runs < RUNS // 2
    is_later_number = (header.publisher - other.publisher) % HOSTED_MAX < HOSTED_MAX // 2
    # They may disagree within one run, after a million events, or if there are 17 minutes between the runs: then the
    # clock was kept, or has been set.
    return is_later_number if runs and is_later_run == is_later_number else header.age > other.age
