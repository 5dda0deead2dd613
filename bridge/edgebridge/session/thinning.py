"""Which of the messages that wait goes next, if of each topic every second one is to go, and never the last.

In *sweeps*. A sweep looks at what was superseded by then, in the order in which that happened: of each topic the first
goes, the second stays, the third goes. What stays is looked at again in the next sweep, before what was superseded
since. So each sweep halves the history of every topic once more, and what is older went through more of them.

At least half of what a sweep has looked at went, whenever one asks. So it may be done little by little: two looks for
each message that comes always find one that goes, and no message makes more work than that, however long the queue.
"""

from __future__ import annotations

from edgebridge.session.chain import Chain, Link


class Thinning:
    """What it has to know of a queue: `came` and `left` tell it of every place in it."""

    __slots__ = ("_at_hand", "_fresh", "_newest", "_passed", "_spared")

    def __init__(self) -> None:
        self._newest: dict[str, Link] = {}
        self._at_hand = Chain()  # what this sweep has still to look at
        self._passed = Chain()  # what it has let stay
        self._fresh = Chain()  # what was superseded since it began
        self._spared: set[str] = set()  # topics of which the next that it looks at stays

    def came(self, place: Link) -> None:
        """A message waits, as the last of its topic."""
        topic = place.entry.publication.topic
        before = self._newest.get(topic)
        if before is not None:
            before.other = Link(before.entry, before)
            self._fresh.append(before.other)
        self._newest[topic] = place

    def left(self, place: Link) -> None:
        """A message waits no more."""
        if (superseded := place.other) is not None:
            superseded.leave()
            place.other = superseded.other = None
        elif self._newest.get(topic := place.entry.publication.topic) is place:
            del self._newest[topic]

    def newest(self, topic: str) -> Link | None:
        """The place of the last message of *topic*; None if it does not wait."""
        return self._newest.get(topic)

    @property
    def is_under_way(self) -> bool:
        """Whether the sweep has still something to look at."""
        return bool(self._at_hand)

    def begin(self) -> None:
        """Begin a sweep. To be called when there is none."""
        self._at_hand.join(self._passed)
        self._at_hand.join(self._fresh)
        self._spared = set()

    def look(self) -> Link | None:
        """Look at one more; its place is returned if it has to go. The caller takes it out of the queue."""
        looked_at = self._at_hand.first
        assert looked_at is not None
        topic = looked_at.entry.publication.topic
        if topic in self._spared:
            self._spared.remove(topic)
            looked_at.leave()
            self._passed.append(looked_at)
            return None
        self._spared.add(topic)
        return looked_at.other
