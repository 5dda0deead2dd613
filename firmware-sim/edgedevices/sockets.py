"""The world of real sockets: one thread, one selector and one heap of deadlines for all stations of a run."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic_ns
from typing import Any, Final

from edgebroker.instants import SECOND, Instant
from edgebroker.limits import KIB
from edgebroker.node.timers import TimerQueue
from edgedevices.broker import BrokerEndpoint
from edgedevices.modem import ModemOrder
from edgedevices.run import TICK, DeviceRun, RunStage
from edgedevices.station import Station

READ_BYTES: Final = 64 * KIB
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The socket would block."""


class DeviceConnection:
    """One TCP connection of one station."""

    __slots__ = ("hangs_up", "host", "is_open", "out", "socket", "station", "watched")

    def __init__(self, station: Station, plug: socket.socket, host: str) -> None:
        self.station = station
        self.socket = plug
        self.host = host
        self.out = bytearray()
        self.is_open = False
        self.hangs_up = False
        self.watched = 0


class SocketWorld:
    """Executes a run on real sockets. *endpoint_of*: the broker of a station. *tls*: None is plain TCP."""

    def __init__(
        self,
        run: DeviceRun,
        endpoint_of: Callable[[Station], BrokerEndpoint],
        show: Callable[[float], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._run = run
        self._endpoint_of = endpoint_of
        self._tls = tls
        self._show = show
        self._selector = selectors.DefaultSelector()
        self._timers = TimerQueue()
        self._scheduled: dict[Station, Instant] = {}
        self._connections: dict[Station, DeviceConnection] = {}

    def live(self) -> None:
        """Executes the whole run. The first signal stops it in order, a second one at once."""
        run = self._run
        started = tick_at = _now()
        run.begin(started)
        self._wake_all(started)
        with signals(run.interrupt):
            try:
                while run.stage is not RunStage.OVER:
                    dues = (tick_at, self._timers.next_due(), run.due)
                    until = min(due for due in dues if due is not None)
                    ready = self._selector.select(max(0, until - _now()) / SECOND)
                    now = _now()
                    for key, events in ready:
                        self._on_ready(key.data, events, now)
                    # A station that is due again at once waits until sockets and signals were served.
                    for station in list(iter(partial(self._timers.take_next, now), None)):
                        self._wake(station, now)  # type: ignore[arg-type]  # only stations are set
                    due = run.due
                    if due is not None and due <= now:
                        for conducted in run.wake(now):
                            self._wake(conducted, now)
                    if now >= tick_at:
                        tick_at = now + TICK
                        if run.tick(now):
                            self._wake_all(now)
                            tick_at = now  # the next stage may have nothing to wait for
                        self._show((now - started) / SECOND)
            finally:
                for connection in list(self._connections.values()):
                    self._forget(connection)
                self._selector.close()

    def _wake_all(self, now: Instant) -> None:
        for station in self._run.stations:
            self._wake(station, now)

    def _wake(self, station: Station, now: Instant) -> None:
        self._scheduled.pop(station, None)
        station.wake(now)
        self._serve(station, now)

    def _serve(self, station: Station, now: Instant) -> None:
        """Executes the commands of *station* until there are none, and sets its timer."""
        while effects := station.take_orders():
            for effect in effects:
                connection = self._connections.get(station)
                if effect is ModemOrder.DIAL:
                    self._dial(station, now)
                elif connection is None:
                    continue  # the connection has just failed
                elif effect is ModemOrder.CUT:
                    self._cut(connection)
                elif effect is ModemOrder.HANG_UP:
                    connection.hangs_up = True
                else:
                    connection.out += effect
            connection = self._connections.get(station)
            if connection is not None and connection.is_open:
                self._write(connection, now)
        due = station.due
        if due != self._scheduled.get(station):
            if due is None:
                del self._scheduled[station]
                self._timers.cancel(station)
            else:
                self._scheduled[station] = due
                self._timers.set(station, due)

    def _dial(self, station: Station, now: Instant) -> None:
        endpoint = self._endpoint_of(station)
        try:
            new_socket = socket.socket(endpoint.family, socket.SOCK_STREAM)
        except OSError as error:
            station.ended(_reason(error), now)
            return
        new_socket.setblocking(False)
        new_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connections[station] = DeviceConnection(station, new_socket, endpoint.host)
        code = new_socket.connect_ex(endpoint.place)
        if code in (0, errno.EINPROGRESS):
            self._watch(connection, selectors.EVENT_WRITE)
        else:
            self._end(connection, os.strerror(code), now)

    def _on_ready(self, connection: DeviceConnection, events: int, now: Instant) -> None:
        if self._connections.get(connection.station) is not connection:
            return  # it ended while others were served
        if not connection.is_open:
            self._on_dialled(connection, now)
        else:
            if events & selectors.EVENT_WRITE:
                self._write(connection, now)
            if events & selectors.EVENT_READ and self._connections.get(connection.station) is connection:
                self._read(connection, now)
        self._serve(connection.station, now)

    def _on_dialled(self, connection: DeviceConnection, now: Instant) -> None:
        code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(connection, os.strerror(code), now)
            return
        try:
            if self._tls is not None:
                self._handshake(connection, self._tls)
        except ssl.SSLWantReadError:
            self._watch(connection, selectors.EVENT_READ)
            return
        except ssl.SSLWantWriteError:
            self._watch(connection, selectors.EVENT_WRITE)
            return
        except OSError as error:
            self._end(connection, _reason(error), now)
            return
        connection.is_open = True
        self._watch(connection, selectors.EVENT_READ)
        connection.station.opened(now)

    def _handshake(self, connection: DeviceConnection, tls: ssl.SSLContext) -> None:
        """Continues the TLS handshake. Raises the errors of `do_handshake`."""
        if not isinstance(connection.socket, ssl.SSLSocket):
            connection.socket = tls.wrap_socket(
                connection.socket, server_hostname=connection.host, do_handshake_on_connect=False
            )
        connection.socket.do_handshake()

    def _read(self, connection: DeviceConnection, now: Instant) -> None:
        try:
            chunk = connection.socket.recv(READ_BYTES)
            # A record is decrypted as a whole: its rest is in memory, which no selector reports.
            while isinstance(connection.socket, ssl.SSLSocket) and connection.socket.pending():
                chunk += connection.socket.recv(READ_BYTES)
        except WOULD_BLOCK:
            return
        except OSError as error:
            self._end(connection, _reason(error), now)
            return
        if chunk:
            connection.station.received(chunk, now)
        else:
            self._end(connection, "connection lost", now)

    def _write(self, connection: DeviceConnection, now: Instant) -> None:
        if connection.out:
            try:
                del connection.out[: connection.socket.send(connection.out)]
            except WOULD_BLOCK:
                pass
            except OSError as error:
                self._end(connection, _reason(error), now)
                return
            if not connection.out:
                connection.station.written(now)
        if not connection.out and connection.hangs_up:
            connection.hangs_up = False
            with suppress(OSError):  # the peer may have closed: the next read reports it
                # not the one of TLS, after which nothing can be read
                socket.socket.shutdown(connection.socket, socket.SHUT_WR)
        self._watch(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0))

    def _watch(self, connection: DeviceConnection, events: int) -> None:
        if not connection.watched:
            self._selector.register(connection.socket, events, connection)
        elif connection.watched != events:
            self._selector.modify(connection.socket, events, connection)
        connection.watched = events

    def _cut(self, connection: DeviceConnection) -> None:
        """Resets the connection: nothing on its way arrives."""
        with suppress(OSError):
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._forget(connection)

    def _end(self, connection: DeviceConnection, reason: str, now: Instant) -> None:
        self._forget(connection)
        connection.station.ended(reason, now)

    def _forget(self, connection: DeviceConnection) -> None:
        if connection.watched:
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.pop(connection.station, None)


def _now() -> Instant:
    return monotonic_ns() // 1_000


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "connection lost"
    return error.strerror or type(error).__name__


@contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """Makes SIGINT and SIGTERM call *stop*, where possible: in the main thread."""
    previous_handlers: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        stop()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):
                previous_handlers[number] = signal.signal(number, on_signal)
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
