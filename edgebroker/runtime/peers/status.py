"""The state of links for operators: what a gateway tells of its own, and the answers of other gateways."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any, Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, MINUTE, NEVER, SECOND, Duration, Instant
from edgebroker.limits import MIB
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.messages import STATUS_REPORT_BYTES_MAX, StatusReply

CLOCK_OFFSET_MAX: Final[Duration] = MINUTE
"""Message expiry and the order of retained messages go by the clocks of gateways: a minute off is no drift."""
RECENT: Final[Duration] = 15 * MINUTE
"""For so long dropped messages are a reason not to be healthy."""
LOST_CAUSES: Final = (Cause.QUEUE_FULL, Cause.DAMAGED, Cause.LEASE_ENDED)
"""Causes of drops in outboxes that no operator asked for, and that concern acknowledged messages."""
LEASE_WARNING_SHARE: Final = 4
"""In the last quarter of the lease of a peer that is not reached somebody has to do something."""


@dataclass(frozen=True, slots=True)
class LinkNotice:
    """A line for the operator's log."""

    name: str
    text: str
    peer: str


class LinkWatch:
    """Watches the links for what endangers acknowledged messages, and for clocks that differ."""

    def __init__(self, links: LinkTable, lease_s: int, now: Instant) -> None:
        self._links = links
        self._lease = lease_s * SECOND
        self._down_since: dict[str, Instant] = {link.peer: now for link in links}
        self._dropped: dict[str, int] = {}
        self._dropped_at: dict[str, Instant] = {}
        self.clocks: dict[str, str] = {}
        """Peer -> by how much its clock differs, where that is more than CLOCK_OFFSET_MAX."""
        self.clock_differences: dict[str, int] = {link.peer: 0 for link in links}
        """Peer -> how often its clock began to differ."""

    def peer_up(self, peer: str) -> None:
        """Record that the link to *peer* is open."""
        self._down_since.pop(peer, None)

    def peer_down(self, peer: str, now: Instant) -> None:
        """Record that the link to *peer* is closed."""
        self._down_since.setdefault(peer, now)

    def check(self, now: Instant) -> list[LinkNotice]:
        """Look at all links, to be called every few seconds. Returns what has changed."""
        notices = []
        for link in self._links:
            peer, dropped = link.peer, link.outbox.dropped.get(Cause.QUEUE_FULL, 0)
            if dropped != self._dropped.get(peer, 0):
                self._dropped[peer], self._dropped_at[peer] = dropped, now
            offset = link.heartbeat.offset if link.connection is not None else None
            if offset is None:
                continue
            if abs(offset) > CLOCK_OFFSET_MAX:
                text = f"the clock of {peer} is {_span(offset)} {'ahead of' if offset > 0 else 'behind'} this one"
                if peer not in self.clocks:
                    self.clock_differences[peer] += 1
                    notices.append(LinkNotice("clock-differs", text, peer))
                self.clocks[peer] = text
            elif self.clocks.pop(peer, ""):
                notices.append(LinkNotice("clock-agrees", f"the clock of {peer} agrees with this one again", peer))
        return notices

    def risks(self, now: Instant) -> list[str]:
        """Return why acknowledged messages are at risk, a line for each reason."""
        lines = []
        for link in self._links:
            peer = link.peer
            if link.outbox.is_nearly_full:
                messages, size, _ = link.outbox.use
                what = "refused" if link.outbox.refuses else "dropped"
                held = f"{size / MIB:.1f} MiB, {messages:,} messages"
                lines.append(f"the outbox for {peer} is nearly full ({held}): what it wants will be {what}")
            if now - self._dropped_at.get(peer, -NEVER) < RECENT:
                lines.append(f"messages for {peer} were dropped in the last 15 minutes, because its outbox was full")
            left = self._lease_left(peer, now)
            if left is not None and 0 < left <= self._lease // LEASE_WARNING_SHARE:
                away = _span(self._lease - left)
                lines.append(
                    f"{peer} has not been reached for {away}: nothing more is kept for its sessions from {_span(left)}"
                    " on (overlay.lease_s)"
                )
        return lines

    def warnings(self, now: Instant) -> list[str]:
        """Return what needs an operator and endangers nothing that was acknowledged."""
        lines = []
        for link in self._links:
            lost = {cause.name.lower(): count for cause, count in link.outbox.dropped.items() if cause in LOST_CAUSES}
            if lost:
                counts = ", ".join(f"{count:,} {cause}" for cause, count in lost.items())
                lines.append(f"links: acknowledged messages for {link.peer} were dropped since the start: {counts}")
        for peer in self._down_since:
            left = self._lease_left(peer, now)
            if left is not None and left <= 0:
                lines.append(f"links: nothing is kept for the sessions of {peer} any more (overlay.lease_s)")
        return [*lines, *(f"clocks: {text}" for text in self.clocks.values())]

    def _lease_left(self, peer: str, now: Instant) -> Duration | None:
        """Return for how long things are still kept for *peer*; None while it is connected."""
        since = self._down_since.get(peer)
        return None if since is None else since + self._lease - now


def _span(duration: Duration) -> str:
    """Return a duration as text, in a unit that fits."""
    seconds = abs(duration) / SECOND
    for size, unit in ((24 * 3_600, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


REASON_CHARS_MAX: Final = 200
"""Of the reason of a link that is down, in what other gateways are told."""
REPORT_BYTES_MAX: Final = 2 * MIB
"""Of an inflated report: 6,000 peers."""
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


def encode_report(links: list[dict[str, Any]], more: Mapping[str, Any] | None = None) -> bytes:
    """Returns the report for other gateways as JSON, which is compressed if it is too large for a message otherwise.

    *more*: what else they are told, if there is room. If that does not suffice (more than 1,500 peers), links that are
    up are left out, and counted as `left_out`.
    """
    kept, more = links, more or {}
    while True:
        left_out = len(links) - len(kept)
        encoded = json.dumps({"links": kept, **({"left_out": left_out} if left_out else {}), **more}).encode()
        if len(encoded) > STATUS_REPORT_BYTES_MAX:
            encoded = zlib.compress(encoded, 6)
        if len(encoded) <= STATUS_REPORT_BYTES_MAX:
            return encoded
        if more:
            more = {}
            continue
        kept = sorted(kept, key=lambda row: bool(row["up"]))[: len(kept) * 7 // 8]


def decode_report(encoded: bytes) -> dict[str, Any]:
    """Returns a report as JSON values. Raises ValueError if it is none, or larger than REPORT_BYTES_MAX."""
    if not encoded.startswith(b"{"):
        inflate = zlib.decompressobj()
        try:
            encoded = inflate.decompress(encoded, REPORT_BYTES_MAX)
        except zlib.error as error:
            raise ValueError(f"a report cannot be read: {error}") from None
        if not inflate.eof:
            raise ValueError(f"a report is not complete, or has more than {REPORT_BYTES_MAX} bytes")
    try:
        report = json.loads(encoded)
    except RecursionError:
        raise ValueError("a report is nested too deeply") from None
    if not isinstance(report, dict) or not isinstance(report.get("links"), list):
        raise ValueError("a report has no list of links")
    return report


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
