"""What all clients together hold, and what happens when it is too much: the largest holder goes first.

Measured whenever so much was read, or so many messages more wait, that the rest of what is allowed could have been used
up by an eighth: while there is plenty that is hardly ever, and never is anything added up per message. And while it is
much, once a minute, for it may have become less: an operator is told that it is tight, or is no more. Packets that
several clients wait for count for each of them, though memory has them once: a bound that errs on the safe side.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgebridge.frontend.connecting import Connecting
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.keeping import Keeping
from edgebridge.session.retained import Retained
from edgebridge.session.session import Session
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, MINUTE, Instant
from edgebroker.limits import MIB

STEP_BYTES = 1 * MIB
"""Measured no more often than so many bytes are read: to look at 10,000 clients takes 5 ms."""
MESSAGE_BYTES = 300
"""What a message that waits or is retained takes besides its payload, topic and properties: objects, places in tables.
900,000 with 64 bytes of payload in the queues of 900 sessions took 366 bytes each."""
MUCH_SHARE = 0.125
"""Of what is allowed: what is measured again every MINUTE."""
CHECKED_EVERY = 100 * MILLISECOND
"""While it is tight, and clients knock."""
KEPT_SHARE = 0.75
"""What may wait for kept sessions, of all that is allowed. The rest is always there for who is connected."""
RELIEF = 0.9
"""What is left after relief, of what is allowed: or the next message would need it again."""


class Memory:
    """Watches over `bytes_max`. What waits for kept sessions was acknowledged, and is never dropped for it: when it
    fills KEPT_SHARE, messages for readers that are away or behind are refused instead (P2).
    """

    def __init__(
        self,
        bytes_max: int,
        connections: Mapping[int, Connection],
        connecting: Connecting,
        retained: Retained,
        delivery: Delivery,
        keeping: Keeping,
    ) -> None:
        self.bytes_max = bytes_max
        self._keeping = keeping
        self._connections = connections
        self._connecting = connecting
        self._retained = retained
        self._delivery = delivery
        self.held = 0
        """Bytes, when it was last measured."""
        self._is_tight = False
        self.cut = 0
        """Clients that were cut off or lost their queue for it."""
        self.unmeasured = 0
        """Bytes read since. Who adds to it calls `check` when it has become `due`."""
        self._waiting = 0
        """Messages in queues, when it was last measured."""
        self._checked_at: Instant = 0
        self.due = self._distance()
        """How many bytes may be read before it is measured again."""

    def is_tight(self, now: Instant) -> bool:
        """Whether nobody new should come in."""
        if self._is_tight and now - self._checked_at >= CHECKED_EVERY:
            self.check(now)  # meanwhile somebody may have read
        return self._is_tight

    def is_full(self, now: Instant) -> bool:
        """Whether nothing more should wait for kept sessions."""
        if self._keeping.is_full and now - self._checked_at >= CHECKED_EVERY:
            self.check(now)
        return self._keeping.is_full

    def look(self, now: Instant) -> None:
        """Measure if so many more messages wait that it may be too much: small ones weigh more than what was read of
        them; or if it was much a minute ago. To be called now and then, and after a journal was read back.
        """
        was_much = self.held > self.bytes_max * MUCH_SHARE and now - self._checked_at >= MINUTE
        if was_much or (self._connecting.queued.messages - self._waiting) * MESSAGE_BYTES >= self.due:
            self.check(now)

    def check(self, now: Instant) -> None:
        """Measure, and relieve if it is too much."""
        holders: list[tuple[int, int, Connection | Session]] = []
        kept = 0
        total = self._retained.held_bytes + MESSAGE_BYTES * len(self._retained)
        for connection in self._connections.values():
            octets = connection.pending_bytes + connection.errand_bytes + connection.out_bytes
            if octets and not connection.closing:
                total += octets
                holders.append((octets, connection.number, connection))
        for number, session in enumerate(self._connecting.sessions.values()):
            outbox, inflight = session.outbox, session.inflight
            octets = outbox.held_bytes + inflight.held_bytes + MESSAGE_BYTES * (len(outbox) + len(inflight))
            if session.number:
                kept += octets
            elif octets:
                total += octets
                holders.append((octets, -number, session))
        self._keeping.is_full = kept > self.bytes_max * KEPT_SHARE
        left = self.bytes_max - min(kept, int(self.bytes_max * KEPT_SHARE))
        if total > left:
            holders.sort(key=lambda holder: holder[:2])
            while holders and total > left * RELIEF:
                octets, _, holder = holders.pop()
                total -= self._relieve(holder, octets, now)
        self._is_tight = total > left * RELIEF
        self.held = total + kept
        self._waiting = self._connecting.queued.messages
        self._checked_at = now
        self.unmeasured = 0
        self.due = self._distance()

    def _relieve(self, holder: Connection | Session, octets: int, now: Instant) -> int:
        """Take from *holder* what can be taken; how many bytes that is."""
        if isinstance(holder, Connection):
            self.cut += 1
            if holder.is_open:
                why = "all clients together hold too much, and this one most of it"
                self._connecting.dismiss(holder, ReasonCode.QUOTA_EXCEEDED, why)
            else:
                holder.close()
            return octets
        freed = holder.outbox.held_bytes + MESSAGE_BYTES * len(holder.outbox)
        if freed:
            self.cut += 1
            self._delivery.shed(holder, now)
        return freed

    def _distance(self) -> int:
        return max(STEP_BYTES, (self.bytes_max - self.held) // 8)
