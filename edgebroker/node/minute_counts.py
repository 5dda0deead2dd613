"""The counts of subscriptions at the end of a minute, until all of them are in the delivery log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgebroker.instants import Instant
from edgebroker.matching.ends import End
from edgebroker.node.subscriptions import Subscription

if TYPE_CHECKING:
    from edgebroker.storage.deliverylog.writer import DeliveryLog


class MinuteCounts:
    """The counts of all subscriptions as they were at the instant `at`, until each is written.

    Nothing is copied then: that would take 0.2 us for each, 20 ms for 100,000. Instead, who is about to change a count
    says so before: `keep` for those of ends, `hold` for those of a subscription.
    """

    __slots__ = ("_events", "_held", "_last", "_log", "_next", "_subscriptions", "_written", "at")

    def __init__(self, at: Instant, log: DeliveryLog, subscriptions: Iterable[Subscription]) -> None:
        """subscriptions: all there are, by ascending number; what came to their ends has been gathered."""
        self.at = at
        self._log = log
        self._subscriptions = list(subscriptions)
        self._next = 0
        self._written = 0  # the number of the last subscription written, and of the last to be written
        self._last = self._subscriptions[-1].number if self._subscriptions else 0
        self._events: dict[End, int] = {}
        self._held: dict[int, tuple[int, int]] = {}

    @property
    def is_written(self) -> bool:
        """Whether nothing is left to do."""
        return self._next >= len(self._subscriptions)

    def save_ends(self, ends: Iterable[End]) -> None:
        """More events are about to be told to *ends*."""
        for end in ends:
            self._events.setdefault(end, end.events)

    def save_subscription(self, subscription: Subscription) -> None:
        """*subscription* is about to count, or to finish."""
        number = subscription.number
        if self._written < number <= self._last and number not in self._held:
            self._held[number] = subscription.take_counts(self._events)

    def write(self, count: int) -> None:
        """Look at the next *count* subscriptions; those to which nothing came are passed over."""
        for subscription in self._subscriptions[self._next : self._next + count]:
            self._next += 1
            self._written = subscription.number
            held = self._held.pop(subscription.number, None)
            evaluated, matched = subscription.take_counts(self._events) if held is None else held
            if evaluated:
                self._log.selectivity(self.at, subscription.client, subscription.label, evaluated, matched)

    def write_all(self) -> None:
        """Write what is left. For who need not hurry: 10,000 subscriptions take 20 ms."""
        self.write(len(self._subscriptions))
