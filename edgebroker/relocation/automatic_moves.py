"""The moves that a gateway makes itself: which of the proposed publishers it moves, and when.

Each gateway moves its own publishers, so two never move the same one. The bounds are those of this module: a publisher
moves after CONFIRMATIONS sessions in a row that propose the same gateway, and only if its session moves with it: by the
session the next gateway learns that it has just come (`migration.MoveLimiter`). A gateway forgets at a restart who has
just come, so it moves nobody for PAUSE after its start.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from edgebroker.instants import HOUR, MINUTE, Duration, Instant
from edgebroker.relocation.migration import PAUSE

CONFIRMATIONS: Final = 2
"""Trace sessions in a row that must propose the same gateway. The delays of one are a sample of 100 events."""
AGAIN_AFTER: Final[Duration] = 6 * HOUR
"""A gateway moves a publisher once in that time at most: one that is back was sent back by the operator, or came back
by itself, and would be sent to and fro.
"""
MOVED_MAX: Final = 20_000
"""Moved publishers that are remembered, 2 MiB. With so many nobody moves until some of them are forgotten."""


class AutomaticStay(Enum):
    """Why a gateway does not move a publisher itself, although a move is proposed. The value completes a sentence."""

    UNCONFIRMED = "its next trace session has to propose the same"
    NO_WAY = "nobody can send it there"
    NO_SESSION = "its session would not move with it"
    MOVED = "this gateway has moved it in the last six hours"


class AutomaticMoves:
    """The moves that one gateway makes itself, and when each publisher was moved last."""

    def __init__(self, now: Instant) -> None:
        """*now*: the start of the gateway."""
        self.due: Instant = now + PAUSE
        """When the next move may be made."""
        self.made = 0
        """Moves since the start."""
        self._moved: dict[str, Instant] = {}  # the oldest first

    def remember(self, client: str, moved_at: Instant) -> None:
        """Remember that *client* was moved, by whomever; calls come in the order of *moved_at*, which may be before 0
        for moves of an earlier run.
        """
        self._moved.pop(client, None)
        self._moved[client] = moved_at

    def stay(self, client: str, confirmations: int, has_way: bool, has_session: bool, now: Instant) -> str:
        """Return why the proposed move of *client* is not made, as an `AutomaticStay`, or an empty text.

        confirmations: the sessions in a row that proposed it. has_way: whether the client can be sent. has_session:
        whether its session moves with it.
        """
        moved_at = self._moved.get(client)
        if not has_way:
            return AutomaticStay.NO_WAY.value
        if not has_session:
            return AutomaticStay.NO_SESSION.value
        if moved_at is not None and now < moved_at + AGAIN_AFTER:
            return AutomaticStay.MOVED.value
        if confirmations < CONFIRMATIONS:
            return AutomaticStay.UNCONFIRMED.value
        return ""

    def is_due(self, now: Instant) -> bool:
        """Return whether a move may be made at *now*."""
        return now >= self.due and self._has_room(now)

    def note(self, client: str, per_minute: int, now: Instant) -> None:
        """Remember that this gateway moves *client*; the next one may follow after its part of a minute."""
        self.remember(client, now)
        self.made += 1
        self.due = now + MINUTE // per_minute

    def _has_room(self, now: Instant) -> bool:
        while self._moved and self._moved[oldest := next(iter(self._moved))] + AGAIN_AFTER <= now:
            del self._moved[oldest]
        return len(self._moved) < MOVED_MAX
