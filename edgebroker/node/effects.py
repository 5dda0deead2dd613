"""Effects: all actions that the node asks for, in order. A front end carries them out."""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.names import ClientId
from edgebroker.node.subscriptions import Copy, Subscription


@dataclass(frozen=True, slots=True)
class SubscriptionGrant:
    """A subscription is active. `is_new` is False if it replaced one with the same text."""

    subscription: Subscription
    is_new: bool


@dataclass(frozen=True, slots=True)
class SubscriptionRefusal:
    """A subscription is refused because it would exceed a limit of `edgebroker.limits`."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class SubscriptionEnd:
    """A subscription has ended."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class ClientDeparture:
    """All subscriptions of a client have ended."""

    client: ClientId
    subscriptions: int
    """The number of subscriptions that the client had."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The copies of the accepted publication, one for each receiver; empty if no subscription matches."""

    copies: tuple[Copy, ...]


Effect: TypeAlias = SubscriptionGrant | SubscriptionRefusal | SubscriptionEnd | ClientDeparture | Deliver
