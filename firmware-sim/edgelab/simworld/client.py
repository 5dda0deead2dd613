"""A client of the simulation: sends real packets over a line, and nothing by itself."""

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
"""A client accepts any legal size, unless its CONNECT announces a smaller maximum."""


class ConnectionEnd:
    """The end of a connection, as a client sees it after the last packet."""

    def __repr__(self) -> str:
        return "ENDED"


ENDED: Final = ConnectionEnd()


class SimulatedClient:
    """One client and its line. Received packets are decoded at once and stored.

    A malformed packet raises, and so does one that is larger than the client's maximum [MQTT-3.1.2-24]. With
    *on_packet*, packets are passed to it instead of being stored.
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
        """Every byte received over all connections, in pieces as they arrived."""
        self._broker = broker
        self._framer = Framer(PACKET_BYTES_MAX)
        self._has_left = False
        self._received: list[Packet | ConnectionEnd] = []
        self._on_packet: Callable[[Packet], None] = on_packet or self._received_packet

    @property
    def is_connected(self) -> bool:
        """Return whether there is an open line."""
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
        """Send *packet*; a Connect opens a line first, if there is none, and sets the dialect."""
        if isinstance(packet, Connect):
            if not self.is_connected:
                self.open()
            self.dialect = packet.dialect
            self._framer = Framer(number(packet.properties, Property.MAXIMUM_PACKET_SIZE) or PACKET_BYTES_MAX)
        self._has_left = isinstance(packet, Disconnect)
        self.write(encode_packet(packet, self.dialect))

    def write(self, octets: bytes) -> None:
        """Send raw bytes. Raises RuntimeError if there is no line."""
        if self.line is None or not self.line.is_open:
            raise RuntimeError(f"{self.name} has no connection to write to")
        self.line.write(octets)

    def cut(self) -> None:
        """Break the line."""
        if self.line is not None:
            self.line.cut()

    def abandon(self) -> None:
        """Drop the line without closing it, as a device does that restarts: the broker may still consider it open.

        Bytes in transit still arrive; the broker's bytes are no longer read.
        """
        if self.line is not None:
            self.line.stall()
            self.line = None

    def move(self, broker: SimulatedBroker) -> None:
        """Abandon the line, and open the next one to *broker*."""
        self.abandon()
        self._broker = broker

    def receive(self) -> list[Packet | ConnectionEnd]:
        """Return what has arrived since the last call, in order; ENDED if the broker closed on its own."""
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
