"""Counts all sessions and ranks some of them, in slices between the turns of the clients.

To visit 10,000 sessions takes 4 ms, on a Raspberry Pi several times as long. No client may wait so long, so the loop
has its turn after every `SESSIONS_PER_TURN` sessions.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.session.session import Session
from edgebroker.dataclasses import dataclass

SESSIONS_PER_TURN: Final = 500
"""Sessions looked at in one turn: 0.15 ms."""
ROWS_MAX: Final = 1_000
"""Sessions in one answer, at most: about 300 KiB of JSON."""

RANKS: Final[Mapping[str, Callable[[Session], int]]] = {
    "queue": lambda session: len(session.outbox),
    "bytes": lambda session: session.outbox.held_bytes,
    "inflight": lambda session: len(session.inflight),
    "unsent": lambda session: session.connection.out_bytes if session.connection is not None else 0,
    "subscriptions": lambda session: session.subscribed,
}
"""What sessions may be ranked by, the greatest first."""


@dataclass(slots=True)
class SessionCensus:
    """All sessions at about one moment; `ranked` are those that stand out, the foremost first."""

    sessions: int = 0
    connected: int = 0
    queue_messages: int = 0
    """QoS 1 and 2 messages that wait for a client, or for a place in its window."""
    queue_bytes: int = 0
    queue_longest: int = 0
    inflight_messages: int = 0
    """Sent, and not acknowledged yet."""
    inflight_bytes: int = 0
    unsent_bytes: int = 0
    """In out-buffers: the next flush writes them, or they wait for a client that does not read."""
    paused: int = 0
    """Connections that take nothing at present, because the peer reads too slowly."""
    ranked: list[Session] = field(default_factory=list)


async def take_census(frontend: Frontend, rank: str = "queue", count: int = 0) -> SessionCensus:
    """Look at every session, and rank the foremost *count* of them by *rank*, a key of RANKS.

    A session to which the rank gives 0 does not stand out, and is not ranked.
    """
    census = SessionCensus()
    rank_of = RANKS[rank]
    foremost: list[tuple[int, int, Session]] = []
    sessions = list(frontend.connect_handler.sessions.values())
    census.sessions = len(sessions)
    for start in range(0, len(sessions), SESSIONS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        for number, session in enumerate(sessions[start : start + SESSIONS_PER_TURN], start):
            _add(census, session)
            value = rank_of(session) if count else 0
            if value:
                # Of two equal ones the older session comes first; `number` differs, so sessions are never compared.
                if len(foremost) < count:
                    heapq.heappush(foremost, (value, -number, session))
                elif value > foremost[0][0]:
                    heapq.heapreplace(foremost, (value, -number, session))
    census.ranked = [session for _, _, session in sorted(foremost, key=lambda one: one[:2], reverse=True)]
    return census


def _add(census: SessionCensus, session: Session) -> None:
    waiting = len(session.outbox)
    if waiting:
        census.queue_messages += waiting
        census.queue_bytes += session.outbox.held_bytes
        census.queue_longest = max(census.queue_longest, waiting)
    inflight = session.inflight
    census.inflight_messages += len(inflight)
    census.inflight_bytes += inflight.held_bytes
    connection: Connection | None = session.connection
    if connection is not None:
        census.connected += 1
        census.unsent_bytes += connection.out_bytes
        census.paused += connection.paused
