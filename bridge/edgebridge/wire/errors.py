"""What a peer can do wrong on the wire. Each error carries the reason code the peer may hear, and names its clause.

A version 5 peer hears the code in CONNACK, an acknowledgement or DISCONNECT; a 3.1.1 peer sees the connection close.
"""

from __future__ import annotations

from typing import ClassVar, Final

from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError

TLS_BYTE: Final = 0x16
"""The first byte of a handshake (RFC 8446 section 5.1). As a packet it would be a CONNECT with wrong flags."""
_HTTP_METHODS: Final = b"CDGHOPT"
"""The first letters of CONNECT, DELETE, GET, HEAD, OPTIONS, PUT and TRACE (RFC 9110 section 9.3)."""


class ProtocolError(EdgebrokerError):
    """Base of everything a peer's bytes can be wrong about.

    `v311` and `v5` cite the clause each version breaks ("MQTT-3.1.2-3"; "section 2.2.2.2" where the standard has no
    number for the sentence); "" where the version has no such rule.
    """

    reason: ClassVar[ReasonCode] = ReasonCode.PROTOCOL_ERROR

    def __init__(self, what: str, *, v311: str = "", v5: str = "") -> None:
        self.what = what
        self.v311 = v311
        self.v5 = v5

    def __str__(self) -> str:
        cited = ", ".join(
            f"{version}: {clause}" for version, clause in (("3.1.1", self.v311), ("5", self.v5)) if clause
        )
        return f"{self.what} [{cited}]" if cited else self.what


class MalformedPacket(ProtocolError):
    """The bytes cannot be read as a packet (MQTT 5.0 section 4.13.1)."""

    reason = ReasonCode.MALFORMED_PACKET


class ProtocolViolation(ProtocolError):
    """The bytes can be read, but say something the protocol does not allow (MQTT 5.0 section 4.13.1)."""

    reason = ReasonCode.PROTOCOL_ERROR


class UnsupportedProtocolVersion(ProtocolError):
    """A CONNECT in a version we do not speak; `dialect.answering_dialect` says how to answer."""

    reason = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdentifierNotValid(ProtocolError):
    """A CONNECT whose client identifier cannot be accepted."""

    reason = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class TopicNameInvalid(ProtocolError):
    """A well-formed topic to publish to that is not accepted: it has too many levels, or control characters."""

    reason = ReasonCode.TOPIC_NAME_INVALID


class TopicAliasInvalid(ProtocolError):
    """A topic alias that is 0, or beyond what was announced."""

    reason = ReasonCode.TOPIC_ALIAS_INVALID


class ReceiveMaximumExceeded(ProtocolViolation):
    """A client has more unfinished QoS 1 and 2 messages than we announced [MQTT-3.3.4-7]."""

    reason = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


class RetainNotSupported(ProtocolViolation):
    """A message to be retained, where CONNACK said that none is [MQTT-3.2.2-14]."""

    reason = ReasonCode.RETAIN_NOT_SUPPORTED


class PacketTooLarge(ProtocolError):
    """A packet longer than its receiver takes."""

    reason = ReasonCode.PACKET_TOO_LARGE


class TooManyItems(ProtocolError):
    """A packet with more of something than its receiver takes."""

    reason = ReasonCode.QUOTA_EXCEEDED


def not_connect(first: int) -> ProtocolViolation:
    """The error for a first packet that is not CONNECT [MQTT-3.1.0-1]; *first* is its first byte.

    Often it is TLS or HTTP, from a client at the wrong listener.
    """
    what = "the first packet is not CONNECT"
    if first == TLS_BYTE:
        what += ": it looks like TLS, and this listener has none"
    elif first in _HTTP_METHODS:
        what += ": it looks like HTTP or WebSocket, and this listener speaks plain MQTT"
    return ProtocolViolation(what, v311="MQTT-3.1.0-1", v5="MQTT-3.1.0-1")
