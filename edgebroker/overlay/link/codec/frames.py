"""Frames: the unit of writing, with its length in front. It contains items, one after the other (a CBOR sequence, RFC
8742).

    one bit: the rest is deflated    31 bits: length of the rest    items

Deflate (RFC 1951) is one stream per direction over all frames, flushed at the end of each frame, without the four bytes
that end every such flush (RFC 7692 section 7.2.1). Its window is small: 32 KiB of memory for each direction.

An item is an array. Its first number distinguishes events (the slot, from 0), signals of the link itself (-1 to -8) and
other messages (from -9 down).
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeAlias

from edgebroker.cbor import UNSIGNED, CborReader, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.limits import KIB, PACKET_BYTES_MAX
from edgebroker.overlay.link.class_queue import event_of
from edgebroker.overlay.link.codec.errors import FrameBroken, shown
from edgebroker.overlay.link.codec.events import STEADY, FlowReader
from edgebroker.overlay.link.codec.messages import LINK_CBOR, Steps, steps_alone, steps_of_body
from edgebroker.overlay.messages import INTERESTS_AT_ONCE, Announce, EventSeries, Message, Withdraw
from edgebroker.overlay.traffic_class import TrafficClass

HEAD_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 64 * KIB
"""The size of a frame's items, deflated or not."""
PART_BYTES: Final = 8 * KIB
"""Longer messages are sent in parts, so that a heartbeat waits at most a second on an uplink with 64 kbit/s."""
PART_BYTES_MIN: Final = 1 * KIB
"""The least size of parts, used where less may be sent at once. A packet, TLS included, is then 9 % larger than its
part.
"""
ITEMS_PER_TURN: Final = 1_024
"""Items decoded in one turn, 1 to 3 us each; then they are routed, and clients are served before the next turn. 64 KiB
of sensor readings have about as many, so usual frames take one turn. A long item counts for several.
"""
SIGNAL_VALUES_MAX: Final = 2 * len(TrafficClass)
"""Values of the longest signal, an acknowledgement of every class."""
MESSAGE_BYTES_MAX: Final = PACKET_BYTES_MAX + 256 * KIB
"""The size of a whole message: the largest packet of a client, and its header and names."""
_DEFLATED: Final = 1 << 31
_WINDOW_BITS: Final = -12
"""Raw deflate with a window of 4 KiB: sixty readings of JSON. With 32 KiB they become 2 % smaller."""
_FLUSH_END: Final = b"\0\0\xff\xff"


def inflated_bytes_max(size: int) -> int:
    """Return the size to which a frame of *size* deflated bytes may inflate.

    Readings of JSON shrink to a fifth, and frames that shrink below a sixteenth are rare. So a peer that sends 64 KiB
    cannot make this gateway decode 64 MiB.
    """
    return min(FRAME_BYTES_MAX, 64 + 16 * size)


class SignalCode(IntEnum):
    """The kinds of signals between the two ends of a link."""

    ACK = -1
    """[class, number, ...]: all messages up to these numbers are received, and on disk if they have to be."""
    PING = -2
    """[number]: requests a PONG."""
    PONG = -3
    """[number, t2, t3 - t2]: when the ping arrived, in microseconds since 1970, and how long the answer took."""
    NEXT = -4
    """[class, number]: the next numbered message of the class has this number."""
    PART = -5
    """[class, is last, bytes]: a part of an encoded message; the last one completes it."""
    BYE = -6
    """[code, text]: the sender ends the connection, with the reason."""


@dataclass(frozen=True, slots=True)
class LinkSignal:
    """A signal of the link and its values."""

    code: SignalCode
    values: list[Any]


@dataclass(slots=True)
class NumberedMessage:
    """A message with the next number of its class, or a series whose events have the next numbers. Not frozen, because
    one is created for each event.
    """

    service: TrafficClass
    message: Message


@dataclass(frozen=True, slots=True)
class PartialMessage:
    """The beginning of a message that is too long for one turn. The number belongs to its end."""

    service: TrafficClass
    message: Message


Item: TypeAlias = Message | NumberedMessage | PartialMessage | LinkSignal
"""The content of a frame. A bare message is an event of QoS 0, or a series of such."""


def signal_item(kind: SignalCode, *values: Any) -> bytes:
    """Return the item of a signal."""
    return encode_cbor([int(kind), *values])


class FrameWriter:
    """Encodes the frames of one direction."""

    def __init__(self, deflates: bool) -> None:
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, _WINDOW_BITS, 5) if deflates else None
        self._items: list[bytes] = []
        self.size = 0
        """Bytes of the items in the next frame."""

    def add(self, item: bytes) -> None:
        """Add an item to the next frame."""
        self._items.append(item)
        self.size += len(item)

    def take(self) -> bytes:
        """Return the next frame and begin another. If it would deflate too well, return several frames."""
        items, self._items = self._items, []
        self.size = 0
        return self._encode(items)

    def _encode(self, items: list[bytes]) -> bytes:
        body = b"".join(items)
        if self._deflate is not None:
            attempt = self._deflate.copy()
            small = attempt.compress(body) + attempt.flush(zlib.Z_SYNC_FLUSH)
            small = small.removesuffix(_FLUSH_END)
            if len(body) <= inflated_bytes_max(len(small)):
                self._deflate = attempt
                return (_DEFLATED | len(small)).to_bytes(HEAD_BYTES) + small
            if len(items) > 1:
                half = len(items) // 2
                return self._encode(items[:half]) + self._encode(items[half:])
        return len(body).to_bytes(HEAD_BYTES) + body


class FrameReader:
    """Decodes the frames of the other direction from any chunks of bytes."""

    def __init__(self, inflates: bool) -> None:
        self.has_more = False
        """Whether there are items that can be decoded without more bytes."""
        self._inflate = zlib.decompressobj(_WINDOW_BITS) if inflates else None
        self._flows = FlowReader()
        self._buffer = bytearray()
        self._frame: CborReader | None = None
        """The frame that is being decoded, inflated."""
        self._parts: dict[TrafficClass, bytearray] = {}
        self._steps: Steps[tuple[Message, TrafficClass]] | None = None
        """The message of the frame that is being decoded."""
        self._pending: deque[Item] = deque()
        """Decoded items that wait for their turn."""

    @property
    def is_amid(self) -> bool:
        """Whether a frame or a message is partly received."""
        return bool(self._buffer or self._parts)

    def feed(self, chunk: bytes, items: list[Item]) -> None:
        """Append the items of all frames that *chunk* completes, at most ITEMS_PER_TURN. While `has_more`, call it
        again with an empty chunk. Raises FrameBroken after appending the items before the malformed one.
        """
        self._buffer += chunk
        left = ITEMS_PER_TURN
        while left > 0:
            if self._pending:
                items.append(self._pending.popleft())
                left = 0
                break
            if self._steps is not None:
                left = self._continue(self._steps, items, left)
                continue
            if self._frame is None:
                self._frame = self._next_frame()
                if self._frame is None:
                    break
            left = self._read(self._frame, items, left)
        self.has_more = left <= 0

    def _next_frame(self) -> CborReader | None:
        """Return the items of the next frame, if it is complete."""
        buffer = self._buffer
        if len(buffer) < HEAD_BYTES:
            return None
        size = int.from_bytes(buffer[:HEAD_BYTES])
        is_deflated, size = size >= _DEFLATED, size & ~_DEFLATED
        if size > FRAME_BYTES_MAX:
            raise FrameBroken(f"a frame of {size} bytes; the limit is {FRAME_BYTES_MAX}")
        end = HEAD_BYTES + size
        if len(buffer) < end:
            return None
        body = bytes(buffer[HEAD_BYTES:end])
        del buffer[:end]
        return CborReader(self._inflated(body) if is_deflated else body, LINK_CBOR)

    def _inflated(self, body: bytes) -> bytes:
        if self._inflate is None:
            raise FrameBroken("a frame is deflated, and that was not agreed upon")
        limit = inflated_bytes_max(len(body))
        try:
            whole = self._inflate.decompress(body + _FLUSH_END, limit + 1)
        except zlib.error as error:
            raise FrameBroken(f"a frame cannot be inflated: {error}") from None
        if len(whole) > limit or self._inflate.unconsumed_tail or self._inflate.eof:
            raise FrameBroken(f"a frame of {len(body)} bytes inflates to more than {limit}, or ends the stream")
        return whole

    def _read(self, reader: CborReader, items: list[Item], left: int) -> int:
        """Decode at most *left* items of a frame. Returns how many more may be decoded; the frame itself counts
        as one.
        """
        flows = self._flows
        body = reader.data
        end = len(body)
        while reader.at < end:
            if left <= 0:
                return 0
            left -= 1
            size = reader.array()
            if size == 0 or reader.at == end:
                raise FrameBroken(f"an empty item before byte {reader.at}")
            if body[reader.at] >> 5 == UNSIGNED:
                event = flows.read(reader, size)
                if size != STEADY:
                    left -= reader.values >> 4
                if isinstance(event, EventSeries):
                    if event.first.qos:
                        left -= event.count - 1  # each is delivered by itself
                        items.append(NumberedMessage(TrafficClass(flows.service), event))
                    else:
                        items.append(event)
                elif event.qos == 0:
                    items.append(event)
                else:
                    items.append(NumberedMessage(TrafficClass(flows.service), event))
                continue
            kind = reader.integer()
            if kind >= SignalCode.BYE:
                if size - 1 > SIGNAL_VALUES_MAX:
                    raise FrameBroken(f"word {kind} with {size - 1} values; none has more than {SIGNAL_VALUES_MAX}")
                self._receive_signal(SignalCode(kind), [reader.single() for _ in range(size - 1)], items)
            else:
                self._steps = steps_of_body(reader, kind, size - 1)
            if self._steps is not None:
                left = self._continue(self._steps, items, left)
                if self._steps is not None or self._pending:
                    return left
        self._frame = None
        return left - 1

    def _continue(self, steps: Steps[tuple[Message, TrafficClass]], items: list[Item], left: int) -> int:
        """Decode a message that is not an event, for at most *left* items. Returns how many more may be decoded."""
        try:
            while left > 0:
                left -= next(steps)
        except StopIteration as end:
            self._steps = None
            message, service = end.value
            if isinstance(message, Announce | Withdraw) and len(message.interests) > INTERESTS_AT_ONCE:
                *parts, last = message.parts()
                self._pending += [PartialMessage(service, part) for part in parts]
                self._pending.append(NumberedMessage(service, last))
            else:
                items.append(_numbered(message, service))
        return left

    def _receive_signal(self, kind: SignalCode, values: list[Any], items: list[Item]) -> None:
        if not _SHAPES[kind](values):
            raise FrameBroken(f"a {kind.name} says {shown(values)}")
        if kind is not SignalCode.PART:
            items.append(LinkSignal(kind, values))
            return
        service, is_last, octets = TrafficClass(values[0]), values[1], values[2]
        parts = self._parts.setdefault(service, bytearray())
        parts += octets
        if len(parts) > MESSAGE_BYTES_MAX:
            raise FrameBroken(f"a message of more than {MESSAGE_BYTES_MAX} bytes")
        if is_last:
            del self._parts[service]
            self._steps = steps_alone(bytes(parts))


def _numbered(message: Message, service: TrafficClass) -> Message | NumberedMessage:
    """Return *message* as a NumberedMessage, unless it is an event of QoS 0, relayed or not."""
    event = event_of(message)
    return message if event is not None and event.qos == 0 else NumberedMessage(service, message)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _is_service(value: Any) -> bool:
    return type(value) is int and TrafficClass.CONTROL <= value <= TrafficClass.LOGS


def _is_ack(values: list[Any]) -> bool:
    return len(values) % 2 == 0 and all(map(_is_service, values[::2])) and all(map(_is_number, values[1::2]))


_SHAPES: Final[dict[SignalCode, Callable[[list[Any]], bool]]] = {
    SignalCode.ACK: _is_ack,
    SignalCode.PING: lambda values: len(values) == 1 and _is_number(values[0]),
    SignalCode.PONG: lambda values: len(values) == 3 and all(map(_is_number, values)),
    SignalCode.NEXT: lambda values: len(values) == 2 and _is_service(values[0]) and _is_number(values[1]),
    SignalCode.PART: lambda values: (
        len(values) == 3 and _is_service(values[0]) and type(values[1]) is bool and type(values[2]) is bytes
    ),
    SignalCode.BYE: lambda values: len(values) == 2 and _is_number(values[0]) and type(values[1]) is str,
}
