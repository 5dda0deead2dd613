"""A listener behind a proxy: the address of a client, the proxies it trusts, and what it does with others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.listeners.proxy import SIGNATURE
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.settings import Settings

CONNECT = bytes.fromhex("1010 00044d515454 04 02 0000 0004") + b"name"
CONNACK = bytes.fromhex("20020000")
IPV4 = bytes([192, 0, 2, 7, 192, 0, 2, 1]) + b"\x30\x39\x07\x5b"
CERTIFIED = b"\x20\x00\x0e\x03\0\0\0\0\x22\x00\x06pump-3"
Dialled = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def header(body: bytes = IPV4, command: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(body).to_bytes(2) + body


class Scene:
    """A gateway's front end behind one listener with `proxy_protocol`."""

    def __init__(self, more: str) -> None:
        text = f"[listener]\nport = 0\nproxy_protocol = true\nanonymous = true\n{more}\n"
        [self.settings] = Settings.parse(text, "f", Path("/")).listeners
        self.told: list[bytes] = []
        self.refusals = ConnectionRefusals(OperatorLog(self.told.append))
        self.frontend = Frontend(Node(Ledger()), FrontendOptions(), str)
        self.reactor = Reactor(self.frontend)
        self.listener = Listener(self.reactor, 1, self.refusals)

    async def dial(self, said: bytes) -> Dialled:
        reader, writer = await asyncio.open_connection(self.settings.host, self.listener.port)
        writer.write(said)
        return reader, writer

    async def play(self, story: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        self.reactor.start()
        await self.listener.open(self.settings, None)
        await story(self)
        self.listener.close()
        await self.reactor.stop()


def play(story: Callable[[Scene], Coroutine[Any, Any, None]], more: str = "") -> None:
    async def played() -> None:
        await asyncio.wait_for(Scene(more).play(story), 30)

    asyncio.run(played())


def test_a_connection_is_of_the_client_behind_the_proxy() -> None:
    async def story(scene: Scene) -> None:
        reader, writer = await scene.dial(header(IPV4 + CERTIFIED) + CONNECT)
        assert await reader.readexactly(4) == CONNACK
        [connection] = scene.frontend.connections.values()
        assert connection.peer == "192.0.2.7:12345"
        assert connection.certificate is not None
        assert connection.certificate.name == "pump-3"
        writer.close()

    play(story)


def test_an_address_of_ipv6_is_told_apart_from_its_port() -> None:
    """2001:db8::7:12345 could be an address of its own."""

    async def story(scene: Scene) -> None:
        ipv6 = bytes.fromhex("20010db8" + 22 * "0" + "07") + bytes(16) + b"\x30\x39\x07\x5b"
        reader, writer = await scene.dial(header(ipv6, family=0x21) + CONNECT)
        assert await reader.readexactly(4) == CONNACK
        [connection] = scene.frontend.connections.values()
        assert connection.peer == "[2001:db8::7]:12345"
        writer.close()

    play(story)


def test_the_header_may_come_in_pieces_and_nobody_is_there_before_it_is_whole() -> None:
    async def story(scene: Scene) -> None:
        said = header()
        reader, writer = await scene.dial(said[:1])
        for octet in said[1:]:
            await asyncio.sleep(0)
            assert not scene.frontend.connections
            writer.write(bytes([octet]))
        writer.write(CONNECT)
        assert await reader.readexactly(4) == CONNACK
        writer.close()

    play(story)


def test_a_proxy_that_speaks_for_itself_has_its_own_address() -> None:
    async def story(scene: Scene) -> None:
        reader, writer = await scene.dial(header(b"", 0x20, 0) + CONNECT)
        assert await reader.readexactly(4) == CONNACK
        [connection] = scene.frontend.connections.values()
        assert connection.peer.startswith("127.0.0.1:")
        writer.close()

    play(story)


@pytest.mark.parametrize(
    ("said", "more", "cause", "why"),
    [
        (CONNECT, "", ConnectionRefusalCause.PROXY_HEADER, "no PROXY header"),
        (header(family=0x12), "", ConnectionRefusalCause.PROXY_HEADER, "family and transport 0x12: not a stream"),
        (
            header(),
            'proxy_sources = ["192.0.2.0/24"]',
            ConnectionRefusalCause.PROXY_SOURCE,
            "proxy_sources does not name it",
        ),
    ],
)
def test_who_is_not_believed_is_cut_off(said: bytes, more: str, cause: ConnectionRefusalCause, why: str) -> None:
    async def story(scene: Scene) -> None:
        reader, writer = await scene.dial(said)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert scene.refusals.counts == {cause: 1}
        assert f"warning {cause.value}: turned away: {why} listener=".encode() in scene.told[0]
        assert not scene.frontend.connections

    play(story, more)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_header_that_comes_when_its_listener_is_no_more_what_it_was_lets_nobody_in(is_closed: bool) -> None:
    """What stands behind it was made when the proxy dialled: the terms of then, and the list of the revoked."""

    async def story(scene: Scene) -> None:
        said = header() + CONNECT
        reader, writer = await scene.dial(said[:9])
        other, also = await scene.dial(said)  # when it is answered, the first is waited for
        assert await other.readexactly(4) == CONNACK
        scene.listener.update(scene.settings, None)
        writer.write(said[9:12])
        if is_closed:
            scene.listener.close()
        else:
            scene.listener.update(replace(scene.settings, anonymous=False), None)
        writer.write(said[12:])
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        assert scene.refusals.counts == {ConnectionRefusalCause.PROXY_HEADER: 1}
        assert b"other terms hold at this listener" in scene.told[-1]
        assert len(scene.frontend.connections) == 1
        for one in (writer, also):
            one.close()

    play(story)


def test_who_is_cut_off_over_ipv6_is_told_with_an_address_that_can_be_read() -> None:
    async def story(scene: Scene) -> None:
        reader, writer = await scene.dial(CONNECT)
        port = writer.get_extra_info("sockname")[1]
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert f'peer="[::1]:{port}"'.encode() in scene.told[0] or f"peer=[::1]:{port}".encode() in scene.told[0]

    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        play(story, 'host = "::1"')
        return
    pytest.skip("this machine has no IPv6")


def test_websocket_follows_the_header() -> None:
    async def story(scene: Scene) -> None:
        request = (
            b"GET /mqtt HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"sec-websocket-protocol: mqtt\r\n\r\n"
        )
        reader, writer = await scene.dial(header() + request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(b"\x82" + bytes([0x80 | len(CONNECT)]) + bytes(4) + CONNECT)
        assert await reader.readexactly(6) == b"\x82\x04" + CONNACK
        writer.close()

    play(story, 'protocol = "websocket"')
