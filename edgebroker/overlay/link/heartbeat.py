"""Heartbeats: detect a dead peer, and measure the round trip and the offset of its clock.

A connection whose other end disappeared without closing it looks idle (it is *half-open*). So a gateway pings when it
has received nothing for `interval`, and earlier when an acknowledgement is overdue. If nothing at all arrives within
`patience` after a ping, the ping is repeated once; then the connection is closed.

The two ends take turns: the one that was pinged last pings next. The one that pinged last waits a quarter of the
interval longer; if both pinged at the same time, the end that was dialled waits a half longer, so that it does not
happen again.

Ping and pong carry the time stamps of RFC 5905 section 8: t1 and t4 of the pinging end, t2 and t3 of the other. The
round trip is (t4 - t1) - (t3 - t2), the offset of the other clock ((t2 - t1) + (t3 - t4)) / 2, with an error of at most
half the round trip. Of the last eight samples that with the shortest round trip gives the offset (the clock filter of
section 10).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from edgebroker.instants import SECOND, Duration, Instant

PATIENCE_MIN: Final[Duration] = 2 * SECOND
"""A gateway on a flash card may be blocked by a commit for this long."""
PATIENCE_NEAR: Final[Duration] = SECOND
"""The same for links without a modem queue. A peer that is silent for three times as long has probably lost power; if
it was only busy, it reconnects within a second, and nothing is lost.
"""
PATIENCE_FIRST: Final[Duration] = 5 * SECOND
"""The patience before the first round trip: the backlog is sent at once, and a ping may wait behind it in a buffer."""
PATIENCE_MAX: Final[Duration] = 15 * SECOND
ROUND_TRIPS: Final = 4
"""Round trips within the patience: the queue of a modem can triple the round trip."""
ASSURANCE: Final[Duration] = SECOND
"""After receiving part of a long message for this long without sending anything, an end sends an empty acknowledgement.
The sender's ping may wait behind all that its socket has accepted, 64 KiB and more: at 1,000 bytes a second for a
minute. Without the acknowledgement the connection would be closed before the transfer ends, each time again.
"""
UNANSWERED: Final[Duration] = 2 * SECOND
"""An end that sends unacknowledged messages (QoS 0) and receives nothing for this long pings, because they are lost if
the peer has no power. Not on metered links: a provider counts 250 bytes for a ping and its pong.
"""
TRIES: Final = 2
"""Pings without an answer before the connection is closed: one may wait behind a large part."""
SAMPLES: Final = 8


class LinkHeartbeat:
    """The heartbeat state of one connection. *leads*: this end dialled."""

    __slots__ = (
        "_interval",
        "_is_turn",
        "_leads",
        "_number",
        "_owed_since",
        "_patience_min",
        "_pinged_at",
        "_received_at",
        "_samples",
        "_stamp",
        "_tries",
        "_unacked_since",
        "round_trip",
    )

    def __init__(self, interval: Duration, now: Instant, leads: bool, patience_min: Duration = PATIENCE_MIN) -> None:
        self._interval = interval
        self._patience_min = patience_min
        self._leads = leads
        self._is_turn = False
        self._received_at = now
        self._pinged_at: Instant | None = None
        self._owed_since: Instant | None = None
        self._unacked_since: Instant | None = None
        self._tries = 0
        self._number = 0
        self._stamp = 0
        self._samples: deque[tuple[Duration, Duration]] = deque(maxlen=SAMPLES)
        self.round_trip: Duration = 0
        """Smoothed as in RFC 6298, in microseconds; 0 until the first answer."""

    @property
    def offset(self) -> Duration | None:
        """The peer's clock minus this one, in microseconds. None until the first answer."""
        return min(self._samples)[1] if self._samples else None

    @property
    def round_trip_min(self) -> Duration:
        """The shortest of the last round trips; 0 until the first answer."""
        return min(self._samples)[0] if self._samples else 0

    @property
    def patience_min(self) -> Duration:
        """How long an answer may take where the shortest of the last round trips is the rule."""
        return min(PATIENCE_MAX, max(self._patience_min, ROUND_TRIPS * self.round_trip_min))

    @property
    def patience(self) -> Duration:
        """How long an answer may take."""
        if not self.round_trip:
            return PATIENCE_FIRST
        return min(PATIENCE_MAX, max(self._patience_min, ROUND_TRIPS * self.round_trip))

    def received(self, now: Instant) -> None:
        """Record that bytes arrived, so the peer is alive."""
        self._received_at = now
        self._tries = 0
        self._pinged_at = None
        self._unacked_since = None
        if self._owed_since is not None:
            self._owed_since = now

    def set_owed(self, is_owed: bool, now: Instant) -> None:
        """Record whether the peer owes an acknowledgement; if so, silence is noticed after `patience`, not after the
        interval.
        """
        if not is_owed:
            self._owed_since = None
        elif self._owed_since is None:
            self._owed_since = now

    def sent(self, is_owed: bool, is_bare: bool, now: Instant) -> None:
        """Record that something was sent: *is_owed* as in `set_owed`; *is_bare*: some of it is not acknowledged by the
        peer.
        """
        self.set_owed(is_owed, now)
        if is_bare and self._unacked_since is None and self._interval <= LAN_INTERVAL:
            self._unacked_since = now

    def due(self) -> Instant:
        """Return the next deadline."""
        if self._pinged_at is not None:
            return self._pinged_at + self.patience
        quarters = 4 if self._is_turn else 5 if self._leads else 6
        due = self._received_at + self._interval * quarters // 4
        if self._owed_since is not None:
            due = min(due, max(self._owed_since, self._received_at) + self.patience)
        if self._unacked_since is not None:
            due = min(due, self._unacked_since + max(UNANSWERED, self.patience))
        return due

    def is_dead(self, now: Instant) -> bool:
        """Return whether the last allowed ping was not answered in time."""
        return self._tries >= TRIES and self._pinged_at is not None and now >= self._pinged_at + self.patience

    def ping_received(self) -> None:
        """Record a ping of the peer: this end pings next."""
        self._is_turn = True

    def needs_ping(self, now: Instant) -> bool:
        """Return whether to ping now; the caller then calls `ping`."""
        return now >= self.due() and not self.is_dead(now)

    def ping(self, now: Instant, clock: int) -> int:
        """Record that a ping is sent; returns its number. *clock*: the difference between microseconds since 1970 and
        *now*.
        """
        self._pinged_at = now
        self._tries += 1
        self._number += 1
        self._is_turn = False
        self._stamp = now + clock
        return self._number

    def pong_received(self, number: int, t2: int, handling: Duration, t4: int) -> None:
        """Handle a pong received at *t4*: ping *number* arrived at *t2* of the peer's clock and was answered *handling*
        later.

        A pong for an older ping, or with impossible times, is ignored.
        """
        round_trip = t4 - self._stamp - handling
        if number != self._number or handling < 0 or round_trip < 0:
            return
        self._is_turn = False
        self._samples.append((round_trip, (t2 - self._stamp + t2 + handling - t4) // 2))
        self.round_trip = round_trip if not self.round_trip else (7 * self.round_trip + round_trip) // 8

    def clock_changed(self) -> None:
        """Discard the samples after a change of this gateway's clock."""
        self._samples.clear()


IDLE_INTERVAL: Final[Duration] = 60 * SECOND
"""One ping and its pong a minute are 140 KB a day with TLS; an idle link may cost 250 KB."""
LAN_INTERVAL: Final[Duration] = 20 * SECOND
"""An idle end sends 2.7 KB an hour: a ping and its pong are 30 bytes. A dead neighbour is noticed in 20 + 4 s, on a LAN
in 20 + 2 s. With an acknowledgement outstanding it is pinged after its patience and noticed in 6 s, on a LAN in 3 s;
while only other messages are sent, in 6 s and 4 s.
"""
