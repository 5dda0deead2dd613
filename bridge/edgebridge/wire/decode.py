"""Bytes to packets: every rule of the standards that can be judged from one packet alone.

Both directions are read (the simulator and our own client use the same codec). Whatever the bytes are, the answer is a
packet or a ProtocolError, never another exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from edgebridge.wire.connect import decode_connack, decode_connect
from edgebridge.wire.dialect import Dialect
from edgebridge.wire.errors import MalformedPacket, ProtocolViolation, TooManyItems
from edgebridge.wire.fields import overrun, read_text, read_u16, trailing
from edgebridge.wire.packets import (
    Auth,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
    Unsubscribe,
)
from edgebridge.wire.properties import Carrier, Properties, Property, read_properties
from edgebridge.wire.reasons import FAILURE, ReasonCode

FILTERS_MAX: Final = 4_096
"""Topic filters in one SUBSCRIBE or UNSUBSCRIBE: 64 KiB have room for 2,000 that are worth the name, and for 20,000
that are not, which take 30 ms to read."""

_R = ReasonCode

_ACK_FAILURES: Final = {
    _R.UNSPECIFIED_ERROR,
    _R.IMPLEMENTATION_SPECIFIC_ERROR,
    _R.NOT_AUTHORIZED,
    _R.TOPIC_NAME_INVALID,
    _R.PACKET_IDENTIFIER_IN_USE,
    _R.QUOTA_EXCEEDED,
    _R.PAYLOAD_FORMAT_INVALID,
}
_RECEIVED: Final = {_R.SUCCESS, _R.NO_MATCHING_SUBSCRIBERS} | _ACK_FAILURES
_RELEASED: Final = {_R.SUCCESS, _R.PACKET_IDENTIFIER_NOT_FOUND}
_SUBSCRIBED: Final = {
    _R.GRANTED_QOS_0,
    _R.GRANTED_QOS_1,
    _R.GRANTED_QOS_2,
    _R.UNSPECIFIED_ERROR,
    _R.IMPLEMENTATION_SPECIFIC_ERROR,
    _R.NOT_AUTHORIZED,
    _R.TOPIC_FILTER_INVALID,
    _R.PACKET_IDENTIFIER_IN_USE,
    _R.QUOTA_EXCEEDED,
    _R.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    _R.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    _R.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
}
# A packet of 64 KiB has as many codes; to make each by calling ReasonCode takes ten times as long.
_SUBSCRIBED_OF: Final = {int(reason): reason for reason in _SUBSCRIBED}
_SUBSCRIBED_311_OF: Final = {code: ReasonCode(code) for code in (0x00, 0x01, 0x02, FAILURE)}
_UNSUBSCRIBED: Final = {
    _R.SUCCESS,
    _R.NO_SUBSCRIPTION_EXISTED,
    _R.UNSPECIFIED_ERROR,
    _R.IMPLEMENTATION_SPECIFIC_ERROR,
    _R.NOT_AUTHORIZED,
    _R.TOPIC_FILTER_INVALID,
    _R.PACKET_IDENTIFIER_IN_USE,
}
_UNSUBSCRIBED_OF: Final = {int(reason): reason for reason in _UNSUBSCRIBED}
_AUTHENTICATED: Final = {_R.SUCCESS, _R.CONTINUE_AUTHENTICATION, _R.RE_AUTHENTICATE}
# Table 3-13, and BAD_AUTHENTICATION_METHOD, which table 2-6 grants to DISCONNECT too: every failure but those that only
# an answer to CONNECT or to a packet with an identifier can mean.
_DISCONNECTED: Final = {_R.NORMAL_DISCONNECTION, _R.DISCONNECT_WITH_WILL_MESSAGE} | (
    {reason for reason in _R if reason >= FAILURE}
    - {
        _R.UNSUPPORTED_PROTOCOL_VERSION,
        _R.CLIENT_IDENTIFIER_NOT_VALID,
        _R.BAD_USER_NAME_OR_PASSWORD,
        _R.SERVER_UNAVAILABLE,
        _R.BANNED,
        _R.PACKET_IDENTIFIER_IN_USE,
        _R.PACKET_IDENTIFIER_NOT_FOUND,
    }
)


def decode_packet(header: int, body: bytes, dialect: Dialect) -> Packet:
    """The packet with first byte *header* and *body* (as `framing` cuts them) in *dialect*; CONNECT brings its own.

    Raises ProtocolError, whose reason says what to tell the peer.
    """
    kind = header >> 4
    if kind == 3:
        return _decode_publish(header, body, dialect)
    # PUBREL, SUBSCRIBE and UNSUBSCRIBE have the flags 0010, the others 0000; in 3.1 they may be sent again with DUP.
    if header & 0x0F != (2 if kind in (6, 8, 10) else 0) and not (dialect.is_old and header & 0x0F == 0x0A):
        raise MalformedPacket(f"the flags of a packet of type {kind} are wrong", v311="MQTT-2.2.2-1", v5="MQTT-2.1.3-1")
    decode = _DECODERS[kind]
    if decode is None:
        raise _no_such_type(kind)
    return decode(body, dialect)


def _no_such_type(kind: int) -> MalformedPacket:
    return MalformedPacket(f"there is no packet type {kind}", v311="section 2.2.1", v5="section 2.1.2")


def _decode_publish(header: int, body: bytes, dialect: Dialect) -> Publish:
    qos = header >> 1 & 3
    if qos == 3:
        raise MalformedPacket("a PUBLISH has QoS 3", v311="MQTT-3.3.1-4", v5="MQTT-3.3.1-4")
    dup = header & 8 != 0
    if dup and not qos:
        raise MalformedPacket("a QoS 0 PUBLISH is marked as a duplicate", v311="MQTT-3.3.1-2", v5="MQTT-3.3.1-2")
    topic, at = read_text(body, 0)
    if "+" in topic or "#" in topic:
        raise MalformedPacket("a PUBLISH has a topic with wildcards", v311="MQTT-3.3.2-2", v5="MQTT-3.3.2-2")
    packet_id = 0
    if qos:
        packet_id, at = _read_packet_id(body, at)
    properties: Properties = {}
    if dialect.has_properties:
        properties, at = read_properties(body, at, Carrier.PUBLISH)
    if not topic and Property.TOPIC_ALIAS not in properties:
        raise ProtocolViolation("a PUBLISH has no topic", v311="MQTT-4.7.3-1", v5="section 3.3.2.1")
    return Publish(topic, body[at:], qos, header & 1 != 0, dup, packet_id, properties)


def _read_packet_id(body: bytes, at: int) -> tuple[int, int]:
    packet_id, at = read_u16(body, at)
    if not packet_id:
        raise ProtocolViolation("a packet identifier is 0", v311="MQTT-2.3.1-1", v5="MQTT-2.2.1-3")
    return packet_id, at


AnyAck = TypeVar("AnyAck", PubAck, PubRec, PubRel, PubComp)


def _ack_decoder(
    ack: type[AnyAck], carrier: Carrier, reasons: set[ReasonCode], clause: str
) -> Callable[[bytes, Dialect], AnyAck]:
    def decode(body: bytes, dialect: Dialect) -> AnyAck:
        if len(body) == 2 and (bare := body[0] << 8 | body[1]):  # nearly all are
            return ack(bare)
        packet_id, at = _read_packet_id(body, 0)
        if not dialect.has_reasons:
            raise trailing(carrier.name)
        reason, properties = _reason_and_properties(body, at, carrier, reasons, clause)
        return ack(packet_id, reason, properties)

    return decode


def _reason_and_properties(
    body: bytes, at: int, carrier: Carrier, reasons: set[ReasonCode], clause: str
) -> tuple[ReasonCode, Properties]:
    """The end of an acknowledgement, DISCONNECT or AUTH that is not bare: a reason and perhaps properties."""
    reason = _reason(body[at], reasons, carrier.name, clause)
    at += 1
    if at == len(body) and carrier is not Carrier.AUTH:
        return reason, {}
    properties, at = read_properties(body, at, carrier)
    if at != len(body):
        raise trailing(carrier.name)
    return reason, properties


def _reason(code: int, reasons: set[ReasonCode], packet: str, clause: str) -> ReasonCode:
    if code not in reasons:
        raise ProtocolViolation(f"{packet} has no reason code 0x{code:02X}", v5=clause)
    return ReasonCode(code)


def _decode_subscribe(body: bytes, dialect: Dialect) -> Subscribe:
    packet_id, at = _read_packet_id(body, 0)
    properties: Properties = {}
    if dialect.has_properties:
        properties, at = read_properties(body, at, Carrier.SUBSCRIBE)
    if at == len(body):
        raise ProtocolViolation("a SUBSCRIBE without a topic filter", v311="MQTT-3.8.3-3", v5="MQTT-3.8.3-2")
    subscriptions: list[SubscriptionOption] = []
    while at < len(body):
        topic_filter, at = read_text(body, at)
        if at == len(body):
            raise overrun()
        options = body[at]
        at += 1
        if options & (0xC0 if dialect.has_properties else 0xFC):
            raise MalformedPacket("reserved subscription options are set", v311="MQTT-3.8.3-4", v5="MQTT-3.8.3-5")
        if options & 3 == 3:
            if dialect.has_properties:
                raise ProtocolViolation("a subscription asks for QoS 3", v5="section 3.8.3.1")
            raise MalformedPacket("a subscription asks for QoS 3", v311="MQTT-3.8.3-4")
        if options & 0x30 == 0x30:
            raise ProtocolViolation("a subscription has retain handling 3", v5="section 3.8.3.1")
        if options & 4 and topic_filter.startswith("$share/"):
            raise ProtocolViolation("a shared subscription with No Local", v5="MQTT-3.8.3-4")
        subscriptions.append(
            SubscriptionOption(topic_filter, options & 3, options & 4 != 0, options & 8 != 0, options >> 4)
        )
        if len(subscriptions) > FILTERS_MAX:
            raise _too_many_filters()
    return Subscribe(packet_id, subscriptions, properties)


def _decode_suback(body: bytes, dialect: Dialect) -> SubAck:
    packet_id, at = _read_packet_id(body, 0)
    properties: Properties = {}
    if dialect.has_properties:
        properties, at = read_properties(body, at, Carrier.SUBACK)
    known = _SUBSCRIBED_OF if dialect.has_reasons else _SUBSCRIBED_311_OF
    try:
        reasons: list[int] = [known[code] for code in body[at:]]
    except KeyError as error:
        code = error.args[0]
        raise ProtocolViolation(
            f"SUBACK has no reason code 0x{code:02X}", v311="MQTT-3.9.3-2", v5="MQTT-3.9.3-2"
        ) from None
    if not reasons:
        raise ProtocolViolation("a SUBACK without a reason code", v311="MQTT-3.8.4-5", v5="MQTT-3.8.4-6")
    return SubAck(packet_id, reasons, properties)


def _decode_unsubscribe(body: bytes, dialect: Dialect) -> Unsubscribe:
    packet_id, at = _read_packet_id(body, 0)
    properties: Properties = {}
    if dialect.has_properties:
        properties, at = read_properties(body, at, Carrier.UNSUBSCRIBE)
    if at == len(body):
        raise ProtocolViolation("an UNSUBSCRIBE without a topic filter", v311="MQTT-3.10.3-2", v5="MQTT-3.10.3-2")
    topic_filters: list[str] = []
    while at < len(body):
        topic_filter, at = read_text(body, at)
        topic_filters.append(topic_filter)
        if len(topic_filters) > FILTERS_MAX:
            raise _too_many_filters()
    return Unsubscribe(packet_id, topic_filters, properties)


def _too_many_filters() -> TooManyItems:
    return TooManyItems(f"more than {FILTERS_MAX:,} topic filters in one packet")


def _decode_unsuback(body: bytes, dialect: Dialect) -> UnsubAck:
    packet_id, at = _read_packet_id(body, 0)
    if not dialect.has_reasons:
        if at != len(body):
            raise trailing("UNSUBACK")
        return UnsubAck(packet_id)
    properties, at = read_properties(body, at, Carrier.UNSUBACK)
    try:
        reasons: list[int] = [_UNSUBSCRIBED_OF[code] for code in body[at:]]
    except KeyError as error:
        raise ProtocolViolation(f"UNSUBACK has no reason code 0x{error.args[0]:02X}", v5="MQTT-3.11.3-2") from None
    if not reasons:
        raise ProtocolViolation("an UNSUBACK without a reason code", v5="section 3.11.3")
    return UnsubAck(packet_id, reasons, properties)


def _decode_pingreq(body: bytes, _: Dialect) -> PingReq:
    if body:
        raise trailing("PINGREQ")
    return PingReq()


def _decode_pingresp(body: bytes, _: Dialect) -> PingResp:
    if body:
        raise trailing("PINGRESP")
    return PingResp()


def _decode_disconnect(body: bytes, dialect: Dialect) -> Disconnect:
    if not body:
        return Disconnect()
    if not dialect.has_reasons:
        raise trailing("DISCONNECT")
    return Disconnect(*_reason_and_properties(body, 0, Carrier.DISCONNECT, _DISCONNECTED, "MQTT-3.14.2-1"))


def _decode_auth(body: bytes, dialect: Dialect) -> Auth:
    if not dialect.has_reasons:
        raise _no_such_type(15)
    if not body:
        return Auth()
    return Auth(*_reason_and_properties(body, 0, Carrier.AUTH, _AUTHENTICATED, "MQTT-3.15.2-1"))


_DECODERS: Final[tuple[Callable[[bytes, Dialect], Packet] | None, ...]] = (
    None,
    decode_connect,
    decode_connack,
    None,  # PUBLISH, which needs its flags
    _ack_decoder(PubAck, Carrier.PUBACK, _RECEIVED, "MQTT-3.4.2-1"),
    _ack_decoder(PubRec, Carrier.PUBREC, _RECEIVED, "MQTT-3.5.2-1"),
    _ack_decoder(PubRel, Carrier.PUBREL, _RELEASED, "MQTT-3.6.2-1"),
    _ack_decoder(PubComp, Carrier.PUBCOMP, _RELEASED, "MQTT-3.7.2-1"),
    _decode_subscribe,
    _decode_suback,
    _decode_unsubscribe,
    _decode_unsuback,
    _decode_pingreq,
    _decode_pingresp,
    _decode_disconnect,
    _decode_auth,
)
