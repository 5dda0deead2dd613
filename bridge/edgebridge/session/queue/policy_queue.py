"""The queue with policies: keep-last, down-sampling, maximum age, and live messages before the backlog.

An ordinary client has a `SessionOutbox`, which takes less time and memory. `IndexList` holds places of messages in
linked lists, so that any place is removed in constant time. `DownSampler` chooses which message is dropped next when
of each topic every second one goes, never the last: two steps for each new message suffice. `PolicyQueue` has two
lanes, live and backlog, if live messages go first, else one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from edgebridge.session.inflight import QueueEntry
from edgebridge.session.queue.outbox import Allowance, OverflowPolicy, SessionOutbox
from edgebroker.instants import Duration, Instant
from edgebroker.log_schema import Cause
from edgebroker.publication import Publication


class IndexList:
    """The numbers below *ends* are the ends of as many chains, which are empty. All others are in no chain yet."""

    __slots__ = ("_after", "_before")

    def __init__(self, ends: int) -> None:
        self._after = array("q", range(ends))
        self._before = array("q", range(ends))

    def first(self, end: int) -> int:
        """What stands first in a chain; its end if it is empty."""
        return self._after[end]

    def has(self, number: int) -> bool:
        """Whether *number* is in a chain."""
        return number < len(self._after) and self._after[number] != number

    def append(self, end: int, number: int) -> None:
        """Let *number*, which is in no chain, be the last in one."""
        after, before = self._after, self._before
        for another in range(len(after), number + 1):
            after.append(another)
            before.append(another)
        last = before[end]
        before[number], after[number] = last, end
        after[last] = before[end] = number

    def append_range(self, end: int, first: int, count: int) -> None:
        """Append so many numbers from *first* on, which is larger by one than any number so far."""
        if not count:
            return
        after, before, beyond = self._after, self._before, first + count
        last = before[end]
        before.extend(range(first - 1, beyond - 1))
        after.extend(range(first + 1, beyond + 1))
        before[first], after[last] = last, first
        after[beyond - 1], before[end] = end, beyond - 1

    def append_all(self, end: int, numbers: Sequence[int]) -> None:
        """Let *numbers* follow each other in a chain. No number was in any so far."""
        if not numbers:
            return
        after, before = self._after, self._before
        known = range(len(after), max(numbers) + 1)
        after.extend(known)
        before.extend(known)
        last = end
        for number in numbers:
            before[number], after[last] = last, number
            last = number
        after[last], before[end] = end, last

    def remove(self, number: int) -> None:
        """Take *number* out of its chain."""
        after, before = self._after, self._before
        last, following = before[number], after[number]
        after[last], before[following] = following, last
        after[number] = before[number] = number

    def join(self, end: int, other: int) -> None:
        """Let all of the chain that ends with *other* stand behind those of another one, and none in it any more."""
        after, before = self._after, self._before
        first, last = after[other], before[other]
        if first != other:
            before[first], after[before[end]] = before[end], first
            after[last], before[end] = end, last
            after[other] = before[other] = other

    def iterate(self, end: int) -> Iterator[int]:
        """All of a chain, which must not change meanwhile."""
        number = self._after[end]
        while number != end:
            yield number
            number = self._after[number]


SWEEP_PENDING: Final = 0
"""The chain of what a sweep has still to look at."""
SWEEP_KEPT: Final = 1
"""Of what it has let stay."""
SUPERSEDED_SINCE: Final = 2
"""Of what was superseded since it began."""
SWEEP_LISTS: Final = 3
"""Places have numbers from this one on."""


class DownSampler:
    """What it has to know of a queue: `came` and `left` tell it of every place in it. *topic_of* a place says whose."""

    __slots__ = ("_links", "_newest", "_spared", "_topic_of")

    def __init__(self, topic_of: Callable[[int], str]) -> None:
        self._topic_of = topic_of
        self._newest: dict[str, int] = {}
        self._links = IndexList(SWEEP_LISTS)
        self._spared: set[str] = set()  # topics of which the next that it looks at stays

    def add(self, place: int, topic: str, is_older: bool = False) -> None:
        """A message waits, as the last of its topic; or *is_older* than that one, and superseded already."""
        if is_older:
            self._links.append(SUPERSEDED_SINCE, place)
            return
        before = self._newest.get(topic)
        if before is not None:
            self._links.append(SUPERSEDED_SINCE, before)
        self._newest[topic] = place

    def add_all(self, first: int, topics: Sequence[str]) -> None:
        """Messages of *topics* wait, at *first* and behind it. None waited before."""
        newest, superseded = self._newest, []
        for place, topic in enumerate(topics, first):
            before = newest.get(topic)
            if before is not None:
                superseded.append(before)
            newest[topic] = place
        self._links.append_all(SUPERSEDED_SINCE, superseded)

    def remove(self, place: int, topic: str) -> None:
        """A message waits no more."""
        if self._links.has(place):
            self._links.remove(place)
        elif self._newest.get(topic) == place:
            del self._newest[topic]

    def newest(self, topic: str) -> int | None:
        """The place of the last message of *topic*; None if it does not wait."""
        return self._newest.get(topic)

    @property
    def is_sweeping(self) -> bool:
        """Whether the sweep has still something to look at."""
        return self._links.first(SWEEP_PENDING) != SWEEP_PENDING

    def begin_sweep(self) -> None:
        """Begin a sweep. To be called when there is none."""
        self._links.join(SWEEP_PENDING, SWEEP_KEPT)
        self._links.join(SWEEP_PENDING, SUPERSEDED_SINCE)
        self._spared = set()

    def next_place(self) -> int:
        """The place of what it looks at next. To be called while it is under way."""
        return self._links.first(SWEEP_PENDING)

    def step(self) -> int | None:
        """Look at one more; its place is returned if it has to go. The caller takes it out of the queue."""
        place = self.next_place()
        topic = self._topic_of(place)
        if topic in self._spared:
            self._spared.remove(topic)
            self._links.remove(place)
            self._links.append(SWEEP_KEPT, place)
            return None
        self._spared.add(topic)
        return place


BACKLOG_EVERY: Final = 8
"""Of so many messages one is of the backlog while both wait: what is live is late by an eighth at most."""
_NOT_STORED: Final = 1 << 63  # more than the number of any record
AGED_RETAINED: Final = 0
"""The chain of what waits for too long and is what is retained of its topic: older than all that stands in lanes."""
BACKLOG: Final = 1
LIVE: Final = 2
LANES: Final = 3
"""Places have numbers from this one on."""
PLACES_KEPT: Final = 1_000
"""Places of an empty queue that are not given back: 40 KiB."""
STEPS_AHEAD: Final = 2
"""Messages looked at for each one that comes while a sweep is under way (`thinning`)."""
STEPS_MAX: Final = 100
"""The same where the reader made room meanwhile, so that the sweep is behind. Then one goes out of its turn."""


class PolicyQueue(SessionOutbox):
    """*age_us*: how long a message may wait; 0: always. *is_live_first*: what comes while the reader is there goes
    before what waited for it.
    """

    __slots__ = (
        "_aged_retained",
        "_at",
        "_down_sampler",
        "_free",
        "_is_ahead",
        "_lane",
        "_last",
        "_links",
        "_steps",
        "_turn",
    )

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        policy: OverflowPolicy = OverflowPolicy.DROP_NEWEST,
        allowance: Allowance | None = None,
        age_us: Duration = 0,
        is_live_first: bool = False,
    ) -> None:
        super().__init__(messages_max, bytes_max, policy, allowance)
        self.age_us = age_us
        self.is_live_first = is_live_first
        self._lane = LIVE if is_live_first else BACKLOG
        """Where what comes stands."""
        self._aged_retained: dict[str, int] = {}
        self._turn = 0
        self._last: dict[str, int] | None = {} if policy is OverflowPolicy.KEEP_LAST else None
        self._steps = STEPS_AHEAD
        self._is_ahead = False  # the sweep goes on for each message that comes, room or not
        self._down_sampler: DownSampler | None = None
        self._begin()

    def _begin(self) -> None:
        self._links = IndexList(LANES)
        self._at: list[Any] = [None] * LANES  # the entry at each place; None if it is free
        self._free: list[int] = []
        self._down_sampler = DownSampler(self._topic_of) if self.policy is OverflowPolicy.DOWN_SAMPLE else None

    def before_pages(self) -> Iterator[QueueEntry]:
        """Iterate over what is sent before any page."""
        return chain((self._at[place] for place in self._links.iterate(AGED_RETAINED)), self._head)

    def behind_pages(self) -> Iterator[QueueEntry]:
        """Iterate over what is sent behind all pages."""
        return (self._at[place] for lane in (BACKLOG, LIVE) for place in self._links.iterate(lane))

    def restore(self, entry: QueueEntry) -> None:
        """Queue *entry* whatever the bounds: it was let in when they were asked, before a restart."""
        self._put(entry)

    def _put(self, entry: QueueEntry) -> int:
        """Queue *entry* in the lane of what comes. Returns its place."""
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
        if self._down_sampler is not None:
            newest = self._down_sampler.newest(entry.publication.topic)
            self._down_sampler.add(place, entry.publication.topic, self._is_later(newest, entry.publication))
        return place

    def _fill(self, entries: list[QueueEntry]) -> None:
        # All at once: one after the other is four times as long, and nothing else happens meanwhile.
        first = len(self._at)
        self._at.extend(entries)
        self._links.append_range(self._lane, first, len(entries))
        topics = [entry.publication.topic for entry in entries]
        if self._last is not None:
            self._last.update(zip(topics, range(first, len(self._at)), strict=True))
        if self._down_sampler is not None:
            self._down_sampler.add_all(first, topics)

    def dequeue(self) -> QueueEntry:
        """Take out and return what is sent next. Raises IndexError if nothing waits."""
        self._is_ahead = False  # the reader makes room
        live = self._links.first(LIVE) if self.is_live_first else LIVE
        if live != LIVE and (self._head or self.pages or self._oldest() != live):
            self._turn = (self._turn + 1) % BACKLOG_EVERY
            if self._turn or not self._is_backlog_ready():
                return self._remove(live)
        if (self._head or self.pages) and not self._has_aged_retained():
            return super().dequeue()
        return self._take_oldest()

    def is_ready(self) -> bool:
        """Whether a message can be dequeued: one waits, and the first page need not be read before."""
        is_live = self.is_live_first and self._links.first(LIVE) != LIVE
        return is_live or self._is_backlog_ready()

    def _is_backlog_ready(self) -> bool:
        return self._has_aged_retained() or super().is_ready()

    def _has_aged_retained(self) -> bool:
        return self._links.first(AGED_RETAINED) != AGED_RETAINED

    def can_page(self) -> bool:
        """Whether a part of it may be moved to the disk: not if each message that comes may supersede another."""
        return self._last is None and self._down_sampler is None and super().can_page()

    @property
    def tail_messages(self) -> int:
        """Messages behind all pages."""
        return super().tail_messages - len(self._aged_retained)

    def _take_first_of_tail(self) -> QueueEntry:
        return self._remove(self._oldest_in_lanes())

    def _remove_from_tail(self, wanted: Callable[[QueueEntry], bool]) -> list[QueueEntry]:
        return [self._remove(place) for place in [place for place in self._places() if wanted(self._at[place])]]

    def dequeue_expired(self, now: Instant, most: int) -> list[QueueEntry]:
        """Take out and return what has expired in memory, oldest first, and no more than *most* of it."""
        over = (place for place in self._places() if self._at[place].publication.has_expired(now))
        expired = [self._remove(place) for place in list(islice(over, most))]
        left = most - len(expired)
        out = set(map(id, islice((entry for entry in self._head if entry.publication.has_expired(now)), left)))
        return (self._remove_from_head(lambda entry: id(entry) in out) if out else []) + expired

    def resume(self) -> None:
        """The reader is back: what waits now is its backlog."""
        if self.is_live_first:
            self._links.join(BACKLOG, LIVE)

    def oldest_at(self) -> Instant | None:
        """When the message was accepted that waits at the head; None if none does."""
        if (self._head or self.pages) and not self._has_aged_retained():
            return super().oldest_at()
        oldest = self._oldest()
        return self._accepted_at(oldest) if oldest >= LANES else None

    # -- no room ----------------------------------------------------------------------------------------------------

    def superseded_by(self, entry: QueueEntry) -> QueueEntry | None:
        """Take out and return the message that need not wait any more, because *entry* has the same topic. None if none
        does, or *entry* cannot wait itself.
        """
        before = None if self._last is None else self._last.get(entry.publication.topic)
        return self._remove(before) if before is not None and self.could_hold(entry.publication.held_bytes()) else None

    def holds_later(self, publication: Publication) -> bool:
        """Whether a later message of its topic waits, and only the last one is to."""
        last = None if self._last is None else self._last.get(publication.topic)
        return self._is_later(last, publication)

    def _is_later(self, place: int | None, publication: Publication) -> bool:
        """Whether what waits at *place* came after *publication*, which is handed over then."""
        return place is not None and _age(self._at[place].publication) > _age(publication)

    def make_room(self, entry: QueueEntry) -> QueueEntry | None:
        """Take out and return the message that goes next for *entry*. None if none must, or none may."""
        size = entry.publication.held_bytes()
        if not self.could_hold(size):
            return None
        if self._down_sampler is not None:
            going = self._down_sample(self._down_sampler, entry, size)
        elif self.policy not in (OverflowPolicy.DROP_OLDEST, OverflowPolicy.KEEP_LAST) or self.has_room(size):
            return None
        elif (self._head or self.pages) and not self._has_aged_retained():
            going = super().dequeue() if self._head else None
        else:
            going = self._take_oldest() if self else None
        self.dropped += going is not None
        return going

    def _down_sample(self, thinning: DownSampler, entry: QueueEntry, size: int) -> QueueEntry | None:
        self.cause = Cause.THINNED
        while self._is_ahead and self._steps and thinning.is_sweeping:
            self._steps -= 1
            if (going := thinning.step()) is not None:
                return self._remove(going)
        if self.has_room(size) or not self:
            self._steps = STEPS_AHEAD
            return None
        self._is_ahead = True
        looks = STEPS_MAX
        for _ in range(2):  # what is left of a sweep may all stay; the first that the next one looks at does not
            if not thinning.is_sweeping:
                thinning.begin_sweep()
            while thinning.is_sweeping:
                going = thinning.step() if looks else thinning.next_place()
                if going is not None:
                    return self._remove(going)
                looks -= 1
        going = thinning.newest(entry.publication.topic)  # all that waits is the last of its topic
        if self._is_later(going, entry.publication):
            return None
        if going is not None:
            return self._remove(going)
        self.cause = Cause.QUEUE_FULL
        return self._take_oldest()

    # -- too old ----------------------------------------------------------------------------------------------------

    def next_aged_at(self) -> Instant | None:
        """When the next message has waited for too long; None if none waits that ever will have. For a page that is the
        newest in it.
        """
        if self._head:
            return self._head[0].publication.accepted_at + self.age_us + 1
        if self.pages:
            return None if self.pages[0].is_requested else self.pages[0].newest_at + self.age_us + 1
        oldest = self._oldest_in_lanes()
        return self._accepted_at(oldest) + self.age_us + 1 if oldest >= LANES else None

    def dequeue_aged(self, now: Instant, is_state: Callable[[Publication], bool], looks: int) -> list[QueueEntry]:
        """Take out and return messages that waited for too long; at most so many are looked at.

        One of which *is_state* says that it is what is retained of its topic waits on, until another one is.
        """
        aged: list[QueueEntry] = []
        while self._head and now - self._head[0].publication.accepted_at > self.age_us and len(aged) < looks:
            entry = super().dequeue()
            if not is_state(entry.publication):
                aged.append(entry)
                continue
            aged += self._keep_aged(self._put(entry))
        for _ in range(0 if self._head or self.pages else looks):
            oldest = self._oldest_in_lanes()
            if oldest < LANES or now - self._accepted_at(oldest) <= self.age_us:
                break
            publication: Publication = self._at[oldest].publication
            if not is_state(publication):
                aged.append(self._remove(oldest))
                continue
            aged += self._keep_aged(oldest)
        return aged

    def _keep_aged(self, place: int) -> list[QueueEntry]:
        """Let what stands at *place* wait on, as what is retained of its topic. Returns what it takes the place of."""
        topic = self._topic_of(place)
        before = self._aged_retained.get(topic)
        superseded = [] if before is None else [self._remove(before)]
        self._links.remove(place)
        self._links.append(AGED_RETAINED, place)
        self._aged_retained[topic] = place
        return superseded

    # -- inside -----------------------------------------------------------------------------------------------------

    def _topic_of(self, place: int) -> str:
        topic: str = self._at[place].publication.topic
        return topic

    def _accepted_at(self, place: int) -> Instant:
        accepted_at: Instant = self._at[place].publication.accepted_at
        return accepted_at

    def _places(self) -> Iterator[int]:
        return chain.from_iterable(map(self._links.iterate, (AGED_RETAINED, BACKLOG, LIVE)))

    def _oldest(self) -> int:
        """The place of what waits longest; below ENDS if nothing does."""
        oldest = self._links.first(AGED_RETAINED)
        return oldest if oldest != AGED_RETAINED else self._oldest_in_lanes()

    def _oldest_in_lanes(self) -> int:
        oldest = self._links.first(BACKLOG)
        return oldest if oldest != BACKLOG else self._links.first(LIVE)

    def _take_oldest(self) -> QueueEntry:
        oldest = self._oldest()
        if oldest < LANES:
            raise IndexError("nothing waits")
        return self._remove(oldest)

    def _remove(self, place: int) -> QueueEntry:
        """Take out what stands at *place*."""
        entry: QueueEntry = self._at[place]
        topic = entry.publication.topic
        self._links.remove(place)
        self._left(entry)
        if self._last is not None and self._last.get(topic) == place:
            del self._last[topic]
        if self._down_sampler is not None:
            self._down_sampler.remove(place, topic)
        if self._aged_retained and self._aged_retained.get(topic) == place:
            del self._aged_retained[topic]
        if not self and len(self._at) > PLACES_KEPT:
            self._begin()
        else:
            self._at[place] = None
            self._free.append(place)
        return entry


def _age(publication: Publication) -> tuple[int, int, int]:
    """Grows from message to message, also of those that came in one piece: of these the last is not stored yet."""
    return publication.accepted_at, publication.stored or _NOT_STORED, publication.number
