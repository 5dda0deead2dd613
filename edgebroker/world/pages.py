"""The pages of the HTTP door: `/metrics` in OpenMetrics, all others in JSON."""

from __future__ import annotations

import asyncio
import heapq
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import edgebroker
from edgebridge.session.session import Session
from edgebroker.errors import TopicInvalid
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.records import Cause
from edgebroker.topics import TopicFilter
from edgebroker.world import health, openmetrics
from edgebroker.world.census import RANKS, ROWS_MAX, Census, take_census
from edgebroker.world.doors.listener import Listener
from edgebroker.world.http import Answer, plain
from edgebroker.world.insight import Insight
from edgebroker.world.metrics import metrics
from edgebroker.world.process import Process
from edgebroker.world.reactor import clock
from edgebroker.world.store import Store
from edgebroker.world.tap import Tap
from edgebroker.world.tracing import TAPS_MAX, Tracing

if TYPE_CHECKING:
    from edgebroker.world.peering.peering import Peering

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
TOP: Final = 10
"""Sessions in `/status`, unless it is asked for more."""
CLIENTS: Final = 100
"""Sessions in `/clients`, unless it is asked for more."""
ROWS_AT_ONCE: Final = 100
"""Clients written in one turn of the loop: about 1 ms."""
TRACE_S: Final = 60
"""How long a trace goes on, unless it is asked for another time."""
TRACE_S_MAX: Final = 24 * 3_600
FETCH_S: Final = 0.2
ALIVE_S: Final = 5.0
BY_NAME: Final = "client"

Query = dict[str, str]


class QueryRefused(Exception):
    """A question that cannot be understood; the text says why and what can be asked."""


class Pages:
    """From the target of a request to its answer."""

    def __init__(self, insight: Insight) -> None:
        self._insight = insight
        self._census_lock = asyncio.Lock()
        """One census at a time: many who ask at once share the loop with the clients, and shall not take all of it."""
        self.known: dict[str, tuple[Callable[[Query], Awaitable[Answer]], frozenset[str]]] = {
            "/metrics": (self._metrics, frozenset()),
            "/health": (self._health, frozenset()),
            "/status": (self._status, frozenset({"sort", "limit"})),
            "/clients": (self._clients, frozenset({"sort", "limit"})),
            "/links": (self._links, frozenset()),
            "/bridges": (self._bridges, frozenset()),
            "/bridges/costs": (self._bridge_costs, frozenset({"name", "depth"})),
            "/trace": (self._trace, frozenset({"client", "topic", "seconds"})),
        }
        """Path -> (page, names of what may be asked for)."""

    async def __call__(self, target: str) -> Answer:
        """The answer to GET *target*."""
        try:
            path, query = _parts(target)
            if path not in self.known:
                return plain(HTTPStatus.NOT_FOUND, f"there is no {path!r}; there are {', '.join(self.known)}")
            page, names = self.known[path]
            for name in query.keys() - names:
                raise QueryRefused(f"{path} knows no {name!r}; {_nearest(name, names)}")
            return await page(query)
        except QueryRefused as refused:
            return plain(HTTPStatus.BAD_REQUEST, str(refused))

    async def _metrics(self, _: Query) -> Answer:
        async with self._census_lock:
            return Answer(HTTPStatus.OK, openmetrics.CONTENT_TYPE, await metrics(self._insight))

    async def _health(self, _: Query) -> Answer:
        found = health.report(self._insight)
        return _json(found, HTTPStatus.SERVICE_UNAVAILABLE if found["reasons"] else HTTPStatus.OK)

    async def _status(self, query: Query) -> Answer:
        rank = _choice(query, "sort", "queue", RANKS)
        count = _whole(query, "limit", TOP, 0, ROWS_MAX)
        async with self._census_lock:
            census = await take_census(self._insight.frontend, rank, count)
        return _json(status(self._insight, census))

    async def _clients(self, query: Query) -> Answer:
        rank = _choice(query, "sort", "queue", [*RANKS, BY_NAME])
        count = _whole(query, "limit", CLIENTS, 1, ROWS_MAX)
        frontend = self._insight.frontend
        if rank == BY_NAME:
            # 1 ms for 10,000 sessions.
            ranked = heapq.nsmallest(count, frontend.connecting.sessions.values(), key=lambda one: one.client_id)
        else:
            async with self._census_lock:
                ranked = (await take_census(frontend, rank, count, with_zeros=True)).ranked
        about = json.dumps({"sessions": len(frontend.connecting.sessions), "sort": rank})
        rows: list[str] = []
        for start in range(0, len(ranked), ROWS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            rows += map(json.dumps, _rows(self._insight, ranked[start : start + ROWS_AT_ONCE]))
        return Answer(HTTPStatus.OK, JSON, f'{about[:-1]}, "clients": [{", ".join(rows)}]}}\n'.encode())

    async def _links(self, _: Query) -> Answer:
        if self._insight.peering is None:
            return plain(HTTPStatus.NOT_FOUND, "this gateway has no peers: its settings name no topology")
        from edgebroker.world.peering.rows import links

        return _json(links(self._insight.peering))

    async def _bridges(self, _: Query) -> Answer:
        from edgebroker.world.bridging.rows import bridges  # 2 MiB, for who asks

        return _json(bridges(self._insight.bridging()))

    async def _bridge_costs(self, query: Query) -> Answer:
        from edgebridge.upstream.costs import DEPTH
        from edgebroker.world.bridging.costrows import costs

        bridging = self._insight.bridging()
        bridges = {} if bridging is None else bridging.bridges
        depth = _whole(query, "depth", DEPTH, 1, DEPTH)
        if not bridges:
            raise QueryRefused("there are no bridges")
        return _json(costs(bridges[_choice(query, "name", "", bridges)], depth))

    async def _trace(self, query: Query) -> Answer:
        seconds = _whole(query, "seconds", TRACE_S, 1, TRACE_S_MAX)
        try:
            topic = TopicFilter.parse(query["topic"]) if "topic" in query else None
        except TopicInvalid as error:
            raise QueryRefused(f"topic: {error}") from None
        if not self._insight.tracing.has_room:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"{TAPS_MAX} watch already; no more at one time")
        tap = Tap(query.get("client"), topic)
        return Answer(HTTPStatus.OK, LINES, _followed(self._insight.tracing, tap, seconds))


async def _followed(tracing: Tracing, tap: Tap, seconds: int) -> AsyncGenerator[bytes, None]:
    """What *tap* gets, five times a second; an empty line now and then shows that we are still there."""
    loop = asyncio.get_running_loop()
    ends, alive = loop.time() + seconds, loop.time()
    tracing.open(tap)  # not before: who asks for the headers alone never gets here
    try:
        yield b"\n"  # whoever asked knows by it that the tap is open
        while loop.time() < ends:
            await asyncio.sleep(FETCH_S)
            if lines := tap.take():
                yield "".join(json.dumps(line) + "\n" for line in lines).encode()
            elif loop.time() - alive >= ALIVE_S:
                yield b"\n"
            else:
                continue
            alive = loop.time()
    finally:
        tracing.close(tap)


def status(insight: Insight, census: Census) -> dict[str, Any]:
    """What `edgebroker top` and `edgebroker status` show."""
    frontend, reactor, now = insight.frontend, insight.reactor, clock()
    ledger, process = frontend.ledger, Process.now()
    return {
        "name": insight.name,
        "version": edgebroker.__version__,
        "pid": os.getpid(),
        "uptime_s": round((now - insight.started_at) / SECOND, 3),
        "health": health.report(insight),
        "messages": {
            "published": ledger.published,
            "filtered": ledger.filtered,
            "refused": frontend.publishing.refused,
        },
        "copies": {
            "made": ledger.matched,
            "delivered": ledger.delivered,
            "expired": ledger.expired,
            "open": ledger.queued,
            "dropped": {Cause(cause).name.lower(): count for cause, count in sorted(ledger.dropped.items())},
        },
        "bytes": {"received": reactor.received_bytes, "sent": reactor.sent_bytes},
        "connections": {
            "open": len(frontend.connections),
            "accepted": frontend.accepted,
            "paused": census.paused,
            "refusals": {reason.name.lower(): count for reason, count in sorted(frontend.expelling.counts.items())},
        },
        "listeners": [_listener(listener) for listener in insight.listeners],
        "held": {"bytes": frontend.memory.held, "bytes_max": frontend.memory.bytes_max},
        "sessions": {"connected": census.connected, "away": census.sessions - census.connected},
        "subscriptions": len(frontend.node.subscriptions),
        "subscriptions_refused": dict(sorted(frontend.subscribing.refused.items())),
        "retained": {"messages": len(frontend.retained), "bytes": frontend.retained.held_bytes},
        "queue": {
            "messages": census.queue_messages,
            "bytes": census.queue_bytes,
            "longest": census.queue_longest,
        },
        "inflight": {"messages": census.inflight_messages, "bytes": census.inflight_bytes},
        "unsent_bytes": census.unsent_bytes,
        "process": {
            "cpu_s": round(process.cpu_s, 3),
            "resident_bytes": process.resident_bytes,
            "descriptors": process.descriptors,
            "descriptors_max": process.descriptors_max,
        },
        "log": None if insight.log_dir is None else {"blocks_lost": insight.log_dir.blocks_lost},
        "journal": None if insight.store is None else _journal(insight.store),
        "peers": None if insight.peering is None else _peers(insight.peering),
        "clients": _rows(insight, census.ranked),
    }


def _listener(listener: Listener) -> dict[str, Any]:
    expires = None if listener.tls is None else listener.tls.validity.end.isoformat()
    return {**listener.described(), "connections": listener.connections, "certificate_expires": expires}


def _peers(peering: Peering) -> dict[str, int]:
    """How it stands with the other gateways; `/links` says more of each."""
    links = tuple(peering.overlay.links)
    lanes = [lane for link in links for lane in link.outbox.lanes.values()]
    return {
        "known": len(links),
        "up": sum(link.stream is not None for link in links),
        "waiting": sum(len(lane) for lane in lanes),
        "waiting_bytes": sum(lane.bytes for lane in lanes),
        "dropped": sum(sum(link.outbox.dropped.values()) for link in links),
    }


def _journal(store: Store) -> dict[str, Any]:
    """Where the journal stands, and how quick the disk is."""
    journal, files = store.journal, store.worker.files
    times = files.sync_us
    return {
        "folder": str(store.folder),
        "refusing": journal.is_refusing,
        "trouble": journal.trouble or journal.warning,
        "failures": journal.failures,
        "lsn": journal.lsn,
        "synced_lsn": journal.synced,
        "waiting": journal.lsn - journal.synced,
        "syncs": times.count,
        "sync_p50_ms": times.quantile(0.5) / MILLISECOND,
        "sync_p99_ms": times.quantile(0.99) / MILLISECOND,
        "written_bytes": files.bytes_written,
        "card_bytes": files.card_bytes_written,
        **store.worker.wear.written.described(),
        "recovery_s": round(store.recovery_s, 3),
    }


def _rows(insight: Insight, sessions: list[Session]) -> list[dict[str, Any]]:
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
        "keep_alive_s": None if connection is None else connection.keep_alive / SECOND,
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


def _json(value: dict[str, Any], code: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(code, JSON, (json.dumps(value) + "\n").encode())


def _parts(target: str) -> tuple[str, Query]:
    """The path and what is asked for. Raises QueryRefused."""
    try:
        parts = urlsplit(target)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=16)
    except ValueError as error:
        raise QueryRefused(f"not a path with a query: {error}") from None
    return parts.path, dict(pairs)


def _choice(query: Query, name: str, default: str, known: Mapping[str, Any] | list[str]) -> str:
    value = query.get(name, default)
    if value not in known:
        raise QueryRefused(f"{name} is {value!r}; {_nearest(value, known)}")
    return value


def _whole(query: Query, name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, str(default))
    # At most 9 digits: int() of very many takes long.
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= most:
        raise QueryRefused(f"{name} is {text!r}; write a number, {least} to {most:,}")
    return int(text)


def _nearest(name: str, known: Any) -> str:
    import difflib  # what only a slip needs

    nearest = difflib.get_close_matches(name, known, n=1)
    if nearest:
        return f"did you mean {nearest[0]}?"
    return f"there are {', '.join(sorted(known))}" if known else "it takes no question"
