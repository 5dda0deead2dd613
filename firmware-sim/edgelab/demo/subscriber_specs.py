"""The subscriptions of the demo: by topic and by content, in both carriers, both versions and every QoS."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from edgebridge.session.subscription_text import WHERE_PROPERTY, encode_subscription
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.packets import SubscriptionOption
from edgebridge.wire.properties import Properties, Property
from edgebroker.filters import Filter
from edgebroker.topics import TopicFilter


class FilterCarrier(Enum):
    """The place of a content filter in a SUBSCRIBE packet."""

    TOPIC = "$filter/"
    PROPERTY = WHERE_PROPERTY


@dataclass(frozen=True, slots=True)
class SubscriberSpec:
    """One subscription. An empty `where` selects every message of the topic; otherwise `carrier` is the place of the
    filter.
    """

    name: str
    topic: str
    qos: int
    dialect: Dialect
    where: str = ""
    carrier: FilterCarrier = FilterCarrier.TOPIC
    topic_filter: TopicFilter = field(init=False, repr=False)
    content_filter: Filter | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topic_filter", TopicFilter.parse(self.topic))
        object.__setattr__(self, "content_filter", Filter.parse(self.where) if self.where else None)

    @property
    def option(self) -> SubscriptionOption:
        """Return the entry of SUBSCRIBE."""
        in_topic = self.where and self.carrier is FilterCarrier.TOPIC
        return SubscriptionOption(encode_subscription(self.where, self.topic) if in_topic else self.topic, self.qos)

    @property
    def properties(self) -> Properties:
        """Return the properties of SUBSCRIBE."""
        in_property = self.where and self.carrier is FilterCarrier.PROPERTY
        return {Property.USER_PROPERTY: [(WHERE_PROPERTY, self.where)]} if in_property else {}

    @property
    def manner(self) -> str:
        """Return the carrier, the version and the QoS as text."""
        return f"QoS {self.qos}, MQTT {self.dialect.version}" + (f", {self.carrier.value}" if self.where else "")


SUBSCRIBER_SPECS: Final = (
    SubscriberSpec("everything", "#", 1, V5),
    SubscriberSpec("warm", "cold-chain/#", 1, V311, "temperature > 8"),
    SubscriberSpec(
        "truck-3", "cold-chain/#", 0, V5, "$level2 = 'truck-3' AND humidity BETWEEN 40 AND 60", FilterCarrier.PROPERTY
    ),
    SubscriberSpec("host", "host/#", 1, V311, "cpu_percent >= 0"),
    SubscriberSpec("exactly once", "cold-chain/#", 2, V5, "door_open OR battery < 70", FilterCarrier.PROPERTY),
)
