"""One connection of the load generator: a blocking socket after an MQTT handshake, with or without TLS.

TLS encrypts on the generator's core, one record for each write.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Any

from edgelab.bench import packets
from edgelab.bench.job import LoadFailed

READ_BYTES = 1 << 16


class TlsSocket:
    """As much of a blocking socket as the loads use."""

    def __init__(self, line: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = (
            ssl.CERT_NONE
        )  # the certificate was made for this run; to check it costs the broker nothing
        self._line = line
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self.fileno, self.setsockopt, self.settimeout = line.fileno, line.setsockopt, line.settimeout
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.sendall(self._outgoing.read())
                if not (data := line.recv(READ_BYTES)):
                    raise ConnectionResetError("the broker closed the connection in the handshake") from None
                self._incoming.write(data)
        line.sendall(self._outgoing.read())

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send all of *data*."""
        count = self._tls.write(data)
        self._line.sendall(self._outgoing.read())
        return count

    sendall = send

    def recv(self, count: int, flags: int = 0) -> bytes:
        """Up to *count* bytes; with MSG_PEEK only whether there are any."""
        if flags & socket.MSG_PEEK:
            return self._line.recv(count, flags)
        received = bytearray(count)
        return bytes(received[: self.recv_into(memoryview(received))])

    def recv_into(self, into: bytearray | memoryview, count: int = 0, flags: int = 0) -> int:
        """What there is, as much as fits; 0 at the end. Raises BlockingIOError as a socket does."""
        buffer = memoryview(into)
        received = 0
        while True:
            try:
                while received < len(buffer) and (piece := self._tls.read(len(buffer) - received, buffer[received:])):
                    received += int(piece)
                return received
            except ssl.SSLWantReadError:
                if received:
                    return received
                if not (data := self._line.recv(READ_BYTES, flags)):
                    return 0
                self._incoming.write(data)

    def close(self) -> None:
        """Hang up."""
        self._line.close()


STALL_S = 5  # nothing sent or received for so long means lost messages or a hung broker
HOST = "127.0.0.1"


class BenchClient:
    """A connected client; `socket` is ready for the load's own reads and writes.

    The socket blocks, but the kernel gives up after STALL_S (SO_RCVTIMEO, SO_SNDTIMEO). A Python time-out would cost
    one more system call, `poll`, before each of millions of reads and writes.
    """

    def __init__(self, port: int, name: str, is_tls: bool = False, source: str = HOST) -> None:
        line = socket.create_connection((HOST, port), timeout=STALL_S, source_address=(source, 0))
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


class DurableClient(BenchClient):
    """A client whose session outlives its connection (MQTT 3.1.1, clean session 0)."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(packets.packet(0x10, packets.text("MQTT") + b"\x04\x00\x00\x00" + packets.text(name)))
        if (answer := self.receive_exactly(4))[:2] != b"\x20\x02" or answer[3]:
            raise LoadFailed(f"{name}: refused, CONNACK is {answer.hex()}")
        self.was_present = bool(answer[2] & 1)
        """Whether the broker knew its session (section 3.2.2.2)."""
