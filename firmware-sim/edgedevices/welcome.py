"""What a broker says of itself when it answers CONNECT, and what of a device's it will so not take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from edgebridge.wire.packets import ConnAck
from edgebridge.wire.properties import Property, number
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Duration
from edgedevices.message import Message

WINDOW: Final = 16
"""Unacknowledged messages at most; Mosquitto takes 20 and disconnects who exceeds them."""
REMAINING_LENGTH_MAX: Final = 268_435_455
"""Four bytes of seven bits each (section 2.1.4)."""
LASTING_REFUSALS: Final = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    }
)
"""Answers to CONNECT that another attempt does not change."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """MQTT 5.0 section 3.2.2.3; 3.1.1 says nothing of this."""

    window: int = WINDOW
    qos_max: int = 2
    retains: bool = True
    packet_bytes_max: int = REMAINING_LENGTH_MAX + 5
    keep_alive_us: Duration | None = None
    """The broker's own mind about that, which counts (MQTT-3.1.2-21)."""

    @classmethod
    def of(cls, connack: ConnAck) -> Welcome:
        """What *connack* says."""
        said = connack.properties
        keep_alive_s = number(said, Property.SERVER_KEEP_ALIVE)
        return _shared(
            min(WINDOW, number(said, Property.RECEIVE_MAXIMUM, WINDOW)),
            number(said, Property.MAXIMUM_QOS, 2),
            bool(number(said, Property.RETAIN_AVAILABLE, 1)),
            number(said, Property.MAXIMUM_PACKET_SIZE, REMAINING_LENGTH_MAX + 5),
            keep_alive_s * SECOND or None,
        )

    def refuses(self, message: Message, octets: int) -> str:
        """Why the broker would end the connection instead of taking *message*, of *octets* bytes; else empty."""
        if message.qos > self.qos_max:
            return f"refused: no QoS {message.qos} here"
        if message.retain and not self.retains:
            return "refused: nothing is retained here"
        if octets > self.packet_bytes_max:
            return f"refused: no packets of more than {self.packet_bytes_max:,} bytes here"
        return ""


_shared: Final = lru_cache(64)(Welcome)  # a broker says the same to thousands
UNKNOWN: Final = Welcome()
"""What is assumed before a broker has said anything."""


def words(reason: ReasonCode) -> str:
    """A reason code for people."""
    return reason.name.replace("_", " ").capitalize()
