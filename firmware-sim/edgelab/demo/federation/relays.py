"""Gateways joined on the loopback interface: a relay in each uplink simulates the delay and rate of a real line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from edgebroker.names import Address
from edgebroker.overlay.topology.draft import TopologyDraft
from edgelab.demo.federation.layout import HOST, Layout, Pair
from edgelab.demo.federation.network import UPLINK_US, UplinkMedium
from edgelab.processes import free_ports

CHUNK_BYTES: Final = 16 * 1024
CHUNK_S: Final = 0.1
"""A throttled relay reads as many bytes at once as it carries in this time, so that its rate is even."""
# receive buffer of the kernel: data that a throttled relay does not accept waits at the sender
KERNEL_BYTES: Final = 16_384
UNDER_WAY_MAX: Final = 64


class UplinkRelay:
    """Forwards bytes after `delay_s` and no faster than `bytes_per_s`, and counts them.

    `carried`: bytes of TCP payload by the gateway that sent them, since the start.
    """

    def __init__(
        self,
        ends: Pair,
        address: Address,
        delay_s: float,
        new_socket: Callable[[], socket.socket] = socket.socket,
    ) -> None:
        """*ends*: the gateway that dials, and the one that accepts at *address*. *new_socket*: creates a socket at the
        relay's place.
        """
        self.ends = ends
        self.delay_s = delay_s
        self.bytes_per_s: float | None = None
        self.carried = dict.fromkeys(ends, 0)
        self.port = 0
        self._address = address
        self._new_socket = new_socket
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def total(self) -> int:
        """Return the bytes in both directions together."""
        return sum(self.carried.values())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen at `port` until the block is left."""
        listener = self._new_socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        listener.bind((HOST, 0))
        self.port = listener.getsockname()[1]
        server = await asyncio.start_server(self._accept, sock=listener)
        try:
            yield
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # the relay's end closes its connections
                await self._forward_connection(reader, writer)
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _forward_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either end closes it. Raises OSError."""
        outgoing = self._new_socket()
        outgoing.setblocking(False)
        outgoing.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        await asyncio.get_running_loop().sock_connect(outgoing, self._address)
        remote_reader, remote_writer = await asyncio.open_connection(sock=outgoing)
        try:
            directions = [(reader, remote_writer, self.ends[0]), (remote_reader, writer, self.ends[1])]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._forward(*direction)) for direction in directions]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
        except* OSError:
            pass
        finally:
            remote_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: str) -> None:
        """Forward one direction until *sender* closes the connection."""
        delayed: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY_MAX)
        writing = asyncio.create_task(self._write_delayed(delayed, writer))
        loop = asyncio.get_running_loop()
        try:
            while not writing.done():
                rate = self.bytes_per_s
                data = await reader.read(CHUNK_BYTES if rate is None else max(1, round(rate * CHUNK_S)))
                if not data:
                    return
                self.carried[sender] += len(data)
                await delayed.put((loop.time() + self.delay_s, data))
                if rate is not None:
                    await asyncio.sleep(len(data) / rate)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write_delayed(self, delayed: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await delayed.get()
            await asyncio.sleep(due - loop.time())
            writer.write(data)
            await writer.drain()


RELAYED: Final = UplinkMedium(
    kind="relays",
    delay_us=UPLINK_US,
    delay_by="relays",
    bits_per_s=None,
    rate_by="relays",
    counted_by="relays",
    counted="payload of TCP",
)


class RelayNetwork:
    """A FederationNetwork on the loopback interface with a relay for each uplink."""

    medium = RELAYED
    switch = None

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.wrong: dict[Pair, str] = {}
        ports = free_ports(len(layout.gateways))
        self._addresses = {one.name: Address(HOST, port) for one, port in zip(layout.gateways, ports, strict=True)}
        delay_s = self.medium.delay_us / 1_000_000
        self._relays = {pair: UplinkRelay(pair, self._addresses[pair[1]], delay_s) for pair in layout.uplinks}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the relays for the duration of the block."""
        async with AsyncExitStack() as stack:
            for relay in self._relays.values():
                await stack.enter_async_context(relay.open())
            yield

    def draft(self) -> TopologyDraft:
        """Return the topology, with the ports of the relays."""
        relay_addresses = {pair: Address(HOST, relay.port) for pair, relay in self._relays.items()}
        return self.layout.draft({name: (address,) for name, address in self._addresses.items()}, relay_addresses)

    def host(self, gateway: str) -> str:
        """Return the loopback address."""
        return HOST

    def inside(self, gateway: str) -> Sequence[str]:
        """Return no prefix: all commands run in the same place."""
        return ()

    def carried(self, uplink: Pair) -> int:
        """Return the bytes that have crossed *uplink* so far, in both directions together."""
        return self._relays[uplink].total

    def received(self, gateway: str) -> None:
        """Return None: bytes on links inside a site are not counted."""

    def squeeze(self, uplink: Pair, bytes_per_s: float | None) -> None:
        """Limit the rate of *uplink* in each direction; None removes the limit."""
        self._relays[uplink].bytes_per_s = bytes_per_s
        if bytes_per_s is None:
            self.wrong.pop(uplink, None)
        else:
            self.wrong[uplink] = "squeezed"
