"""The receiving side of one connection: decodes frames into messages, each number once. A number is acknowledged when
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
from edgebroker.overlay.link.journal_entries import LinkStorage
from edgebroker.overlay.link.journal_records import received_record
from edgebroker.overlay.messages import EventSeries, Message
from edgebroker.overlay.traffic_class import TrafficClass


class ReceivePositions:
    """The numbers received from a peer, over all connections."""

    __slots__ = ("duplicates", "run", "store", "upto")

    def __init__(self, store: bytes = b"", upto: dict[TrafficClass, int] | None = None) -> None:
        self.run = b""
        """The peer's run that sent CONTROL."""
        self.store = store
        """The peer's store that sent all other classes."""
        self.upto: dict[TrafficClass, int] = dict(upto or {})
        """Class -> the last number received."""
        self.duplicates = 0
        """The number of messages that arrived again and were dropped."""

    def open(self, run: bytes, store: bytes) -> None:
        """Begin a connection: discard the positions of another run or store of the peer."""
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
        """Whether bytes are left to decode with an empty `feed`."""
        return self._frames.has_more

    @property
    def is_amid(self) -> bool:
        """Whether a frame or a message is partly received."""
        return self._frames.is_amid

    def feed(self, chunk: bytes, messages: list[Message], now: Instant) -> list[LinkSignal]:
        """Decode *chunk* for one turn: append messages to *messages* and return the link's own signals. Raises
        FrameBroken.
        """
        items: list[Item] = []
        try:
            self._frames.feed(chunk, items)
        finally:
            signals = self._take(items, messages)
        return signals

    def _take(self, items: list[Item], messages: list[Message]) -> list[LinkSignal]:
        signals: list[LinkSignal] = []
        upto = self._positions.upto
        for item in items:
            if isinstance(item, NumberedMessage):
                service, message = item.service, item.message
                number = self._numbered(item)
                last = number + message.count - 1 if isinstance(message, EventSeries) else number
                self._next[service] = last + 1
                known = upto.get(service, 0)
                if number > known:
                    upto[service] = last
                    messages.append(message)
                elif last > known and isinstance(message, EventSeries):  # its first events came one by one
                    upto[service] = last
                    messages += [*message.events()][known + 1 - number :]
                else:
                    self._positions.duplicates += last - number + 1
            elif isinstance(item, PartialMessage):
                if self._numbered(item) > upto.get(item.service, 0):  # else it was handled on an earlier connection
                    messages.append(item.message)
            elif isinstance(item, LinkSignal):
                if item.code is SignalCode.NEXT:
                    self._next[TrafficClass(item.values[0])] = item.values[1]
                else:
                    signals.append(item)
            else:
                messages.append(item)
        return signals

    def _numbered(self, item: NumberedMessage | PartialMessage) -> int:
        """Return the number of a message."""
        number = self._next.get(item.service)
        if number is None:
            raise FrameBroken(f"the first message of {item.service.name} has no number")
        return number


class AckTracker:
    """The numbers received from one peer: those that may be acknowledged, and those that have been."""

    def __init__(self, peer: str, positions: ReceivePositions, storage: LinkStorage | None) -> None:
        self.positions = positions
        self._peer = peer
        self._storage = storage
        self._handled = dict(positions.upto)
        self._safe = dict(positions.upto)
        self._acknowledged: dict[TrafficClass, int] = {}  # on the present connection
        self._unsynced: deque[tuple[int, dict[TrafficClass, int]]] = deque()

    def handled(self) -> bool:
        """Append a record of the received numbers, whose messages are handled. Returns whether some may be acknowledged
        at once.
        """
        numbers = {service: upto for service, upto in self.positions.upto.items() if upto != self._handled.get(service)}
        if not numbers:
            return False
        self._handled.update(numbers)
        if self._storage is None:
            self._safe.update(numbers)
            return True
        control = numbers.pop(TrafficClass.CONTROL, None)
        if numbers:
            events = self._events()
            lsn = self._storage.append(received_record(self._peer, self.positions.store, events), waits=True)
            self._unsynced.append((lsn, events))
        if control is not None:
            self._safe[TrafficClass.CONTROL] = control
        return control is not None

    def synced(self, lsn: int) -> bool:
        """Handle a sync of the journal up to *lsn*. Returns whether more numbers may be acknowledged."""
        is_advanced = False
        while self._unsynced and self._unsynced[0][0] <= lsn:
            self._safe.update(self._unsynced.popleft()[1])
            is_advanced = True
        return is_advanced

    def open(self, run: bytes, store: bytes) -> None:
        """Begin a connection to the given run and store of the peer."""
        if store != self.positions.store:
            self._unsynced.clear()
        self.positions.open(run, store)
        known = self.positions.upto
        self._handled = {service: upto for service, upto in self._handled.items() if service in known}
        self._safe = {service: upto for service, upto in self._safe.items() if service in known}
        self._acknowledged = dict(self._safe)  # the hello contained them

    def take_acks(self) -> list[int]:
        """Return the acknowledgements to send now: class, number, class, number, ..."""
        acks = {service: upto for service, upto in self._safe.items() if self._acknowledged.get(service, 0) < upto}
        self._acknowledged.update(acks)
        return [part for service, upto in acks.items() for part in (int(service), upto)]

    def receive_state(self) -> ReceiveState:
        """Return the state for a hello."""
        return ReceiveState(self.positions.run, self.positions.store, dict(self._safe))

    def records(self) -> Iterator[bytes]:
        """Iterate over the records that restore the received numbers, for a snapshot."""
        events = self._events()
        if events:
            yield received_record(self._peer, self.positions.store, events)

    def _events(self) -> dict[TrafficClass, int]:
        events = dict(self._handled)
        events.pop(TrafficClass.CONTROL, None)
        return events
