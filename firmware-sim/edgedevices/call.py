"""One network connection of a paho client, driven by the running asyncio loop instead of a thread per client.

paho writes at once and keeps what the socket does not take; the loop is asked about the socket only when something is
left over or has arrived, so that a thousand idle devices cost nothing but their file descriptors.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

GREETING_TIMEOUT_S = 10.0  # from the TCP connection to CONNACK; the broker's own patience is usually as long
UNSPECIFIED = 0x80  # the reason code that paho makes up when a connection just ends
KEEP_ALIVE_CHECK_S = 5.0  # a twelfth of the keep-alive of 60 s: a PINGREQ is at most that late


class CallFailed(Exception):
    """The broker could not be reached or refused us; the text is the reason."""


class Call:
    """A connection from dialling to its end. Use one Call per attempt; *client* may outlive many calls.

    moved: called after anything was read or written, outside every lock of paho.
    """

    def __init__(self, client: Client, moved: Callable[[], None] = lambda: None) -> None:
        self.client = client
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._greeting: asyncio.Future[int | None] = self._loop.create_future()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._watched: socket.socket | None = None
        self._writing = False
        self._hung_up = False
        self._check: asyncio.TimerHandle | None = None
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_socket_close = self._on_socket_close

    async def dial(self) -> int | None:
        """Connect and wait for CONNACK; the broker's receive maximum if it states one. Raises CallFailed."""
        try:
            # Name resolution and connect() block, on a dead uplink for seconds: a pool thread waits instead of all.
            await self._loop.run_in_executor(None, self.client.reconnect)
        except OSError as error:
            raise CallFailed(error.strerror or str(error) or type(error).__name__) from error
        self._watched = self.client.socket()  # type: ignore[assignment]  # a TCP client has a plain socket
        if self._watched is None:
            raise CallFailed(self._reason())
        self._loop.add_reader(self._watched, self._readable)
        self._check = self._loop.call_later(KEEP_ALIVE_CHECK_S, self._keep_alive)
        self.flush()
        await asyncio.wait((self._greeting, self._ended), timeout=GREETING_TIMEOUT_S, return_when="FIRST_COMPLETED")
        if self._greeting.done():
            return self._greeting.result()
        reason = self._reason() if self._ended.done() else f"no CONNACK in {GREETING_TIMEOUT_S:g} s"
        self.cut()
        raise CallFailed(reason)

    async def end(self) -> str:
        """Wait until the connection is over; why it ended."""
        return await asyncio.shield(self._ended)

    @property
    def is_up(self) -> bool:
        """Whether messages can be sent: greeted, not hung up and not ended."""
        return self._greeting.done() and not self._hung_up and not self._ended.done()

    def flush(self) -> None:
        """Write what paho holds; watch the socket if it does not take all."""
        if self.client.want_write() and not self._ended.done():
            self._guard(self.client.loop_write)
        blocked = self.client.want_write() and self._watched is not None
        if blocked and not self._writing and self._watched is not None:
            self._loop.add_writer(self._watched, self._writable)
        elif self._writing and not blocked and self._watched is not None:
            self._loop.remove_writer(self._watched)
        self._writing = blocked

    def hang_up(self) -> None:
        """End the stream without DISCONNECT, as a device does that loses power: its will is published.

        Our direction is closed, not the socket: what was written still reaches the broker, and a QoS 0 message that we
        count as sent is not lost to a connection reset. Does nothing while part of a message is unwritten.
        """
        if self._watched is not None and self.is_up and not self.client.want_write():
            self._hung_up = True
            with suppress(OSError):
                self._watched.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """End the connection at once, in both directions."""
        if self._watched is not None:
            with suppress(OSError):
                self._watched.shutdown(socket.SHUT_RDWR)
            self._guard(self.client.loop_read)  # paho finds the end of the stream and closes
        self._unwatch()
        self._finish("closed")

    def _readable(self) -> None:
        self._guard(self.client.loop_read)
        # TLS decrypts a record at a time: what is left of it lies in memory, where no selector sees it.
        while isinstance(self._watched, ssl.SSLSocket) and self._watched.pending():
            self._guard(self.client.loop_read)
        self.flush()
        self._moved()

    def _writable(self) -> None:
        self.flush()
        self._moved()

    def _keep_alive(self) -> None:
        if not self._ended.done():
            self._guard(self.client.loop_misc)
            self.flush()
            self._check = self._loop.call_later(KEEP_ALIVE_CHECK_S, self._keep_alive)

    def _guard(self, step: Callable[[], MQTTErrorCode]) -> None:
        try:
            step()
        except Exception as error:  # paho raises various types on packets it cannot read; the line is useless then
            self._finish(f"unreadable packet: {error}")
            if self._watched is not None:
                self._watched.close()
                self._unwatch()

    def _reason(self) -> str:
        return self._ended.result() if self._ended.done() else "connection closed"

    def _finish(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)
        if self._check is not None:
            self._check.cancel()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._loop.remove_writer(self._watched)
            self._watched = None
            self._writing = False

    def _on_connect(
        self, client: Client, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._finish(f"refused: {reason}")
        elif not self._greeting.done():
            self._greeting.set_result(getattr(properties, "ReceiveMaximum", None))

    def _on_disconnect(
        self, client: Client, userdata: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if self._hung_up:
            text = "dropped on purpose"
        elif flags.is_disconnect_packet_from_server or reason.value != UNSPECIFIED:
            text = str(reason)
        else:
            text = "connection lost"
        self._loop.call_soon_threadsafe(self._finish, text)  # may come from the dialling thread

    def _on_socket_close(self, client: Client, userdata: Any, closing: Any) -> None:
        if self._watched is closing:
            self._unwatch()
