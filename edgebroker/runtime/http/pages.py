"""The pages of the HTTP interface: `/metrics` in OpenMetrics, all others in JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import edgebroker
from edgebridge.frontend.memory_accounts import MemoryAccounts, account_title
from edgebroker.errors import TopicInvalid
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.log_schema import Cause
from edgebroker.matching.kernel import IS_COMPILED
from edgebroker.runtime.http import health, metrics
from edgebroker.runtime.http.clients import BY_NAME, STATES, client_details, client_rows, select_clients
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.metrics import metrics_page
from edgebroker.runtime.http.query import (
    JSON,
    Query,
    QueryInvalid,
    json_response,
    parse_target,
    read_choice,
    read_integer,
    suggestion,
)
from edgebroker.runtime.http.server import HttpResponse, text_response
from edgebroker.runtime.http.session_census import RANKS, ROWS_MAX, SessionCensus, take_census
from edgebroker.runtime.http.tracing import TAPS_MAX, Tap, Tracer
from edgebroker.runtime.journal.store import Store
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.process import ProcessUsage
from edgebroker.topics import TopicFilter, parse_topic_name

if TYPE_CHECKING:
    from edgebroker.runtime.peers.peers import PeerManager

NDJSON: Final = "application/x-ndjson"
STATUS_CLIENTS: Final = 10
UNREADABLE_TOPICS_SHOWN: Final = 20
"""Default number of clients in `/status`."""
CLIENTS_DEFAULT: Final = 100
"""Default number of rows in `/clients`, `/readers`, `/retained`, `/outbox` and `/place`."""
ROWS_AT_ONCE: Final = 100
"""Rows of clients made in one turn of the loop: about 1 ms."""
TRACE_S_DEFAULT: Final = 60
"""Default duration of a trace."""
TRACE_S_MAX: Final = 24 * 3_600
TRACE_INTERVAL_S: Final = 0.2
KEEP_ALIVE_S: Final = 5.0
DETAILS_DEFAULT: Final = 20
"""Default number of subscriptions and of messages in `/client`."""


OPEN_PAGES: Final = frozenset(("/health", "/metrics"))
"""What monitoring asks for. All other pages tell who is connected and what is published, so where clients must say who
they are, a token is needed for them."""


class HttpPages:
    """The handler of all GET requests, and of the orders that need no bridge."""

    def __init__(self, view: GatewayView, has_token: Callable[[], bool] = lambda: True) -> None:
        """*has_token*: whether requests are authorized by a token."""
        self._view = view
        self._has_token = has_token
        self._census_lock = asyncio.Lock()
        """Admits one census at a time: many concurrent requests must not take all of the loop's time from the clients.
        """
        self.routes: dict[str, tuple[Callable[[Query], Awaitable[HttpResponse]], frozenset[str]]] = {
            "/metrics": (self._metrics, frozenset()),
            "/health": (self._health, frozenset()),
            "/status": (self._status, frozenset({"sort", "limit"})),
            "/clients": (self._clients, frozenset({"sort", "limit", "client", "state", "after"})),
            "/client": (self._client, frozenset({"name", "limit"})),
            "/blocked": (self._blocked, frozenset()),
            "/readers": (self._readers, frozenset({"topic", "payload", "qos", "limit"})),
            "/retained": (self._retained, frozenset({"topic", "sort", "limit"})),
            "/links": (self._links, frozenset({"all"})),
            "/place": (self._place, frozenset({"all", "limit"})),
            "/place/history": (self._place_history, frozenset({"all"})),
            "/outbox": (self._outbox, frozenset({"peer", "limit"})),
            "/bridges": (self._bridges, frozenset()),
            "/bridges/costs": (self._bridge_costs, frozenset({"name", "depth"})),
            "/trace": (self._trace, frozenset({"client", "topic", "seconds"})),
        }
        """Path -> (page, names that its query may have)."""
        self.order_routes: dict[str, Callable[[str], Awaitable[HttpResponse]]] = {
            "/clients": self._order_clients,
            "/retained": self._order_retained,
            "/outbox": self._order_outbox,
            "/place": self._order_place,
            "/reload": self.guarded(self._order_reload),
        }
        """Path -> handler of POST."""

    async def __call__(self, target: str) -> HttpResponse:
        """Returns the response to GET *target*."""
        try:
            path, query = parse_target(target)
            if path not in self.routes:
                return text_response(HTTPStatus.NOT_FOUND, f"there is no {path!r}; there are {', '.join(self.routes)}")
            if path not in OPEN_PAGES:
                from edgebroker.runtime.http.orders import TOKEN_NEEDED, may_order

                if not may_order(self._view, self._has_token()):
                    return text_response(HTTPStatus.FORBIDDEN, TOKEN_NEEDED)
            page, names = self.routes[path]
            for name in query.keys() - names:
                raise QueryInvalid(f"{path} knows no {name!r}; {suggestion(name, names)}")
            return await page(query)
        except QueryInvalid as refused:
            return text_response(HTTPStatus.BAD_REQUEST, str(refused))

    async def _metrics(self, _: Query) -> HttpResponse:
        async with self._census_lock:
            return HttpResponse(HTTPStatus.OK, metrics.CONTENT_TYPE, await metrics_page(self._view))

    async def _health(self, _: Query) -> HttpResponse:
        report = health.report(self._view)
        return json_response(report, HTTPStatus.SERVICE_UNAVAILABLE if report["reasons"] else HTTPStatus.OK)

    async def _status(self, query: Query) -> HttpResponse:
        rank = read_choice(query, "sort", "queue", RANKS)
        count = read_integer(query, "limit", STATUS_CLIENTS, 0, ROWS_MAX)
        async with self._census_lock:
            census = await take_census(self._view.frontend, rank, count)
        return json_response(status(self._view, census))

    async def _clients(self, query: Query) -> HttpResponse:
        rank = read_choice(query, "sort", "queue", [*RANKS, BY_NAME])
        count = read_integer(query, "limit", CLIENTS_DEFAULT, 1, ROWS_MAX)
        state = read_choice(query, "state", "", ["", *STATES])
        if "after" in query and rank != BY_NAME:
            raise QueryInvalid(f"after is for sort={BY_NAME}")
        async with self._census_lock:
            selection = await select_clients(
                self._view.frontend, query.get("client"), state, rank, count, query.get("after", "")
            )
        head = json.dumps({"sessions": selection.sessions, "matched": selection.matched, "sort": rank})
        parts: list[str] = []
        for start in range(0, len(selection.ranked), ROWS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            parts += map(json.dumps, client_rows(self._view, selection.ranked[start : start + ROWS_AT_ONCE]))
        return HttpResponse(HTTPStatus.OK, JSON, f'{head[:-1]}, "clients": [{", ".join(parts)}]}}\n'.encode())

    async def _client(self, query: Query) -> HttpResponse:
        from edgebroker.runtime.http.clients import find_session  # loaded at the first request

        session = find_session(self._view.frontend, query)
        return json_response(
            client_details(self._view, session, read_integer(query, "limit", DETAILS_DEFAULT, 0, ROWS_MAX))
        )

    async def _blocked(self, _: Query) -> HttpResponse:
        from edgebroker.runtime.http.clients import blocked_clients

        return json_response(blocked_clients(self._view))

    async def _readers(self, query: Query) -> HttpResponse:
        from edgebroker.runtime.http.clients import forecast_delivery

        try:
            topic = parse_topic_name(query.get("topic", ""))
        except TopicInvalid as error:
            raise QueryInvalid(f"topic: {error}") from None
        qos, count = read_integer(query, "qos", 1, 0, 2), read_integer(query, "limit", CLIENTS_DEFAULT, 0, ROWS_MAX)
        payload = query["payload"].encode() if "payload" in query else None
        async with self._census_lock:
            return json_response(await forecast_delivery(self._view.frontend, topic, payload, qos, count))

    async def _retained(self, query: Query) -> HttpResponse:
        from edgebroker.runtime.http.retained import ORDERS, list_retained, topic_filter

        count = read_integer(query, "limit", CLIENTS_DEFAULT, 0, ROWS_MAX)
        order = read_choice(query, "sort", "topic", ORDERS)
        async with self._census_lock:
            report = await list_retained(self._view.frontend, topic_filter(query), order, count)
        peer_manager = self._view.peer_manager
        others = 0 if peer_manager is None else len(peer_manager.membership.topology.gateways) - 1
        return json_response({**report, "other_gateways": others})

    def guarded(self, order: Callable[[str], Awaitable[HttpResponse]]) -> Callable[[str], Awaitable[HttpResponse]]:
        """Returns *order*, which refuses requests that may not change anything."""

        async def authorized(target: str) -> HttpResponse:
            from edgebroker.runtime.http.orders import TOKEN_NEEDED, may_order

            if not may_order(self._view, self._has_token()):
                return text_response(HTTPStatus.FORBIDDEN, TOKEN_NEEDED)
            return await order(target)

        return authorized

    async def _order_clients(self, target: str) -> HttpResponse:
        from edgebroker.runtime.http.clients import CLIENT_ORDERS
        from edgebroker.runtime.http.orders import run_order

        return await run_order(self._view, CLIENT_ORDERS, target, self._has_token())

    async def _order_retained(self, target: str) -> HttpResponse:
        from edgebroker.runtime.http.orders import run_order
        from edgebroker.runtime.http.retained import RETAINED_ORDERS

        return await run_order(self._view, RETAINED_ORDERS, target, self._has_token())

    async def _order_reload(self, _: str) -> HttpResponse:
        if self._view.reload is None:
            return text_response(HTTPStatus.CONFLICT, "nobody knows where the settings of this gateway come from")
        outcome = await self._view.reload()
        if outcome is None:
            return text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the reload is given up; the log says why")
        return json_response({**outcome.as_json(), "lines": list(outcome.lines())})

    async def _links(self, query: Query) -> HttpResponse:
        if self._view.peer_manager is None:
            return text_response(HTTPStatus.NOT_FOUND, "this gateway has no peers: its settings name no topology")
        from edgebroker.runtime.http.peers import federation_report, link_report

        if read_choice(query, "all", "no", ["no", "yes"]) == "yes":
            return json_response(await federation_report(self._view.peer_manager))
        return json_response(link_report(self._view.peer_manager))

    async def _place(self, query: Query) -> HttpResponse:
        from edgebroker.runtime.http.place import placement_page

        return await placement_page(
            self._view, query, read_integer(query, "limit", CLIENTS_DEFAULT, 0, ROWS_MAX), is_history=False
        )

    async def _place_history(self, query: Query) -> HttpResponse:
        from edgebroker.runtime.http.place import placement_page

        return await placement_page(self._view, query, 0, is_history=True)

    async def _order_place(self, target: str) -> HttpResponse:
        from edgebroker.runtime.http.orders import run_order
        from edgebroker.runtime.http.place import PLACE_ORDERS

        return await run_order(self._view, PLACE_ORDERS, target, self._has_token())

    async def _outbox(self, query: Query) -> HttpResponse:
        from edgebroker.runtime.http.outbox import outbox_report

        return json_response(
            outbox_report(self._view, query, read_integer(query, "limit", CLIENTS_DEFAULT, 0, ROWS_MAX))
        )

    async def _order_outbox(self, target: str) -> HttpResponse:
        from edgebroker.runtime.http.orders import run_order
        from edgebroker.runtime.http.outbox import OUTBOX_ORDERS

        return await run_order(self._view, OUTBOX_ORDERS, target, self._has_token())

    async def _bridges(self, _: Query) -> HttpResponse:
        from edgebroker.runtime.http.bridges import bridge_rows  # 2 MiB, loaded at the first request

        return json_response(bridge_rows(self._view.bridge_manager()))

    async def _bridge_costs(self, query: Query) -> HttpResponse:
        from edgebridge.bridge.counters import DEPTH
        from edgebroker.runtime.http.bridges import bridge_costs

        bridge_manager = self._view.bridge_manager()
        bridges = {} if bridge_manager is None else bridge_manager.bridges
        depth = read_integer(query, "depth", DEPTH, 1, DEPTH)
        if not bridges:
            raise QueryInvalid("there are no bridges")
        return json_response(bridge_costs(bridges[read_choice(query, "name", "", bridges)], depth))

    async def _trace(self, query: Query) -> HttpResponse:
        seconds = read_integer(query, "seconds", TRACE_S_DEFAULT, 1, TRACE_S_MAX)
        try:
            topic = TopicFilter.parse(query["topic"]) if "topic" in query else None
        except TopicInvalid as error:
            raise QueryInvalid(f"topic: {error}") from None
        if not self._view.tracer.has_room:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"{TAPS_MAX} watch already; no more at one time")
        tap = Tap(query.get("client"), topic)
        return HttpResponse(HTTPStatus.OK, NDJSON, _stream_trace(self._view.tracer, tap, seconds))


async def _stream_trace(tracer: Tracer, tap: Tap, seconds: int) -> AsyncGenerator[bytes, None]:
    """Yields the lines of *tap* five times a second; an empty line now and then shows that the trace is alive."""
    loop = asyncio.get_running_loop()
    deadline, last_sent = loop.time() + seconds, loop.time()
    tracer.open(tap)  # not before: the generator of a HEAD request never gets here
    try:
        yield b"\n"  # shows that the tap is open
        while loop.time() < deadline:
            await asyncio.sleep(TRACE_INTERVAL_S)
            if lines := tap.drain():
                yield "".join(json.dumps(line) + "\n" for line in lines).encode()
            elif loop.time() - last_sent >= KEEP_ALIVE_S:
                yield b"\n"
            else:
                continue
            last_sent = loop.time()
    finally:
        tracer.close(tap)


def _held(accounts: MemoryAccounts) -> dict[str, Any]:
    account, size = accounts.largest()
    return {
        "bytes": accounts.held_bytes,
        "bytes_max": accounts.bytes_max,
        "kinds": {kind.value: size for kind, size in accounts.by_kind.items()},
        "largest": {"account": account_title(account), "bytes": size},
        "refused": {kind.value: count for kind, count in sorted(accounts.refused.items())},
        "not_restored": {kind.value: count for kind, count in sorted(accounts.not_restored.items())},
    }


def _unreadable(view: GatewayView) -> dict[str, Any]:
    """Messages whose payload a content filter asked for in vain: for clients here, and for other gateways."""
    by_clients = view.frontend.node.routes.unreadable
    topics = sorted(by_clients.by_topic.items(), key=lambda item: -item[1])[:UNREADABLE_TOPICS_SHOWN]
    gateways = 0 if view.peer_manager is None else view.peer_manager.overlay.peers.forwarder.unreadable.total
    return {"clients": by_clients.total, "gateways": gateways, "topics": dict(topics)}


def status(view: GatewayView, census: SessionCensus) -> dict[str, Any]:
    """Returns the contents of `/status`, which `edgebroker top` and `edgebroker status` show."""
    frontend, reactor, now = view.frontend, view.reactor, clock()
    ledger, process = frontend.ledger, ProcessUsage.now()
    return {
        "name": view.name,
        "version": edgebroker.__version__,
        "commit": edgebroker.__commit__,
        "compiled": IS_COMPILED,
        "pid": os.getpid(),
        "uptime_s": round((now - view.started_at) / SECOND, 3),
        "health": health.report(view),
        "messages": {
            "published": ledger.published,
            "filtered": ledger.filtered,
            "refused": frontend.publish_handler.refused,
            "refused_by": {cause.value: count for cause, count in sorted(frontend.publish_handler.refusals.items())},
            "not_retained": frontend.retained.not_retained,
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
            "refusals": {reason.name.lower(): count for reason, count in frontend.disconnector.refusals.items()},
            "turned_away": {
                cause.value: count
                for cause, count in sorted(view.listeners.refusals.counts.items(), key=lambda item: item[0].value)
            },
        },
        "listeners": [_listener(listener) for listener in view.listeners],
        "held": _held(frontend.memory_limit.accounts),
        "sessions": {"connected": census.connected, "away": census.sessions - census.connected},
        "subscriptions": len(frontend.node.subscriptions),
        "subscriptions_refused": dict(sorted(frontend.subscribe_handler.refused.items())),
        "texts_too_long_for_like": frontend.node.routes.tree.too_long,
        "arrays_too_long": frontend.node.routes.arrays_too_long,
        "unreadable": _unreadable(view),
        "retained": {"messages": len(frontend.retained), "bytes": frontend.retained.held_bytes},
        "queue": {
            "messages": census.queue_messages,
            "bytes": census.queue_bytes,
            "longest": census.queue_longest,
            "paged": census.paged_messages,
            "paged_bytes": census.paged_bytes,
            "pages": census.pages,
        },
        "inflight": {"messages": census.inflight_messages, "bytes": census.inflight_bytes},
        "unsent_bytes": census.unsent_bytes,
        "process": {
            "cpu_s": round(process.cpu_s, 3),
            "resident_bytes": process.resident_bytes,
            "descriptors": process.descriptors,
            "descriptors_max": process.descriptors_max,
        },
        "log": None if view.log_dir is None else {"blocks_lost": view.log_dir.blocks_lost},
        "journal": None if view.store is None else _journal(view.store),
        "peers": None if view.peer_manager is None else _peers(view.peer_manager),
        "clients": client_rows(view, census.ranked),
    }


def _listener(listener: Listener) -> dict[str, Any]:
    expires = None if listener.tls is None else listener.tls.validity.end.isoformat()
    return {**listener.described(), "connections": listener.connections, "certificate_expires": expires}


def _peers(peer_manager: PeerManager) -> dict[str, int]:
    """Returns totals over the links to all peers; `/links` has each."""
    links = tuple(peer_manager.overlay.links)
    queues = [queue for link in links for queue in link.outbox.queues.values()]
    return {
        "known": len(links),
        "up": sum(link.connection is not None for link in links),
        "waiting": sum(len(queue) for queue in queues),
        "waiting_bytes": sum(queue.bytes for queue in queues),
        "dropped": sum(sum(link.outbox.dropped.values()) for link in links),
    }


def _journal(store: Store) -> dict[str, Any]:
    """Returns the state of the journal and the latency of the disk."""
    journal, files = store.journal, store.worker.files
    times = files.sync_us
    return {
        "folder": str(store.folder),
        "refusing": journal.is_refusing,
        "trouble": journal.refusal_reason or journal.warning,
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
