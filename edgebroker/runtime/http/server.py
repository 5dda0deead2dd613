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
from edgebroker.names import names_this_machine
from edgebroker.runtime.http.auth import CHALLENGE, HttpAccess
from edgebroker.runtime.listeners.listener import describe_bind_error

CONNECTIONS_MAX: Final = 32
"""Scrapers, people and traces share these; each has one request. Further connections are refused with 503."""
REQUEST_BYTES_MAX: Final = 8 * 1024
"""Request line and headers. Those of our clients have 200 bytes; a browser with cookies for other ports of the host
sends 2 KiB.
"""
REQUEST_S: Final = 5.0
"""Time for a complete request; a slower one is a Slowloris attack, or a client that died."""
ANSWER_S: Final = 30.0
"""Time for the peer to take a response; for a stream, each of its parts."""
BUFFER_BYTES: Final = 64 * 1024
"""Write buffer above which a stream waits for the peer to read."""
VERSIONS: Final = (b"1.0", b"1.1")
METHODS: Final = (b"GET", b"HEAD")
ORDER_HEADER: Final = "Edgebroker-Control"
"""Required for orders. A web page can send it to another site only after a CORS preflight, which we do not answer."""
HEADERS: Final = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close")]

Body = bytes | AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A status, a media type and a body. A generator as body is sent in chunks."""

    status: HTTPStatus
    content_type: str
    body: Body


def text_response(status: HTTPStatus, text: str) -> HttpResponse:
    """Returns a response of one line for people."""
    return HttpResponse(status, "text/plain; charset=utf-8", f"{text}\n".encode())


HttpHandler = Callable[[str], Awaitable[HttpResponse]]
"""Returns the response to the target of a request (path and query)."""


class HttpServer:
    """The listening socket and the connections it accepted."""

    def __init__(
        self,
        handler: HttpHandler,
        request_s: float = REQUEST_S,
        answer_s: float = ANSWER_S,
        access: HttpAccess | None = None,
    ) -> None:
        self.handler = handler
        self.order_handlers: dict[str, HttpHandler] = {}
        """Path -> handler of POST, for requests with `ORDER_HEADER`."""
        self.access = access
        """The tokens that authorize requests; None: all are authorized."""
        self.request_s = request_s
        self.answer_s = answer_s
        self.connections: set[HttpConnection] = set()
        self.is_local = True
        """Whether the socket is bound to loopback addresses only. Then the Host of a request must name this machine,
        too: otherwise a web page could reach the server by DNS rebinding.
        """
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts listening; returns the address and port. Raises CannotListen."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: HttpConnection(self), host, port, backlog=CONNECTIONS_MAX)
        except (OSError, UnicodeError) as error:
            raise CannotListen(describe_bind_error(f"{host}:{port}", error, "--http or http.port")) from error
        addresses = [server.getsockname() for server in self._server.sockets]
        self.is_local = all(ipaddress.ip_address(address[0]).is_loopback for address in addresses)
        return addresses[0][0], addresses[0][1]

    def close(self) -> None:
        """Closes the listening socket and all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()


class HttpConnection(asyncio.Protocol):
    """One connection: one request and one response."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._response_task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._received = 0
        self._is_head = False
        self._is_responded = False
        self._is_writable = asyncio.Event()
        self._is_writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection, or refuses it if there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._server.connections.add(self)
        self._set_deadline(self._server.request_s)
        if len(self._server.connections) > 2 * CONNECTIONS_MAX:
            self.abort()  # even the refusal would keep a descriptor open until the peer closes
        elif len(self._server.connections) > CONNECTIONS_MAX:
            self._respond(
                text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"at most {CONNECTIONS_MAX} connections at one time")
            )

    def data_received(self, data: bytes) -> None:
        """Parses the request; bytes after it are ignored."""
        if self._response_task is not None or self._is_responded:
            return
        data = data[: REQUEST_BYTES_MAX + 1 - self._received]  # h11 limits only incomplete requests
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
            self._response_task = asyncio.get_running_loop().create_task(self._handle(event))
            self._response_task.add_done_callback(self._on_response_done)

    def pause_writing(self) -> None:
        """Lets a stream wait: the write buffer is full."""
        self._is_writable.clear()

    def resume_writing(self) -> None:
        """Lets a stream continue."""
        self._is_writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the response: the connection has ended."""
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._response_task is not None:
            self._response_task.cancel()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    async def _handle(self, request: h11.Request) -> None:
        if request.http_version not in VERSIONS:
            response = text_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and 1.1 are spoken here")
        elif request.method not in METHODS and self._order_handler(request) is None:
            response = text_response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered")
        elif self._server.is_local and not names_this_machine(_header(request, b"host")):
            response = text_response(
                HTTPStatus.FORBIDDEN, "only requests to localhost, 127.0.0.1 or [::1] are answered here"
            )
        elif not self._is_authorized(request):
            response = text_response(HTTPStatus.UNAUTHORIZED, "this door wants a token: Authorization: Bearer TOKEN")
        elif (order_handler := self._order_handler(request)) is None:
            response = await self._server.handler(_target_of(request))
        elif self._server.access is None and not self._server.is_local:
            response = text_response(
                HTTPStatus.FORBIDDEN, "what changes something wants a token here: set http.token_file"
            )
        elif not _header(request, ORDER_HEADER.lower().encode()):
            response = text_response(
                HTTPStatus.FORBIDDEN, f"whoever wants something done sends the header {ORDER_HEADER}: 1"
            )
        else:
            response = await order_handler(_target_of(request))
        if isinstance(response.body, bytes):
            self._respond(response)
        else:
            await self._stream(request, response, response.body)

    def _order_handler(self, request: h11.Request) -> HttpHandler | None:
        is_post = request.method == b"POST"
        return self._server.order_handlers.get(_target_of(request).partition("?")[0]) if is_post else None

    def _is_authorized(self, request: h11.Request) -> bool:
        access = self._server.access
        return access is None or access.admits(_target_of(request), _header(request, b"authorization"))

    async def _stream(self, request: h11.Request, response: HttpResponse, parts: AsyncGenerator[bytes, None]) -> None:
        # From here on the peer sends nothing but its FIN, which only reading notices.
        self._transport.resume_reading()
        self._send_header(response, [])
        async with aclosing(parts):
            while not self._is_head and (part := await anext(parts, None)) is not None:
                if not self._is_authorized(request):  # its token was removed meanwhile
                    self.abort()
                    return
                self._send(h11.Data(data=part))
                self._set_deadline(self._server.answer_s)
                await self._is_writable.wait()
        self._send(h11.EndOfMessage())
        self._close_gracefully()

    def _on_response_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "edgebroker: a page cannot be made", "exception": error})
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "this page cannot be made; the log says why"))
        else:
            self.abort()

    def _respond(self, response: HttpResponse) -> None:
        """Sends a whole response, then closes."""
        assert isinstance(response.body, bytes)
        self._send_header(response, [("Content-Length", str(len(response.body)))])
        if not self._is_head:
            self._send(h11.Data(data=response.body))
        self._send(h11.EndOfMessage())
        self._close_gracefully()

    def _close_gracefully(self) -> None:
        """Closes when everything is sent and the peer has closed too, or at the deadline.

        A close while request bytes are on their way would be answered with a TCP reset, which may overtake the
        response.
        """
        self._is_responded = True
        try:
            self._transport.write_eof()
        except OSError:  # ENOTCONN: the peer has closed, and `connection_lost` is about to be called
            self.abort()
            return
        self._transport.resume_reading()

    def _send_header(self, response: HttpResponse, headers: list[tuple[str, str]]) -> None:
        headers = [("Content-Type", response.content_type), *headers, *HEADERS]
        if response.status is HTTPStatus.UNAUTHORIZED:
            headers.append(CHALLENGE)
        reason = response.status.phrase.encode()
        self._send(h11.Response(status_code=response.status, headers=headers, reason=reason))

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._transport.write(data)

    def _set_deadline(self, seconds: float) -> None:
        """Aborts the connection after *seconds*, unless this is called again before."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)


def _header(request: h11.Request, lower_name: bytes) -> str:
    return next((value.decode("latin-1") for name, value in request.headers if name == lower_name), "")


def _target_of(request: h11.Request) -> str:
    return request.target.decode("ascii", "replace")
