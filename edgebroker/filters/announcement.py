"""Announcements: the interests that a broker must announce to a neighbour for the subscriptions behind it.

An event crosses a link if any announced interest accepts it. So a predicate that another one covers need not be
announced, and equal ones are announced once. What was announced before a wider one is remembered by the neighbour, and
stays announced: a `#` that comes and goes would cost two messages for each of the thousands that it covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.filters.covering_index import CoveringEntry, CoveringIndex, EntryOutline
from edgebroker.interest import Interest
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter

SHADOWED_AGAIN_MAX: Final = 1_000
"""At most so many interests are compared again when a wide one ends: 30 ms."""


@dataclass(frozen=True, slots=True)
class InterestDelta:
    """Changes to announce. *announce* before *withdraw*, so that no event is missed in between."""

    announce: tuple[Interest, ...] = ()
    withdraw: tuple[Interest, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any change."""
        return bool(self.announce or self.withdraw)


class CoveringAnnouncer:
    """The announcements of one link: the interests of its subscriptions that no older one covers.

    A filter is announced predicate by predicate, because predicates can be compared exactly and are shared by
    subscriptions. Of interests that cover each other, the oldest is announced. The others are *hidden*, each below an
    announced one that covers it, and are announced when that one is removed and no other covers them. An announced one
    that a later one covers stays announced. With *shadows* it is known to be *shadowed*, as long as the other exists.

    Cost of a change: interests in unrelated topics, with other attributes or other single values are never compared.
    Those under topic filters that cover each other, which test the same attributes (or fewer, or more) with the same
    single values, are compared if their ranges of one attribute include each other. With 10,000 subscriptions a change
    takes 10 to 60 us in different topics, attributes or ranges, and 300 us with two to eight attributes tested on one
    topic. With *shadows* an interest with a wide topic filter visits every topic filter that it covers (70 ms for `#`
    above 10,000). When an interest that hid others is removed, each of those is placed again: 300 ms when `#` is
    removed and 10,000 are announced that came after it.
    """

    def __init__(self, shadows: bool = False) -> None:
        self._shadows = shadows
        self._index = CoveringIndex()
        self._entries: dict[Interest, CoveringEntry] = {}
        self._subscriptions: dict[int, tuple[CoveringEntry, ...]] = {}
        self._last_order = 0

    @property
    def interests(self) -> tuple[Interest, ...]:
        """All announced interests, the oldest first."""
        return _ordered(entry for entry in self._entries.values() if entry.covered_by is None)

    def is_shadowed(self, interest: Interest) -> bool:
        """Return whether another announced interest is known to cover the announced *interest*."""
        entry = self._entries.get(interest)
        return entry is not None and entry.shadowed_by is not None

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._subscriptions)

    def __contains__(self, number: int) -> bool:
        return number in self._subscriptions

    def items(self) -> Iterator[tuple[int, tuple[Interest, ...]]]:
        """Iterate over the subscriptions, the oldest first, with their interests: one for each predicate that accepts
        any event.
        """
        for number, entries in self._subscriptions.items():
            yield number, tuple(entry.interest for entry in entries)

    def add(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> InterestDelta:
        """Add subscription *number*, whose filter is the disjunction of *predicates* (`((),)` without a content
        filter).

        A predicate that accepts no event is left out. Raises ValueError if the number is in use.
        """
        if number in self._subscriptions:
            raise ValueError(f"subscription {number} is announced already")
        entries: dict[CoveringEntry, None] = {}
        new: list[EntryOutline] = []
        for predicate in predicates:
            interest = Interest(topic_filter, predicate)
            entry = self._entries.get(interest)
            if entry is None:
                entry = CoveringEntry(interest, self._last_order + 1)
                outline = EntryOutline.of(entry)
                if outline is None:
                    continue
                self._last_order += 1
                self._entries[interest] = entry
                new.append(outline)
            entries[entry] = None
        self._subscriptions[number] = tuple(entries)
        for entry in entries:
            entry.holders += 1
        return self._place(new, set())

    def remove(self, number: int) -> InterestDelta:
        """Remove subscription *number*. Raises KeyError if there is none."""
        withdrawn: set[CoveringEntry] = set()
        orphans: dict[CoveringEntry, None] = {}
        removed = []
        for entry in self._subscriptions.pop(number):
            entry.holders -= 1
            if entry.holders:
                continue
            removed.append(entry)
            del self._entries[entry.interest]
            if entry.covered_by is not None:
                del entry.covered_by.hidden[entry]
            else:
                self._unindex(entry)
                self._end_shadow(entry)
                withdrawn.add(entry)
                orphans |= entry.hidden
        for entry in removed:
            orphans.pop(entry, None)
        outlines = map(EntryOutline.of, sorted(orphans, key=lambda entry: entry.order))
        delta = self._place([outline for outline in outlines if outline is not None], withdrawn)
        self._shadow_again([each for entry in removed for each in entry.shadowed])
        return delta

    def _end_shadow(self, entry: CoveringEntry) -> None:
        """Let what *entry* shadows be shadowed by what shadows *entry*, if there is such."""
        above = entry.shadowed_by
        if above is not None:
            del above.shadowed[entry]
            above.shadowed |= entry.shadowed
        for each in entry.shadowed:
            each.shadowed_by = above

    def _shadow_again(self, entries: list[CoveringEntry]) -> None:
        """Find other announced interests that cover *entries*, which have lost the one that did. Beyond
        SHADOWED_AGAIN_MAX that takes too long, and they count as not covered.
        """
        if len(entries) > SHADOWED_AGAIN_MAX:
            return
        for entry in entries:
            if entry.outline is None or entry.shadowed_by is not None:
                continue
            self._index.discard(entry.outline)
            above = self._index.covering(entry.outline)
            self._index.add(entry.outline)
            if above is not None:
                self._shadow(entry, above.entry)

    def _shadow(self, entry: CoveringEntry, above: CoveringEntry) -> None:
        entry.shadowed_by = above
        above.shadowed[entry] = None

    def _place(self, outlines: list[EntryOutline], withdrawn: set[CoveringEntry]) -> InterestDelta:
        """Announce or hide each of *outlines*; *withdrawn* are entries that were removed from the index already."""
        announced: dict[CoveringEntry, None] = {}
        for outline in outlines:
            entry = outline.entry
            above = self._index.covering(outline)
            if above is not None:
                entry.covered_by = above.entry
                above.entry.hidden[entry] = None
                continue
            for covered in self._index.covered(outline) if announced or self._shadows else ():
                other = covered.entry
                if other in announced:  # nobody was told of it yet
                    self._unindex(other)
                    self._end_shadow(other)
                    other.shadowed_by = None
                    for each in other.shadowed:
                        self._shadow(each, entry)
                    other.shadowed.clear()
                    del announced[other]
                    for each in (other, *other.hidden):
                        each.covered_by = entry
                        entry.hidden[each] = None
                    other.hidden.clear()
                elif self._shadows and other.shadowed_by is None:
                    self._shadow(other, entry)
            self._index.add(outline)
            entry.outline, entry.covered_by = outline, None
            announced[entry] = None
        return InterestDelta(_ordered(announced), _ordered(withdrawn))

    def _unindex(self, entry: CoveringEntry) -> None:
        """Remove *entry*, which is announced, from the index."""
        assert entry.outline is not None
        self._index.discard(entry.outline)
        entry.outline = None


def _ordered(entries: Iterable[CoveringEntry]) -> tuple[Interest, ...]:
    return tuple(entry.interest for entry in sorted(entries, key=lambda entry: entry.order))
