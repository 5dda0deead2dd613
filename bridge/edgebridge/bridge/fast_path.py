"""The fast path of a bridge: a PUBLISH is rewritten from bytes to bytes when only its topic and its origin change.

Most messages have a known topic and no properties, or only the origin that another bridge gave them. For those a
`TopicRewrite` holds the new topic and the new properties. Every other packet is decoded by `decode_packet`, which is
the reference.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebridge.bridge.counters import ByteCounter, PrefixCounters
from edgebridge.bridge.rules import CACHED_TOPIC_CHARS_MAX
from edgebridge.wire.head import publish_head
from edgebridge.wire.properties import Properties, encode_properties, user_properties
from edgebridge.wire.user_properties import ORIGIN_PROPERTY

REWRITES_MAX: Final = 4_096
"""Topics that are remembered, 300 bytes each; then the memory starts anew."""
BLOCK_BYTES_MAX: Final = 0x80
"""Of properties that are looked up, with their length: it has one byte then."""
RETAIN: Final = 0x01
DUP: Final = 0x08


class TopicRewrite(NamedTuple):
    """What becomes of the messages of one topic."""

    topic: bytes
    """What it is called at the other end."""
    rule: int
    retains: bool
    properties: bytes
    """With their length in front, as the other end gets them; empty where its version has none."""
    counter: ByteCounter
    """Where its messages are counted."""


class PublishParts(NamedTuple):
    """A PUBLISH, taken apart as far as it must be."""

    key: bytes
    """Its topic, and its properties behind that if it has some."""
    packet_id: bytes
    """Two bytes, or none at QoS 0."""
    payload: bytes


def rewrite_key(topic: str, properties: Properties) -> bytes | None:
    """The key of the messages of *topic* with these *properties*: none, or nothing but an origin. None: they have none.

    No topic has a NUL, and an encoded origin has: so the key of two values is that of no other topic.
    """
    if not properties:
        return topic.encode()
    if len(properties) > 1 or [name for name, _ in user_properties(properties)] != [ORIGIN_PROPERTY]:
        return None
    block = encode_properties(properties)
    return topic.encode() + block if len(block) <= BLOCK_BYTES_MAX else None


class RewriteCache:
    """By topic and origin. `has_properties` says how the packets that come look, `gives_properties` those that go."""

    def __init__(self, has_properties: bool, gives_properties: bool) -> None:
        self._has_properties = has_properties
        self._gives_properties = gives_properties
        self._known: dict[bytes, TopicRewrite] = {}
        self._folds = 0

    def read(self, first: int, body: bytes) -> PublishParts | None:
        """The parts of a PUBLISH; None: it goes the long way."""
        length = len(body)
        if length < 2 or first & 0x06 == 0x06:
            return None
        end = at = 2 + (body[0] << 8 | body[1])
        if first & 0x06:
            at += 2
            if body[end:at] == b"\0\0":
                return None
        elif first & DUP:
            return None
        if self._has_properties:
            if at >= length:
                return None
            if not body[at]:
                return PublishParts(body[2:end], body[end:at], body[at + 1 :])
            block_end = at + 1 + body[at]
            if body[at] >= BLOCK_BYTES_MAX or block_end > length:
                return None
            return PublishParts(body[2:end] + body[at:block_end], body[end:at], body[block_end:])
        return PublishParts(body[2:end], body[end:at], body[at:]) if at <= length else None

    def find(self, key: bytes) -> TopicRewrite | None:
        """What was remembered of messages with this `rewrite_key`."""
        return self._known.get(key)

    def remember(self, key: bytes, found: TopicRewrite) -> None:
        """From now on messages with this `rewrite_key` go the short way, if it is not too long to be remembered."""
        if len(key) > CACHED_TOPIC_CHARS_MAX:
            return
        if len(self._known) >= REWRITES_MAX:
            self._known.clear()
        self._known[key] = found

    def counter(self, costs: PrefixCounters, topic: str) -> ByteCounter:
        """Where messages of *topic*, as it is called here, are counted."""
        found = costs.counter(topic)
        if costs.folds != self._folds:  # cells that passes know may be no more
            self._folds = costs.folds
            self._known.clear()
        return found

    def forget(self) -> None:
        """Other rules hold, or another remote is there."""
        self._known.clear()

    def write(self, first: int, parts: PublishParts, way: TopicRewrite) -> bytes:
        """The packet for the other end: the same QoS, the same packet identifier, the same payload."""
        head = publish_head(
            way.topic,
            first >> 1 & 3,
            way.retains and bool(first & RETAIN),
            bool(first & DUP),
            way.properties,
            len(parts.payload),
            self._gives_properties,
        )
        return head + parts.packet_id + way.properties + parts.payload
