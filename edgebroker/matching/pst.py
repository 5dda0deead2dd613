"""The parallel search tree (PST) of a node: all subscriptions, by topic filter and content.

Topic levels are the first attributes of the tree (`topictree`): the end of each topic filter is a factored sub-tree [LM
2.8]. It has a set of plain subscriptions and a content tree (`content`), whose nodes carry the trits of link matching.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from types import ModuleType
from typing import Any

from edgebroker.limits import LINKS_MAX
from edgebroker.matching.content import Content
from edgebroker.matching.ends import End, Resolution
from edgebroker.matching.kernel import kernel as chosen_kernel
from edgebroker.matching.outcomes import LinkDecision, RouteResult, TreeSize
from edgebroker.predicate import Attributes, Predicate
from edgebroker.topics import TopicFilter

_decision = tuple.__new__
"""Creates a LinkDecision in half the time of its own constructor."""


class Pst:
    """Subscriptions by number, found by topic and content."""

    def __init__(self, kernel: ModuleType | None = None, bucket_max: int | None = None) -> None:
        """kernel: `matching.reference` or `matching.compiled` instead of that of this process.

        bucket_max: predicates tested in place before the tree branches, at most BUCKET_LIMIT; None: the kernel's
        default.
        """
        self.kernel: Any = kernel or chosen_kernel
        self._bucket_max = bucket_max or self.kernel.BUCKET_MAX
        self.leaves = self.kernel.Leaves()
        self.topics = self.kernel.TopicTree()
        self.ends: list[End | None] = []  # by number
        self.epoch = 0
        """Grows with every change that invalidates resolutions. A subscription whose content filter tests only
        attributes that others on its topic filter test does not change it.
        """
        self._plain: dict[int, End] = {}
        self._filtered = 0
        self._reordered: dict[int, Content] = {}  # by end: content trees whose order is being changed
        self._match = self.kernel.match
        self._decide = self.kernel.decide
        self._topic_ends = self.topics.ends

    def __len__(self) -> int:
        return len(self._plain) + self._filtered

    def __contains__(self, number: int) -> bool:
        return number in self._plain or bool(self.leaves.leaves_of(number))

    @property
    def steps(self) -> int:
        """Matching steps so far: forks and buckets visited by searches."""
        return int(self.leaves.steps)

    @property
    def pattern_work(self) -> int:
        """The cost of `LIKE` patterns in searches so far, in units of about a microsecond."""
        return int(self.leaves.pattern_work)

    @property
    def too_long(self) -> int:
        """The number of texts in events that were too long for patterns, once for each test."""
        return int(self.leaves.too_long)

    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> End:
        """Add subscription *number*, to be reached over *link*, for events that some predicate accepts.

        An empty sequence of predicates never matches; an empty predicate always does. Returns the end of the topic
        filter. Raises ValueError if *number* is in use or *link* is not between 0 and LINKS_MAX - 1.
        """
        if number in self:
            raise ValueError(f"subscription {number} is in the tree already")
        if not 0 <= link < LINKS_MAX:
            raise ValueError(f"a link has a number from 0 to {LINKS_MAX - 1}, not {link}")
        end = self._end_at(self.topics.add(topic_filter), topic_filter.text)
        if not all(predicates) or not predicates:
            self._plain[number] = end
            if predicates:
                end.add_plain(number, link)
                self.epoch += 1
            return end
        if end.content is None:
            end.content = Content(self.kernel, self.leaves, end.number, self._bucket_max)
            self.epoch += 1
        content = end.content
        wanted = len(content.attributes)
        several = len(predicates) > 1
        for predicate in predicates:
            made = self.leaves.create(predicate)
            leaf = content.plant(made)
            if leaf != made:
                self.leaves.destroy(made)
                if number in self.leaves.members_of(leaf):  # two of its predicates are equal
                    continue
            self.leaves.join(leaf, number, link, several)
            content.annotate(leaf)
        self._filtered += 1
        self.epoch += len(content.attributes) != wanted
        self._tend(end.number, content)
        return end

    def remove(self, number: int) -> End:
        """Remove subscription *number*; return the end of its topic filter. Raises KeyError if there is none."""
        end = self._plain.pop(number, None)
        if end is not None:
            self.epoch += end.remove_plain(number)
        else:
            end = self.end_of(number)
            self._remove_filtered(number, end)
        self.topics.discard(end.number)
        end.subscriptions -= 1
        if not end.subscriptions:
            self.ends[end.number] = None
            self.epoch += 1
        return end

    def end_of(self, number: int) -> End:
        """Return the end of subscription *number*'s topic filter. Raises KeyError if there is none."""
        end = self._plain.get(number)
        if end is None:
            leaves = self.leaves.leaves_of(number)
            if not leaves:
                raise KeyError(number)
            end = self.ends[self.kernel.root_of(self.leaves.home(leaves[0])).end]
            assert end is not None
        return end

    def resolve(self, topic: str) -> Resolution:
        """Resolve the topic name *topic*."""
        ends = self.ends
        found = tuple([ends[number] for number in self._topic_ends(topic)])
        return Resolution(self.epoch, found, self.leaves.names.values)

    def match(self, resolution: Resolution, attributes: Attributes) -> list[int]:
        """Return the subscriptions with content filter that accept an event with *attributes*, each once [LM 2.2].

        Raises ValueError if *resolution* is from another epoch.
        """
        if resolution.epoch != self.epoch:
            raise ValueError(f"resolved in epoch {resolution.epoch}, the tree is in {self.epoch}")
        if not resolution.contents:
            return []
        found: list[int] = self._match(self.leaves, resolution.contents, attributes)
        return found

    def decide(self, resolution: Resolution, attributes: Attributes, mask: int) -> LinkDecision:
        """Return the links of *mask* (one bit each) over which a subscription matches [LM 2.6]. Errors as for
        `match`.
        """
        if resolution.epoch != self.epoch:
            raise ValueError(f"resolved in epoch {resolution.epoch}, the tree is in {self.epoch}")
        before = self.leaves.steps
        yes = resolution.plain_links & mask
        if yes != mask and resolution.contents:
            yes |= self._decide(self.leaves, resolution.contents, attributes, mask & ~yes)
        return _decision(LinkDecision, (yes, self.leaves.steps - before))

    def route(self, resolution: Resolution, attributes: Attributes, mask: int, local: int = 0) -> RouteResult:
        """As `match` for the subscriptions over the link *local*, and `decide` for the links of *mask*, in one
        search.
        """
        if resolution.epoch != self.epoch:
            raise ValueError(f"resolved in epoch {resolution.epoch}, the tree is in {self.epoch}")
        yes = resolution.plain_links & mask
        numbers, found = self.kernel.route(self.leaves, resolution.contents, attributes, mask & ~yes, local)
        plain = [number for end in resolution.ends for number, link in end.plain.items() if link == local]
        return RouteResult(plain + numbers, yes | found)

    @property
    def is_reordering(self) -> bool:
        """Whether `tend` has work to do."""
        return bool(self._reordered)

    def tend(self) -> None:
        """Do one bounded step of maintenance. Every change does one too, in its own content tree; this one is for idle
        times.
        """
        for number, content in self._reordered.items():
            self._tend(number, content)
            break

    def census(self) -> TreeSize:
        """Count everything. Takes time in proportion to the size of the tree."""
        buckets = forks = size = 0
        for end in self.ends:
            if end is None:
                continue
            size += end.bytes()
            if end.content is None:
                continue
            size += end.content.bytes()
            for node in end.content.nodes():
                size += node.bytes()
                if isinstance(node, self.kernel.Bucket):
                    buckets += 1
                else:
                    forks += 1
        nodes = self.topics.nodes + buckets + forks
        size += self.leaves.bytes() + self.topics.bytes() + getsizeof(self.ends) + getsizeof(self._plain)
        return TreeSize(len(self), len(self.leaves), buckets, nodes, size)

    def _tend(self, number: int, content: Content) -> None:
        if content.tend():
            self._reordered[number] = content
        else:
            self._reordered.pop(number, None)

    def _end_at(self, number: int, text: str) -> End:
        if number >= len(self.ends):
            self.ends += [None] * (number + 1 - len(self.ends))
        end = self.ends[number]
        if end is None:
            end = self.ends[number] = End(number, text)
            self.epoch += 1
        end.subscriptions += 1
        return end

    def _remove_filtered(self, number: int, end: End) -> None:
        content = end.content
        assert content is not None
        wanted = len(content.attributes)
        for leaf in self.leaves.quit(number):
            if self.leaves.members_of(leaf):
                content.thin_out(leaf)
            else:
                content.uproot(leaf)
                self.leaves.destroy(leaf)
        self._filtered -= 1
        self.epoch += len(content.attributes) != wanted
        if not content:
            content.discard()
            end.content = None
            self._reordered.pop(end.number, None)
            self.epoch += 1
        else:
            self._tend(end.number, content)
