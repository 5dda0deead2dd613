"""The two ends of a bridge, as those between them write to them."""

from __future__ import annotations

from typing import Final

from edgebridge.upstream.state import Order
from edgebridge.upstream.terms import Granted
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Packet

PUBLISH: Final = 3  # the packet type, the upper half of the first byte
QOS: Final = 0x06  # in the first byte


def is_qos_0(first: int) -> bool:
    """Whether the packet with this first byte is a message that nobody says again."""
    return first >> 4 & 0xF == PUBLISH and not first & QOS


def thrown_away(packets: list[bytes]) -> int:
    """Empty *packets*, which nobody takes any more. Returns how many messages are lost with that."""
    lost = sum(is_qos_0(packet[0]) for packet in packets)
    packets.clear()
    return lost


class Ends:
    """Packets that wait to be written. The end towards our own front end speaks version 5, the other its own."""

    __slots__ = ("_warned", "granted", "local", "orders", "remote", "warnings")

    def __init__(self) -> None:
        self.local: list[bytes] = []
        self.remote: list[bytes] = []
        self.orders: list[Order] = []
        """What else the world is to do."""
        self.warnings: list[str] = []
        """What an operator should know."""
        self._warned: set[str] = set()
        self.granted = Granted(V311)
        """What the remote said last."""

    def tell_local(self, packet: Packet) -> None:
        """Write *packet* to our own front end."""
        self.local.append(encode_packet(packet, V5))

    def tell_remote(self, packet: Packet) -> int:
        """Write *packet* to the remote; its length in bytes."""
        data = encode_packet(packet, self.granted.dialect)
        self.remote.append(data)
        return len(data)

    def warn(self, code: str, text: str) -> None:
        """Let an operator know of *text*, the first time that something of *code* happens."""
        if code not in self._warned:
            self._warned.add(code)
            self.warnings.append(text)
