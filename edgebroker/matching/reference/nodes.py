"""What forks and buckets have in common: a place in the tree and an annotation."""

from __future__ import annotations

from abc import ABC, abstractmethod

from edgebroker.matching.cells import STAR, Cells
from edgebroker.matching.outcomes import TritVector


class TreeNode(ABC):
    """A node of a content tree."""

    __slots__ = ("cells", "count", "edge", "end", "maybe", "parent", "yes")

    def __init__(self) -> None:
        self.parent: TreeNode | None = None
        self.end = 0
        """Of a root: the end of the topic filter whose tree it is."""
        self.edge = STAR
        """The cells of the edge that leads here, one bit each."""
        self.cells: Cells | None = None
        """Of a fork: what it tells apart. None: nothing."""
        self.count = 0
        """Leaves at and below."""
        self.yes = 0
        self.maybe = 0

    @property
    def annotation(self) -> TritVector:
        """What is known of each link here [LM 2.4]."""
        return TritVector(self.yes, self.maybe)

    @abstractmethod
    def annotate(self) -> bool:
        """Find the annotation; say whether it changed."""

    @abstractmethod
    def discard(self) -> None:
        """Give back what the node holds, before it goes."""
