"""The allocator of the numbers that a gateway gives to its publishers, its advertisements and its queries."""

from __future__ import annotations

from typing import Final

from edgebroker.header import HOSTED_MAX, hosted

SEQUENCES: Final = 1 << 20
"""How far apart the sequences of two runs of a gateway begin, if a second lies between them: no publisher says as much
in one."""
RUNS: Final = 1 << 11
"""So many runs begin differently: half of the sequences, 32 bits, are left for whoever goes on for years."""


class IdAllocator:
    """Those of one gateway. Others remember what they were told of a number, so none comes again for long."""

    def __init__(self, gateway: int, given: int = 0, boot: int = 0) -> None:
        """given: how many were given before, in earlier runs too.  boot: the run, by the second of its start."""
        self._gateway = gateway
        self.allocated = given
        self.before_first = boot % RUNS * SEQUENCES
        """Publishers' sequences begin behind it. A gateway that got an older copy of its disk back gives numbers that
        it gave before; by this its events differ all the same from those that others remember.
        """

    def next(self) -> int:
        """A number that was not used for HOSTED_MAX others."""
        number = self.allocated % HOSTED_MAX + 1
        self.allocated += 1
        return hosted(self._gateway, number)
