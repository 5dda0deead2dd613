"""The first bytes of a PUBLISH: the one thing that is written for every message."""

from __future__ import annotations

from edgebridge.wire.fields import write_variable


def publish_head(
    topic: bytes, qos: int, retain: bool, dup: bool, properties: bytes, payload_len: int, has_properties: bool
) -> bytes:
    """The first bytes of a PUBLISH, up to and with its topic.

    What follows: the packet identifier (two bytes, only if *qos* is not 0), *properties* (as `encode_properties` gives
    them, only if *has_properties*), the payload. So one head serves all receivers of one dialect and QoS.
    """
    length = 2 + len(topic) + payload_len
    if qos:
        length += 2
    if has_properties:
        length += len(properties)
    first = 0x30 | dup << 3 | qos << 1 | retain
    size = len(topic)
    if length < 0x80:
        return bytes((first, length, size >> 8, size & 0xFF)) + topic
    if length < 0x4000:
        return bytes((first, length & 0x7F | 0x80, length >> 7, size >> 8, size & 0xFF)) + topic
    return bytes((first,)) + write_variable(length) + bytes((size >> 8, size & 0xFF)) + topic
