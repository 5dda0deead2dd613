"""What the remote says, packet by packet. Ordinary messages and answers are carried on without being taken apart."""

from __future__ import annotations

from edgebridge.upstream.ends import Ends, is_qos_0
from edgebridge.upstream.inward import Inward
from edgebridge.upstream.localend import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from edgebridge.upstream.outward import Outward
from edgebridge.upstream.sieve import CUT, Sieve
from edgebridge.upstream.tally import Cause
from edgebridge.upstream.terms import Terms
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.errors import PacketTooLarge, ProtocolError
from edgebridge.wire.packets import Packet


class RemoteEnd:
    """One connection to the remote after the other."""

    def __init__(self, terms: Terms, ends: Ends, outward: Outward, inward: Inward) -> None:
        self._terms = terms
        self._ends = ends
        self._outward = outward
        self._inward = inward
        self._sieve = Sieve(terms.packet_bytes_max)
        inward.unread = self._count_unread

    def restart(self) -> None:
        """Another connection begins. What came on the last one before it was open is not read any more."""
        self._inward.lost(self._count_unread())
        self._sieve = Sieve(self._terms.packet_bytes_max)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._sieve.feed(chunk)

    def next_packet(self, is_open: bool) -> Packet | None:
        """The next one that has to be looked at; None: feed more. Raises ProtocolError.

        *is_open*: the remote has greeted us, and our own front end is there.
        """
        while (frame := self._sieve.next_frame()) is not None:
            first, body = frame
            if is_open:
                if first >> 4 == PUBLISH and self._inward.express(first, body):
                    continue
                if len(body) == 2 and any(body) and self._is_bare_answer(first, body):
                    continue
            if (packet := self._decoded(first, body, is_open)) is not None:
                return packet
        return None

    def _is_bare_answer(self, first: int, body: bytes) -> bool:
        """Whether a packet that has an identifier, and nothing else, was a usual step of a handshake. It is done."""
        if first == PUBACK:
            self._outward.acknowledged(body)
        elif first == PUBREC:
            self._outward.received(body)
        elif first == PUBCOMP:
            self._outward.completed(body)
        elif first == PUBREL:
            self._inward.released(int.from_bytes(body, "big"))
        else:
            return False
        return True

    def _count_unread(self) -> int:
        """The messages of QoS 0 that have come as a whole, and are not looked at any more."""
        count = 0
        try:
            while (frame := self._sieve.next_frame()) is not None:
                count += is_qos_0(frame[0])
        except ProtocolError:  # what stands behind that is nothing
            pass
        return count

    def _decoded(self, first: int, body: bytes, is_open: bool) -> Packet | None:
        """A packet; None: a message that cannot be taken, and is finished. Raises ProtocolError."""
        try:
            if first >= CUT:
                raise PacketTooLarge(f"a packet of more than {self._terms.packet_bytes_max:,} bytes")
            return decode_packet(first, body, self._ends.granted.dialect)
        except ProtocolError as error:
            cause = Cause.TOO_LARGE if first >= CUT else Cause.INVALID
            is_message = is_open and first >> 4 & 0xF == PUBLISH
            if not (is_message and self._inward.skipped(first & 0xFF, body, cause, str(error))):
                raise
        return None
