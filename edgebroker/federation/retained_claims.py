"""Claims of retained messages: each topic has one gateway of a cluster that keeps its message, the last one where it
was published or cleared.

A gateway that keeps a message of a topic, or learns that there is none any more, *claims* the topic once, unless the
topic was its own already. A claim is an event of QoS 1 for the other gateways of the cluster, so it waits in outboxes
and is neither lost nor doubled. A gateway that keeps an older message drops it; one with a newer message claims again.

What counts as older is decided by the clocks of the gateways, as far as they agree. To make up for clocks that do not,
a gateway publishes retained messages no earlier than the claims that it has seen: a hybrid clock (Kulkarni et al.,
"Logical Physical Clocks", 2014). A clock that is more than LEAD_MS_MAX ahead moves only gateways that do not know the
time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from edgebroker.errors import HeaderInvalid
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.forwarding import Forwarder
from edgebroker.header import LAYOUT, EventHeader
from edgebroker.instants import CLOCK_IS_SET_AFTER, MILLISECOND, Instant
from edgebroker.overlay.messages import Forward
from edgebroker.topics import TopicFilter

CLAIMS_TOPIC: Final = "$SYS/federation/retained"
"""The topic of the events. Clients can neither publish to it nor get it from another gateway."""
WILLS_TOPIC: Final = "$SYS/federation/wills"
"""The topic of what gateways tell each other of wills (`pending_wills`)."""
SESSIONS_TOPIC: Final = "$SYS/federation/sessions"
"""The topic of what they tell each other of their sessions (`session_directory`)."""
FILES_TOPIC: Final = "$SYS/federation/files"
"""The topic of what they send each other of files (`chunk_exchange`)."""
SITE_FILTER: Final = TopicFilter.parse("$SYS/federation/+")
SUBSCRIPTION: Final = 0
"""The number of the gateway's own subscription to events of its site; those of clients begin with 1."""
ADDRESS_SUBSCRIPTION: Final = -2
"""That to events for this gateway alone."""
LEAD_MS_MAX: Final = 3_600_000
"""An hour: a clock that is further ahead is wrong."""


def address_of(gateway: int) -> str:
    """Return the topic of events that are for the gateway numbered *gateway* alone."""
    return f"$SYS/federation/to/{gateway}"


class GatewayPublisher:
    """Publishes the events of one gateway for other gateways: of QoS 1 or 2, so they wait in outboxes."""

    def __init__(self, forwarder: Forwarder, reserve_number: Callable[[], int], first: int, cluster: int) -> None:
        """reserve_number: gives the number of a publisher, whose events have sequences behind *first*."""
        self._forwarder = forwarder
        self._reserve_number = reserve_number
        self._cluster = cluster
        self._publisher = 0  # numbered with the first event
        self._sequence = first

    def publish(
        self, topic: str, payload: bytes, now_ms: int, now: Instant, is_for_all: bool = False
    ) -> list[SendMessage]:
        """Publish an event at *now_ms*, in milliseconds since 1970. *is_for_all*: for all gateways of the federation,
        not only those of the site.
        """
        forward = self._event(topic, payload, now_ms)
        if is_for_all:
            return self._forwarder.publish(forward, None, now)
        return self._forwarder.publish_inside(forward, now)

    def publish_in_order(
        self, gateway: int, cluster: int, payload: bytes, now_ms: int, now: Instant
    ) -> list[SendMessage]:
        """Publish an event for the gateway with the number *gateway*, in *cluster*, alone: behind earlier ones.

        As events of QoS 2 do, it leaves when it is on disk: so it is not published anew after a crash.
        """
        forward = replace(self._event(address_of(gateway), payload, now_ms), qos=2)
        return self._forwarder.publish_to(forward, cluster, now)

    def publish_to(self, gateway: int, topic: str, payload: bytes, now_ms: int) -> list[SendMessage]:
        """Publish an event for the gateway with the number *gateway* alone. It may overtake others."""
        return self._forwarder.send_to(gateway, self._event(topic, payload, now_ms))

    def _event(self, topic: str, payload: bytes, now_ms: int) -> Forward:
        return Forward(self.next_header(now_ms), topic, payload, 1, False, "")

    def next_header(self, now_ms: int) -> EventHeader:
        """Return the header of the next event, published at *now_ms*."""
        if not self._publisher:
            self._publisher = self._reserve_number()
        self._sequence += 1
        return EventHeader(self._publisher, self._sequence, 0, self._cluster, published_ms=now_ms)


class RetainedClaims:
    """The claims of one gateway."""

    def __init__(self, publisher: GatewayPublisher) -> None:
        self._publisher = publisher
        self._seen_ms = 0
        self.made = 0
        """Claims of this gateway."""

    def earliest_ms(self, now_ms: int) -> int:
        """Return the time at which a retained message is published now, in milliseconds since 1970: *now_ms*, or
        later if a claim is as late as that.
        """
        if self._seen_ms < now_ms:
            return now_ms
        self._seen_ms += 1
        return self._seen_ms

    def claim(self, topic: str, stamp: EventHeader, now_ms: int, now: Instant) -> list[SendMessage]:
        """Claim *topic*, whose message or clearing was published with the header *stamp*."""
        self.made += 1
        return self._publisher.publish(CLAIMS_TOPIC, stamp.pack() + topic.encode(), now_ms, now)

    def read(self, payload: bytes, now_ms: int) -> tuple[str, EventHeader] | None:
        """Return the topic and the stamp of a claim of another gateway; None if it cannot be read."""
        try:
            stamp, topic = EventHeader.unpack(payload[: LAYOUT.size]), payload[LAYOUT.size :].decode()
        except (HeaderInvalid, UnicodeDecodeError):
            return None
        if now_ms < CLOCK_IS_SET_AFTER // MILLISECOND or stamp.published_ms <= now_ms + LEAD_MS_MAX:
            self._seen_ms = max(self._seen_ms, stamp.published_ms)
        return topic, stamp
