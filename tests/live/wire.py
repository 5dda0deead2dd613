"""A wire between a client and a broker that a test may cut: a TCP forwarder on a thread of its own."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Wire:
    """Listens on `port` and forwards to *there*. `cut` ends what is connected, `is_up` says whether others may come."""

    def __init__(self, there: int) -> None:
        self._there = there
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self.is_up = True
        self.is_silent = False
        """Bytes are taken and go nowhere: what a half-open connection looks like."""
        self.octets = 0
        """Forwarded so far, both ways."""
        self.cuts = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._is_over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Everything that is connected is not any more."""
        with self._lock:
            self.cuts += bool(self._pairs)
            for one in list(self._pairs):
                self._end(one)

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        self.cut()
        self._server.close()

    def _run(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select(0.05):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                with self._lock, contextlib.suppress(OSError):
                    if one is self._server:
                        self._came()
                    elif one in self._pairs:
                        self._forward(one)

    def _came(self) -> None:
        near, _ = self._server.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._there)) if self.is_up else None
        except OSError:
            far = None
        if far is None:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, one: socket.socket) -> None:
        try:
            data = one.recv(65_536)
        except OSError:
            data = b""
        if not data:
            self._end(one)
            return
        if not self.is_silent:
            self.octets += len(data)
            self._pairs[one].sendall(data)

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is not None:
            self._selector.unregister(one)
            one.close()
            self._end(other)
