"""What goes out over one connection: items into frames, class by class, no more than there is room and leave for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from edgebroker.instants import Instant
from edgebroker.limits import KIB
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import Crowded, Forward, Message, Relay, Series

from .bodies import alone, body
from .flows import FlowWriter
from .frames import PART_BYTES, PART_BYTES_MIN, FrameWriter, Word, word
from .lanes import Entry
from .outbox import Outbox
from .shares import Shares

FRAME_BYTES: Final = 15 * KIB
"""A frame is closed when it has so much: with what one item adds it still fits into one record of TLS, 16 KiB."""
TURN_BYTES: Final = 512
"""What a class sends before it is another one's turn: by weight, LOGS get that much of every 12 KiB."""


class Outflow:
    """The sending side of one connection: which names, numbers and parts the peer has been told."""

    def __init__(self, deflates: bool, has_series: bool = False, has_crowded: bool = False) -> None:
        """*has_series*: the peer reads them; else they are sent event by event. *has_crowded*: it knows `Crowded`."""
        self._frames = FrameWriter(deflates)
        self._flows = FlowWriter()
        self._has_series = has_series
        self._has_crowded = has_crowded
        self._shares = Shares()
        self._expected: dict[Service, int] = {}  # class -> the number that the peer gives to the next message
        self._parts: dict[Service, tuple[Entry, bytes, int]] = {}  # class -> message, whole, how much was sent
        self._part_bytes = PART_BYTES

    def say(self, kind: Word, *values: object) -> None:
        """Put a word of the link into the next frame."""
        self._frames.add(word(kind, *values))

    def words(self) -> bytes:
        """A frame of what was said, and nothing else."""
        return self._frames.take()

    @property
    def has_parts(self) -> bool:
        """Whether a message was sent in part."""
        return bool(self._parts)

    def pull(self, outbox: Outbox, allowed: Iterable[Service], room: int, now: Instant) -> bytes:
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
                service = self._shares.next(ready)
                before = frames.size
                self._send(outbox, service, before + TURN_BYTES if len(ready) > 1 else limit, now)
                self._shares.sent(service, frames.size - before)
            if not frames.size:
                break
            chunks.append(frames.take())
            room -= len(chunks[-1])
        return b"".join(chunks)

    def _ready(self, outbox: Outbox, services: tuple[Service, ...]) -> list[Service]:
        """The classes of which one may send now."""
        if outbox.lanes[Service.CONTROL].waiting or Service.CONTROL in self._parts:
            return [Service.CONTROL]
        ready = outbox.ready(services)
        ready += [service for service in self._parts if service in services and service not in ready]
        if Service.LIVE in self._parts and Service.BACKLOG in ready:
            ready.remove(Service.BACKLOG)  # what is in parts may be older than the backlog of its flow
        return ready

    def _send(self, outbox: Outbox, service: Service, limit: int, now: Instant) -> None:
        """Put messages of *service* into the frame, or parts, until it has *limit* bytes or there are none."""
        frames = self._frames
        while frames.size < limit:
            if service in self._parts:
                self._add_part(outbox, service)
                if service not in self._parts:
                    break  # it may have been this class's turn for the rest of that message alone
                continue
            entry = outbox.next(service, now)
            if entry is None:
                break
            message = entry.message
            if isinstance(message, Series):
                for item in self._written(message, int(service)):
                    frames.add(item)
                outbox.written(entry)
                continue
            if not isinstance(message, Forward):
                if isinstance(message, Crowded) and not self._has_crowded:
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

    def _written(self, series: Series, service: int) -> list[bytes]:
        if self._has_series:
            return [self._flows.write_series(series, service)]
        return [self._flows.write(event, service, None) for event in series.events()]

    def _add_part(self, outbox: Outbox, service: Service) -> None:
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
        self._frames.add(word(Word.PART, int(service), is_last, whole[at:end]))

    def _tell_number(self, service: Service, entry: Entry) -> None:
        if self._expected.get(service) != entry.number:
            self._frames.add(word(Word.NEXT, int(service), entry.number))
        self._expected[service] = entry.number + 1

    def ended(self, outbox: Outbox) -> None:
        """The connection is over, and messages were sent in part."""
        for entry, _, _ in self._parts.values():
            outbox.unsent(entry)
        self._parts.clear()


def _aged(message: Message, entry: Entry, now: Instant) -> Message:
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
