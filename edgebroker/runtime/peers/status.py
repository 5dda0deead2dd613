"""The state of links for operators: what a gateway tells of its own, and the answers of other gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any, Final

from edgebroker.instants import MILLISECOND
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.messages import StatusReply

REASON_CHARS_MAX: Final = 200
"""Of the reason of a link that is down, in what other gateways are told."""
STATUS_S: Final = 3.0
"""For the answers to a query: several round trips of a satellite and a batch of a metered link."""


class StatusAnswers:
    """The answers of other gateways to the last query for their links."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Admits one query at a time."""
        self._request = 0
        self._replies: dict[int, bytes] = {}
        self._wanted = 0
        self._is_complete = asyncio.Event()

    def begin(self, request: int, wanted: int) -> None:
        """Await the answers of *wanted* gateways to *request*."""
        self._request, self._wanted, self._replies = request, wanted, {}
        self._is_complete.clear()

    def receive(self, reply: StatusReply) -> None:
        """Take one answer; those to earlier queries are dropped."""
        if reply.request == self._request:
            self._replies[reply.gateway] = reply.report
            if len(self._replies) >= self._wanted:
                self._is_complete.set()

    async def wait(self) -> dict[int, bytes]:
        """Return the answers, number of a gateway -> report, when all are there or STATUS_S have passed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_complete.wait(), STATUS_S)
        return dict(self._replies)


def link_summaries(links: LinkTable, refused: Set[str], trouble: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the few figures of each link that other gateways are told. *refused*: the peers that need an operator;
    *trouble*: peer -> why there is no connection.
    """
    rows = []
    for link in links:
        peer, outbox, is_up = link.peer, link.outbox, link.connection is not None
        rows.append(
            {
                "peer": peer,
                "up": is_up,
                "refused": peer in refused,
                "reason": trouble.get(peer, "")[:REASON_CHARS_MAX],
                "round_trip_ms": round_trip_ms(link),
                "offset_ms": offset_ms(link) if is_up else None,
                "waiting": sum(len(queue) for queue in outbox.queues.values()),
                "waiting_bytes": sum(queue.bytes for queue in outbox.queues.values()),
                "dropped": {cause.name.lower(): count for cause, count in sorted(outbox.dropped.items())},
            }
        )
    return rows


def round_trip_ms(link: Link) -> float | None:
    """Returns the round trip of an open link; None if it is not open, or not measured."""
    is_measured = link.connection is not None and link.heartbeat.round_trip
    return link.heartbeat.round_trip / MILLISECOND if is_measured else None


def offset_ms(link: Link) -> float | None:
    """Returns how far the clock of the peer is ahead; None if that is not known."""
    offset = link.heartbeat.offset
    return None if offset is None else offset / MILLISECOND
