"""The node: events in, effects out. It only dispatches; the nouns beside it do the work."""

from __future__ import annotations

from typing import assert_never

from edgebroker.instants import Instant
from edgebroker.limits import SUBSCRIPTIONS_PER_CLIENT_MAX
from edgebroker.matching.pst import Pst
from edgebroker.names import ClientId
from edgebroker.node.effects import Deliver, Effect, Ended, Granted, Refused
from edgebroker.node.events import ClientGone, Event, Published, Subscribed, Unsubscribed
from edgebroker.node.ledger import Ledger
from edgebroker.node.routes import Routes
from edgebroker.node.subscriptions import Subscription, Subscriptions
from edgebroker.node.timers import Timers

ALWAYS = ((),)
"""The predicates of a subscription without content filter: one that accepts every event."""


class Node:
    """One broker without its protocol: subscriptions, routes, accounts and deadlines."""

    def __init__(self, ledger: Ledger, subscriptions_per_client_max: int = SUBSCRIPTIONS_PER_CLIENT_MAX) -> None:
        self.ledger = ledger
        self.timers = Timers()
        self.tree = Pst()
        self.subscriptions = Subscriptions()
        self.routes = Routes(self.tree, self.subscriptions)
        self._per_client_max = subscriptions_per_client_max

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """What *event* leads to, in the order in which it must be done."""
        match event:
            case Published(publication):
                return [Deliver(self.routes.route(publication.topic).accept(publication, self.ledger, now))]
            case Subscribed():
                return self._subscribe(event, now)
            case Unsubscribed(client, text):
                return self._unsubscribe(client, [text], now)
            case ClientGone(client):
                return self._unsubscribe(client, list(self.subscriptions.of(client)), now)
            case _:
                assert_never(event)

    def close_minute(self, now: Instant) -> None:
        """Write the selectivity of all subscriptions to the delivery log and begin to count anew."""
        self.routes.gather()
        for subscription in self.subscriptions.by_number.values():
            self._write_selectivity(subscription, now)

    def _subscribe(self, wanted: Subscribed, now: Instant) -> list[Effect]:
        own = self.subscriptions.of(wanted.client)
        if len(own) >= self._per_client_max and wanted.text not in own:
            return [Refused(wanted.text, f"a client has at most {self._per_client_max} subscriptions")]
        self.routes.forget()
        replaced = self._take_out(wanted.client, wanted.text, now)
        subscription = Subscription(
            self.subscriptions.next_number(),
            wanted.client,
            wanted.text,
            wanted.topic_filter,
            wanted.filter,
            wanted.qos,
            wanted.no_local,
            wanted.receiver,
            wanted.label or wanted.text,
            wanted.identifier,
            wanted.retain_as_published,
        )
        self.subscriptions.add(subscription)
        predicates = ALWAYS if wanted.filter is None else wanted.filter.predicates
        self.tree.insert(subscription.number, wanted.topic_filter, predicates)
        return [Granted(subscription, is_new=replaced is None)]

    def _unsubscribe(self, client: ClientId, texts: list[str], now: Instant) -> list[Effect]:
        if texts:
            self.routes.forget()
        ended = (self._take_out(client, text, now) for text in texts)
        return [Ended(subscription) for subscription in ended if subscription is not None]

    def _take_out(self, client: ClientId, text: str, now: Instant) -> Subscription | None:
        subscription = self.subscriptions.discard(client, text)
        if subscription is not None:
            self.tree.remove(subscription.number)
            self._write_selectivity(subscription, now)
        return subscription

    def _write_selectivity(self, subscription: Subscription, now: Instant) -> None:
        log = self.ledger.log
        if log is not None and subscription.evaluated:
            log.selectivity(now, subscription.client, subscription.label, subscription.evaluated, subscription.matched)
        subscription.evaluated = subscription.matched = 0
