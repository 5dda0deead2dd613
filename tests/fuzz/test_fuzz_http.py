"""Any bytes at the HTTP door, cut anyhow: an answer and good-bye, or patience until a deadline. Never an error."""

from __future__ import annotations

import asyncio
import errno
import random
from http import HTTPStatus
from typing import Any

import pytest

from edgebroker.runtime.http.server import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    HttpConnection,
    HttpResponse,
    HttpServer,
    text_response,
)

from ..support.http_transport import RecordingTransport

REQUEST = b"GET /health?a=b HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nX-Long: " + b"v" * 200 + b"\r\n\r\n"
PIECES = (b"GET", b" ", b"/", b"?", b"%", b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\n", b":", b"Host: localhost", b"\0")
MORE = (
    b"Content-Length: 5",
    b"Transfer-Encoding: chunked",
    b"\xff",
    b"\x16\x03\x01",
    b"[",
    b"]",
    b"HEAD",
    b"x" * 9_000,
)


async def answer(target: str) -> HttpResponse:
    assert isinstance(target, str)
    return text_response(HTTPStatus.OK, target[:20])


def make(chance: random.Random) -> bytes:
    kind = chance.randrange(3)
    if kind == 0:
        return b"".join(chance.choices(PIECES + MORE, k=chance.randrange(1, 30)))
    if kind == 1:
        return chance.randbytes(chance.randrange(1, 300))
    said = bytearray(REQUEST)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(said))
        if chance.random() < 0.5:
            said[at : at + chance.randrange(4)] = chance.choice(PIECES)
        else:
            said[at] = chance.randrange(256)
    return bytes(said)


def test_any_bytes_are_answered_once_or_waited_for(chance: random.Random) -> None:
    async def story() -> None:
        trouble: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: trouble.append(context))
        server = HttpServer(answer, request_s=600, answer_s=600)
        answered = 0
        for _ in range(3_000):
            said, line, visit = make(chance), RecordingTransport(), HttpConnection(server)
            visit.connection_made(line)
            at = 0
            while at < len(said):
                size = chance.choice((1, 7, 100, 10_000))
                visit.data_received(said[at : at + size])
                at += size
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert line.said.count(b"HTTP/1.1 ") <= 1 + said.count(b"HTTP/1.1 "), said
            assert bool(line.said) == line.is_over, said
            if not line.said:
                assert len(said) <= REQUEST_BYTES_MAX, "too much is refused, whole or not"
            answered += line.said.startswith(b"HTTP/1.1 200 OK")
            visit.connection_lost(None)
        assert not server.connections
        assert not trouble, trouble[0]
        assert 100 < answered < 2_900, "both sides of the rule were seen"

    asyncio.run(story())


def test_who_hangs_up_while_we_answer_is_no_trouble() -> None:
    class Gone(RecordingTransport):
        def write_eof(self) -> None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    async def story() -> None:
        trouble: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
        line = Gone()
        visit = HttpConnection(HttpServer(answer))
        visit.connection_made(line)
        visit.data_received(REQUEST)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert line.said.startswith(b"HTTP/1.1 200 OK")
        assert line.is_over
        assert not trouble

    asyncio.run(story())


@pytest.mark.parametrize("said", [b"", b"GET /health HT", REQUEST[:-2]])
def test_a_request_that_does_not_come_is_given_up(said: bytes) -> None:
    async def story() -> None:
        server, line = HttpServer(answer, request_s=0.01), RecordingTransport()
        visit = HttpConnection(server)
        visit.connection_made(line)
        visit.data_received(said)
        while not line.is_over:
            await asyncio.sleep(0.005)
        assert line.said == b""

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_storm_of_connections_holds_few_of_them() -> None:
    """Each that is told that there are too many is open until it hangs up; so from the 65th on nothing is said."""

    async def story() -> None:
        server, lines = HttpServer(answer), [RecordingTransport() for _ in range(100)]
        for line in lines:
            visit = HttpConnection(server)
            visit.connection_made(line)
            if line.is_over and not line.said:
                visit.connection_lost(None)
        assert [bool(line.said) for line in lines] == [32 <= number < 64 for number in range(100)]
        assert len(server.connections) == 64
        for visit in list(server.connections):
            visit.connection_lost(None)

    asyncio.run(story())


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    async def slow(_: str) -> HttpResponse:
        await asyncio.sleep(600)
        raise AssertionError

    async def story() -> None:
        server, line = HttpServer(slow, answer_s=0.01), RecordingTransport()
        visit = HttpConnection(server)
        visit.connection_made(line)
        visit.data_received(REQUEST)
        while not line.is_over:
            await asyncio.sleep(0.005)
        visit.connection_lost(None)
        assert not server.connections

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_page_with_a_bug_is_told_and_answered() -> None:
    async def bug(_: str) -> HttpResponse:
        raise ZeroDivisionError("a bug in a page")

    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        line = RecordingTransport()
        visit = HttpConnection(HttpServer(bug))
        visit.connection_made(line)
        visit.data_received(REQUEST)
        while not line.is_over:
            await asyncio.sleep(0)
        assert line.said.startswith(b"HTTP/1.1 500 ")
        assert [type(context["exception"]) for context in told] == [ZeroDivisionError]

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_crowd_is_refused() -> None:
    async def story() -> None:
        server = HttpServer(answer)
        lines = [RecordingTransport() for _ in range(CONNECTIONS_MAX + 1)]
        for line in lines:
            HttpConnection(server).connection_made(line)
        assert [line.said[:12] for line in lines] == [b""] * CONNECTIONS_MAX + [b"HTTP/1.1 503"]

    asyncio.run(story())


def test_a_stream_waits_for_its_reader_and_ends_with_it() -> None:
    async def story() -> None:
        made, closed = 0, asyncio.Event()

        async def parts() -> Any:
            nonlocal made
            try:
                while True:
                    made += 1
                    yield b"x" * 10
                    await asyncio.sleep(0)
            finally:
                closed.set()

        async def page(_: str) -> HttpResponse:
            return HttpResponse(HTTPStatus.OK, "text/plain", parts())

        line = RecordingTransport()
        visit = HttpConnection(HttpServer(page))
        visit.connection_made(line)
        visit.data_received(REQUEST)
        while made < 3:
            await asyncio.sleep(0)
        visit.pause_writing()
        for _ in range(5):
            await asyncio.sleep(0)
        before = made
        for _ in range(50):
            await asyncio.sleep(0)
        assert made == before, "nothing is made for who does not read"
        visit.resume_writing()
        while made < before + 3:
            await asyncio.sleep(0)
        assert b"Transfer-Encoding: chunked" in line.said
        visit.connection_lost(None)
        await closed.wait()

    asyncio.run(asyncio.wait_for(story(), 30))
