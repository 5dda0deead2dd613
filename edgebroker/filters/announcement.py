"""Announcements: the interests that a broker must announce to each of its neighbours for the subscriptions behind it.

An event crosses a link if any announced interest accepts it. So a predicate that another one covers need not be
announced, and equal ones are announced once. What was announced before a wider one is remembered by the neighbour, and
stays announced: a `#` that comes and goes would cost two messages for each of the thousands that it covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


NO_CHANGE: Final = InterestDelta()


class LinkAnnouncer:
    """The announcements of several links, one bit each: on each link the interests of its subscriptions that no older
    one covers.

    A filter is announced predicate by predicate, because predicates can be compared exactly and are shared by
    subscriptions. Of interests that cover each other, the oldest is announced. The others are *hidden*, each below an
    announced one that covers it, and are announced when that one is removed and no other covers them. An announced one
    that a later one covers stays announced. On the link *shadowing* it is known to be *shadowed*, as long as the other
    exists.

    Most interests are announced on all links but one, so an interest and the outline that others are compared with
    exist once, with the set of links on which it is announced: 10,000 interests take a third of the memory, and a
    change a third of the time, of one announcer for each link.

    Cost of a change: interests in unrelated topics, with other attributes or other single values are never compared.
    Those under topic filters that cover each other, which test the same attributes (or fewer, or more) with the same
    single values, are compared if their ranges of one attribute include each other. With 10,000 subscriptions a change
    takes 10 to 60 us in different topics, attributes or ranges, and 300 us with two to eight attributes tested on one
    topic. With *shadowing* an interest with a wide topic filter visits every topic filter that it covers (70 ms for `#`
    above 10,000). When an interest that hid others is removed, each of those is placed again: 300 ms when `#` is
    removed and 10,000 are announced that came after it.
    """

    def __init__(self, shadowing: int = 0) -> None:
        """shadowing: one link, as a bit, or 0."""
        self._shadowing = shadowing
        self._index = CoveringIndex()
        self._entries: dict[Interest, CoveringEntry] = {}
        self._last_order = 0

    def interests(self, link: int) -> tuple[Interest, ...]:
        """Return all interests that are announced on *link*, the oldest first."""
        return _ordered(entry for entry in self._entries.values() if entry.announced & link)

    def overlapping(self, topic_filter: TopicFilter, link: int) -> Iterator[Interest]:
        """Iterate over the interests announced on *link* that share a topic with *topic_filter*, in a fixed order,
        without those that are shadowed.
        """
        for entry in self._index.overlapping(topic_filter):
            if entry.announced & link and entry.shadowed_by is None:
                yield entry.interest

    def is_shadowed(self, interest: Interest) -> bool:
        """Return whether another announced interest is known to cover the announced *interest*."""
        entry = self._entries.get(interest)
        return entry is not None and entry.shadowed_by is not None

    def add(self, interests: Iterable[Interest], links: int) -> dict[int, InterestDelta]:
        """Add a subscription on *links*, at least one, whose filter is the disjunction of *interests*: one topic filter
        with each predicate. Returns the changes by link.

        An interest that accepts no event is left out.
        """
        places = []
        for interest in dict.fromkeys(interests):
            entry = self._entries.get(interest)
            if entry is None:
                entry = CoveringEntry(interest, self._last_order + 1)
                entry.outline = EntryOutline.of(entry)
                if entry.outline is None:
                    continue
                self._last_order += 1
                self._entries[interest] = entry
            places.append((entry, entry.hold(links)))
        return self._place(places, {})

    def remove(self, interests: Iterable[Interest], links: int) -> dict[int, InterestDelta]:
        """Remove a subscription that was added with *interests* on *links*. Returns the changes by link."""
        withdrawn: dict[CoveringEntry, int] = {}
        orphans: dict[CoveringEntry, int] = {}
        unshadowed: list[CoveringEntry] = []
        held = (self._entries.get(interest) for interest in dict.fromkeys(interests))
        released = [(entry, entry.release(links)) for entry in held if entry is not None]
        for entry, lost in released:
            entry.surface(lost)
            gone = entry.announced & lost
            if gone:
                withdrawn[entry] = gone
                for each, hidden in entry.orphan(gone):
                    orphans[each] = orphans.get(each, 0) | hidden
                unshadowed += self._retract(entry, gone)
            if not entry.links:
                del self._entries[entry.interest]
        waiting = sorted(orphans, key=lambda entry: entry.order)
        deltas = self._place([(entry, orphans[entry] & entry.links) for entry in waiting], withdrawn)
        self._shadow_again(unshadowed)
        return deltas

    def _retract(self, entry: CoveringEntry, links: int) -> Sequence[CoveringEntry]:
        """Record that *entry* is not announced on *links* any more. Returns what it shadowed; that is shadowed now by
        what shadows *entry*, if there is such.
        """
        entry.announced &= ~links
        if not entry.announced:
            assert entry.outline is not None
            self._index.discard(entry.outline)
            entry.outline = None
        if not links & self._shadowing:
            return ()
        above, freed = entry.shadowed_by, tuple(entry.shadowed or ())
        entry.shadowed_by = entry.shadowed = None
        if above is not None and above.shadowed is not None:
            del above.shadowed[entry]
        for each in freed:
            each.shadowed_by = None
            if above is not None:
                each.shadow_by(above)
        return freed

    def _shadow_again(self, entries: Sequence[CoveringEntry]) -> None:
        """Find other announced interests that cover *entries*, which have lost the one that did. Beyond
        SHADOWED_AGAIN_MAX that takes too long, and they count as not covered.
        """
        if len(entries) > SHADOWED_AGAIN_MAX:
            return
        for entry in entries:
            if entry.outline is None or entry.shadowed_by is not None or not entry.announced & self._shadowing:
                continue
            for other in self._index.covering(entry.outline):
                if other is not entry and other.announced & self._shadowing:
                    entry.shadow_by(other)
                    break

    def _place(
        self, places: Iterable[tuple[CoveringEntry, int]], withdrawn: Mapping[CoveringEntry, int]
    ) -> dict[int, InterestDelta]:
        """Announce or hide each entry of *places* on the links with it; *withdrawn* are entries that are not announced
        any more, with the links.
        """
        announced: dict[CoveringEntry, int] = {}
        for entry, links in places:
            if not links:
                continue
            outline = entry.outline or EntryOutline.of(entry)
            assert outline is not None
            for other in self._index.covering(outline):
                hiding = other.announced & links
                if hiding and other is not entry:
                    other.hide(entry, hiding)
                    links &= ~hiding
                    if not links:
                        break
            if not links:
                entry.outline = outline if entry.announced else None
                continue
            if announced or links & self._shadowing:
                self._place_above(entry, outline, links, announced)
            if not entry.announced:
                entry.outline = outline
                self._index.add(outline)
            entry.announced |= links
            announced[entry] = announced.get(entry, 0) | links
        return _deltas(announced, withdrawn)

    def _place_above(
        self, entry: CoveringEntry, outline: EntryOutline, links: int, announced: dict[CoveringEntry, int]
    ) -> None:
        """Hide below *entry*, which comes to *links*, what it covers and nobody was told of yet: the entries in
        *announced*. What was announced before is shadowed.
        """
        for other in self._index.covered(outline):
            if other is entry:
                continue
            untold = announced.get(other, 0) & links
            if untold:
                announced[other] &= ~untold
                for each in self._retract(other, untold):
                    each.shadowed_by = None
                    each.shadow_by(entry)
                for each, hidden in other.orphan(untold):
                    entry.hide(each, hidden)
                entry.hide(other, untold)
            if other.announced & links & self._shadowing and other.shadowed_by is None:
                other.shadow_by(entry)


class CoveringAnnouncer:
    """The announcements of one link alone, for subscriptions with numbers."""

    def __init__(self, shadows: bool = False) -> None:
        self._announcer = LinkAnnouncer(int(shadows))
        self._subscriptions: dict[int, tuple[Interest, ...]] = {}

    @property
    def interests(self) -> tuple[Interest, ...]:
        """All announced interests, the oldest first."""
        return self._announcer.interests(1)

    def is_shadowed(self, interest: Interest) -> bool:
        """Return whether another announced interest is known to cover the announced *interest*."""
        return self._announcer.is_shadowed(interest)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._subscriptions)

    def __contains__(self, number: int) -> bool:
        return number in self._subscriptions

    def add(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> InterestDelta:
        """Add subscription *number*, whose filter is the disjunction of *predicates* (`((),)` without a content
        filter). Raises ValueError if the number is in use.
        """
        if number in self._subscriptions:
            raise ValueError(f"subscription {number} is announced already")
        interests = self._subscriptions[number] = tuple(Interest(topic_filter, each) for each in predicates)
        return self._announcer.add(interests, 1).get(1, NO_CHANGE)

    def remove(self, number: int) -> InterestDelta:
        """Remove subscription *number*. Raises KeyError if there is none."""
        return self._announcer.remove(self._subscriptions.pop(number), 1).get(1, NO_CHANGE)


def _deltas(announced: Mapping[CoveringEntry, int], withdrawn: Mapping[CoveringEntry, int]) -> dict[int, InterestDelta]:
    changed = 0
    for links in (*announced.values(), *withdrawn.values()):
        changed |= links
    deltas = {}
    while changed:
        link = changed & -changed
        changed ^= link
        deltas[link] = InterestDelta(
            _ordered(entry for entry, links in announced.items() if links & link),
            _ordered(entry for entry, links in withdrawn.items() if links & link),
        )
    return deltas


def _ordered(entries: Iterable[CoveringEntry]) -> tuple[Interest, ...]:
    return tuple(entry.interest for entry in sorted(entries, key=lambda entry: entry.order))
