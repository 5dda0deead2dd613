"""Idle connections to the peer listener of a gateway keep no peer out, with TLS and without."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from edgebroker.cli.init.authority import Authority
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.peers.peers import STRANGERS_MAX
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


async def idle_connection(port: int) -> socket.socket:
    """A connection from another address of this machine that says nothing."""
    line = socket.create_connection(("127.0.0.1", port), PATIENCE_S, ("127.0.0.9", 0))
    line.setblocking(False)
    await asyncio.sleep(0)  # the gateway, in the same process, accepts it
    return line


@pytest.mark.parametrize("is_tls", [True, False], ids=["tls", "plain"])
def test_a_peer_comes_in_while_idle_connections_hold_all_places(
    tmp_path: Path, free_port: int, another_free_port: int, is_tls: bool
) -> None:
    topology = tmp_path / "topology.toml"
    topology.write_text(TWO_GATEWAYS.format(free_port, another_free_port))
    authority = Authority.make(tmp_path, "plant") if is_tls else None

    def gateway(name: str) -> Gateway:
        lines = ["[listener]", "port = 0", "[data]", 'durability = "memory"', "[overlay]", f'topology = "{topology}"']
        if authority is not None:
            pair = authority.gateway(tmp_path, name)
            lines += [f'tls_certificate = "{pair.certificate}"', f'tls_key = "{pair.key}"']
            lines += [f'tls_ca = "{authority.pair.certificate}"']
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(["[node]", f'name = "{name}"', *lines]))
        return Gateway(Settings.load(path), tell=lambda line: None)

    async def story() -> None:
        here, there = gateway("gw-here"), gateway("gw-there")
        idle: list[socket.socket] = []
        await there.start()
        try:
            assert there.peer_manager is not None
            port = there.peer_manager.addresses[0].port
            for _ in range(IDLE):
                idle.append(await idle_connection(port))
            most = STRANGERS_MAX + 1
            await until(lambda: sum(map(is_closed, idle)) == IDLE - most)
            assert all(map(is_closed, idle[: IDLE - most])), "the oldest went"
            assert there.peer_manager.displaced == IDLE - most
            await here.start()
            await until(lambda: all(link.connection is not None for link in there.peer_manager.overlay.links))
            assert there.peer_manager.displaced == IDLE - most + 1
            for _ in range(most):  # and it stays when others come
                idle.append(await idle_connection(port))
            await until(lambda: sum(map(is_closed, idle)) == IDLE)
            assert all(link.connection is not None for link in there.peer_manager.overlay.links)
        finally:
            for line in idle:
                line.close()
            await here.stop()
            await there.stop()

    asyncio.run(story())
