"""The connection to a peer: much input is read over several turns, and later input waits."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from edgebroker.header import EventHeader
from edgebroker.limits import KIB
from edgebroker.overlay.link.codec.frames import ITEMS_PER_TURN, SignalCode, signal_item
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.handshake import GatewayIdentity, Hello, encode_hello
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.peers.connection import PeerConnection

HERE = GatewayIdentity("f", "b", 1, {}, {"a": 0}, b"R" * 8, b"S" * 8)
HELLO = encode_hello(Hello("f", "a", 0, {}, b"r" * 8, b"s" * 8, 1, "b"))


class Host:
    """Holds one line and its stream; notes how much each turn was."""

    def __init__(self) -> None:
        self.link = Link("a", HERE, 0, lambda: 0.5, LinkOptions(dials=False))
        self.stream = LinkTable(HERE, [self.link]).accept(0)
        self.line = PeerConnection(self, None)
        self.said: list[str] = []

    def connection_made(self, line: PeerConnection, certified: str | None) -> None:
        line.stream = self.stream

    def data_received(self, stream: LinkConnection, data: bytes) -> None:
        stream.feed(data, 0)
        self.said.append(f"{len(data)} bytes")

    def writable(self) -> None:
        pass

    def connection_lost(self, line: PeerConnection, error: Exception | None) -> None:
        line.stream = None

    # -- its transport --------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str) -> Any:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    host.line.connection_made(host)  # type: ignore[arg-type]
    host.line.data_received(HELLO)
    host.said.clear()
    yield host
    host.line.connection_lost(None)


async def passes(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def flood(turns: int) -> bytes:
    """As many pings as are read in so many turns, and one more."""
    one = signal_item(SignalCode.PING, 1)
    body = one * (ITEMS_PER_TURN * turns + 1)
    return len(body).to_bytes(4) + body


def test_much_is_read_in_turns_and_nothing_meanwhile(host: Host) -> None:
    async def read() -> None:
        data = flood(3)
        host.line.data_received(data)
        host.line.data_received(b"\0\0\0\0")  # of a transport that had it already
        assert host.said == [f"{len(data)} bytes", "pause", "4 bytes"]
        assert host.stream.has_more
        await passes(5)
        assert host.said[3:] == ["0 bytes", "0 bytes", "resume"]
        assert not host.stream.has_more
        assert not host.stream.is_over

    asyncio.run(read())


def test_little_is_read_at_once(host: Host) -> None:
    async def read() -> None:
        host.line.data_received(flood(0))
        await passes(3)
        assert host.said == [f"{len(flood(0))} bytes"]

    asyncio.run(read())


def test_who_goes_meanwhile_is_read_no_further(host: Host) -> None:
    async def read() -> None:
        host.line.data_received(flood(3))
        host.stream.lost(0)
        host.line.connection_lost(None)
        await passes(5)
        assert "0 bytes" not in host.said
        assert not host.stream.has_more

    asyncio.run(read())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody asks the kernel what is under way")
def test_a_peer_that_takes_little_is_not_given_all_that_a_kernel_takes() -> None:
    async def write() -> None:
        host = Host()
        link = host.link
        with socket.socket() as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            door.bind(("127.0.0.1", 0))
            door.listen()
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: host.line, *door.getsockname())
            with door.accept()[0]:  # who reads nothing
                host.line.data_received(HELLO)
                for number in range(1, 200):
                    event = Forward(EventHeader(1, number, 0, 0), "t", bytes(KIB), 1, False, "c")
                    link.send(event, TrafficClass.LIVE, clock())
                assert host.line.flush() < 24 * KIB
                assert link.connection is not None
                assert link.connection.paused
                link.stop(clock())
                host.line.flush()
                assert transport.is_closing()
                assert not host.stream.out  # the good-bye went all the same
                transport.abort()

    asyncio.run(write())
