"""Results of searches in the tree, and trits: the knowledge of a broker about a link before the search ends [LM,
operators].

YES: a match over this link is certain. NO: there is none. MAYBE: search on. A vector of trits is two integers with one
bit per link; a link with neither bit is NO, so vectors have no length of their own.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TritVector(NamedTuple):
    """One trit per link, link 0 in the lowest bit. No bit is in both fields."""

    yes: int
    maybe: int

    @property
    def reach(self) -> int:
        """The links that are not NO."""
        return self.yes | self.maybe


NOWHERE: Final = TritVector(0, 0)
"""NO for every link: the identity of `parallel_combine`."""


def alternative_combine(a: TritVector, b: TritVector) -> TritVector:
    """Combine two branches of which an event takes exactly one: equal trits stay, all others become MAYBE."""
    yes = a.yes & b.yes
    return TritVector(yes, (a.reach | b.reach) & ~yes)


def parallel_combine(a: TritVector, b: TritVector) -> TritVector:
    """Combine two branches that are both searched: the more hopeful of the two trits."""
    yes = a.yes | b.yes
    return TritVector(yes, (a.maybe | b.maybe) & ~yes)


def refine(mask: TritVector, annotation: TritVector) -> TritVector:
    """Return *mask* at a node with *annotation*: only a MAYBE can change."""
    return TritVector(mask.yes | (mask.maybe & annotation.yes), mask.maybe & annotation.maybe)


def absorb(mask: TritVector, found: TritVector) -> TritVector:
    """Return *mask* after a branch was searched with the result *found*: its YES turns a MAYBE into YES."""
    return TritVector(mask.yes | (mask.maybe & found.yes), mask.maybe & ~found.yes)


def format_trits(trits: TritVector, links: int) -> str:
    """Return the first *links* trits as letters, link 0 first."""
    return "".join("Y" if trits.yes >> link & 1 else "M" if trits.maybe >> link & 1 else "N" for link in range(links))


class LinkDecision(NamedTuple):
    """The result of link matching for one event."""

    yes: int
    """The links that need a copy, one bit each."""
    steps: int
    """The number of forks and buckets visited."""


class RouteResult(NamedTuple):
    """The local subscriptions and the links that match an event."""

    numbers: list[int]
    """The local subscriptions that match."""
    yes: int
    """The links that need a copy, one bit each."""


class MatchResult(NamedTuple):
    """The result of `route` in the content trees of one event."""

    numbers: list[int]
    """The local subscriptions that match."""
    yes: int
    """The links over which some subscription matches, one bit each."""


class AttributeUse(NamedTuple):
    """How the leaves of a bucket use one attribute, as far as the path to the bucket does not settle it."""

    tested: int
    """The number of leaves that test it."""
    cuts: list[float] | None
    """The bounds of their number intervals, with repetitions; None if no test is for numbers."""
    strings: list[int] | None
    """The strings they name, in order of first use; None if no test is for strings."""
    booleans: bool


class TreeSize(NamedTuple):
    """The size of a tree."""

    subscriptions: int
    leaves: int
    """Distinct predicates, by topic filter."""
    buckets: int
    nodes: int
    """Nodes of the topic tree, forks and buckets."""
    bytes: int
    """Memory, without the numbers of the subscriptions and the texts of their topic filters, which the caller owns."""
