"""The subscriptions of a file in a tree, and whose they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.bench.match.installation import Installation, insertions
from edgebroker.cli.bench.match.lines import Lines, Subscription
from edgebroker.filters import Filter
from edgebroker.matching.pst import Pst
from edgebroker.topics import TopicFilter


@dataclass(slots=True)
class Population:
    """A tree and its subscriptions. In the tree a subscription's number is its place in `subscriptions`, from 1."""

    tree: Pst = field(default_factory=Pst)
    subscriptions: list[Subscription] = field(default_factory=list)
    link_count: int = 1
    has_links: bool = False
    """Whether links were spoken of; otherwise all subscriptions are reached over link 0."""

    @classmethod
    def read(cls, path: Path, links: int | None = None, bucket_max: int | None = None) -> Population:
        """The subscriptions of *path*, over *links* links if that is given. Raises LineInvalid.

        bucket_max: predicates tested in one place before the tree branches; None: as in a gateway.
        """
        population = cls(Pst(bucket_max=bucket_max), has_links=links is not None)
        installed = Installation(population.tree, link_count=links or 1)
        reading = Lines(path, lambda sentence: click.echo(sentence, err=True))
        for number, topic_filter, predicates, link in insertions(
            population._noted(reading.subscriptions(links)), installed, links
        ):
            population.tree.insert(number, topic_filter, predicates, link)
        population.link_count = installed.link_count
        if not population.subscriptions:
            raise Refused(f"{path}: there is no subscription in this file")
        return population

    @property
    def links(self) -> int:
        """The links whose trits are worth showing."""
        return self.link_count if self.has_links else 0

    def add(self, topic_filter: TopicFilter, content_filter: Filter) -> int:
        """Subscribe with *content_filter* as well, over link 0; the subscription's number in the tree."""
        number = len(self.subscriptions) + 1
        self.subscriptions.append(
            Subscription(number, topic_filter, content_filter.predicates, 0, content_filter.text, "")
        )
        self.tree.insert(number, topic_filter, content_filter.predicates)
        return number

    def subscription(self, number: int) -> Subscription:
        """The subscription with this number in the tree."""
        return self.subscriptions[number - 1]

    def of_client(self, client: str) -> list[int]:
        """The numbers of the subscriptions of *client*. Raises Refused if there are none."""
        found = [number for number, one in enumerate(self.subscriptions, 1) if one.client == client]
        if not found:
            near = get_close_matches(client, {one.client for one in self.subscriptions}, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise Refused(f"no subscription is of client {client!r}{hint}")
        return found

    def ids(self, numbers: Iterable[int]) -> list[int]:
        """The identifiers in the file of the subscriptions with these numbers."""
        return [self.subscription(number).id for number in numbers]

    def by_client(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        """The identifiers of these subscriptions, by client."""
        found: dict[str, list[int]] = {}
        for number in numbers:
            one = self.subscription(number)
            found.setdefault(one.client, []).append(one.id)
        return {client: sorted(ids) for client, ids in sorted(found.items())}

    def _noted(self, subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
        for one in subscriptions:
            self.subscriptions.append(one)
            self.has_links = self.has_links or one.link is not None
            yield one
