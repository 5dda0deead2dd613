"""A tree filled with the subscriptions of a file, and what it cost to fill it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter_ns
from typing import TypeAlias

from edgebroker.matching.pst import Pst
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter

from .durations import Durations
from .lines import Subscription

CHUNK = 1_000
"""Subscriptions read before they are inserted: the memory of a million parsed filters is not needed at once."""

REMOVED_SHARE = 0.1
REMOVED_SEED = 1

_Insertion: TypeAlias = tuple[int, TopicFilter, tuple[Predicate, ...], int]
"""The arguments of `Pst.insert`."""


@dataclass(slots=True)
class Installation:
    """The tree, and the duration of every change. In the tree a subscription's number is its place in `ids`, from 1."""

    tree: Pst
    ids: list[int] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    """The link of every subscription, in the order of `ids`."""
    link_count: int = 0
    inserting: Durations = field(default_factory=Durations)
    removing: Durations = field(default_factory=Durations)
    reinserting: Durations = field(default_factory=Durations)

    @property
    def mask(self) -> int:
        """Every link, one bit each."""
        return (1 << self.link_count) - 1


def install(
    tree: Pst, subscriptions: Iterable[Subscription], link_count: int | None, tell: Callable[[int], None]
) -> Installation:
    """Insert *subscriptions* into the empty *tree*, remove a tenth of them and insert it again.

    A subscription without link gets one: 0, 1, 2, ... in turn if *link_count* says how many there are, else 0.
    *tell* gets the number of subscriptions that are in the tree, now and then.
    """
    installed = Installation(tree, link_count=link_count or 1)
    chance = random.Random(REMOVED_SEED)
    coming_back: list[_Insertion] = []
    for chunk in chunks(insertions(subscriptions, installed, link_count)):
        insert(installed.tree, chunk, installed.inserting)
        coming_back += [one for one in chunk if one[0] == 1 or chance.random() < REMOVED_SHARE]
        tell(len(installed.ids))
    chance.shuffle(coming_back)
    remove(installed.tree, [number for number, *_ in coming_back], installed.removing)
    insert(installed.tree, coming_back, installed.reinserting)
    return installed


def insertions(
    subscriptions: Iterable[Subscription], installed: Installation, link_count: int | None
) -> Iterator[_Insertion]:
    """Number *subscriptions*, and enter into *installed* who they are."""
    without_link = 0
    for subscription in subscriptions:
        link = subscription.link
        if link is None:
            link = without_link % link_count if link_count else 0
            without_link += 1
        installed.link_count = max(installed.link_count, link + 1)
        installed.ids.append(subscription.id)
        installed.links.append(link)
        yield len(installed.ids), subscription.topic_filter, subscription.predicates, link


def chunks(insertions: Iterator[_Insertion]) -> Iterator[list[_Insertion]]:
    """The insertions in lists of CHUNK."""
    while chunk := list(islice(insertions, CHUNK)):
        yield chunk


def insert(tree: Pst, insertions: Iterable[_Insertion], spent: Durations) -> None:
    """Time each insertion by itself."""
    keep, clock, insert_one = spent.ns.append, perf_counter_ns, tree.insert
    for number, topic_filter, predicates, link in insertions:
        began = clock()
        insert_one(number, topic_filter, predicates, link)
        keep(clock() - began)


def remove(tree: Pst, numbers: Iterable[int], spent: Durations) -> None:
    """Time each removal by itself."""
    keep, clock, remove_one = spent.ns.append, perf_counter_ns, tree.remove
    for number in numbers:
        began = clock()
        remove_one(number)
        keep(clock() - began)
