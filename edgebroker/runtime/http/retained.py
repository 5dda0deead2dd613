"""Lists retained messages, and clears them on an operator's order: POST /retained?do=clear&topic=old/#"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from typing import Any, Final

from edgebridge.frontend.admin import RetainedClearError, clear_retained
from edgebridge.frontend.frontend import Frontend
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND
from edgebroker.publication import Publication
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.orders import OrderError, OrderHandler, wait_until_synced
from edgebroker.runtime.http.query import Query, QueryInvalid
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.operator_log import Level
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter, is_reserved

TOPICS_PER_TURN: Final = 1_000
"""Topics visited in one turn of the loop: about 1 ms."""
CLEARED_AT_ONCE: Final = 50
"""Messages cleared in one turn of the loop; each is published to its subscribers."""
CLEARED_MAX: Final = 2_000
"""Messages cleared by one order: its sender waits 10 s for the response. To clear more takes several orders."""

ORDERS: Final[Mapping[str, Callable[[Publication], Any]]] = {
    "topic": lambda publication: publication.topic,
    "bytes": lambda publication: (-publication.held_bytes(), publication.topic),
    "age": lambda publication: (publication.accepted_at, publication.topic),
}
"""Sort orders: by topic, the largest first, the oldest first."""


def topic_filter(query: Query) -> TopicFilter:
    """Returns the filter `topic` of *query*, by default `#`, which excludes topics that begin with `$`. Raises
    QueryInvalid.
    """
    try:
        return TopicFilter.parse(query.get("topic", "#"))
    except TopicInvalid as error:
        raise QueryInvalid(f"topic: {error}") from None


async def list_retained(frontend: Frontend, selected: TopicFilter, sort: str, count: int) -> dict[str, Any]:
    """Counts the retained messages that the filter matches, and lists the first *count* by *sort*, without payloads."""
    rank, candidates, matched, total_bytes = ORDERS[sort], list[Publication](), 0, 0
    for visited, publication in enumerate(frontend.retained.walk(selected)):
        if visited % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
            await asyncio.sleep(0)
        if publication is None or publication.has_expired(clock()):
            continue
        matched += 1
        total_bytes += publication.held_bytes()
        candidates.append(publication)
        if len(candidates) > 2 * count + TOPICS_PER_TURN:
            candidates = heapq.nsmallest(count, candidates, key=rank)
    now = clock()
    return {
        "retained": len(frontend.retained),
        "matched": matched,
        "bytes": total_bytes,
        "messages": [publication_row(message, now) for message in heapq.nsmallest(count, candidates, key=rank)],
    }


def publication_row(publication: Publication, now: int) -> dict[str, Any]:
    """Returns a publication as JSON, without its payload."""
    expires_at = publication.expires_at
    return {
        "topic": publication.topic,
        "publisher": publication.publisher,
        "qos": publication.qos,
        "bytes": len(publication.payload),
        "age_s": round((now - publication.accepted_at) / SECOND, 3),
        "expires_in_s": None if expires_at is None else round((expires_at - now) / SECOND, 3),
    }


async def _clear(view: GatewayView, query: Query) -> dict[str, Any]:
    if "topic" not in query:
        raise QueryInvalid("which topic? say topic=")
    selected = topic_filter(query)
    if is_reserved(selected.text):
        raise OrderError(f"{selected.text}: this tree of topics is the broker's own")
    frontend, cleared = view.frontend, 0
    is_all, is_told = True, False
    try:
        for visited, publication in enumerate(frontend.retained.walk(selected)):
            if visited % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)
            if publication is None:
                continue
            if cleared == CLEARED_MAX:
                is_all = False
                break
            clear_retained(frontend, publication.topic, clock())
            cleared += 1
            if cleared % CLEARED_AT_ONCE == 0:
                _flush(view)
                await asyncio.sleep(0)
        is_told = not cleared and _has_site(frontend) and not {SINGLE_LEVEL, MULTI_LEVEL} & set(selected.levels)
        if is_told:  # another gateway of the site may keep a message of that topic
            clear_retained(frontend, selected.text, clock())
    except RetainedClearError as error:
        raise RetainedClearError(f"{cleared} were cleared, then: {error}") from error
    finally:
        _flush(view)
        if cleared:
            text = "an operator cleared retained messages"
            view.operator_log.log(Level.WARNING, "retained-cleared", text, topic=selected.text, count=cleared)
    await wait_until_synced(view)
    return {"topic": selected.text, "cleared": cleared, "is_all": is_all, "is_site_told": is_told}


def _has_site(frontend: Frontend) -> bool:
    """Returns whether the site of the gateway has other gateways."""
    return frontend.federation is not None and bool(frontend.federation.peers.gateway.neighbours)


def _flush(view: GatewayView) -> None:
    view.reactor.schedule_flush()
    view.reactor.arm_timer()


RETAINED_ORDERS: Final[dict[str, tuple[OrderHandler, frozenset[str]]]] = {"clear": (_clear, frozenset({"topic"}))}
