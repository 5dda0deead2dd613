"""The queue of messages that wait for the rate limit or the daily budget of a bridge, in order of arrival.

Only PUBLISH from our front end is queued; acknowledgements, PUBREL and pings are not delayed. Messages of QoS 1 and
2 are not acknowledged while they wait, so the session keeps them and sends no more than its window. QoS 0 has a bound
in bytes here.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from edgebridge.bridge.counters import BridgeCounters, BridgeDropCause
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.options import LocalSession
from edgebridge.bridge.outbound import OutboundFlow
from edgebridge.bridge.shaper import Shaper
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Property, number
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import KIB

QOS: Final = 0x06  # in the first byte
DUP: Final = 0x08  # the same
QOS0_DELAY_MAX: Final[Duration] = 10 * SECOND
"""So long a message of QoS 0 may wait for others of QoS 0, by the rate: later it says nothing that is still true."""
QOS0_BYTES_MIN: Final = 1 * KIB
QOS0_BYTES_MAX: Final = 256 * KIB
TICK: Final[Duration] = 50 * MILLISECOND
"""So far apart messages go out at least, as many as the rate gives: a wake-up for each would cost more than they do."""


class PacedPublish(NamedTuple):
    """A PUBLISH that waits."""

    first: int
    body: bytes
    since: Instant


class PacingQueue:
    """Before the way out."""

    def __init__(
        self, shaper: Shaper, outward: OutboundFlow, ends: Endpoints, tally: BridgeCounters, memory: LocalSession
    ) -> None:
        self.now: Instant = 0
        """Whoever comes to the gate sets it."""
        self._shaper = shaper
        self._outbound = outward
        self._endpoints = ends
        self._counters = tally
        self._local_session = memory
        self._waiting: deque[PacedPublish] = deque()
        self._qos0_bytes = 0
        self._due: Instant | None = None
        # Packet identifiers whose message the session sent for the first time in our life, and that never went to the
        # remote: 65,535 at most. What was there before us may have gone.
        self._unsent: set[int] = set()

    @property
    def waiting_messages(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """As they came."""
        return sum(len(held.body) for held in self._waiting)

    def try_fast_path(self, first: int, body: bytes) -> bool:
        """A PUBLISH of ours goes out, or waits. True: either is seen to here."""
        if first & DUP and self._unsent and _decode_publish(first, body).packet_id in self._unsent:
            first &= ~DUP  # it waited here when the last connection ended: the remote never saw it
        if self._waiting or self._shaper.must_wait(self.now):
            self._enqueue(first, body)
            return True
        self._forward(first, body, self.now)
        return True

    def fire(self, now: Instant) -> None:
        """Let through what may go. Batches whose time is over were let through when they were gathered."""
        self.now = now
        if not self._shaper.must_hold_batches:
            before = len(self._endpoints.remote)
            self._outbound.fire(now)
            self._charge(before)
        while self._waiting and not self._shaper.must_wait(now):
            held = self._waiting.popleft()
            if not held.first & QOS:
                self._qos0_bytes -= len(held.body)
            self._forward(held.first, held.body, held.since)
        if self._qos0_bytes and self._shaper.is_budget_spent:
            self._drop_qos0(BridgeDropCause.BUDGET)
        self._due = max(self._shaper.blocked_until, now + TICK) if self._waiting else None

    def due(self) -> Instant | None:
        """When to call `fire`. Where the day's bytes are spent, not before the clock has shown another day."""
        batches = None if self._shaper.must_hold_batches else self._outbound.due()
        messages = None if self._shaper.is_budget_spent and not self._qos0_bytes else self._due
        return min((due for due in (batches, messages) if due is not None), default=None)

    def close(self) -> None:
        """The connection is over: QoS 1 and 2 come again from the session, and QoS 0 is lost."""
        self._drop_qos0(BridgeDropCause.ABSENT)
        self._waiting.clear()
        self._due = None
        self._unsent.update(self._outbound.close())
        self._shaper.batched_bytes = 0

    def _enqueue(self, first: int, body: bytes) -> None:
        if not first & QOS:
            if self._shaper.is_budget_spent:
                self._counters.dropped[BridgeDropCause.BUDGET] += 1
                return
            if self._qos0_bytes + len(body) > self._qos0_bytes_max and self._qos0_bytes:
                self._counters.dropped[BridgeDropCause.RATE] += 1
                return
            self._qos0_bytes += len(body)
        elif not first & DUP:
            self._unsent.add(_decode_publish(first, body).packet_id)
        self._waiting.append(PacedPublish(first, body, self.now))
        if self._due is None:
            self._due = max(self._shaper.blocked_until, self.now + TICK)

    def _drop_qos0(self, cause: BridgeDropCause) -> None:
        kept = [held for held in self._waiting if held.first & QOS]
        if len(kept) < len(self._waiting):
            self._counters.dropped[cause] += len(self._waiting) - len(kept)
            self._waiting = deque(kept)
        self._qos0_bytes = 0

    @property
    def _qos0_bytes_max(self) -> int:
        """Bytes of QoS 0 that may wait."""
        if not self._shaper.rate_bytes_s:
            return QOS0_BYTES_MAX
        return min(max(self._shaper.rate_bytes_s * QOS0_DELAY_MAX // SECOND, QOS0_BYTES_MIN), QOS0_BYTES_MAX)

    def _forward(self, first: int, body: bytes, since: Instant) -> None:
        before = len(self._endpoints.remote)
        waited_s = (self.now - since) // SECOND
        if first & DUP:  # the remote may have it: what is begun is finished
            waited_s = 0
        if first & QOS and (waited_s or self._unsent):
            publish = _decode_publish(first, body)
            is_again = publish.packet_id in self._unsent and not first & DUP
            self._unsent.discard(publish.packet_id)
            if (waited_s or is_again) and self._local_session.is_too_old(publish.packet_id, self.now):
                self._outbound.drop_aged(publish)
                return
        if not self._outbound.try_fast_path(first, body):
            self._publish(_decode_publish(first, body), waited_s)
        self._charge(before)

    def _charge(self, before: int) -> None:
        """For what was said to the remote since it was *before*, and for what waits for others."""
        if octets := sum(map(len, self._endpoints.remote[before:])):
            self._shaper.charge(octets, self.now)
        self._shaper.batched_bytes = self._outbound.batched_bytes

    def _publish(self, publish: Publish, waited_s: int) -> None:
        """The long way. What a message has left to live is less by what it has waited here."""
        left = number(publish.properties, Property.MESSAGE_EXPIRY_INTERVAL, 0)
        if waited_s and left:
            if left <= waited_s:
                self._outbound.drop_expired(publish)
                return
            publish.properties[Property.MESSAGE_EXPIRY_INTERVAL] = left - waited_s
        self._outbound.publish(publish, self.now)


def _decode_publish(first: int, body: bytes) -> Publish:
    publish = decode_packet(first, body, V5)
    assert isinstance(publish, Publish)
    return publish
