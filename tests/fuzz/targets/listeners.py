"""What listeners read before MQTT: WebSocket, HTTP requests, PROXY headers, certificates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, cast

from edgebroker.runtime.http import query as queries
from edgebroker.runtime.http.server import HttpConnection, HttpResponse, HttpServer, text_response
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause
from edgebroker.runtime.listeners.proxy import HEADER_BYTES_MAX, SIGNATURE, ProxyHeaderError, parse_proxy_header
from edgebroker.runtime.listeners.tls import CertificateMalformed, validity_of
from edgebroker.runtime.listeners.websocket import (
    CloseCode,
    WebSocketDecoder,
    WebSocketFrameError,
    WebSocketLayer,
    close_frame,
)
from edgebroker.runtime.settings.sections import ListenerSettings
from tests.fuzz.frame.target import Target, filled

MASK = b"\1\2\3\4"


def frame(opcode: int, payload: bytes, final: bool = True) -> bytes:
    """A frame of a client, masked."""
    size = len(payload)
    head = bytes((opcode | final << 7, 0x80 | (size if size < 126 else 126 if size < 65_536 else 127)))
    if size >= 126:
        head += size.to_bytes(2 if size < 65_536 else 8)
    return head + MASK + bytes(octet ^ MASK[at & 3] for at, octet in enumerate(payload))


def read_frames(data: bytes) -> None:
    """However the bytes are cut, they mean the same."""
    if not data:
        return
    size, said = data[0] + 1, data[1:]
    whole = taken([said])
    cut = taken([said[at : at + size] for at in range(0, len(said), size)])
    # What came before a refusal may have gone up already when the bytes come in pieces.
    assert whole[1:] == cut[1:]
    assert whole[0] == cut[0] if whole[2] is None else cut[0].startswith(whole[0])


def taken(pieces: list[bytes]) -> tuple[bytes, int | None, CloseCode | None]:
    """(payloads, code of a close, code of a refusal)."""
    frames, heard = WebSocketDecoder(), b""
    try:
        for piece in pieces:
            heard += frames.feed(piece)
            answers = frames.take_replies()
            assert len(answers) <= 2 + 125 + 127
    except WebSocketFrameError as error:
        close_frame(error.code, error.reason)
        return heard, frames.close_code, error.code
    return heard, frames.close_code, None


@dataclass(slots=True)
class Door:
    """Above a layer: keeps what comes up."""

    heard: bytearray = field(default_factory=bytearray)
    connection: Any = None

    def __post_init__(self) -> None:
        self.connection = cast(
            Any, type("Somebody", (), {"listener_context": type("By", (), {"name": "l"}), "peer": "p"})
        )

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_made(self, transport: object) -> None: ...

    def resume_writing(self) -> None: ...


class Socket(asyncio.Transport):
    """Below a layer: keeps what is said, and says nothing after it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.said = bytearray()
        self.unread = 0
        """Bytes that the peer does not take."""
        self.is_over = False

    def write(self, data: Any) -> None:
        assert not self.is_over
        self.said += data

    def write_eof(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Turnings:
    """In place of the refusals: what was said is short, and no more is needed."""

    def record(self, cause: ConnectionRefusalCause, listener: str, peer: str, why: str) -> None:
        assert len(why) < 10_000


def opened(is_local: bool = False, path: str = "/mqtt") -> tuple[WebSocketLayer, Door, Socket]:
    """A layer between a door and a socket."""
    door, socket = Door(), Socket()
    layer = WebSocketLayer(cast(Any, door), ListenerSettings(websocket_path=path), cast(Any, Turnings()), is_local)
    layer.connection_made(socket)
    return layer, door, socket


def read_websocket(data: bytes) -> None:
    """A request, and perhaps frames behind it; the first byte says how it is cut."""
    if not data:
        return
    layer, door, socket = opened()
    size, said = data[0] * 8 + 1 if data[0] else len(data), data[1:]
    at = 0
    while at < len(said) and not socket.is_over:
        step = size
        if not socket.said and (end := said.find(b"\r\n\r\n", at)) >= 0:
            step = min(step, end + 4 - at)  # a client waits for the answer
        layer.data_received(said[at : at + step])
        at += step
    assert socket.said.startswith((b"HTTP/1.1 ",)) or not socket.said
    assert not door.heard or socket.said.startswith(b"HTTP/1.1 101 ")


UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
)
HTTP_WORDS = (
    b"\r\n\r\n",
    b"\r\n",
    b"\r\n ",
    b"Host: ",
    b"Origin: http://[::1",
    b"Origin: http://localhost:1",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: Upgrade, close\r\n",
    b'Sec-WebSocket-Extensions: permessage-deflate; a="b"\r\n',
    b"Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n",
    b"HTTP/1.0",
    b"HEAD",
    b"OPTIONS * ",
    b"http://[/",
    b"/%ff?a=b&c=%00",
    b"?sort=queue&limit=10",
)

LOOP = asyncio.new_event_loop()


async def answered(target: str) -> HttpResponse:
    """As `Pages` does it, without a gateway."""
    try:
        path, query = queries.parse_target(target)
        queries.read_choice(query, "sort", "queue", ["queue", "bytes"])
        queries.read_integer(query, "limit", 1, 0, 100)
    except queries.QueryInvalid as refused:
        return text_response(HTTPStatus.BAD_REQUEST, str(refused))
    return text_response(HTTPStatus.OK, path)


def read_http(data: bytes) -> None:
    """A request to the HTTP door: one answer and good-bye, or patience. The first byte says how it is cut."""
    if not data:
        return
    trouble: list[Any] = []
    LOOP.set_exception_handler(lambda _, context: trouble.append(context["exception"]))
    server = HttpServer(answered)
    socket, visit = Socket(), HttpConnection(server)

    async def story() -> None:
        visit.connection_made(socket)
        size = data[0] * 8 + 1 if data[0] else len(data)
        for at in range(1, len(data), size):
            visit.data_received(data[at : at + size])
        if responses := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(responses)
        visit.connection_lost(None)

    LOOP.run_until_complete(story())
    if trouble:
        raise trouble[0]
    assert bool(socket.said) == socket.is_over
    assert not server.connections


def proxied(command: int, family: int, body: bytes) -> bytes:
    """A header with its length."""
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2) + body


def tlv(kind: int, value: bytes) -> bytes:
    """One value of a header."""
    return bytes((kind,)) + len(value).to_bytes(2) + value


TLS_SAID = tlv(0x20, b"\3\0\0\0\0" + tlv(0x21, b"TLSv1.3") + tlv(0x22, b"pump-3"))


def read_proxy(data: bytes) -> None:
    """A header: what is behind it changes nothing."""
    header = parse_proxy_header(data)
    if header is None:
        assert len(data) < HEADER_BYTES_MAX
        return
    assert header.size <= min(len(data), HEADER_BYTES_MAX)
    assert parse_proxy_header(data + b"more") == header
    assert parse_proxy_header(data[: header.size]) == header


TIME = b"\x17\x0d261121191652Z"
BODY = b"\xa0\x03\x02\x01\x02" + b"\x02\x01\x07" + b"\x30\x00" * 2 + bytes((0x30, 2 * len(TIME))) + TIME * 2
INNER = bytes((0x30, len(BODY))) + BODY
CERTIFICATE = bytes((0x30, len(INNER))) + INNER


def read_certificate(data: bytes) -> None:
    """When a certificate is valid, which has an order of days."""
    found = validity_of(data)
    found.days_left(datetime(2026, 1, 1, tzinfo=UTC))


TARGETS = (
    Target(
        "websocket-frames",
        read_frames,
        (
            b"\xff" + frame(2, b"\x10\0") + frame(9, b"ping") + frame(8, b"\x03\xe8bye"),
            b"\2" + frame(2, b"a" * 200, final=False) + frame(10, b"") + frame(0, b"b" * 3),
            b"\x40" + frame(2, b"c" * 70_000)[:300],
        ),
        (),
        (
            *(frame(opcode, b"") for opcode in (0, 1, 2, 8, 9, 10)),
            MASK,
            b"\x82\xfe\x00\x7e",
            b"\x82\xff" + bytes(8),
            b"\x02\x80" + MASK,
        ),
        bombs={
            "empty frames": lambda: filled(b"\x82\x80" + MASK, b"\xff"),
            "frames of one byte": lambda: filled(b"\x82\x81" + MASK + b"x", b"\xff"),
            "pings": lambda: filled(b"\x89\x80" + MASK, b"\xff"),
            "large pings": lambda: filled(frame(9, b"p" * 125), b"\xff"),
            "one large frame": lambda: b"\xff" + frame(2, b"x" * 65_520),
            "fragments": lambda: filled(b"\0\x80" + MASK, b"\xff\x02\x80" + MASK),
        },
        plain=lambda data: taken([data[1:]]),
    ),
    Target(
        "websocket",
        read_websocket,
        (
            b"\0" + UPGRADE + b"\r\n" + frame(2, b"\x10\0"),
            b"\7" + UPGRADE + b"Origin: http://localhost\r\n\r\n" + frame(2, b"\x10\0") + frame(8, b""),
            b"\0" + UPGRADE.replace(b"mqtt", b"chat") + b"\r\n",
            b"\0" + UPGRADE.replace(b"13", b"12") + b"\r\n",
            b"\0GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\0\x10\x0c\0\4MQTT",
        ),
        (),
        HTTP_WORDS,
        bombs={
            "many headers": lambda: filled(b"a:\r\n", b"\0" + UPGRADE, b"\r\n"),
            "many headers in 8 KiB": lambda: filled(b"a:\r\n", b"\0" + UPGRADE, b"\r\n", size=8_192),
            "8 KiB in one header": lambda: filled(b"a", b"\0" + UPGRADE + b"X: ", b"\r\n\r\n", size=8_192),
            "8 KiB of sub-protocols": lambda: filled(
                b"a,", b"\0" + UPGRADE + b"Sec-WebSocket-Protocol: ", b"\r\n\r\n", size=8_192
            ),
            "8 KiB of extensions": lambda: filled(
                b"a;b,", b"\0" + UPGRADE + b"Sec-WebSocket-Extensions: ", b"\r\n\r\n", size=8_192
            ),
            "8 KiB of folded lines": lambda: filled(b"\r\n ", b"\0" + UPGRADE + b"X: a", b"\r\n\r\n", size=8_192),
            "an origin of 8 KiB": lambda: filled(b"[", b"\0" + UPGRADE + b"Origin: http://", b"\r\n\r\n", size=8_192),
            "empty frames": lambda: filled(b"\x82\x80" + MASK, b"\0" + UPGRADE + b"\r\n"),
        },
    ),
    Target(
        "http",
        read_http,
        (
            b"\0GET /health?a=b HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
            b"\1GET /clients?sort=bytes&limit=5 HTTP/1.0\r\nHost: [::1]:8080\r\n\r\n",
            b"\0HEAD / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 2\r\n\r\nab",
            b"\0POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"\0GET http://[::1/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ),
        (),
        HTTP_WORDS,
        bombs={
            "many headers": lambda: filled(b"a:\r\n", b"\0GET / HTTP/1.1\r\n"),
            "one header": lambda: filled(b"a", b"\0GET / HTTP/1.1\r\na: "),
            "a target": lambda: filled(b"%", b"\0GET /"),
            "many headers in pieces": lambda: filled(b"a:\r\n", b"\1GET / HTTP/1.1\r\n"),
            "a query in 8 KiB": lambda: filled(b"&a", b"\0GET /?a", b" HTTP/1.1\r\nHost:\r\n\r\n", size=8_000),
            "a long word in 8 KiB": lambda: filled(b"a", b"\0GET /?sort=", b" HTTP/1.1\r\nHost:\r\n\r\n", size=8_000),
            "folded lines": lambda: filled(b"\r\n ", b"\0GET / HTTP/1.1\r\nA: a"),
            "line ends": lambda: filled(b"\r\n", b"\0"),
        },
    ),
    Target(
        "proxy",
        read_proxy,
        (
            proxied(0x21, 0x11, bytes(range(12)) + TLS_SAID),
            proxied(0x21, 0x21, bytes(range(36)) + tlv(4, b"abc") + TLS_SAID),
            proxied(0x21, 0x31, bytes(216)),
            proxied(0x20, 0, b""),
            b"PROXY TCP4 1.2.3.4 1.2.3.4 5 6\r\n",
        ),
        (ProxyHeaderError,),
        (SIGNATURE, TLS_SAID, tlv(4, b""), tlv(0x22, b"x"), b"\x21\x11", b"\x21\x21", b"\xff\xff"),
        bombs={
            "as long as can be said": lambda: proxied(0x21, 0x11, filled(b"\4\0\0", bytes(12), size=0xFFF0)),
            "many values": lambda: proxied(0x21, 0x11, filled(b"\4\0\0", bytes(12), size=4_080)),
            "many values inside": lambda: proxied(
                0x21, 0x11, bytes(12) + tlv(0x20, filled(b"\x22\0\0", b"\3\0\0\0\0", size=4_000))
            ),
            "signatures": lambda: filled(SIGNATURE),
        },
    ),
    Target(
        "certificate",
        read_certificate,
        (CERTIFICATE, CERTIFICATE.replace(b"\x17\x0d26", b"\x18\x0f20")),
        (CertificateMalformed,),
        (TIME, b"\x18\x0f20261121191652Z", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80", b"\xa0"),
        bombs={
            "sequences in sequences": lambda: filled(b"\x30\x84\0\0\xff\xf0"),
            "a long time": lambda: filled(b"1", CERTIFICATE[:20]),
        },
    ),
)
