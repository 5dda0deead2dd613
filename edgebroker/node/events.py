"""Events: all requests that the node handles. A front end makes them from the packets of its clients."""

from __future__ import annotations

from typing import Any, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters import Filter
from edgebroker.names import ClientId
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A client subscribes. A subscription of the same client with the same *text* is replaced."""

    client: ClientId
    text: str
    """The subscription as the client wrote it, which identifies it."""
    topic_filter: TopicFilter
    filter: Filter | None
    """The content filter; None accepts every event of the topic."""
    qos: int
    no_local: bool
    receiver: Any
    """The front end's object for the subscriber; each Copy refers to it."""
    label: str = ""
    """The name of the subscription in the delivery log; its text if empty."""
    identifier: int = 0
    """The Subscription Identifier that the client chose; copies carry it. 0 means none."""
    retain_as_published: bool = False
    """Whether copies keep the RETAIN flag of the publication."""
    group: str = ""
    """The name of the shared subscription, whose other members have the same topic filter and content filter; "" means
    none.
    """
    account: str = ""
    """Who answers for the group if there is none of the name yet: a user, an address, or a client."""
    was_granted: bool = False
    """Whether it was granted before a restart; then the limits per client do not apply."""


@dataclass(frozen=True, slots=True)
class UnsubscribeRequest:
    """A client ends its subscription *text*."""

    client: ClientId
    text: str


@dataclass(frozen=True, slots=True)
class ClientRemoval:
    """A client's session ends, and with it all its subscriptions."""

    client: ClientId


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A client publishes, or the broker publishes on its behalf (a will)."""

    publication: Publication


Event: TypeAlias = SubscribeRequest | UnsubscribeRequest | ClientRemoval | PublishRequest
