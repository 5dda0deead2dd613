"""The pages of the HTTP door: `/metrics` in OpenMetrics, all others in JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import edgebroker
from edgebroker.errors import TopicInvalid
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.records import Cause
from edgebroker.topics import TopicFilter, parse_topic_name
from edgebroker.world import health, openmetrics
from edgebroker.world.census import RANKS, ROWS_MAX, Census, take_census
from edgebroker.world.clientrows import BY_NAME, STATES, detailed, rows, seek
from edgebroker.world.doors.listener import Listener
from edgebroker.world.http import Answer, plain
from edgebroker.world.insight import Insight
from edgebroker.world.metrics import metrics
from edgebroker.world.process import Process
from edgebroker.world.query import JSON, Query, QueryRefused, choice, in_json, nearest, parts_of, whole
from edgebroker.world.reactor import clock
from edgebroker.world.store import Store
from edgebroker.world.tap import Tap
from edgebroker.world.tracing import TAPS_MAX, Tracing

if TYPE_CHECKING:
    from edgebroker.world.peering.peering import Peering

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
DETAILS: Final = 20
"""Subscriptions and messages of one client in `/client`, unless it is asked for more."""


class Pages:
    """From the target of a request to its answer."""

    def __init__(self, insight: Insight, has_token: Callable[[], bool] = lambda: True) -> None:
        """*has_token*: whether whoever asks has shown one."""
        self._insight = insight
        self._has_token = has_token
        self._census_lock = asyncio.Lock()
        """One census at a time: many who ask at once share the loop with the clients, and shall not take all of it."""
        self.known: dict[str, tuple[Callable[[Query], Awaitable[Answer]], frozenset[str]]] = {
            "/metrics": (self._metrics, frozenset()),
            "/health": (self._health, frozenset()),
            "/status": (self._status, frozenset({"sort", "limit"})),
            "/clients": (self._clients, frozenset({"sort", "limit", "client", "state", "after"})),
            "/client": (self._client, frozenset({"name", "limit"})),
            "/blocked": (self._blocked, frozenset()),
            "/readers": (self._readers, frozenset({"topic", "payload", "qos", "limit"})),
            "/retained": (self._retained, frozenset({"topic", "sort", "limit"})),
            "/links": (self._links, frozenset()),
            "/bridges": (self._bridges, frozenset()),
            "/bridges/costs": (self._bridge_costs, frozenset({"name", "depth"})),
            "/trace": (self._trace, frozenset({"client", "topic", "seconds"})),
        }
        """Path -> (page, names of what may be asked for)."""
        self.controls: dict[str, Callable[[str], Awaitable[Answer]]] = {
            "/clients": self._order_clients,
            "/retained": self._order_retained,
            "/reload": self.guarded(self._order_reload),
        }
        """Path -> what does something there: POST."""

    async def __call__(self, target: str) -> Answer:
        """The answer to GET *target*."""
        try:
            path, query = parts_of(target)
            if path not in self.known:
                return plain(HTTPStatus.NOT_FOUND, f"there is no {path!r}; there are {', '.join(self.known)}")
            page, names = self.known[path]
            for name in query.keys() - names:
                raise QueryRefused(f"{path} knows no {name!r}; {nearest(name, names)}")
            return await page(query)
        except QueryRefused as refused:
            return plain(HTTPStatus.BAD_REQUEST, str(refused))

    async def _metrics(self, _: Query) -> Answer:
        async with self._census_lock:
            return Answer(HTTPStatus.OK, openmetrics.CONTENT_TYPE, await metrics(self._insight))

    async def _health(self, _: Query) -> Answer:
        found = health.report(self._insight)
        return in_json(found, HTTPStatus.SERVICE_UNAVAILABLE if found["reasons"] else HTTPStatus.OK)

    async def _status(self, query: Query) -> Answer:
        rank = choice(query, "sort", "queue", RANKS)
        count = whole(query, "limit", TOP, 0, ROWS_MAX)
        async with self._census_lock:
            census = await take_census(self._insight.frontend, rank, count)
        return in_json(status(self._insight, census))

    async def _clients(self, query: Query) -> Answer:
        rank = choice(query, "sort", "queue", [*RANKS, BY_NAME])
        count = whole(query, "limit", CLIENTS, 1, ROWS_MAX)
        state = choice(query, "state", "", ["", *STATES])
        if "after" in query and rank != BY_NAME:
            raise QueryRefused(f"after is for sort={BY_NAME}")
        async with self._census_lock:
            sought = await seek(self._insight.frontend, query.get("client"), state, rank, count, query.get("after", ""))
        about = json.dumps({"sessions": sought.sessions, "matched": sought.matched, "sort": rank})
        parts: list[str] = []
        for start in range(0, len(sought.ranked), ROWS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            parts += map(json.dumps, rows(self._insight, sought.ranked[start : start + ROWS_AT_ONCE]))
        return Answer(HTTPStatus.OK, JSON, f'{about[:-1]}, "clients": [{", ".join(parts)}]}}\n'.encode())

    async def _client(self, query: Query) -> Answer:
        from edgebroker.world.control.clients import found  # for who asks

        session = found(self._insight.frontend, query)
        return in_json(detailed(self._insight, session, whole(query, "limit", DETAILS, 0, ROWS_MAX)))

    async def _blocked(self, _: Query) -> Answer:
        from edgebroker.world.control.clients import kept_out

        return in_json(kept_out(self._insight))

    async def _readers(self, query: Query) -> Answer:
        from edgebroker.world.readers import readers

        try:
            topic = parse_topic_name(query.get("topic", ""))
        except TopicInvalid as error:
            raise QueryRefused(f"topic: {error}") from None
        qos, count = whole(query, "qos", 1, 0, 2), whole(query, "limit", CLIENTS, 0, ROWS_MAX)
        payload = query["payload"].encode() if "payload" in query else None
        async with self._census_lock:
            return in_json(await readers(self._insight.frontend, topic, payload, qos, count))

    async def _retained(self, query: Query) -> Answer:
        from edgebroker.world.control.retained import ORDERS, listed, topic_filter

        count = whole(query, "limit", CLIENTS, 0, ROWS_MAX)
        order = choice(query, "sort", "topic", ORDERS)
        async with self._census_lock:
            found = await listed(self._insight.frontend, topic_filter(query), order, count)
        peering = self._insight.peering
        others = 0 if peering is None else len(peering.membership.topology.gateways) - 1
        return in_json({**found, "other_gateways": others})

    def guarded(self, order: Callable[[str], Awaitable[Answer]]) -> Callable[[str], Awaitable[Answer]]:
        """*order*, for whoever may have something done."""

        async def obeyed(target: str) -> Answer:
            from edgebroker.world.control.orders import NAMELESS, may_order

            if not may_order(self._insight, self._has_token()):
                return plain(HTTPStatus.FORBIDDEN, NAMELESS)
            return await order(target)

        return obeyed

    async def _order_clients(self, target: str) -> Answer:
        from edgebroker.world.control.clients import ACTS
        from edgebroker.world.control.orders import obey

        return await obey(self._insight, ACTS, target, self._has_token())

    async def _order_retained(self, target: str) -> Answer:
        from edgebroker.world.control.orders import obey
        from edgebroker.world.control.retained import ACTS

        return await obey(self._insight, ACTS, target, self._has_token())

    async def _order_reload(self, _: str) -> Answer:
        if self._insight.reread is None:
            return plain(HTTPStatus.CONFLICT, "nobody knows where the settings of this gateway come from")
        outcome = await self._insight.reread()
        if outcome is None:
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the reload is given up; the log says why")
        return in_json({**outcome.as_json(), "lines": list(outcome.lines())})

    async def _links(self, _: Query) -> Answer:
        if self._insight.peering is None:
            return plain(HTTPStatus.NOT_FOUND, "this gateway has no peers: its settings name no topology")
        from edgebroker.world.peering.rows import links

        return in_json(links(self._insight.peering))

    async def _bridges(self, _: Query) -> Answer:
        from edgebroker.world.bridging.rows import bridges  # 2 MiB, for who asks

        return in_json(bridges(self._insight.bridging()))

    async def _bridge_costs(self, query: Query) -> Answer:
        from edgebridge.upstream.costs import DEPTH
        from edgebroker.world.bridging.costrows import costs

        bridging = self._insight.bridging()
        bridges = {} if bridging is None else bridging.bridges
        depth = whole(query, "depth", DEPTH, 1, DEPTH)
        if not bridges:
            raise QueryRefused("there are no bridges")
        return in_json(costs(bridges[choice(query, "name", "", bridges)], depth))

    async def _trace(self, query: Query) -> Answer:
        seconds = whole(query, "seconds", TRACE_S, 1, TRACE_S_MAX)
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
            "refused_by": {cause.value: count for cause, count in sorted(frontend.publishing.refusals.items())},
            "not_retained": frontend.retained.not_kept,
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
            "refusals": {reason.name.lower(): count for reason, count in frontend.expelling.refusals.items()},
            "turned_away": {
                cause.value: count
                for cause, count in sorted(insight.listeners.refusals.counts.items(), key=lambda one: one[0].value)
            },
        },
        "listeners": [_listener(listener) for listener in insight.listeners],
        "held": {"bytes": frontend.memory.held, "bytes_max": frontend.memory.bytes_max},
        "sessions": {"connected": census.connected, "away": census.sessions - census.connected},
        "subscriptions": len(frontend.node.subscriptions),
        "subscriptions_refused": dict(sorted(frontend.subscribing.refused.items())),
        "texts_too_long_for_like": frontend.node.routes.tree.too_long,
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
        "clients": rows(insight, census.ranked),
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
