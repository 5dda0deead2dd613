"""The limits on clients that connect: how many a second, and who gives way when there are too many, by address.

After a power cut all devices of a site connect at once, so a burst is admitted without delay. A connection beyond the
rate is closed before it is read and without an answer, which costs a system call; a CONNECT with a password costs 41
ms.

Nobody knows who a connection is whose CONNECT has not been accepted, so all that is fair is to share by address. When
connections or TLS handshakes are at their limit, the oldest one of the address with the most of them is closed, and the
newcomer comes in: idle connections of one address keep out no other. A client that has come in is never closed for it.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.options import Quota
from edgebroker.address_shares import AddressShares
from edgebroker.instants import Instant
from edgebroker.limits import ADDRESSES_MAX, CONNECTS_BURST_S, KIB
from edgebroker.tokenbucket import TokenBucket

CACHED_ADDRESSES_MAX: Final = 256
"""Addresses whose reading is remembered: it takes as long as half of the rest of a greeting. 300 bytes each."""
_HOST_BITS: Final = 64  # whoever has one address of IPv6 has its network of so many bits


class ConnectionRateLimit:
    """Counts connections per source address and in all."""

    def __init__(self, quota: Quota, now: Instant = 0) -> None:
        self._per_address_per_s = quota.connects_per_address_per_s
        rate = quota.connects_per_s
        self._all = TokenBucket(rate, rate * CONNECTS_BURST_S, now) if rate else None
        self._by_address: dict[str, TokenBucket] = {}
        self.rejected = 0
        """Connections closed at once."""

    def __len__(self) -> int:
        return len(self._by_address)

    def admits(self, peer: str, now: Instant) -> bool:
        """Whether a connection from *peer* (`address:port`) may stay."""
        if self._is_admitted(peer, now):
            return True
        self.rejected += 1
        return False

    def _is_admitted(self, peer: str, now: Instant) -> bool:
        rate = self._per_address_per_s
        if rate:
            address = source_of(peer)
            bucket = self._by_address.pop(address, None)  # and to the end: who came longest ago is forgotten first
            if bucket is None:
                if len(self._by_address) >= ADDRESSES_MAX:
                    del self._by_address[next(iter(self._by_address))]
                bucket = TokenBucket(rate, rate * CONNECTS_BURST_S, now)
            self._by_address[address] = bucket
            if not bucket.admits(now):  # one address does not use up what all have together
                return False
        return self._all is None or self._all.admits(now)


def source_of(peer: str) -> str:
    """The address of *peer* without its port; of IPv6 the network. Anything else (a Unix socket) stands for itself."""
    return _network_of(peer.rpartition(":")[0].strip("[]") or peer)


@lru_cache(CACHED_ADDRESSES_MAX)
def _network_of(host: str) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS)) + f"/{128 - _HOST_BITS}"


HANDSHAKE_BYTES: Final = 47 * KIB
"""What OpenSSL takes from the first byte of a handshake to its end: 47,300 bytes each, measured with 1,000 of them."""
TLS_BYTES: Final = 17 * KIB
"""What it keeps for a connection after that: 16,630 bytes, measured with 1,000 of them."""
HANDSHAKES_SHARE: Final = 4
"""Handshakes may hold one part in so many of `quota.memory_bytes_max`: 697 of them at the shipped 128 MiB."""
HANDSHAKES_MIN: Final = 16


class ConnectingClients:
    """Who is about to connect. Entries are removed when CONNECT is accepted and when the connection is gone."""

    def __init__(self) -> None:
        self._by_listener: dict[int, AddressShares[Connection]] = {}
        self._handshakes: AddressShares[Connection] = AddressShares()

    def __len__(self) -> int:
        return sum([len(shares) for shares in self._by_listener.values()])

    @property
    def handshakes(self) -> int:
        """TLS handshakes that have begun and have not ended."""
        return len(self._handshakes)

    @property
    def handshake_bytes(self) -> int:
        """What these hold."""
        return HANDSHAKE_BYTES * len(self._handshakes)

    def add(self, connection: Connection) -> None:
        """A transport was accepted."""
        listener = connection.listener_context.number
        self._by_listener.setdefault(listener, AddressShares()).add(source_of(connection.peer), connection)

    def forget(self, connection: Connection) -> None:
        """The CONNECT of *connection* was accepted, or it is closed."""
        address, listener = source_of(connection.peer), connection.listener_context.number
        shares = self._by_listener.get(listener)
        if shares is not None and shares.remove(address, connection) and not shares:
            del self._by_listener[listener]
        self._handshakes.remove(address, connection)

    def begin_handshake(self, connection: Connection) -> None:
        """The first byte of TLS has come on *connection*."""
        connection.transport_bytes = HANDSHAKE_BYTES
        self._handshakes.add(source_of(connection.peer), connection)

    def end_handshake(self, connection: Connection) -> None:
        """The handshake of *connection* is complete."""
        connection.transport_bytes = TLS_BYTES
        self._handshakes.remove(source_of(connection.peer), connection)

    def connection_to_close(self, listener: int | None = None) -> Connection | None:
        """Who goes for a newcomer, at *listener* or anywhere: the oldest of the address with the most. None: nobody
        is about to connect.
        """
        shares = self._by_listener.get(listener) if listener is not None else self._largest()
        return None if shares is None else shares.oldest_of_greediest()

    def handshake_to_close(self, memory_bytes_max: int) -> Connection | None:
        """Who goes because handshakes hold too much of *memory_bytes_max*; None while they do not."""
        most = max(HANDSHAKES_MIN, memory_bytes_max // HANDSHAKES_SHARE // HANDSHAKE_BYTES)
        return self._handshakes.oldest_of_greediest() if len(self._handshakes) > most else None

    def _largest(self) -> AddressShares[Connection] | None:
        """The listener with the largest share of one address."""
        return max(
            self._by_listener.values(), key=lambda shares: shares.count_of(shares.greediest() or ""), default=None
        )
