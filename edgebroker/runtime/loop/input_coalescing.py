"""Coalesces input: while many small packets arrive, the process sleeps briefly before it polls again.

To be woken for every message of QoS 0 costs more than the message, and costs its sender as well. Network cards
moderate their interrupts for the same reason. A nap delays what arrives meanwhile, so it is taken only if packets
arrive faster than naps, in small pieces, no client waits for an answer, and naps do not lower the rate of packets.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import SECOND, Instant

TURNS: Final = 16
"""Turns that are judged together."""
TRIALS: Final = 2
"""As many judgements in a row must be worse than the one before any nap: one alone may be another program's doing."""
NAPPED: Final = 32
"""After as many judgements with naps it is seen again what comes without."""
PIECES_MAX: Final = 16
"""Packets a turn, on an average: whoever sends more at a time has gathered them already."""
REST: Final = SECOND // 4
"""How long no nap is tried after naps did harm: 32 of 150 us in that time are 2 % of it."""


class InputCoalescer:
    """One process's naps. Instants and durations are in microseconds."""

    __slots__ = (
        "_judged",
        "_may_nap_from",
        "_nap_us",
        "_packets",
        "_since",
        "_turns",
        "_unnapped_packets",
        "_unnapped_us",
        "_worse",
        "nap_us",
    )

    def __init__(self, nap_us: int) -> None:
        """*nap_us*: how long a nap is, 0 if there are none."""
        self._nap_us = nap_us
        self.nap_us = 0
        """To be slept before the next wait, or 0."""
        self._turns = 0  # negative: these do not count
        self._packets = 0
        self._since: Instant = 0
        self._judged = 0
        self._worse = 0
        self._may_nap_from: Instant = 0
        self._unnapped_packets = 0
        self._unnapped_us = 0

    def observe_turn(self, packets: int, is_hurried: bool, now: Instant) -> None:
        """A turn took *packets* packets, at least one; *is_hurried* if somebody may wait for an answer to one."""
        if is_hurried:
            self.nap_us = 0
            self._begin(0, now)
            return
        self._turns += 1
        if self._turns > 0:
            self._packets += packets
            if self._turns == TURNS:
                self._judge(self._packets, now - self._since, now)
        elif self._turns == 0:
            self._since = now

    def _begin(self, turns: int, now: Instant) -> None:
        self._turns = turns
        self._packets = 0
        self._since = now

    def _judge(self, packets: int, elapsed_us: int, now: Instant) -> None:
        self._begin(0, now)
        if not self.nap_us:
            is_much = 2 * packets * self._nap_us >= 3 * elapsed_us  # 1.5 in a nap
            if is_much and packets <= PIECES_MAX * TURNS and now >= self._may_nap_from:
                self.nap_us = self._nap_us
                self._judged = 0
                self._worse = 0
                self._unnapped_packets = packets
                self._unnapped_us = elapsed_us
            return
        self._judged += 1
        if 5 * packets * self._unnapped_us < 4 * self._unnapped_packets * elapsed_us:
            self._worse += 1
        if 4 * packets < 5 * TURNS or self._judged == self._worse == TRIALS:
            self._may_nap_from = now + REST
        elif self._judged < NAPPED:
            return
        self.nap_us = 0
        self._begin(-TURNS, now)  # what the last nap gathered is not what comes without any
