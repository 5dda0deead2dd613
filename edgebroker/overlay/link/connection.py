"""One connection to a peer: first hellos, then frames. The runtime holds one for each socket.

connection.feed(chunk, now) bytes came connection.has_more feed(b"", now) reads on, in a turn of its own; read no
more from the socket before connection.flush(now, room) bytes to write, about `room` of them; again until there are
none connection.lost(now) the connection ended connection.due(), connection.fire(now) until the hellos are
exchanged; afterwards the link has the deadlines connection.is_over close the socket when what `flush` gave is
written
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.handshake import Hello, HelloRefused, decode_hello, encode_refusal, hello_bytes

HELLO_TIMEOUT: Final[Duration] = 10 * SECOND
"""From the connection to the peer's hello: one round trip, over a satellite with a retransmission 3 s."""


class ConnectionOwner(Protocol):
    """The link that a connection belongs to, once it is known."""

    def fed(self, chunk: bytes, now: Instant) -> bool:
        """Bytes of frames came. Whether there is more to read, in another turn. Raises FrameBroken."""
        ...

    def pull(self, now: Instant, room: int) -> bytes:
        """Frames to write."""
        ...

    def ended(self, stream: LinkConnection, reason: str, now: Instant) -> None:
        """The connection is over."""

    def refused(self, refused: HelloRefused) -> None:
        """The connection came to nothing, because of this."""


HelloHandler: TypeAlias = Callable[["LinkConnection", Hello, Instant], ConnectionOwner]
"""Who takes a hello. It puts the answer into `out` if there is to be one. Raises HelloRefused."""


class LinkConnection:
    """One connection."""

    def __init__(self, greeting: HelloHandler, owner: ConnectionOwner | None, now: Instant) -> None:
        """`owner`: the link that dialled; None for a connection that was accepted."""
        self.out = bytearray()
        """Hellos and refusals to be written."""
        self.is_over = False
        self.is_open = False
        """Both hellos are exchanged, as far as this side knows."""
        self.has_more = False
        """What came is not all read: others have their turn."""
        self.reason = ""
        """Why it is over."""
        self.paused = False
        """The transport takes nothing now. A world sets it, and flushes when it does again."""
        self.certified: str | None = None
        """The name in the peer's certificate, if it showed one."""
        self.address = ""
        """The other end's address, if the world says it: for people."""
        self._hello_handler = greeting
        self._owner = owner
        self._buffer = bytearray()
        self._deadline = now + HELLO_TIMEOUT

    def feed(self, chunk: bytes, now: Instant) -> None:
        """Bytes came. What is wrong with them ends the connection; nothing is raised."""
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
                self.out += encode_refusal(refused)
            self.end(f"refused: {refused}", now)

    def flush(self, now: Instant, room: int) -> bytes:
        """Bytes to write."""
        owner = self._owner if self.is_open and not self.is_over else None
        if not self.out:  # as nearly always
            return b"" if owner is None or room <= 0 else owner.pull(now, room)
        out = bytes(self.out)
        self.out.clear()
        return out if owner is None or len(out) >= room else out + owner.pull(now, room - len(out))

    def lost(self, now: Instant) -> None:
        """The connection ended without our doing."""
        self.end("the connection was lost", now)

    def due(self) -> Instant | None:
        """When to call `fire`; None: never."""
        return None if self.is_open or self.is_over else self._deadline

    def fire(self, now: Instant) -> None:
        """A deadline may have passed."""
        if not self.is_open and now >= self._deadline:
            self.end(f"no hello within {HELLO_TIMEOUT // SECOND} s", now)

    def end(self, reason: str, now: Instant) -> None:
        """End the connection; what is in `out` is still to be written, and what is not read yet never came."""
        if not self.is_over:
            self.is_over = True
            self.has_more = False
            self.reason = reason
            if self._owner is not None:
                self._owner.ended(self, reason, now)

    def _receive_hello(self, chunk: bytes, now: Instant) -> None:
        buffer = self._buffer
        buffer += chunk
        size = hello_bytes(buffer)
        if size is None or len(buffer) < size:
            return
        self._owner = self._hello_handler(self, decode_hello(bytes(buffer[:size])), now)
        self.is_open = True
        rest = bytes(buffer[size:])
        buffer.clear()
        if rest:
            self.has_more = self._owner.fed(rest, now)
