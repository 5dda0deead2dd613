"""The decisions of link matching for one event: the mask at every node, and where each link became YES or NO."""

from __future__ import annotations

from enum import Enum
from typing import Any

from edgebroker.dataclasses import dataclass
from edgebroker.matching.outcomes import TritVector, absorb, refine
from edgebroker.matching.trace import SearchTrace, label_to


class Why(Enum):
    """The reason why a link is YES or NO."""

    PLAIN = "plain"
    """YES: a subscription without content filter is reached over it."""
    CERTAIN = "certain"
    """YES: every event that reaches the node has a match over it [LM, invariant I1]."""
    FOUND = "found"
    """YES: a predicate in the bucket accepts the event."""
    CLOSED = "closed"
    """NO: no subscription at or below the node is reached over it."""
    SEARCHED = "searched"
    """NO: the search ended without a match, last in this bucket."""
    NO_EDGE = "no edge"
    """NO: the event takes no edge at the node."""
    NOBODY = "nobody"
    """NO: no matching topic filter has a content tree to search."""


@dataclass(frozen=True, slots=True)
class LinkStep:
    """One node that link matching visits."""

    number: int
    """In the order of the search, from 1."""
    depth: int
    topic_filter: str
    label: str
    """Of the edge to this node; "" at the root of a content tree."""
    is_fork: bool
    annotation: TritVector
    mask: TritVector
    """The mask before this node."""
    refined: TritVector
    """The mask refined by the annotation; the search goes no deeper if no trit is MAYBE."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The result for one link."""

    link: int
    yes: bool
    why: Why
    step: int
    """The step that decided it; 0: before the first."""


class LinkTrace:
    """The search for the links of *mask*, for the event of *trace*."""

    def __init__(self, trace: SearchTrace, mask: int) -> None:
        """mask: one bit per link."""
        self.steps: list[LinkStep] = []
        self._trace = trace
        self._last: dict[int, tuple[Why, int]] = {}
        self.yes = trace.resolution.plain_links & mask
        """The links that need a copy, one bit each."""
        self._record(self.yes, Why.PLAIN, 0)
        if self.yes != mask:
            for end in trace.ends:
                if end.content is not None:
                    self._topic_filter = end.text
                    at = TritVector(self.yes, mask & ~self.yes)
                    self.yes |= self._close(end.content.root, 0, at).yes & mask
        self.ends = tuple(self._end(link) for link in range(mask.bit_length()) if mask >> link & 1)

    def _close(self, node: Any, depth: int, mask: TritVector) -> TritVector:
        """Return the closed *mask* after *node* has been searched [LM 2.6]."""
        number = len(self.steps) + 1
        is_fork = isinstance(node, self._trace.tree.kernel.Fork)
        annotation = node.annotation
        if self._trace.is_doubtful(node):  # a YES of the annotation holds only for values of the edge's cells
            annotation = TritVector(0, annotation.reach)
        refined = refine(mask, annotation)
        label = label_to(self._trace.tree.leaves, node)
        self.steps.append(LinkStep(number, depth, self._topic_filter, label, is_fork, annotation, mask, refined))
        self._record(mask.maybe & annotation.yes, Why.CERTAIN, number)
        self._record(mask.maybe & ~annotation.reach, Why.CLOSED, number)
        if refined.maybe:
            refined = self._branch(node, depth, refined) if is_fork else self._scan(node, refined)
        return TritVector(refined.yes, 0)

    def _branch(self, fork: Any, depth: int, mask: TritVector) -> TritVector:
        children = self._trace.next_of(fork)
        if not children:
            self._record(mask.maybe, Why.NO_EDGE, len(self.steps))
        for child in children:
            mask = absorb(mask, self._close(child, depth + 1, mask))
            if not mask.maybe:
                break
        return mask

    def _scan(self, bucket: Any, mask: TritVector) -> TritVector:
        number = len(self.steps)
        for candidate in self._trace.candidates(bucket):
            links = self._trace.tree.leaves.members_of(candidate.leaf).values()
            found = mask.maybe & sum(1 << link for link in set(links))
            if found and self._trace.is_found(candidate):
                self._record(found, Why.FOUND, number)
                mask = absorb(mask, TritVector(found, 0))
                if not mask.maybe:
                    break
        self._record(mask.maybe, Why.SEARCHED, number)
        return mask

    def _record(self, links: int, why: Why, step: int) -> None:
        """Record the reason and step of each of *links*; CLOSED does not replace the result of an earlier search."""
        for link in range(links.bit_length()):
            if links >> link & 1 and not (why is Why.CLOSED and link in self._last):
                self._last[link] = why, step

    def _end(self, link: int) -> LinkEnd:
        return LinkEnd(link, bool(self.yes >> link & 1), *self._last.get(link, (Why.NOBODY, 0)))
