"""The bound on the memory that all clients hold together: beyond it, the largest account loses something first.

Memory is measured (`MemoryAccounts.measure`) whenever an eighth of what is left could have been used up since the last
time, by bytes that were read or by messages that wait, and once a minute while much is used. Nothing is added up for
each message. Packets that several clients wait for count for each of them, though memory has them once: this bound errs
on the safe side.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import TLS_BYTES
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.memory_accounts import CHECK_INTERVAL, GRANTED_SHARE, MemoryAccounts, MemoryHolder
from edgebridge.session.footprint import QUEUED_BYTES
from edgebridge.session.session import Session
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MINUTE, Instant
from edgebroker.limits import MIB

STEP_BYTES = 1 * MIB
"""Measured no more often than so many bytes are read: to look at 10,000 clients takes 4 ms."""
WATCHED_SHARE: Final = 0.125
"""Of what is allowed: what is measured again every MINUTE."""
PAGED_SHARE: Final = 0.25
"""Of what is allowed: when more waits in memory for durable sessions, the largest of their queues go to the disk."""
RELIEF_SHARE: Final = 0.9
"""What is left after relief, of what is allowed: or the next message would need it again."""
SHORTENED_AT_ONCE: Final = 64
"""Queues of which a page is moved to the disk each time: 8 MiB of the usual pages."""
ACCOUNT_SHARE: Final = 0.5
"""Of what is allowed: an account with more is cut down to it while all together are beyond GRANTED_SHARE. Others need
what is left to come in."""


class MemoryLimit:
    """Watches over the bound of *accounts*. What waits for kept sessions was acknowledged, and is never dropped for it:
    when it fills DURABLE_SHARE of it, messages for readers that are away or behind are refused instead (P2).
    """

    def __init__(
        self,
        accounts: MemoryAccounts,
        connect_handler: ConnectHandler,
        delivery: Delivery,
        pager: QueuePager,
    ) -> None:
        self.accounts = accounts
        self._pager = pager
        self._journal = pager.journal
        self._connect_handler = connect_handler
        self._delivery = delivery
        self._is_tight = False
        self.relieved = 0
        """Clients that were cut off or lost their queue for it."""
        self.unmeasured = 0
        """Bytes read since. Who adds to it calls `check` when it has become `due`."""
        self._queues_and_connections = 0  # bytes, when it was last measured
        self.due = self._distance()
        """How many bytes may be read before it is measured again."""

    @property
    def bytes_max(self) -> int:
        """What all clients may hold."""
        return self.accounts.bytes_max

    @property
    def held_bytes(self) -> int:
        """What all clients held when it was last measured, and what was granted since."""
        return self.accounts.held_bytes

    def is_tight(self, now: Instant) -> bool:
        """Whether nobody new should come in."""
        if self._is_tight and now - self.accounts.measured_at >= CHECK_INTERVAL:
            self.check(now)  # meanwhile somebody may have read
        return self._is_tight

    def check_if_full(self, now: Instant) -> None:
        """Measure again while nothing more may wait for durable sessions: meanwhile somebody may have read."""
        if self._journal.is_full and now - self.accounts.measured_at >= CHECK_INTERVAL:
            self.check(now)

    def check_if_due(self, now: Instant) -> None:
        """Measure if so much more is held that it may be too much: small messages weigh more than what was read of
        them, and TLS more than its handshake; or if it was much a minute ago. To be called now and then, and after a
        journal was read back.
        """
        self.check_if_full(now)
        was_much = self.held_bytes > self.bytes_max * WATCHED_SHARE and now - self.accounts.measured_at >= MINUTE
        if was_much or self._count_queues_and_connections() - self._queues_and_connections >= self.due:
            self.check(now)

    def _count_queues_and_connections(self) -> int:
        queued, connecting = self._connect_handler.queued, self._connect_handler.connecting
        connections = TLS_BYTES * len(self.accounts.connections) + connecting.handshake_bytes
        return queued.bytes + QUEUED_BYTES * queued.messages + connections

    def check(self, now: Instant) -> None:
        """Measure, and relieve if it is too much."""
        accounts, bytes_max = self.accounts, self.bytes_max
        holders = accounts.measure(now)
        durable, excess = accounts.durable_bytes, accounts.durable_excess()
        self._journal.is_full = excess > 0
        if durable > bytes_max * PAGED_SHARE:
            self._shorten_queues(durable - int(bytes_max * PAGED_SHARE), now)
        allowed = bytes_max + excess
        if accounts.held_bytes > allowed:
            self._relieve(holders, allowed - int((1 - RELIEF_SHARE) * (allowed - durable)), 0, now)
        elif accounts.held_bytes > bytes_max * GRANTED_SHARE:
            self._relieve(holders, int(bytes_max * GRANTED_SHARE), int(bytes_max * ACCOUNT_SHARE), now)
        self._is_tight = accounts.held_bytes - durable > RELIEF_SHARE * (allowed - durable)
        self._queues_and_connections = self._count_queues_and_connections()
        self.unmeasured = 0
        self.due = self._distance()

    def _relieve(self, holders: list[MemoryHolder], target: int, account_max: int, now: Instant) -> None:
        """Free memory until *target* is left: always from the account that holds most, as long as that is more than
        *account_max*, and of its clients from the one that holds most.
        """
        accounts = self.accounts
        by_account: defaultdict[str, list[MemoryHolder]] = defaultdict(list)
        for holder in sorted(holders, key=lambda one: one[:2]):
            by_account[holder.account].append(holder)
        order = [(-accounts.by_account[account], account) for account in by_account]
        heapq.heapify(order)
        while order and accounts.held_bytes > target and -order[0][0] > account_max:
            account = order[0][1]
            freed = self._free(by_account[account].pop(), now)
            accounts.held_bytes -= freed
            accounts.by_account[account] -= freed
            if by_account[account]:
                heapq.heapreplace(order, (-accounts.by_account[account], account))
            else:
                heapq.heappop(order)

    def _free(self, held: MemoryHolder, now: Instant) -> int:
        """Take from the holder what can be taken; how many bytes that is."""
        holder = held.holder
        if isinstance(holder, Connection):
            self.relieved += 1
            if holder.is_open:
                why = "all clients together hold too much, and those of this user or address most of it"
                self._connect_handler.disconnect(holder, ReasonCode.QUOTA_EXCEEDED, why)
            else:
                holder.close()
            return held.size
        freed = holder.outbox.held_bytes + QUEUED_BYTES * len(holder.outbox)
        if freed:
            self.relieved += 1
            self._delivery.shed_queue(holder, now)
        return freed

    def _shorten_queues(self, size: int, now: Instant) -> None:
        """Move a page of each of the largest queues of durable sessions to the disk, until *size* bytes are free."""
        sessions = [one for one in self._connect_handler.sessions.values() if one.number and one.outbox.tail_messages]
        for session in heapq.nlargest(SHORTENED_AT_ONCE, sessions, key=_size_in_memory):
            if size <= 0:
                break
            if session.outbox.can_page():
                size -= _size_in_memory(session)
                self._pager.shorten(session, now)

    def _distance(self) -> int:
        return max(STEP_BYTES, (self.bytes_max - self.held_bytes) // 8)


def _size_in_memory(session: Session) -> int:
    outbox = session.outbox
    return outbox.held_bytes - outbox.paged_bytes + QUEUED_BYTES * (len(outbox) - outbox.paged_messages)
