"""Messages as CBOR arrays, and back. One table says it all: kind, class, and what each field is, in its order.

Events have a form of their own (`flows`). In a record, or cut in parts, an event stands alone: as the first of its
flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cbor2

from edgebroker.dataclasses import dataclass
from edgebroker.interest import Interest
from edgebroker.limits import TOPIC_BYTES_MAX
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    ClusterBits,
    ClusterBitsHeld,
    Crowded,
    Differ,
    Digest,
    Forward,
    Message,
    Recall,
    Recalled,
    Relay,
    Restate,
    Series,
    Told,
    Unadvertise,
    Unreached,
    Withdraw,
)
from edgebroker.topics import TopicFilter

from . import interests
from .broken import FrameBroken, shown
from .cbor import UNSIGNED, CborReader
from .flows import FlowReader, FlowWriter


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is written and read. `read` raises FrameBroken."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def number(bits: int) -> Field:
    """A whole number from 0 that has so many bits at most."""

    def read(value: Any) -> int:
        if type(value) is not int or not 0 <= value < 1 << bits:
            raise FrameBroken(f"no number of {bits} bits: {shown(value)}")
        return value

    return Field(_same, read)


def each_of(field: Field) -> Field:
    """A tuple of such."""

    def write(values: tuple[Any, ...]) -> list[Any]:
        return [field.write(value) for value in values]

    def read(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise FrameBroken(f"no list: {shown(values)}")
        return tuple([field.read(value) for value in values])

    return Field(write, read)


def optional(field: Field) -> Field:
    """None, or such."""
    return Field(
        lambda value: None if value is None else field.write(value),
        lambda value: None if value is None else field.read(value),
    )


def _same(value: Any) -> Any:
    return value


def _read_text(value: Any) -> str:
    if type(value) is not str or len(value) > TOPIC_BYTES_MAX:
        raise FrameBroken(f"no text of at most {TOPIC_BYTES_MAX} characters: {shown(value)}")
    return value


def _read_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise FrameBroken(f"neither true nor false: {shown(value)}")
    return value


def _read_told(value: Any) -> Told:
    if type(value) is not int or value not in (Told.INTERESTS, Told.ADVERTISEMENTS):
        raise FrameBroken(f"nothing that is told has the number {shown(value)}")
    return Told(value)


def _write_topic_filter(topic_filter: TopicFilter) -> str:
    return topic_filter.text


def _read_topic_filter(value: Any) -> TopicFilter:
    return interests.topic_filter_of(_read_text(value))


def _write_interest(interest: Interest) -> list[Any]:
    return interests.written(interest)


def _write_message(message: Message) -> bytes:
    expires_in_ms = message.expires_in_ms if isinstance(message, Forward) else None
    return alone(message, Service.LIVE, expires_in_ms)


def _read_message(value: Any) -> Message:
    if _kind_of(value) == _KINDS[Relay]:
        raise FrameBroken("what is relayed is not relayed again inside")
    return read_alone(value)[0]


def _read_forward(value: Any) -> Message:
    if _kind_of(value) < 0:
        raise FrameBroken("an event is to be here, not another message")
    return read_alone(value)[0]


def _kind_of(value: Any) -> int:
    if type(value) is not bytes:
        raise FrameBroken(f"no message in a byte string: {shown(value)}")
    reader = CborReader(value)
    if not reader.array():
        raise FrameBroken("an empty message")
    return reader.integer()


def _write_advertisement(advertise: Advertise) -> list[Any]:
    return _fields_of(advertise, _FIELDS[Advertise])


def _read_advertisement(value: Any) -> Advertise:
    if type(value) is not list:
        raise FrameBroken(f"no list: {shown(value)}")
    return Advertise(*_read_fields(value, _FIELDS[Advertise]))


_U8, _U16, _U32, _U64 = (number(bits) for bits in (8, 16, 32, 64))
_TEXT: Final = Field(_same, _read_text)
_FLAG: Final = Field(_same, _read_flag)
_TOLD: Final = Field(int, _read_told)
_TOPIC_FILTER: Final = Field(_write_topic_filter, _read_topic_filter)
_INTEREST: Final = Field(_write_interest, interests.read)
_INTERESTS: Final = each_of(_INTEREST)
_NUMBERS: Final = each_of(_U32)
_ADVERTISEMENTS: Final = each_of(Field(_write_advertisement, _read_advertisement))
_FORWARD: Final = Field(_write_message, _read_forward)
_MESSAGE: Final = Field(_write_message, _read_message)

_FIELDS: Final[dict[type[Any], tuple[Field, ...]]] = {
    Announce: (_INTERESTS, _U16),
    Withdraw: (_INTERESTS, _U16),
    Advertise: (_U32, _U32, _TEXT, _TOPIC_FILTER, _U8, _U32, _FLAG),
    Unadvertise: (_NUMBERS,),
    ClusterBits: (_NUMBERS, _U8, _U64, _FLAG, optional(_INTERESTS)),
    ClusterBitsHeld: (_U8, _U64),
    Digest: (_TOLD, _U16, _U32, _U64),
    Differ: (_TOLD, each_of(_U64)),
    Restate: (_TOLD, _U32, _U32, _U16, _INTERESTS, _ADVERTISEMENTS),
    Recall: (_U32, _INTEREST),
    Recalled: (_U32, _FORWARD),
    Unreached: (_U16, _U64, each_of(_U16)),
    Relay: (_U16, _U16, _U8, _MESSAGE, _FLAG),
    Crowded: (_U16, _U64, _U16, _INTERESTS),
}
_KINDS: Final[dict[type[Any], int]] = {message: -9 - index for index, message in enumerate(_FIELDS)}
_MESSAGES: Final = {kind: message for message, kind in _KINDS.items()}
"""-9 Announce, -10 Withdraw, and so on in the order of `_FIELDS`."""


def body(message: Message, service: int) -> bytes:
    """Any message but an event as an item: kind, class, fields."""
    return cbor2.dumps([_KINDS[type(message)], int(service), *_fields_of(message, _FIELDS[type(message)])])


def read_body(kind: int, values: list[Any]) -> tuple[Message, Service]:
    """The message of *kind* with class and fields *values*. Raises FrameBroken."""
    message = _MESSAGES.get(kind)
    if message is None:
        raise FrameBroken(f"there is no message of kind {kind}")
    if not values or type(values[0]) is not int or not Service.CONTROL <= values[0] <= Service.LOGS:
        raise FrameBroken(f"a message of kind {kind} is of no class")
    return message(*_read_fields(values[1:], _FIELDS[message])), Service(values[0])


def alone(message: Message, service: int, expires_in_ms: int | None = None) -> bytes:
    """*message* as an item that needs no other."""
    if isinstance(message, Forward):
        return FlowWriter().write(message, int(service), expires_in_ms)
    return body(message, service)


def read_alone(data: bytes) -> tuple[Message, Service]:
    """What `alone` wrote. Raises FrameBroken."""
    reader = CborReader(data)
    size = reader.array()
    if not size or reader.at == len(data):
        raise FrameBroken("an empty message")
    message: Message
    if data[reader.at] >> 5 == UNSIGNED:
        flows = FlowReader()
        message, service = flows.read(reader, size), Service(flows.service)
        if isinstance(message, Series):
            raise FrameBroken("a series does not stand alone")
    else:
        kind = reader.integer()
        message, service = read_body(kind, [reader.item() for _ in range(size - 1)])
    if reader.at != len(data):
        raise FrameBroken("bytes after the end of a message")
    return message, service


def _fields_of(message: Any, fields: tuple[Field, ...]) -> list[Any]:
    names = message.__dataclass_fields__
    return [field.write(getattr(message, name)) for field, name in zip(fields, names, strict=True)]


def _read_fields(values: list[Any], fields: tuple[Field, ...]) -> list[Any]:
    if len(values) != len(fields):
        raise FrameBroken(f"a message has {len(values)} fields; its kind has {len(fields)}")
    return [field.read(value) for field, value in zip(fields, values, strict=True)]
