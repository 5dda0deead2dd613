"""The limit on new connections per second, for each source address and for all together.

After a power cut all devices of a site connect at once, so a burst is admitted without delay. A connection beyond the
rate is closed before it is read and without an answer, which costs a system call; a CONNECT with a password costs 41
ms.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from edgebridge.frontend.options import Quota
from edgebroker.instants import Instant
from edgebroker.limits import ADDRESSES_MAX, CONNECTS_BURST_S
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
