"""From a topic to its readers, remembered until a subscription changes."""

from __future__ import annotations

from edgebroker.filters.attributes import Extractor
from edgebroker.instants import Instant
from edgebroker.limits import ROUTES_MAX
from edgebroker.matching.pst import Pst, Resolution
from edgebroker.node.ledger import Ledger
from edgebroker.node.subscriptions import Copy, Subscription, Subscriptions, copies_of
from edgebroker.publication import Publication
from edgebroker.records import Cause


class Route:
    """What one topic means for every publication under it, as long as no subscription changes."""

    __slots__ = (
        "_by_number",
        "_tree",
        "copies",
        "counted",
        "extractor",
        "has_no_local",
        "nobody",
        "plain",
        "resolution",
    )

    def __init__(self, resolution: Resolution, tree: Pst, by_number: dict[int, Subscription]) -> None:
        self._tree = tree
        self._by_number = by_number
        self.resolution = resolution
        self.plain = [by_number[number] for number in sorted(resolution.plain)]
        """Subscriptions without content filter."""
        self.copies = copies_of(self.plain)
        """The copies of a publication that no content filter accepts."""
        self.extractor = Extractor(resolution.wanted) if resolution.contents else None
        """None if no content filter stands under this topic: then `copies` is the answer."""
        self.has_no_local = any(
            by_number[number].no_local for number in (*resolution.plain, *resolution.content_numbers())
        )
        self.nobody = Cause.NO_SUBSCRIBER if self.extractor is None else Cause.CONTENT
        """Why a publication without copies has none."""
        self.counted = 0
        """Publications since the selectivity counts were last gathered."""

    def accept(self, publication: Publication, ledger: Ledger, now: Instant) -> tuple[Copy, ...]:
        """Number *publication*, enter it into the books and find its readers: one copy for each."""
        self.counted += 1
        copies = self.copies if self.extractor is None else self.copies_for(publication)
        nobody = self.nobody
        if self.has_no_local and copies:
            without = [copy.without_own(publication.publisher) for copy in copies]
            copies = tuple([copy for copy in without if copy is not None])
            nobody = Cause.OWN_MESSAGE
        publication.number = ledger.accept(
            now,
            publication.publisher,
            1,
            publication.topic,
            publication.qos,
            len(publication.payload),
            len(copies),
            nobody,
        )
        return copies

    def copies_for(self, publication: Publication) -> tuple[Copy, ...]:
        """One copy for each receiver that wants *publication*. Reads the payload only if a filter asks for it."""
        if self.extractor is None:
            return self.copies
        attributes = self.extractor.extract(
            publication.payload,
            topic=publication.topic,
            qos=publication.qos,
            retain=publication.retain,
            client=publication.publisher,
            user=publication.user,
            content_type=publication.content_type,
        )
        numbers = self._tree.match(self.resolution, attributes)
        if not numbers:
            return self.copies
        numbers.sort()
        accepting = [self._by_number[number] for number in numbers]
        for subscription in accepting:
            subscription.matched += 1
        return copies_of(self.plain + accepting)

    def gather(self) -> None:
        """Add what was counted to the subscriptions: every plain one matched, every filtered one was evaluated."""
        counted, self.counted = self.counted, 0
        if not counted:
            return
        for subscription in self.plain:
            subscription.evaluated += counted
            subscription.matched += counted
        for number in self.resolution.content_numbers():
            self._by_number[number].evaluated += counted


class Routes:
    """The routes of the topics seen lately. Forgotten as a whole when a subscription changes or ROUTES_MAX is met.

    `epoch` grows each time they are; what a front end derives from a route holds within one epoch.
    """

    def __init__(self, tree: Pst, subscriptions: Subscriptions) -> None:
        self._tree = tree
        self._subscriptions = subscriptions
        self._known: dict[str, Route] = {}
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._known)

    def route(self, topic: str) -> Route:
        """The route of *topic*, a valid topic name."""
        route = self._known.get(topic)
        if route is None:
            if len(self._known) >= ROUTES_MAX:
                self.forget()
            route = self._known[topic] = Route(self._tree.resolve(topic), self._tree, self._subscriptions.by_number)
        return route

    def gather(self) -> None:
        """Bring the selectivity counts of all subscriptions up to date."""
        for route in self._known.values():
            route.gather()

    def forget(self) -> None:
        """Start anew. Must be called *before* a subscription leaves, so that its counts are gathered."""
        self.epoch += 1
        self.gather()
        self._known.clear()
