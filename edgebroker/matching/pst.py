"""The parallel search tree (PST) of a node: all subscriptions, by topic filter and content.

Topic levels are the first attributes of the tree: a literal level is a value edge, `+` is NOT NULL, a last `#` is the
`*` edge, and the end of a filter is the NULL edge of the level after it. What hangs on the `*` or NULL edge of a topic
node, the *end* of one topic filter, is a content tree with an attribute order of its own (`schema.Schema`).
"""

from __future__ import annotations

from collections.abc import Sequence

from edgebroker.event import Attributes
from edgebroker.matching.published.growth import TRUNK, Edge, Step, enter, leaf_at, leave, path_to, walk
from edgebroker.matching.published.labels import Wide
from edgebroker.matching.published.nodes import FIRST_LEVEL, NONE, Nodes
from edgebroker.matching.published.search import collect
from edgebroker.matching.replanting import replant
from edgebroker.matching.schema import Schema
from edgebroker.predicate import Predicate
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, TopicFilter


class Content:
    """A content tree that a topic leads to."""

    __slots__ = ("plain", "root", "schema")

    def __init__(self, root: int, plain: int, schema: Schema) -> None:
        self.root = root
        self.plain = plain  # the leaf of the subscriptions without content filter, or NONE
        self.schema = schema


class Resolution:
    """What one topic means for every event under it, as long as the tree's epoch is `epoch`."""

    __slots__ = ("_content_numbers", "_nodes", "contents", "epoch", "plain", "wanted")

    def __init__(self, epoch: int, plain: tuple[int, ...], contents: tuple[Content, ...], nodes: Nodes) -> None:
        self.epoch = epoch
        self.plain = plain
        """The subscriptions that match whatever the event contains."""
        self.contents = contents
        """The content trees that must be searched for each event."""
        self.wanted = frozenset(name for content in contents for name in content.schema.wanted())
        """The attributes that these trees test."""
        self._nodes = nodes
        self._content_numbers: tuple[int, ...] | None = None

    def content_numbers(self) -> tuple[int, ...]:
        """The subscriptions in these content trees, each once. Found on the first call, then kept."""
        if self._content_numbers is None:
            numbers: dict[int, None] = {}
            for content in self.contents:
                for node in self._nodes.below(content.root):
                    if node != content.plain:
                        numbers.update(dict.fromkeys(self._nodes.members[node]))
            self._content_numbers = tuple(numbers)
        return self._content_numbers


class Pst:
    """Subscriptions by number, found by topic and content."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.schemas: dict[int, Schema] = {}
        """By the end of the topic filter: the topic node for a `*` edge, its complement (`~node`) for a NULL edge."""
        self.epoch = 0
        """Grows with every change."""
        self.steps = 0
        """Matching steps so far: nodes visited by `match`."""
        self._leaves: dict[int, tuple[int, ...]] = {}
        self._disjunctions = 0  # subscriptions with several leaves; without any, `match` has nothing to make unique

    def __len__(self) -> int:
        return len(self._leaves)

    def __contains__(self, number: int) -> bool:
        return number in self._leaves

    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> None:
        """Add subscription *number*, to be reached over *link*, for events that some predicate accepts.

        No predicate at all never matches; an empty one always does. Raises ValueError if *number* is in use.
        """
        if number in self._leaves:
            raise ValueError(f"subscription {number} is in the tree already")
        self.epoch += 1
        if not all(predicates):
            predicates = ((),)
        self._leaves[number] = ()
        if predicates:
            end = walk(self.nodes, TRUNK, topic_path(topic_filter))
            leaves = dict.fromkeys(self._plant(number, end, predicate, link) for predicate in predicates)
            self._leaves[number] = tuple(leaves)
            self._disjunctions += len(leaves) > 1
            self._improve_order(end)

    def remove(self, number: int) -> None:
        """Take out subscription *number*. Raises KeyError if there is none."""
        leaves = self._leaves.pop(number)
        self.epoch += 1
        self._disjunctions -= len(leaves) > 1
        for leaf in leaves:
            self._uproot(number, leaf)

    def resolve(self, topic: str) -> Resolution:
        """What the topic name *topic* means now."""
        nodes = self.nodes
        plain: list[int] = []
        contents: list[Content] = []
        for end in self.ends(topic):
            root = nodes.stars[end] if end >= 0 else nodes.tables[~end][None]
            leaf = nodes.chain_end(root)
            plain += nodes.members[leaf]
            if leaf != root:
                contents.append(Content(root, leaf, self.schemas[end]))
        return Resolution(self.epoch, tuple(plain), tuple(contents), nodes)

    def match(self, resolution: Resolution, attributes: Attributes) -> list[int]:
        """The subscriptions with content filter that accept an event with *attributes*, each once.

        Raises ValueError if *resolution* is from another epoch.
        """
        if resolution.epoch != self.epoch:
            raise ValueError(f"resolved in epoch {resolution.epoch}, the tree is in {self.epoch}")
        found: list[int] = []
        for content in resolution.contents:
            self.steps += collect(self.nodes, content.root, content.plain, content.schema.keys(attributes), found)
        return list(dict.fromkeys(found)) if self._disjunctions else found

    def ends(self, topic: str) -> list[int]:
        """The ends (keys of `schemas`) of the topic filters that match *topic*."""
        nodes = self.nodes
        ends: list[int] = []
        at = [nodes.stars[NONE]] if nodes.stars[NONE] else []
        wildcards = not topic.startswith("$")  # a wildcard in the first level does not match a `$` topic
        for name in topic.split(SEPARATOR):
            below: list[int] = []
            for node in at:
                child = nodes.tables[node].get(name)
                if child is not None:
                    below.append(child)
                if wildcards:
                    spans = nodes.spans[node]
                    if spans is not None:
                        below.append(spans.some)
                    if nodes.stars[node]:
                        ends.append(node)
            at = below
            wildcards = True
        for node in at:
            if nodes.stars[node]:
                ends.append(node)
            if None in nodes.tables[node]:
                ends.append(~node)
        return ends

    def bytes_estimate(self) -> int:
        """About how many bytes the tree takes, without the values and tests on its edges."""
        return self.nodes.bytes_estimate() + 150 * len(self._leaves) + 500 * len(self.schemas)

    def _plant(self, number: int, end: Edge, predicate: Predicate, link: int) -> int:
        """Grow the path of *predicate* from *end* and enter *number* into its leaf, which is returned."""
        if not predicate:
            leaf = leaf_at(self.nodes, end)
            enter(self.nodes, leaf, number, link)
            return leaf
        schema = self.schemas.setdefault(_end_number(end), Schema())
        path = schema.admit(predicate)
        leaf = leaf_at(self.nodes, walk(self.nodes, end, path))
        if number in self.nodes.members[leaf]:  # two predicates of the subscription are the same, `a = 1` and `a = 1.0`
            schema.dismiss(path)
        else:
            enter(self.nodes, leaf, number, link)
        return leaf

    def _improve_order(self, end: Edge) -> None:
        """Look at the attribute order of the content tree at *end* again, if it is time."""
        schema = self.schemas.get(_end_number(end))
        if schema is None or not schema.is_due_for_review():
            return
        moved = replant(self.nodes, end, schema)
        for number in {number for leaf in moved.values() for number in self.nodes.members[leaf]}:
            self._leaves[number] = tuple(moved[leaf] for leaf in self._leaves[number])

    def _uproot(self, number: int, leaf: int) -> None:
        """Take *number* out of *leaf*, and what nobody needs any more out of the tree."""
        end, path = path_to(self.nodes, leaf, rank_min=0)
        if path:
            schema = self.schemas[_end_number(end)]
            schema.dismiss(path)
            if not schema.predicates:
                del self.schemas[_end_number(end)]
        leave(self.nodes, leaf, number, keep_trivial=False)


def _end_number(end: Edge) -> int:
    """The key of a topic filter's *end* in `Pst.schemas`."""
    node, label = end
    return node if label is Wide.STAR else ~node


def topic_path(topic_filter: TopicFilter) -> list[Step]:
    """The steps of *topic_filter* down to its end."""
    path: list[Step] = []
    rank = FIRST_LEVEL
    for level in topic_filter.levels:
        if level == MULTI_LEVEL:
            path.append((rank, Wide.STAR))
            return path
        path.append((rank, Wide.SOME if level == SINGLE_LEVEL else level))
        rank += 1
    path.append((rank, None))
    return path
