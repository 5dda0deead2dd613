"""The order in which a content tree tests attributes [LM, attribute order]."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from edgebroker.event import Attributes
from edgebroker.matching.growth import Step
from edgebroker.matching.labels import Key, Wide, key_of, label_of
from edgebroker.predicate import Predicate


class Schema:
    """Attribute names by rank, and how often each is tested."""

    __slots__ = ("names", "predicates", "ranks", "spare", "uses")

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names: list[str] = list(names)
        self.ranks: dict[str, int] = {name: rank for rank, name in enumerate(self.names)}
        self.uses: list[int] = [0] * len(self.names)
        self.predicates = 0
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
