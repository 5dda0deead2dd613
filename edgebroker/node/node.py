"""The node: events go in, and effects come out, all actions that it asks for, in order. A front end carries them out.

The node only dispatches; the modules beside it do the work.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias, assert_never

from edgebroker.dataclasses import dataclass
from edgebroker.filters import Filter
from edgebroker.instants import Instant
from edgebroker.limits import SUBSCRIPTIONS_PER_CLIENT_MAX, TOPIC_BYTES_MAX
from edgebroker.log_schema import PEER_PREFIX
from edgebroker.matching.pst import Pst
from edgebroker.names import ClientId
from edgebroker.node.events import ClientRemoval, Event, PublishRequest, SubscribeRequest, UnsubscribeRequest
from edgebroker.node.ledger import Ledger
from edgebroker.node.minute_counts import MinuteCounts
from edgebroker.node.routes import Routes
from edgebroker.node.shared_groups import SharedGroups
from edgebroker.node.subscriptions import Copy, Subscriber, Subscription, Subscriptions
from edgebroker.node.timers import TIDY, TimerQueue
from edgebroker.predicate import Predicate
from edgebroker.topics import USUAL_CHARS, TopicFilter


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
    is_for_group: bool = False
    """Whether the limit is that of groups of shared subscriptions."""


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


ALWAYS = ((),)
"""The predicates of a subscription without content filter: one that accepts every event."""
TIDY_AT_ONCE: Final = 64
"""Subscriptions removed between two turns: 0.5 ms at 8 us each, well below the 5 ms that an event may wait."""
COUNTS_AT_ONCE: Final = 64
"""Subscriptions whose counts are written between two turns: 0.1 ms, up to 1 ms with a step of the log."""


class SubscriptionListener(Protocol):
    """An observer of the subscriptions, such as the federation."""

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: tuple[Predicate, ...], now: Instant
    ) -> None:
        """React to a new subscription."""

    def unsubscribed(self, number: int, now: Instant) -> None:
        """React to the end of a subscription."""


class Node:
    """One broker without its protocol: subscriptions, routes, accounts and timers."""

    def __init__(self, ledger: Ledger, subscriptions_per_client_max: int = SUBSCRIPTIONS_PER_CLIENT_MAX) -> None:
        self.ledger = ledger
        self.timers = TimerQueue()
        self.tree = Pst()
        self.subscriptions = Subscriptions()
        self.groups = SharedGroups()
        self.routes = Routes(self.tree, self.subscriptions, self.timers)
        self.subscriptions_per_client_max = subscriptions_per_client_max
        self.subscription_listener: SubscriptionListener | None = None

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Handle *event* and return its effects in the order in which they must be carried out."""
        match event:
            case PublishRequest(publication):
                return [Deliver(self.routes.route(publication.topic).accept(publication, self.ledger, now))]
            case SubscribeRequest():
                return self._subscribe(event, now)
            case UnsubscribeRequest(client, text):
                return self._unsubscribe(client, text, now)
            case ClientRemoval(client):
                return self._remove_client(client, now)
            case _:
                assert_never(event)

    def tidy(self, now: Instant) -> None:
        """Do some of the deferred cleanup of subscriptions, routes and counts; sets the timer TIDY for the rest."""
        self._remove_departed(TIDY_AT_ONCE, now)
        self.routes.tidy()
        closed = self.routes.closed
        if closed is not None:
            closed.write(COUNTS_AT_ONCE)
            if closed.is_written:
                self.routes.closed = closed = None
        self.tree.tend()
        if closed is not None or self.tree.is_reordering or not (self.subscriptions.is_tidy and self.routes.is_tidy):
            self.timers.set(TIDY, now + 1)  # a later instant, so that input that is waiting is handled first

    def close_minute(self, now: Instant) -> None:
        """Begin a new minute of counts. Those up to *now* go to the delivery log, if there is one, in steps of
        `tidy`.
        """
        log = self.ledger.log
        if log is None:
            return
        if self.routes.closed is not None:  # `tidy` had no time to finish the previous minute
            self.routes.closed.write_all()
        self.routes.gather()
        self.routes.closed = MinuteCounts(now, log, self.subscriptions.by_number.values())
        self.timers.set(TIDY, now + 1)

    def close_books(self, now: Instant) -> None:
        """As `close_minute`, but write everything at once, because the broker is stopping."""
        self.close_minute(now)
        if self.routes.closed is not None:
            self.routes.closed.write_all()
            self.routes.closed = None

    def _subscribe(self, request: SubscribeRequest, now: Instant) -> list[Effect]:
        subscriptions = self.subscriptions
        own = subscriptions.of(request.client)
        if request.text not in own and not request.was_granted:
            count_max = self.subscriptions_per_client_max
            if len(own) >= count_max:
                return [SubscriptionRefusal(request.text, f"a client has at most {count_max} subscriptions")]
            chars_max = max(count_max * USUAL_CHARS, TOPIC_BYTES_MAX)
            if subscriptions.chars_of(request.client) + len(request.text) > chars_max:
                return [
                    SubscriptionRefusal(
                        request.text, f"all subscriptions of a client have at most {chars_max:,} characters"
                    )
                ]
            if request.group and not self.groups.may_join(request.group, request.account):
                most = self.groups.per_account_max
                return [
                    SubscriptionRefusal(
                        request.text, f"one user or address makes at most {most} groups of shared subscriptions", True
                    )
                ]
        if not subscriptions.is_tidy:  # removing two for each new one bounds the backlog of reconnecting clients
            self._remove_departed(2, now)
        self.routes.gather()
        replaced = self._discard(request.client, request.text, now)
        predicates = ALWAYS if request.filter is None else request.filter.predicates
        subscription = Subscription(
            subscriptions.next_number(),
            subscriptions.subscriber(request.client),
            request.text,
            not all(predicates),
            request.qos,
            request.no_local,
            request.receiver,
            request.label or request.text,
            request.identifier,
            request.retain_as_published,
        )
        subscription.begin(self.tree.insert(subscription.number, request.topic_filter, predicates))
        subscriptions.add(subscription)
        if request.group:
            self.groups.join(request.group, subscription, request.account)
        self.routes.follow()
        if self.tree.is_reordering:
            self.timers.set(TIDY, now + 1)
        if self.subscription_listener is not None:
            self.subscription_listener.subscribed(subscription.number, request.topic_filter, predicates, now)
        return [SubscriptionGrant(subscription, is_new=replaced is None)]

    def add_gateway(self, name: str, topic_filter: TopicFilter, filter: Filter | None, receiver: Any) -> Subscription:
        """Let another gateway, *receiver*, be a member of the group *name*, which is shared over the federation."""
        self.routes.gather()
        predicates = ALWAYS if filter is None else filter.predicates
        subscriptions, subscriber = self.subscriptions, Subscriber(ClientId(PEER_PREFIX + receiver.name))
        subscription = Subscription(
            subscriptions.next_number(), subscriber, name, not all(predicates), 2, False, receiver, name, 0, True
        )
        subscription.begin(self.tree.insert(subscription.number, topic_filter, predicates))
        subscriptions.add(subscription)
        self.groups.join_remote(name, subscription)
        subscriptions.remote += 1
        self.routes.has_remote_members = True
        self.routes.forget()  # also where the tree is as before: fan-outs of these topics take another path now
        return subscription

    def remove_gateway(self, subscription: Subscription) -> None:
        """End what `add_gateway` returned."""
        self.routes.gather()
        self.subscriptions.by_number.pop(subscription.number)
        self.tree.remove(subscription.number)
        self.groups.leave(subscription)
        self._finish(subscription)
        self.subscriptions.remote -= 1
        self.routes.has_remote_members = self.subscriptions.remote > 0
        self.routes.follow()

    def _unsubscribe(self, client: ClientId, text: str, now: Instant) -> list[Effect]:
        self.routes.gather()
        subscription = self._discard(client, text, now)
        self.routes.follow()
        return [] if subscription is None else [SubscriptionEnd(subscription)]

    def _remove_client(self, client: ClientId, now: Instant) -> list[Effect]:
        """End all subscriptions of *client* at once; they are removed from the tree in steps of `tidy`."""
        was_tidy = self.subscriptions.is_tidy
        self.routes.gather()
        subscriber = self.subscriptions.remove_client(client)
        if subscriber is None:
            return []
        count = len(subscriber.by_text)
        if self.ledger.log is not None:  # later events of their topics must not be counted for them
            for subscription in subscriber.by_text.values():
                self._finish(subscription)
        self.routes.forget()  # routes contain plain subscriptions; a new route leaves out those that are gone
        if was_tidy:  # otherwise the timer TIDY is already set
            self.tidy(now)
        return [ClientDeparture(client, count)]

    def _remove_departed(self, count: int, now: Instant) -> None:
        self.routes.gather()
        for subscription in self.subscriptions.take_departed(count):
            self._remove(subscription, now)
        self.routes.follow()

    def _discard(self, client: ClientId, text: str, now: Instant) -> Subscription | None:
        subscription = self.subscriptions.discard(client, text)
        if subscription is not None:
            self._remove(subscription, now)
        return subscription

    def _remove(self, subscription: Subscription, now: Instant) -> None:
        self.tree.remove(subscription.number)
        self.groups.leave(subscription)
        if self.subscription_listener is not None:
            self.subscription_listener.unsubscribed(subscription.number, now)
        self._finish(subscription)
        evaluated, matched = subscription.take_counts()
        log = self.ledger.log
        if log is not None and evaluated:
            log.selectivity(now, subscription.client, subscription.label, evaluated, matched)

    def _finish(self, subscription: Subscription) -> None:
        """Stop counting for *subscription*; its counts of a closed minute are saved first."""
        if self.routes.closed is not None:
            self.routes.closed.save_subscription(subscription)
        subscription.finish()
