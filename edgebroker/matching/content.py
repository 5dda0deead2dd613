"""The content tree of one topic filter: its growth and its attribute order.

Leaves are collected in a bucket. A full bucket becomes a fork on the attribute that makes searching cheapest. The
choice weighs the criterion of [LM 2.8] for the attribute order, few `*`, and how well the values distinguish the
predicates. If no attribute distinguishes them, the bucket gets a sibling. A fork that has lost most of its leaves
becomes a bucket again. No change does more work than dividing one bucket again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import getsizeof
from types import ModuleType
from typing import Any, Final

from edgebroker.matching.cells import COLUMNS_MAX, CUT_FIRST, SAMPLE_MAX, STAR, Cells, thinned

COLUMN_SHARE_MIN: Final = 16
"""An attribute has a column if at least one leaf in this many tests it."""
COLLAPSE_SHARE: Final = 4
"""A fork becomes a bucket again when it has fewer leaves than this fraction of a full bucket: 1 / COLLAPSE_SHARE."""
VISIT_SHARE: Final = 0.375
"""The cost of visiting one more bucket, in scans of a full one: finding eight cells takes about 100 ns, in which a
thousand leaves can be skipped.
"""
SPLIT_GAIN_MIN: Final = 0.75
"""A full bucket becomes a fork if searching that costs at most this fraction of searching two buckets."""
SPLIT_ATTRIBUTES_MAX: Final = 4
"""Attributes tried for a fork: those that most leaves test."""
SPLIT_CUTS: Final = (1, 3, 7)
"""Numbers of cuts tried for a fork on numbers with too many bounds for elementary cells."""
REPLANT_MARGIN: Final = 0.10
"""Hysteresis of the attribute order: the share of `*` at the root must exceed that of another attribute by this."""
REPLANT_STEP: Final = 32
"""Leaves moved in one step of a reordering, about 0.1 ms."""
REVIEW_SHARE: Final = 2
"""The order of a tree is reviewed after as many changes as it has leaves, and at least this many full buckets."""


class Content:
    """The tree of all leaves of one topic filter."""

    __slots__ = ("_bucket_max", "_changes", "_end", "_kernel", "_leaves", "_moving", "_stars_allowed", "_uses", "root")

    def __init__(self, kernel: ModuleType, leaves: Any, end: int, bucket_max: int) -> None:
        """kernel: `matching.reference` or `matching.compiled`. end: the number of the topic filter.

        bucket_max: the leaves of a full bucket.
        """
        self._bucket_max = bucket_max
        self._end = end
        self._kernel = kernel
        self._leaves = leaves
        self._uses: dict[int, int] = {}  # attribute -> leaves that test it
        self._changes = 0  # since the last review of the order
        self._stars_allowed = 1.0  # the share of `*` at the root beyond which the order is changed
        self._moving: Any = None  # the old sub-tree during a reordering
        self._set_root(kernel.Bucket(leaves))

    def __len__(self) -> int:
        return int(self.root.count)

    @property
    def attributes(self) -> Mapping[int, int]:
        """Attribute -> the number of leaves that test it."""
        return self._uses

    def plant(self, leaf: int) -> int:
        """Add *leaf*, unless a leaf with its predicate exists; return the one that is in the tree now.

        `annotate` must follow when members have joined.
        """
        same: int = self._leaves.same(self._end, leaf)
        if same >= 0:
            return same
        for attribute in self._leaves.attributes(leaf):
            self._uses[attribute] = self._uses.get(attribute, 0) + 1
        self._leaves.enlist(self._end, leaf)
        self._put(leaf)
        self._changes += 1
        return leaf

    def annotate(self, leaf: int) -> None:
        """Update the annotations on the path to *leaf*, which members have joined [LM 2.1]."""
        self._kernel.gain(self._leaves.home(leaf), leaf)

    def thin_out(self, leaf: int) -> None:
        """Update the annotations on the path to *leaf*, which members have left."""
        self._kernel.annotate_up(self._leaves.home(leaf))

    def uproot(self, leaf: int) -> None:
        """Remove *leaf*."""
        for attribute in self._leaves.attributes(leaf):
            self._uses[attribute] -= 1
            if not self._uses[attribute]:
                del self._uses[attribute]
        self._leaves.delist(self._end, leaf)
        self._take(leaf)
        self._changes += 1

    def discard(self) -> None:
        """Release all resources of the tree, before it is dropped."""
        self.root.discard()

    def tend(self) -> bool:
        """Do one bounded step of reordering, if a review of the order is due or a reordering is in progress.

        Returns whether there is more to do.
        """
        if self._moving is not None:
            self._move()
        elif self._changes >= max(REVIEW_SHARE * self._bucket_max, self.root.count):
            self._changes = 0
            self._review()
        return self._moving is not None

    def nodes(self) -> Iterator[Any]:
        """Iterate over all forks and buckets, a fork before its children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, self._kernel.Fork):
                stack += reversed(node.children())

    def bytes(self) -> int:
        """Return the memory in bytes, without the nodes and leaves."""
        return getsizeof(self) + getsizeof(self._uses)

    # -- adding and removing leaves -------------------------------------------------------------------------------

    def _put(self, leaf: int) -> None:
        bucket = self._kernel.plant(self.root, leaf)
        if bucket.count >= self._bucket_max:
            self._divide(bucket)
            bucket = self._kernel.plant(self.root, leaf)
        bucket.add(leaf)
        self._kernel.count_in(bucket, 1)
        if bucket.count >= CUT_FIRST and 2 * bucket.fresh > bucket.count:
            self._cut(bucket)

    def _take(self, leaf: int) -> None:
        node = self._leaves.home(leaf)
        node.remove(leaf)
        self._kernel.count_in(node, -1)
        self._kernel.annotate_up(node)
        while not node.count and node.parent is not None and not self._is_new_part(node):
            fork = node.parent
            fork.detach(node)
            node.discard()
            if node is self._moving:
                self._moving = None
            node = fork
            self._kernel.annotate_up(node)
        self._collapse(node)

    def _is_new_part(self, node: Any) -> bool:
        """Return whether *node* receives leaves during a reordering: it stays even if it is empty."""
        return self._moving is not None and node.parent is self.root and node is not self._moving

    def _cut(self, bucket: Any) -> None:
        """Choose columns for *bucket*; none if it is so small that its leaves are tested one by one."""
        if bucket.count < CUT_FIRST:
            bucket.cut(())
            return
        uses = self._kernel.survey(bucket)
        tested_min = max(1, min(bucket.count, SAMPLE_MAX) // COLUMN_SHARE_MIN)
        chosen = sorted(
            (attribute for attribute, use in uses.items() if use.tested >= tested_min),
            key=lambda attribute: -uses[attribute].tested,
        )
        columns = []
        for attribute in chosen[:COLUMNS_MAX]:
            use = uses[attribute]
            cuts = None if use.cuts is None else thinned(use.cuts)
            columns.append(Cells(attribute, cuts, use.strings, use.booleans))
        bucket.cut(columns)

    # -- adding and removing forks --------------------------------------------------------------------------------

    def _divide(self, bucket: Any) -> None:
        """Replace *bucket*, which is full, by a fork, or give it a sibling."""
        kernel = self._kernel
        cells, span_max = self._best_cells(bucket)
        if cells is None:
            fork = bucket.parent
            if fork is None or fork.cells is not None:
                fork = kernel.Fork(self._leaves, None, 0)
                self._swap(bucket, fork)
                fork.attach(STAR, bucket)
                fork.annotate()
            fork.attach(STAR, kernel.Bucket(self._leaves))
            return
        fork = kernel.Fork(self._leaves, cells, span_max)
        leaves = bucket.held()
        kernel.count_in(bucket, -len(leaves))
        self._swap(bucket, fork)
        bucket.discard()
        for leaf in sorted(leaves):  # mostly the oldest first, so that edges are displayed in order of creation
            kernel.plant(fork, leaf).place(leaf)
        for child in fork.children():
            kernel.count_in(child, child.count)
            self._cut(child)
            child.annotate()
        kernel.annotate_up(fork)
        if fork is self.root:
            self._stars_allowed = self._stars(cells.attribute) + REPLANT_MARGIN

    def _best_cells(self, bucket: Any) -> tuple[Cells | None, int]:
        """Return the cells of the best fork for *bucket*, and its `span_max`. None if a fork gains too little."""
        uses = self._kernel.survey(bucket)
        # The bucket is full, so the choice is between a fork and two buckets; both costs are for twice the leaves.
        visit = int(VISIT_SHARE * self._bucket_max)
        best = SPLIT_GAIN_MIN * 2 * (bucket.count + visit)
        scale = bucket.count / len(bucket.sample())
        chosen: tuple[Cells | None, int] = None, 0
        for attribute in sorted(uses, key=lambda attribute: -uses[attribute].tested)[:SPLIT_ATTRIBUTES_MAX]:
            use = uses[attribute]
            tried = 0
            for cuts_max in SPLIT_CUTS:
                cuts = None if use.cuts is None else thinned(use.cuts, thinned_to=cuts_max)
                cells = Cells(attribute, cuts, use.strings, use.booleans)
                if cells.count == tried:
                    break
                tried = cells.count
                span_max = max(1, cells.values // 2)
                cost = search_cost(self._kernel.spread(bucket, cells), scale, cells.count, span_max, visit)
                if cost < best:
                    best = cost
                    chosen = cells, span_max
        return chosen

    def _collapse(self, node: Any) -> None:
        """Turn the highest fork at or above *node* with few leaves into a bucket; otherwise drop a test that became
        trivial.
        """
        lowest = node
        top = None
        while node is not None and node.count < self._bucket_max // COLLAPSE_SHARE:
            if isinstance(node, self._kernel.Fork):
                top = node
            node = node.parent
        if top is None:
            self._drop_trivial(lowest)
            return
        bucket = self._kernel.Bucket(self._leaves)
        leaves = list(self._leaves_below(top))
        if top is self.root:
            self._moving = None
        self._kernel.count_in(top, -len(leaves))
        self._swap(top, bucket)
        top.discard()
        for leaf in leaves:
            bucket.place(leaf)
        self._kernel.count_in(bucket, len(leaves))
        self._cut(bucket)
        self._kernel.annotate_up(bucket)

    def _drop_trivial(self, fork: Any) -> None:
        """Trivial test elimination [LM 2.8]: replace a fork with only a `*` edge by its child."""
        if isinstance(fork, self._kernel.Fork):
            children = fork.children()
            if len(children) == 1 and children[0].edge == STAR:
                fork.detach(children[0])
                self._swap(fork, children[0])
                fork.discard()

    def _swap(self, old: Any, new: Any) -> None:
        """Replace *old* by *new*. The caller updates the leaf counts above."""
        if old is self._moving:
            self._moving = new
        if old.parent is None:
            self._set_root(new)
        else:
            old.parent.swap(old, new)

    def _set_root(self, node: Any) -> None:
        node.end = self._end
        self.root = node

    def _leaves_below(self, node: Any) -> Iterator[int]:
        """Iterate over the leaves at and below *node*."""
        stack = [node]
        while stack:
            node = stack.pop()
            if isinstance(node, self._kernel.Fork):
                stack += reversed(node.children())
            else:
                yield from node.held()

    # -- the order ------------------------------------------------------------------------------------------------

    def _stars(self, attribute: int) -> float:
        """Return the share of leaves that do not test *attribute*."""
        return 1 - self._uses.get(attribute, 0) / max(len(self), 1)

    def _review(self) -> None:
        """Begin a reordering if the attribute at the root has become `*` more often than another one."""
        root = self.root
        if not isinstance(root, self._kernel.Fork) or root.cells is None:
            return
        stars = self._stars(root.cells.attribute)
        if stars <= self._stars_allowed or min(map(self._stars, self._uses)) > stars - REPLANT_MARGIN:
            return
        fan = self._kernel.Fork(self._leaves, None, 0)
        self._swap(root, fan)
        fan.attach(STAR, root)
        fan.attach(STAR, self._kernel.Bucket(self._leaves))
        fan.annotate()
        self._moving = root

    def _move(self) -> None:
        """Move some leaves from the old part to the new one."""
        node = self._moving
        while isinstance(node, self._kernel.Fork):
            node = node.children()[0]
        for leaf in node.held()[:REPLANT_STEP]:
            self._take(leaf)
            self._put(leaf)
            self.annotate(leaf)


def search_cost(spread: Mapping[int, int], scale: float, cells: int, span_max: int, visit: int) -> float:
    """Return the cost of an event at a fork over twice the leaves of *spread*, in leaves scanned.

    spread: set of cells -> leaves in the sample, each of which stands for *scale* leaves. visit: the cost of one more
    bucket. The values of events are assumed to be distributed like those of the predicates.
    """
    stars = 0.0
    scanned = [0.0] * cells
    sought = [0.0] * cells
    for edge, count in spread.items():
        span = edge.bit_count()
        if edge == STAR or span > span_max:
            stars += 2 * scale * count
            continue
        for cell in range(cells):
            if edge >> cell & 1:
                scanned[cell] += 2 * scale * count + visit
                sought[cell] += count / span
    total = sum(sought)
    cost = stars + visit
    if total:
        cost += sum(share * leaves for share, leaves in zip(sought, scanned, strict=True)) / total
    return cost
