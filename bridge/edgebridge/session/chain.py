"""Entries in an order out of which any can be taken: each step takes the same time, however many there are.

A deque does not let go of what is in its middle, and in a dictionary of 100,000 one message in a while has to wait
20 ms until there is room for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from edgebridge.session.inflight import Entry


class Link:
    """The place of an entry in a chain; `other`: its place in another one."""

    __slots__ = ("after", "before", "entry", "other")

    def __init__(self, entry: Entry, other: Link | None = None) -> None:
        self.entry = entry
        self.other = other
        self.before = self.after = self

    def leave(self) -> None:
        """Go out of the chain."""
        self.before.after, self.after.before = self.after, self.before
        self.before = self.after = self


class Chain:
    """Links, oldest first."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = Link(cast("Entry", None))  # behind the last, and before the first

    def __bool__(self) -> bool:
        return self._end.after is not self._end

    def __iter__(self) -> Iterator[Link]:
        """The chain must not change meanwhile."""
        link = self._end.after
        while link is not self._end:
            yield link
            link = link.after

    @property
    def first(self) -> Link | None:
        """The oldest; None if there is none."""
        first = self._end.after
        return None if first is self._end else first

    def append(self, link: Link) -> None:
        """Let *link*, which is in no chain, be the last."""
        end = self._end
        link.before, link.after = end.before, end
        end.before.after = end.before = link

    def join(self, other: Chain) -> None:
        """Let all of *other* stand behind, and nothing in it any more."""
        if not other:
            return
        end, theirs = self._end, other._end
        end.before.after, theirs.after.before = theirs.after, end.before
        end.before, theirs.before.after = theirs.before, end
        theirs.before = theirs.after = theirs
