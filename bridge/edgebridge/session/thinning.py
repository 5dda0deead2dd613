"""Which of the messages that wait goes next, if of each topic every second one is to go, and never the last.

In *sweeps*. A sweep looks at what was superseded by then, in the order in which that happened: of each topic the first
goes, the second stays, the third goes. What stays is looked at again in the next sweep, before what was superseded
since. So each sweep halves the history of every topic once more, and what is older went through more of them.

At least half of what a sweep has looked at went, whenever one asks. So it may be done little by little: two looks for
each message that comes always find one that goes, and no message makes more work than that, however long the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from edgebridge.session.links import Links

AT_HAND: Final = 0
"""The chain of what a sweep has still to look at."""
PASSED: Final = 1
"""Of what it has let stay."""
FRESH: Final = 2
"""Of what was superseded since it began."""
ENDS: Final = 3
"""Places have numbers from this one on."""


class Thinning:
    """What it has to know of a queue: `came` and `left` tell it of every place in it. *topic_of* a place says whose."""

    __slots__ = ("_links", "_newest", "_spared", "_topic_of")

    def __init__(self, topic_of: Callable[[int], str]) -> None:
        self._topic_of = topic_of
        self._newest: dict[str, int] = {}
        self._links = Links(ENDS)
        self._spared: set[str] = set()  # topics of which the next that it looks at stays

    def came(self, place: int, topic: str, is_older: bool = False) -> None:
        """A message waits, as the last of its topic; or *is_older* than that one, and superseded already."""
        if is_older:
            self._links.append(FRESH, place)
            return
        before = self._newest.get(topic)
        if before is not None:
            self._links.append(FRESH, before)
        self._newest[topic] = place

    def fill(self, first: int, topics: Sequence[str]) -> None:
        """Messages of *topics* wait, at *first* and behind it. None waited before."""
        newest, superseded = self._newest, []
        for place, topic in enumerate(topics, first):
            before = newest.get(topic)
            if before is not None:
                superseded.append(before)
            newest[topic] = place
        self._links.chain(FRESH, superseded)

    def left(self, place: int, topic: str) -> None:
        """A message waits no more."""
        if self._links.has(place):
            self._links.leave(place)
        elif self._newest.get(topic) == place:
            del self._newest[topic]

    def newest(self, topic: str) -> int | None:
        """The place of the last message of *topic*; None if it does not wait."""
        return self._newest.get(topic)

    @property
    def is_under_way(self) -> bool:
        """Whether the sweep has still something to look at."""
        return self._links.first(AT_HAND) != AT_HAND

    def begin(self) -> None:
        """Begin a sweep. To be called when there is none."""
        self._links.join(AT_HAND, PASSED)
        self._links.join(AT_HAND, FRESH)
        self._spared = set()

    def at_hand(self) -> int:
        """The place of what it looks at next. To be called while it is under way."""
        return self._links.first(AT_HAND)

    def look(self) -> int | None:
        """Look at one more; its place is returned if it has to go. The caller takes it out of the queue."""
        place = self.at_hand()
        topic = self._topic_of(place)
        if topic in self._spared:
            self._spared.remove(topic)
            self._links.leave(place)
            self._links.append(PASSED, place)
            return None
        self._spared.add(topic)
        return place
