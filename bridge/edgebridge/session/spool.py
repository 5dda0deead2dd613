"""A queue that does more than let the oldest go first: for bridges, and for who wants less than all of what waits.

What an ordinary client has is an `Outbox`, which takes less time and memory. A *lane* is a part of the queue: what is
live, or the backlog. There is one only, unless live messages go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from edgebridge.session.chain import Chain, Link
from edgebridge.session.inflight import Entry
from edgebridge.session.outbox import Allowance, Outbox, QueueFull
from edgebridge.session.thinning import Thinning
from edgebroker.instants import Duration, Instant
from edgebroker.publication import Publication
from edgebroker.records import Cause

BACKLOG_EVERY: Final = 8
"""Of so many messages one is of the backlog while both wait: what is live is late by an eighth at most."""
LOOKS_AHEAD: Final = 2
"""Messages looked at for each one that comes while a sweep is under way (`thinning`)."""


class Spool(Outbox):
    """*age_us*: how long a message may wait; 0: always. *is_live_first*: what comes while the reader is there goes
    before what waited for it.
    """

    __slots__ = (
        "_backlog",
        "_is_ahead",
        "_last",
        "_live",
        "_looks",
        "_state_of",
        "_states",
        "_thinning",
        "_turn",
    )

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        policy: QueueFull = QueueFull.DROP_NEWEST,
        allowance: Allowance | None = None,
        age_us: Duration = 0,
        is_live_first: bool = False,
    ) -> None:
        super().__init__(messages_max, bytes_max, policy, allowance)
        self.age_us = age_us
        self.is_live_first = is_live_first
        self._states = Chain()
        """What waits for too long and is what is retained of its topic: older than all that stands in lanes."""
        self._state_of: dict[str, Link] = {}
        self._backlog = Chain()
        self._live = Chain() if is_live_first else self._backlog
        self._turn = 0
        self._last: dict[str, Link] | None = {} if policy is QueueFull.KEEP_LAST else None
        self._thinning = Thinning() if policy is QueueFull.DOWN_SAMPLE else None
        self._looks = LOOKS_AHEAD
        self._is_ahead = False  # the sweep goes on for each message that comes, room or not

    def __iter__(self) -> Iterator[Entry]:
        return (place.entry for place in self._places())

    def restore(self, entry: Entry) -> None:
        """Queue *entry* whatever the bounds: it was let in when they were asked, before a restart."""
        place = Link(entry)
        self._live.append(place)
        self._came(entry, entry.publication.held_bytes())
        if self._last is not None:
            self._last[entry.publication.topic] = place
        if self._thinning is not None:
            self._thinning.came(place)

    def take(self) -> Entry:
        """Take out and return what is sent next. Raises IndexError if nothing waits."""
        self._is_ahead = False  # the reader makes room
        if self.is_live_first and (self._states or self._backlog) and (live := self._live.first) is not None:
            self._turn = (self._turn + 1) % BACKLOG_EVERY
            if self._turn:
                return self._let_go(live)
        return self._take_oldest()

    def pick(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Take out the entries that are *wanted*, oldest first."""
        return [self._let_go(place) for place in [place for place in self._places() if wanted(place.entry)]]

    def resumed(self) -> None:
        """The reader is back: what waits now is its backlog."""
        if self.is_live_first:
            self._backlog.join(self._live)

    def oldest_at(self) -> Instant | None:
        """When the message was accepted that waits at the head; None if none does."""
        oldest = self._oldest()
        return None if oldest is None else oldest.entry.publication.accepted_at

    # -- no room ----------------------------------------------------------------------------------------------------

    def superseded_by(self, entry: Entry) -> Entry | None:
        """Take out and return the message that need not wait any more, because *entry* has the same topic."""
        before = None if self._last is None else self._last.get(entry.publication.topic)
        return None if before is None else self._let_go(before)

    def make_room(self, entry: Entry) -> Entry | None:
        """Take out and return the message that goes next for *entry*. None if none must, or none may."""
        size = entry.publication.held_bytes()
        if size > self.bytes_max:
            return None
        if self._thinning is not None:
            going = self._thin(self._thinning, entry, size)
        elif self.policy not in (QueueFull.DROP_OLDEST, QueueFull.KEEP_LAST) or self.has_room(size) or not self:
            return None
        else:
            going = self._take_oldest()
        self.dropped += going is not None
        return going

    def _thin(self, thinning: Thinning, entry: Entry, size: int) -> Entry | None:
        self.cause = Cause.THINNED
        while self._is_ahead and self._looks and thinning.is_under_way:
            self._looks -= 1
            if (going := thinning.look()) is not None:
                return self._let_go(going)
        if self.has_room(size) or not self:
            self._looks = LOOKS_AHEAD
            return None
        self._is_ahead = True
        for _ in range(2):  # what is left of a sweep may all stay; the first that the next one looks at does not
            if not thinning.is_under_way:
                thinning.begin()
            while thinning.is_under_way:
                if (going := thinning.look()) is not None:
                    return self._let_go(going)
        going = thinning.newest(entry.publication.topic)  # all that waits is the last of its topic
        if going is not None:
            return self._let_go(going)
        self.cause = Cause.QUEUE_FULL
        return self._take_oldest()

    # -- too old ----------------------------------------------------------------------------------------------------

    def next_aged_at(self) -> Instant | None:
        """When the next message has waited for too long; None if none waits that ever will have."""
        oldest = self._backlog.first or self._live.first
        return None if oldest is None else oldest.entry.publication.accepted_at + self.age_us + 1

    def take_aged(self, now: Instant, is_state: Callable[[Publication], bool], looks: int) -> list[Entry]:
        """Take out and return messages that waited for too long; at most so many are looked at.

        One of which *is_state* says that it is what is retained of its topic waits on, until another one is.
        """
        aged: list[Entry] = []
        for _ in range(looks):
            oldest = self._backlog.first or self._live.first
            if oldest is None:
                break
            publication = oldest.entry.publication
            if now - publication.accepted_at <= self.age_us:
                break
            if not is_state(publication):
                aged.append(self._let_go(oldest))
                continue
            before = self._state_of.get(publication.topic)
            if before is not None:
                aged.append(self._let_go(before))
            oldest.leave()
            self._states.append(oldest)
            self._state_of[publication.topic] = oldest
        return aged

    # -- inside -----------------------------------------------------------------------------------------------------

    def _places(self) -> Iterator[Link]:
        return chain(self._states, self._backlog, self._live if self.is_live_first else ())

    def _oldest(self) -> Link | None:
        return self._states.first or self._backlog.first or self._live.first

    def _take_oldest(self) -> Entry:
        oldest = self._oldest()
        if oldest is None:
            raise IndexError("nothing waits")
        return self._let_go(oldest)

    def _let_go(self, place: Link) -> Entry:
        """Take out what stands at *place*."""
        entry = place.entry
        topic = entry.publication.topic
        place.leave()
        self._left(entry)
        if self._last is not None and self._last.get(topic) is place:
            del self._last[topic]
        if self._thinning is not None:
            self._thinning.left(place)
        if self._state_of and self._state_of.get(topic) is place:
            del self._state_of[topic]
        return entry
