"""Shows the events that wait for a peer, and discards them on an operator's order: POST /outbox?do=discard&peer=gw-a"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from edgebroker.log_schema import Cause
from edgebroker.overlay.link.class_queue import QueuedMessage, events_of
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Forward
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.orders import OrderHandler, wait_until_synced
from edgebroker.runtime.http.query import Query, QueryInvalid, read_choice
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.operator_log import Level


def outbox_report(view: GatewayView, query: Query, limit: int) -> dict[str, Any]:
    """Returns how much waits for the peer of *query*, how much may, and the first *limit* events that are in memory,
    without payloads.
    """
    link = _link(view, query)
    outbox = link.outbox
    messages, size, memory = outbox.use
    entries = [entry for queue in outbox.queues.values() for entry in queue.in_memory() if entry.is_event]
    events = ((entry, event) for entry in entries for event in events_of(entry.message))
    return {
        "peer": link.peer,
        "up": link.connection is not None,
        "waiting": messages,
        "bytes": size,
        "memory_bytes": memory,
        "on_disk": outbox.backlog.on_disk,
        "messages_max": outbox.messages_max,
        "bytes_max": outbox.bytes_max,
        "full": "refuse" if outbox.refuses else "drop-newest",
        "is_nearly_full": outbox.has_backpressure,
        "dropped": {cause.name.lower(): count for cause, count in sorted(outbox.dropped.items())},
        "messages": [_row(entry, event) for entry, event in islice(events, limit)],
    }


def _row(entry: QueuedMessage, event: Forward) -> dict[str, Any]:
    expires_in_ms = entry.expires_in_ms(clock())
    return {
        "topic": event.topic,
        "publisher": event.client,
        "qos": event.qos,
        "bytes": len(event.payload),
        "expires_in_s": None if expires_in_ms is None else expires_in_ms / 1_000,
    }


def _link(view: GatewayView, query: Query) -> Link:
    """Returns the link to the peer of *query*. Raises QueryInvalid."""
    if view.peer_manager is None:
        raise QueryInvalid("this gateway has no peers: its settings name no topology")
    links = view.peer_manager.overlay.links
    return links[read_choice(query, "peer", "", [link.peer for link in links])]


async def _discard(view: GatewayView, query: Query) -> dict[str, Any]:
    link = _link(view, query)
    assert view.peer_manager is not None
    count = view.peer_manager.overlay.discard(link.peer, Cause.DISCARDED, clock())
    view.reactor.schedule_flush()
    view.reactor.arm_timer()
    if count:
        text = "an operator discarded what waited for it"
        view.operator_log.log(Level.WARNING, "outbox-discarded", text, link.peer, peer=link.peer, count=count)
    await wait_until_synced(view)
    return {"peer": link.peer, "discarded": count}


OUTBOX_ORDERS: Final[dict[str, tuple[OrderHandler, frozenset[str]]]] = {"discard": (_discard, frozenset({"peer"}))}
