"""A queue that does more than let the oldest go first: for bridges, and for who wants less than all of what waits.

What an ordinary client has is an `Outbox`, which takes less time and memory. A *lane* is a part of the queue: what is
live, or the backlog. There is one only, unless live messages go first. Each message has a *place*, a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

from edgebridge.session.inflight import Entry
from edgebridge.session.links import Links
from edgebridge.session.outbox import Allowance, Outbox, QueueFull
from edgebridge.session.thinning import Thinning
from edgebroker.instants import Duration, Instant
from edgebroker.publication import Publication
from edgebroker.records import Cause

BACKLOG_EVERY: Final = 8
"""Of so many messages one is of the backlog while both wait: what is live is late by an eighth at most."""
_NOT_YET: Final = 1 << 63  # more than the number of any record
STATES: Final = 0
"""The chain of what waits for too long and is what is retained of its topic: older than all that stands in lanes."""
BACKLOG: Final = 1
LIVE: Final = 2
ENDS: Final = 3
"""Places have numbers from this one on."""
PLACES_KEPT: Final = 1_000
"""Places of an empty queue that are not given back: 40 KiB."""
LOOKS_AHEAD: Final = 2
"""Messages looked at for each one that comes while a sweep is under way (`thinning`)."""
LOOKS_MAX: Final = 100
"""The same where the reader made room meanwhile, so that the sweep is behind. Then one goes out of its turn."""


class Spool(Outbox):
    """*age_us*: how long a message may wait; 0: always. *is_live_first*: what comes while the reader is there goes
    before what waited for it.
    """

    __slots__ = (
        "_at",
        "_free",
        "_is_ahead",
        "_lane",
        "_last",
        "_links",
        "_looks",
        "_state_of",
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
        self._lane = LIVE if is_live_first else BACKLOG
        """Where what comes stands."""
        self._state_of: dict[str, int] = {}
        self._turn = 0
        self._last: dict[str, int] | None = {} if policy is QueueFull.KEEP_LAST else None
        self._looks = LOOKS_AHEAD
        self._is_ahead = False  # the sweep goes on for each message that comes, room or not
        self._thinning: Thinning | None = None
        self._begin()

    def _begin(self) -> None:
        self._links = Links(ENDS)
        self._at: list[Any] = [None] * ENDS  # the entry at each place; None if it is free
        self._free: list[int] = []
        self._thinning = Thinning(self._topic_of) if self.policy is QueueFull.DOWN_SAMPLE else None

    def __iter__(self) -> Iterator[Entry]:
        return (self._at[place] for place in self._places())

    def restore(self, entry: Entry) -> None:
        """Queue *entry* whatever the bounds: it was let in when they were asked, before a restart."""
        if self._free:
            place = self._free.pop()
            self._at[place] = entry
        else:
            place = len(self._at)
            self._at.append(entry)
        self._links.append(self._lane, place)
        self._came(entry, entry.publication.held_bytes())
        if self._last is not None:
            self._last[entry.publication.topic] = place
        if self._thinning is not None:
            newest = self._thinning.newest(entry.publication.topic)
            self._thinning.came(place, entry.publication.topic, self._is_later(newest, entry.publication))

    def _fill(self, entries: list[Entry]) -> None:
        # All at once: one after the other is four times as long, and nothing else happens meanwhile.
        first = len(self._at)
        self._at.extend(entries)
        self._links.fill(self._lane, first, len(entries))
        topics = [entry.publication.topic for entry in entries]
        if self._last is not None:
            self._last.update(zip(topics, range(first, len(self._at)), strict=True))
        if self._thinning is not None:
            self._thinning.fill(first, topics)

    def take(self) -> Entry:
        """Take out and return what is sent next. Raises IndexError if nothing waits."""
        self._is_ahead = False  # the reader makes room
        if self.is_live_first and self._oldest() != (live := self._links.first(LIVE)) != LIVE:
            self._turn = (self._turn + 1) % BACKLOG_EVERY
            if self._turn:
                return self._let_go(live)
        return self._take_oldest()

    def pick(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Take out the entries that are *wanted*, oldest first."""
        return [self._let_go(place) for place in [place for place in self._places() if wanted(self._at[place])]]

    def take_expired(self, now: Instant, most: int) -> list[Entry]:
        """Take out and return what has expired, oldest first, and no more than *most* of it."""
        over = (place for place in self._places() if self._at[place].publication.has_expired(now))
        return [self._let_go(place) for place in list(islice(over, most))]

    def resumed(self) -> None:
        """The reader is back: what waits now is its backlog."""
        if self.is_live_first:
            self._links.join(BACKLOG, LIVE)

    def oldest_at(self) -> Instant | None:
        """When the message was accepted that waits at the head; None if none does."""
        oldest = self._oldest()
        return self._accepted_at(oldest) if oldest >= ENDS else None

    # -- no room ----------------------------------------------------------------------------------------------------

    def superseded_by(self, entry: Entry) -> Entry | None:
        """Take out and return the message that need not wait any more, because *entry* has the same topic. None if none
        does, or *entry* cannot wait itself.
        """
        before = None if self._last is None else self._last.get(entry.publication.topic)
        return self._let_go(before) if before is not None and self.could_hold(entry.publication.held_bytes()) else None

    def holds_later(self, publication: Publication) -> bool:
        """Whether a later message of its topic waits, and only the last one is to."""
        last = None if self._last is None else self._last.get(publication.topic)
        return self._is_later(last, publication)

    def _is_later(self, place: int | None, publication: Publication) -> bool:
        """Whether what waits at *place* came after *publication*, which is handed over then."""
        return place is not None and _age(self._at[place].publication) > _age(publication)

    def make_room(self, entry: Entry) -> Entry | None:
        """Take out and return the message that goes next for *entry*. None if none must, or none may."""
        size = entry.publication.held_bytes()
        if not self.could_hold(size):
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
        looks = LOOKS_MAX
        for _ in range(2):  # what is left of a sweep may all stay; the first that the next one looks at does not
            if not thinning.is_under_way:
                thinning.begin()
            while thinning.is_under_way:
                going = thinning.look() if looks else thinning.at_hand()
                if going is not None:
                    return self._let_go(going)
                looks -= 1
        going = thinning.newest(entry.publication.topic)  # all that waits is the last of its topic
        if self._is_later(going, entry.publication):
            return None
        if going is not None:
            return self._let_go(going)
        self.cause = Cause.QUEUE_FULL
        return self._take_oldest()

    # -- too old ----------------------------------------------------------------------------------------------------

    def next_aged_at(self) -> Instant | None:
        """When the next message has waited for too long; None if none waits that ever will have."""
        oldest = self._oldest_in_lanes()
        return self._accepted_at(oldest) + self.age_us + 1 if oldest >= ENDS else None

    def take_aged(self, now: Instant, is_state: Callable[[Publication], bool], looks: int) -> list[Entry]:
        """Take out and return messages that waited for too long; at most so many are looked at.

        One of which *is_state* says that it is what is retained of its topic waits on, until another one is.
        """
        aged: list[Entry] = []
        for _ in range(looks):
            oldest = self._oldest_in_lanes()
            if oldest < ENDS or now - self._accepted_at(oldest) <= self.age_us:
                break
            publication: Publication = self._at[oldest].publication
            if not is_state(publication):
                aged.append(self._let_go(oldest))
                continue
            before = self._state_of.get(publication.topic)
            if before is not None:
                aged.append(self._let_go(before))
            self._links.leave(oldest)
            self._links.append(STATES, oldest)
            self._state_of[publication.topic] = oldest
        return aged

    # -- inside -----------------------------------------------------------------------------------------------------

    def _topic_of(self, place: int) -> str:
        topic: str = self._at[place].publication.topic
        return topic

    def _accepted_at(self, place: int) -> Instant:
        accepted_at: Instant = self._at[place].publication.accepted_at
        return accepted_at

    def _places(self) -> Iterator[int]:
        return chain.from_iterable(map(self._links.walk, (STATES, BACKLOG, LIVE)))

    def _oldest(self) -> int:
        """The place of what waits longest; below ENDS if nothing does."""
        oldest = self._links.first(STATES)
        return oldest if oldest != STATES else self._oldest_in_lanes()

    def _oldest_in_lanes(self) -> int:
        oldest = self._links.first(BACKLOG)
        return oldest if oldest != BACKLOG else self._links.first(LIVE)

    def _take_oldest(self) -> Entry:
        oldest = self._oldest()
        if oldest < ENDS:
            raise IndexError("nothing waits")
        return self._let_go(oldest)

    def _let_go(self, place: int) -> Entry:
        """Take out what stands at *place*."""
        entry: Entry = self._at[place]
        topic = entry.publication.topic
        self._links.leave(place)
        self._left(entry)
        if self._last is not None and self._last.get(topic) == place:
            del self._last[topic]
        if self._thinning is not None:
            self._thinning.left(place, topic)
        if self._state_of and self._state_of.get(topic) == place:
            del self._state_of[topic]
        if not self and len(self._at) > PLACES_KEPT:
            self._begin()
        else:
            self._at[place] = None
            self._free.append(place)
        return entry


def _age(publication: Publication) -> tuple[int, int, int]:
    """Grows from message to message, also of those that came in one piece: of these the last is not stored yet."""
    return publication.accepted_at, publication.stored or _NOT_YET, publication.number
