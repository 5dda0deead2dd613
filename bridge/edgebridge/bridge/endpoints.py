"""The output buffers of both ends of a bridge, the states of the connection, and reason codes as text."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edgebridge.bridge.options import RemoteCapabilities
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Packet
from edgebridge.wire.properties import Properties, Property, text_property
from edgebridge.wire.reasons import ReasonCode


class BridgeState(StrEnum):
    """Of one bridge."""

    PAUSED = "paused"
    """An operator wants it so."""
    CLOSED = "closed"
    """Outside its hours."""
    WAITING = "waiting"
    """Until it is time to dial."""
    DIALLING = "dialling"
    GREETING = "greeting"
    """CONNECT was sent."""
    OPEN = "open"
    """CONNACK came: messages go through."""


_S = BridgeState
TRANSITIONS: Final[dict[BridgeState, frozenset[BridgeState]]] = {
    _S.PAUSED: frozenset({_S.WAITING, _S.CLOSED}),
    _S.CLOSED: frozenset({_S.WAITING, _S.PAUSED}),
    _S.WAITING: frozenset({_S.DIALLING, _S.PAUSED, _S.CLOSED, _S.WAITING}),
    _S.DIALLING: frozenset({_S.GREETING, _S.WAITING, _S.PAUSED, _S.CLOSED}),
    _S.GREETING: frozenset({_S.OPEN, _S.WAITING, _S.PAUSED, _S.CLOSED}),
    _S.OPEN: frozenset({_S.WAITING, _S.PAUSED, _S.CLOSED}),
}
"""What is not here cannot be."""


class BridgeCommand(StrEnum):
    """What the splice asks of the world."""

    DIAL = "dial"
    """Connect to the remote; then say `dialled`, or `lost` with the reason."""
    HANG_UP = "hang up"
    """Write what there is, and close the connection to the remote, or give up dialling. Say nothing."""
    ELSEWHERE = "elsewhere"
    """Begin with the next address when the remote is dialled again: who answers at this one is of no use."""
    OPEN = "open"
    """Open an end towards our own front end, and say `opened`."""
    CLOSE = "close"
    """Write what there is, and close that end. Say nothing."""


REASON_CHARS_MAX: Final = 200  # of a text that somebody else chose


def reason_text(reason: ReasonCode, properties: Properties) -> str:
    """A reason code, with the reason string if there is one."""
    said = printable(text_property(properties, Property.REASON_STRING)[:REASON_CHARS_MAX])
    return f"{reason.name.lower().replace('_', ' ')} (0x{reason:02X})" + (f": {said}" if said else "")


def printable(text: str) -> str:
    """*text* without what would move a cursor, colour a terminal or begin a line: such characters are spelt out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


PUBLISH: Final = 3  # the packet type, the upper half of the first byte
QOS: Final = 0x06  # in the first byte


def is_qos0_publish(first: int) -> bool:
    """Whether the packet with this first byte is a message that nobody says again."""
    return first >> 4 & 0xF == PUBLISH and not first & QOS


def discard_packets(packets: list[bytes]) -> int:
    """Empty *packets*, which nobody takes any more. Returns how many messages are lost with that."""
    lost = sum(is_qos0_publish(packet[0]) for packet in packets)
    packets.clear()
    return lost


class Endpoints:
    """Packets that wait to be written. The end towards our own front end speaks version 5, the other its own."""

    __slots__ = ("_warned", "capabilities", "commands", "local", "remote", "warnings")

    def __init__(self) -> None:
        self.local: list[bytes] = []
        self.remote: list[bytes] = []
        self.commands: list[BridgeCommand] = []
        """What else the world is to do."""
        self.warnings: list[tuple[str, str]] = []
        """What an operator should know: the event of the operator log, and its text."""
        self._warned: set[str] = set()
        self.capabilities = RemoteCapabilities(V311)
        """What the remote said last."""

    def send_local(self, packet: Packet) -> None:
        """Write *packet* to our own front end."""
        self.local.append(encode_packet(packet, V5))

    def send_remote(self, packet: Packet) -> int:
        """Write *packet* to the remote; its length in bytes."""
        data = encode_packet(packet, self.capabilities.dialect)
        self.remote.append(data)
        return len(data)

    def warn(self, code: str, text: str, event: str = "bridge-drops") -> None:
        """Let an operator know of *text*, as *event*, the first time that something of *code* happens."""
        if code not in self._warned:
            self._warned.add(code)
            self.warnings.append((event, text))
