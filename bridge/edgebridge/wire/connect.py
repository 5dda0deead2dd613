"""Reading CONNECT, where a connection finds its dialect, and CONNACK, where it learns whether it may stay."""

from __future__ import annotations

from typing import Final

from edgebridge.wire.dialect import DIALECTS, SPOKEN, V31, Dialect
from edgebridge.wire.errors import (
    ClientIdentifierNotValid,
    MalformedPacket,
    ProtocolViolation,
    UnsupportedProtocolVersion,
)
from edgebridge.wire.fields import overrun, read_binary, read_text, read_u16, trailing
from edgebridge.wire.packets import ConnAck, Connect, Will
from edgebridge.wire.properties import Carrier, Properties, read_properties
from edgebridge.wire.reasons import FAILURE, REASON_OF_RETURN_CODE, ReasonCode

_CLEAN_START: Final = 0x02
_WILL: Final = 0x04
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80

_VERSIONS: Final = " and ".join(dialect.version for dialect in (*DIALECTS, V31))

_R = ReasonCode
# Table 3-1: success, and the failures that an answer to CONNECT can mean.
_CONNECTED: Final = {_R.SUCCESS} | (
    {reason for reason in _R if FAILURE <= reason <= _R.CONNECTION_RATE_EXCEEDED}
    - {
        _R.SERVER_SHUTTING_DOWN,
        _R.KEEP_ALIVE_TIMEOUT,
        _R.SESSION_TAKEN_OVER,
        _R.TOPIC_FILTER_INVALID,
        _R.PACKET_IDENTIFIER_IN_USE,
        _R.PACKET_IDENTIFIER_NOT_FOUND,
        _R.RECEIVE_MAXIMUM_EXCEEDED,
        _R.TOPIC_ALIAS_INVALID,
        _R.MESSAGE_RATE_TOO_HIGH,
        _R.ADMINISTRATIVE_ACTION,
        _R.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    }
)


def decode_connect(body: bytes, _: Dialect) -> Connect:
    """A CONNECT, whatever dialect it is in. Raises UnsupportedProtocolVersion for one we do not speak."""
    name, at = read_text(body, 0)
    if at + 2 > len(body):
        raise overrun()
    dialect = _dialect(name, body[at])
    flags = body[at + 1]
    _check_flags(flags, dialect)
    keep_alive_s, at = read_u16(body, at + 2)
    properties: Properties = {}
    if dialect.has_properties:
        properties, at = read_properties(body, at, Carrier.CONNECT)
    client_id, at = read_text(body, at)
    if not client_id and dialect.is_old:
        raise ClientIdentifierNotValid("a client has an identifier in MQTT 3.1")
    if not (client_id or flags & _CLEAN_START or dialect.has_properties):
        raise ClientIdentifierNotValid("a session to keep needs a client identifier", v311="MQTT-3.1.3-8")
    will = None
    if flags & _WILL:
        will, at = _read_will(body, at, flags, dialect)
    username = password = None
    if dialect.is_old and at == len(body):  # 3.1, section 3.1: what is not there was not sent, whatever the flags say
        flags &= ~(_USER_NAME | _PASSWORD)
    if flags & _USER_NAME:
        username, at = read_text(body, at)
    if flags & _PASSWORD and not (dialect.is_old and at == len(body)):
        password, at = read_binary(body, at)
    if at != len(body):
        raise trailing("CONNECT")
    return Connect(client_id, flags & _CLEAN_START != 0, keep_alive_s, username, password, will, properties, dialect)


def _dialect(name: str, level: int) -> Dialect:
    for dialect in SPOKEN:
        if dialect.level == level and dialect.name == name:
            return dialect
    if name not in ("MQTT", "MQIsdp"):
        raise UnsupportedProtocolVersion("the protocol is not MQTT", v311="MQTT-3.1.2-1", v5="MQTT-3.1.2-1")
    raise UnsupportedProtocolVersion(
        f"protocol level {level} of {name} is not spoken here, only MQTT {_VERSIONS}",
        v311="MQTT-3.1.2-2",
        v5="MQTT-3.1.2-2",
    )


def _check_flags(flags: int, dialect: Dialect) -> None:
    if flags & 1 and not dialect.is_old:
        raise MalformedPacket("the reserved flag of CONNECT is set", v311="MQTT-3.1.2-3", v5="MQTT-3.1.2-3")
    will_qos = flags >> 3 & 3
    if not flags & _WILL and (will_qos or flags & _WILL_RETAIN):
        raise MalformedPacket("will QoS or will retain without a will", v311="MQTT-3.1.2-11", v5="MQTT-3.1.2-11")
    if will_qos == 3:
        raise MalformedPacket("a will has QoS 3", v311="MQTT-3.1.2-14", v5="MQTT-3.1.2-14")
    # Version 5 allows a password alone: section 3.1.2.9.
    if flags & _PASSWORD and not flags & _USER_NAME and not dialect.has_properties:
        raise MalformedPacket("a password without a user name", v311="MQTT-3.1.2-22")


def _read_will(body: bytes, at: int, flags: int, dialect: Dialect) -> tuple[Will, int]:
    properties: Properties = {}
    if dialect.has_properties:
        properties, at = read_properties(body, at, Carrier.WILL)
    topic, at = read_text(body, at)
    if not topic:
        raise MalformedPacket("a will has no topic", v311="MQTT-4.7.3-1", v5="MQTT-4.7.3-1")
    if "+" in topic or "#" in topic:
        raise MalformedPacket("a will has a topic with wildcards", v311="MQTT-4.7.1-1", v5="MQTT-4.7.0-1")
    payload, at = read_binary(body, at)
    return Will(topic, payload, flags >> 3 & 3, flags & _WILL_RETAIN != 0, properties), at


def decode_connack(body: bytes, dialect: Dialect) -> ConnAck:
    """A CONNACK in *dialect*; a 3.1.1 return code becomes the reason code that means the same."""
    if len(body) < 2:
        raise overrun()
    present, code = body[0], body[1]
    if present > 1:
        raise MalformedPacket("reserved flags of CONNACK are set", v311="section 3.2.2.1", v5="MQTT-3.2.2-1")
    at = 2
    properties: Properties = {}
    if dialect.has_reasons:
        if code not in _CONNECTED:
            raise ProtocolViolation(f"CONNACK has no reason code 0x{code:02X}", v5="MQTT-3.2.2-8")
        reason = ReasonCode(code)
        properties, at = read_properties(body, at, Carrier.CONNACK)
    elif code in REASON_OF_RETURN_CODE:
        reason = REASON_OF_RETURN_CODE[code]
    else:
        raise ProtocolViolation(f"CONNACK has no return code {code}", v311="section 3.2.2.3")
    if at != len(body):
        raise trailing("CONNACK")
    if present and reason:
        raise ProtocolViolation("a refusal with a session present", v311="MQTT-3.2.2-4", v5="MQTT-3.2.2-6")
    return ConnAck(present == 1, reason, properties)
