"""Who asked for what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edgebroker.filters import Filter
from edgebroker.names import ClientId, SubscriptionNumber
from edgebroker.topics import TopicFilter


@dataclass(slots=True, eq=False)
class Subscription:
    """One granted subscription. `evaluated` and `matched` count since they were last written to the delivery log."""

    number: SubscriptionNumber
    client: ClientId
    text: str
    topic_filter: TopicFilter
    filter: Filter | None
    qos: int
    no_local: bool
    receiver: Any
    label: str
    identifier: int
    retain_as_published: bool
    evaluated: int = 0
    matched: int = 0


class Copy:
    """One event on its way to one receiver, whatever the number of its subscriptions that want it.

    `qos` is the highest granted; `subscriptions` are all that matched, those without content filter first;
    `identifiers` are those the client gave them.
    """

    __slots__ = ("has_no_local", "identifiers", "label", "qos", "receiver", "retain_as_published", "subscriptions")

    def __init__(self, subscriptions: tuple[Subscription, ...]) -> None:
        self.receiver = subscriptions[0].receiver
        self.subscriptions = subscriptions
        self.label = subscriptions[0].label
        self.qos = max([subscription.qos for subscription in subscriptions])
        self.has_no_local = True in [subscription.no_local for subscription in subscriptions]
        self.retain_as_published = True in [subscription.retain_as_published for subscription in subscriptions]
        self.identifiers = tuple([subscription.identifier for subscription in subscriptions if subscription.identifier])

    def without_own(self, publisher: str) -> Copy | None:
        """This copy without "no local" subscriptions, if the publisher is its receiver. None if nothing is left."""
        if not self.has_no_local or self.subscriptions[0].client != publisher:
            return self
        left = tuple([subscription for subscription in self.subscriptions if not subscription.no_local])
        return Copy(left) if left else None


def copies_of(subscriptions: Iterator[Subscription] | list[Subscription]) -> tuple[Copy, ...]:
    """One copy per receiver, receivers in the order of their first subscription."""
    by_client: dict[str, list[Subscription]] = {}
    for subscription in subscriptions:
        by_client.setdefault(subscription.client, []).append(subscription)
    return tuple(Copy(tuple(own)) for own in by_client.values())


class Subscriptions:
    """All subscriptions, by number and by (client, text)."""

    def __init__(self) -> None:
        self.by_number: dict[int, Subscription] = {}
        self._by_client: dict[ClientId, dict[str, Subscription]] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def of(self, client: ClientId) -> dict[str, Subscription]:
        """The subscriptions of *client* by their text."""
        return self._by_client.get(client, {})

    def next_number(self) -> SubscriptionNumber:
        """A number that was never used before."""
        self._last_number += 1
        return SubscriptionNumber(self._last_number)

    def add(self, subscription: Subscription) -> None:
        """Remember *subscription*; one with the same client and text must have been discarded before."""
        self.by_number[subscription.number] = subscription
        self._by_client.setdefault(subscription.client, {})[subscription.text] = subscription

    def discard(self, client: ClientId, text: str) -> Subscription | None:
        """Forget and return the subscription, None if there is none."""
        own = self._by_client.get(client)
        if own is None or text not in own:
            return None
        subscription = own.pop(text)
        if not own:
            del self._by_client[client]
        del self.by_number[subscription.number]
        return subscription
