"""A socket of the load generator behind TLS. It encrypts on the generator's core, one record for each write."""

from __future__ import annotations

import socket
import ssl

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
