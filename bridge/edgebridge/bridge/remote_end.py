"""The connection of a bridge to the remote broker: framing, and dispatch packet by packet.

Ordinary messages and acknowledgements are forwarded without being decoded. Of a packet over the size limit only the
beginning is kept, with its packet identifier: the remote would send it again after every reconnection for as long as
nobody acknowledges it.
"""

from __future__ import annotations

from typing import Final

from edgebridge.bridge.counters import BridgeDropCause
from edgebridge.bridge.endpoints import Endpoints, is_qos0_publish
from edgebridge.bridge.inbound import InboundFlow
from edgebridge.bridge.local_end import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.outbound import OutboundFlow
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.errors import PacketTooLarge, ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Packet
from edgebridge.wire.reasons import REASON_OF_RETURN_CODE, ReasonCode

CONNACK: Final = 0x20  # the first byte
TRUNCATED: Final = 0x100
"""Added to the first byte of a packet whose body is only the beginning of what came."""
KEPT_BYTES_MAX: Final = 2 + 65_535 + 2
"""Bytes of the body that are kept: the topic of a PUBLISH, as long as it may be, and its packet identifier."""


class BoundedFramer(Framer):
    """A framer that goes on behind a packet that is too large. It holds one packet of the size that is allowed."""

    __slots__ = ("_beginning", "_first", "_missing")

    def __init__(self, packet_bytes_max: int) -> None:
        super().__init__(packet_bytes_max)
        self._first = 0  # of the packet that is too large; 0: there is none
        self._missing = 0  # bytes of it that are still to come
        self._beginning = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, however they were cut."""
        super().feed(self._skip(chunk) if self._missing else chunk)

    def next_frame(self) -> tuple[int, bytes] | None:
        """The next packet's first byte and body, or of one that is too large the first byte + CUT and what is kept.

        None: feed more. Raises MalformedPacket; the stream cannot be used any further then.
        """
        if not self._first:
            try:
                return super().next_frame()
            except PacketTooLarge:
                self._begin_truncated()
        if self._missing:
            return None
        first, self._first = self._first, 0
        return first | TRUNCATED, bytes(self._beginning)

    def _begin_truncated(self) -> None:
        """The packet at the beginning of the buffer is too large; its length is known."""
        self._first, at, length, shift = self._buffer[self._at], self._at + 1, 0, 0
        while True:
            octet = self._buffer[at]
            at += 1
            length |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                break
        self._missing = length
        self._beginning.clear()
        came = bytes(self._buffer[at:])
        self._buffer.clear()
        self._at = 0
        super().feed(self._skip(came))

    def _skip(self, chunk: bytes) -> bytes:
        """What of *chunk* stands behind the packet that is too large."""
        mine = min(self._missing, len(chunk))
        self._beginning += chunk[: min(mine, KEPT_BYTES_MAX - len(self._beginning))]
        self._missing -= mine
        return chunk[mine:]


class RemoteEnd:
    """One connection to the remote after the other."""

    def __init__(self, terms: BridgeOptions, ends: Endpoints, outward: OutboundFlow, inward: InboundFlow) -> None:
        self._options = terms
        self._endpoints = ends
        self._outbound = outward
        self._inbound = inward
        self._framer = BoundedFramer(terms.packet_bytes_max)

    def begin_connection(self) -> None:
        """Another connection begins. What came on the last one before it was open is not read any more."""
        self._inbound.count_lost(self.take_unread())
        self._framer = BoundedFramer(self._options.packet_bytes_max)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._framer.feed(chunk)

    def next_packet(self, is_open: bool) -> Packet | None:
        """The next one that has to be looked at; None: feed more. Raises ProtocolError.

        *is_open*: the remote has greeted us, and our own front end is there.
        """
        while (frame := self._framer.next_frame()) is not None:
            first, body = frame
            if is_open:
                if first >> 4 == PUBLISH and self._inbound.try_fast_path(first, body):
                    continue
                if len(body) == 2 and any(body) and self._is_bare_answer(first, body):
                    continue
            if (packet := self._decoded(first, body, is_open)) is not None:
                return packet
        return None

    def _is_bare_answer(self, first: int, body: bytes) -> bool:
        """Whether a packet that has an identifier, and nothing else, was a usual step of a handshake. It is done."""
        if first == PUBACK:
            self._outbound.on_puback(body)
        elif first == PUBREC:
            self._outbound.on_pubrec(body)
        elif first == PUBCOMP:
            self._outbound.on_pubcomp(body)
        elif first == PUBREL:
            self._inbound.on_pubrel(int.from_bytes(body, "big"))
        else:
            return False
        return True

    def take_unread(self) -> int:
        """Discard what was received and not decoded; returns how many whole QoS 0 messages that were."""
        count = 0
        try:
            while (frame := self._framer.next_frame()) is not None:
                count += is_qos0_publish(frame[0])
        except ProtocolError:  # what stands behind that is nothing
            pass
        return count

    def _decoded(self, first: int, body: bytes, is_open: bool) -> Packet | None:
        """A packet; None: a message that cannot be taken, and is finished. Raises ProtocolError."""
        try:
            if first >= TRUNCATED:
                raise PacketTooLarge(f"a packet of more than {self._options.packet_bytes_max:,} bytes")
            dialect = self._endpoints.capabilities.dialect
            if first == CONNACK and len(body) == 2 and body[1] in REASON_OF_RETURN_CODE and dialect.has_properties:
                # A CONNACK of version 3.1.1, which whoever does not know version 5 has to refuse [MQTT-3.1.2-2].
                return ConnAck(reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
            return decode_packet(first, body, dialect)
        except ProtocolError as error:
            cause = BridgeDropCause.TOO_LARGE if first >= TRUNCATED else BridgeDropCause.INVALID
            is_message = is_open and first >> 4 & 0xF == PUBLISH
            if not (is_message and self._inbound.skip(first & 0xFF, body, cause, str(error))):
                raise
        return None
