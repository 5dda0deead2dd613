"""Whether two sockets can listen at one port."""

from __future__ import annotations

import ipaddress


def overlap(host: str, other: str) -> bool:
    """Whether whoever listens at one of two hosts leaves no such port to the other.

    Names but `localhost` are not looked up for that: each overlaps itself alone.
    """
    if host.lower() == other.lower():
        return True
    one, another = _address(host), _address(other)
    if one is None or another is None or one.version != another.version:
        return False
    return one == another or one.is_unspecified or another.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address("127.0.0.1" if host.lower() == "localhost" else host)
    except ValueError:
        return None
