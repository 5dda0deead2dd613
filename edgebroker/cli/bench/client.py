"""One connection of the load generator: a plain blocking socket after an MQTT handshake."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence
from typing import Any

from . import packets
from .job import LoadFailed
from .tlssocket import TlsSocket

STALL_S = 5  # nothing sent or received for so long means lost messages or a hung broker
HOST = "127.0.0.1"


class Client:
    """A connected client; `socket` is ready for the load's own reads and writes.

    The socket blocks, but the kernel gives up after STALL_S (SO_RCVTIMEO, SO_SNDTIMEO). A Python time-out would cost
    one more system call, `poll`, before each of millions of reads and writes.
    """

    def __init__(self, port: int, name: str, is_tls: bool = False) -> None:
        line = socket.create_connection((HOST, port), timeout=STALL_S)
        line.settimeout(None)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        patience = struct.pack("@ll", STALL_S, 0)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self.socket: Any = TlsSocket(line) if is_tls else line
        self.socket.sendall(packets.connect(name))
        if (answer := self.receive_exactly(4)) != packets.CONNACK_ACCEPTED:
            raise LoadFailed(f"{name}: refused, CONNACK is {answer.hex()}")

    def subscribe(self, filters: Sequence[str], qos: int = 0) -> None:
        """Subscribe to all filters; raises LoadFailed unless each is granted at exactly this QoS."""
        self.socket.sendall(packets.subscribe(filters, qos))
        expected = packets.packet(0x90, b"\x00\x01" + bytes([qos]) * len(filters))
        if (answer := self.receive_exactly(len(expected))) != expected:
            raise LoadFailed(f"subscription not granted as asked, SUBACK is {answer.hex()}")

    def receive_exactly(self, length: int) -> bytes:
        """The next *length* bytes. Raises LoadFailed if they do not come within STALL_S or the broker closes."""
        received = bytearray()
        while len(received) < length:
            try:
                part = self.socket.recv(length - len(received))
            except BlockingIOError:
                raise LoadFailed(f"{length - len(received)} of {length} bytes did not come in {STALL_S} s") from None
            if not part:
                raise LoadFailed("the broker closed the connection")
            received += part
        return bytes(received)

    def has_more(self, within_s: float) -> bool:
        """Whether anything (or the end of the connection) arrives within so many seconds."""
        self.socket.settimeout(within_s)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(None)
        return True

    def close(self) -> None:
        """Say goodbye properly, whatever state the broker is in."""
        with contextlib.suppress(OSError):  # a broker that is gone has been reported by whoever noticed first
            self.socket.sendall(packets.DISCONNECT)
        self.socket.close()


class DurableClient(Client):
    """A client whose session outlives its connection (MQTT 3.1.1, clean session 0)."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(packets.packet(0x10, packets.text("MQTT") + b"\x04\x00\x00\x00" + packets.text(name)))
        if (answer := self.receive_exactly(4))[:2] != b"\x20\x02" or answer[3]:
            raise LoadFailed(f"{name}: refused, CONNACK is {answer.hex()}")
        self.was_present = bool(answer[2] & 1)
        """Whether the broker knew its session (section 3.2.2.2)."""
