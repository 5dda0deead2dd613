"""Messages of ours that go on together.

A batch ends when it is full, when its time is over, and when the session of ours has sent all that it may unanswered,
for then nothing more comes to fill it. It is sent under the packet identifier of its first message of QoS 1, and none
of its messages is answered here before the remote answers that one. So until then the session has them all, and
whatever dies in between, they come again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from edgebridge.upstream.envelope import HEAD_BYTES_MAX, reading, sealed
from edgebridge.upstream.forms import Form
from edgebridge.upstream.rule import Rule
from edgebridge.upstream.shape import BATCH_BYTES_DEFAULT, BATCH_S_DEFAULT
from edgebridge.upstream.transform import CONTENT_TYPES
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Property
from edgebroker.instants import MILLISECOND, SECOND, Instant

PACKET_HEAD_BYTES: Final = 192
"""Of the packet that a batch is, beside its topic and its payload: content type, origin, lengths."""
_UNSAID: Final = frozenset({Property.SUBSCRIPTION_IDENTIFIER, Property.CONTENT_TYPE, Property.PAYLOAD_FORMAT_INDICATOR})
"""Properties that an envelope does not carry and nobody misses: the first byte tells as much as the last two."""


class Ended(NamedTuple):
    """A batch that is to be sent."""

    number: int
    """Of its rule."""
    topic: str
    content_type: str
    payload: bytes
    messages: Sequence[Publish]


class _Batch:
    """What one rule has gathered."""

    def __init__(self, rule: Rule, number: int) -> None:
        shape = rule.shape
        assert shape is not None
        self.number = number
        self.topic = rule.batch_topic
        self.retains = rule.retain
        self.form = Form.JSON if shape.convert == "json" else Form.CBOR
        self.messages_max = shape.batch_messages
        self.bytes_max = shape.batch_bytes or BATCH_BYTES_DEFAULT
        self.span = (shape.batch_s or BATCH_S_DEFAULT) * SECOND
        self.began: Instant = 0
        self.last = ""
        self.bytes = HEAD_BYTES_MAX
        self.readings: list[bytes] = []
        self.messages: list[Publish] = []

    def clear(self) -> None:
        self.bytes, self.last, self.readings, self.messages = HEAD_BYTES_MAX, "", [], []


class Batches:
    """Of one bridge, by the number of their rule."""

    def __init__(self, rules: Sequence[tuple[int, Rule]], wall: Callable[[Instant], int]) -> None:
        """*rules*: with their numbers, those that gather. *wall*: microseconds since 1970, as far as anybody knows."""
        self._of = {number: _Batch(rule, number) for number, rule in rules}
        self._wall = wall
        self._packet_bytes_max = 0
        self._ended: list[Ended] = []
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
        self._ended.clear()
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

    def take(self, number: int, publish: Publish, topic: str, now: Instant) -> bool:
        """Put a message in, that is called *topic* there. False: it goes by itself, after what was gathered before.

        That are those with something to them that an envelope does not say.
        """
        batch = self._of[number]
        is_plain = publish.qos < 2 and not (publish.retain and batch.retains) and _UNSAID.issuperset(publish.properties)
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

    def take_ended(self) -> Sequence[Ended]:
        """What is to be sent now."""
        ended, self._ended = self._ended, []
        return ended

    @staticmethod
    def _reading(batch: _Batch, publish: Publish, topic: str, now: Instant) -> bytes:
        ms = max(now - batch.began, 0) // MILLISECOND if batch.messages else 0
        return reading(batch.form, ms, "" if topic == batch.last else topic, publish.payload)

    def _bytes_max(self, batch: _Batch) -> int:
        if not self._packet_bytes_max:
            return batch.bytes_max
        return min(batch.bytes_max, self._packet_bytes_max - PACKET_HEAD_BYTES - len(batch.topic.encode()))

    def _end(self, batch: _Batch) -> None:
        if not batch.messages:
            return
        wall_ms = max(self._wall(batch.began) // MILLISECOND, 0)
        payload = sealed(batch.form, wall_ms, batch.readings)
        self._ended.append(Ended(batch.number, batch.topic, CONTENT_TYPES[batch.form], payload, batch.messages))
        self.held -= sum(one.qos for one in batch.messages)
        self.bytes -= batch.bytes
        batch.clear()
