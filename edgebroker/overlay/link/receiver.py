"""The receiving side of one connection: frames become messages, each number once. A number is acknowledged when
its record is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from edgebroker.instants import Instant
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.frames import (
    FrameReader,
    Item,
    LinkSignal,
    NumberedMessage,
    PartialMessage,
    SignalCode,
)
from edgebroker.overlay.link.handshake import ReceiveState
from edgebroker.overlay.link.journal_records import received_record
from edgebroker.overlay.link.outbox import LinkStorage
from edgebroker.overlay.messages import Message
from edgebroker.overlay.traffic_class import TrafficClass


class ReceivePositions:
    """Which numbers of a peer were received, over all connections."""

    __slots__ = ("duplicates", "run", "store", "upto")

    def __init__(self, store: bytes = b"", upto: dict[TrafficClass, int] | None = None) -> None:
        self.run = b""
        """The peer's run to which CONTROL belongs."""
        self.store = store
        """The peer's store to which all others belong."""
        self.upto: dict[TrafficClass, int] = dict(upto or {})
        """Class -> the last number taken."""
        self.duplicates = 0
        """Messages that came again and were left out."""

    def open(self, run: bytes, store: bytes) -> None:
        """The peer says who it is: what was received from another run or store of it does not count."""
        if store != self.store:
            control = self.upto.get(TrafficClass.CONTROL)
            self.upto = {} if control is None else {TrafficClass.CONTROL: control}
            self.store = store
        if run != self.run:
            self.upto.pop(TrafficClass.CONTROL, None)
            self.run = run


class LinkReceiver:
    """The receiving side of one connection."""

    def __init__(self, inflates: bool, positions: ReceivePositions) -> None:
        self._frames = FrameReader(inflates)
        self._positions = positions
        self._next: dict[TrafficClass, int] = {}

    @property
    def has_more(self) -> bool:
        """`feed` has not read all: it goes on with no bytes."""
        return self._frames.has_more

    @property
    def is_amid(self) -> bool:
        """Whether something has come in part, a frame or a message."""
        return self._frames.is_amid

    def feed(self, chunk: bytes, messages: list[Message], now: Instant) -> list[LinkSignal]:
        """Append what came to *messages*, and return what is the link's own: one turn of it. Raises FrameBroken."""
        items: list[Item] = []
        try:
            self._frames.feed(chunk, items)
        finally:
            said = self._take(items, messages)
        return said

    def _take(self, items: list[Item], messages: list[Message]) -> list[LinkSignal]:
        said: list[LinkSignal] = []
        upto = self._positions.upto
        for item in items:
            if isinstance(item, NumberedMessage):
                service = item.service
                number = self._numbered(item)
                self._next[service] = number + 1
                if number > upto.get(service, 0):
                    upto[service] = number
                    messages.append(item.message)
                else:
                    self._positions.duplicates += 1
            elif isinstance(item, PartialMessage):
                if self._numbered(item) > upto.get(item.service, 0):  # else it was handled, and so were others since
                    messages.append(item.message)
            elif isinstance(item, LinkSignal):
                if item.word is SignalCode.NEXT:
                    self._next[TrafficClass(item.values[0])] = item.values[1]
                else:
                    said.append(item)
            else:
                messages.append(item)
        return said

    def _numbered(self, item: NumberedMessage | PartialMessage) -> int:
        """The number of a message."""
        number = self._next.get(item.service)
        if number is None:
            raise FrameBroken(f"the first message of {item.service.name} has no number")
        return number


class AckTracker:
    """What was received from one peer, how far it is safe, and what of that the peer was told."""

    def __init__(self, peer: str, positions: ReceivePositions, storage: LinkStorage | None) -> None:
        self.positions = positions
        self._peer = peer
        self._storage = storage
        self._handled = dict(positions.upto)
        self._safe = dict(positions.upto)
        self._acknowledged: dict[TrafficClass, int] = {}  # over the present connection
        self._unsynced: deque[tuple[int, dict[TrafficClass, int]]] = deque()

    def handled(self) -> bool:
        """All that was received is handled, and what it caused is appended. Whether anything became safe by that."""
        news = {service: upto for service, upto in self.positions.upto.items() if upto != self._handled.get(service)}
        if not news:
            return False
        self._handled.update(news)
        if self._storage is None:
            self._safe.update(news)
            return True
        words = news.pop(TrafficClass.CONTROL, None)
        if news:
            events = self._events()
            lsn = self._storage.append(received_record(self._peer, self.positions.store, events), waits=True)
            self._unsynced.append((lsn, events))
        if words is not None:
            self._safe[TrafficClass.CONTROL] = words
        return words is not None

    def synced(self, lsn: int) -> bool:
        """The journal is on disk up to *lsn*. Whether anything became safe by that."""
        is_news = False
        while self._unsynced and self._unsynced[0][0] <= lsn:
            self._safe.update(self._unsynced.popleft()[1])
            is_news = True
        return is_news

    def open(self, run: bytes, store: bytes) -> None:
        """A connection begins, and the peer says who it is."""
        if store != self.positions.store:
            self._unsynced.clear()
        self.positions.open(run, store)
        known = self.positions.upto
        self._handled = {service: upto for service, upto in self._handled.items() if service in known}
        self._safe = {service: upto for service, upto in self._safe.items() if service in known}
        self._acknowledged = dict(self._safe)  # the hello said so

    def take_acks(self) -> list[int]:
        """Class, number, class, number, ...: what the peer is to be told now."""
        news = {service: upto for service, upto in self._safe.items() if self._acknowledged.get(service, 0) < upto}
        self._acknowledged.update(news)
        return [part for service, upto in news.items() for part in (int(service), upto)]

    def receive_state(self) -> ReceiveState:
        """What a hello says of it."""
        return ReceiveState(self.positions.run, self.positions.store, dict(self._safe))

    def records(self) -> Iterator[bytes]:
        """What the journal has to know of it, said again."""
        events = self._events()
        if events:
            yield received_record(self._peer, self.positions.store, events)

    def _events(self) -> dict[TrafficClass, int]:
        events = dict(self._handled)
        events.pop(TrafficClass.CONTROL, None)
        return events
