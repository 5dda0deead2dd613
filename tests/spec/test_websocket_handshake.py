"""The WebSocket layer of a listener: what its handshake accepts and refuses, without a network."""

from __future__ import annotations

import pytest

from edgebroker.runtime.listeners.websocket import PING
from edgebroker.runtime.loop.reactor import WRITE_BUFFER_BYTES
from tests.fuzz.targets.listeners import UPGRADE, Door, Socket, frame, opened


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


@pytest.mark.parametrize(
    ("page", "host", "is_local", "lets_in"),
    [
        (b"http://evil.example", b"evil.example:1883", True, False),  # its name was made to point here
        (b"http://evil.example", b"evil.example:1883", False, True),
        (b"http://localhost:8080", b"localhost:1883", True, True),
        (b"http://127.0.0.1", b"127.0.0.1:1883", True, True),
        (b"http://[::1]:1", b"[::1]:1883", True, True),
        (b"http://127.0.0.1.evil.example", b"127.0.0.1.evil.example", True, False),
        (b"null", b"localhost", True, False),
    ],
)
def test_a_page_that_points_its_own_name_at_this_machine_is_strange(
    page: bytes, host: bytes, is_local: bool, lets_in: bool
) -> None:
    layer, _, socket = opened(is_local)
    layer.data_received(UPGRADE.replace(b"localhost:8080", host) + b"Origin: " + page + b"\r\n\r\n")
    assert socket.said.startswith(b"HTTP/1.1 101 " if lets_in else b"HTTP/1.1 403 ")


@pytest.mark.parametrize(("path", "status"), [("/mqtt", b"404"), ("/", b"101"), ("*", b"101")])
def test_one_path_or_any(path: str, status: bytes) -> None:
    layer, _, socket = opened(path=path)
    layer.data_received(UPGRADE.replace(b"GET /mqtt", b"GET /?a=/mqtt") + b"\r\n")
    assert socket.said.startswith(b"HTTP/1.1 " + status)


def test_who_pings_and_never_reads_is_owed_one_pong() -> None:
    layer, _, socket = opened()
    layer.data_received(UPGRADE + b"\r\n")
    socket.said.clear()
    layer.data_received(frame(PING, b"first"))
    assert bytes(socket.said) == b"\x8a\x05first"
    socket.said.clear()
    socket.unread = WRITE_BUFFER_BYTES + 1
    for number in range(1_000):
        layer.data_received(frame(PING, b"%d" % number))
    assert not socket.said
    socket.unread = 0
    layer.resume_writing()
    assert bytes(socket.said) == b"\x8a\x03999"
    layer.resume_writing()
    assert bytes(socket.said) == b"\x8a\x03999"
