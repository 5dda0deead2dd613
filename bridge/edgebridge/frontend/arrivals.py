"""What peers said: each message is handled in its turn, and then they count as received.

An error that nobody expected costs the message in which it happened, and nothing behind it. That message counts as
received too: whoever sent it would send it again for ever. An operator is told, and it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edgebridge.frontend.keeping import Keeping
from edgebroker.instants import Instant
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Message


class Arrivals:
    """What the links of a gateway hand in; *handle* is called with the peer that said it."""

    def __init__(self, keeping: Keeping, handle: Callable[[str, Message, Instant], None]) -> None:
        self.given_up = 0
        """Messages of peers whose handling ended in an error."""
        self.stumbled: Callable[[str, object, Exception], None] | None = None
        """Told of the peer, of what it was about, and of the error. None: the error is raised."""
        self._keeping = keeping
        self._handle = handle

    def take(self, link: Link, messages: Iterable[Message], now: Instant) -> None:
        """Handle *messages*. What they lead to is on disk together with the record that they came, or not at all."""
        keeping = self._keeping
        keeping.begin_together()
        for message in messages:
            try:
                self._handle(link.peer, message, now)
            except Exception as error:
                self.stumble(link.peer, message, error, now)
                self.given_up += 1
                keeping.begin_together()
        if keeping.is_together:
            link.handled(now)
            keeping.end_together(now)
        else:  # there is nothing but the record that says so
            keeping.end_together(now)
            link.handled(now)

    def stumble(self, peer: str, what: object, error: Exception, now: Instant) -> None:
        """*error* was raised because of *what*, which is of *peer*. What is kept of it so far counts."""
        if self.stumbled is None:
            raise error
        self._keeping.not_taken()
        self._keeping.end_together(now)
        self.stumbled(peer, what, error)
