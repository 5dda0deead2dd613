"""How a session at a remote ends whose bridge is no more: who begins a clean one and leaves has none any more."""

from __future__ import annotations

from edgebridge.upstream.terms import Terms
from edgebridge.upstream.words import in_words
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Connect, Disconnect
from edgebridge.wire.reasons import FAILURE


class Farewell:
    """One connection for one CONNECT. `reason` says why it came to nothing."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._framer = Framer(terms.packet_bytes_max)
        self.is_over = False
        """Whether the remote has answered: hang up."""
        self.reason = ""

    def begin(self) -> bytes:
        """What to say first: the same client, and no Session Expiry Interval, so it ends with its connection."""
        terms = self._terms
        connect = Connect(
            terms.client_id, True, terms.keep_alive_s, terms.username, terms.password, None, {}, terms.dialect
        )
        return encode_packet(connect, terms.dialect)

    def heard(self, chunk: bytes) -> bytes:
        """What to answer to *chunk*."""
        self._framer.feed(chunk)
        try:
            frame = self._framer.next_frame()
            if frame is None or self.is_over:
                return b""
            packet = decode_packet(*frame, self._terms.dialect)
        except ProtocolError as error:
            self.is_over, self.reason = True, f"the remote breaks the protocol: {error}"
            return b""
        self.is_over = True
        if not isinstance(packet, ConnAck):
            self.reason = "the remote says something else than CONNACK"
        elif packet.reason >= FAILURE:
            self.reason = f"the remote refuses us: {in_words(packet.reason, packet.properties)}"
        else:
            return encode_packet(Disconnect(), self._terms.dialect)
        return b""
