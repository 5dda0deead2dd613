"""Messages as CBOR arrays, and back. One table says it all: kind, class, and what each field is, in its order.

Events have a form of their own (`flows`). In a record, or cut in parts, an event stands alone: as the first of its
flow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, TypeVar

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
from .cbor import NULL, UNSIGNED, CborReader
from .flows import FlowReader, FlowWriter

_T = TypeVar("_T")
Steps: TypeAlias = Generator[int, None, _T]
"""Something that is read in steps. Each yields for how many items of a turn it counts; FrameBroken is raised by any."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is written and read."""

    write: Callable[[Any], Any]
    steps: Callable[[CborReader], Steps[Any]]


def single(read: Callable[[Any], Any], write: Callable[[Any], Any] = _same) -> Field:
    """A field that holds no list; *read* is given the value in its item. Raises FrameBroken."""

    def steps(reader: CborReader) -> Steps[Any]:
        yield from ()
        return read(reader.single())

    return Field(write, steps)


def listed(read: Callable[[Any], Any], write: Callable[[Any], Any]) -> Field:
    """A field that is a list of few values, or holds such; *read* is given it. Raises FrameBroken."""

    def steps(reader: CborReader) -> Steps[Any]:
        value = read(reader.item())
        yield 1 + (reader.items >> 2)
        return value

    return Field(write, steps)


def number(bits: int) -> Field:
    """A whole number from 0 that has so many bits at most."""

    def read(value: Any) -> int:
        if type(value) is not int or not 0 <= value < 1 << bits:
            raise FrameBroken(f"no number of {bits} bits: {shown(value)}")
        return value

    return single(read)


def each_of(field: Field) -> Field:
    """A tuple of such."""

    def write(values: tuple[Any, ...]) -> list[Any]:
        return [field.write(value) for value in values]

    def steps(reader: CborReader) -> Steps[tuple[Any, ...]]:
        values = []
        for _ in range(reader.array()):
            values.append((yield from field.steps(reader)))
            yield 1
        return tuple(values)

    return Field(write, steps)


def optional(field: Field) -> Field:
    """None, or such."""

    def steps(reader: CborReader) -> Steps[Any]:
        if reader.data[reader.at : reader.at + 1] == NULL:
            reader.at += 1
            return None
        return (yield from field.steps(reader))

    return Field(lambda value: None if value is None else field.write(value), steps)


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


def _message_steps(reader: CborReader) -> Steps[Message]:
    octets = reader.single()
    if _kind_of(octets) == _KINDS[Relay]:
        raise FrameBroken("what is relayed is not relayed again inside")
    return (yield from steps_alone(octets))[0]


def _forward_steps(reader: CborReader) -> Steps[Message]:
    octets = reader.single()
    if _kind_of(octets) < 0:
        raise FrameBroken("an event is to be here, not another message")
    return (yield from steps_alone(octets))[0]


def _kind_of(value: Any) -> int:
    if type(value) is not bytes:
        raise FrameBroken(f"no message in a byte string: {shown(value)}")
    reader = CborReader(value)
    if not reader.array():
        raise FrameBroken("an empty message")
    return reader.integer()


def _write_advertisement(advertise: Advertise) -> list[Any]:
    return _fields_of(advertise, _FIELDS[Advertise])


def _advertisement_steps(reader: CborReader) -> Steps[Advertise]:
    return Advertise(*(yield from _fields_steps(reader, reader.array(), _FIELDS[Advertise])))


_U8, _U16, _U32, _U64 = (number(bits) for bits in (8, 16, 32, 64))
_TEXT: Final = single(_read_text)
_FLAG: Final = single(_read_flag)
_TOLD: Final = single(_read_told, int)
_TOPIC_FILTER: Final = single(_read_topic_filter, _write_topic_filter)
_INTEREST: Final = listed(interests.read, _write_interest)
_INTERESTS: Final = each_of(_INTEREST)
_NUMBERS: Final = each_of(_U32)
_ADVERTISEMENTS: Final = each_of(Field(_write_advertisement, _advertisement_steps))
_FORWARD: Final = Field(_write_message, _forward_steps)
_MESSAGE: Final = Field(_write_message, _message_steps)

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


def steps_of_body(reader: CborReader, kind: int, size: int) -> Steps[tuple[Message, Service]]:
    """The message of *kind* in *reader*, behind the kind: class and fields, *size* in all."""
    message = _MESSAGES.get(kind)
    if message is None:
        raise FrameBroken(f"there is no message of kind {kind}")
    service = reader.single() if size else None
    if type(service) is not int or not Service.CONTROL <= service <= Service.LOGS:
        raise FrameBroken(f"a message of kind {kind} is of no class")
    values = yield from _fields_steps(reader, size - 1, _FIELDS[message])
    return message(*values), Service(service)


def alone(message: Message, service: int, expires_in_ms: int | None = None) -> bytes:
    """*message* as an item that needs no other."""
    if isinstance(message, Forward):
        return FlowWriter().write(message, int(service), expires_in_ms)
    return body(message, service)


def read_alone(data: bytes) -> tuple[Message, Service]:
    """What `alone` wrote. Raises FrameBroken."""
    steps = steps_alone(data)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            whole: tuple[Message, Service] = end.value
            return whole


def steps_alone(data: bytes) -> Steps[tuple[Message, Service]]:
    """The same in steps."""
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
        message, service = yield from steps_of_body(reader, kind, size - 1)
    if reader.at != len(data):
        raise FrameBroken("bytes after the end of a message")
    return message, service


def _fields_of(message: Any, fields: tuple[Field, ...]) -> list[Any]:
    names = message.__dataclass_fields__
    return [field.write(getattr(message, name)) for field, name in zip(fields, names, strict=True)]


def _fields_steps(reader: CborReader, size: int, fields: tuple[Field, ...]) -> Steps[list[Any]]:
    if size != len(fields):
        raise FrameBroken(f"a message has {size} fields; its kind has {len(fields)}")
    values = []
    for field in fields:
        values.append((yield from field.steps(reader)))
    return values
