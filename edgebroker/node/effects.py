"""Everything the node can want done, in order. A front end carries it out."""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.names import ClientId
from edgebroker.node.subscriptions import Copy, Subscription


@dataclass(frozen=True, slots=True)
class SubscriptionGrant:
    """A subscription holds from now on. `is_new` is False if it replaced one with the same text."""

    subscription: Subscription
    is_new: bool


@dataclass(frozen=True, slots=True)
class SubscriptionRefusal:
    """A subscription is not granted, because a limit of `edgebroker.limits` would be passed."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class SubscriptionEnd:
    """A subscription holds no longer."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class ClientDeparture:
    """Nothing that a client asked for holds any longer."""

    client: ClientId
    subscriptions: int
    """How many it had."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """One copy of the accepted publication for each receiver; none if nobody wants it."""

    copies: tuple[Copy, ...]


Effect: TypeAlias = SubscriptionGrant | SubscriptionRefusal | SubscriptionEnd | ClientDeparture | Deliver
