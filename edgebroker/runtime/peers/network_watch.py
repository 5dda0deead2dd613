"""Notices when this machine gets a network: the kernel reports new addresses, routes and carriers over rtnetlink(7).

A gateway in a vehicle has a network for half a minute at a time. With the back-off of a dead peer it would miss most of
these windows.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""RTMGRP_LINK, and the addresses and routes of IPv4 and IPv6 (linux/rtnetlink.h)."""
NEW_LINK: Final = 16
NEW_ADDRESS: Final = 20
NEW_ROUTE: Final = 24
IFF_LOWER_UP: Final = 1 << 16
"""The interface has a carrier."""
HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""
LINK: Final = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, index, flags, changed flags."""
READ_BYTES: Final = 64 * 1024
PAUSE_S: Final = 1.0
"""One carrier leads to a dozen messages; they are one sign."""


def has_news(data: bytes) -> bool:
    """Return whether *data*, netlink messages, tell of a carrier, an address or a route that is there now."""
    at = 0
    while at + HEADER.size <= len(data):
        length, kind = HEADER.unpack_from(data, at)[:2]
        if kind in (NEW_ADDRESS, NEW_ROUTE):
            return True
        is_link = kind == NEW_LINK and at + HEADER.size + LINK.size <= len(data)
        if is_link and LINK.unpack_from(data, at + HEADER.size)[3] & IFF_LOWER_UP:
            return True
        at += max(HEADER.size, (length + 3) & ~3)
    return False


class NetworkWatch:
    """Calls *seen* at most once a second when this machine gets a carrier, an address or a route."""

    def __init__(self, seen: Callable[[], None]) -> None:
        self._seen = seen
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to watch. Does nothing where the kernel does not report it."""
        family = getattr(socket, "AF_NETLINK", None)
        if family is None:
            return
        try:
            self._socket = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
            self._socket.bind((0, GROUPS))
        except OSError:  # in a sandbox, or not Linux's
            self.close()
            return
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        try:
            is_news = has_news(os.read(self._socket.fileno(), READ_BYTES))
        except OSError:  # more was reported than the buffer holds
            is_news = True
        if is_news and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._seen()
