"""Idle connections to the peer listener of a gateway keep no peer out, with TLS and without."""

from __future__ import annotations

import asyncio
import gc
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edgebroker.cli.init.authority import Authority
from edgebroker.limits import PEER_STRANGERS_MAX as STRANGERS_MAX
from edgebroker.limits import PEER_STRANGERS_PER_ADDRESS_MAX as STRANGERS_PER_ADDRESS_MAX
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.peers.peers import PeerManager
from edgebroker.runtime.settings import Settings

from ..support.topologies import TWO_GATEWAYS

pytestmark = pytest.mark.live

PATIENCE_S = 20.0
IDLE = STRANGERS_MAX + 20


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


def is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def idle_connection(port: int, address: str = "127.0.0.9", says: bytes = b"") -> socket.socket:
    """A connection from another address of this machine that says nothing, or not enough."""
    line = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0))
    line.sendall(says)
    line.setblocking(False)
    await asyncio.sleep(0)  # the gateway, in the same process, accepts it
    return line


def address_of(number: int) -> str:
    """An address of this machine, another one for each eight connections."""
    return f"127.0.1.{number // STRANGERS_PER_ADDRESS_MAX + 1}"


class TwoGateways:
    """Two gateways of a federation in this process; gw-here dials gw-there, at which idle connections are opened."""

    def __init__(self, folder: Path, ports: tuple[int, int], is_tls: bool) -> None:
        self._folder = folder
        self._topology = folder / "topology.toml"
        self._topology.write_text(TWO_GATEWAYS.format(*ports))
        self._authority = Authority.make(folder, "plant") if is_tls else None
        self.here, self.there = self._gateway("gw-here"), self._gateway("gw-there")
        self.idle: list[socket.socket] = []

    def _gateway(self, name: str) -> Gateway:
        lines = ["[listener]", "port = 0", "[data]", 'durability = "memory"', "[overlay]"]
        lines += [f'topology = "{self._topology}"']
        if self._authority is not None:
            pair = self._authority.gateway(self._folder, name)
            lines += [f'tls_certificate = "{pair.certificate}"', f'tls_key = "{pair.key}"']
            lines += [f'tls_ca = "{self._authority.pair.certificate}"']
        path = self._folder / f"{name}.toml"
        path.write_text("\n".join(["[node]", f'name = "{name}"', *lines]))
        return Gateway(Settings.load(path), tell=lambda line: None)

    @property
    def manager(self) -> PeerManager:
        assert self.there.peer_manager is not None
        return self.there.peer_manager

    @property
    def port(self) -> int:
        return self.manager.addresses[0].port

    @property
    def are_linked(self) -> bool:
        return all(link.connection is not None for link in self.manager.overlay.links)

    async def open(self, address: str, says: bytes = b"") -> None:
        self.idle.append(await idle_connection(self.port, address, says))

    def closed(self) -> int:
        return sum(map(is_closed, self.idle))

    def run(self, story: Callable[[TwoGateways], Awaitable[None]]) -> None:
        """Starts gw-there, and gw-here if the story does; stops both."""

        async def told() -> None:
            await self.there.start()
            try:
                await story(self)
            finally:
                for line in self.idle:
                    line.close()
                await self.here.stop()
                await self.there.stop()

        asyncio.run(told())


WAYS = pytest.mark.parametrize("is_tls", [True, False], ids=["tls", "plain"])
RECORD = bytes((22, 3, 1, 1, 0))  # of 256 bytes, as TLS begins
HELLO = b"EBLK"


@WAYS
def test_a_peer_comes_in_while_idle_connections_hold_all_places(
    tmp_path: Path, free_port: int, another_free_port: int, is_tls: bool
) -> None:
    most = STRANGERS_MAX + 1

    async def story(gateways: TwoGateways) -> None:
        for number in range(IDLE):
            await gateways.open(address_of(number))
        await until(lambda: gateways.closed() == IDLE - most)
        assert gateways.manager.displaced == IDLE - most
        await gateways.here.start()
        await until(lambda: gateways.are_linked)
        for number in range(most):  # and it stays when others come
            await gateways.open(address_of(number))
        await until(lambda: gateways.closed() >= IDLE)
        assert gateways.are_linked

    TwoGateways(tmp_path, (free_port, another_free_port), is_tls).run(story)


@WAYS
def test_one_address_holds_few_places(tmp_path: Path, free_port: int, another_free_port: int, is_tls: bool) -> None:
    most = STRANGERS_PER_ADDRESS_MAX + 1

    async def story(gateways: TwoGateways) -> None:
        await gateways.open("127.0.0.9", HELLO if not is_tls else RECORD)
        for _ in range(IDLE):
            await gateways.open("127.0.0.9")
        await until(lambda: gateways.closed() == IDLE + 1 - most)
        assert gateways.manager.displaced == IDLE + 1 - most
        assert not is_closed(gateways.idle[0]), "who has begun to speak stays longest"

    TwoGateways(tmp_path, (free_port, another_free_port), is_tls).run(story)


@WAYS
def test_the_place_of_a_peer_on_a_slow_path_is_not_taken(
    tmp_path: Path, free_port: int, another_free_port: int, is_tls: bool
) -> None:
    """The first one comes from the address of gw-here in the topology; the others from one address each."""

    async def story(gateways: TwoGateways) -> None:
        await gateways.open("127.0.0.1")
        for number in range(2 * STRANGERS_MAX):
            await gateways.open(f"127.0.2.{number + 1}")
        await until(lambda: gateways.closed() >= STRANGERS_MAX)
        assert not is_closed(gateways.idle[0])

    TwoGateways(tmp_path, (free_port, another_free_port), is_tls).run(story)


def test_idle_connections_take_no_memory_for_tls(tmp_path: Path, free_port: int, another_free_port: int) -> None:
    """OpenSSL and asyncio take 300 KB for a connection from the beginning of its handshake."""

    def handshakes() -> int:
        return sum(isinstance(found, SSLProtocol) for found in gc.get_objects())

    async def story(gateways: TwoGateways) -> None:
        before = handshakes()
        for number in range(40):
            await gateways.open(address_of(number), RECORD + bytes(100) if number % 2 else b"")
        await until(lambda: sum(stranger.has_begun for stranger in gateways.manager.strangers()) == 20)
        assert handshakes() == before
        await gateways.here.start()
        await until(lambda: gateways.are_linked)
        assert handshakes() == before + 2  # one at each end

    TwoGateways(tmp_path, (free_port, another_free_port), True).run(story)


def test_a_handshake_that_does_not_end_is_ended(
    tmp_path: Path, free_port: int, another_free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgebroker.runtime.peers.connection.HANDSHAKE_S", 0.2)

    async def story(gateways: TwoGateways) -> None:
        for says in (b"", RECORD, RECORD + bytes(255)):
            await gateways.open("127.0.0.9", says)
        await until(lambda: gateways.closed() == len(gateways.idle))
        assert gateways.manager.overdue_handshakes == len(gateways.idle)
        assert gateways.manager.displaced == 0
        await gateways.open("127.0.0.9", b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: is_closed(gateways.idle[-1]))
        assert gateways.manager.overdue_handshakes == len(gateways.idle) - 1, "that was no TLS, and waits for nothing"

    TwoGateways(tmp_path, (free_port, another_free_port), True).run(story)
