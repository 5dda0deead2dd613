"""A client from another address comes in while one address, or a few, hold all that is to be had."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgebridge.session.passwordfile import PasswordFile, make_user
from edgebroker.limits import VERIFICATIONS_MAX
from edgelab.bench import packets
from edgelab.bench.abuse.share_attacks import connect

from .conftest import PATIENCE_S

pytestmark = pytest.mark.live

OTHER = "127.0.0.2"


@pytest.fixture
def serve(tmp_path: Path, start_gateway: Callable[..., Any]) -> Callable[[str], int]:
    """Starts a gateway with these settings; its port."""

    def start(text: str) -> int:
        path = tmp_path / "gateway.toml"
        path.write_text(
            f'[listener]\nport = 0\n[data]\ndurability = "memory"\n[quota]\nconnects_per_address_per_s = 0\n{text}'
        )
        return int(start_gateway("--config", str(path)).port)

    return start


def dial(port: int, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S, (source, 0))


def comes_in(port: int, greeting: bytes) -> bool:
    with dial(port, OTHER) as line:
        line.sendall(greeting)
        return line.recv(4) == packets.CONNACK_ACCEPTED


def test_a_right_password_comes_in_among_wrong_ones(serve: Callable[[str], int], tmp_path: Path) -> None:
    """With the costly hash that users have by default; there are more wrong ones than may wait."""
    users = PasswordFile().with_user(make_user("anna", "apple", b"salt" * 4, None))
    (tmp_path / "users").write_text(str(users))
    port = serve('[access]\npassword_file = "users"\n')
    with ExitStack() as stack:
        for number in range(VERIFICATIONS_MAX + 40):
            line = stack.enter_context(dial(port, f"127.0.0.{11 + number % 3}"))
            line.sendall(connect(f"wrong-{number}", user="anna", password="pear"))
        assert comes_in(port, connect("right", user="anna", password="apple"))


def test_idle_connections_do_not_fill_a_gateway(serve: Callable[[str], int]) -> None:
    port = serve("[limits]\nconnections_max = 20\n")
    with ExitStack() as stack:
        idle = [stack.enter_context(dial(port, "127.0.0.1")) for _ in range(40)]
        assert comes_in(port, packets.connect("other"))
        assert idle[0].recv(1) == b"", "the oldest went"


def test_unfinished_packets_do_not_fill_a_gateway(serve: Callable[[str], int]) -> None:
    port = serve("memory_bytes_max = 8_388_608\n")
    size = 1 << 20
    with ExitStack() as stack:
        for number in range(20):
            line = stack.enter_context(dial(port, "127.0.0.1"))
            line.sendall(packets.connect(f"greedy-{number}"))
            assert line.recv(4) == packets.CONNACK_ACCEPTED
            line.sendall(packets.head(0x30, size) + packets.text("t") + bytes(size - 1_000))
            assert comes_in(port, packets.connect("other"))
