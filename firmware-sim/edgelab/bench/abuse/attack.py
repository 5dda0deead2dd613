"""What an attack of `bench abuse` is made of: open sockets, and blows that last a few milliseconds."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from edgelab.bench.client import HOST
from edgelab.bench.stream import READ_BYTES

PATIENCE_S = 5.0  # for an answer in a handshake; a gateway that takes longer has refused
_PATIENCE = struct.pack("@ll", int(PATIENCE_S), 0)
_NO_LINGER = struct.pack("ii", 1, 0)  # closed with RST: 28,000 ports would not last for a minute of TIME_WAIT


class GatewayRebuff(Exception):
    """The gateway closed the connection or did not answer."""


class Crowd:
    """The open sockets of one attack."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.members: list[socket.socket] = []
        self.rebuffs = 0
        """Connections that were refused, closed, or never answered."""

    def dial(self, receive_bytes: int = 0, source: str = "", port: int = 0) -> socket.socket | None:
        """One more connection, which says nothing yet. None if it is refused.

        *source*: the address of this machine that it comes from; *port*: another one than that of the attack.
        """
        member = socket.socket()
        member.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        if receive_bytes:
            member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        # The kernel's time-outs: with Python's, every read would wait for something to read, MSG_DONTWAIT or not.
        member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)
        member.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
        try:
            if source:
                member.bind((source, 0))
            member.connect((HOST, port or self._port))
            member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self.rebuffs += 1
            member.close()
            return None
        self.members.append(member)
        return member

    def connect(self, greeting: bytes, receive_bytes: int = 0, source: str = "") -> socket.socket | None:
        """One more client, let in with *greeting*, a CONNECT. None if it is not."""
        member = self.dial(receive_bytes, source)
        if member is None:
            return None
        try:
            member.sendall(greeting)
            answer = member.recv(4)
        except OSError:
            answer = b""
        if answer[:1] != b"\x20" or answer[3:] != b"\0":  # a reason code of 0, in version 5 too
            self.rebuffs += 1
            self.hang_up(member)
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
            self.hang_up(member)
            return 0

    def push_all(self, member: socket.socket, data: bytes) -> bool:
        """All of it, while what the gateway answers is thrown away, so it need not wait for us. False: thrown out."""
        at, until = 0, time.monotonic() + PATIENCE_S
        while at < len(data) and time.monotonic() < until:
            sent = self.push(member, data[at : at + 65_536])
            if member.fileno() < 0:
                return False
            at += sent
            self.discard_input(member)
            if not sent:
                time.sleep(0.0005)
        return at == len(data)

    def discard_input(self, member: socket.socket) -> int:
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
            self.hang_up(member)
        return total

    def hang_up(self, member: socket.socket) -> None:
        """Hang up, without a word."""
        with contextlib.suppress(ValueError):
            self.members.remove(member)
        member.close()

    def hang_up_all(self) -> None:
        """Hang up all."""
        for member in self.members:
            member.close()
        self.members.clear()


class Attack(ABC):
    """One way to abuse a broker. A small one (`scale` below 1) does the same with fewer."""

    name: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]
    """What `strike` counts."""
    rate: ClassVar[float] = 0
    """Messages a second of the well-behaved at their fixed rate, where the attack makes each message more work; 0: as
    many as take the share of the gateway that the user chose.
    """
    has_newcomer: ClassVar = False
    """Whether a client from another address connects meanwhile, again and again (`newcomer`)."""

    def __init__(self, port: int, scale: float, folder: Path = Path()) -> None:
        """*folder*: that which `configure` was given."""
        self.crowd = Crowd(port)
        self.scale = scale
        self.folder = folder

    @classmethod
    def configure(cls, folder: Path) -> str:
        """The gateway's settings for this attack, as TOML; empty for the defaults. Files may be made in *folder*."""
        return ""

    def prepare(self) -> None:  # noqa: B027  (most need nothing)
        """Before anything is measured."""

    @abstractmethod
    def strike(self) -> int:
        """One blow, of a few milliseconds; how many units were done."""

    def retreat(self) -> None:
        """The blows are over for a while: nobody stays connected."""
        self.crowd.hang_up_all()

    def verdict(self) -> dict[str, str]:
        """`failure` and its text if the gateway let something happen that it must not; asked when a blow is over."""
        return {}

    def scaled(self, count: int) -> int:
        """*count* at full scale, at least one."""
        return max(1, int(count * self.scale))
