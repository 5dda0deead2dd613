"""Who holds how much memory: one account for each user, and for each address whose clients name no user.

What stays (sessions, wills, subscriptions, topic aliases, retained messages) is granted as long as its account would
then hold no more of it than is left free for all. These are the dynamic thresholds of Choudhury and Hahne ("Dynamic
Queue Length Thresholds for Shared-Memory Packet Switches", 1998) with alpha = 1: one account alone gets half, two get a
third each, and however many there are, as much as each of them has stays free for whoever comes next.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Final, NamedTuple

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import source_of
from edgebridge.session.footprint import (
    CONNECTION_BYTES,
    INFLIGHT_BYTES,
    QUEUED_BYTES,
    RECEIVED_ID_BYTES,
    RECORD_BYTES,
    SESSION_BYTES,
    HeldKind,
)
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.names import ClientId

CHECK_INTERVAL: Final = 100 * MILLISECOND
"""Somebody is refused for what was measured so long ago at most."""
DURABLE_SHARE: Final = 0.75
"""Of all memory: what may wait for durable sessions. The rest is always there for who is connected."""
GRANTED_SHARE: Final = 0.85
"""Of all memory: beyond it nothing more that stays is granted. The rest is for messages on their way."""
RESTORED_SHARE: Final = 0.75
"""Of all memory: beyond it no subscription of a journal is taken back, so that there is room for who comes then."""
RETAINED_SHARE: Final = 0.5
"""Of all memory: what all retained messages may take. A message that nobody reads must not keep clients out."""
WARNING_SHARE: Final = 0.8
"""Of all memory: beyond it an operator is warned."""
GATEWAY: Final = ""
"""The account of the gateway itself, of its bridges, and of sessions from the journal that belong to no user. It is
refused nothing."""
OVER_SHARE: Final = "too much memory is held by all clients of this user or address"
"""What a client is told that is refused something."""


USER_ACCOUNT: Final = "user "
"""Begins the account of a user; those of addresses begin with another word."""


@lru_cache(256)
def _account_of_source(source: str) -> str:
    return f"address {source}"


def account_of_user(user: str) -> str:
    """The account of *user*; empty: that of a session from the journal that belongs to no user."""
    return f"{USER_ACCOUNT}{user}" if user else GATEWAY


def user_of_account(account: str) -> str | None:
    """The user whose account it is, empty for anonymous clients; None for the gateway, its bridges and its peers."""
    return None if account == GATEWAY else account[len(USER_ACCOUNT) :] if account.startswith(USER_ACCOUNT) else ""


def account_of(connection: Connection, user: str) -> str:
    """The account of a client on *connection* that proved to be *user*; empty: it names none, and its address counts.

    A session has the account of its last connection (`Session.account`).
    """
    if connection.listener_context.verdict is not None:
        return GATEWAY
    return account_of_user(user) or _account_of_source(source_of(connection.peer))


def account_title(account: str) -> str:
    """The account in words for an operator."""
    return account or "the gateway itself"


class MemoryHolder(NamedTuple):
    """Who can be made to let go of memory: a connection by its end, a session by the loss of its queue."""

    size: int
    order: int
    """Of two of the same size the one with the greater order goes first. No two have the same."""
    holder: Connection | Session
    account: str


class MemoryAccounts:
    """Measures what all clients hold, and grants what would stay. `sessions` and `connections` are those of the front
    end.
    """

    def __init__(self, bytes_max: int, retained: RetainedStore) -> None:
        self.sessions: dict[ClientId, Session] = {}
        self.connections: dict[int, Connection] = {}
        self._retained = retained
        self.bytes_max = 0
        self.held_bytes = 0
        """Bytes, when it was last measured, and what was granted since."""
        self.durable_bytes = 0
        """Of these, what waits for durable sessions."""
        self.by_kind: dict[HeldKind, int] = dict.fromkeys(HeldKind, 0)
        """The same by kind."""
        self.by_account: dict[str, int] = {}
        """The same by account."""
        self._passing: dict[str, int] = {}  # of these, what does not stay: queues and buffers
        self.refused: Counter[HeldKind] = Counter()
        """What was not granted, by kind."""
        self.not_restored: Counter[HeldKind] = Counter()
        """What a journal had and memory has no room for, by kind."""
        self.measured_at: Instant = -CHECK_INTERVAL
        self.set_bound(bytes_max)

    def set_bound(self, bytes_max: int) -> None:
        """All clients together may hold *bytes_max* from now on. What was granted stays granted."""
        self.bytes_max = bytes_max
        self._retained.memory_bytes_max = int(bytes_max * RETAINED_SHARE)

    def admits(self, account: str, size: int, kind: HeldKind, now: Instant) -> bool:
        """Whether *account* may hold *size* bytes more; if so, they are counted. What frees memory always may."""
        if size > 0 and account != GATEWAY and not self._has_room(account, size):
            if now - self.measured_at >= CHECK_INTERVAL:
                self.measure(now)  # somebody may have let go of something
            if not self._has_room(account, size):
                self.refused[kind] += 1
                return False
        self._grow(account, size, kind)
        return True

    def withdraw(self, account: str, size: int, kind: HeldKind) -> None:
        """What was granted is not held after all."""
        self._grow(account, -size, kind)

    def restores(self, account: str, size: int, kind: HeldKind) -> bool:
        """Whether there is room for *size* bytes that a journal had, whoever holds them; if so, they are counted."""
        if self.held_bytes + size > self.bytes_max * RESTORED_SHARE:
            self.not_restored[kind] += 1
            return False
        self._grow(account, size, kind)
        return True

    def durable_excess(self) -> int:
        """The bytes that wait for durable sessions beyond DURABLE_SHARE: more is refused already, and newcomers are not
        to blame for it.
        """
        return max(0, self.durable_bytes - int(self.bytes_max * DURABLE_SHARE))

    def _has_room(self, account: str, size: int) -> bool:
        free = self.bytes_max * GRANTED_SHARE + self.durable_excess() - self.held_bytes
        staying = self.by_account.get(account, 0) - self._passing.get(account, 0)
        return staying + size <= free - size

    def _grow(self, account: str, size: int, kind: HeldKind) -> None:
        self.held_bytes += size
        self.by_kind[kind] += size
        self.by_account[account] = self.by_account.get(account, 0) + size

    def measure(self, now: Instant) -> list[MemoryHolder]:
        """Measure what everybody holds, which takes 4 ms for 10,000 clients; return who holds what can be freed."""
        accounts = self._retained.memory_by_account()
        passing: dict[str, int] = {}
        holders: list[MemoryHolder] = []
        transports = connected = buffers = aliases = subscriptions = wills = queues = durable = identifiers = 0
        for number, session in enumerate(self.sessions.values()):
            account = session.account
            total = SESSION_BYTES
            connection = session.connection
            if connection is not None:
                connected += 1
                total += CONNECTION_BYTES + connection.transport_bytes
                transports += connection.transport_bytes
                size = connection.pending_bytes + connection.job_bytes + connection.out_bytes
                if size:
                    buffers += self._measure_buffers(connection, account, holders)
                    passing[account] = passing.get(account, 0) + size
                    total += size
                if connection.alias_bytes or connection.out_aliases is not None:
                    size = connection.alias_bytes
                    if connection.out_aliases is not None:
                        size += connection.out_aliases.held_bytes
                    aliases += size
                    total += size
            if session.subscribed:
                size = session.subscription_bytes + RECORD_BYTES * len(session.subscription_records)
                if session.filter_usage is not None:
                    size += session.filter_usage.held_bytes
                subscriptions += size
                total += size
            if session.will is not None:
                wills += session.will_bytes
                total += session.will_bytes
            if session.received:
                size = RECEIVED_ID_BYTES * len(session.received)
                identifiers += size
                total += size
            outbox, inflight = session.outbox, session.inflight
            size = outbox.held_bytes - outbox.paged_bytes + inflight.held_bytes
            if size:
                size += QUEUED_BYTES * (len(outbox) - outbox.paged_messages) + INFLIGHT_BYTES * len(inflight)
                queues += size
                passing[account] = passing.get(account, 0) + size
                total += size
                if session.number:
                    durable += size
                else:
                    holders.append(MemoryHolder(size, -number, session, account))
            accounts[account] = accounts.get(account, 0) + total
        if connected < len(self.connections):  # some have no session yet, or not any more
            stranger_buffers, stranger_transports = self._measure_strangers(accounts, holders)
            buffers += stranger_buffers
            transports += stranger_transports
        self.by_account, self._passing = accounts, passing
        self.by_kind = {
            HeldKind.BUFFERS: buffers,
            HeldKind.CONNECTIONS: CONNECTION_BYTES * len(self.connections) + transports,
            HeldKind.SESSIONS: SESSION_BYTES * len(self.sessions) + identifiers,
            HeldKind.SUBSCRIPTIONS: subscriptions,
            HeldKind.TOPIC_ALIASES: aliases,
            HeldKind.WILLS: wills,
            HeldKind.QUEUES: queues,
            HeldKind.RETAINED: self._retained.memory_bytes,
        }
        self.held_bytes = sum(self.by_kind.values())
        self.durable_bytes = durable
        self.measured_at = now
        return holders

    def _measure_strangers(self, accounts: dict[str, int], holders: list[MemoryHolder]) -> tuple[int, int]:
        """Measure the connections without a session, and return what their buffers hold, and what TLS does for them."""
        buffers = transports = 0
        for connection in self.connections.values():
            if connection.session is None or connection.session.connection is not connection:
                account = account_of(connection, connection.verdict.user)
                size = self._measure_buffers(connection, account, holders)
                accounts[account] = accounts.get(account, 0) + size + CONNECTION_BYTES + connection.transport_bytes
                buffers += size
                transports += connection.transport_bytes
        return buffers, transports

    def _measure_buffers(self, connection: Connection, account: str, holders: list[MemoryHolder]) -> int:
        size = connection.pending_bytes + connection.job_bytes + connection.out_bytes
        if size and not connection.closing:
            holders.append(MemoryHolder(size, connection.number, connection, account))
        return size

    def largest(self) -> tuple[str, int]:
        """The account that holds most, but for the gateway's own, and how many bytes. Empty and 0: nobody does."""
        named = ((size, account) for account, size in self.by_account.items() if account != GATEWAY)
        size, account = max(named, default=(0, GATEWAY))
        return account, size

    def largest_kind(self, account: str) -> HeldKind:
        """The kind that *account* holds most of. Looks at all sessions: for somebody who is warned."""
        alone = MemoryAccounts(self.bytes_max, RetainedStore(0, 0))
        alone.sessions = {name: one for name, one in self.sessions.items() if one.account == account}
        alone.measure(0)
        alone.by_kind[HeldKind.RETAINED] = self._retained.memory_by_account().get(account, 0)
        return max(alone.by_kind, key=lambda kind: alone.by_kind[kind])
