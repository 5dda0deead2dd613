"""A text notation of packets: `PUBLISH t/1 qos=1 id=7 "payload"`. Transcripts are written in it.

A packet is its kind, then words: bare ones (topic, payload), then `key=value`. A missing word has its default
(`FIELDS`); properties are written by the short names of `PROPERTIES`, user properties as `user.name=value`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from edgebridge.wire.packets import (
    Auth,
    ConnAck,
    Connect,
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
    Will,
)
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode

_P = Property

KINDS: Final[dict[str, type[Packet]]] = {
    kind.__name__.upper(): kind
    for kind in (
        Connect,
        ConnAck,
        Publish,
        PubAck,
        PubRec,
        PubRel,
        PubComp,
        Subscribe,
        SubAck,
        Unsubscribe,
        UnsubAck,
        PingReq,
        PingResp,
        Disconnect,
        Auth,
    )
}

PROPERTIES: Final[dict[str, Property]] = {
    "format": _P.PAYLOAD_FORMAT_INDICATOR,
    "expiry": _P.MESSAGE_EXPIRY_INTERVAL,
    "type": _P.CONTENT_TYPE,
    "response": _P.RESPONSE_TOPIC,
    "correlation": _P.CORRELATION_DATA,
    "sub": _P.SUBSCRIPTION_IDENTIFIER,
    "session": _P.SESSION_EXPIRY_INTERVAL,
    "assigned": _P.ASSIGNED_CLIENT_IDENTIFIER,
    "server-keep-alive": _P.SERVER_KEEP_ALIVE,
    "method": _P.AUTHENTICATION_METHOD,
    "data": _P.AUTHENTICATION_DATA,
    "problems": _P.REQUEST_PROBLEM_INFORMATION,
    "delay": _P.WILL_DELAY_INTERVAL,
    "responses": _P.REQUEST_RESPONSE_INFORMATION,
    "response-information": _P.RESPONSE_INFORMATION,
    "server": _P.SERVER_REFERENCE,
    "why": _P.REASON_STRING,
    "receive-max": _P.RECEIVE_MAXIMUM,
    "alias-max": _P.TOPIC_ALIAS_MAXIMUM,
    "alias": _P.TOPIC_ALIAS,
    "qos-max": _P.MAXIMUM_QOS,
    "retained": _P.RETAIN_AVAILABLE,
    "bytes-max": _P.MAXIMUM_PACKET_SIZE,
    "wildcards": _P.WILDCARD_SUBSCRIPTION_AVAILABLE,
    "subs": _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
    "shared": _P.SHARED_SUBSCRIPTION_AVAILABLE,
}
_NAME_OF: Final = {key: name for name, key in PROPERTIES.items()}
_OCTETS: Final = {_P.CORRELATION_DATA, _P.AUTHENTICATION_DATA}
_TEXTS: Final = {
    _P.CONTENT_TYPE,
    _P.RESPONSE_TOPIC,
    _P.ASSIGNED_CLIENT_IDENTIFIER,
    _P.AUTHENTICATION_METHOD,
    _P.RESPONSE_INFORMATION,
    _P.SERVER_REFERENCE,
    _P.REASON_STRING,
}
_USER: Final = "user."

_WORD: Final = re.compile(r"""(?:([\w.$-]+)([=~]))?("(?:[^"\\]|\\.)*"|'[^']*'|\S*)(?:\s+|$)""")
_BARE: Final = re.compile(r"""[^\s"'=~]+""")


class NotationInvalid(ValueError):
    """A line cannot be read as a packet."""


@dataclass(frozen=True, slots=True)
class PacketWord:
    """`key=value` (or `key~value`: contains), or a bare value with key ""."""

    key: str
    value: str
    contains: bool = False


def words(text: str) -> list[PacketWord]:
    """Split *text* into words. Values in double quotes are JSON strings, in single quotes they are literal."""
    found: list[PacketWord] = []
    at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None or match.end() == at:
            raise NotationInvalid(f"cannot read {text[at:]!r}")
        found.append(PacketWord(match[1] or "", _unquoted(match[3]), match[2] == "~"))
        at = match.end()
    return found


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        return str(json.loads(value))
    return value[1:-1] if value.startswith("'") else value


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return f"'{value}'" if '"' in value and "'" not in value and value.isprintable() else json.dumps(value)


# -- values ----------------------------------------------------------------------------------------------------


def _octets(text: str) -> bytes:
    """`0x00ff` is two bytes; any other text is its UTF-8."""
    return bytes.fromhex(text[2:]) if re.fullmatch("0x([0-9a-f]{2})+", text) else text.encode()


def _text_of_octets(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return "0x" + octets.hex()


def _reason(text: str) -> ReasonCode:
    return ReasonCode(int(text, 0))


def _text_of_reason(reason: int) -> str:
    return f"0x{reason:02X}" if reason >= 0x10 else str(int(reason))


def _numbers(text: str) -> list[int]:
    return [int(one, 0) for one in text.split(",")] if text else []


def _text_of_numbers(numbers: list[int]) -> str:
    return ",".join(map(_text_of_reason, numbers))


@dataclass(frozen=True, slots=True)
class PacketField:
    """The notation of one attribute of a packet; key "" is a bare word."""

    key: str
    attribute: str
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str


def _flag(text: str) -> bool:
    return text == "1"


def _text_of_flag(flag: bool) -> str:
    return str(int(flag))


_ID: Final = PacketField("id", "packet_id", int)
_REASON: Final = PacketField("reason", "reason", _reason, _text_of_reason)
_ACK: Final = (_ID, _REASON)
_QOS: Final = PacketField("qos", "qos", int)
_RETAIN: Final = PacketField("retain", "retain", _flag, _text_of_flag)

FIELDS: Final[dict[type[Any], tuple[PacketField, ...]]] = {
    Connect: (
        PacketField("id", "client_id", str, _quoted),
        PacketField("clean", "clean_start", _flag, _text_of_flag),
        PacketField("keep-alive", "keep_alive_s", int),
        PacketField("username", "username", str, _quoted),
        PacketField("password", "password", _octets, lambda value: _quoted(_text_of_octets(value))),
    ),
    Will: (
        PacketField("will", "topic", str, _quoted),
        PacketField("will-payload", "payload", _octets, lambda value: _quoted(_text_of_octets(value))),
        PacketField("will-qos", "qos", int),
        PacketField("will-retain", "retain", _flag, _text_of_flag),
    ),
    ConnAck: (PacketField("present", "session_present", _flag, _text_of_flag), _REASON),
    Publish: (
        PacketField("", "topic", str, _quoted),
        _ID,
        _QOS,
        _RETAIN,
        PacketField("dup", "dup", _flag, _text_of_flag),
        PacketField("", "payload", _octets, lambda value: json.dumps(_text_of_octets(value))),
    ),
    PubAck: _ACK,
    PubRec: _ACK,
    PubRel: _ACK,
    PubComp: _ACK,
    Subscribe: (_ID,),
    SubscriptionOption: (
        PacketField("", "topic_filter", str, _quoted),
        _QOS,
        PacketField("no-local", "no_local", _flag, _text_of_flag),
        PacketField("as-published", "retain_as_published", _flag, _text_of_flag),
        PacketField("handling", "retain_handling", int),
    ),
    SubAck: (_ID, PacketField("granted", "reasons", _numbers, _text_of_numbers)),
    Unsubscribe: (_ID,),
    UnsubAck: (_ID, PacketField("reasons", "reasons", _numbers, _text_of_numbers)),
    PingReq: (),
    PingResp: (),
    Disconnect: (_REASON,),
    Auth: (_REASON,),
}
"""The fields of each packet, in the order of writing."""


# -- reading ---------------------------------------------------------------------------------------------------


def read_packet(text: str) -> Packet:
    """Return the packet of *text*. A missing packet identifier is 0. Raises NotationInvalid."""
    name, _, rest = text.strip().partition(" ")
    kind = KINDS.get(name)
    if kind is None:
        raise NotationInvalid(f"there is no packet {name!r}; packets are {', '.join(KINDS)}")
    try:
        return _packet(kind, words(rest.strip()))
    except (ValueError, TypeError) as error:
        raise NotationInvalid(f"{text!r}: {error}") from error


def _packet(kind: type[Packet], found: list[PacketWord]) -> Packet:
    values: dict[str, Any]
    if kind is Subscribe:
        options: list[SubscriptionOption] = []
        rest: list[PacketWord] = []
        keys = {one.key for one in FIELDS[SubscriptionOption]}
        for word in found:
            if word.key == "":
                options.append(SubscriptionOption(word.value))
            elif word.key in keys:
                one = _field(SubscriptionOption, word.key)
                setattr(options[-1], one.attribute, one.read(word.value))
            else:
                rest.append(word)
        values = _values(kind, rest) | {"subscriptions": options}
    elif kind is Unsubscribe:
        values = _values(kind, [word for word in found if word.key])
        values["topic_filters"] = [word.value for word in found if not word.key]
    elif kind is Connect:
        will = [word for word in found if word.key.partition("-")[0] == "will"]
        values = _values(kind, [word for word in found if word not in will])
        if will:
            values["will"] = Will(**_values(Will, will, "will-"))
    else:
        values = _values(kind, found)
    return kind(**values)


def _values(kind: type[Any], found: list[PacketWord], prefix: str = "") -> dict[str, Any]:
    """Return the arguments of a *kind*; properties that begin with *prefix* are its properties."""
    values = {one.attribute: _EMPTY[one.attribute] for one in FIELDS[kind] if one.attribute in _EMPTY}
    bare = [one for one in FIELDS[kind] if not one.key]
    properties: dict[Property, Any] = {}
    for word in found:
        name = word.key.removeprefix(prefix)
        if not word.key and bare:
            one = bare.pop(0)
            values[one.attribute] = one.read(word.value)
        elif any(word.key == one.key for one in FIELDS[kind]):
            one = _field(kind, word.key)
            values[one.attribute] = one.read(word.value)
        elif name.startswith(_USER):
            properties.setdefault(_P.USER_PROPERTY, []).append((name.removeprefix(_USER), word.value))
        elif name in PROPERTIES:
            properties[PROPERTIES[name]] = _property(PROPERTIES[name], word.value)
        else:
            raise NotationInvalid(f"{kind.__name__.upper()} has no {word.key or word.value!r}")
    return values | {"properties": properties} if properties else values


# Arguments that the constructor requires and a line may omit.
_EMPTY: Final[dict[str, Any]] = {"packet_id": 0, "client_id": "", "reasons": [], "topic": "", "payload": b""}


def _field(kind: type[Any], key: str) -> PacketField:
    return next(one for one in FIELDS[kind] if one.key == key)


def _property(key: Property, text: str) -> int | str | bytes | list[int]:
    if key is _P.SUBSCRIPTION_IDENTIFIER:
        return _numbers(text)
    if key in _OCTETS:
        return _octets(text)
    return text if key in _TEXTS else int(text, 0)


# -- writing ---------------------------------------------------------------------------------------------------


def show_packet(packet: Packet) -> str:
    """Return *packet* as a line of a transcript: all attributes that differ from their defaults."""
    shown = [type(packet).__name__.upper(), *_shown(packet)]
    if isinstance(packet, Subscribe):
        for option in packet.subscriptions:
            shown += _shown(option)
    elif isinstance(packet, Unsubscribe):
        shown += map(_quoted, packet.topic_filters)
    elif isinstance(packet, Connect) and packet.will is not None:
        shown += _shown(packet.will, "will-")
    return " ".join(shown)


def _shown(part: Any, prefix: str = "") -> list[str]:
    shown: list[str] = []
    payload: list[str] = []
    for one in FIELDS[type(part)]:
        value = getattr(part, one.attribute)
        if value == default_of(type(part), one.attribute):
            continue
        text = one.show(value)
        shown.append(f"{one.key}={text}" if one.key else text)
        if one.attribute == "payload" and not one.key:
            payload.append(shown.pop())
    for key, value in getattr(part, "properties", {}).items():
        if key is _P.USER_PROPERTY:
            shown += [f"{prefix}{_USER}{name}={_quoted(text)}" for name, text in value]
        else:
            shown.append(f"{prefix}{_NAME_OF[key]}={_shown_property(value)}")
    return shown + payload


def _shown_property(value: int | str | bytes | list[int]) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return _quoted(_text_of_octets(value) if isinstance(value, bytes) else str(value))


def default_of(kind: type[Any], attribute: str) -> Any:
    """Return the value of *attribute* of a *kind* that a line does not contain."""
    found = next(one for one in fields(kind) if one.name == attribute)
    return _EMPTY.get(attribute) if found.default is MISSING else found.default
