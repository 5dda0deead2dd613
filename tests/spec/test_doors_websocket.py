"""The WebSocket layer between a socket and a door: what its handshake takes and refuses, without a network."""

from __future__ import annotations

import pytest

from tests.fuzz.targets.doors import UPGRADE, Door, Socket, opened


def asked(request: bytes) -> tuple[Door, Socket]:
    layer, door, socket = opened()
    layer.data_received(request)
    return door, socket


def test_a_request_is_answered_and_what_comes_in_frames_goes_up() -> None:
    _, socket = asked(UPGRADE + b"\r\n")
    assert socket.said.startswith(b"HTTP/1.1 101 ")
    assert not socket.is_over


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b"Host: localhost:8080", b"Host: \xed"),  # no IDNA
        (b"Host: localhost:8080", b"Host: " + b"a" * 70 + b"\xff"),
        (b"Sec-WebSocket-Protocol: mqtt", b"Sec-WebSocket-Protocol: \xff"),
        (b"Sec-WebSocket-Key: d", b"Sec-WebSocket-Extensions: \xff\r\nSec-WebSocket-Key: d"),
    ],
)
def test_headers_that_are_not_ascii_are_a_bad_request(was: bytes, becomes: bytes) -> None:
    _, socket = asked(UPGRADE.replace(was, becomes) + b"\r\n")
    assert socket.said.startswith(b"HTTP/1.1 400 ")
    assert socket.is_over
