"""Not a broker: answers CONNECT and SUBSCRIBE, then copies bytes without looking at them.

It shows what the load generator and the kernel can do at most: no broker of the same language can be faster, and a
figure close to the relay's says more about the generator than about the broker. Bytes from publishers go to all
subscribers; bytes from subscribers (acknowledgements) go to the first publisher. Started as
`python -m edgelab.bench.relay PORT`.
"""

from __future__ import annotations

import select
import socket
import sys

from edgelab.bench import packets
from edgelab.bench.client import HOST
from edgelab.bench.stream import READ_BYTES


class ByteRelay:
    """Connected sockets by descriptor; a connection is new until it subscribes or publishes."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server((HOST, port), backlog=1024)
        self.ready = select.epoll()
        self.ready.register(self.listener, select.EPOLLIN)
        self.new: dict[int, socket.socket] = {}
        self.publishers: dict[int, socket.socket] = {}
        self.subscribers: dict[int, socket.socket] = {}
        self.buffer = memoryview(bytearray(READ_BYTES))

    def run(self) -> None:
        """Serve until killed."""
        while True:
            self.turn(None)

    def turn(self, timeout_s: float | None) -> None:
        """Wait for something to do, and do it."""
        for descriptor, _ in self.ready.poll(timeout_s):
            if descriptor == self.listener.fileno():
                self.accept()
            elif (source := self.publishers.get(descriptor)) is not None:
                self.copy(source, self.subscribers)
            elif (source := self.subscribers.get(descriptor)) is not None:
                self.copy(source, dict(list(self.publishers.items())[:1]))
            else:
                self.greet(self.new[descriptor])

    def accept(self) -> None:
        client, _ = self.listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.new[client.fileno()] = client
        self.ready.register(client, select.EPOLLIN)

    def greet(self, client: socket.socket) -> None:
        """Answer one packet of the handshake. The generator waits for each answer, so packets arrive one by one."""
        chunk = client.recv(READ_BYTES, socket.MSG_PEEK)
        if len(chunk) <= len(packets.DISCONNECT):
            self.drop(client)
            return
        if chunk[:1] == b"\x10":
            client.recv(READ_BYTES)
            client.sendall(packets.CONNACK_ACCEPTED)
        elif chunk[:1] == b"\x82":
            client.recv(READ_BYTES)
            self.subscribers[client.fileno()] = self.new.pop(client.fileno())
            client.sendall(packets.packet(0x90, b"\x00\x01" + chunk[-1:]))
        else:
            self.publishers[client.fileno()] = self.new.pop(client.fileno())

    def copy(self, source: socket.socket, targets: dict[int, socket.socket]) -> None:
        """Pass on what has arrived; the closing packet of a client has two bytes and ends the connection."""
        count = source.recv_into(self.buffer)
        if count <= len(packets.DISCONNECT):
            self.drop(source)
            return
        for target in targets.values():
            target.sendall(self.buffer[:count])

    def drop(self, client: socket.socket) -> None:
        """Forget a connection."""
        for group in (self.new, self.publishers, self.subscribers):
            group.pop(client.fileno(), None)
        self.ready.unregister(client)
        client.close()

    def close(self) -> None:
        """Hang up on everybody."""
        for client in [*self.new.values(), *self.publishers.values(), *self.subscribers.values()]:
            self.drop(client)
        self.ready.close()
        self.listener.close()


if __name__ == "__main__":
    ByteRelay(int(sys.argv[1])).run()
