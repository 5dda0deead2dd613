"""The ends of topic filters in the topic tree, and the resolution of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getsizeof

from edgebroker.matching.content import Content


class End:
    """The subscriptions of one topic filter. It exists as long as there is at least one.

    Most of a million filters have one subscriber, so the first one is stored without a dictionary.
    """

    __slots__ = (
        "_links",
        "_single",
        "_single_link",
        "content",
        "events",
        "number",
        "plain_links",
        "subscriptions",
        "text",
    )

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        """The topic filter."""
        self.content: Content | None = None
        """The content tree of the subscriptions with a content filter."""
        self.subscriptions = 0
        """The number of subscriptions."""
        self.events = 0
        """For the owner of the tree: the number of events of this end."""
        self.plain_links = 0
        """The links of the subscriptions without content filter, one bit each."""
        self._single: int | None = None
        self._single_link = 0
        self._links: dict[int, int] | None = None

    @property
    def plain(self) -> Mapping[int, int]:
        """The subscriptions without content filter, by number: their links."""
        if self._links is not None:
            return self._links
        return {} if self._single is None else {self._single: self._single_link}

    def add_plain(self, number: int, link: int) -> None:
        """Add subscription *number*, which has no content filter and is reached over *link*."""
        if self._links is not None:
            self._links[number] = link
        elif self._single is None:
            self._single, self._single_link = number, link
        else:
            self._links = {self._single: self._single_link, number: link}
            self._single = None
        self.plain_links |= 1 << link

    def remove_plain(self, number: int) -> bool:
        """Remove subscription *number*; return whether it was here."""
        if self._links is None:
            if self._single is None or self._single != number:
                return False
            self._single = None
            self.plain_links = 0
            return True
        if self._links.pop(number, None) is None:
            return False
        self.plain_links = 0
        for link in set(self._links.values()):
            self.plain_links |= 1 << link
        return True

    def list_plain(self, found: list[int]) -> None:
        """Append the numbers of the subscriptions without content filter to *found*."""
        if self._single is not None:
            found.append(self._single)
        elif self._links is not None:
            found += self._links

    def bytes(self) -> int:
        """Return the memory in bytes."""
        return getsizeof(self) + (0 if self._links is None else getsizeof(self._links))


class Resolution:
    """The ends that match one topic, valid while the tree's epoch is `epoch`."""

    __slots__ = ("_names", "_plain", "_wanted", "contents", "ends", "epoch")

    def __init__(self, epoch: int, ends: tuple[End, ...], names: Sequence[str | None]) -> None:
        """names: the attribute names by number."""
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
