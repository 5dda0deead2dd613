"""The messages between the members of a group, as values and as CBOR [LBDD 2.5].

A message is a CBOR array: its kind, and its fields in the order of its class. What is not exactly so is refused. Views
carry no digests: each member computes them from the node ids, and so nobody can be told wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from edgebroker.cbor import CborReader, CborRules, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.dissemination.group_view import (
    CAPACITY_MAX,
    GROUP_MEMBERS_MAX,
    GroupView,
    ViewMember,
    group_view,
    view_member,
)
from edgebroker.dissemination.slice_hashes import HASH_BYTES
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import Duration

SLICE_BYTES: Final = 65_536
"""The usual size of a slice, as published."""
SLICE_BYTES_MAX: Final = 1 << 20
SLICES_MAX: Final = 1 << 24
"""Slices of one stream: 1 TiB in slices of the usual size."""
NAME_BYTES_MAX: Final = 1_024
"""Of a node id, a group, an address or a segment. A group may be a canonical filter."""
META_BYTES_MAX: Final = 65_536
PROOF_BYTES_MAX: Final = 24 * HASH_BYTES
GROUPS_MAX: Final = 1_024
"""Groups that one heartbeat names."""


class MessageBroken(EdgebrokerError):
    """Bytes are no message of a group; the text says why."""


# -- membership --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """HEARTBEAT: a member lives, and has these views."""

    node: str
    views: tuple[tuple[str, int], ...]
    """Group and view id."""


@dataclass(frozen=True, slots=True)
class GroupJoin:
    """JOIN: a node wants to be in a group."""

    group: str
    member: ViewMember


@dataclass(frozen=True, slots=True)
class GroupLeave:
    """LEAVE: a node goes, and finishes what it is sending."""

    group: str
    node: str


@dataclass(frozen=True, slots=True)
class ViewUpdate:
    """VIEW: who is in a group."""

    view: GroupView


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """Asks for a VIEW: a stream names one that the sender does not know."""

    group: str
    view_id: int


# -- streams -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamStart:
    """STREAM_START: announces a stream, from parent to children. A stream of one slice is all in it."""

    stream: int
    source: str
    group: str
    view_id: int
    size: int
    """Bytes of all slices."""
    slice_size: int
    content_hash: bytes
    """The root of `SliceHashes`."""
    meta: bytes = b""
    """Whatever the receiver's user needs to know."""
    signature: bytes = b""
    """The broker's, over `signed_fields`; this package does not look into it."""
    content: bytes = b""
    """The only slice, or empty."""

    @property
    def count(self) -> int:
        """Return the number of slices."""
        return max(1, -(-self.size // self.slice_size))

    def size_of(self, number: int) -> int:
        """Return the bytes of slice *number*: the last one may be shorter."""
        return min(self.slice_size, self.size - number * self.slice_size)


@dataclass(frozen=True, slots=True)
class StreamSlice:
    """SLICE: a part of a stream, with its proof (`slice_hashes`)."""

    stream: int
    number: int
    view_id: int
    proof: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamResume:
    """RESUME: asks a new parent for a stream from its first missing slice on, and allows it one window."""

    stream: int
    first: int


@dataclass(frozen=True, slots=True)
class SliceRepair:
    """REPAIR: asks for single slices that are missing, from `first` to before `end`."""

    stream: int
    first: int
    end: int
    relay: str = ""
    """Who sent a wrong slice, told to the source; or empty."""


@dataclass(frozen=True, slots=True)
class StreamCredit:
    """Allows the parent to send slices up to before `limit`. It only grows. [LBDD] leaves open how the window moves."""

    stream: int
    limit: int


@dataclass(frozen=True, slots=True)
class DoneReport:
    """A member has a whole stream, checked."""

    node: str
    octets: int
    """Bytes of the stream."""
    time: Duration
    """From STREAM_START to its last slice."""


@dataclass(frozen=True, slots=True)
class StreamDone:
    """DONE: reports on their way to the source, those of several members together."""

    stream: int
    reports: tuple[DoneReport, ...]


GroupMessage: TypeAlias = (
    GroupHeartbeat
    | GroupJoin
    | GroupLeave
    | ViewUpdate
    | ViewQuery
    | StreamStart
    | StreamSlice
    | StreamResume
    | SliceRepair
    | StreamCredit
    | StreamDone
)


@dataclass(frozen=True, slots=True)
class SendToMember:
    """An effect: send a message to a node."""

    node: str
    message: GroupMessage


# -- CBOR --------------------------------------------------------------------------------------------------------------

_Check = Callable[[Any], Any]
_DOUBLE_WORD: Final = (1 << 64) - 1

_RULES: Final = CborRules(
    depth_max=4,
    values_max=8 * GROUP_MEMBERS_MAX,
    has_indefinite=False,
    text_bytes_max=NAME_BYTES_MAX,
    octets_max=SLICE_BYTES_MAX + META_BYTES_MAX + PROOF_BYTES_MAX + 4_096,
    error=MessageBroken,
)


def _number(low: int, high: int) -> _Check:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise MessageBroken(f"no number from {low} to {high}")
        return value

    return check


def _octets(longest: int, shortest: int = 0) -> _Check:
    def check(value: Any) -> bytes:
        if type(value) is not bytes or not shortest <= len(value) <= longest:
            raise MessageBroken(f"no {shortest} to {longest} bytes")
        return value

    return check


def _text(shortest: int) -> _Check:
    def check(value: Any) -> str:
        if type(value) is not str or not shortest <= len(value.encode()) <= NAME_BYTES_MAX:
            raise MessageBroken(f"no text of {shortest} to {NAME_BYTES_MAX:,} bytes")
        return value

    return check


def _record(make: Callable[..., Any], *checks: _Check) -> _Check:
    def check(value: Any) -> Any:
        if type(value) is not list or len(value) != len(checks):
            raise MessageBroken(f"no array of {len(checks)} fields")
        return make(*[each(field) for each, field in zip(checks, value, strict=True)])

    return check


def _array(each: _Check, longest: int) -> _Check:
    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > longest:
            raise MessageBroken(f"no array of at most {longest} items")
        return tuple([each(item) for item in value])

    return check


def _read_view(group: str, number: int, fan_out: int, members: tuple[ViewMember, ...]) -> ViewUpdate:
    try:
        return ViewUpdate(group_view(group, number, members, fan_out))
    except ValueError as error:
        raise MessageBroken(f"{error}") from None


def _pair(first: str, second: int) -> tuple[str, int]:
    return first, second


def _read_join(group: str, *fields: Any) -> GroupJoin:
    return GroupJoin(group, view_member(*fields))


_ID: Final = _number(0, _DOUBLE_WORD)
_SLICE: Final = _number(0, SLICES_MAX)
_NODE: Final = _text(1)
_NAME: Final = _text(0)
_CAPACITY: Final = _number(0, CAPACITY_MAX)
_MEMBER: Final = (_NODE, _NAME, _CAPACITY, _NAME)

_KINDS: Final[dict[int, _Check]] = {
    1: _record(GroupHeartbeat, _NODE, _array(_record(_pair, _NODE, _ID), GROUPS_MAX)),
    2: _record(_read_join, _NODE, *_MEMBER),
    3: _record(GroupLeave, _NODE, _NODE),
    4: _record(
        _read_view,
        _NODE,
        _number(1, _DOUBLE_WORD),
        _number(0, GROUP_MEMBERS_MAX),
        _array(_record(view_member, *_MEMBER), GROUP_MEMBERS_MAX),
    ),
    5: _record(ViewQuery, _NODE, _ID),
    6: _record(
        StreamStart,
        *(_ID, _NODE, _NODE, _ID),
        *(_number(0, _DOUBLE_WORD), _number(1, SLICE_BYTES_MAX), _octets(HASH_BYTES, HASH_BYTES)),
        *(_octets(META_BYTES_MAX), _octets(4_096), _octets(SLICE_BYTES_MAX)),
    ),
    7: _record(StreamSlice, _ID, _SLICE, _ID, _octets(PROOF_BYTES_MAX), _octets(SLICE_BYTES_MAX)),
    8: _record(StreamResume, _ID, _SLICE),
    9: _record(SliceRepair, _ID, _SLICE, _SLICE, _NAME),
    10: _record(StreamCredit, _ID, _SLICE),
    11: _record(StreamDone, _ID, _array(_record(DoneReport, _NODE, _number(0, _DOUBLE_WORD), _ID), GROUP_MEMBERS_MAX)),
}
"""The kind of a message -> what reads its fields."""


def read_message(data: bytes) -> GroupMessage:
    """Return the message in *data*. Raises MessageBroken."""
    match CborReader(data, _RULES).whole():
        case [int(kind), *fields] if kind in _KINDS and type(kind) is int:
            message: GroupMessage = _KINDS[kind](fields)
        case _:
            raise MessageBroken("no message of a known kind")
    if isinstance(message, StreamStart):
        _check_start(message)
    elif isinstance(message, SliceRepair) and message.end <= message.first:
        raise MessageBroken("a REPAIR of no slice")
    return message


def _check_start(start: StreamStart) -> None:
    if start.count > SLICES_MAX:
        raise MessageBroken(f"a stream of more than {SLICES_MAX:,} slices")
    if start.content and (start.count > 1 or len(start.content) != start.size):
        raise MessageBroken("a STREAM_START with another content than its only slice")


def encode_message(message: GroupMessage) -> bytes:
    """Return *message* as CBOR."""
    return encode_cbor(_as_list(message))


def signed_fields(start: StreamStart) -> bytes:
    """Return what a broker signs of a stream: all that says what will arrive, and where."""
    return encode_cbor(_as_list(start)[1:9])


def _member_fields(member: ViewMember) -> list[Any]:
    return [member.node, member.address, member.capacity, member.segment]


def _as_list(message: GroupMessage) -> list[Any]:
    match message:
        case GroupHeartbeat(node, views):
            return [1, node, views]
        case GroupJoin(group, member):
            return [2, group, *_member_fields(member)]
        case GroupLeave(group, node):
            return [3, group, node]
        case ViewUpdate(view):
            return [4, view.group, view.number, view.fan_out, [_member_fields(member) for member in view.members]]
        case ViewQuery(group, view_id):
            return [5, group, view_id]
        case StreamStart():
            fixed = [6, message.stream, message.source, message.group, message.view_id, message.size]
            hashed = [message.slice_size, message.content_hash, message.meta]
            return [*fixed, *hashed, message.signature, message.content]
        case StreamSlice(stream, number, view_id, proof, content):
            return [7, stream, number, view_id, proof, content]
        case StreamResume(stream, first):
            return [8, stream, first]
        case SliceRepair(stream, first, end, relay):
            return [9, stream, first, end, relay]
        case StreamCredit(stream, limit):
            return [10, stream, limit]
        case StreamDone(stream, reports):
            return [11, stream, [[report.node, report.octets, report.time] for report in reports]]
