"""Everything that can happen to the node. A front end turns what its clients say into these."""

from __future__ import annotations

from typing import Any, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters import Filter
from edgebroker.names import ClientId
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A client asks for events. The same *text* from the same client replaces what it asked before."""

    client: ClientId
    text: str
    """As the client wrote it: the subscription's identity."""
    topic_filter: TopicFilter
    filter: Filter | None
    """The content filter; None takes every event of the topic."""
    qos: int
    no_local: bool
    receiver: Any
    """Where the front end delivers to; returned in every Copy."""
    label: str = ""
    """How the delivery log names the subscription; its text if empty."""
    identifier: int = 0
    """A number of the client's own choice that comes back with every copy; 0 is none."""
    retain_as_published: bool = False
    """Whether copies keep the publication's retain flag."""
    group: str = ""
    """The group it shares with, whose other members ask for the same topics and content; "" is none."""
    was_granted: bool = False
    """It was, before a restart: what a client may have at most does not take it back."""


@dataclass(frozen=True, slots=True)
class UnsubscribeRequest:
    """A client no longer wants what it asked for as *text*."""

    client: ClientId
    text: str


@dataclass(frozen=True, slots=True)
class ClientRemoval:
    """A client will not come back: all it asked for ends."""

    client: ClientId


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A client, or the broker for it (a will), publishes."""

    publication: Publication


Event: TypeAlias = SubscribeRequest | UnsubscribeRequest | ClientRemoval | PublishRequest
