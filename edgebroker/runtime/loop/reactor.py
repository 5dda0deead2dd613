"""Runs a front end on real sockets, on the loop of a gateway process or on any asyncio loop.

All bytes that arrive in one turn of the loop are fed before anything is sent; then each socket with output is written
once. One timer serves all deadlines of the front end.
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
GOODBYE_S = 2.0  # how long clients have to take our last bytes when we close or stop


def clock() -> Instant:
    """Microseconds on the monotonic clock."""
    return monotonic_ns() // 1_000


class ClientProtocol:
    """One client's socket, or the uppermost of the layers on it."""

    __slots__ = ("_host", "_reactor", "_transport", "connection")

    def __init__(self, reactor: Reactor, host: ListenerCallbacks) -> None:
        self._reactor = reactor
        self._host = host

    def connection_made(self, transport: Transport) -> None:
        """A client dialled."""
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

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        reactor = self._reactor
        reactor.received_bytes += len(data)
        if data[0] != QOS_0 and data[0] != CONNECT:
            reactor.is_hurried = True
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
        """The client does not read as fast as we write."""
        self.connection.paused = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.connection.paused = False
        self._reactor.flush(self.connection, clock())
        self._reactor.schedule_flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever side."""
        self._host.client_disconnected()
        self._reactor.cut_bytes += self._transport.get_write_buffer_size()
        if self._reactor.observer is not None:
            self._reactor.observer.connection_closed(self.connection)
        self._reactor.frontend.closed(self.connection, clock())
        self._reactor.schedule_flush()
        self._reactor.arm_timer()


class ListenerCallbacks(Protocol):
    """Who opened a door: the listener."""

    context: ListenerContext

    def peer(self, transport: Transport) -> str:
        """Who is at the other end."""

    def client_connected(self, connection: Connection) -> bool:
        """A client is there; whether there is room for it."""

    def client_disconnected(self) -> None:
        """It is gone."""


class TrafficObserver(Protocol):
    """Who is shown every chunk."""

    def data_received(self, connection: Connection, data: bytes) -> None:
        """*data* arrived, and is about to be fed."""

    def data_sent(self, connection: Connection, data: bytes) -> None:
        """*data*, whole packets, is written."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection is no more."""


class Reactor:
    """Runs a front end on real sockets."""

    def __init__(self, frontend: Frontend, gather_us: int = 0) -> None:
        self.frontend = frontend
        self._timers = frontend.node.timers
        self._loop = asyncio.get_running_loop()
        self.observer: TrafficObserver | None = None
        """Sees what comes and goes, while somebody watches."""
        self.before_flush: Callable[[], None] | None = None
        """What else is done when the input of a turn was fed, before clients are sent anything."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.cut_bytes = 0
        """Of what was sent: what the system had not taken yet when the connection ended."""
        self.is_hurried = False
        """Whether anything but messages of QoS 0 and CONNECT came in this turn: somebody may wait."""
        self._packets = 0
        self._coalescer: InputCoalescer | None = None
        self._is_turning = False
        self.tells_turns = isinstance(self._loop, Loop)
        """Whether we are told when what was ready has been fed, and before the process sleeps: any other loop must be
        asked for it."""
        self.poller: SocketPoller = LoopPoller(self._loop)
        if isinstance(self._loop, Loop):
            self.poller = self._loop.poller
            self._loop.poller.on_batch_served = self.flush_all
            if gather_us:
                self._loop.poller.coalescer = self._coalescer = InputCoalescer(gather_us)
        self._password_workers = PasswordWorkers(self._loop, self._verified)
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: Instant | None = None
        self._changes = -1

    def start(self) -> None:
        """Before the first client comes."""
        self.frontend.start(clock())
        self.arm_timer()

    def schedule_flush(self) -> None:
        """See to it that everything dirty is sent when this turn's input has been fed."""
        if not self._is_turning and not self.tells_turns:
            self._is_turning = True
            self._loop.call_soon(self.flush_all)

    def flush_all(self) -> None:
        """Send everything dirty."""
        self._is_turning = False
        if self.before_flush is not None:
            self.before_flush()
        dirty = self.frontend.dirty
        while dirty:  # a flush makes room, and room lets queued messages out
            batch = dirty[:]
            dirty.clear()
            now = clock()
            for connection in reversed(batch):  # a publisher's acknowledgement first: it sends on while we deliver
                if not connection.paused or connection.closing:
                    self.flush(connection, now)
        packets = self.frontend.input.packets
        if packets != self._packets:
            if self._coalescer is not None:
                self._coalescer.observe_turn(packets - self._packets, self.is_hurried, clock())
            self._packets = packets
            self.is_hurried = False
        self.arm_timer()

    def flush(self, connection: Connection, now: Instant) -> None:
        """Hand a connection's output to its socket, and close it if that was the last."""
        try:
            self._flush(connection, now)
        except Exception as error:
            self.failed(connection, error)

    def _flush(self, connection: Connection, now: Instant) -> None:
        transport: Transport = connection.transport
        if connection.closing and connection.paused:
            transport.abort()  # it has not read for a while: nobody would see what we still have to say
            return
        if transport.is_closing():
            return  # the client left while its answer waited for the disk
        out = self.frontend.take_output(connection, now)
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            self.sent_bytes += len(data)
            if self.observer is not None:
                self.observer.data_sent(connection, data)
            transport.write(data)
        if connection.closing:
            transport.close()
            if transport.get_write_buffer_size():  # close() waits for the peer, who may be gone or never read
                self._loop.call_later(GOODBYE_S, transport.abort)

    def disconnect_clients(self, entrance: int, why: str, whom: Callable[[Connection], bool] = bool) -> int:
        """Send away who came in by the listener of this number, of those for *whom* is true. Returns how many."""
        everybody = self.frontend.connections.values()
        found = [one for one in everybody if one.listener_context.number == entrance and whom(one)]
        for connection in found:
            if connection.is_open:
                self.frontend.connect_handler.disconnect(connection, ReasonCode.ADMINISTRATIVE_ACTION, why)
            else:
                connection.close()
        self.schedule_flush()
        return len(found)

    def failed(self, connection: Connection, error: Exception) -> None:
        """An error nobody expected, in what was done for *connection*: tell it and end that connection, no other."""
        self._give_up()
        self._loop.call_exception_handler({"message": f"edgebroker: {connection.peer} is cut off", "exception": error})
        connection.transport.abort()

    def _give_up(self) -> None:
        """An error ended what was to be kept together: what is kept of it counts, and nothing that comes later is part
        of it. A crash would undo that too.
        """
        self.frontend.journal.abort_qos2()
        self.frontend.journal.commit_transaction(clock())

    def verify(self) -> None:
        """Find out who clients are whose CONNECT has come."""
        for verification in self.frontend.verifications():
            self._password_workers.submit(verification)
        self.arm_timer()

    def _verified(self, verification: Verification, verdict: AuthenticationResult) -> None:
        connection = verification.connection
        try:
            self.frontend.verified(connection, verdict, clock())
        except Exception as error:
            self.failed(connection, error)
        self.resume_readers()
        self.schedule_flush()
        self.arm_timer()

    def resume_readers(self) -> None:
        """Read again from whom was not read while it was held."""
        readable = self.frontend.readable
        while readable:
            connection = readable.pop()
            if not connection.is_held and not connection.transport.is_closing():
                connection.transport.resume_reading()

    def arm_timer(self) -> None:
        """Set the one timer to the core's next deadline."""
        timers = self._timers
        if timers.changes == self._changes:
            return
        self._changes = timers.changes
        due = timers.next_due()
        if due == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = None
        if due is not None:
            self._alarm = self._loop.call_later(max(due - clock(), 0) / SECOND, self._ring)

    def _ring(self) -> None:
        self._alarm_at = None
        self._changes = -1
        try:
            self.frontend.fire(clock())
        except Exception as error:  # what else is due stays due, and the alarm rings again at once
            self._give_up()
            self._loop.call_exception_handler({"message": "edgebroker: a deadline is given up", "exception": error})
        self.resume_readers()
        self.schedule_flush()
        self.arm_timer()

    async def stop(self) -> None:
        """Say good-bye to everybody, and return when every connection is closed. Nobody is accepted any more."""
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
        if self._alarm is not None:
            self._alarm.cancel()
        self.frontend.close_books(clock())
