"""What comes in over one connection: frames into messages, each number once."""

from __future__ import annotations

from edgebroker.instants import Instant
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import Message

from .broken import FrameBroken
from .frames import Begun, FrameReader, Item, Numbered, Said, Word


class Positions:
    """Which numbers of a peer were received, over all connections."""

    __slots__ = ("duplicates", "run", "store", "upto")

    def __init__(self, store: bytes = b"", upto: dict[Service, int] | None = None) -> None:
        self.run = b""
        """The peer's run to which CONTROL belongs."""
        self.store = store
        """The peer's store to which all others belong."""
        self.upto: dict[Service, int] = dict(upto or {})
        """Class -> the last number taken."""
        self.duplicates = 0
        """Messages that came again and were left out."""

    def met(self, run: bytes, store: bytes) -> None:
        """The peer says who it is: what was received from another run or store of it does not count."""
        if store != self.store:
            control = self.upto.get(Service.CONTROL)
            self.upto = {} if control is None else {Service.CONTROL: control}
            self.store = store
        if run != self.run:
            self.upto.pop(Service.CONTROL, None)
            self.run = run


class Inflow:
    """The receiving side of one connection."""

    def __init__(self, inflates: bool, positions: Positions) -> None:
        self._frames = FrameReader(inflates)
        self._positions = positions
        self._next: dict[Service, int] = {}

    @property
    def has_more(self) -> bool:
        """`feed` has not read all: it goes on with no bytes."""
        return self._frames.has_more

    @property
    def is_amid(self) -> bool:
        """Whether something has come in part, a frame or a message."""
        return self._frames.is_amid

    def feed(self, chunk: bytes, messages: list[Message], now: Instant) -> list[Said]:
        """Append what came to *messages*, and return what is the link's own: one turn of it. Raises FrameBroken."""
        items: list[Item] = []
        try:
            self._frames.feed(chunk, items)
        finally:
            said = self._take(items, messages)
        return said

    def _take(self, items: list[Item], messages: list[Message]) -> list[Said]:
        said: list[Said] = []
        upto = self._positions.upto
        for item in items:
            if isinstance(item, Numbered):
                service = item.service
                number = self._numbered(item)
                self._next[service] = number + 1
                if number > upto.get(service, 0):
                    upto[service] = number
                    messages.append(item.message)
                else:
                    self._positions.duplicates += 1
            elif isinstance(item, Begun):
                if self._numbered(item) > upto.get(item.service, 0):  # else it was handled, and so were others since
                    messages.append(item.message)
            elif isinstance(item, Said):
                if item.word is Word.NEXT:
                    self._next[Service(item.values[0])] = item.values[1]
                else:
                    said.append(item)
            else:
                messages.append(item)
        return said

    def _numbered(self, item: Numbered | Begun) -> int:
        """The number of a message."""
        number = self._next.get(item.service)
        if number is None:
            raise FrameBroken(f"the first message of {item.service.name} has no number")
        return number
