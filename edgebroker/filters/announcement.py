"""Announcements: what a broker tells a neighbour about the subscriptions behind it, and no more.

An event crosses a link if anything announced there accepts it. So a predicate that another one covers adds nothing, and
identical ones are announced once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgebroker.filters.boxes import Box
from edgebroker.filters.shelves import Entry, Interest, Shelves
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter


@dataclass(frozen=True, slots=True)
class Change:
    """What a neighbour must be told now. *announce* before *withdraw*: no event is missed in between."""

    announce: tuple[Interest, ...] = ()
    withdraw: tuple[Interest, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.announce or self.withdraw)


class Announced:
    """What one link or client has been told: the interests of its subscriptions that no other one covers.

    A filter is announced predicate by predicate, for these are compared exactly and are what subscriptions share. Of
    interests that cover each other, the oldest is announced. The others are *hidden*, each below an announced one that
    covers it, and come forward when that one leaves and no other covers them.

    Cost of a change: an interest is compared with those announced under topic filters that cover its own, or are
    covered by it, and that test the same attributes (or fewer, or more) with the same single values. Interests in
    different topics, attributes or values never meet; those that differ in ranges of the same attributes do. If an
    interest leaves that hid others, each of those is placed anew.
    """

    def __init__(self) -> None:
        self._shelves = Shelves()
        self._entries: dict[Interest, Entry] = {}
        self._subscriptions: dict[int, tuple[Entry, ...]] = {}
        self._last_order = 0

    @property
    def interests(self) -> tuple[Interest, ...]:
        """All that is announced, the oldest first."""
        return _ordered(entry for entry in self._entries.values() if entry.above is None)

    def __len__(self) -> int:
        """The subscriptions, whatever is announced of them."""
        return len(self._subscriptions)

    def __contains__(self, number: int) -> bool:
        return number in self._subscriptions

    def add(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> Change:
        """Take in subscription *number*, whose filter is any of *predicates* (`((),)` without a content filter).

        A predicate that accepts nothing is left out. Raises ValueError: the number is taken.
        """
        if number in self._subscriptions:
            raise ValueError(f"subscription {number} is announced already")
        entries: dict[Entry, None] = {}
        new: list[Entry] = []
        for predicate in predicates:
            interest = Interest(topic_filter, predicate)
            entry = self._entries.get(interest)
            if entry is None:
                box = Box.of(predicate)
                if box is None:
                    continue
                self._last_order += 1
                entry = self._entries[interest] = Entry(interest, box, self._last_order)
                new.append(entry)
            entries[entry] = None
        self._subscriptions[number] = tuple(entries)
        for entry in entries:
            entry.holders += 1
        return self._changed([], new)

    def remove(self, number: int) -> Change:
        """Let subscription *number* go. Raises KeyError: there is none."""
        gone = []
        for entry in self._subscriptions.pop(number):
            entry.holders -= 1
            if not entry.holders:
                del self._entries[entry.interest]
                gone.append(entry)
        return self._changed(gone, [])

    def _changed(self, gone: list[Entry], new: list[Entry]) -> Change:
        """Take out *gone*, put in *new*, and say what became of it all."""
        before = {entry for entry in gone if entry.above is None}
        orphans: list[Entry] = []
        for entry in gone:
            if entry.above is None:
                self._shelves.discard(entry)
                orphans.extend(entry.hidden)
            else:
                del entry.above.hidden[entry]
        left = set(gone)
        placed = [*new, *sorted((entry for entry in orphans if entry not in left), key=lambda entry: entry.order)]
        after: dict[Entry, None] = {}
        for entry in placed:
            self._place(entry, before, after)
        return Change(_ordered(entry for entry in after), _ordered(before))

    def _place(self, entry: Entry, before: set[Entry], after: dict[Entry, None]) -> None:
        """Announce *entry* in place of what it covers, or hide it."""
        entry.above = self._shelves.covering(entry)
        if entry.above is not None:
            entry.above.hidden[entry] = None
            return
        for covered in self._shelves.covered(entry):
            self._shelves.discard(covered)
            for each in (covered, *covered.hidden):
                each.above = entry
                entry.hidden[each] = None
            covered.hidden.clear()
            if covered in after:
                del after[covered]
            else:
                before.add(covered)
        self._shelves.add(entry)
        after[entry] = None


def _ordered(entries: Iterable[Entry]) -> tuple[Interest, ...]:
    return tuple(entry.interest for entry in sorted(entries, key=lambda entry: entry.order))
