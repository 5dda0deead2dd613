"""The bound on the memory that all clients hold together: beyond it, the largest holder is disconnected first.

Memory is measured whenever an eighth of what is left could have been used up since the last time, by bytes that were
read or by messages that wait, and once a minute while much is used. Nothing is added up for each message. Packets
that several clients wait for count for each of them, though memory has them once: this bound errs on the safe side.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, MINUTE, Instant
from edgebroker.limits import MIB

STEP_BYTES = 1 * MIB
"""Measured no more often than so many bytes are read: to look at 10,000 clients takes 5 ms."""
MESSAGE_BYTES = 300
"""What a message that waits or is retained takes besides its payload, topic and properties: objects, places in tables.
900,000 with 64 bytes of payload in the queues of 900 sessions took 366 bytes each."""
WATCHED_SHARE = 0.125
"""Of what is allowed: what is measured again every MINUTE."""
CHECK_INTERVAL = 100 * MILLISECOND
"""While it is tight, and clients knock."""
DURABLE_SHARE = 0.75
"""What may wait for kept sessions, of all that is allowed. The rest is always there for who is connected."""
RELIEF_SHARE = 0.9
"""What is left after relief, of what is allowed: or the next message would need it again."""


class MemoryLimit:
    """Watches over `bytes_max`. What waits for kept sessions was acknowledged, and is never dropped for it: when it
    fills KEPT_SHARE, messages for readers that are away or behind are refused instead (P2).
    """

    def __init__(
        self,
        bytes_max: int,
        connections: Mapping[int, Connection],
        connect_handler: ConnectHandler,
        retained: RetainedStore,
        delivery: Delivery,
        session_journal: SessionJournal,
    ) -> None:
        self.bytes_max = bytes_max
        self._journal = session_journal
        self._connections = connections
        self._connect_handler = connect_handler
        self._retained = retained
        self._delivery = delivery
        self.held_bytes = 0
        """Bytes, when it was last measured."""
        self._is_tight = False
        self.relieved = 0
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
        if self._is_tight and now - self._checked_at >= CHECK_INTERVAL:
            self.check(now)  # meanwhile somebody may have read
        return self._is_tight

    def check_if_full(self, now: Instant) -> None:
        """Measure again while nothing more may wait for durable sessions: meanwhile somebody may have read."""
        if self._journal.is_full and now - self._checked_at >= CHECK_INTERVAL:
            self.check(now)

    def check_if_due(self, now: Instant) -> None:
        """Measure if so many more messages wait that it may be too much: small ones weigh more than what was read of
        them; or if it was much a minute ago. To be called now and then, and after a journal was read back.
        """
        self.check_if_full(now)
        was_much = self.held_bytes > self.bytes_max * WATCHED_SHARE and now - self._checked_at >= MINUTE
        if was_much or (self._connect_handler.queued.messages - self._waiting) * MESSAGE_BYTES >= self.due:
            self.check(now)

    def check(self, now: Instant) -> None:
        """Measure, and relieve if it is too much."""
        holders: list[tuple[int, int, Connection | Session]] = []
        kept = 0
        total = self._retained.held_bytes + MESSAGE_BYTES * len(self._retained)
        for connection in self._connections.values():
            octets = connection.pending_bytes + connection.job_bytes + connection.out_bytes + connection.transport_bytes
            if octets and not connection.closing:
                total += octets
                holders.append((octets, connection.number, connection))
        for number, session in enumerate(self._connect_handler.sessions.values()):
            outbox, inflight = session.outbox, session.inflight
            octets = outbox.held_bytes + inflight.held_bytes + MESSAGE_BYTES * (len(outbox) + len(inflight))
            if session.number:
                kept += octets
            elif octets:
                total += octets
                holders.append((octets, -number, session))
        self._journal.is_full = kept > self.bytes_max * DURABLE_SHARE
        left = self.bytes_max - min(kept, int(self.bytes_max * DURABLE_SHARE))
        if total > left:
            holders.sort(key=lambda holder: holder[:2])
            while holders and total > left * RELIEF_SHARE:
                octets, _, holder = holders.pop()
                total -= self._relieve(holder, octets, now)
        self._is_tight = total > left * RELIEF_SHARE
        self.held_bytes = total + kept
        self._waiting = self._connect_handler.queued.messages
        self._checked_at = now
        self.unmeasured = 0
        self.due = self._distance()

    def _relieve(self, holder: Connection | Session, octets: int, now: Instant) -> int:
        """Take from *holder* what can be taken; how many bytes that is."""
        if isinstance(holder, Connection):
            self.relieved += 1
            if holder.is_open:
                why = "all clients together hold too much, and this one most of it"
                self._connect_handler.disconnect(holder, ReasonCode.QUOTA_EXCEEDED, why)
            else:
                holder.close()
            return octets
        freed = holder.outbox.held_bytes + MESSAGE_BYTES * len(holder.outbox)
        if freed:
            self.relieved += 1
            self._delivery.shed_queue(holder, now)
        return freed

    def _distance(self) -> int:
        return max(STEP_BYTES, (self.bytes_max - self.held_bytes) // 8)
