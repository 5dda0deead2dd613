"""Subscriptions of all clients, and copies: one event on its way to one receiver."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from edgebroker.names import ClientId, SubscriptionNumber

if TYPE_CHECKING:
    from edgebroker.matching.ends import End

NOTHING: Final[Mapping[str, Subscription]] = MappingProxyType({})


class Subscriber:
    """A client and its subscriptions, from its first subscription until its session ends."""

    __slots__ = ("by_text", "chars", "client", "is_gone")

    def __init__(self, client: ClientId) -> None:
        self.client = client
        self.by_text: dict[str, Subscription] = {}
        self.chars = 0
        """The total length of all texts in `by_text`."""
        self.is_gone = False
        """Whether its session has ended: it gets no copies, but the tree may still contain its subscriptions."""


class Subscription:
    """One granted subscription. Its content filter is only in the search tree, which needs less memory than a `Filter`.

    `is_plain`: it has no content filter, or one that accepts everything.
    """

    __slots__ = (
        "_alone",
        "_end",
        "_events",
        "_is_plain",
        "client",
        "group",
        "identifier",
        "label",
        "matched",
        "no_local",
        "number",
        "qos",
        "receiver",
        "retain_as_published",
        "subscriber",
        "text",
    )

    def __init__(
        self,
        number: SubscriptionNumber,
        subscriber: Subscriber,
        text: str,
        is_plain: bool,
        qos: int,
        no_local: bool,
        receiver: Any,
        label: str,
        identifier: int,
        retain_as_published: bool,
    ) -> None:
        self.number = number
        self.subscriber = subscriber
        self.client = subscriber.client
        self.text = text
        self.qos = qos
        self.no_local = no_local
        self.receiver = receiver
        self.label = label
        self.identifier = identifier
        self.retain_as_published = retain_as_published
        self.group: Any = None
        """The `SharedGroup` it is a member of, or None. A member gets only the copies that its group assigns to it."""
        self.matched = 0
        """Publications that its content filter accepted since the last `take_counts`."""
        self._end: End | None = None
        self._events = 0  # events of the end that do not count here: before `begin`, or already taken
        self._is_plain = is_plain
        self._alone: Copy | None = None

    def begin(self, end: End) -> None:
        """Count the events of *end*, that of its topic filter, from now on."""
        self._end = end
        self._events = end.events

    def finish(self) -> None:
        """Stop counting; `take_counts` still returns the counts up to now."""
        if self._end is not None:
            self._events -= self._end.events
            self._end = None
        self._alone = None  # breaks the reference cycle

    def take_counts(self, before: dict[End, int] | None = None) -> tuple[int, int]:
        """Return the publications whose topic matched, and how many of those the content filter accepted, since the
        last call.

        before: the event counts of ends at the end of a minute, for those ends that have had events since; events after
        that moment are left for the next call.
        """
        end = self._end
        events = 0 if end is None else end.events if before is None else before.get(end, end.events)
        evaluated, self._events = events - self._events, events
        matched, self.matched = self.matched, 0
        return evaluated, evaluated if self._is_plain else matched

    def alone(self) -> Copy:
        """Return the copy for a receiver without other matching subscriptions. It is created once, because most copies
        are such.
        """
        if self._alone is None:
            self._alone = Copy((self,))
        return self._alone


class Copy:
    """One event for one receiver, however many of its subscriptions match.

    `qos` is the highest granted QoS; `subscriptions` are all that matched, those without content filter first;
    `identifiers` are their Subscription Identifiers.
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
        """Return this copy without "no local" subscriptions if *publisher* is its receiver. None if no subscription is
        left.
        """
        if not self.has_no_local or self.subscriptions[0].client != publisher:
            return self
        left = tuple([subscription for subscription in self.subscriptions if not subscription.no_local])
        return Copy(left) if left else None


def reach(copies: dict[ClientId, Copy], accepting: list[Subscription]) -> None:
    """Add the subscriptions *accepting* to *copies*, one copy for each client. New clients are added last, in order."""
    several: dict[ClientId, list[Subscription]] = {}
    for subscription in accepting:
        client = subscription.client
        copy = copies.get(client)
        if copy is None:
            copies[client] = subscription.alone()
        elif client in several:
            several[client].append(subscription)
        else:
            several[client] = [*copy.subscriptions, subscription]
    for client, matching in several.items():
        copies[client] = Copy(tuple(matching))


class Subscriptions:
    """All subscriptions, by number and by (client, text)."""

    def __init__(self) -> None:
        self.by_number: dict[int, Subscription] = {}
        self.remote = 0
        """Of these, those by which other gateways are members of groups."""
        self._subscribers: dict[ClientId, Subscriber] = {}
        self._gone: list[Subscriber] = []
        self._last_number = 0

    def __len__(self) -> int:
        """Return the number of subscriptions of clients."""
        return len(self.by_number) - self.remote

    @property
    def is_tidy(self) -> bool:
        """Whether no removed client has subscriptions left."""
        return not self._gone

    def of(self, client: ClientId) -> Mapping[str, Subscription]:
        """Return the subscriptions of *client* by their text."""
        subscriber = self._subscribers.get(client)
        return NOTHING if subscriber is None else subscriber.by_text

    def chars_of(self, client: ClientId) -> int:
        """Return the total length of the texts of all subscriptions of *client*."""
        subscriber = self._subscribers.get(client)
        return 0 if subscriber is None else subscriber.chars

    def subscriber(self, client: ClientId) -> Subscriber:
        """Return the entry of *client*, created if there is none."""
        subscriber = self._subscribers.get(client)
        if subscriber is None:
            subscriber = self._subscribers[client] = Subscriber(client)
        return subscriber

    def next_number(self) -> SubscriptionNumber:
        """Return a new number, never used before."""
        self._last_number += 1
        return SubscriptionNumber(self._last_number)

    def add(self, subscription: Subscription) -> None:
        """Add *subscription*; one with the same client and text must have been discarded before."""
        self.by_number[subscription.number] = subscription
        subscription.subscriber.by_text[subscription.text] = subscription
        subscription.subscriber.chars += len(subscription.text)

    def discard(self, client: ClientId, text: str) -> Subscription | None:
        """Remove and return the subscription, None if there is none."""
        subscriber = self._subscribers.get(client)
        if subscriber is None or text not in subscriber.by_text:
            return None
        subscription = subscriber.by_text.pop(text)
        subscriber.chars -= len(text)
        if not subscriber.by_text:
            del self._subscribers[client]
        del self.by_number[subscription.number]
        return subscription

    def remove_client(self, client: ClientId) -> Subscriber | None:
        """Mark *client* as gone and return its entry; None if it has no subscriptions.

        Its subscriptions remain in `by_number` until `take_departed` has returned them.
        """
        subscriber = self._subscribers.pop(client, None)
        if subscriber is not None:
            subscriber.is_gone = True
            self._gone.append(subscriber)
        return subscriber

    def take_departed(self, count: int) -> list[Subscription]:
        """Remove and return up to *count* subscriptions of removed clients."""
        taken: list[Subscription] = []
        while self._gone and len(taken) < count:
            left = self._gone[-1].by_text
            while left and len(taken) < count:
                subscription = left.popitem()[1]
                del self.by_number[subscription.number]
                taken.append(subscription)
            if not left:
                self._gone.pop()
        return taken
