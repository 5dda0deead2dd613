"""Many sockets of somebody who means harm: opened quickly, written to without waiting, and let go without a trace."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from .. import packets
from ..client import HOST
from ..stream import READ_BYTES

PATIENCE_S = 5.0  # for an answer in a handshake; a gateway that takes longer has refused
_PATIENCE = struct.pack("@ll", int(PATIENCE_S), 0)
_NO_LINGER = struct.pack("ii", 1, 0)  # closed with RST: 28,000 ports would not last for a minute of TIME_WAIT


class Rebuffed(Exception):
    """The gateway closed the connection or did not answer."""


class Crowd:
    """The open sockets of one attack."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.members: list[socket.socket] = []
        self.rebuffs = 0
        """Connections that were refused, closed, or never answered."""

    def dial(self, receive_bytes: int = 0) -> socket.socket | None:
        """One more connection, which says nothing yet. None if it is refused."""
        member = socket.socket()
        member.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        if receive_bytes:
            member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        # The kernel's time-outs: with Python's, every read would wait for something to read, MSG_DONTWAIT or not.
        member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)
        member.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
        try:
            member.connect((HOST, self._port))
            member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self.rebuffs += 1
            member.close()
            return None
        self.members.append(member)
        return member

    def join(self, greeting: bytes, receive_bytes: int = 0) -> socket.socket | None:
        """One more client, let in with *greeting*, a CONNECT of version 3.1.1. None if it is not."""
        member = self.dial(receive_bytes)
        if member is None:
            return None
        try:
            member.sendall(greeting)
            answer = member.recv(4)
        except OSError:
            answer = b""
        if answer != packets.CONNACK_ACCEPTED:
            self.rebuffs += 1
            self.part(member)
            return None
        return member

    def push(self, member: socket.socket, data: bytes) -> int:
        """As many bytes as go without waiting. A member that was thrown out is forgotten."""
        try:
            return member.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            self.rebuffs += 1
            self.part(member)
            return 0

    def push_all(self, member: socket.socket, data: bytes) -> bool:
        """All of it, while what the gateway answers is thrown away, so it need not wait for us. False: thrown out."""
        at, until = 0, time.monotonic() + PATIENCE_S
        while at < len(data) and time.monotonic() < until:
            sent = self.push(member, data[at : at + 65_536])
            if member.fileno() < 0:
                return False
            at += sent
            self.drink(member)
            if not sent:
                time.sleep(0.0005)
        return at == len(data)

    def drink(self, member: socket.socket) -> int:
        """Read what there is, and forget it; so many bytes. A member that was thrown out is forgotten too."""
        total = 0
        try:
            while count := len(member.recv(READ_BYTES, socket.MSG_DONTWAIT)):
                total += count
        except BlockingIOError:
            return total
        except OSError:
            pass
        if member in self.members:
            self.rebuffs += 1
            self.part(member)
        return total

    def part(self, member: socket.socket) -> None:
        """Hang up, without a word."""
        with contextlib.suppress(ValueError):
            self.members.remove(member)
        member.close()

    def scatter(self) -> None:
        """Hang up all."""
        for member in self.members:
            member.close()
        self.members.clear()
