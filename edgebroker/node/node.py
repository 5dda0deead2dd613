"""The node: events in, effects out. It only dispatches; the nouns beside it do the work."""

from __future__ import annotations

from typing import Final, Protocol, assert_never

from edgebroker.instants import Instant
from edgebroker.limits import SUBSCRIPTIONS_PER_CLIENT_MAX, TOPIC_BYTES_MAX
from edgebroker.matching.pst import Pst
from edgebroker.names import ClientId
from edgebroker.node.effects import (
    ClientDeparture,
    Deliver,
    Effect,
    SubscriptionEnd,
    SubscriptionGrant,
    SubscriptionRefusal,
)
from edgebroker.node.events import ClientRemoval, Event, PublishRequest, SubscribeRequest, UnsubscribeRequest
from edgebroker.node.ledger import Ledger
from edgebroker.node.minute_counts import MinuteCounts
from edgebroker.node.routes import Routes
from edgebroker.node.shared_groups import SharedGroups
from edgebroker.node.subscriptions import Subscription, Subscriptions
from edgebroker.node.timers import TIDY, TimerQueue
from edgebroker.predicate import Predicate
from edgebroker.topics import USUAL_CHARS, TopicFilter

ALWAYS = ((),)
"""The predicates of a subscription without content filter: one that accepts every event."""
TIDY_AT_ONCE: Final = 64
"""Subscriptions taken out between two turns: 0.5 ms at 8 us each, well below the 5 ms that an event may wait."""
COUNTS_AT_ONCE: Final = 64
"""Subscriptions whose counts are written between two turns: 0.1 ms, up to 1 ms with a step of the log."""


class SubscriptionListener(Protocol):
    """Who is told which subscriptions there are."""

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: tuple[Predicate, ...], now: Instant
    ) -> None:
        """One holds."""

    def unsubscribed(self, number: int, now: Instant) -> None:
        """One ended."""


class Node:
    """One broker without its protocol: subscriptions, routes, accounts and deadlines."""

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
        """What *event* leads to, in the order in which it must be done."""
        match event:
            case PublishRequest(publication):
                return [Deliver(self.routes.route(publication.topic).accept(publication, self.ledger, now))]
            case SubscribeRequest():
                return self._subscribe(event, now)
            case UnsubscribeRequest(client, text):
                return self._unsubscribe(client, text, now)
            case ClientRemoval(client):
                return self._part(client, now)
            case _:
                assert_never(event)

    def tidy(self, now: Instant) -> None:
        """Do some of what changes, clients, routes and minutes left to do; the timer TIDY rings for the rest."""
        self._take_left(TIDY_AT_ONCE, now)
        self.routes.tidy()
        closed = self.routes.closed
        if closed is not None:
            closed.write(COUNTS_AT_ONCE)
            if closed.is_written:
                self.routes.closed = closed = None
        self.tree.tend()
        if closed is not None or self.tree.is_reordering or not (self.subscriptions.is_tidy and self.routes.is_tidy):
            self.timers.set(TIDY, now + 1)  # a later instant: what waits in the world's queues comes first

    def close_minute(self, now: Instant) -> None:
        """Count anew. What was counted until *now* goes to the delivery log, if there is one, as `tidy` is called."""
        log = self.ledger.log
        if log is None:
            return
        if self.routes.closed is not None:  # there was no time for the minute before: now it must be
            self.routes.closed.write_all()
        self.routes.gather()
        self.routes.closed = MinuteCounts(now, log, self.subscriptions.by_number.values())
        self.timers.set(TIDY, now + 1)

    def close_books(self, now: Instant) -> None:
        """As `close_minute`, and write it at once: nobody waits any more."""
        self.close_minute(now)
        if self.routes.closed is not None:
            self.routes.closed.write_all()
            self.routes.closed = None

    def _subscribe(self, wanted: SubscribeRequest, now: Instant) -> list[Effect]:
        subscriptions = self.subscriptions
        own = subscriptions.of(wanted.client)
        if wanted.text not in own and not wanted.was_granted:
            most = self.subscriptions_per_client_max
            if len(own) >= most:
                return [SubscriptionRefusal(wanted.text, f"a client has at most {most} subscriptions")]
            chars = max(most * USUAL_CHARS, TOPIC_BYTES_MAX)
            if subscriptions.chars_of(wanted.client) + len(wanted.text) > chars:
                return [
                    SubscriptionRefusal(wanted.text, f"all subscriptions of a client have at most {chars:,} characters")
                ]
        if not subscriptions.is_tidy:  # two go for each that comes: clients that go and come do not pile them up
            self._take_left(2, now)
        self.routes.gather()
        replaced = self._take_out(wanted.client, wanted.text, now)
        predicates = ALWAYS if wanted.filter is None else wanted.filter.predicates
        subscription = Subscription(
            subscriptions.next_number(),
            subscriptions.subscriber(wanted.client),
            wanted.text,
            not all(predicates),
            wanted.qos,
            wanted.no_local,
            wanted.receiver,
            wanted.label or wanted.text,
            wanted.identifier,
            wanted.retain_as_published,
        )
        subscription.begin(self.tree.insert(subscription.number, wanted.topic_filter, predicates))
        subscriptions.add(subscription)
        if wanted.group:
            self.groups.join(wanted.group, subscription)
        self.routes.follow()
        if self.tree.is_reordering:
            self.timers.set(TIDY, now + 1)
        if self.subscription_listener is not None:
            self.subscription_listener.subscribed(subscription.number, wanted.topic_filter, predicates, now)
        return [SubscriptionGrant(subscription, is_new=replaced is None)]

    def _unsubscribe(self, client: ClientId, text: str, now: Instant) -> list[Effect]:
        self.routes.gather()
        subscription = self._take_out(client, text, now)
        self.routes.follow()
        return [] if subscription is None else [SubscriptionEnd(subscription)]

    def _part(self, client: ClientId, now: Instant) -> list[Effect]:
        """End everything *client* asked for at once; the tree is tidied by and by."""
        was_tidy = self.subscriptions.is_tidy
        self.routes.gather()
        subscriber = self.subscriptions.part(client)
        if subscriber is None:
            return []
        count = len(subscriber.by_text)
        if self.ledger.log is not None:  # what comes to their topics from now on is not for them
            for subscription in subscriber.by_text.values():
                self._finish(subscription)
        self.routes.forget()  # plain subscriptions stand in routes; `is_gone` is looked at when a route is made
        if was_tidy:  # otherwise the timer is set
            self.tidy(now)
        return [ClientDeparture(client, count)]

    def _take_left(self, count: int, now: Instant) -> None:
        self.routes.gather()
        for subscription in self.subscriptions.take_left(count):
            self._uproot(subscription, now)
        self.routes.follow()

    def _take_out(self, client: ClientId, text: str, now: Instant) -> Subscription | None:
        subscription = self.subscriptions.discard(client, text)
        if subscription is not None:
            self._uproot(subscription, now)
        return subscription

    def _uproot(self, subscription: Subscription, now: Instant) -> None:
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
        """Let *subscription* count no more; what it counted in a minute that is over is still written as of then."""
        if self.routes.closed is not None:
            self.routes.closed.save_subscription(subscription)
        subscription.finish()
