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
LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The system has nothing for us now, or takes nothing."""


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
    """Lives through a run. *endpoint_of*: where a station's broker is. *tls*: None is plain TCP."""

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
        self._planned: dict[Station, Instant] = {}
        self._lines: dict[Station, DeviceConnection] = {}

    def live(self) -> None:
        """The whole run, until it is over. A first signal stops it in order, a second one hurries."""
        run = self._run
        began = tick_at = _now()
        run.begin(began)
        self._wake_all(began)
        with signals(run.interrupt):
            try:
                while run.stage is not RunStage.OVER:
                    dues = (tick_at, self._timers.next_due(), run.due)
                    until = min(due for due in dues if due is not None)
                    ready = self._selector.select(max(0, until - _now()) / SECOND)
                    now = _now()
                    for key, events in ready:
                        self._on_ready(key.data, events, now)
                    # Who is due again at once waits until the sockets and the signals had their turn.
                    for station in list(iter(partial(self._timers.take_next, now), None)):
                        self._wake(station, now)  # type: ignore[arg-type]  # only stations are set
                    due = run.due
                    if due is not None and due <= now:
                        for led in run.wake(now):
                            self._wake(led, now)
                    if now >= tick_at:
                        tick_at = now + TICK
                        if run.tick(now):
                            self._wake_all(now)
                            tick_at = now  # nothing may be left to wait for in the next stage
                        self._show((now - began) / SECOND)
            finally:
                for line in list(self._lines.values()):
                    self._forget(line)
                self._selector.close()

    def _wake_all(self, now: Instant) -> None:
        for station in self._run.stations:
            self._wake(station, now)

    def _wake(self, station: Station, now: Instant) -> None:
        self._planned.pop(station, None)
        station.wake(now)
        self._serve(station, now)

    def _serve(self, station: Station, now: Instant) -> None:
        """Do what *station* wants, until it wants nothing more, and note when it is due."""
        while effects := station.take_orders():
            for effect in effects:
                line = self._lines.get(station)
                if effect is ModemOrder.DIAL:
                    self._dial(station, now)
                elif line is None:
                    continue  # the connection has just failed
                elif effect is ModemOrder.CUT:
                    self._cut(line)
                elif effect is ModemOrder.HANG_UP:
                    line.hangs_up = True
                else:
                    line.out += effect
            line = self._lines.get(station)
            if line is not None and line.is_open:
                self._write(line, now)
        due = station.due
        if due != self._planned.get(station):
            if due is None:
                del self._planned[station]
                self._timers.cancel(station)
            else:
                self._planned[station] = due
                self._timers.set(station, due)

    def _dial(self, station: Station, now: Instant) -> None:
        endpoint = self._endpoint_of(station)
        try:
            plug = socket.socket(endpoint.family, socket.SOCK_STREAM)
        except OSError as error:
            station.ended(_reason(error), now)
            return
        plug.setblocking(False)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = self._lines[station] = DeviceConnection(station, plug, endpoint.host)
        code = plug.connect_ex(endpoint.place)
        if code in (0, errno.EINPROGRESS):
            self._watch(line, selectors.EVENT_WRITE)
        else:
            self._end(line, os.strerror(code), now)

    def _on_ready(self, line: DeviceConnection, events: int, now: Instant) -> None:
        if self._lines.get(line.station) is not line:
            return  # it ended while others were served
        if not line.is_open:
            self._on_dialled(line, now)
        else:
            if events & selectors.EVENT_WRITE:
                self._write(line, now)
            if events & selectors.EVENT_READ and self._lines.get(line.station) is line:
                self._read(line, now)
        self._serve(line.station, now)

    def _on_dialled(self, line: DeviceConnection, now: Instant) -> None:
        code = line.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(line, os.strerror(code), now)
            return
        try:
            if self._tls is not None:
                self._greet(line, self._tls)
        except ssl.SSLWantReadError:
            self._watch(line, selectors.EVENT_READ)
            return
        except ssl.SSLWantWriteError:
            self._watch(line, selectors.EVENT_WRITE)
            return
        except OSError as error:
            self._end(line, _reason(error), now)
            return
        line.is_open = True
        self._watch(line, selectors.EVENT_READ)
        line.station.opened(now)

    def _greet(self, line: DeviceConnection, tls: ssl.SSLContext) -> None:
        """Go on with the handshake as far as it goes. Raises what `do_handshake` raises."""
        if not isinstance(line.socket, ssl.SSLSocket):
            line.socket = tls.wrap_socket(line.socket, server_hostname=line.host, do_handshake_on_connect=False)
        line.socket.do_handshake()

    def _read(self, line: DeviceConnection, now: Instant) -> None:
        try:
            chunk = line.socket.recv(READ_BYTES)
            # A record is decrypted as a whole: what is left of it lies in memory, where no selector sees it.
            while isinstance(line.socket, ssl.SSLSocket) and line.socket.pending():
                chunk += line.socket.recv(READ_BYTES)
        except LATER:
            return
        except OSError as error:
            self._end(line, _reason(error), now)
            return
        if chunk:
            line.station.received(chunk, now)
        else:
            self._end(line, "connection lost", now)

    def _write(self, line: DeviceConnection, now: Instant) -> None:
        if line.out:
            try:
                del line.out[: line.socket.send(line.out)]
            except LATER:
                pass
            except OSError as error:
                self._end(line, _reason(error), now)
                return
            if not line.out:
                line.station.written(now)
        if not line.out and line.hangs_up:
            line.hangs_up = False
            with suppress(OSError):  # the other end may have gone meanwhile: the next read says so
                socket.socket.shutdown(line.socket, socket.SHUT_WR)  # not that of TLS: it could not read afterwards
        self._watch(line, selectors.EVENT_READ | (selectors.EVENT_WRITE if line.out else 0))

    def _watch(self, line: DeviceConnection, events: int) -> None:
        if not line.watched:
            self._selector.register(line.socket, events, line)
        elif line.watched != events:
            self._selector.modify(line.socket, events, line)
        line.watched = events

    def _cut(self, line: DeviceConnection) -> None:
        """Reset it: nothing that is on its way arrives."""
        with suppress(OSError):
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._forget(line)

    def _end(self, line: DeviceConnection, reason: str, now: Instant) -> None:
        self._forget(line)
        line.station.ended(reason, now)

    def _forget(self, line: DeviceConnection) -> None:
        if line.watched:
            self._selector.unregister(line.socket)
        line.socket.close()
        self._lines.pop(line.station, None)


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
    """Let SIGINT and SIGTERM call *stop*, where that is possible: in the main thread."""
    caught: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        stop()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):
                caught[number] = signal.signal(number, on_signal)
        yield
    finally:
        for number, before in caught.items():
            signal.signal(number, before)
