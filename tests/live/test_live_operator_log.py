"""What `edgebroker run` tells its operator on standard error, and that it never waits for being read."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Disconnect
from edgebridge.wire.reasons import ReasonCode

pytestmark = pytest.mark.live

PATIENCE_S = 30.0


def visit(port: int, client: str) -> None:
    """Connect, and leave politely."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
        line.sendall(encode_packet(Connect(client, username="u", password=b"secret"), V5))
        assert line.recv(1_000)[0] == 0x20
        line.sendall(encode_packet(Disconnect(ReasonCode.NORMAL_DISCONNECTION), V5))
        assert line.recv(1_000) == b""


def complaints(gateway: Any) -> str:
    gateway.process.send_signal(signal.SIGTERM)
    _, told = gateway.process.communicate(timeout=PATIENCE_S)
    assert gateway.process.returncode == 0
    return str(told.decode())


def test_json_lines_tell_who_came_and_went(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway("--log-level", "info", "--log-format", "json")
    visit(gateway.port, "probe\x1b[31m")
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as line:
        line.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert line.recv(1_000) == b""
    told = [json.loads(line) for line in complaints(gateway).splitlines()]
    assert [(one["level"], one["code"], one.get("client")) for one in told] == [
        ("info", "connected", "probe\x1b[31m"),
        ("info", "disconnected", "probe\x1b[31m"),
        ("warning", "refused", None),
    ]
    assert all(one["peer"].startswith("127.0.0.1:") for one in told)
    assert "secret" not in str(told)


def test_text_does_nothing_to_a_terminal(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway("--log-level", "info")
    visit(gateway.port, "probe\x1b[31m")
    told = complaints(gateway)
    assert 'client="probe\\u001b[31m"' in told
    assert "\x1b" not in told


def test_a_pipe_that_nobody_reads_holds_nobody_up(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway("--log-level", "info")
    for number in range(1_200):
        visit(gateway.port, f"{'x' * 150}{number}")
    told = complaints(gateway)
    assert len(told) > 70_000, "more than a pipe holds: the rest waited, and was told when somebody read"


def test_a_level_that_there_is_not_is_refused(start_gateway: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match=r'notices.level: is .warn.; did you mean "warning"\?'):
        start_gateway("--log-level", "warn")
