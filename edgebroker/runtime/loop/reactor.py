"""Runs a front end on real sockets, on the loop of a gateway process or on any asyncio loop.

A turn is one poll and the work that it causes: the bytes of all ready sockets are passed to the front end, and then
each socket with output is written once. One timer of the loop serves all deadlines of the front end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.handlers.authentication import Verification
from edgebridge.frontend.options import ListenerContext
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Instant
from edgebroker.runtime.loop.input_coalescing import InputCoalescer
from edgebroker.runtime.loop.loop import Loop, LoopPoller
from edgebroker.runtime.loop.password_workers import PasswordWorkers
from edgebroker.runtime.loop.stream import SocketPoller, Transport

WRITE_BUFFER_BYTES = 64 * 1024  # above this a socket counts as full; the core's out-buffer bounds the rest
QOS_0 = 0x30  # the first byte of a PUBLISH without flags
CONNECT = 0x10
GOODBYE_S = 2.0  # how long a client has to read the last bytes when its connection is closed


def clock() -> Instant:
    """The monotonic clock in microseconds."""
    nanoseconds = monotonic_ns()
    return nanoseconds // 1_000


class ClientProtocol:
    """The protocol of one client, above its socket and the layers on that."""

    __slots__ = ("_host", "_reactor", "_transport", "connection")

    def __init__(self, reactor: Reactor, host: ListenerCallbacks) -> None:
        self._reactor = reactor
        self._host = host

    def connection_made(self, transport: Transport) -> None:
        """A client has connected: announce it to the front end and the listener."""
        self._transport = transport
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        host = self._host
        connection = self._reactor.frontend.opened(host.peer(self._transport), clock(), host.context)
        self.connection: Connection = connection
        connection.transport = self._transport
        if not host.client_connected(connection):
            connection.close()
        self._reactor.schedule_flush()
        self._reactor.arm_timer()

    def begin_handshake(self) -> None:
        """The first byte of a TLS handshake has come: count it, and close another one if there are too many."""
        self._reactor.frontend.begin_handshake(self.connection)
        self._reactor.schedule_flush()

    def end_handshake(self) -> None:
        """The TLS handshake is complete."""
        self._reactor.frontend.connect_handler.connecting.end_handshake(self.connection)

    def data_received(self, data: bytes) -> None:
        """Pass *data* to the front end; what it answers is sent at the end of the turn."""
        reactor = self._reactor
        reactor.received_bytes += len(data)
        if data[0] != QOS_0 and data[0] != CONNECT:
            reactor.may_await_reply = True
        if reactor.observer is not None:
            reactor.observer.data_received(self.connection, data)
        connection = self.connection
        try:
            reactor.frontend.feed(connection, data, clock())
        except Exception as error:
            reactor.failed(connection, error)
        if connection.is_held:
            self._transport.pause_reading()
            reactor.verify()
        if reactor.frontend.dirty or reactor.before_flush is not None:
            reactor.schedule_flush()

    def pause_writing(self) -> None:
        """The socket's buffer is full: no more output until `resume_writing`."""
        self.connection.paused = True

    def resume_writing(self) -> None:
        """The client has read most of the output that waited: send more."""
        self.connection.paused = False
        self._reactor.flush(self.connection, clock())
        self._reactor.schedule_flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._host.client_disconnected()
        self._reactor.cut_bytes += self._transport.get_write_buffer_size()
        if self._reactor.observer is not None:
            self._reactor.observer.connection_closed(self.connection)
        self._reactor.frontend.closed(self.connection, clock())
        self._reactor.schedule_flush()
        self._reactor.arm_timer()


class ListenerCallbacks(Protocol):
    """The part of a listener that its client protocols call."""

    context: ListenerContext

    def peer(self, transport: Transport) -> str:
        """The address of the client, as logs show it."""

    def client_connected(self, connection: Connection) -> bool:
        """Count a client that has connected. False: it is one too many, and is disconnected."""

    def client_disconnected(self) -> None:
        """Count a client that has disconnected."""


class TrafficObserver(Protocol):
    """Receives a copy of all traffic, for tracing."""

    def data_received(self, connection: Connection, data: bytes) -> None:
        """*data* has arrived. The front end has not processed it yet."""

    def data_sent(self, connection: Connection, data: bytes) -> None:
        """*data*, which is whole packets, is about to be written to the socket."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection is closed."""


class Reactor:
    """Runs a front end on real sockets."""

    def __init__(self, frontend: Frontend, gather_us: int = 0) -> None:
        self.frontend = frontend
        self._timers = frontend.node.timers
        self._loop = asyncio.get_running_loop()
        self.observer: TrafficObserver | None = None
        """Receives a copy of all traffic while a trace runs."""
        self.before_flush: Callable[[], None] | None = None
        """Called when the input of a turn is processed, before any output is sent to clients."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.cut_bytes = 0
        """The part of `sent_bytes` that was still in our buffers when a connection was closed."""
        self.may_await_reply = False
        """Whether this turn had input other than QoS 0 PUBLISH and CONNECT: a client may wait for an answer."""
        self._packets = 0
        self._coalescer: InputCoalescer | None = None
        self._is_flush_scheduled = False
        self._flushes_by_poller = isinstance(self._loop, Loop)
        """Whether the poller calls `flush_all` at the end of each turn. On any other loop a callback does."""
        self.poller: SocketPoller = LoopPoller(self._loop)
        if isinstance(self._loop, Loop):
            self.poller = self._loop.poller
            self._loop.poller.on_batch_served = self.flush_all
            if gather_us:
                self._loop.poller.coalescer = self._coalescer = InputCoalescer(gather_us)
        self._password_workers = PasswordWorkers(self._loop, self._verified, self.verify)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: Instant | None = None
        self._timer_changes = -1

    def start(self) -> None:
        """Start the front end and its timer, before the first client connects."""
        self.frontend.start(clock())
        self.arm_timer()

    def schedule_flush(self) -> None:
        """Have all output sent at the end of this turn."""
        if not self._is_flush_scheduled and not self._flushes_by_poller:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush_all)

    def flush_all(self) -> None:
        """Write the output of every connection that has some, and set the timer to the next deadline."""
        self._is_flush_scheduled = False
        if self.before_flush is not None:
            self.before_flush()
        dirty = self.frontend.dirty
        now = clock()
        while dirty:  # a flush frees space in the out-buffer, for which queued messages wait
            batch = dirty[:]
            dirty.clear()
            for connection in reversed(batch):  # a publisher's acknowledgement first: it publishes while we deliver
                if not connection.paused or connection.closing:
                    self.flush(connection, now)
            if dirty:
                now = clock()
        packets = self.frontend.input.packets
        if packets != self._packets:
            if self._coalescer is not None:
                self._coalescer.observe_turn(packets - self._packets, self.may_await_reply, now)
            self._packets = packets
            self.may_await_reply = False
        self.arm_timer()

    def flush(self, connection: Connection, now: Instant) -> None:
        """Write the output of *connection* to its socket, and close the socket if the connection is closing."""
        try:
            self._flush(connection, now)
        except Exception as error:
            self.failed(connection, error)

    def _flush(self, connection: Connection, now: Instant) -> None:
        transport: Transport = connection.transport
        if connection.closing and connection.paused:
            transport.abort()  # the client has not read for a while, and would not read the last bytes either
            return
        if transport.is_closing():
            return  # the client disconnected while its answer waited for the disk
        out = self.frontend.take_output(connection, now)
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            self.sent_bytes += len(data)
            if self.observer is not None:
                self.observer.data_sent(connection, data)
            transport.write(data)
        if connection.closing:
            transport.close()
            if transport.get_write_buffer_size():  # close() waits for the peer, which may never read
                self._loop.call_later(GOODBYE_S, transport.abort)

    def disconnect_clients(self, listener: int, why: str, is_chosen: Callable[[Connection], bool] = bool) -> int:
        """Disconnect the clients of the listener with this number for which *is_chosen* is true, with reason code 0x98
        and the reason string *why*. Returns their number.
        """
        connections = self.frontend.connections.values()
        found = [one for one in connections if one.listener_context.number == listener and is_chosen(one)]
        for connection in found:
            if connection.is_open:
                self.frontend.connect_handler.disconnect(connection, ReasonCode.ADMINISTRATIVE_ACTION, why)
            else:
                connection.close()
        self.schedule_flush()
        return len(found)

    def failed(self, connection: Connection, error: Exception) -> None:
        """Report an unexpected error in the work for *connection*, and close that connection alone."""
        self._end_transaction()
        self._loop.call_exception_handler({"message": f"edgebroker: {connection.peer} is cut off", "exception": error})
        connection.transport.abort()

    def _end_transaction(self) -> None:
        """Commit the journal transaction that an error has interrupted, so that no later record becomes part of it."""
        self.frontend.journal.abort_qos2()
        self.frontend.journal.commit_transaction(clock())

    def verify(self) -> None:
        """Start the verification of clients whose CONNECT has arrived, as many as there are threads for."""
        for verification in self.frontend.verifications(self._password_workers.free):
            self._password_workers.submit(verification)
        self.arm_timer()

    def _verified(self, verification: Verification, result: AuthenticationResult) -> None:
        connection = verification.connection
        try:
            self.frontend.verified(connection, result, clock())
        except Exception as error:
            self.failed(connection, error)
        self.resume_readers()
        self.schedule_flush()
        self.arm_timer()

    def resume_readers(self) -> None:
        """Read again from clients that were not read while they were held."""
        readable = self.frontend.readable
        while readable:
            connection = readable.pop()
            if not connection.is_held and not connection.transport.is_closing():
                connection.transport.resume_reading()

    def arm_timer(self) -> None:
        """Set the timer to the next deadline of the front end, if that has changed."""
        timers = self._timers
        if timers.changes == self._timer_changes:
            return
        self._timer_changes = timers.changes
        due = timers.next_due()
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = None
        if due is not None:
            self._timer = self._loop.call_later(max(due - clock(), 0) / SECOND, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_due = None
        self._timer_changes = -1
        try:
            self.frontend.fire(clock())
        except Exception as error:  # deadlines that have not fired stay due, and the timer fires again at once
            self._end_transaction()
            self._loop.call_exception_handler({"message": "edgebroker: a deadline is given up", "exception": error})
        self.resume_readers()
        self.schedule_flush()
        self.arm_timer()

    async def stop(self) -> None:
        """Disconnect all clients, and return when every connection is closed, after 2 s at most by force. The listeners
        are closed already.
        """
        self.frontend.stop(clock())
        self.flush_all()
        deadline = self._loop.time() + GOODBYE_S
        while self.frontend.connections and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        while self.frontend.connections:
            for connection in list(self.frontend.connections.values()):
                connection.transport.abort()
            await asyncio.sleep(0.01)
        self._password_workers.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.frontend.close_books(clock())
