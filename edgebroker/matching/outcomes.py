"""What searches and counts of the tree answer."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """The outcome of link matching for one event."""

    yes: int
    """The links that need a copy, one bit each."""
    steps: int
    """The forks and buckets visited."""


class Route(NamedTuple):
    """The local subscriptions and the links that an event goes to."""

    numbers: list[int]
    """The local subscriptions that match."""
    yes: int
    """The links that need a copy, one bit each."""


class Found(NamedTuple):
    """The outcome of `route` in the content trees of one event."""

    numbers: list[int]
    """The local subscriptions that match."""
    yes: int
    """The links over which some subscription matches, one bit each."""


class Use(NamedTuple):
    """How some leaves of a bucket use one attribute, as far as the path to the bucket does not settle it."""

    tested: int
    """Leaves that test it."""
    cuts: list[float] | None
    """Where their number intervals begin and end, each as often as it does; None if nobody asks for numbers."""
    strings: list[int] | None
    """The strings they name, in the order in which they appear; None if nobody asks for strings."""
    booleans: bool


class Census(NamedTuple):
    """How large a tree is."""

    subscriptions: int
    leaves: int
    """Different predicates, by topic filter."""
    buckets: int
    nodes: int
    """Nodes of the topic tree, forks and buckets."""
    bytes: int
    """Bytes taken; the numbers of the subscriptions and the texts of their topic filters are the caller's."""
