"""Gateways joined on the loopback interface: a relay in each uplink has the delay and rate of a real line."""

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
"""A squeezed line takes as many bytes at once as it carries in this time: then it is evenly slow."""
KERNEL_BYTES: Final = 16_384  # what a squeezed line does not take yet shall wait with its sender, and not in the system
UNDER_WAY_MAX: Final = 64


class UplinkRelay:
    """Passes on what comes, after `delay_s` and no faster than `bytes_per_s`, and counts it.

    `carried`: bytes of TCP's payload by the gateway that sent them, since the start: everything that gateways say.
    """

    def __init__(
        self,
        ends: Pair,
        address: Address,
        delay_s: float,
        new_socket: Callable[[], socket.socket] = socket.socket,
    ) -> None:
        """*ends*: who dials, and who awaits at *address*. *new_socket*: makes one where the relay stands."""
        self.ends = ends
        self.delay_s = delay_s
        self.bytes_per_s: float | None = None
        self.carried = dict.fromkeys(ends, 0)
        self.port = 0
        self._address = address
        self._new_socket = new_socket
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def total(self) -> int:
        """Both ways together."""
        return sum(self.carried.values())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen at `port`, until the block is left."""
        listener = self._new_socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        listener.bind((HOST, 0))
        self.port = listener.getsockname()[1]
        server = await asyncio.start_server(self._came, sock=listener)
        try:
            yield
        finally:
            server.close()
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # the relay ends as its connections do
                await self._call(reader, writer)
        finally:
            writer.transport.abort()
            self._calls.discard(task)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end hangs up. Raises OSError."""
        line = self._new_socket()
        line.setblocking(False)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        await asyncio.get_running_loop().sock_connect(line, self._address)
        there, back = await asyncio.open_connection(sock=line)
        try:
            ways = [(reader, back, self.ends[0]), (there, writer, self.ends[1])]
            async with asyncio.TaskGroup() as group:
                passing = [group.create_task(self._pass(*way)) for way in ways]
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                for one in passing:
                    one.cancel()
        except* OSError:
            pass
        finally:
            back.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: str) -> None:
        """One way, until *sender* hangs up."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY_MAX)
        arriving = asyncio.create_task(self._arrive(under_way, writer))
        loop = asyncio.get_running_loop()
        try:
            while not arriving.done():
                rate = self.bytes_per_s
                data = await reader.read(CHUNK_BYTES if rate is None else max(1, round(rate * CHUNK_S)))
                if not data:
                    return
                self.carried[sender] += len(data)
                await under_way.put((loop.time() + self.delay_s, data))
                if rate is not None:
                    await asyncio.sleep(len(data) / rate)
        finally:
            arriving.cancel()
            await asyncio.gather(arriving, return_exceptions=True)

    async def _arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await under_way.get()
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
    """See Network."""

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
        """See Network."""
        async with AsyncExitStack() as stack:
            for relay in self._relays.values():
                await stack.enter_async_context(relay.open())
            yield

    def draft(self) -> TopologyDraft:
        """See Network: the relays' ports are known."""
        doors = {pair: Address(HOST, relay.port) for pair, relay in self._relays.items()}
        return self.layout.draft({name: (address,) for name, address in self._addresses.items()}, doors)

    def host(self, gateway: str) -> str:
        """See Network."""
        return HOST

    def inside(self, gateway: str) -> Sequence[str]:
        """See Network: all stand here."""
        return ()

    def carried(self, uplink: Pair) -> int:
        """See Network."""
        return self._relays[uplink].total

    def received(self, gateway: str) -> None:
        """See Network: nobody counts what crosses links inside a site."""

    def squeeze(self, uplink: Pair, bytes_per_s: float | None) -> None:
        """See Network."""
        self._relays[uplink].bytes_per_s = bytes_per_s
        if bytes_per_s is None:
            self.wrong.pop(uplink, None)
        else:
            self.wrong[uplink] = "squeezed"
