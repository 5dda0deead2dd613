"""Batches: several messages of a bridge sent as one payload, in CBOR or JSON, and taken apart at the other end.

A batch ends when it is full, when its time is over, or when the window of our session is exhausted. It is sent under
the packet identifier of its first QoS 1 message, and no message of it is acknowledged before the remote acknowledges
the batch: after a crash the session sends them all again. docs/bridging.md, "Many messages as one", has the layout.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NamedTuple

from edgebridge.bridge.counters import BridgeCounters, BridgeDropCause, ByteCounter
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.json_cbor import PayloadFormat, base64url, encode_json
from edgebridge.bridge.payload_options import BATCH_BYTES, BATCH_BYTES_DEFAULT, BATCH_MESSAGES, BATCH_S_DEFAULT
from edgebridge.bridge.rules import BridgeRule, RuleSet
from edgebridge.bridge.transform import CONTENT_TYPES
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import PubAck, Publish, PubRec
from edgebridge.wire.properties import Properties, Property, user_properties
from edgebroker.cbor import ARRAY, BYTES, UNSIGNED, CborReader, CborRules, encode_text, head
from edgebroker.errors import TopicInvalid
from edgebroker.filters.payloads import NOTHING, json_tree
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.limits import KIB
from edgebroker.topics import parse_topic_name

ENVELOPE_VERSION: Final = 1
ENVELOPE_HEAD_BYTES_MAX: Final = 32
"""What an envelope has beside its readings: 13 bytes in CBOR, 19 in JSON and a comma for each reading."""
ENVELOPE_BYTES_MAX: Final = BATCH_BYTES[-1] + KIB
"""What is larger is not opened: nobody seals it."""
ENTRIES_MAX: Final = BATCH_MESSAGES[-1]
_BLANKS: Final = b" \t\r\n"
_HEAD: Final = re.compile(rf"\s*\[\s*{ENVELOPE_VERSION}\s*,\s*([0-9]{{1,16}})\s*")
_ENTRY: Final = re.compile(r',\s*\[\s*([0-9]{1,12})\s*,\s*("(?:[^"\\]++|\\.)*+")\s*,\s*')
_END: Final = re.compile(r'\s*(?:,\s*"(text|base64)"\s*)?\]\s*')
_TAIL: Final = re.compile(r"\]\s*\Z")
_CBOR: Final = CborRules(depth_max=1, values_max=1, has_indefinite=False)
"""Of a topic; everything around it is read piece by piece."""


class EnvelopeInvalid(ValueError):
    """A payload that is no envelope, and why."""


class BatchEntry(NamedTuple):
    """One message of an envelope."""

    ms: int
    """Milliseconds after the first."""
    topic: str
    payload: bytes


class BatchEnvelope(NamedTuple):
    """`wall_ms`: when the first message was put in, in milliseconds since 1970, as far as the sender knew."""

    wall_ms: int
    entries: list[BatchEntry]


def encode_entry(form: PayloadFormat, ms: int, topic: str, payload: bytes) -> bytes:
    """One message. An empty *topic* is that of the one before."""
    if form is PayloadFormat.CBOR:
        return b"".join((b"\x83", head(UNSIGNED, ms), encode_text(topic), head(BYTES, len(payload)), payload))
    if json_tree(payload, exact=True) is not NOTHING:
        return b"[%d,%s,%s]" % (ms, encode_json(topic), payload.strip(_BLANKS))
    try:
        text, kind = payload.decode(), b"text"
    except UnicodeDecodeError:
        text, kind = base64url(payload), b"base64"
    return b'[%d,%s,%s,"%s"]' % (ms, encode_json(topic), encode_json(text), kind)


def encode_envelope(form: PayloadFormat, wall_ms: int, readings: Sequence[bytes]) -> bytes:
    """The envelope of what `reading` gave."""
    if form is PayloadFormat.CBOR:
        beginning = head(ARRAY, 2 + len(readings)), head(UNSIGNED, ENVELOPE_VERSION), head(UNSIGNED, wall_ms)
        return b"".join((*beginning, *readings))
    return b"[" + b",".join((b"%d" % ENVELOPE_VERSION, b"%d" % wall_ms, *readings)) + b"]"


def decode_envelope(payload: bytes) -> BatchEnvelope:
    """What is in *payload*, in either form. Raises EnvelopeBroken."""
    if not 0 < len(payload) <= ENVELOPE_BYTES_MAX:
        raise EnvelopeInvalid(f"{len(payload):,} bytes, of which 1 to {ENVELOPE_BYTES_MAX:,} are opened")
    try:
        return _decode_cbor(payload) if payload[0] >> 5 == ARRAY else _decode_json(payload)
    except (ValueError, RecursionError) as error:
        raise EnvelopeInvalid(str(error)) from None


def _decode_cbor(payload: bytes) -> BatchEnvelope:
    reader = CborReader(payload, _CBOR)
    size = reader.array()
    if size < 2 or reader.unsigned() != ENVELOPE_VERSION:
        raise EnvelopeInvalid(f"no envelope of version {ENVELOPE_VERSION}")
    envelope = BatchEnvelope(reader.unsigned(), [])
    for _ in range(size - 2):
        if reader.array() != 3:
            raise EnvelopeInvalid(f"no reading before byte {reader.at}")
        ms, topic = reader.unsigned(), reader.single()
        _add(envelope, ms, topic, reader.octets())
    if reader.at != len(payload):
        raise EnvelopeInvalid("bytes after the end")
    return envelope


def _decode_json(payload: bytes) -> BatchEnvelope:
    """Payloads that are JSON are taken out as they were put in, byte by byte."""
    text = payload.decode()
    found = _HEAD.match(text)
    if found is None:
        raise EnvelopeInvalid(f"no envelope of version {ENVELOPE_VERSION}")
    envelope = BatchEnvelope(int(found[1]), [])
    at = found.end()
    while (found := _ENTRY.match(text, at)) is not None:
        ms, topic = int(found[1]), json.loads(found[2])
        _, at = _EXTENT.raw_decode(text, start := found.end())
        raw, found = text[start:at], _END.match(text, at)
        if found is None or (found[1] and not raw.startswith('"')):
            raise EnvelopeInvalid(f"no reading at character {start}")
        at = found.end()
        _add(envelope, ms, topic, raw.encode() if not found[1] else _unquoted(raw, found[1]))
    if _TAIL.match(text, at) is None:
        raise EnvelopeInvalid(f"no reading at character {at}")
    return envelope


def _refuse(constant: str) -> object:
    raise EnvelopeInvalid(f"{constant} is no JSON")


_EXTENT: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
"""Reads a value only to know where it ends: numbers of any size cost nothing."""


def _unquoted(raw: str, kind: str) -> bytes:
    text: str = json.loads(raw)
    if kind == "text":
        return text.encode()
    return a2b_base64(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), strict_mode=True)


def _add(envelope: BatchEnvelope, ms: int, topic: Any, payload: bytes) -> None:
    readings = envelope.entries
    if len(readings) == ENTRIES_MAX:
        raise EnvelopeInvalid(f"more than {ENTRIES_MAX:,} readings")
    if not isinstance(topic, str) or not (topic or readings):
        raise EnvelopeInvalid("a reading without a topic")
    topic.encode()  # JSON may hold half a character
    readings.append(BatchEntry(ms, topic or readings[-1].topic, payload))


PACKET_HEAD_BYTES: Final = 192
"""Of the packet that a batch is, beside its topic and its payload: content type, origin, lengths."""
_OMITTED_PROPERTIES: Final = frozenset(
    {Property.SUBSCRIPTION_IDENTIFIER, Property.CONTENT_TYPE, Property.PAYLOAD_FORMAT_INDICATOR}
)
"""Properties that an envelope does not carry and nobody misses: the first byte tells as much as the last two."""


class OutgoingBatch(NamedTuple):
    """A batch that is to be sent."""

    number: int
    """Of its rule."""
    topic: str
    content_type: str
    payload: bytes
    messages: Sequence[Publish]


class _OpenBatch:
    """What one rule has gathered."""

    def __init__(self, rule: BridgeRule, number: int) -> None:
        shape = rule.shape
        assert shape is not None
        self.number = number
        self.topic = rule.batch_topic
        self.retains = rule.retain
        self.form = PayloadFormat.JSON if shape.convert == "json" else PayloadFormat.CBOR
        self.messages_max = shape.batch_messages
        self.bytes_max = shape.batch_bytes or BATCH_BYTES_DEFAULT
        self.span = (shape.batch_s or BATCH_S_DEFAULT) * SECOND
        self.began: Instant = 0
        self.last = ""
        self.bytes = ENVELOPE_HEAD_BYTES_MAX
        self.readings: list[bytes] = []
        self.messages: list[Publish] = []

    def clear(self) -> None:
        self.bytes, self.last, self.readings, self.messages = ENVELOPE_HEAD_BYTES_MAX, "", [], []


class BatchWriter:
    """Of one bridge, by the number of their rule."""

    def __init__(self, rules: Sequence[tuple[int, BridgeRule]], wall: Callable[[Instant], int]) -> None:
        """*rules*: with their numbers, those that gather. *wall*: microseconds since 1970, as far as anybody knows."""
        self._of = {number: _OpenBatch(rule, number) for number, rule in rules}
        self._wall = wall
        self._packet_bytes_max = 0
        self._finished: list[OutgoingBatch] = []
        self.held = 0
        """Messages of QoS 1 that are in no batch yet that was sent."""
        self.bytes = 0
        """What was gathered and is not sent: about the bytes of the batches that it will be."""

    def __contains__(self, number: int) -> bool:
        return number in self._of

    def begin(self, packet_bytes_max: int) -> None:
        """Another connection begins, to a remote that takes packets so large, or of any size (0)."""
        self._packet_bytes_max = packet_bytes_max

    def close(self) -> Sequence[Publish]:
        """The connection is over: what was gathered and not sent. At QoS 1 it comes again, at QoS 0 it is lost."""
        gathered = [one for batch in self._of.values() for one in batch.messages]
        for batch in self._of.values():
            batch.clear()
        self._finished.clear()
        self.held = self.bytes = 0
        return gathered

    def due(self) -> Instant | None:
        """When to call `fire`."""
        return min((batch.began + batch.span for batch in self._of.values() if batch.messages), default=None)

    def fire(self, now: Instant) -> None:
        """End what has waited for long enough."""
        for batch in self._of.values():
            if batch.messages and now >= batch.began + batch.span:
                self._end(batch)

    def end_all(self) -> None:
        """Nothing more will come to fill them."""
        for batch in self._of.values():
            self._end(batch)

    def add(self, number: int, publish: Publish, topic: str, now: Instant) -> bool:
        """Put a message in, that is called *topic* there. False: it goes by itself, after what was gathered before.

        That are those with something to them that an envelope does not say.
        """
        batch = self._of[number]
        is_plain = (
            publish.qos < 2
            and not (publish.retain and batch.retains)
            and _OMITTED_PROPERTIES.issuperset(publish.properties)
        )
        added = self._reading(batch, publish, topic, now) if is_plain else None
        if added is not None and batch.bytes + len(added) > self._bytes_max(batch) and batch.messages:
            self._end(batch)
            added = self._reading(batch, publish, topic, now)
        if added is None or batch.bytes + len(added) > self._bytes_max(batch):
            self._end(batch)
            return False
        if not batch.messages:
            batch.began = now
            self.bytes += batch.bytes
        self.bytes += len(added) + 1
        batch.readings.append(added)
        batch.messages.append(publish)
        batch.bytes += len(added) + 1
        batch.last = topic
        self.held += publish.qos
        if len(batch.messages) == batch.messages_max:
            self._end(batch)
        return True

    def take_finished(self) -> Sequence[OutgoingBatch]:
        """What is to be sent now."""
        ended, self._finished = self._finished, []
        return ended

    @staticmethod
    def _reading(batch: _OpenBatch, publish: Publish, topic: str, now: Instant) -> bytes:
        ms = max(now - batch.began, 0) // MILLISECOND if batch.messages else 0
        return encode_entry(batch.form, ms, "" if topic == batch.last else topic, publish.payload)

    def _bytes_max(self, batch: _OpenBatch) -> int:
        if not self._packet_bytes_max:
            return batch.bytes_max
        return min(batch.bytes_max, self._packet_bytes_max - PACKET_HEAD_BYTES - len(batch.topic.encode()))

    def _end(self, batch: _OpenBatch) -> None:
        if not batch.messages:
            return
        wall_ms = max(self._wall(batch.began) // MILLISECOND, 0)
        payload = encode_envelope(batch.form, wall_ms, batch.readings)
        self._finished.append(
            OutgoingBatch(batch.number, batch.topic, CONTENT_TYPES[batch.form], payload, batch.messages)
        )
        self.held -= sum(one.qos for one in batch.messages)
        self.bytes -= batch.bytes
        batch.clear()


PACKET_ID_MAX: Final = 65_535
"""Of packet identifiers; readings get theirs from here downwards, the remote's begin at the other end."""
BYTES_PER_TURN: Final = 8 * KIB
"""Bytes of payloads in one turn: their transformation may take 1 us each. A batch has up to 256 KiB."""
ENTRY_BYTES: Final = 64
"""What a reading counts beside its payload: it takes 20 us, so those of a turn 2.5 ms."""


class BatchReader:
    """One batch after the other. The remote is answered when all that was in one is answered here."""

    def __init__(
        self,
        ends: Endpoints,
        rules: RuleSet,
        tally: BridgeCounters,
        packet_bytes_max: int,
        cell: Callable[[str], ByteCounter],
    ) -> None:
        """*cell*: where messages of a topic of ours are counted."""
        self._endpoints = ends
        self._rules = rules
        self._counters = tally
        self._packet_bytes_max = packet_bytes_max
        self._counter = cell
        self._batch: Publish | None = None
        self._next = PACKET_ID_MAX
        self._octets = 0  # of the batch, as long as none of its messages is counted with them
        self._left = BYTES_PER_TURN  # of this turn
        self.entries: deque[BatchEntry] = deque()
        """What is still to be handed in."""
        self.open: set[int] = set()
        """Packet identifiers of readings that our front end has not answered."""

    @property
    def is_busy(self) -> bool:
        """Whether there is a batch that the remote is not answered for."""
        return self._batch is not None

    def restart(self) -> None:
        """Another connection begins: the remote sends again what it was not answered for, but nothing of QoS 0."""
        if self._batch is not None and not self._batch.qos and self.entries:
            self._counters.dropped[BridgeDropCause.ABSENT] += len(self.entries)
        self._batch, self._left = None, BYTES_PER_TURN
        self.entries.clear()
        self.open.clear()

    def begin(self, batch: Publish) -> None:
        """Hand in what is in *batch* from now on. Raises EnvelopeBroken."""
        self.entries.extend(decode_envelope(batch.payload).entries)
        self._batch, self._octets = batch, len(batch.payload) + len(batch.topic)

    @property
    def has_backlog(self) -> bool:
        """Whether the rest has to wait for `go_on`."""
        return self._left <= 0 and bool(self.entries)

    def begin_turn(self) -> None:
        """It is another turn."""
        self._left = BYTES_PER_TURN

    def must_precede(self, publish: Publish, is_batch: bool) -> bool:
        """Whether *publish* must wait: for its turn, or because a reading has its packet identifier."""
        return self.is_busy and (is_batch or publish.packet_id in self.open)

    def next(self, taken: Container[int]) -> tuple[Publish, bytes] | None:
        """The next reading and its packet, under a packet identifier that is not *taken*; None: it does not go on."""
        assert self._batch is not None
        reading = self.entries.popleft()
        self._left -= ENTRY_BYTES + len(reading.payload)
        while self._next in taken:
            self._next = self._next - 1 or PACKET_ID_MAX
        made = self._publish_of(reading, self._batch)
        if made is not None and made[0].qos:
            self.open.add(self._next)
            self._next = self._next - 1 or PACKET_ID_MAX
        return made

    def take_acknowledgement(self) -> PubAck | PubRec | None:
        """What the remote is to hear, if all of its batch is answered."""
        batch = self._batch
        if batch is None or self.entries or self.open:
            return None
        self._batch = None
        if not batch.qos:
            return None
        return PubAck(batch.packet_id) if batch.qos == 1 else PubRec(batch.packet_id)

    def _publish_of(self, reading: BatchEntry, batch: Publish) -> tuple[Publish, bytes] | None:
        try:
            heard = self._rules.match_batched(batch.topic, parse_topic_name(reading.topic))
            if heard is None:
                self._lost(BridgeDropCause.NO_RULE, reading.topic)
                return None
            topic = parse_topic_name(heard.rule.to_local_topic(reading.topic))
        except TopicInvalid as error:
            self._lost(BridgeDropCause.TOPIC, str(error))
            return None
        origin = user_properties(batch.properties)
        properties: Properties = {Property.USER_PROPERTY: list(origin)} if origin else {}
        on = Publish(topic, reading.payload, min(batch.qos, 1), False, batch.dup, properties=properties)
        transform = self._rules.transforms.get(heard.number)
        if transform is not None and (why := transform.try_apply(on, self._counters)):
            self._lost(BridgeDropCause.UNFIT, why)
            return None
        on.packet_id = self._next if on.qos else 0
        data = encode_packet(on, V5)
        if len(data) > self._packet_bytes_max:
            self._lost(BridgeDropCause.TOO_LARGE, f"{len(data):,} bytes under {topic}")
            return None
        self._counters.count_forwarded(heard.number, self._octets, self._counter(topic))
        self._octets = 0
        return on, data

    def _lost(self, cause: BridgeDropCause, what: str) -> None:
        self._counters.dropped[cause] += 1
        self._endpoints.warn(cause, f"a message in a batch of the remote is lost and counted as {cause}: {what}")
