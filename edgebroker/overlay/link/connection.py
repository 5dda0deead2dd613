"""One connection to a peer: first hellos, then frames. The runtime has one for each socket.

connection.feed(chunk, now)              bytes arrived
connection.has_more                      call feed(b"", now) in another turn, before reading more from the socket
connection.flush(now, room)              returns about `room` bytes to write; call it again until it returns none
connection.lost(now)                     the socket was closed
connection.due(), connection.fire(now)   the deadline of the hellos; afterwards the link has the deadlines
connection.is_over                       close the socket when the bytes of `flush` are written
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.handshake import (
    TOPOLOGY_HEAD_BYTES,
    TOPOLOGY_MAGIC,
    Hello,
    HelloRefused,
    TopologyExchange,
    decode_hello,
    encode_refusal,
    hello_bytes,
    topology_bytes,
)

HELLO_TIMEOUT: Final[Duration] = 10 * SECOND
"""From the connection to the peer's hello: one round trip; over a satellite with a retransmission 3 s."""


class ConnectionOwner(Protocol):
    """The link to which a connection belongs, once it is identified."""

    def fed(self, chunk: bytes, now: Instant) -> bool:
        """Decode received bytes. Returns whether there is more to decode in another turn. Raises FrameBroken."""
        ...

    def pull(self, now: Instant, room: int) -> bytes:
        """Return frames to write."""
        ...

    def ended(self, connection: LinkConnection, reason: str, now: Instant) -> None:
        """Handle the end of the connection."""

    def refused(self, refused: HelloRefused) -> None:
        """Handle a refused hello."""


HelloHandler: TypeAlias = Callable[["LinkConnection", Hello, Instant], ConnectionOwner]
"""Returns the owner of a connection by its hello, and writes an answer to `out` if it needs one. Raises
HelloRefused.
"""


class LinkConnection:
    """One connection."""

    def __init__(
        self,
        hello_handler: HelloHandler,
        owner: ConnectionOwner | None,
        now: Instant,
        topologies: TopologyExchange | None = None,
    ) -> None:
        """`owner`: the link that dialled; None for a connection that was accepted. `topologies` takes the file that a
        peer hands on before its hello.
        """
        self.out = bytearray()
        """Hellos and refusals to be written."""
        self.is_over = False
        self.is_open = False
        """Whether both hellos are exchanged, as far as this end knows."""
        self.has_more = False
        """Whether received bytes are left to decode in another turn."""
        self.reason = ""
        """The reason why it is over."""
        self.paused = False
        """Whether the socket is full. The runtime sets it, and flushes when the socket is writable again."""
        self.certified: str | None = None
        """The name in the peer's certificate, if it sent one."""
        self.address = ""
        """The peer's address for messages, if the runtime sets it."""
        self._hello_handler = hello_handler
        self._owner = owner
        self._buffer = bytearray()
        self._topologies = topologies
        self._deadline = now + HELLO_TIMEOUT

    @property
    def has_begun(self) -> bool:
        """Whether a part of the peer's hello has arrived."""
        return bool(self._buffer)

    def feed(self, chunk: bytes, now: Instant) -> None:
        """Handle received bytes. Malformed ones end the connection; nothing is raised."""
        if self.is_over:
            return
        try:
            if self.is_open and self._owner is not None:
                self.has_more = self._owner.fed(chunk, now)
            else:
                self._receive_hello(chunk, now)
        except FrameBroken as error:
            self.end(str(error), now)
        except HelloRefused as refused:
            if self._owner is not None:
                self._owner.refused(refused)
            else:
                self.out += refused.offer + encode_refusal(refused)
            self.end(f"refused: {refused}", now)

    def flush(self, now: Instant, room: int) -> bytes:
        """Return bytes to write."""
        owner = self._owner if self.is_open and not self.is_over else None
        if not self.out:  # nearly always
            return b"" if owner is None or room <= 0 else owner.pull(now, room)
        out = bytes(self.out)
        self.out.clear()
        return out if owner is None or len(out) >= room else out + owner.pull(now, room - len(out))

    def lost(self, now: Instant) -> None:
        """Handle a socket that the peer or the network closed."""
        self.end("the connection was lost", now)

    def due(self) -> Instant | None:
        """Return the deadline for `fire`; None if there is none."""
        return None if self.is_open or self.is_over else self._deadline

    def fire(self, now: Instant) -> None:
        """End the connection if the hello is overdue."""
        if not self.is_open and now >= self._deadline:
            self.end(f"no hello within {HELLO_TIMEOUT // SECOND} s", now)

    def end(self, reason: str, now: Instant) -> None:
        """End the connection; bytes in `out` are still written, and bytes not decoded yet are discarded."""
        if not self.is_over:
            self.is_over = True
            self.has_more = False
            self.reason = reason
            if self._owner is not None:
                self._owner.ended(self, reason, now)

    def _receive_hello(self, chunk: bytes, now: Instant) -> None:
        buffer = self._buffer
        buffer += chunk
        topologies = self._topologies
        if topologies is not None and topologies.takes_files and buffer.startswith(TOPOLOGY_MAGIC):
            size = topology_bytes(buffer)
            if size is None or len(buffer) < size:
                return
            topologies.received.append(bytes(buffer[TOPOLOGY_HEAD_BYTES:size]))
            self._topologies = None  # one for each connection
            del buffer[:size]
        size = hello_bytes(buffer)
        if size is None or len(buffer) < size:
            return
        self._owner = self._hello_handler(self, decode_hello(bytes(buffer[:size])), now)
        self.is_open = True
        rest = bytes(buffer[size:])
        buffer.clear()
        if rest:
            self.has_more = self._owner.fed(rest, now)
