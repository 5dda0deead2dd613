"""The sending side of one connection: messages become frames, class by class, within the room of the socket and
the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from edgebroker.instants import Instant
from edgebroker.limits import KIB
from edgebroker.overlay.link.class_queue import QueuedMessage
from edgebroker.overlay.link.codec.events import FlowWriter
from edgebroker.overlay.link.codec.frames import PART_BYTES, PART_BYTES_MIN, FrameWriter, SignalCode, signal_item
from edgebroker.overlay.link.codec.messages import alone, body
from edgebroker.overlay.link.outbox import LinkOutbox
from edgebroker.overlay.messages import Backpressure, EventSeries, Forward, Message, Relay
from edgebroker.overlay.traffic_class import FairQueue, TrafficClass

FRAME_BYTES: Final = 15 * KIB
"""A frame is closed when it has so much: with what one item adds it still fits into one record of TLS, 16 KiB."""
TURN_BYTES: Final = 512
"""What a class sends before it is another one's turn: by weight, LOGS get that much of every 12 KiB."""


class LinkSender:
    """The sending side of one connection: which names, numbers and parts the peer has been told."""

    def __init__(self, deflates: bool, has_series: bool = False, has_backpressure: bool = False) -> None:
        """*has_series*: the peer reads them; else they are sent event by event. *has_crowded*: it knows `Crowded`."""
        self._frames = FrameWriter(deflates)
        self._flows = FlowWriter()
        self._has_series = has_series
        self._has_backpressure = has_backpressure
        self._fair_queue = FairQueue()
        self._expected: dict[TrafficClass, int] = {}  # class -> the number that the peer gives to the next message
        self._parts: dict[
            TrafficClass, tuple[QueuedMessage, bytes, int]
        ] = {}  # class -> message, whole, how much was sent
        self._part_bytes = PART_BYTES

    def add_signal(self, kind: SignalCode, *values: object) -> None:
        """Put a word of the link into the next frame."""
        self._frames.add(signal_item(kind, *values))

    def take_signals(self) -> bytes:
        """A frame of what was said, and nothing else."""
        return self._frames.take()

    @property
    def has_parts(self) -> bool:
        """Whether a message was sent in part."""
        return bool(self._parts)

    def pull(self, outbox: LinkOutbox, allowed: Iterable[TrafficClass], room: int, now: Instant) -> bytes:
        """Frames of about *room* bytes at most, with what *outbox* has: CONTROL, then the *allowed* classes by
        turns. Where there is little room what is long goes in short parts: others wait for one of them at most.
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
        """The classes of which one may send now."""
        if outbox.queues[TrafficClass.CONTROL].waiting or TrafficClass.CONTROL in self._parts:
            return [TrafficClass.CONTROL]
        ready = outbox.ready(services)
        ready += [service for service in self._parts if service in services and service not in ready]
        if TrafficClass.LIVE in self._parts and TrafficClass.BACKLOG in ready:
            ready.remove(TrafficClass.BACKLOG)  # what is in parts may be older than the backlog of its flow
        return ready

    def _send(self, outbox: LinkOutbox, service: TrafficClass, limit: int, now: Instant) -> None:
        """Put messages of *service* into the frame, or parts, until it has *limit* bytes or there are none."""
        frames = self._frames
        while frames.size < limit:
            if service in self._parts:
                self._add_part(outbox, service)
                if service not in self._parts:
                    break  # it may have been this class's turn for the rest of that message alone
                continue
            entry = outbox.dequeue(service, now)
            if entry is None:
                break
            message = entry.message
            if isinstance(message, EventSeries):
                for item in self._written(message, int(service)):
                    frames.add(item)
                outbox.written(entry)
                continue
            if not isinstance(message, Forward):
                if isinstance(message, Backpressure) and not self._has_backpressure:
                    continue
                item = body(_aged(message, entry, now), service)
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
                    self._tell_number(service, entry)
                outbox.written(entry)
                frames.add(item)

    def _written(self, series: EventSeries, service: int) -> list[bytes]:
        if self._has_series:
            return [self._flows.write_series(series, service)]
        return [self._flows.write(event, service, None) for event in series.events()]

    def _add_part(self, outbox: LinkOutbox, service: TrafficClass) -> None:
        entry, whole, at = self._parts[service]
        end = at + self._part_bytes
        is_last = end >= len(whole)
        if is_last:
            if entry.number:
                self._tell_number(service, entry)
            outbox.written(entry)
            del self._parts[service]
        else:
            self._parts[service] = (entry, whole, end)
        self._frames.add(signal_item(SignalCode.PART, int(service), is_last, whole[at:end]))

    def _tell_number(self, service: TrafficClass, entry: QueuedMessage) -> None:
        if self._expected.get(service) != entry.number:
            self._frames.add(signal_item(SignalCode.NEXT, int(service), entry.number))
        self._expected[service] = entry.number + 1

    def ended(self, outbox: LinkOutbox) -> None:
        """The connection is over, and messages were sent in part."""
        for entry, _, _ in self._parts.values():
            outbox.requeue(entry)
        self._parts.clear()


def _aged(message: Message, entry: QueuedMessage, now: Instant) -> Message:
    """*message* with what is left of the time for which it is of use."""
    if not isinstance(message, Relay) or not isinstance(message.message, Forward):
        return message
    return replace(message, message=replace(message.message, expires_in_ms=entry.expires_in_ms(now)))


def _is_large(message: Forward, bound: int) -> bool:
    """Whether an event goes in parts: because of its payload, or of names that are almost never long."""
    size = len(message.payload) + len(message.properties)
    names = len(message.topic) + len(message.client)
    if not message.user:
        return size > bound or names > bound
    for name, value in message.user:
        names += len(name) + len(value)
    return size > bound or names > bound
