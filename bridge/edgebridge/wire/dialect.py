"""The versions of MQTT, as data. The codec is one; what differs between versions is asked of the dialect."""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version of the protocol: how CONNECT names it, and what its packets have."""

    version: str
    """As people write it."""
    name: str
    """Protocol Name in CONNECT."""
    level: int
    """Protocol Level (3.1.1) or Protocol Version (5) in CONNECT."""
    has_properties: bool
    """Whether packets carry properties, and SUBSCRIBE its options beyond QoS."""
    has_reasons: bool
    """Whether acknowledgements and DISCONNECT carry reason codes."""
    is_bridge: bool = False
    """Whether all subscriptions are no local and retain as published, which 3.1.1 cannot ask for one by one."""
    is_old: bool = False
    """Whether it is 3.1, whose CONNACK does not tell of sessions, and whose senders may set flags that came to mean
    something later."""


V31: Final = Dialect("3.1", "MQIsdp", 3, has_properties=False, has_reasons=False, is_old=True)
"""Taken as 3.1.1, of which it is an earlier spelling. Its SUBACK knows no refusal; it hears the 0x80 of 3.1.1."""
V311: Final = Dialect("3.1.1", "MQTT", 4, has_properties=False, has_reasons=False)
V311_BRIDGE: Final = Dialect("3.1.1 (bridge)", "MQTT", 0x84, has_properties=False, has_reasons=False, is_bridge=True)
"""3.1.1 with bit 7 of the level set, as Mosquitto's bridges try first (`try_private`). Taken at its word, a bridge with
`topic ... both` gets no message back that it brought, and keeps what is retained retained."""
V31_BRIDGE: Final = Dialect(
    "3.1 (bridge)", "MQIsdp", 0x83, has_properties=False, has_reasons=False, is_bridge=True, is_old=True
)
V5: Final = Dialect("5", "MQTT", 5, has_properties=True, has_reasons=True)

DIALECTS: Final[tuple[Dialect, ...]] = (V311, V5)
"""The standards of OASIS."""
SPOKEN: Final[tuple[Dialect, ...]] = (*DIALECTS, V31, V311_BRIDGE, V31_BRIDGE)
"""What we speak."""


def answering_dialect(connect_body: bytes) -> Dialect | None:
    """In which dialect to answer a CONNECT that was refused; None if its sender speaks no MQTT (just close).

    An unknown level is answered in the nearest dialect below it, so that the sender can read the refusal.
    """
    if connect_body[:6] == b"\x00\x04MQTT" and len(connect_body) > 6:
        return V5 if connect_body[6] & 0x7F >= V5.level else V311
    if connect_body[:8] == b"\x00\x06MQIsdp":
        return V31
    return None
