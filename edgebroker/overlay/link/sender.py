"""The sending side of a link: encodes what its outbox holds as frames, the most urgent traffic class first, and knows
when they were sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from edgebroker.instants import MILLISECOND, Duration, Instant
from edgebroker.limits import KIB
from edgebroker.overlay.link.class_queue import QueuedMessage
from edgebroker.overlay.link.codec.events import FlowWriter
from edgebroker.overlay.link.codec.frames import PART_BYTES, PART_BYTES_MIN, FrameWriter, SignalCode, signal_item
from edgebroker.overlay.link.codec.messages import alone, body
from edgebroker.overlay.link.outbox import LinkOutbox
from edgebroker.overlay.messages import (
    CAPABILITY_MESSAGES,
    ConditionalRetainedQuery,
    EventSeries,
    Forward,
    Message,
    Relay,
)
from edgebroker.overlay.traffic_class import FairQueue, TrafficClass

ORDER_CAPABILITY: Final = "order"
SERIES_CAPABILITY: Final = "series"
RELIABLE_SERIES_CAPABILITY: Final = "series-qos1"
FRAME_BYTES: Final = 15 * KIB
"""A frame of this size is closed: with one more item it still fits into a TLS record of 16 KiB."""
TURN_BYTES: Final = 512
"""The bytes that a class sends before another one's turn: by weight, LOGS get as many of every 12 KiB."""


MARK_INTERVAL: Final[Duration] = 50 * MILLISECOND
MARKS_MAX: Final = 128


class AckProgress:
    """When messages were sent on a connection, as far as it must be known whether their acknowledgements are late.

    What a proxy, a tunnel or a modem with a large buffer accepts does not wait at this gateway, and may still be far
    from the peer.
    """

    __slots__ = ("_marks", "_waits_since", "late_upto")

    def __init__(self) -> None:
        self._marks: deque[tuple[Instant, dict[TrafficClass, int]]] = deque(maxlen=MARKS_MAX)
        self._waits_since: Instant | None = None
        self.late_upto: dict[TrafficClass, int] = {}
        """Class -> the last number that was sent so long ago that its acknowledgement is late."""

    def sent(self, outbox: LinkOutbox, now: Instant) -> None:
        """Record that something was sent. The instant is exact to MARK_INTERVAL."""
        if not outbox.awaits_ack:
            return
        if self._waits_since is None:
            self._waits_since = now
        if not self._marks or now >= self._marks[-1][0] + MARK_INTERVAL:
            self._marks.append((now, outbox.last_sent()))

    def acked(self, is_progress: bool, awaits_more: bool, now: Instant) -> None:
        """Record an acknowledgement. *is_progress*: of something that was not acknowledged before."""
        if not awaits_more:
            self._waits_since = None
            self._marks.clear()
            self.late_upto = {}
        elif is_progress:
            self._waits_since = now

    def update_late(self, late: Duration, now: Instant) -> None:
        """Let `late_upto` be what was sent *late* or longer ago."""
        while self._marks and self._marks[0][0] <= now - late:
            self.late_upto = self._marks.popleft()[1]

    def waits_longer_than(self, duration: Duration, now: Instant) -> bool:
        """Return whether no acknowledgement has come for *duration* although one is owed."""
        return self._waits_since is not None and now - self._waits_since >= duration


class LinkSender:
    """The sending side of one connection, with the flows, numbers and parts that the peer knows."""

    def __init__(self, deflates: bool, capabilities: Collection[str] = ()) -> None:
        """*capabilities*: those of the peer. Without SERIES_CAPABILITY, series are sent event by event; what it does
        not decode otherwise is left out, and queries are sent without conditions, events without predecessors.
        """
        self._frames = FrameWriter(deflates)
        self._flows = FlowWriter()
        self._has_series = SERIES_CAPABILITY in capabilities
        self._has_reliable_series = RELIABLE_SERIES_CAPABILITY in capabilities
        self._has_order = ORDER_CAPABILITY in capabilities
        unknown = CAPABILITY_MESSAGES.keys() - set(capabilities)
        self._left_out = tuple(kind for name in sorted(unknown) for kind in CAPABILITY_MESSAGES[name])
        self._fair_queue = FairQueue()
        self._expected: dict[TrafficClass, int] = {}  # class -> the number that the peer expects of the next message
        # Class -> message, its encoding, bytes already sent.
        self._parts: dict[TrafficClass, tuple[QueuedMessage, bytes, int]] = {}
        self._part_bytes = PART_BYTES

    def add_signal(self, kind: SignalCode, *values: object) -> None:
        """Add a signal of the link to the next frame."""
        self._frames.add(signal_item(kind, *values))

    def take_signals(self) -> bytes:
        """Return a frame with the added signals only."""
        return self._frames.take()

    @property
    def has_parts(self) -> bool:
        """Whether a message is partly sent."""
        return bool(self._parts)

    def pull(self, outbox: LinkOutbox, allowed: Iterable[TrafficClass], room: int, now: Instant) -> bytes:
        """Return frames of at most about *room* bytes from *outbox*: CONTROL first, then the *allowed* classes in
        turns. With little room, long messages are sent in short parts, so that other classes wait for one of them at
        most.
        """
        self._part_bytes = max(PART_BYTES_MIN, min(PART_BYTES, room))
        chunks: list[bytes] = []
        frames = self._frames
        services = tuple(allowed)
        while room > 0:
            limit = min(FRAME_BYTES, room)
            while frames.size < limit:
                ready = self._ready(outbox, services)
                if not ready:
                    break
                service = self._fair_queue.choose(ready)
                before = frames.size
                self._send(outbox, service, before + TURN_BYTES if len(ready) > 1 else limit, now)
                self._fair_queue.charge(service, frames.size - before)
            if not frames.size:
                break
            chunks.append(frames.take())
            room -= len(chunks[-1])
        return b"".join(chunks)

    def _ready(self, outbox: LinkOutbox, services: tuple[TrafficClass, ...]) -> list[TrafficClass]:
        """Return the classes that may send now."""
        if outbox.queues[TrafficClass.CONTROL].waiting or TrafficClass.CONTROL in self._parts:
            return [TrafficClass.CONTROL]
        ready = outbox.ready(services)
        ready += [service for service in self._parts if service in services and service not in ready]
        if TrafficClass.LIVE in self._parts and TrafficClass.BACKLOG in ready:
            ready.remove(TrafficClass.BACKLOG)  # the partly sent event may be older than the backlog of its flow
        return ready

    def _send(self, outbox: LinkOutbox, service: TrafficClass, limit: int, now: Instant) -> None:
        """Add messages of *service*, or parts, to the frame until it has *limit* bytes or there are none."""
        frames = self._frames
        while frames.size < limit:
            if service in self._parts:
                self._add_part(outbox, service)
                if service not in self._parts:
                    break  # the class may have been ready only because of the rest of that message
                continue
            entry = outbox.dequeue(service, now)
            if entry is None:
                break
            message = entry.message_at(now) if isinstance(entry.message, Relay) else entry.message
            if not self._has_order:
                message = _without_predecessors(message)
            if isinstance(message, EventSeries):
                outbox.sent(service, entry)
                if entry.number:
                    self._add_number(service, entry)
                for item in self._encode_series(message, int(service)):
                    frames.add(item)
                outbox.written(entry)
                continue
            if not isinstance(message, Forward):
                inner = message.message if isinstance(message, Relay) else message
                if self._left_out and isinstance(inner, self._left_out):
                    if not isinstance(message, ConditionalRetainedQuery):
                        continue
                    message = message.plain()
                item = body(message, service)
                is_large = len(item) > self._part_bytes
            elif is_large := _is_large(message, self._part_bytes):
                item = alone(message, service, entry.expires_in_ms(now))
            else:
                item = self._flows.write(message, int(service), entry.expires_in_ms(now))
            outbox.sent(service, entry)
            if is_large:
                self._parts[service] = (entry, item, 0)
            else:
                if entry.number:
                    self._add_number(service, entry)
                outbox.written(entry)
                frames.add(item)

    def _encode_series(self, series: EventSeries, service: int) -> list[bytes]:
        """Return the items of a series."""
        if self._has_reliable_series if series.first.qos else self._has_series:
            return [self._flows.write_series(series, service)]
        return [self._flows.write(event, service, None) for event in series.events()]

    def _add_part(self, outbox: LinkOutbox, service: TrafficClass) -> None:
        """Add the next part of the partly sent message of *service*."""
        entry, item, at = self._parts[service]
        end = at + self._part_bytes
        is_last = end >= len(item)
        if is_last:
            if entry.number:
                self._add_number(service, entry)
            outbox.written(entry)
            del self._parts[service]
        else:
            self._parts[service] = (entry, item, end)
        self._frames.add(signal_item(SignalCode.PART, int(service), is_last, item[at:end]))

    def _add_number(self, service: TrafficClass, entry: QueuedMessage) -> None:
        """Announce the number of *entry* if the peer does not expect it."""
        first = entry.number - entry.count + 1
        if self._expected.get(service) != first:
            self._frames.add(signal_item(SignalCode.NEXT, int(service), first))
        self._expected[service] = entry.number + 1

    def ended(self, outbox: LinkOutbox) -> None:
        """Return partly sent messages to *outbox* after the connection ended."""
        for entry, _, _ in self._parts.values():
            outbox.requeue(entry)
        self._parts.clear()


def _without_predecessors(message: Message) -> Message:
    """Return *message* as a peer decodes it that does not know them."""
    if isinstance(message, Relay):
        return replace(message, message=_without_predecessors(message.message))
    if isinstance(message, Forward) and message.predecessors:
        return replace(message, predecessors=())
    return message


def _is_large(message: Forward, bound: int) -> bool:
    """Return whether an event must be sent in parts: because of its payload, or of names, which are rarely long."""
    size = len(message.payload) + len(message.properties)
    names = len(message.topic) + len(message.client)
    if not message.user:
        return size > bound or names > bound
    for name, value in message.user:
        names += len(name) + len(value)
    return size > bound or names > bound
