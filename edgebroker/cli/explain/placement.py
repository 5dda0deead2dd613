"""The tree of all subscriptions of a file, and the place of one subscription in it with its cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.explain.terms import counted, predicate_text, sentence
from edgebroker.cli.subscription_file import FileSubscription, Installation, JsonLinesFile, insertions
from edgebroker.filters import Filter
from edgebroker.matching.placement import PathStep, Placement, SettlementKind, placements
from edgebroker.matching.pst import Pst
from edgebroker.topics import TopicFilter


@dataclass(slots=True)
class SubscriptionTree:
    """A tree and its subscriptions. The number of a subscription in the tree is its position in `subscriptions`, from
    1.
    """

    tree: Pst = field(default_factory=Pst)
    subscriptions: list[FileSubscription] = field(default_factory=list)
    link_count: int = 1
    has_links: bool = False
    """Whether links were given; otherwise all subscriptions are reached over link 0."""

    @classmethod
    def read(cls, path: Path, links: int | None = None, bucket_max: int | None = None) -> SubscriptionTree:
        """Reads the subscriptions of *path*, over *links* links if that is given. Raises LineInvalid.

        bucket_max: predicates tested in one place before the tree branches; None: as in a gateway.
        """
        subscription_tree = cls(Pst(bucket_max=bucket_max), has_links=links is not None)
        installation = Installation(subscription_tree.tree, link_count=links or 1)
        lines_file = JsonLinesFile(path, lambda sentence: click.echo(sentence, err=True))
        for number, topic_filter, predicates, link in insertions(
            subscription_tree._recorded(lines_file.subscriptions(links)), installation, links
        ):
            subscription_tree.tree.insert(number, topic_filter, predicates, link)
        subscription_tree.link_count = installation.link_count
        if not subscription_tree.subscriptions:
            raise Refused(f"{path}: there is no subscription in this file")
        return subscription_tree

    @property
    def links(self) -> int:
        """The number of links whose trits are shown."""
        return self.link_count if self.has_links else 0

    def add(self, topic_filter: TopicFilter, content_filter: Filter) -> int:
        """Adds a subscription with *content_filter*, over link 0. Returns its number in the tree."""
        number = len(self.subscriptions) + 1
        self.subscriptions.append(
            FileSubscription(number, topic_filter, content_filter.predicates, 0, content_filter.text, "")
        )
        self.tree.insert(number, topic_filter, content_filter.predicates)
        return number

    def subscription(self, number: int) -> FileSubscription:
        """Returns the subscription with this number in the tree."""
        return self.subscriptions[number - 1]

    def of_client(self, client: str) -> list[int]:
        """Returns the numbers of the subscriptions of *client*. Raises Refused if there are none."""
        numbers = [number for number, subscription in enumerate(self.subscriptions, 1) if subscription.client == client]
        if not numbers:
            nearest = get_close_matches(client, {subscription.client for subscription in self.subscriptions}, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise Refused(f"no subscription is of client {client!r}{hint}")
        return numbers

    def ids(self, numbers: Iterable[int]) -> list[int]:
        """Returns the identifiers in the file of the subscriptions with these numbers."""
        return [self.subscription(number).id for number in numbers]

    def by_client(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        """Returns the identifiers of these subscriptions, by client."""
        ids_by_client: dict[str, list[int]] = {}
        for number in numbers:
            subscription = self.subscription(number)
            ids_by_client.setdefault(subscription.client, []).append(subscription.id)
        return {client: sorted(ids) for client, ids in sorted(ids_by_client.items())}

    def _recorded(self, subscriptions: Iterable[FileSubscription]) -> Iterator[FileSubscription]:
        for subscription in subscriptions:
            self.subscriptions.append(subscription)
            self.has_links = self.has_links or subscription.link is not None
            yield subscription


_SETTLED: Final = {
    SettlementKind.PATH: "settled by the way to the bucket",
    SettlementKind.CELLS: "decided by a column of the bucket",
    SettlementKind.LOOSE: "narrowed down by a column, then compared",
    SettlementKind.UNCUT: "compared: the bucket has no column for it",
}


@dataclass(frozen=True, slots=True)
class SubscriptionPlacement:
    """Where the predicates of one subscription are in the tree."""

    topic_filter: str
    neighbours: int
    """Other subscriptions on the same topic filter."""
    placements: tuple[Placement, ...]
    matches_all: bool
    """Whether it matches every message under its topic filter; otherwise, without predicates, it matches none."""

    @classmethod
    def of(cls, subscription_tree: SubscriptionTree, number: int) -> SubscriptionPlacement:
        """Returns the placement of the subscription with this number in the tree."""
        end = subscription_tree.tree.end_of(number)
        return cls(end.text, end.subscriptions - 1, placements(subscription_tree.tree, number), number in end.plain)

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """(Title, text) for people."""
        neighbours = f"with {counted(self.neighbours, 'other subscription')}" if self.neighbours else "alone"
        yield "sits on", f"topic filter {self.topic_filter}, {neighbours}"
        if not self.placements:
            yield "", "matches every message there: nothing is searched" if self.matches_all else "can match nothing"
        for number, placement in enumerate(self.placements, 1):
            if len(self.placements) > 1:
                yield f"alternative {number}", sentence(placement.predicate)
            yield from _lines(placement)

    def as_object(self) -> dict[str, Any]:
        """Returns the same for programs."""
        return {
            "topic": self.topic_filter,
            "neighbours": self.neighbours,
            "matches_all": self.matches_all,
            "predicates": [_as_object(placement) for placement in self.placements],
        }


def _lines(placement: Placement) -> Iterator[tuple[str, str]]:
    for number, step in enumerate(placement.turns):
        yield "" if number else "behind", _step_text(step)
    neighbours = f"with {counted(placement.leaves - 1, 'other predicate')}" if placement.leaves > 1 else "alone"
    searched = f"searched by {', '.join(placement.columns)}"
    if not placement.columns:
        searched = "too small for columns" if placement.has_few_neighbours else "without columns"
    yield "in", f"a bucket, {neighbours}, {searched}"
    width = max(len(f"{placed.test.attribute} {predicate_text(placed.test)}") for placed in placement.tests)
    for number, placed in enumerate(placement.tests):
        text = f"{placed.test.attribute} {predicate_text(placed.test)}"
        yield "" if number else "its tests", f"{text:<{width}}   {_SETTLED[placed.settled]}"
    yield "costs", _cost(placement)
    if placement.members > 1:
        yield "shares", f"its place with {counted(placement.members - 1, 'subscription')} of the same predicate"


def _step_text(step: PathStep) -> str:
    size = f"1 of {counted(step.edges, 'edge')}, {counted(step.leaves, 'predicate')}"
    if not step.attribute:
        return f"*   a fork without test: {step.reason} ({size})"
    return f"{step.label}   " + (f"{step.attribute} {step.reason} ({size})" if step.reason else f"({size})")


def _cost(placement: Placement) -> str:
    steps = f"{counted(placement.steps, 'step')} of the search"
    if placement.is_certain:
        return f"{steps}; every message that gets there matches"
    if not placement.columns:
        return f"{steps}, a bucket of {placement.leaves:,} gone through one by one"
    scan = f"{counted(placement.leaves, 'predicate')} scanned over {counted(len(placement.columns), 'column')}"
    last = "this one compared if it is left over" if placement.is_verified else "nothing compared for this one"
    return f"{steps}, {scan}, {last}"


def _as_object(placement: Placement) -> dict[str, Any]:
    return {
        "path": [
            {
                "fork": step.attribute,
                "edge": step.label,
                "reason": step.reason,
                "edges": step.edges,
                "leaves": step.leaves,
            }
            for step in placement.turns
        ],
        "bucket": {"leaves": placement.leaves, "columns": list(placement.columns)},
        "tests": [
            {
                "attribute": placed.test.attribute,
                "words": predicate_text(placed.test),
                "settled": placed.settled.value,
                "compared": placed.settled.is_verified,
            }
            for placed in placement.tests
        ],
        "steps": placement.steps,
        "scanned": placement.leaves,
        "subscriptions": placement.members,
    }
