"""Announcing every interest, whether another one covers it or not: as published [SCOT 2.4], and cheap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgebroker.filters.announcement import Change
from edgebroker.interest import Interest
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter


class Uncovered:
    """As `filters.announcement.Announced`, but nothing is hidden: the interests that some subscription has."""

    def __init__(self) -> None:
        self._holders: dict[Interest, int] = {}
        self._subscriptions: dict[int, tuple[Interest, ...]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._subscriptions

    @property
    def interests(self) -> tuple[Interest, ...]:
        """All that is announced, the oldest first."""
        return tuple(self._holders)

    def items(self) -> Iterator[tuple[int, tuple[Interest, ...]]]:
        """The subscriptions, the oldest first, with their interests."""
        yield from self._subscriptions.items()

    def add(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> Change:
        """Take in subscription *number*, whose filter is any of *predicates*. Raises ValueError: it is taken."""
        if number in self._subscriptions:
            raise ValueError(f"subscription {number} is announced already")
        interests = tuple(dict.fromkeys(Interest(topic_filter, predicate) for predicate in predicates))
        self._subscriptions[number] = interests
        new = tuple(one for one in interests if one not in self._holders)
        for one in interests:
            self._holders[one] = self._holders.get(one, 0) + 1
        return Change(announce=new)

    def remove(self, number: int) -> Change:
        """Let subscription *number* go. Raises KeyError: there is none."""
        gone = []
        for one in self._subscriptions.pop(number):
            self._holders[one] -= 1
            if not self._holders[one]:
                del self._holders[one]
                gone.append(one)
        return Change(withdraw=tuple(gone))
