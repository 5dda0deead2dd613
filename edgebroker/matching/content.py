"""The content tree below one topic filter: how it grows, and how it stays in order.

Leaves gather in a bucket. A full bucket becomes a fork on the attribute that makes searching cheapest, which weighs
what [LM 2.8] asks of the attribute order, few `*`, together with how well the values tell the predicates apart. Where
nothing tells them apart, the bucket gets a neighbour. A fork that has lost most of its leaves becomes a bucket again.
No
change does more than cut one bucket anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import getsizeof
from types import ModuleType
from typing import Any

from edgebroker.matching.cells import Cells, thinned
from edgebroker.matching.growth import (
    COLLAPSE_SHARE,
    COLUMN_SHARE_MIN,
    COLUMNS_MAX,
    CUT_FIRST,
    REPLANT_MARGIN,
    REPLANT_STEP,
    REVIEW_SHARE,
    SAMPLE_MAX,
    SPLIT_ATTRIBUTES_MAX,
    SPLIT_CUTS,
    SPLIT_GAIN_MIN,
    STAR,
    VISIT_SHARE,
)


class Content:
    """The tree of all leaves that hang on one topic filter."""

    __slots__ = ("_bucket_max", "_changes", "_end", "_kernel", "_leaves", "_moving", "_stars_allowed", "_uses", "root")

    def __init__(self, kernel: ModuleType, leaves: Any, end: int, bucket_max: int) -> None:
        """kernel: `matching.reference` or `matching.compiled`.  end: the number of the topic filter.

        bucket_max: the leaves of a full bucket.
        """
        self._bucket_max = bucket_max
        self._end = end
        self._kernel = kernel
        self._leaves = leaves
        self._uses: dict[int, int] = {}  # attribute -> leaves that test it
        self._changes = 0  # since the order was last looked at
        self._stars_allowed = 1.0  # the share of `*` at the root from which on the order is given up
        self._moving: Any = None  # the old sub-tree of a reordering that is under way
        self._be_rooted(kernel.Bucket(leaves))

    def __len__(self) -> int:
        return int(self.root.count)

    @property
    def attributes(self) -> Mapping[int, int]:
        """The attributes that leaves test -> how many do."""
        return self._uses

    def plant(self, leaf: int) -> int:
        """Take in *leaf*, or find the leaf here that has its predicate: whichever is in the tree now.

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
        """Bring the annotations of the path to *leaf*, which members have joined, up to date [LM 2.1]."""
        self._kernel.gain(self._leaves.home(leaf), leaf)

    def thin_out(self, leaf: int) -> None:
        """The same after members have left *leaf*."""
        self._kernel.annotate_up(self._leaves.home(leaf))

    def uproot(self, leaf: int) -> None:
        """Give up *leaf*."""
        for attribute in self._leaves.attributes(leaf):
            self._uses[attribute] -= 1
            if not self._uses[attribute]:
                del self._uses[attribute]
        self._leaves.delist(self._end, leaf)
        self._take(leaf)
        self._changes += 1

    def discard(self) -> None:
        """Give back what the tree holds, before it goes."""
        self.root.discard()

    def tend(self) -> bool:
        """Do one bounded step of reordering, if the order is due to be looked at or is being changed.

        Returns whether there is more to do.
        """
        if self._moving is not None:
            self._move()
        elif self._changes >= max(REVIEW_SHARE * self._bucket_max, self.root.count):
            self._changes = 0
            self._review()
        return self._moving is not None

    def nodes(self) -> Iterator[Any]:
        """All forks and buckets, a fork before its children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, self._kernel.Fork):
                stack += reversed(node.children())

    def bytes(self) -> int:
        """Bytes taken, without the nodes and leaves."""
        return getsizeof(self) + getsizeof(self._uses)

    # -- leaves come and go ---------------------------------------------------------------------------------------

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
        """Whether *node* is where leaves go during a reordering: it stays although it be empty."""
        return self._moving is not None and node.parent is self.root and node is not self._moving

    def _cut(self, bucket: Any) -> None:
        """Choose columns for *bucket*; none if it is so small that its leaves are looked at one by one."""
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

    # -- forks come and go ----------------------------------------------------------------------------------------

    def _divide(self, bucket: Any) -> None:
        """Let a fork take the place of *bucket*, which is full, or give it a neighbour."""
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
        held = bucket.held()
        kernel.count_in(bucket, -len(held))
        self._swap(bucket, fork)
        bucket.discard()
        for leaf in sorted(held):  # mostly the oldest first, so that people find the edges in the order of their making
            kernel.plant(fork, leaf).place(leaf)
        for child in fork.children():
            kernel.count_in(child, child.count)
            self._cut(child)
            child.annotate()
        kernel.annotate_up(fork)
        if fork is self.root:
            self._stars_allowed = self._stars(cells.attribute) + REPLANT_MARGIN

    def _best_cells(self, bucket: Any) -> tuple[Cells | None, int]:
        """How to divide *bucket*: the cells of a fork and its `span_max`. None if dividing gains too little."""
        uses = self._kernel.survey(bucket)
        # The bucket is full, so the choice is between a fork and two buckets; both are weighed with twice the leaves.
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
        """Make the highest fork at or above *node* with few leaves a bucket; else drop a test that became trivial."""
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
        held = list(self._held(top))
        if top is self.root:
            self._moving = None
        self._kernel.count_in(top, -len(held))
        self._swap(top, bucket)
        top.discard()
        for leaf in held:
            bucket.place(leaf)
        self._kernel.count_in(bucket, len(held))
        self._cut(bucket)
        self._kernel.annotate_up(bucket)

    def _drop_trivial(self, fork: Any) -> None:
        """Trivial test elimination [LM 2.8]: a fork with nothing but one `*` edge gives way to its child."""
        if isinstance(fork, self._kernel.Fork):
            children = fork.children()
            if len(children) == 1 and children[0].edge == STAR:
                fork.detach(children[0])
                self._swap(fork, children[0])
                fork.discard()

    def _swap(self, old: Any, new: Any) -> None:
        """Let *new* take the place of *old*. The leaves above are counted by the caller."""
        if old is self._moving:
            self._moving = new
        if old.parent is None:
            self._be_rooted(new)
        else:
            old.parent.swap(old, new)

    def _be_rooted(self, node: Any) -> None:
        node.end = self._end
        self.root = node

    def _held(self, node: Any) -> Iterator[int]:
        """The leaves at and below *node*."""
        stack = [node]
        while stack:
            node = stack.pop()
            if isinstance(node, self._kernel.Fork):
                stack += reversed(node.children())
            else:
                yield from node.held()

    # -- the order ------------------------------------------------------------------------------------------------

    def _stars(self, attribute: int) -> float:
        """The share of leaves that do not test *attribute*."""
        return 1 - self._uses.get(attribute, 0) / max(len(self), 1)

    def _review(self) -> None:
        """Begin a reordering if the root tests an attribute that has come to be `*` more often than others."""
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
    """What an event costs at a fork over twice the leaves of *spread*, in leaves scanned.

    spread: set of cells -> leaves, of which each stands for *scale*.  visit: the cost of one more bucket.  The values
    of events are taken to fall where the predicates look for them.
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
