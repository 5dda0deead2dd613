"""Coalesces input: while many small packets arrive, the process sleeps briefly before each poll.

To wake the process for every message of QoS 0 costs more processor time than the message itself, also for the sender.
Network cards moderate their interrupts for the same reason. The sleep delays the messages that arrive meanwhile, so the
process sleeps only while packets arrive at a higher rate than one per sleep, few at a time, no client waits for an
answer, and the sleep does not lower the rate of packets.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import SECOND, Instant

TURNS: Final = 16
"""Turns in one sample; a turn is one poll with the work that it caused."""
SLOWER_MAX: Final = 2
"""The delay ends after so many samples in a row with a lower rate than without it: a single one may be due to another
program on the core."""
SAMPLES_MAX: Final = 32
"""After so many samples with the delay, the rate without it is measured again."""
PACKETS_PER_TURN_MAX: Final = 16
"""With more packets per turn on average the sender batches by itself, and a delay saves nothing."""
BACKOFF: Final = SECOND // 4
"""No delay is tried for so long after it lowered the rate: 32 delays of 150 us in that time are 2 % of it."""


class InputCoalescer:
    """Decides whether one process sleeps before its next poll. Instants and durations are in microseconds."""

    __slots__ = (
        "_base_packets",
        "_base_us",
        "_blocked_until",
        "_delay_us",
        "_packets",
        "_samples",
        "_since",
        "_slower",
        "_turns",
        "delay_us",
    )

    def __init__(self, delay_us: int) -> None:
        """*delay_us*: the length of a sleep; 0: the process never sleeps before a poll."""
        self._delay_us = delay_us
        self.delay_us = 0
        """Sleep so long before the next poll; 0: poll at once."""
        self._turns = 0  # in the current sample; negative: so many turns are skipped first
        self._packets = 0
        self._since: Instant = 0
        self._samples = 0
        self._slower = 0
        self._blocked_until: Instant = 0
        self._base_packets = 0  # the last sample without the delay: packets in `_base_us`
        self._base_us = 0

    def observe_turn(self, packets: int, may_await_reply: bool, now: Instant) -> None:
        """Record one turn with *packets* packets, at least one. *may_await_reply*: a client may wait for an answer to
        one of them, which ends the delay.
        """
        if may_await_reply:
            self.delay_us = 0
            self._begin(0, now)
            return
        self._turns += 1
        if self._turns > 0:
            self._packets += packets
            if self._turns == TURNS:
                self._evaluate(self._packets, now - self._since, now)
        elif self._turns == 0:
            self._since = now

    def _begin(self, turns: int, now: Instant) -> None:
        self._turns = turns
        self._packets = 0
        self._since = now

    def _evaluate(self, packets: int, elapsed_us: int, now: Instant) -> None:
        self._begin(0, now)
        if not self.delay_us:
            is_dense = 2 * packets * self._delay_us >= 3 * elapsed_us  # 1.5 packets per delay
            if is_dense and packets <= PACKETS_PER_TURN_MAX * TURNS and now >= self._blocked_until:
                self.delay_us = self._delay_us
                self._samples = 0
                self._slower = 0
                self._base_packets = packets
                self._base_us = elapsed_us
            return
        self._samples += 1
        if 5 * packets * self._base_us < 4 * self._base_packets * elapsed_us:
            self._slower += 1
        if 4 * packets < 5 * TURNS or self._samples == self._slower == SLOWER_MAX:
            self._blocked_until = now + BACKOFF
        elif self._samples < SAMPLES_MAX:
            return
        self.delay_us = 0
        self._begin(-TURNS, now)  # packets that accumulated in the last delay are not part of the rate without it
