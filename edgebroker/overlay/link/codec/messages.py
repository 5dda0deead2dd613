"""Messages between gateways as CBOR arrays, and back. One table gives the kind, the class and the fields of each
message.

Events have an encoding of their own (`events`). In a journal record, or cut into parts, an event is encoded as the
first one of its flow, without reference to others.

    interest    [topic filter, [test, ...]]                      tests sorted by attribute, each attribute once
    test        [attribute, kind] or [attribute, kind, [interval, ...], [pattern, ...]]
    interval    [low, high, 1 if low is in it + 2 if high is]    null: no bound; sorted, none touches the next
    pattern     [is negated, part, ...]                          a text; 0 any run, 1 any one character
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from itertools import pairwise
from sys import intern
from typing import Any, Final, TypeAlias, TypeVar

from edgebroker.cbor import NULL, UNSIGNED, CborReader, CborRules, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.errors import TopicInvalid
from edgebroker.instants import Duration
from edgebroker.interest import Interest
from edgebroker.limits import (
    FILTER_BYTES_MAX,
    FILTER_TERMS_MAX,
    GATEWAY_NUMBER_MAX,
    PACKET_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from edgebroker.overlay.link.codec import messages
from edgebroker.overlay.link.codec.errors import FrameBroken, shown
from edgebroker.overlay.link.codec.events import FlowReader, FlowWriter
from edgebroker.overlay.messages import (
    RETAINED_PARTS_MAX,
    STATUS_REPORT_BYTES_MAX,
    Advertise,
    Announce,
    Backpressure,
    ClusterBits,
    ClusterBitsAck,
    ConditionalRetainedQuery,
    Differ,
    Digest,
    EventSeries,
    Forward,
    GroupCount,
    GroupMembers,
    InterestFlush,
    InterestFlushed,
    LinkStateUpdate,
    Message,
    PendingWill,
    PendingWills,
    Relay,
    Restate,
    RetainedDigest,
    RetainedQuery,
    RetainedReply,
    RetainedUnmodified,
    SendAgain,
    StateKind,
    StatusQuery,
    StatusReply,
    Unadvertise,
    Withdraw,
)
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import ANY_ONE, ANY_RUN, Bound, ElementaryTest, Interval, Pattern, ValueType, kind_of
from edgebroker.topics import TopicFilter
from edgebroker.trace_records import (
    OFFSET_MAX,
    QueueDelays,
    TraceInformationAnswer,
    TraceInformationRequest,
    TraceRecord,
)

STORE_BYTES_MAX: Final = 16
"""The name of a journal has 8."""
VALUES_MAX: Final = 16_384
"""Values inside one item. The longest interest that a filter makes has a third of that, the changed fields of an event
at most 6,200. So many take 3 ms to read; as many as 64 KiB hold took 17.
"""


def link_cbor(values_max: int) -> CborRules:
    """The part of CBOR that gateways use between each other, with at most *values_max* values in one item: no tags but
    bignums, no indefinite lengths, no simple values but false, true and null.
    """
    return CborRules(
        depth_max=12,  # a list of interests, each with tests, each with intervals, is seven deep
        values_max=values_max,
        keys=(int, str),
        is_unique=True,
        map_max=64,  # no map has as many keys; so few cannot be chosen to collide at a price
        has_indefinite=False,
        error=FrameBroken,
    )


LINK_CBOR: Final = link_cbor(VALUES_MAX)
_LOW_CLOSED_BIT: Final = 1
_HIGH_CLOSED_BIT: Final = 2
PARTS_MAX: Final = FILTER_BYTES_MAX
"""Intervals of a test, and parts of a pattern: each takes at least one character of the filter."""
SHARED_MAX: Final = 512
"""Topic filters, and tests for a single value, of which equal ones are one object: thousands of interests have the same
few.
"""
DELAY_MAX: Final[Duration] = (1 << 32) - 1
"""The longest delay in a record, 71 minutes."""
_RANGED: Final = (ValueType.NUMBER, ValueType.STRING, ValueType.BOOLEAN)


def interest_values(interest: Interest) -> list[Any]:
    """Return *interest* as plain values."""
    return [interest.topic_filter.text, [_test_values(test) for test in interest.predicate]]


def read_interest(value: Any) -> Interest:
    """Decode an interest. Raises FrameBroken."""
    if not _is_list(value, 2) or type(value[0]) is not str or type(value[1]) is not list:
        raise FrameBroken("an interest is a topic filter and a list of tests")
    if not value[1]:
        return Interest(topic_filter_of(value[0]), ())
    tests = tuple(map(_read_test, value[1]))
    names = [test.attribute for test in tests]
    if names != sorted(set(names)) or len(tests) > FILTER_TERMS_MAX:
        raise FrameBroken(f"the tests of an interest are sorted by attribute, each once, {FILTER_TERMS_MAX} at most")
    return Interest(topic_filter_of(value[0]), tests)


def topic_filter_of(text: str) -> TopicFilter:
    """Parse the topic filter *text*. Raises FrameBroken."""
    try:
        return _topic_filter(text)
    except TopicInvalid as error:
        raise FrameBroken(str(error)) from None


@lru_cache(maxsize=SHARED_MAX)
def _topic_filter(text: str) -> TopicFilter:
    parsed = TopicFilter.parse(text)
    return TopicFilter(text, tuple(map(intern, parsed.levels)))


@lru_cache(maxsize=SHARED_MAX, typed=True)
def _single_value(attribute: str, kind: ValueType, value: Bound) -> ElementaryTest:
    """Return the test for one value. 1 and 1.0, which are equal, are kept apart: their fingerprints differ."""
    return ElementaryTest(attribute, kind, (Interval(value, True, value, True),))


def _test_values(test: ElementaryTest) -> list[Any]:
    if test.kind not in _RANGED:
        return [test.attribute, int(test.kind)]
    intervals = [
        [each.low, each.high, each.low_closed * _LOW_CLOSED_BIT + each.high_closed * _HIGH_CLOSED_BIT]
        for each in test.intervals
    ]
    return [
        test.attribute,
        int(test.kind),
        intervals,
        [[pattern.negated, *pattern.parts] for pattern in test.patterns],
    ]


def _read_test(value: Any) -> ElementaryTest:
    if type(value) is not list or len(value) not in (2, 4) or type(value[0]) is not str:
        raise FrameBroken("a test is an attribute, a kind, and perhaps intervals and patterns")
    attribute = intern(value[0])
    if type(value[1]) is not int or not ValueType.NULL <= value[1] <= ValueType.BOOLEAN:
        raise FrameBroken(f"a test of {attribute!r} has no known kind")
    kind = ValueType(value[1])
    if (kind in _RANGED) != (len(value) == 4):
        raise FrameBroken(f"a test of {attribute!r} has intervals without need, or lacks them")
    if len(value) == 2:
        return ElementaryTest(attribute, kind)
    if type(value[2]) is not list or type(value[3]) is not list or not value[2]:
        raise FrameBroken(f"a test of {attribute!r} has no list of intervals, or none of patterns")
    if value[3] and kind is not ValueType.STRING:
        raise FrameBroken(f"a test of {attribute!r} has patterns, and is not of strings")
    if len(value[2]) > PARTS_MAX:
        raise FrameBroken(f"a test of {attribute!r} has {len(value[2])} intervals; the limit is {PARTS_MAX}")
    intervals = tuple(_read_interval(each, kind) for each in value[2])
    for before, after in pairwise(intervals):
        if before.high is None or after.low is None or not _is_apart(before, after):
            raise FrameBroken(f"the intervals of {attribute!r} are not sorted and apart")
    low, high = intervals[0].low, intervals[-1].high
    if low and low == high and type(low) is type(high) and not value[3]:  # not 0: -0.0 is equal, and of its type
        return _single_value(attribute, kind, low)
    return ElementaryTest(attribute, kind, intervals, tuple(map(_read_pattern, value[3])))


def _is_apart(before: Interval, after: Interval) -> bool:
    high, low = before.high, after.low
    if high == low:
        return not before.high_closed and not after.low_closed
    return high < low  # type: ignore[operator]


def _read_interval(value: Any, kind: ValueType) -> Interval:
    if not _is_list(value, 3) or type(value[2]) is not int or not 0 <= value[2] <= 3:
        raise FrameBroken("an interval is two bounds and which of them are in it")
    low, high = _read_bound(value[0], kind), _read_bound(value[1], kind)
    low_closed, high_closed = bool(value[2] & _LOW_CLOSED_BIT), bool(value[2] & _HIGH_CLOSED_BIT)
    if (low is None and low_closed) or (high is None and high_closed):
        raise FrameBroken("what has no bound does not hold it")
    if (
        low is not None and high is not None and (low > high or (low == high and not (low_closed and high_closed)))  # type: ignore[operator]
    ):
        raise FrameBroken("an interval is empty")
    return Interval(low, low_closed, high, high_closed)


def _read_bound(value: Any, kind: ValueType) -> Bound | None:
    if value is None:
        return None
    if type(value) not in (bool, int, float, str) or kind_of(value) is not kind or value != value:
        raise FrameBroken(f"a bound is not of its test's kind: {shown(value)}")
    bound: Bound = value
    return bound


def _read_pattern(value: Any) -> Pattern:
    if type(value) is not list or len(value) < 2 or type(value[0]) is not bool:
        raise FrameBroken("a pattern says whether it is negated, then its parts")
    if len(value) > 1 + PARTS_MAX:
        raise FrameBroken(f"a pattern of {len(value) - 1} parts; the limit is {PARTS_MAX}")
    for part in value[1:]:
        if type(part) is not str and not (type(part) is int and part in (ANY_RUN, ANY_ONE)):
            raise FrameBroken("a part of a pattern is a text, 0 or 1")
    return Pattern(tuple(value[1:]), value[0])


def _is_list(value: Any, size: int) -> bool:
    return type(value) is list and len(value) == size


_T = TypeVar("_T")
Steps: TypeAlias = Generator[int, None, _T]
"""A decoder that works in steps. Each step yields for how many items of a turn it counts, and may raise FrameBroken."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """The encoding of one field."""

    write: Callable[[Any], Any]
    steps: Callable[[CborReader], Steps[Any]]


def single(read: Callable[[Any], Any], write: Callable[[Any], Any] = _same) -> FieldCodec:
    """Return the codec of a field without lists; *read* gets its decoded value. Raises FrameBroken."""

    def steps(reader: CborReader) -> Steps[Any]:
        yield from ()
        return read(reader.single())

    return FieldCodec(write, steps)


def listed(read: Callable[[Any], Any], write: Callable[[Any], Any]) -> FieldCodec:
    """Return the codec of a field that is a short list, or contains such; *read* gets its decoded value. Raises
    FrameBroken.
    """

    def steps(reader: CborReader) -> Steps[Any]:
        value = read(reader.item())
        yield 1 + (1 + reader.values >> 2)
        return value

    return FieldCodec(write, steps)


def number(bits: int) -> FieldCodec:
    """Return the codec of an unsigned whole number of at most *bits* bits."""

    def read(value: Any) -> int:
        if type(value) is not int or not 0 <= value < 1 << bits:
            raise FrameBroken(f"no number of {bits} bits: {shown(value)}")
        return value

    return single(read)


def octets(most: int) -> FieldCodec:
    """Return the codec of a byte string of at most *most* bytes."""

    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) > most:
            raise FrameBroken(f"no byte string of at most {most}: {shown(value)}")
        return value

    return single(read)


def each_of(field: FieldCodec) -> FieldCodec:
    """Return the codec of a tuple of *field*."""

    def write(values: tuple[Any, ...]) -> list[Any]:
        return [field.write(value) for value in values]

    def steps(reader: CborReader) -> Steps[tuple[Any, ...]]:
        values = []
        for _ in range(reader.array()):
            values.append((yield from field.steps(reader)))
            yield 1
        return tuple(values)

    return FieldCodec(write, steps)


def optional(field: FieldCodec) -> FieldCodec:
    """Return the codec of *field* or None."""

    def steps(reader: CborReader) -> Steps[Any]:
        if reader.data[reader.at : reader.at + 1] == NULL:
            reader.at += 1
            return None
        return (yield from field.steps(reader))

    return FieldCodec(lambda value: None if value is None else field.write(value), steps)


def _read_text(value: Any) -> str:
    if type(value) is not str or len(value) > TOPIC_BYTES_MAX:
        raise FrameBroken(f"no text of at most {TOPIC_BYTES_MAX} characters: {shown(value)}")
    return value


def _read_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise FrameBroken(f"neither true nor false: {shown(value)}")
    return value


def _read_state_kind(value: Any) -> StateKind:
    if type(value) is not int or value not in (StateKind.INTERESTS, StateKind.ADVERTISEMENTS):
        raise FrameBroken(f"nothing that is told has the number {shown(value)}")
    return StateKind(value)


def _write_topic_filter(topic_filter: TopicFilter) -> str:
    return topic_filter.text


def _read_topic_filter(value: Any) -> TopicFilter:
    return messages.topic_filter_of(_read_text(value))


def _write_interest(interest: Interest) -> list[Any]:
    return messages.interest_values(interest)


def _write_message(message: Message) -> bytes:
    expires_in_ms = message.expires_in_ms if isinstance(message, Forward) else None
    return alone(message, TrafficClass.LIVE, expires_in_ms)


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
    reader = CborReader(value, LINK_CBOR)
    if not reader.array():
        raise FrameBroken("an empty message")
    return reader.integer()


def _write_advertisement(advertise: Advertise) -> list[Any]:
    return _fields_of(advertise, _FIELDS[Advertise])


def _advertisement_steps(reader: CborReader) -> Steps[Advertise]:
    return Advertise(*(yield from _fields_steps(reader, reader.array(), _FIELDS[Advertise])))


def _write_digest(digest: RetainedDigest) -> list[Any]:
    return [digest.gateway, list(digest.sums)]


def _digest_steps(reader: CborReader) -> Steps[RetainedDigest]:
    if reader.array() != 2:
        raise FrameBroken("a digest is the number of a gateway and a list of sums")
    gateway = yield from _U16.steps(reader)
    sums = yield from each_of(_U64).steps(reader)
    if not 0 < len(sums) <= RETAINED_PARTS_MAX:
        raise FrameBroken(f"a digest has {len(sums)} sums; the limit is {RETAINED_PARTS_MAX}")
    return RetainedDigest(gateway, sums)


def _write_will(will: PendingWill) -> list[Any]:
    return _fields_of(will, _WILL)


def _will_steps(reader: CborReader) -> Steps[PendingWill]:
    return PendingWill(*(yield from _fields_steps(reader, reader.array(), _WILL)))


def _write_group(group: GroupCount) -> list[Any]:
    return [group.name, group.connected, group.kept]


def _group_steps(reader: CborReader) -> Steps[GroupCount]:
    return GroupCount(*(yield from _fields_steps(reader, reader.array(), (_TEXT, _U32, _U32))))


def _write_record(record: TraceRecord) -> list[Any]:
    vector, delays = record.delivered, record.delays
    return [
        record.broker,
        vector.to_bytes((vector.bit_length() + 7) // 8, "big"),
        record.deliveries,
        record.copies,
        record.marked,
        *(min(delay, DELAY_MAX) for delay in (delays.input, delays.matching, delays.clients)),
        _write_delays(delays.outputs),
        _write_delays(delays.links),
    ]


def _write_delays(delays: Mapping[str, Duration] | None) -> list[Any]:
    return [value for peer, delay in (delays or {}).items() for value in (peer, min(delay, DELAY_MAX))]


def _delays_steps(reader: CborReader) -> Steps[Mapping[str, Duration] | None]:
    size = reader.array()
    if size % 2 or size > 2 * (GATEWAY_NUMBER_MAX + 1):
        raise FrameBroken(f"delays of peers are pairs, {GATEWAY_NUMBER_MAX + 1} at most")
    delays = {}
    for _ in range(size // 2):
        peer = yield from _TEXT.steps(reader)
        delays[peer] = yield from _U32.steps(reader)
        yield 1
    return delays or None


def _records_steps(reader: CborReader) -> Steps[tuple[TraceRecord, ...]]:
    size = reader.array()
    if size > GATEWAY_NUMBER_MAX + 1:
        raise FrameBroken(f"{size} records of a session; there are {GATEWAY_NUMBER_MAX + 1} gateways at most")
    records = []
    for _ in range(size):
        fields = yield from _fields_steps(reader, reader.array(), _RECORD)
        broker, vector, deliveries, copies, marked, *delays = fields
        delivered = int.from_bytes(vector, "big")
        records.append(TraceRecord(broker, delivered, deliveries, copies, marked, QueueDelays(*delays)))
        yield 1
    return tuple(records)


_U8, _U16, _U32, _U64 = (number(bits) for bits in (8, 16, 32, 64))
_TEXT: Final = single(_read_text)
_FLAG: Final = single(_read_flag)
_STATE_KIND: Final = single(_read_state_kind, int)
_TOPIC_FILTER: Final = single(_read_topic_filter, _write_topic_filter)
_INTEREST: Final = listed(messages.read_interest, _write_interest)
_INTERESTS: Final = each_of(_INTEREST)
_NUMBERS: Final = each_of(_U32)
_ADVERTISEMENTS: Final = each_of(FieldCodec(_write_advertisement, _advertisement_steps))
_BINARY: Final = octets(TOPIC_BYTES_MAX)
_WILL: Final = (_TEXT, _U32, _FLAG, _U8, _FLAG, _TEXT, _BINARY, octets(PACKET_BYTES_MAX))
_DELAYS: Final = FieldCodec(_write_delays, _delays_steps)
_RECORD: Final = (_TEXT, octets(OFFSET_MAX // 8), _U32, _U32, _U32, _U32, _U32, _U32, _DELAYS, _DELAYS)
_RECORDS: Final = FieldCodec(lambda records: [_write_record(record) for record in records], _records_steps)
_FORWARD: Final = FieldCodec(_write_message, _forward_steps)
_MESSAGE: Final = FieldCodec(_write_message, _message_steps)

_FIELDS: Final[dict[type[Any], tuple[FieldCodec, ...]]] = {
    Announce: (_INTERESTS, _U16),
    Withdraw: (_INTERESTS, _U16),
    Advertise: (_U32, _U32, _TEXT, _TOPIC_FILTER, _U8, _U32, _FLAG),
    Unadvertise: (_NUMBERS,),
    ClusterBits: (_NUMBERS, _U8, _U64, _FLAG, optional(_INTERESTS)),
    ClusterBitsAck: (_U8, _U64),
    Digest: (_STATE_KIND, _U16, _U32, _U64),
    Differ: (_STATE_KIND, each_of(_U64)),
    Restate: (_STATE_KIND, _U32, _U32, _U16, _INTERESTS, _ADVERTISEMENTS),
    RetainedQuery: (_U32, _INTEREST),
    RetainedReply: (_U32, _FORWARD),
    LinkStateUpdate: (_U16, _U64, each_of(_U16)),
    Relay: (_U16, _U16, _U8, _MESSAGE, _FLAG),
    Backpressure: (_U16, _U64, _U16, _INTERESTS),
    StatusQuery: (_U32,),
    StatusReply: (_U32, _U16, octets(STATUS_REPORT_BYTES_MAX)),
    InterestFlush: (_U32,),
    InterestFlushed: (_U32,),
    SendAgain: (octets(STORE_BYTES_MAX), each_of(_U64)),
    ConditionalRetainedQuery: (_U32, _INTEREST, each_of(FieldCodec(_write_digest, _digest_steps))),
    RetainedUnmodified: (_U32, _U16, octets(RETAINED_PARTS_MAX // 8)),
    PendingWills: (_U64, _FLAG, _FLAG, each_of(FieldCodec(_write_will, _will_steps)), each_of(_TEXT)),
    GroupMembers: (_U16, _U64, each_of(FieldCodec(_write_group, _group_steps))),
    TraceInformationRequest: (_U32, _U32, _U8),
    TraceInformationAnswer: (_U32, _U32, _RECORDS, _FLAG),
}
_KINDS: Final[dict[type[Any], int]] = {message: -9 - index for index, message in enumerate(_FIELDS)}
_MESSAGES: Final = {kind: message for message, kind in _KINDS.items()}
"""-9 Announce, -10 Withdraw, and so on in the order of `_FIELDS`."""


def body(message: Message, service: int) -> bytes:
    """Return the item of any message but an event: kind, class, fields."""
    values = [_KINDS[type(message)], int(service), *_fields_of(message, _FIELDS[type(message)])]
    return encode_cbor(values, has_short_floats=True)  # ranges in coverings are rounded to four bytes


def steps_of_body(reader: CborReader, kind: int, size: int) -> Steps[tuple[Message, TrafficClass]]:
    """Decode a message of *kind* in steps, from *reader* behind the kind: class and fields, *size* values in all."""
    message = _MESSAGES.get(kind)
    if message is None:
        raise FrameBroken(f"there is no message of kind {kind}")
    service = reader.single() if size else None
    if type(service) is not int or not TrafficClass.CONTROL <= service <= TrafficClass.LOGS:
        raise FrameBroken(f"a message of kind {kind} is of no class")
    values = yield from _fields_steps(reader, size - 1, _FIELDS[message])
    return message(*values), TrafficClass(service)


def alone(message: Message, service: int, expires_in_ms: int | None = None) -> bytes:
    """Return *message* as an item without reference to others."""
    if isinstance(message, Forward):
        return FlowWriter().write(message, int(service), expires_in_ms)
    if isinstance(message, EventSeries):
        return FlowWriter().write_series(message, int(service))
    return body(message, service)


def read_alone(data: bytes, may_be_series: bool = False) -> tuple[Message, TrafficClass]:
    """Decode the output of `alone`. *may_be_series*: in the journal several events of QoS 1 may be one item. Raises
    FrameBroken.
    """
    steps = steps_alone(data, may_be_series)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            whole: tuple[Message, TrafficClass] = end.value
            return whole


def steps_alone(data: bytes, may_be_series: bool = False) -> Steps[tuple[Message, TrafficClass]]:
    """Decode the output of `alone` in steps; as `read_alone`."""
    reader = CborReader(data, LINK_CBOR)
    size = reader.array()
    if not size or reader.at == len(data):
        raise FrameBroken("an empty message")
    message: Message
    if data[reader.at] >> 5 == UNSIGNED:
        flows = FlowReader()
        message, service = flows.read(reader, size), TrafficClass(flows.service)
        if isinstance(message, EventSeries) and not (may_be_series and message.first.qos):
            raise FrameBroken("a series does not stand alone")
    else:
        kind = reader.integer()
        message, service = yield from steps_of_body(reader, kind, size - 1)
    if reader.at != len(data):
        raise FrameBroken("bytes after the end of a message")
    return message, service


def _fields_of(message: Any, fields: tuple[FieldCodec, ...]) -> list[Any]:
    names = message.__dataclass_fields__
    return [field.write(getattr(message, name)) for field, name in zip(fields, names, strict=True)]


def _fields_steps(reader: CborReader, size: int, fields: tuple[FieldCodec, ...]) -> Steps[list[Any]]:
    if size != len(fields):
        raise FrameBroken(f"a message has {size} fields; its kind has {len(fields)}")
    values = []
    for field in fields:
        values.append((yield from field.steps(reader)))
    return values
