"""A publication as bytes for its readers: encoded once for all readers of the same dialect and QoS."""

from __future__ import annotations

from edgebridge.wire.fields import write_variable
from edgebridge.wire.head import publish_head
from edgebridge.wire.properties import Properties, Property, write_properties
from edgebroker.instants import SECOND, Instant
from edgebroker.publication import Publication

NO_PROPERTIES = b"\0"
OCTETS = [bytes((octet,)) for octet in range(256)]


class PublishEncoder:
    """The PUBLISH packets of one publication. Made when it is routed and forgotten with it."""

    __slots__ = ("_head", "_is_v5", "_publication", "_publisher_properties", "_qos", "_retain", "_tail", "_topic")

    def __init__(self, publication: Publication) -> None:
        self._publication = publication
        self._publisher_properties: bytes | None = None  # the publisher's properties, which take 0.1 us each
        self._topic = b""
        # The last packet's parts, before and after the packet identifier. Most publications have readers of one kind.
        self._qos = -1
        self._is_v5 = False
        self._retain = False
        self._head = b""
        self._tail = b""

    def packet(
        self, is_v5: bool, qos: int, packet_id: int, now: Instant, retain: bool, dup: bool, identifiers: tuple[int, ...]
    ) -> bytes:
        """The packet for one reader. *packet_id* and *dup* matter only for QoS 1 and 2."""
        if dup or identifiers or qos != self._qos or is_v5 is not self._is_v5 or retain is not self._retain:
            self._build(is_v5, qos, retain, dup, identifiers, now)
        if not qos:
            return self._head + self._tail
        return b"".join((self._head, OCTETS[packet_id >> 8], OCTETS[packet_id & 0xFF], self._tail))

    def _build(
        self, is_v5: bool, qos: int, retain: bool, dup: bool, identifiers: tuple[int, ...], now: Instant
    ) -> None:
        publication = self._publication
        if not self._topic:
            self._topic = publication.topic.encode()
        properties = b""
        if is_v5:
            properties = NO_PROPERTIES
            if publication.properties or identifiers or publication.expires_at is not None:
                properties = self.properties(identifiers, now)
        payload = publication.payload
        self._head = publish_head(self._topic, qos, retain, dup, properties, len(payload), is_v5)
        self._tail = properties + payload
        self._qos = -1 if dup or identifiers else qos
        self._is_v5 = is_v5
        self._retain = retain

    def properties(self, identifiers: tuple[int, ...], now: Instant, alias: int = 0) -> bytes:
        """What a reader gets, with its length: the publisher's properties, which are encoded once for all of them, the
        time left to live [MQTT-3.3.2-6], the reader's own identifiers, and the *alias* of the topic if it has one.
        """
        publication = self._publication
        said = self._publisher_properties
        if said is None:
            said = self._publisher_properties = (
                write_properties(publication.properties) if publication.properties else b""
            )
        own: Properties = {}
        if publication.expires_at is not None:
            left = max(publication.expires_at - now, 0)
            own[Property.MESSAGE_EXPIRY_INTERVAL] = -(-left // SECOND)
        if identifiers:
            own[Property.SUBSCRIPTION_IDENTIFIER] = list(identifiers)
        if alias:
            own[Property.TOPIC_ALIAS] = alias
        if own:
            said += write_properties(own)
        return write_variable(len(said)) + said


def verbatim_encoder(publication: Publication, is_v5: bool, head: bytes, tail: bytes) -> PublishEncoder:
    """Of a QoS 1 PUBLISH without DUP, RETAIN and properties: readers of its dialect get the same bytes, *head* before
    the packet identifier and *tail* behind it.
    """
    encoding = PublishEncoder.__new__(PublishEncoder)
    encoding._publication = publication
    encoding._publisher_properties = None
    encoding._topic = b""
    encoding._qos = 1
    encoding._is_v5 = is_v5
    encoding._retain = False
    encoding._head = head
    encoding._tail = tail
    return encoding
