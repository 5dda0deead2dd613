"""A publication as bytes for its readers: encoded once for all readers of the same dialect and QoS."""

from __future__ import annotations

from edgebridge.wire.encode import encode_properties, publish_head
from edgebridge.wire.properties import Properties, Property
from edgebroker.instants import SECOND, Instant
from edgebroker.publication import Publication

NO_PROPERTIES = b"\0"


class Encoding:
    """The PUBLISH packets of one publication. Made when it is routed and forgotten with it."""

    __slots__ = ("_parts", "_publication", "_topic")

    def __init__(self, publication: Publication) -> None:
        self._publication = publication
        self._topic = publication.topic.encode()
        self._parts: dict[tuple[bool, int, bool], tuple[bytes, bytes]] = {}

    def packet(
        self,
        is_v5: bool,
        qos: int,
        packet_id: int,
        now: Instant,
        retain: bool,
        dup: bool,
        identifiers: tuple[int, ...],
    ) -> bytes:
        """The packet for one reader. *packet_id* and *dup* matter only for QoS 1 and 2."""
        if dup or identifiers:
            head, tail = self._build(is_v5, qos, retain, dup, identifiers, now)
        else:
            key = (is_v5, qos, retain)
            parts = self._parts.get(key)
            if parts is None:
                parts = self._parts[key] = self._build(is_v5, qos, retain, dup, identifiers, now)
            head, tail = parts
        return head + packet_id.to_bytes(2, "big") + tail if qos else head + tail

    def _build(
        self, is_v5: bool, qos: int, retain: bool, dup: bool, identifiers: tuple[int, ...], now: Instant
    ) -> tuple[bytes, bytes]:
        publication = self._publication
        properties = b""
        if is_v5:
            properties = NO_PROPERTIES
            if publication.properties or identifiers or publication.expires_at is not None:
                properties = encode_properties(_properties(publication, identifiers, now))
        payload = publication.payload
        head = publish_head(self._topic, qos, retain, dup, properties, len(payload), is_v5)
        return head, properties + payload


def _properties(publication: Publication, identifiers: tuple[int, ...], now: Instant) -> Properties:
    """What a reader gets: the publisher's properties, the time left to live [MQTT-3.3.2-6], its own identifiers."""
    properties: Properties = dict(publication.properties or {})
    if publication.expires_at is not None:
        left = max(publication.expires_at - now, 0)
        properties[Property.MESSAGE_EXPIRY_INTERVAL] = -(-left // SECOND)
    if identifiers:
        properties[Property.SUBSCRIPTION_IDENTIFIER] = list(identifiers)
    return properties
