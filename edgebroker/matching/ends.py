"""What hangs on topic filters, and what a topic resolves to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getsizeof

from edgebroker.matching.content import Content


class End:
    """What hangs on one topic filter. It lives as long as a subscription does.

    Most of a million filters have one subscriber, so the first is held without a dictionary.
    """

    __slots__ = ("_many", "_sole", "_sole_link", "content", "events", "number", "plain_links", "subscriptions", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        """The topic filter."""
        self.content: Content | None = None
        """The tree of the subscriptions with content filter."""
        self.subscriptions = 0
        """How many hang here."""
        self.events = 0
        """Free for the owner of the tree: events that came to this end."""
        self.plain_links = 0
        """The links of the subscriptions without content filter, one bit each."""
        self._sole: int | None = None
        self._sole_link = 0
        self._many: dict[int, int] | None = None

    @property
    def plain(self) -> Mapping[int, int]:
        """The subscriptions without content filter, by number: their links."""
        if self._many is not None:
            return self._many
        return {} if self._sole is None else {self._sole: self._sole_link}

    def add_plain(self, number: int, link: int) -> None:
        """Let subscription *number*, without content filter, hang here."""
        if self._many is not None:
            self._many[number] = link
        elif self._sole is None:
            self._sole, self._sole_link = number, link
        else:
            self._many = {self._sole: self._sole_link, number: link}
            self._sole = None
        self.plain_links |= 1 << link

    def remove_plain(self, number: int) -> bool:
        """Take it away; say whether it was here."""
        if self._many is None:
            if self._sole is None or self._sole != number:
                return False
            self._sole = None
            self.plain_links = 0
            return True
        if self._many.pop(number, None) is None:
            return False
        self.plain_links = 0
        for link in set(self._many.values()):
            self.plain_links |= 1 << link
        return True

    def list_plain(self, found: list[int]) -> None:
        """Append the numbers of the subscriptions without content filter to *found*."""
        if self._sole is not None:
            found.append(self._sole)
        elif self._many is not None:
            found += self._many

    def bytes(self) -> int:
        """Bytes taken."""
        return getsizeof(self) + (0 if self._many is None else getsizeof(self._many))


class Resolution:
    """What one topic means for every event under it, as long as the tree's epoch is `epoch`."""

    __slots__ = ("_names", "_plain", "_wanted", "contents", "ends", "epoch")

    def __init__(self, epoch: int, ends: tuple[End, ...], names: Sequence[str | None]) -> None:
        """names: those of the attributes, by number."""
        self.epoch = epoch
        self.ends = ends
        """The topic filters that match."""
        self.contents = tuple([end.content for end in ends if end.content is not None])
        """The content trees that must be searched for each event."""
        self._names = names
        self._plain: tuple[int, ...] | None = None
        self._wanted: frozenset[str] | None = None

    @property
    def plain(self) -> tuple[int, ...]:
        """The subscriptions that match whatever the event contains."""
        if self._plain is None:
            found: list[int] = []
            for end in self.ends:
                end.list_plain(found)
            self._plain = tuple(found)
        return self._plain

    @property
    def plain_links(self) -> int:
        """The links over which they are reached, one bit each."""
        links = 0
        for end in self.ends:
            links |= end.plain_links
        return links

    @property
    def wanted(self) -> frozenset[str]:
        """The attributes that the content trees test."""
        if self._wanted is None:
            tested = {attribute for content in self.contents for attribute in content.attributes}
            self._wanted = frozenset([name for name in map(self._names.__getitem__, tested) if name is not None])
        return self._wanted
