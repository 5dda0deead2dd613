"""What `/clients` and `/client` say of clients: who matches, a row for each, and all there is to know of one."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

from edgebridge.frontend.connecting import KEEP_ALIVE_GRACE
from edgebridge.frontend.frontend import Frontend
from edgebridge.session.inflight import Entry
from edgebridge.session.session import Session
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Property, number
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Instant
from edgebroker.node.subscriptions import Subscription
from edgebroker.records import Cause
from edgebroker.world.census import RANKS, SLICE
from edgebroker.world.insight import Insight
from edgebroker.world.reactor import clock

BY_NAME: Final = "client"
"""To be sorted by the client identifier, which is a rank of no number."""
STATES: Final[Mapping[str, Callable[[Session], bool]]] = {
    "connected": lambda session: session.connection is not None,
    "away": lambda session: session.connection is None,
    "slow": lambda session: session.connection is not None and session.connection.paused,
}
"""What clients may be chosen by."""


@dataclass(slots=True)
class Sought:
    """`ranked`: the foremost of those that match."""

    sessions: int = 0
    matched: int = 0
    ranked: list[Session] = field(default_factory=list)


async def seek(frontend: Frontend, pattern: str | None, state: str, rank: str, count: int, after: str = "") -> Sought:
    """The foremost *count* by *rank*, a key of RANKS or BY_NAME, of the clients whose identifier *pattern* matches, in
    which `*` stands for anything, and that are in *state*, a key of STATES; empty: any. By name, those behind *after*.
    """
    everybody = list(frontend.connecting.sessions.values())
    sought = Sought(len(everybody))
    is_so = STATES.get(state, bool)
    matching: list[Session] = []
    for start in range(0, len(everybody), SLICE):
        if start:
            await asyncio.sleep(0)
        matching += [
            one
            for one in everybody[start : start + SLICE]
            if (pattern is None or fnmatchcase(one.client_id, pattern)) and is_so(one)
        ]
    sought.matched = len(matching)
    # 1 ms for 10,000 sessions.
    if rank == BY_NAME:
        behind = [one for one in matching if one.client_id > after] if after else matching
        sought.ranked = heapq.nsmallest(count, behind, key=lambda one: one.client_id)
    else:
        sought.ranked = heapq.nlargest(count, matching, key=RANKS[rank])
    return sought


def rows(insight: Insight, sessions: list[Session]) -> list[dict[str, Any]]:
    """A row for each of *sessions*."""
    insight.scribe.take_drops()
    now, dropped = clock(), insight.scribe.dropped
    return [row(session, now, dropped.get(session.client_id, {})) for session in sessions]


def row(session: Session, now: int, dropped: Mapping[Cause, int]) -> dict[str, Any]:
    """What there is to know of one client. *dropped*: its copies that were given up."""
    connection = session.connection
    return {
        "client": session.client_id,
        "connected": connection is not None,
        "peer": None if connection is None else connection.peer,
        "version": None if connection is None else connection.dialect.version,
        "silent_s": None if connection is None else round((now - connection.heard) / SECOND, 3),
        "keep_alive_s": None if connection is None else connection.keep_alive / SECOND / KEEP_ALIVE_GRACE,
        "expiry_s": session.expiry_s,
        "durability": str(session.durability),
        "subscriptions": session.subscribed,
        "queue": len(session.outbox),
        "bytes": session.outbox.held_bytes,
        "inflight": len(session.inflight),
        "window": session.inflight.window,
        "unsent": 0 if connection is None else connection.out_bytes,
        "paused": connection is not None and connection.paused,
        "dropped": {cause.name.lower(): count for cause, count in sorted(dropped.items())},
    }


def detailed(insight: Insight, session: Session, limit: int) -> dict[str, Any]:
    """All there is to know of one client: its row, up to *limit* of its subscriptions, and as many messages for it.

    Payloads are not in it, nor who the client says it is.
    """
    now, connection = clock(), session.connection
    [found] = rows(insight, [session])
    away_s = None if connection is not None else round((now - session.gone_at) / SECOND, 3)
    asked = insight.frontend.node.subscriptions.of(session.client_id).values()
    waiting = ((entry, "waits") for entry in session.outbox)
    sent = ((entry, "released" if entry.released else "sent") for entry in session.inflight)
    first = [_message(entry, state, now) for entry, state in _both(sent, waiting, limit)]
    return found | {
        "listener": None if connection is None else connection.entrance.name,
        "away_s": away_s,
        "ends_in_s": None if away_s is None else max(0, round(session.expiry_s - away_s, 3)),
        "qos_2_unreleased": len(session.received),
        "replaying": bool(session.replays),
        "will": None if session.will is None else _will(session.will),
        "asked": [_subscription(one) for one in islice(asked, limit)],
        "messages": first,
    }


def _both(
    sent: Iterable[tuple[Entry, str]], waiting: Iterable[tuple[Entry, str]], limit: int
) -> Iterable[tuple[Entry, str]]:
    """What was sent first goes first."""
    first = list(islice(sent, limit))
    return [*first, *islice(waiting, limit - len(first))]


def _subscription(one: Subscription) -> dict[str, Any]:
    return {
        "filter": one.text,
        "label": one.label,
        "qos": one.qos,
        "no_local": one.no_local,
        "as_published": one.retain_as_published,
        "identifier": one.identifier,
        "group": one.group is not None,
    }


def _message(entry: Entry, state: str, now: Instant) -> dict[str, Any]:
    publication = entry.publication
    ends = publication.expires_at
    return {
        "topic": publication.topic,
        "publisher": publication.publisher,
        "state": state,
        "packet_id": entry.packet_id,
        "qos": entry.qos,
        "retain": entry.retain,
        "bytes": len(publication.payload),
        "age_s": round((now - publication.accepted_at) / SECOND, 3),
        "expires_in_s": None if ends is None else round((ends - now) / SECOND, 3),
    }


def _will(will: Will) -> dict[str, Any]:
    delay_s = number(will.properties, Property.WILL_DELAY_INTERVAL, 0)
    return {
        "topic": will.topic,
        "qos": will.qos,
        "retain": will.retain,
        "bytes": len(will.payload),
        "delay_s": delay_s,
    }
