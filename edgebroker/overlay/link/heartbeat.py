"""Heartbeats: is the peer there, how far away is it, and what does its clock say?

A connection whose other end is gone without a word looks like an idle one (it is *half-open*), until somebody asks. So
a gateway pings when it has heard nothing for `interval`, and earlier when an answer is overdue. A ping that is not
answered within `patience` by anything at all is repeated once; then the connection is given up.

Both ends take turns: who was asked last asks next. Who asked last waits a quarter longer; and if both did at once, the
one who was dialled waits a half longer, so that it does not happen again.

Ping and pong tell the stamps of RFC 5905 section 8: t1 and t4 of who asked, t2 and t3 of who answered. The
round trip is (t4 - t1) - (t3 - t2), the offset of the other clock ((t2 - t1) + (t3 - t4)) / 2, wrong by at most half
the round trip. Of the last eight samples that of the shortest round trip tells the offset (the clock filter of section
10).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from edgebroker.instants import SECOND, Duration, Instant

PATIENCE_MIN: Final[Duration] = 2 * SECOND
"""A gateway on a flash card may be busy with a commit that long."""
PATIENCE_NEAR: Final[Duration] = SECOND
"""The same where nothing waits in a modem: three times that without a byte is what a gateway without power looks like.
If it was busy for so long it is back within a second, and nothing was lost.
"""
PATIENCE_FIRST: Final[Duration] = 5 * SECOND
"""While no round trip is known: what waited is sent at once, and a ping may wait behind it in somebody's buffer."""
PATIENCE_MAX: Final[Duration] = 15 * SECOND
ROUND_TRIPS: Final = 4
"""So many round trips fit into the patience: a queue in a modem makes one three times as long."""
ASSURANCE: Final[Duration] = SECOND
"""Who receives something that takes long, and has said nothing for so long, says that it is there. The sender's ping
may wait behind all that its socket has taken, 64 KiB and more: at 1,000 bytes a second that is a minute, and the
connection would be given up before any acknowledgement could come, each time anew.
"""
UNANSWERED: Final[Duration] = 2 * SECOND
"""Who says what nobody acknowledges (QoS 0), and hears nothing for so long, asks whether it comes: it is lost if the
peer has no power. Not where bytes cost money: a ping and its pong are 250 bytes as a provider counts.
"""
TRIES: Final = 2
"""Pings without an answer before the connection is given up: one may wait behind a large piece."""
SAMPLES: Final = 8


class LinkHeartbeat:
    """What one connection knows by asking. *leads*: this end dialled."""

    __slots__ = (
        "_asked_at",
        "_heard_at",
        "_interval",
        "_is_turn",
        "_leads",
        "_number",
        "_owed_since",
        "_patience_min",
        "_said_at",
        "_samples",
        "_stamp",
        "_tries",
        "round_trip",
    )

    def __init__(self, interval: Duration, now: Instant, leads: bool, patience_min: Duration = PATIENCE_MIN) -> None:
        self._interval = interval
        self._patience_min = patience_min
        self._leads = leads
        self._is_turn = False
        self._heard_at = now
        self._asked_at: Instant | None = None
        self._owed_since: Instant | None = None
        self._said_at: Instant | None = None
        self._tries = 0
        self._number = 0
        self._stamp = 0
        self._samples: deque[tuple[Duration, Duration]] = deque(maxlen=SAMPLES)
        self.round_trip: Duration = 0
        """Smoothed as RFC 6298 does, in microseconds; 0 until the first answer."""

    @property
    def offset(self) -> Duration | None:
        """What to add to our time for the peer's, in microseconds. None until the first answer."""
        return min(self._samples)[1] if self._samples else None

    @property
    def patience(self) -> Duration:
        """How long an answer may take."""
        if not self.round_trip:
            return PATIENCE_FIRST
        return min(PATIENCE_MAX, max(self._patience_min, ROUND_TRIPS * self.round_trip))

    def heard(self, now: Instant) -> None:
        """Bytes came: the peer is there."""
        self._heard_at = now
        self._tries = 0
        self._asked_at = None
        self._said_at = None
        if self._owed_since is not None:
            self._owed_since = now

    def owed(self, is_owed: bool, now: Instant) -> None:
        """Whether the peer owes an acknowledgement: then silence is noticed soon, not with the next heartbeat."""
        if not is_owed:
            self._owed_since = None
        elif self._owed_since is None:
            self._owed_since = now

    def sent(self, is_owed: bool, is_bare: bool, now: Instant) -> None:
        """Something was sent: as `owed`; *is_bare*: there was something that the peer does not acknowledge."""
        self.owed(is_owed, now)
        if is_bare and self._said_at is None and self._interval <= LAN_INTERVAL:
            self._said_at = now

    def due(self) -> Instant:
        """When to look again."""
        if self._asked_at is not None:
            return self._asked_at + self.patience
        quarters = 4 if self._is_turn else 5 if self._leads else 6
        due = self._heard_at + self._interval * quarters // 4
        if self._owed_since is not None:
            due = min(due, max(self._owed_since, self._heard_at) + self.patience)
        if self._said_at is not None:
            due = min(due, self._said_at + max(UNANSWERED, self.patience))
        return due

    def is_dead(self, now: Instant) -> bool:
        """Whether the peer left the last ping unanswered for too long."""
        return self._tries >= TRIES and self._asked_at is not None and now >= self._asked_at + self.patience

    def was_asked(self) -> None:
        """The peer pinged: this end does next."""
        self._is_turn = True

    def asks(self, now: Instant) -> bool:
        """Whether to ping now; the caller then does."""
        return now >= self.due() and not self.is_dead(now)

    def ping(self, now: Instant, clock: int) -> int:
        """A ping is sent; returns its number. *clock*: what to add to *now* for our time."""
        self._asked_at = now
        self._tries += 1
        self._number += 1
        self._is_turn = False
        self._stamp = now + clock
        return self._number

    def answered(self, number: int, t2: int, took: Duration, t4: int) -> None:
        """A pong came at *t4* of our time; it says that ping *number* came at *t2* of the peer's and took it so long.

        One that answers an older ping or makes no sense says nothing.
        """
        round_trip = t4 - self._stamp - took
        if number != self._number or took < 0 or round_trip < 0:
            return
        self._is_turn = False
        self._samples.append((round_trip, (t2 - self._stamp + t2 + took - t4) // 2))
        self.round_trip = round_trip if not self.round_trip else (7 * self.round_trip + round_trip) // 8

    def clock_was_set(self) -> None:
        """Our own clock jumped: what was measured of the peer's is worth nothing."""
        self._samples.clear()


IDLE_INTERVAL: Final[Duration] = 60 * SECOND
"""One ping and its pong a minute are 140 KB a day with TLS, 250 KB is what an idle link may cost."""
LAN_INTERVAL: Final[Duration] = 10 * SECOND
"""Where bytes cost nothing, a dead neighbour is noticed in 10 + 4 s, on a LAN in 10 + 2 s. While something is sent that
it has to acknowledge it is asked after its patience already, and found dead in 6 s, and 3 s; while something else is
sent, in 6 s, and 4 s.
"""
