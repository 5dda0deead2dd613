"""A client of the simulated world: speaks real packets over a line, does nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Connect, Disconnect, Packet
from edgebridge.wire.properties import Property, number
from edgebroker.limits import MIB
from edgelab.simworld.broker import ClientLine, SimulatedBroker
from edgelab.simworld.conditions import FAIR, LineConditions

PACKET_BYTES_MAX: Final = 256 * MIB
"""A client takes whatever the standard allows, unless its CONNECT announces a smaller maximum."""


class ConnectionEnd:
    """What a client sees behind the last packet: the connection is closed."""

    def __repr__(self) -> str:
        return "ENDED"


ENDED: Final = ConnectionEnd()


class SimulatedClient:
    """One client and its line. What arrives is decoded at once and kept. What is malformed raises, and so does what is
    larger than the client said it takes [MQTT-3.1.2-24].

    With *on_packet*, packets are handed to it instead of being kept.
    """

    def __init__(
        self,
        name: str,
        broker: SimulatedBroker,
        conditions: LineConditions = FAIR,
        on_packet: Callable[[Packet], None] | None = None,
    ) -> None:
        self.name = name
        self.dialect: Dialect = V5
        self.line: ClientLine | None = None
        self.conditions = conditions
        self.octets: list[bytes] = []
        """Every byte received over all connections, as it arrived."""
        self._broker = broker
        self._framer = Framer(PACKET_BYTES_MAX)
        self._has_left = False
        self._received: list[Packet | ConnectionEnd] = []
        self._on_packet: Callable[[Packet], None] = on_packet or self._received_packet

    @property
    def is_connected(self) -> bool:
        """Whether there is a line that has not ended."""
        return self.line is not None and self.line.is_open

    def open(self) -> ClientLine:
        """Open a line. One that is still open is cut."""
        if self.line is not None:
            self.line.cut()
        self._framer = Framer(PACKET_BYTES_MAX)
        self._has_left = False
        self.line = self._broker.connect(self.name, self._read, self._see_end, self.conditions)
        return self.line

    def send(self, packet: Packet) -> None:
        """Write *packet*; a Connect opens a line first, if there is none, and settles the dialect."""
        if isinstance(packet, Connect):
            if not self.is_connected:
                self.open()
            self.dialect = packet.dialect
            self._framer = Framer(number(packet.properties, Property.MAXIMUM_PACKET_SIZE) or PACKET_BYTES_MAX)
        self._has_left = isinstance(packet, Disconnect)
        self.write(encode_packet(packet, self.dialect))

    def write(self, octets: bytes) -> None:
        """Write bytes as they are. Raises RuntimeError if there is no line."""
        if self.line is None or not self.line.is_open:
            raise RuntimeError(f"{self.name} has no connection to write to")
        self.line.write(octets)

    def cut(self) -> None:
        """Break the line."""
        if self.line is not None:
            self.line.cut()

    def abandon(self) -> None:
        """Forget the line without closing it, as a device does that restarts: the broker may still think it is there.

        What was sent still arrives; what the broker sends is not read any more.
        """
        if self.line is not None:
            self.line.stall()
            self.line = None

    def receive(self) -> list[Packet | ConnectionEnd]:
        """What arrived since the last call, in order; ENDED if the broker closed without having been asked to."""
        received, self._received = self._received, []
        return received

    def _read(self, chunk: bytes) -> None:
        self.octets.append(chunk)
        self._framer.feed(chunk)
        while (frame := self._framer.next_frame()) is not None:
            self._on_packet(decode_packet(*frame, self.dialect))

    def _received_packet(self, packet: Packet) -> None:
        self._received.append(packet)

    def _see_end(self) -> None:
        if not self._has_left:
            self._received.append(ENDED)
