"""Input that is no whole packet yet: a least rate for each packet, and a share of the memory for each account.

A packet may be announced with 16 MiB and never end. Without a bound, seventeen such packets fill the memory that all
clients share, and nobody new is let in. So a packet has a deadline that follows from its size, and what one account (a
user, or an address where no user is named) holds unfinished is a part of `quota.memory_bytes_max` at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.handlers.connect import DisplacementCause
from edgebridge.frontend.handlers.disconnect import Disconnector
from edgebridge.frontend.memory_accounts import account_of
from edgebridge.frontend.options import Quota
from edgebridge.session.lifecycle import CONNECTED
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import LARGE_PACKET_BYTES
from edgebroker.node.timers import TimerQueue

ACCOUNT_SHARE: Final = 4
"""One account may hold one part in so many of `memory_bytes_max` in packets that are not whole: 32 MiB of 128 MiB."""
ALL_SHARE: Final = 2
"""All accounts together: the other half is for what waits, so unfinished packets alone never refuse a newcomer."""


class UnfinishedInput:
    """Disconnects clients whose unfinished packets take too long or hold too much.

    Nothing is done for a packet that arrives whole. `check` runs when memory is measured, after many bytes were read.
    """

    def __init__(
        self, connections: Mapping[int, Connection], disconnector: Disconnector, timers: TimerQueue, grace_s: int
    ) -> None:
        """*grace_s*: the time that every packet has besides that for its bytes."""
        self._connections = connections
        self._disconnector = disconnector
        self._timers = timers
        self._grace: Duration = grace_s * SECOND

    def check_rate(self, connection: Connection, quota: Quota, now: Instant) -> None:
        """The timer of a large unfinished packet: disconnect who is too slow, or look again when it is due.

        The timer stays if another packet has begun meanwhile, and ends if none is unfinished.
        """
        rate = quota.packet_bytes_per_s_min
        is_unfinished = connection.pending_bytes > 0 and connection.pending_wanted >= LARGE_PACKET_BYTES
        if not rate or not is_unfinished or connection.closing:
            connection.is_packet_timed = False
            return
        if connection.is_held:  # it is we who do not read
            connection.packet_begun_at = now
        due = connection.packet_begun_at + self._grace + connection.pending_wanted * SECOND // rate
        if due > now:
            self._timers.set(("packet", connection.number), due)
            return
        why = f"a packet of {connection.pending_wanted:,} bytes came more slowly than {rate:,} bytes a second"
        self._displace(connection, DisplacementCause.SLOW_PACKET, why)

    def check(self, quota: Quota) -> None:
        """Disconnect the largest holders of accounts beyond their share, and of all if all are beyond theirs.

        An account may always have one unfinished packet, so the largest packet that is allowed can be sent.
        """
        by_account: dict[str, list[Connection]] = {}
        for connection in self._connections.values():
            if connection.pending_bytes and not connection.closing and not (_is_waiting_for_us(connection)):
                account = account_of(connection, connection.verdict.user)
                by_account.setdefault(account, []).append(connection)
        held = {account: _held_bytes(holders) for account, holders in by_account.items()}
        for account, holders in by_account.items():
            while held[account] > quota.memory_bytes_max // ACCOUNT_SHARE and len(holders) > 1:
                held[account] -= self._displace_largest(holders, "one user or address")
        while sum(held.values()) > quota.memory_bytes_max // ALL_SHARE and len(held) > 1:
            largest = max(held, key=lambda account: held[account])
            held[largest] -= self._displace_largest(by_account[largest], "all clients together")
            if not by_account[largest]:
                del held[largest]

    def _displace_largest(self, holders: list[Connection], who: str) -> int:
        largest = max(holders, key=lambda connection: connection.pending_bytes)
        holders.remove(largest)
        why = f"unfinished packets of {who} hold too much memory, and this one most of it"
        self._displace(largest, DisplacementCause.UNFINISHED_INPUT, why)
        return int(largest.pending_bytes)

    def _displace(self, connection: Connection, cause: DisplacementCause, why: str) -> None:
        self._disconnector.displace(connection, cause, ReasonCode.QUOTA_EXCEEDED, why)


def _is_waiting_for_us(connection: Connection) -> bool:
    """Whether a client is not read at present: the system holds back what more it sends."""
    return connection.is_held and connection.state is CONNECTED


def _held_bytes(holders: list[Connection]) -> int:
    return sum([connection.pending_bytes for connection in holders])
