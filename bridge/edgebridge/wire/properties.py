"""Properties (MQTT 5.0 section 2.2.2): one table says what each is, who may carry it and which values it may have."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from itertools import chain
from typing import Any, Final, TypeAlias

from edgebridge.wire import fields
from edgebridge.wire.errors import (
    MalformedPacket,
    PacketTooLarge,
    ProtocolError,
    ProtocolViolation,
    TooManyItems,
    TopicAliasInvalid,
)
from edgebridge.wire.fields import U16_MAX, U32_MAX, VARIABLE_MAX, read_pair, read_variable
from edgebroker.dataclasses import dataclass
from edgebroker.topics import has_disallowed


class Property(IntEnum):
    """A property by its identifier (table 2-4)."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


PropertyValue: TypeAlias = int | str | bytes | list[tuple[str, str]] | list[int]
"""USER_PROPERTY: a list of (name, value), in order. SUBSCRIPTION_IDENTIFIER: a list of int. Any other: one value."""

Properties: TypeAlias = dict[Property, PropertyValue]

PROPERTIES_BYTES_MAX: Final = 256 * 1024
"""Two fields of 64 KiB and room for user properties: an empty one takes 5 bytes here and 100 once it is read."""
REPEATS_MAX: Final = 2_048
"""User properties, or subscription identifiers, of one packet. 64 KiB have room for 13,000 empty ones, which take 10 ms
to read and as long again to be written; people use ten."""


class Carrier(IntEnum):
    """What carries properties: a packet (its type number), or the will inside CONNECT."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    DISCONNECT = 14
    AUTH = 15
    WILL = 16


@dataclass(frozen=True, slots=True)
class PropertyType:
    """How a value is read and written."""

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


BYTE: Final = PropertyType(fields.read_byte, lambda value: value.to_bytes(1, "big"))
TWO_BYTES: Final = PropertyType(fields.read_u16, lambda value: value.to_bytes(2, "big"))
FOUR_BYTES: Final = PropertyType(fields.read_u32, lambda value: value.to_bytes(4, "big"))
VARIABLE: Final = PropertyType(fields.read_variable, fields.write_variable)
TEXT: Final = PropertyType(fields.read_text, fields.write_text)
BINARY: Final = PropertyType(fields.read_binary, fields.write_binary)
PAIR: Final = PropertyType(fields.read_pair, fields.write_pair)


_C = Carrier
_MESSAGE: Final = frozenset({_C.PUBLISH, _C.WILL})
_HANDSHAKE: Final = frozenset({_C.CONNECT, _C.CONNACK})
_EXCHANGE: Final = frozenset({_C.CONNECT, _C.CONNACK, _C.AUTH})
_CONNECT: Final = frozenset({_C.CONNECT})
_CONNACK: Final = frozenset({_C.CONNACK})
_ANSWERS: Final = frozenset(_C) - {_C.CONNECT, _C.PUBLISH, _C.WILL, _C.SUBSCRIBE, _C.UNSUBSCRIBE}


@dataclass(frozen=True, slots=True)
class PropertyRule:
    """One line of table 2-4: *key* is of *kind*, may stand in *carriers*, and is explained in *clause*.

    A number outside *low* to *high* raises *error*. *listed*: the value is a list, because some carrier may repeat it.
    """

    key: Property
    kind: PropertyType
    carriers: frozenset[Carrier]
    clause: str
    low: int = 0
    high: int = U32_MAX
    error: type[ProtocolError] = ProtocolViolation
    listed: bool = False


_P = Property
PROPERTY_RULES: Final[tuple[PropertyRule, ...]] = (
    PropertyRule(_P.PAYLOAD_FORMAT_INDICATOR, BYTE, _MESSAGE, "section 3.3.2.3.2", high=1),
    PropertyRule(_P.MESSAGE_EXPIRY_INTERVAL, FOUR_BYTES, _MESSAGE, "section 3.3.2.3.3"),
    PropertyRule(_P.CONTENT_TYPE, TEXT, _MESSAGE, "section 3.3.2.3.9"),
    PropertyRule(_P.RESPONSE_TOPIC, TEXT, _MESSAGE, "section 3.3.2.3.5"),
    PropertyRule(_P.CORRELATION_DATA, BINARY, _MESSAGE, "section 3.3.2.3.6"),
    PropertyRule(
        _P.SUBSCRIPTION_IDENTIFIER,
        VARIABLE,
        frozenset({_C.PUBLISH, _C.SUBSCRIBE}),
        "section 3.8.2.1.2",
        low=1,
        high=VARIABLE_MAX,
        listed=True,
    ),
    PropertyRule(_P.SESSION_EXPIRY_INTERVAL, FOUR_BYTES, _HANDSHAKE | {_C.DISCONNECT}, "section 3.1.2.11.2"),
    PropertyRule(_P.ASSIGNED_CLIENT_IDENTIFIER, TEXT, _CONNACK, "section 3.2.2.3.7"),
    PropertyRule(_P.SERVER_KEEP_ALIVE, TWO_BYTES, _CONNACK, "section 3.2.2.3.14", high=U16_MAX),
    PropertyRule(_P.AUTHENTICATION_METHOD, TEXT, _EXCHANGE, "section 3.1.2.11.9"),
    PropertyRule(_P.AUTHENTICATION_DATA, BINARY, _EXCHANGE, "section 3.1.2.11.10"),
    PropertyRule(_P.REQUEST_PROBLEM_INFORMATION, BYTE, _CONNECT, "section 3.1.2.11.7", high=1),
    PropertyRule(_P.WILL_DELAY_INTERVAL, FOUR_BYTES, frozenset({_C.WILL}), "section 3.1.3.2.2"),
    PropertyRule(_P.REQUEST_RESPONSE_INFORMATION, BYTE, _CONNECT, "section 3.1.2.11.6", high=1),
    PropertyRule(_P.RESPONSE_INFORMATION, TEXT, _CONNACK, "section 3.2.2.3.15"),
    PropertyRule(_P.SERVER_REFERENCE, TEXT, _CONNACK | {_C.DISCONNECT}, "section 3.2.2.3.16"),
    PropertyRule(_P.REASON_STRING, TEXT, _ANSWERS, "section 3.2.2.3.9"),
    PropertyRule(_P.RECEIVE_MAXIMUM, TWO_BYTES, _HANDSHAKE, "section 3.1.2.11.3", low=1, high=U16_MAX),
    PropertyRule(_P.TOPIC_ALIAS_MAXIMUM, TWO_BYTES, _HANDSHAKE, "section 3.1.2.11.5", high=U16_MAX),
    PropertyRule(
        _P.TOPIC_ALIAS, TWO_BYTES, frozenset({_C.PUBLISH}), "MQTT-3.3.2-8", low=1, high=U16_MAX, error=TopicAliasInvalid
    ),
    PropertyRule(_P.MAXIMUM_QOS, BYTE, _CONNACK, "section 3.2.2.3.4", high=1),
    PropertyRule(_P.RETAIN_AVAILABLE, BYTE, _CONNACK, "section 3.2.2.3.5", high=1),
    PropertyRule(_P.USER_PROPERTY, PAIR, frozenset(_C), "section 3.1.2.11.8", listed=True),
    PropertyRule(_P.MAXIMUM_PACKET_SIZE, FOUR_BYTES, _HANDSHAKE, "section 3.1.2.11.4", low=1),
    PropertyRule(_P.WILDCARD_SUBSCRIPTION_AVAILABLE, BYTE, _CONNACK, "section 3.2.2.3.11", high=1),
    PropertyRule(_P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, BYTE, _CONNACK, "section 3.2.2.3.12", high=1),
    PropertyRule(_P.SHARED_SUBSCRIPTION_AVAILABLE, BYTE, _CONNACK, "section 3.2.2.3.13", high=1),
)
"""Table 2-4, in its order."""

_USER_PROPERTY: Final = int(Property.USER_PROPERTY)  # every carrier may have it
_RESPONSE_TOPIC: Final = Property.RESPONSE_TOPIC  # a third of the time that its place in the enumeration takes
_AUTHENTICATION_DATA: Final = Property.AUTHENTICATION_DATA
_RULE_OF: Final[dict[int, PropertyRule]] = {int(rule.key): rule for rule in PROPERTY_RULES}
_NAMES: Final = {int(key): key.name for key in Property}  # to ask a member takes 1 us, as long as to read its value
_RULES_OF_CARRIER: Final[dict[Carrier, dict[int, PropertyRule]]] = {
    carrier: {number: rule for number, rule in _RULE_OF.items() if carrier in rule.carriers} for carrier in Carrier
}


def read_properties(body: bytes, at: int, carrier: Carrier) -> tuple[Properties, int]:
    """The properties at *at*, with their length in front, and the offset behind them.

    Raises MalformedPacket for a property that *carrier* cannot have or that is cut short, ProtocolViolation (or what
    the table says) for one that is repeated or out of range.
    """
    if at < len(body) and body[at] < 0x80:  # nearly all
        length = body[at]
        at += 1
    else:
        length, at = read_variable(body, at)
    if not length:
        return {}, at
    end = at + length
    if end > len(body):
        raise fields.overrun()
    if length > PROPERTIES_BYTES_MAX:
        raise PacketTooLarge(f"{length} bytes of properties, the limit is {PROPERTIES_BYTES_MAX}")
    rules = _RULES_OF_CARRIER[carrier]
    properties: Properties = {}
    pairs: list[tuple[str, str]] = []
    while at < end:
        # What may be repeated without end goes the short way: 64 KiB have room for 13,000 of them.
        octet = body[at]
        if octet == _USER_PROPERTY:
            pair, at = read_pair(body, at + 1)
            if not pairs:
                properties[Property.USER_PROPERTY] = pairs
            pairs.append(pair)
            if len(pairs) > REPEATS_MAX:
                raise _too_many(Property.USER_PROPERTY)
            continue
        # An identifier is a variable byte integer, but every one that exists fits one byte.
        rule = rules.get(octet)
        if rule is None:
            raise MalformedPacket(f"{carrier.name} has no property 0x{octet:02X}", v5="section 2.2.2.2")
        value, at = rule.kind.read(body, at + 1)
        if isinstance(value, int) and not rule.low <= value <= rule.high:
            raise rule.error(f"{_NAMES[octet]} is {value}", v5=rule.clause)
        if rule.listed and carrier is not Carrier.SUBSCRIBE:
            values: list[int] = properties.setdefault(rule.key, [])  # type: ignore[assignment]
            values.append(value)
            if len(values) > REPEATS_MAX:
                raise _too_many(rule.key)
        elif rule.key in properties:
            raise ProtocolViolation(f"{_NAMES[octet]} occurs twice", v5=rule.clause)
        else:
            properties[rule.key] = [value] if rule.listed else value
    if at != end:
        raise MalformedPacket("a property ends beyond the property length", v5="section 2.2.2.1")
    topic = properties.get(_RESPONSE_TOPIC)
    if topic is not None:
        if not topic:
            raise MalformedPacket("a response topic is empty", v5="MQTT-4.7.3-1")
        if "+" in topic or "#" in topic:  # type: ignore[operator]
            raise MalformedPacket("a response topic has wildcards", v5="MQTT-3.3.2-14")
    if _AUTHENTICATION_DATA in properties and Property.AUTHENTICATION_METHOD not in properties:
        raise ProtocolViolation("authentication data without a method", v5="section 3.1.2.11.10")
    return properties, at


def _too_many(key: Property) -> TooManyItems:
    return TooManyItems(f"{key.name} occurs more than {REPEATS_MAX:,} times", v5="section 4.13.2")


def encode_properties(properties: Properties) -> bytes:
    """*properties* with their length in front, in the order of the dictionary; one zero byte if there are none."""
    if not properties:
        return b"\0"
    encoded = write_properties(properties)
    return fields.write_variable(len(encoded)) + encoded


def write_properties(properties: Properties) -> bytes:
    """The same without their length: those of several may stand one behind the other."""
    out = bytearray()
    for key, value in properties.items():
        rule = _RULE_OF[key]
        for one in value if isinstance(value, list) else (value,):
            out.append(key)
            out += rule.kind.write(one)
    return bytes(out)


def number(properties: Properties, key: Property, default: int = 0) -> int:
    """The value of a numeric property, *default* if it is absent."""
    value = properties.get(key, default)
    assert isinstance(value, int)
    return value


def text_property(properties: Properties, key: Property, default: str = "") -> str:
    """The value of a textual property, *default* if it is absent."""
    value = properties.get(key, default)
    assert isinstance(value, str)
    return value


def user_properties(properties: Properties) -> list[tuple[str, str]]:
    """The user properties in order; empty if there are none. Not a copy."""
    return properties.get(Property.USER_PROPERTY, [])  # type: ignore[return-value]


def has_disallowed_text(properties: Properties) -> bool:
    """Whether there is a code point in the texts of a message that its readers may refuse (`has_disallowed`)."""
    pairs = chain.from_iterable(user_properties(properties))
    texts = text_property(properties, Property.CONTENT_TYPE), text_property(properties, Property.RESPONSE_TOPIC)
    return has_disallowed("".join((*texts, *pairs)))


def subscription_identifiers(properties: Properties) -> list[int]:
    """The subscription identifiers in order; empty if there are none. Not a copy."""
    return properties.get(Property.SUBSCRIPTION_IDENTIFIER, [])  # type: ignore[return-value]
