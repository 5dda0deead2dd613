"""The fast path of a bridge: a PUBLISH is rewritten from bytes to bytes when only its topic changes.

Most messages have no properties and a known topic. For those a `TopicRewrite` holds the new topic. Every other packet
is decoded by `decode_packet`, which is the reference.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebridge.bridge.counters import ByteCounter, PrefixCounters
from edgebridge.bridge.rules import CACHED_TOPIC_CHARS_MAX
from edgebridge.wire.head import publish_head

REWRITES_MAX: Final = 4_096
"""Topics that are remembered, 300 bytes each; then the memory starts anew."""
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
    """A PUBLISH without properties, taken apart as far as it must be."""

    topic: bytes
    packet_id: bytes
    """Two bytes, or none at QoS 0."""
    payload: bytes


class RewriteCache:
    """By topic. `has_properties` says how the packets that come look, `gives_properties` those that leave."""

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
            if at >= length or body[at]:
                return None
            return PublishParts(body[2:end], body[end:at], body[at + 1 :])
        return PublishParts(body[2:end], body[end:at], body[at:]) if at <= length else None

    def find(self, topic: bytes) -> TopicRewrite | None:
        """What was remembered of *topic*."""
        return self._known.get(topic)

    def remember(self, topic: bytes, found: TopicRewrite) -> None:
        """From now on messages of *topic* go the short way, if it is not too long to be remembered."""
        if len(topic) > CACHED_TOPIC_CHARS_MAX:
            return
        if len(self._known) >= REWRITES_MAX:
            self._known.clear()
        self._known[topic] = found

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
