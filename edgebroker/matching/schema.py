"""The order in which a content tree tests attributes [LM, attribute order]."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from edgebroker.event import Attributes
from edgebroker.matching.published.growth import Step
from edgebroker.matching.published.labels import Key, Wide, key_of, label_of
from edgebroker.predicate import Predicate

REVIEW_FIRST: Final = 8
REVIEW_LAST: Final = 128
"""At how many predicates the order is looked at first and last; in between, whenever they have become four times as
many. Growing 128 predicates anew takes about 3 ms; by then the counts tell attributes that are tested often from those
that are not, and what comes later changes little."""


class Schema:
    """Attribute names by rank, and how often each is tested."""

    __slots__ = ("names", "predicates", "ranks", "review_at", "spare", "uses")

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names: list[str] = list(names)
        self.ranks: dict[str, int] = {name: rank for rank, name in enumerate(self.names)}
        self.uses: list[int] = [0] * len(self.names)
        self.predicates = 0
        self.review_at = REVIEW_FIRST
        self.spare: dict[int, None] = {}  # ranks that nothing tests any more; a new name takes one of them first

    def admit(self, predicate: Predicate) -> list[Step]:
        """The path of *predicate*, whose tests are counted from now on. New attributes come after all known ones."""
        self.predicates += 1
        path = [(self._rank(test.attribute), label_of(test)) for test in predicate]
        path.sort(key=itemgetter(0))
        return path

    def dismiss(self, path: Sequence[Step]) -> None:
        """Count the tests of *path* no longer."""
        self.predicates -= 1
        for rank, label in path:
            if label is not Wide.STAR:
                self.uses[rank] -= 1
                if not self.uses[rank]:
                    self.spare[rank] = None

    def is_due_for_review(self) -> bool:
        """Whether it is time to `reorder`. Asking counts as having done so."""
        if self.predicates < self.review_at or self.review_at > REVIEW_LAST:
            return False
        self.review_at *= 4
        return True

    def reorder(self) -> list[int] | None:
        """Put the attributes that are tested most first: the new rank for each old one, or None if nothing changes."""
        order = sorted(range(len(self.names)), key=lambda rank: -self.uses[rank])  # equals stay as they are
        if order == list(range(len(order))):
            return None
        self.names = [self.names[rank] for rank in order]
        self.uses = [self.uses[rank] for rank in order]
        self.ranks = {name: rank for rank, name in enumerate(self.names)}
        self.spare = {rank: None for rank, uses in enumerate(self.uses) if not uses}
        return [order.index(rank) for rank in range(len(order))]

    def wanted(self) -> list[str]:
        """The attributes that some predicate tests."""
        return [name for name, uses in zip(self.names, self.uses, strict=True) if uses]

    def keys(self, attributes: Attributes) -> list[Key]:
        """The keys of an event's values, by rank."""
        get = attributes.get
        return [key_of(get(name)) for name in self.names]

    def _rank(self, name: str) -> int:
        rank = self.ranks.get(name)
        if rank is None:
            if self.spare:
                # No node tests it, so the rank can have a new name: names that come and go take no room.
                rank = self.spare.popitem()[0]
                del self.ranks[self.names[rank]]
                self.names[rank] = name
            else:
                rank = len(self.names)
                self.names.append(name)
                self.uses.append(0)
            self.ranks[name] = rank
        elif not self.uses[rank]:
            self.spare.pop(rank, None)
        self.uses[rank] += 1
        return rank
