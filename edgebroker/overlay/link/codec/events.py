"""Events in few bytes: each event encodes only its differences from the previous one of the same flow.

A *flow* is a publisher and a topic. The writer assigns it a *slot* and sends topic, publisher and all other fields
once; later events contain the slot, and the increments of sequence and time. Changed fields are sent by number:

    [slot, sequence - last, published_ms - last]  payload  {field: value, ...}  count

as one CBOR array of four items, or five if a field changed, or six if it is a series of *count* events. An event of a
known flow takes seven bytes and its payload. Both ends keep the same SLOTS_MAX flows; the writer chooses the one to
replace. Slot 0 is for flows with long names: all fields are sent each time, so the names of all other slots are
bounded.

This module is compiled: it runs once for every event that crosses a link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from edgebroker.cbor import ARRAY, BYTES, NEGATIVE, UNSIGNED, CborReader, encode_cbor, head
from edgebroker.errors import TopicInvalid
from edgebroker.header import EventHeader
from edgebroker.limits import CLUSTERS_MAX, TOPIC_BYTES_MAX, USER_PROPERTIES_MAX
from edgebroker.overlay.link.codec.errors import FrameBroken, shown
from edgebroker.overlay.messages import EventSeries, Forward
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import parse_topic_name

SLOTS_MAX: Final = 1_024
"""Flows that both ends remember, each about 500 bytes; a gateway has some hundred devices with a few topics each."""
NAMES_BYTES_MAX: Final = 1_024
"""Topic, client, user properties, content type and properties of a flow in any slot but 0."""
RELIABLE_SERIES_MAX: Final = 256
"""Events in a series of QoS 1. Each is delivered by itself, in 10 us, so that one item takes 3 ms of a turn at most."""
TOPIC: Final = 0
PUBLISHER: Final = 1
CLIENT: Final = 2
"""The first of the fields that a flow keeps, in the order of `State`."""
EXPIRES_IN_MS: Final = 19
PREDECESSORS: Final = 20
"""These two apply only to the event that contains them. PREDECESSORS: cluster, distance, cluster, distance ..."""

State: TypeAlias = tuple[Any, ...]
"""Client, service, QoS, retain, adv, hc, civ, epoch, trace, group, view, user, content type, properties, walked,
marked, passed: what a flow keeps, numbered from CLIENT."""
START: Final[State] = ("", int(TrafficClass.LIVE), 0, False, 0, 0, 0, 0, 0, 0, 0, (), None, b"", 0, False, ())
"""The fields of a new flow unless they are sent."""

_HEADS: Final = tuple(head(UNSIGNED, number) for number in range(1_024))
_PAYLOAD_HEADS: Final = tuple(head(BYTES, size) for size in range(1_024))
STEADY: Final = 4
_CHANGED: Final = 5
_SERIES: Final = 6


_NO_CHANGES: Final[dict[Any, Any]] = {}
_CHANGED_HEAD: Final = head(ARRAY, _CHANGED)[0]
_ALONE_HEAD: Final = head(ARRAY, _CHANGED) + head(UNSIGNED, 1)
_SERIES_HEAD: Final = head(ARRAY, _SERIES)


class Flow:
    """The state of a slot at one end."""

    __slots__ = ("begin", "is_recent", "key", "published_ms", "publisher", "sequence", "slot", "state", "topic")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.key: tuple[int, str] | None = None
        self.publisher = 0
        self.topic = ""
        self.sequence = 0
        self.published_ms = 0
        self.state = START
        self.is_recent = True
        self.begin = head(ARRAY, STEADY) + head(UNSIGNED, slot) + _HEADS[1]


class FlowWriter:
    """The sending end of one direction."""

    def __init__(self) -> None:
        self._flows: dict[tuple[int, str], Flow] = {}
        self._slots: list[Flow] = []
        self._hand = 0
        self._latest = Flow(0)  # the flow of the last written event

    def write(self, forward: Forward, service: int, expires_in_ms: int | None) -> bytes:
        """Return the item for *forward*, whose remaining expiry interval is *expires_in_ms*."""
        header = forward.header
        state = _state_of(forward, service)
        flow = self._flows.get((header.publisher, forward.topic))
        if flow is None or flow.state != state or expires_in_ms is not None or forward.predecessors:
            return self._told(forward, flow, state, expires_in_ms)
        self._latest = flow
        flow.is_recent = True
        payload = forward.payload
        size = len(payload)
        step = header.sequence - flow.sequence
        delay = header.published_ms - flow.published_ms
        flow.sequence = header.sequence
        flow.published_ms = header.published_ms
        if step == 1 and 0 <= delay < 1_024 and size < 1_024:
            return b"".join((flow.begin, _HEADS[delay], _PAYLOAD_HEADS[size], payload))
        begin = head(ARRAY, STEADY) + head(UNSIGNED, flow.slot)
        return b"".join((begin, _signed(step), _signed(delay), head(BYTES, size), payload))

    def write_series(self, series: EventSeries, service: int) -> bytes:
        """Return the item for *series*: that of its first event, with all payloads and their number."""
        first, header = series.first, series.first.header
        item = self.write(first, service, None)
        self._latest.sequence = header.sequence + series.count - 1
        changes = b"" if item[0] == _CHANGED_HEAD else b"\xa0"
        return b"".join((_SERIES_HEAD, item[1:], changes, head(UNSIGNED, series.count)))

    def _told(self, forward: Forward, flow: Flow | None, state: State, expires_in_ms: int | None) -> bytes:
        """Return the item of a new or changed flow, or of an event with an expiry interval."""
        told: dict[int, Any] = {}
        if (flow is None or flow.state != state) and _names_bytes(forward.topic, state) > NAMES_BYTES_MAX:
            flow = self._long()  # an ordinary slot of the same flow is not changed, at both ends
        elif flow is None:
            flow = self._free()
            flow.key = (forward.header.publisher, forward.topic)
            self._flows[flow.key] = flow
        if flow.topic != forward.topic or flow.publisher != forward.header.publisher or not flow.slot:
            flow.topic = told[TOPIC] = forward.topic
            flow.publisher = told[PUBLISHER] = forward.header.publisher
            flow.sequence = flow.published_ms = 0
            flow.state = START
        if flow.state != state:
            for number, (new, old) in enumerate(zip(state, flow.state, strict=True), CLIENT):
                if new != old:
                    told[number] = new
            flow.state = state
        self._latest = flow
        if expires_in_ms is not None:
            told[EXPIRES_IN_MS] = expires_in_ms
        if forward.predecessors:
            told[PREDECESSORS] = [number for pair in forward.predecessors for number in pair]
        flow.is_recent = True
        step = forward.header.sequence - flow.sequence
        delay = forward.header.published_ms - flow.published_ms
        flow.sequence = forward.header.sequence
        flow.published_ms = forward.header.published_ms
        return b"".join(
            (
                head(ARRAY, _CHANGED),
                head(UNSIGNED, flow.slot),
                _signed(step),
                _signed(delay),
                head(BYTES, len(forward.payload)),
                forward.payload,
                encode_cbor(told),
            )
        )

    def _long(self) -> Flow:
        """Return slot 0."""
        if not self._slots:
            self._slots.append(Flow(0))
        return self._slots[0]

    def _free(self) -> Flow:
        """Return a slot for another flow: a new one, or that of a flow not used for a whole round (second chance)."""
        slots = self._slots
        self._long()
        if len(slots) < SLOTS_MAX:
            slots.append(Flow(len(slots)))
            return slots[-1]
        while True:
            self._hand = self._hand % (SLOTS_MAX - 1) + 1
            flow = slots[self._hand]
            if not flow.is_recent:
                break
            flow.is_recent = False
        if flow.key is not None:
            del self._flows[flow.key]
        return flow


class AloneWriter:
    """Encodes events without reference to others. The encoded fields of a flow are cached."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, str], tuple[State, bytes]] = {}

    def write(self, forward: Forward, service: int) -> bytes:
        """Return the item for *forward*, with all fields except the expiry interval."""
        header, payload = forward.header, forward.payload
        state = _state_of(forward, service)
        key = (header.publisher, forward.topic)
        begin = b"".join(
            (_ALONE_HEAD, _signed(header.sequence), _signed(header.published_ms), head(BYTES, len(payload)), payload)
        )
        known = self._told.get(key)
        if known is not None and known[0] == state and not forward.predecessors:
            return begin + known[1]
        item = FlowWriter().write(forward, service, None)
        if item.startswith(begin) and not forward.predecessors:  # else its names are long, so it is in slot 0
            if len(self._told) >= SLOTS_MAX:
                self._told.clear()
            self._told[key] = (state, item[len(begin) :])
        return item


class FlowReader:
    """The receiving end of one direction."""

    def __init__(self) -> None:
        self._slots: list[Flow] = []
        self.service = int(TrafficClass.LIVE)
        """The class of the event read last."""

    def read(self, reader: CborReader, size: int) -> Forward | EventSeries:
        """Decode the event or series in *reader*, behind the head of its array of *size* items. Raises FrameBroken."""
        slot = reader.unsigned()
        step = reader.integer()
        delay = reader.integer()
        payload = reader.octets()
        changes = _NO_CHANGES
        count = 1
        if size in (_CHANGED, _SERIES):
            changes = reader.item()
            if type(changes) is not dict:
                raise FrameBroken(f"what changed of an event is no map, before byte {reader.at}")
            flow = self._changed(slot, changes)
            if size == _SERIES:
                count = reader.unsigned()
                is_single = EXPIRES_IN_MS in changes or PREDECESSORS in changes
                if is_single or count < 2 or len(payload) < count or len(payload) % count:
                    raise FrameBroken(f"no series of {count} events before byte {reader.at}")
        elif size != STEADY:
            raise FrameBroken(f"an event of {size} items before byte {reader.at}")
        elif slot >= len(self._slots):
            raise FrameBroken(f"an event of slot {slot}, of which nothing was told, before byte {reader.at}")
        else:
            flow = self._slots[slot]
        sequence = flow.sequence + step
        published_ms = flow.published_ms + delay
        if not 0 <= sequence <= (1 << 32) - count or not 0 <= published_ms < 1 << 48:
            raise FrameBroken(f"a sequence or a time is out of range before byte {reader.at}")
        flow.sequence = sequence + count - 1
        flow.published_ms = published_ms
        (
            client,
            self.service,
            qos,
            retain,
            adv,
            hc,
            civ,
            epoch,
            trace,
            group,
            view,
            user,
            content_type,
            properties,
            walked,
            was_marked,
            passed,
        ) = flow.state
        header = EventHeader(flow.publisher, sequence, adv, hc, civ, epoch, trace, group, view, published_ms)
        forward = Forward(
            header,
            flow.topic,
            payload,
            qos,
            retain,
            client,
            user,
            content_type,
            properties,
            changes.get(EXPIRES_IN_MS),
            walked,
            was_marked,
            passed,
        )
        if count == 1:
            return _in_order(forward, changes[PREDECESSORS]) if PREDECESSORS in changes else forward
        if retain or qos > 1 or (qos and count > RELIABLE_SERIES_MAX):
            raise FrameBroken(f"no series of {count} events of QoS {qos} before byte {reader.at}")
        return EventSeries(forward, count)

    def _changed(self, slot: int, changes: dict[Any, Any]) -> Flow:
        """Return the flow of *slot* after *changes*."""
        for what, value in changes.items():
            check = _CHECKS.get(what)
            if check is None or not check(value):
                raise FrameBroken(f"field {shown(what)} of an event cannot be {shown(value)}")
        slots = self._slots
        if slot == len(slots) < SLOTS_MAX:
            slots.append(Flow(slot))
        elif slot == 1 and not slots:
            slots += (Flow(0), Flow(1))
        if slot >= len(slots):
            raise FrameBroken(f"slot {slot} is out of turn or range")
        flow = slots[slot]
        if (TOPIC in changes) != (PUBLISHER in changes) or not (flow.topic or TOPIC in changes):
            raise FrameBroken(f"slot {slot} lacks a topic or a publisher")
        if TOPIC in changes:
            flow.topic = _topic_of(changes[TOPIC])
            flow.publisher = changes[PUBLISHER]
            flow.sequence = flow.published_ms = 0
            flow.state = START
        state = list(flow.state)
        for what, value in changes.items():
            if CLIENT <= what < EXPIRES_IN_MS:
                state[what - CLIENT] = _frozen(value) if type(value) is list else value
        flow.state = tuple(state)
        if slot and _names_bytes(flow.topic, flow.state) > NAMES_BYTES_MAX:
            raise FrameBroken(f"the names of slot {slot} are longer than {NAMES_BYTES_MAX} bytes")
        return flow


def _state_of(forward: Forward, service: int) -> State:
    header = forward.header
    return (
        forward.client,
        service,
        forward.qos,
        forward.retain,
        header.adv,
        header.hc,
        header.civ,
        header.epoch,
        header.trace,
        header.group,
        header.view,
        forward.user,
        forward.content_type,
        forward.properties,
        forward.walked,
        forward.was_marked,
        forward.passed,
    )


def _signed(number: int) -> bytes:
    return head(UNSIGNED, number) if number >= 0 else head(NEGATIVE, -1 - number)


def _names_bytes(topic: str, state: State) -> int:
    client, user, content_type, properties = state[0], state[11], state[12], state[13]
    texts = [topic, client, content_type or "", *(text for pair in user for text in pair)]
    return sum(len(text.encode()) for text in texts) + len(properties)


def _frozen(values: list[Any]) -> tuple[Any, ...]:
    return tuple([tuple(value) if type(value) is list else value for value in values])


def _topic_of(text: str) -> str:
    try:
        return parse_topic_name(text, allows_all=True)  # refusing one would end the link again with each resend
    except TopicInvalid as error:
        raise FrameBroken(str(error)) from None


def _in_order(forward: Forward, numbers: list[int]) -> Forward:
    return replace(forward, predecessors=tuple(zip(numbers[::2], numbers[1::2], strict=True)))


def _is_predecessors(value: Any) -> bool:
    is_list = type(value) is list and 0 < len(value) <= 2 * CLUSTERS_MAX and not len(value) % 2
    return is_list and all(map(_number(4), value[::2])) and all(map(_number(32), value[1::2]))


def _number(bits: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and 0 <= value < 1 << bits


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= TOPIC_BYTES_MAX


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_user(value: Any) -> bool:
    pairs = type(value) is list and len(value) <= USER_PROPERTIES_MAX and all(type(pair) is list for pair in value)
    return pairs and all(len(pair) == 2 and _is_text(pair[0]) and _is_text(pair[1]) for pair in value)


_CHECKS: Final[dict[Any, Callable[[Any], bool]]] = dict(
    enumerate(
        (
            _is_text,
            _number(32),
            _is_text,
            lambda value: type(value) is int and TrafficClass.LIVE <= value <= TrafficClass.LOGS,
            lambda value: type(value) is int and 0 <= value <= 2,
            _is_flag,
            _number(32),
            _number(8),
            _number(16),
            _number(16),
            _number(32),
            _number(16),
            _number(16),
            _is_user,
            lambda value: value is None or _is_text(value),
            lambda value: type(value) is bytes,
            _number(8),
            _is_flag,
            lambda value: type(value) is list and all(map(_number(10), value)),
            _number(48),
            _is_predecessors,
        )
    )
)
"""Field number -> the check of its value."""
