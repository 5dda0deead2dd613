"""A small HTTP/1.1 server: one request and one response for each connection.

It shares the loop with the clients, so everything is bounded: connections, the size of a request, the time until a
request is complete and the time until a response has left. h11 parses and checks the bytes (RFC 9112); what h11
refuses is answered with its status and closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, cast

import h11

from edgebroker.dataclasses import dataclass
from edgebroker.errors import CannotListen
from edgebroker.runtime.http.auth import CHALLENGE, HttpAccess
from edgebroker.runtime.listeners.bind_error import describe_bind_error
from edgebroker.runtime.listeners.local_names import names_this_machine

CONNECTIONS_MAX: Final = 32
"""Scrapers, people, and traces: each waits for its answer alone. More are refused with 503."""
REQUEST_BYTES_MAX: Final = 8 * 1024
"""Request line and headers. Ours have 200 bytes; a browser with cookies for other ports of the host sends 2 KiB."""
REQUEST_S: Final = 5.0
"""A request that is not whole by then is a slow loris, or nobody."""
ANSWER_S: Final = 30.0
"""An answer that is not taken by then never is. A stream has as long for each of its parts."""
BUFFER_BYTES: Final = 64 * 1024
"""Above this a stream waits for its reader."""
VERSIONS: Final = (b"1.0", b"1.1")
METHODS: Final = (b"GET", b"HEAD")
ORDER_HEADER: Final = "Edgebroker-Control"
"""A header that no page of a browser may send to another site without asking first, which is not answered."""
HEADERS: Final = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close")]

Body = bytes | AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a page says. A body that comes by and by is a stream, sent in chunks until it ends or the reader goes."""

    status: HTTPStatus
    content_type: str
    body: Body


def text_response(status: HTTPStatus, text: str) -> HttpResponse:
    """One line for people."""
    return HttpResponse(status, "text/plain; charset=utf-8", f"{text}\n".encode())


HttpHandler = Callable[[str], Awaitable[HttpResponse]]
"""From the target of a request (path and query) to its answer."""


class HttpServer:
    """The listening socket, and the connections it accepted."""

    def __init__(
        self,
        pages: HttpHandler,
        request_s: float = REQUEST_S,
        answer_s: float = ANSWER_S,
        access: HttpAccess | None = None,
    ) -> None:
        self.handler = pages
        self.order_handlers: dict[str, HttpHandler] = {}
        """By path, what does something: POST, and with the header CONTROL."""
        self.access = access
        """Who may ask; None: everybody."""
        self.request_s = request_s
        self.answer_s = answer_s
        self.connections: set[HttpConnection] = set()
        self.is_local = True
        """Whether only this machine can reach us. Then requests must name it too, see `Visit`."""
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Begin to answer; returns the address. Raises CannotListen."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: HttpConnection(self), host, port, backlog=CONNECTIONS_MAX)
        except (OSError, UnicodeError) as error:
            raise CannotListen(describe_bind_error(f"{host}:{port}", error, "--http or http.port")) from error
        addresses = [server.getsockname() for server in self._server.sockets]
        self.is_local = all(ipaddress.ip_address(address[0]).is_loopback for address in addresses)
        return addresses[0][0], addresses[0][1]

    def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        for visit in list(self.connections):
            visit.abort()


class HttpConnection(asyncio.Protocol):
    """One connection: one request, one answer. Where only this machine can reach us, Host must say so."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._answering: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._received = 0
        self._is_head = False
        self._is_over = False
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody dialled."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._server.connections.add(self)
        self._set_deadline(self._server.request_s)
        if len(self._server.connections) > 2 * CONNECTIONS_MAX:
            self.abort()  # no word even of that: each who hears it holds a descriptor until it hangs up
        elif len(self._server.connections) > CONNECTIONS_MAX:
            self._respond(
                text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"at most {CONNECTIONS_MAX} connections at one time")
            )

    def data_received(self, data: bytes) -> None:
        """A part of the request; what comes after it is of no interest."""
        if self._answering is not None or self._is_over:
            return
        data = data[: REQUEST_BYTES_MAX + 1 - self._received]  # h11 bounds only what is not whole
        self._received += len(data)
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._respond(text_response(HTTPStatus(error.error_status_hint or 400), str(error)))
            return
        if isinstance(event, h11.Request):
            self._is_head = event.method == b"HEAD"
            self._transport.pause_reading()
            self._set_deadline(self._server.answer_s)
            self._answering = asyncio.get_running_loop().create_task(self._answer(event))
            self._answering.add_done_callback(self._answered)

    def pause_writing(self) -> None:
        """The reader does not take what we say."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever it was is gone, and needs no answer."""
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        """Hang up."""
        self._transport.abort()

    async def _answer(self, request: h11.Request) -> None:
        if request.http_version not in VERSIONS:
            answer = text_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and 1.1 are spoken here")
        elif request.method not in METHODS and self._control(request) is None:
            answer = text_response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered")
        elif self._server.is_local and not names_this_machine(_header(request, b"host")):
            answer = text_response(
                HTTPStatus.FORBIDDEN, "only requests to localhost, 127.0.0.1 or [::1] are answered here"
            )
        elif not self._is_admitted(request):
            answer = text_response(HTTPStatus.UNAUTHORIZED, "this door wants a token: Authorization: Bearer TOKEN")
        elif (control := self._control(request)) is None:
            answer = await self._server.handler(_target_of(request))
        elif self._server.access is None and not self._server.is_local:
            answer = text_response(
                HTTPStatus.FORBIDDEN, "what changes something wants a token here: set http.token_file"
            )
        elif not _header(request, ORDER_HEADER.lower().encode()):
            answer = text_response(
                HTTPStatus.FORBIDDEN, f"whoever wants something done sends the header {ORDER_HEADER}: 1"
            )
        else:
            answer = await control(_target_of(request))
        if isinstance(answer.body, bytes):
            self._respond(answer)
        else:
            await self._stream(request, answer, answer.body)

    def _control(self, request: h11.Request) -> HttpHandler | None:
        is_post = request.method == b"POST"
        return self._server.order_handlers.get(_target_of(request).partition("?")[0]) if is_post else None

    def _is_admitted(self, request: h11.Request) -> bool:
        access = self._server.access
        return access is None or access.admits(_target_of(request), _header(request, b"authorization"))

    async def _stream(self, request: h11.Request, answer: HttpResponse, parts: AsyncGenerator[bytes, None]) -> None:
        # From here on the reader may say nothing but good-bye; only by reading do we hear that.
        self._transport.resume_reading()
        self._begin(answer, [])
        async with aclosing(parts):
            while not self._is_head and (part := await anext(parts, None)) is not None:
                if not self._is_admitted(request):  # its token was taken away meanwhile
                    self.abort()
                    return
                self._send(h11.Data(data=part))
                self._set_deadline(self._server.answer_s)
                await self._may_write.wait()
        self._send(h11.EndOfMessage())
        self._close_gracefully()

    def _answered(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "edgebroker: a page cannot be made", "exception": error})
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "this page cannot be made; the log says why"))
        else:
            self.abort()

    def _respond(self, answer: HttpResponse) -> None:
        """Send a whole answer, and close when it has left."""
        assert isinstance(answer.body, bytes)
        self._begin(answer, [("Content-Length", str(len(answer.body)))])
        if not self._is_head:
            self._send(h11.Data(data=answer.body))
        self._send(h11.EndOfMessage())
        self._close_gracefully()

    def _close_gracefully(self) -> None:
        """Close when everything has left and the peer has closed too, or its time is over.

        Were we to close while bytes of it are on their way, the system would answer them with a reset, and the reset
        may overtake our answer.
        """
        self._is_over = True
        try:
            self._transport.write_eof()
        except OSError:  # ENOTCONN: whoever asked has hung up, which we have not been told yet
            self.abort()
            return
        self._transport.resume_reading()

    def _begin(self, answer: HttpResponse, headers: list[tuple[str, str]]) -> None:
        headers = [("Content-Type", answer.content_type), *headers, *HEADERS]
        if answer.status is HTTPStatus.UNAUTHORIZED:
            headers.append(CHALLENGE)
        reason = answer.status.phrase.encode()
        self._send(h11.Response(status_code=answer.status, headers=headers, reason=reason))

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._transport.write(data)

    def _set_deadline(self, seconds: float) -> None:
        """Hang up unless this is called again, or the connection ends, in so many seconds."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)


def _header(request: h11.Request, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in request.headers if name == wanted), "")


def _target_of(request: h11.Request) -> str:
    return request.target.decode("ascii", "replace")
