"""Topic aliases towards a client (MQTT 5.0 section 3.3.2.3.4): a topic that the client knows takes three bytes."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.encoding import PublishEncoder
from edgebridge.session.footprint import alias_bytes
from edgebridge.wire.head import publish_head
from edgebroker.instants import Instant
from edgebroker.limits import TOPIC_ALIAS_BYTES_MAX
from edgebroker.publication import Publication

TOPIC_BYTES_MIN: Final = 8  # an alias costs three bytes with every message, so shorter topics gain next to nothing


class OutboundTopicAliases:
    """The aliases of one connection. The first topics get them and keep them, `most` of them, in
    TOPIC_ALIAS_BYTES_MAX together.

    Whole runs of QoS 0 are copied as they came, with their topics; everything else that is sent passes here.
    """

    __slots__ = ("_known", "held_bytes", "maximum")

    def __init__(self, most: int) -> None:
        self.maximum = most
        self._known: dict[str, int] = {}
        self.held_bytes = 0
        """The footprint of all aliases."""

    def __len__(self) -> int:
        return len(self._known)

    def topic(self, alias: int) -> str:
        """What *alias* stands for; "" if for nothing. Looks at all of them: for somebody who watches."""
        return next((topic for topic, known in self._known.items() if known == alias), "")

    def encode(
        self,
        publication: Publication,
        encoding: PublishEncoder,
        qos: int,
        packet_id: int,
        now: Instant,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> bytes:
        """The packet for this client; say `sent` if it is sent. *encoding*: that of *publication*."""
        topic = publication.topic
        alias = self._known.get(topic, 0)
        octets = b"" if alias else topic.encode()
        if not alias and self._has_room(topic):
            alias = len(self._known) + 1
        encoded = encoding.properties(identifiers, now, alias)
        payload = publication.payload
        head = publish_head(octets, qos, retain, False, encoded, len(payload), True)
        return head + (packet_id.to_bytes(2, "big") if qos else b"") + encoded + payload

    def sent(self, topic: str) -> None:
        """A packet with *topic* is on its way: from now on the client knows its alias."""
        if topic not in self._known and self._has_room(topic):
            self._known[topic] = len(self._known) + 1
            self.held_bytes += alias_bytes(topic)

    def _has_room(self, topic: str) -> bool:
        return (
            len(self._known) < self.maximum
            and len(topic) >= TOPIC_BYTES_MIN
            and self.held_bytes + alias_bytes(topic) <= TOPIC_ALIAS_BYTES_MAX
        )
