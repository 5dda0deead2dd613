"""A first packet that is not CONNECT: often TLS or HTTP, from a client at the wrong listener [MQTT-3.1.0-1]."""

from __future__ import annotations

from typing import Final

from edgebridge.wire.errors import ProtocolViolation

TLS: Final = 0x16
"""The first byte of a handshake (RFC 8446 section 5.1). As a packet it would be a CONNECT with wrong flags."""
_METHODS: Final = b"CDGHOPT"
"""The first letters of CONNECT, DELETE, GET, HEAD, OPTIONS, PUT and TRACE (RFC 9110 section 9.3)."""


def not_connect(first: int) -> ProtocolViolation:
    """The error for a first packet with this *first* byte [MQTT-3.1.0-1]."""
    what = "the first packet is not CONNECT"
    if first == TLS:
        what += ": it looks like TLS, and this listener has none"
    elif first in _METHODS:
        what += ": it looks like HTTP or WebSocket, and this listener speaks plain MQTT"
    return ProtocolViolation(what, v311="MQTT-3.1.0-1", v5="MQTT-3.1.0-1")
