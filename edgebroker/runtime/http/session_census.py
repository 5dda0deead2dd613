"""Counts all sessions and ranks some of them, in slices between the turns of the clients.

To visit 10,000 sessions takes 4 ms, on a Raspberry Pi several times as long. That is too long for a client to wait, so
the loop runs after every `SESSIONS_PER_TURN` sessions.
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
from edgebroker.runtime.http.health import has_nearly_full_queue

SESSIONS_PER_TURN: Final = 500
"""Sessions visited in one turn: 0.15 ms."""
ROWS_MAX: Final = 1_000
"""Rows in one response: about 300 KiB of JSON."""

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
    """Totals over all sessions at about one moment; `ranked` has those with the highest rank, in order."""

    sessions: int = 0
    connected: int = 0
    queue_messages: int = 0
    """QoS 1 and 2 messages that are not sent yet: the client is offline, or its window is full."""
    queue_bytes: int = 0
    queue_longest: int = 0
    queues_nearly_full: int = 0
    """Queues of durable sessions and bridges with nine tenths of what they may hold, or more."""
    paged_messages: int = 0
    """Of all that waits, what is on the disk."""
    paged_bytes: int = 0
    pages: int = 0
    """The page files that this is in."""
    inflight_messages: int = 0
    """Sent, and not acknowledged yet."""
    inflight_bytes: int = 0
    unsent_bytes: int = 0
    """Bytes in out-buffers: the next flush writes them, or the client does not read."""
    paused: int = 0
    """Connections to which nothing is written at present, because the peer reads too slowly."""
    ranked: list[Session] = field(default_factory=list)


async def take_census(frontend: Frontend, rank: str = "queue", count: int = 0) -> SessionCensus:
    """Visits every session, and ranks the first *count* of them by *rank*, a key of `RANKS`.

    Sessions with rank 0 are left out.
    """
    census = SessionCensus()
    rank_of = RANKS[rank]
    top: list[tuple[int, int, Session]] = []
    sessions = list(frontend.connect_handler.sessions.values())
    census.sessions = len(sessions)
    for start in range(0, len(sessions), SESSIONS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        for position, session in enumerate(sessions[start : start + SESSIONS_PER_TURN], start):
            _add(census, session)
            value = rank_of(session) if count else 0
            if value:
                # The older of two equal sessions comes first; positions differ, so sessions are never compared.
                if len(top) < count:
                    heapq.heappush(top, (value, -position, session))
                elif value > top[0][0]:
                    heapq.heapreplace(top, (value, -position, session))
    census.ranked = [session for _, _, session in sorted(top, key=lambda item: item[:2], reverse=True)]
    return census


def _add(census: SessionCensus, session: Session) -> None:
    queued = len(session.outbox)
    if queued:
        census.queue_messages += queued
        outbox = session.outbox
        census.queue_bytes += outbox.held_bytes
        census.queue_longest = max(census.queue_longest, queued)
        census.queues_nearly_full += has_nearly_full_queue(session)
        census.paged_messages += outbox.paged_messages
        census.paged_bytes += outbox.paged_bytes
        census.pages += len(outbox.pages)
    inflight = session.inflight
    census.inflight_messages += len(inflight)
    census.inflight_bytes += inflight.held_bytes
    connection: Connection | None = session.connection
    if connection is not None:
        census.connected += 1
        census.unsent_bytes += connection.out_bytes
        census.paused += connection.paused
