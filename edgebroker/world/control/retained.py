"""What is retained, and what an operator clears of it: POST /retained?do=clear&topic=old/#"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from typing import Any, Final

from edgebridge.frontend.clearing import NotCleared, clear
from edgebridge.frontend.frontend import Frontend
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter
from edgebroker.world.control.orders import Act, Unanswerable, kept
from edgebroker.world.insight import Insight
from edgebroker.world.operatorlog import Level
from edgebroker.world.query import Query, QueryRefused
from edgebroker.world.reactor import clock

SLICE: Final = 1_000
"""Places looked at in one turn of the loop: about 1 ms."""
CLEARED_AT_ONCE: Final = 50
"""Messages cleared in one turn of the loop, each of which readers hear."""
CLEARED_MAX: Final = 2_000
"""Messages cleared by one order, for whose answer its sender waits 10 s. Whoever wants more asks again."""

ORDERS: Final[Mapping[str, Callable[[Publication], Any]]] = {
    "topic": lambda publication: publication.topic,
    "bytes": lambda publication: (-publication.held_bytes(), publication.topic),
    "age": lambda publication: (publication.accepted_at, publication.topic),
}
"""What they may be sorted by: the largest first, the oldest first."""


def topic_filter(query: Query) -> TopicFilter:
    """What `topic` says; all but what begins with `$` if it says nothing. Raises QueryRefused."""
    try:
        return TopicFilter.parse(query.get("topic", "#"))
    except TopicInvalid as error:
        raise QueryRefused(f"topic: {error}") from None


async def listed(frontend: Frontend, wanted: TopicFilter, order: str, count: int) -> dict[str, Any]:
    """How many retained messages *wanted* matches, and the foremost *count* by *order*. Payloads are not in it."""
    rank, found, matched, octets = ORDERS[order], list[Publication](), 0, 0
    for place, publication in enumerate(frontend.retained.walk(wanted)):
        if place % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        if publication is None or publication.has_expired(clock()):
            continue
        matched += 1
        octets += publication.held_bytes()
        found.append(publication)
        if len(found) > 2 * count + SLICE:
            found = heapq.nsmallest(count, found, key=rank)
    now = clock()
    return {
        "retained": len(frontend.retained),
        "matched": matched,
        "bytes": octets,
        "messages": [_row(one, now) for one in heapq.nsmallest(count, found, key=rank)],
    }


def _row(publication: Publication, now: int) -> dict[str, Any]:
    ends = publication.expires_at
    return {
        "topic": publication.topic,
        "publisher": publication.publisher,
        "qos": publication.qos,
        "bytes": len(publication.payload),
        "age_s": round((now - publication.accepted_at) / SECOND, 3),
        "expires_in_s": None if ends is None else round((ends - now) / SECOND, 3),
    }


async def _clear(insight: Insight, query: Query) -> dict[str, Any]:
    if "topic" not in query:
        raise QueryRefused("which topic? say topic=")
    wanted = topic_filter(query)
    if wanted.text.startswith("$"):
        raise Unanswerable(f"{wanted.text}: topics that begin with $ are the broker's own")
    frontend, cleared = insight.frontend, 0
    is_all = True
    try:
        for place, publication in enumerate(frontend.retained.walk(wanted)):
            if place % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if publication is None:
                continue
            if cleared == CLEARED_MAX:
                is_all = False
                break
            clear(frontend, publication.topic, clock())
            cleared += 1
            if cleared % CLEARED_AT_ONCE == 0:
                _turn(insight)
                await asyncio.sleep(0)
    except NotCleared as error:
        raise NotCleared(f"{cleared} were cleared, then: {error}") from error
    finally:
        _turn(insight)
        if cleared:
            text = "an operator cleared retained messages"
            insight.notices.tell(Level.WARNING, "retained-cleared", text, topic=wanted.text, count=cleared)
    await kept(insight)
    return {"topic": wanted.text, "cleared": cleared, "is_all": is_all}


def _turn(insight: Insight) -> None:
    insight.reactor.turn()
    insight.reactor.arm()


ACTS: Final[dict[str, tuple[Act, frozenset[str]]]] = {"clear": (_clear, frozenset({"topic"}))}
