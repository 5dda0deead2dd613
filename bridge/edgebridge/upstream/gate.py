"""Where messages for the remote wait until the toll lets them through, in the order in which they came.

Only PUBLISH of our own front end comes here: answers, PUBREL and pings are never behind it. At QoS 1 and 2 what waits
is not acknowledged, so the session keeps it, and sends no more than its window. At QoS 0 there is a bound here.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from edgebridge.upstream.ends import Ends
from edgebridge.upstream.outward import Outward
from edgebridge.upstream.tally import Cause, Tally
from edgebridge.upstream.terms import Memory
from edgebridge.upstream.toll import Toll
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Property, number
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import KIB

QOS: Final = 0x06  # in the first byte
DUP: Final = 0x08  # the same
QOS0_WAITS: Final[Duration] = 10 * SECOND
"""So long a message of QoS 0 may wait for others of QoS 0, by the rate: later it says nothing that is still true."""
QOS0_BYTES_MIN: Final = 1 * KIB
QOS0_BYTES_MAX: Final = 256 * KIB
TICK: Final[Duration] = 50 * MILLISECOND
"""So far apart messages go out at least, as many as the rate gives: a wake-up for each would cost more than they do."""


class Held(NamedTuple):
    """A PUBLISH that waits."""

    first: int
    body: bytes
    since: Instant


class Gate:
    """Before the way out."""

    def __init__(self, toll: Toll, outward: Outward, ends: Ends, tally: Tally, memory: Memory) -> None:
        self.now: Instant = 0
        """Whoever comes to the gate sets it."""
        self._toll = toll
        self._outward = outward
        self._ends = ends
        self._tally = tally
        self._memory = memory
        self._held: deque[Held] = deque()
        self._qos0_bytes = 0
        self._due: Instant | None = None
        # Packet identifiers whose message the session sent for the first time in our life, and that never went to the
        # remote: 65,535 at most. What was there before us may have gone.
        self._unsent: set[int] = set()

    @property
    def held(self) -> int:
        """Messages that wait."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """As they came."""
        return sum(len(held.body) for held in self._held)

    def express(self, first: int, body: bytes) -> bool:
        """A PUBLISH of ours goes out, or waits. True: either is seen to here."""
        if first & DUP and self._unsent and _publish(first, body).packet_id in self._unsent:
            first &= ~DUP  # it waited here when the last connection ended: the remote never saw it
        if self._held or self._toll.holds(self.now):
            self._hold(first, body)
            return True
        self._pass(first, body, self.now)
        return True

    def fire(self, now: Instant) -> None:
        """Let through what may go. Batches whose time is over were let through when they were gathered."""
        self.now = now
        if not self._toll.holds_batches:
            before = len(self._ends.remote)
            self._outward.fire(now)
            self._pay(before)
        while self._held and not self._toll.holds(now):
            held = self._held.popleft()
            if not held.first & QOS:
                self._qos0_bytes -= len(held.body)
            self._pass(held.first, held.body, held.since)
        if self._qos0_bytes and self._toll.is_spent:
            self._drop_qos0(Cause.BUDGET)
        self._due = max(self._toll.owed_until, now + TICK) if self._held else None

    def due(self) -> Instant | None:
        """When to call `fire`. Where the day's bytes are spent, not before the clock has shown another day."""
        batches = None if self._toll.holds_batches else self._outward.due()
        messages = None if self._toll.is_spent and not self._qos0_bytes else self._due
        return min((due for due in (batches, messages) if due is not None), default=None)

    def close(self) -> None:
        """The connection is over: QoS 1 and 2 come again from the session, and QoS 0 is lost."""
        self._drop_qos0(Cause.ABSENT)
        self._held.clear()
        self._due = None
        self._unsent.update(self._outward.close())
        self._toll.gathered_bytes = 0

    def _hold(self, first: int, body: bytes) -> None:
        if not first & QOS:
            if self._toll.is_spent:
                self._tally.dropped[Cause.BUDGET] += 1
                return
            if self._qos0_bytes + len(body) > self._qos0_most and self._qos0_bytes:
                self._tally.dropped[Cause.RATE] += 1
                return
            self._qos0_bytes += len(body)
        elif not first & DUP:
            self._unsent.add(_publish(first, body).packet_id)
        self._held.append(Held(first, body, self.now))
        if self._due is None:
            self._due = max(self._toll.owed_until, self.now + TICK)

    def _drop_qos0(self, cause: Cause) -> None:
        kept = [held for held in self._held if held.first & QOS]
        if len(kept) < len(self._held):
            self._tally.dropped[cause] += len(self._held) - len(kept)
            self._held = deque(kept)
        self._qos0_bytes = 0

    @property
    def _qos0_most(self) -> int:
        """Bytes of QoS 0 that may wait."""
        if not self._toll.rate_bytes_s:
            return QOS0_BYTES_MAX
        return min(max(self._toll.rate_bytes_s * QOS0_WAITS // SECOND, QOS0_BYTES_MIN), QOS0_BYTES_MAX)

    def _pass(self, first: int, body: bytes, since: Instant) -> None:
        before = len(self._ends.remote)
        waited_s = (self.now - since) // SECOND
        if first & DUP:  # the remote may have it: what is begun is finished
            waited_s = 0
        if first & QOS and (waited_s or self._unsent):
            publish = _publish(first, body)
            is_again = publish.packet_id in self._unsent and not first & DUP
            self._unsent.discard(publish.packet_id)
            if (waited_s or is_again) and self._memory.is_too_old(publish.packet_id, self.now):
                self._outward.too_old(publish)
                return
        if not self._outward.express(first, body):
            self._publish(_publish(first, body), waited_s)
        self._pay(before)

    def _pay(self, before: int) -> None:
        """For what was said to the remote since it was *before*, and for what waits for others."""
        if octets := sum(map(len, self._ends.remote[before:])):
            self._toll.pay(octets, self.now)
        self._toll.gathered_bytes = self._outward.gathered_bytes

    def _publish(self, publish: Publish, waited_s: int) -> None:
        """The long way. What a message has left to live is less by what it has waited here."""
        left = number(publish.properties, Property.MESSAGE_EXPIRY_INTERVAL, 0)
        if waited_s and left:
            if left <= waited_s:
                self._outward.expired(publish)
                return
            publish.properties[Property.MESSAGE_EXPIRY_INTERVAL] = left - waited_s
        self._outward.publish(publish, self.now)


def _publish(first: int, body: bytes) -> Publish:
    publish = decode_packet(first, body, V5)
    assert isinstance(publish, Publish)
    return publish
