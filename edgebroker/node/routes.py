"""Routes: the subscriptions that match a topic, cached until a change of subscriptions could change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from edgebroker.filters.attributes import Extractor, UnreadableCounts
from edgebroker.filters.payloads import SPARKPLUG
from edgebroker.instants import Instant
from edgebroker.limits import ROUTES_MAX, TOPIC_LEVELS_MAX
from edgebroker.log_schema import NO_EVENT, Cause, EventId, MessageOrigin
from edgebroker.matching.pst import Pst
from edgebroker.names import ClientId
from edgebroker.node.ledger import Ledger
from edgebroker.node.minute_counts import MinuteCounts
from edgebroker.node.read_access import PermissionQuery, ReadAccess
from edgebroker.node.shared_groups import MayRead, SharedGroup
from edgebroker.node.subscriptions import Copy, Subscription, Subscriptions, reach
from edgebroker.node.timers import TIDY, TimerQueue
from edgebroker.publication import Publication
from edgebroker.topics import weight

if TYPE_CHECKING:
    from edgebroker.filters.sparkplug import Births

K = TypeVar("K")
V = TypeVar("V")

UNGATHERED_MAX = 1_000
UNGATHERED_ENDS_MAX = 50_000
"""Limits of routes with counts that the ends do not have yet, and of the ends of these. `gather` takes 0.1 us for a
route and 0.03 us for an end, and blocks a client's request.
"""
ENDS_PER_WEIGHT = 8
"""This many matching topic filters count as one more topic in the cache: the ends of 2,000 filters took 47 KiB per
topic.
"""
CONTENT = 4
"""The cost of parsing a publication's payload: 14 us. `ElementaryTest.pattern_work` gives the cost of patterns."""
EXTRACTORS_MAX = 64
"""Extractors that topics share: creating one takes 0.3 us for each attribute."""
RELEASED_AT_ONCE = 1_000
"""Cached routes, or values derived from them, whose memory is freed in one turn, at up to 0.4 us each; fewer if they
count for several.
"""
RELEASED_MAX = 4
"""Discarded caches that wait to be freed. Caches are large, so only an attack produces more; one is then freed at once,
in 10 ms.
"""


class Route:
    """The copies of the publications of one topic, as far as the topic decides them."""

    __slots__ = (
        "_by_client",
        "_by_number",
        "_identifier_work",
        "_is_denying",
        "_matched_groups",
        "_read_access",
        "_routes",
        "_tree",
        "copies",
        "counted",
        "extractor",
        "groups",
        "has_no_local",
        "nobody",
        "resolution",
    )

    def __init__(self, topic: str, routes: Routes) -> None:
        self._routes = routes
        self._tree = routes.tree
        self._by_number = routes.subscriptions.by_number
        self.resolution = self._tree.resolve(topic)
        plain = [self._by_number[number] for number in sorted(self.resolution.plain)]
        plain = [subscription for subscription in plain if not subscription.subscriber.is_gone]
        self._read_access: ReadAccess | None = None  # None: every client may read everything
        self._is_denying = False
        if routes.ask is not None:
            self._read_access = read_access = ReadAccess(routes.ask, topic)
            plain = [
                subscription
                for subscription in plain
                if subscription.group is not None or read_access.allowed_subscriptions((subscription,))
            ]
            self._is_denying = read_access.is_denying
        self._by_client: dict[ClientId, Copy] = {}
        reach(self._by_client, [subscription for subscription in plain if subscription.group is None])
        self.copies = tuple(self._by_client.values())
        """The copies of a publication that no content filter accepts, without those of groups."""
        self._identifier_work = sum([len(copy.identifiers) for copy in self.copies]) >> 2
        shared: list[SharedGroup] = [subscription.group for subscription in plain if subscription.group is not None]
        self.groups = tuple(dict.fromkeys(shared))
        """The groups that match every publication; each chooses a member for it."""
        self._matched_groups: list[SharedGroup] = []  # groups whose content filter accepted the matched publication
        self.extractor = routes.extractor(self.resolution.wanted) if self.resolution.contents else None
        """None if the topic decides alone, without content: then `copies` applies to every publication."""
        if self.extractor is None and self._read_access is not None and self._read_access.conditions:
            self.extractor = Extractor(())
        self.has_no_local = any(copy.has_no_local for copy in self.copies)
        """Whether some of `copies` must not go back to the publisher."""
        self.nobody = Cause.NO_SUBSCRIBER if self.extractor is None else Cause.CONTENT
        if self._is_denying and not self.groups and self.extractor is None:
            self.nobody = Cause.NOT_ALLOWED
        """The cause that is recorded for a publication without copies."""
        if topic.startswith(SPARKPLUG):
            self.extractor = routes.metrics(topic, self.resolution.wanted, self.extractor)
        self.counted = 0
        """Publications since the last `gather`."""

    def count(self, publications: int) -> None:
        """Count *publications* for the selectivity of subscriptions."""
        if not self.counted:
            self._routes.add_ungathered(self)
        self.counted += publications

    def accept(
        self,
        publication: Publication,
        ledger: Ledger,
        now: Instant,
        remote_copies: int = 0,
        event: EventId = NO_EVENT,
    ) -> tuple[Copy, ...]:
        """Number *publication*, account for it and return its copies, one for each receiver.

        remote_copies: the number of its copies for other gateways. event: its identity in the overlay.
        """
        self.count(1)
        copies = self.copies
        has_no_local = self.has_no_local
        if self.extractor is not None:
            copies = self.copies_for(publication)
            self._routes.count_accepting()
            if copies is not self.copies:
                has_no_local = True in [copy.has_no_local for copy in copies]
        no_copies_cause = self.nobody
        if self._read_access is not None and self._read_access.is_denying:
            no_copies_cause = Cause.NOT_ALLOWED
        if has_no_local:
            without = [copy.without_own(publication.publisher) for copy in copies]
            copies = tuple([copy for copy in without if copy is not None])
            no_copies_cause = Cause.OWN_MESSAGE
        if self.groups or self._matched_groups:
            copies += self._group_copies(publication)
        self._routes.work += 1 + len(copies) + self._identifier_work
        publication.number = ledger.accept(
            now,
            publication.publisher,
            1,
            publication.topic,
            publication.qos,
            len(publication.payload),
            len(copies) + remote_copies,
            no_copies_cause,
            publication.trace,
            event,
            publication.origin,
        )
        return copies

    def copies_for(self, publication: Publication) -> tuple[Copy, ...]:
        """Return one copy for each receiver of *publication*. Parses the payload at most once, if a content filter
        needs it.

        Groups are only noted; `accept` chooses their members.
        """
        if self.extractor is None:
            return self.copies
        routes = self._routes
        if routes.matched_publication is not publication or routes.matched_route is not self:
            routes.matched_copies = self._match(publication)
            routes.matched_publication = publication
            routes.matched_route = self
        return routes.matched_copies

    def _match(self, publication: Publication) -> tuple[Copy, ...]:
        """Match the content of *publication*; as `copies_for`."""
        assert self.extractor is not None
        all_accepting = self._routes.accepting
        all_accepting.clear()
        self._matched_groups.clear()
        attributes = self.extractor.extract(
            publication.payload,
            topic=publication.topic,
            qos=publication.qos,
            retain=publication.retain,
            client=publication.publisher,
            user=publication.user,
            content_type=publication.content_type,
        )
        if self.extractor.is_unreadable:
            self._routes.unreadable.add(publication.topic)
        self._routes.arrays_too_long += self.extractor.arrays_too_long
        numbers: list[int] = []
        if self.resolution.contents:
            tree = self._tree
            before = tree.pattern_work
            numbers = tree.match(self.resolution, attributes)
            self._routes.work += tree.pattern_work - before
        self._routes.work += (
            CONTENT + (len(publication.payload) >> 3) + (len(numbers) >> 1) + self.extractor.element_work
        )
        read_access = self._read_access
        if read_access is not None:
            read_access.is_denying = self._is_denying
        if not numbers:
            return self.copies if read_access is None else read_access.allowed_copies(self.copies, publication)
        numbers.sort()
        by_number = self._by_number
        accepting: list[Subscription] = []
        for number in numbers:
            subscription = by_number[number]
            if not subscription.subscriber.is_gone:
                all_accepting.append(subscription)
                if subscription.group is None:
                    accepting.append(subscription)
                else:
                    self._matched_groups.append(subscription.group)
        if read_access is not None:
            accepting = read_access.allowed_subscriptions(accepting)
        copies = self._by_client.copy()
        reach(copies, accepting)
        found = tuple(copies.values())
        return found if read_access is None else read_access.allowed_copies(found, publication)

    @property
    def may_have_remote_members(self) -> bool:
        """Whether a publication of this topic may be for a member of a group at another gateway."""
        return self._routes.has_remote_members and (bool(self.groups) or self.extractor is not None)

    @property
    def may_read(self) -> MayRead | None:
        """The function that tells who may read publications of this topic; None if every client may."""
        return None if self._read_access is None else self._read_access.permits

    def wanting(self) -> tuple[SharedGroup, ...]:
        """Return the groups that match the publication last given to `copies_for`."""
        return (*self.groups, *self._matched_groups)

    def _group_copies(self, publication: Publication) -> tuple[Copy, ...]:
        """Return one copy for each group that matches *publication*, whatever else the chosen member gets."""
        groups = self.groups
        if self._matched_groups:
            groups = tuple(dict.fromkeys([*groups, *self._matched_groups]))
            self._matched_groups.clear()
        if publication.origin == MessageOrigin.PEER:  # the gateway of its publisher chooses the member
            groups = tuple([group for group in groups if not group.is_federated])
        may_read = self.may_read
        self._routes.work += sum([1 + (len(group.members) >> 3) for group in groups])
        chosen = [group.choose(publication, may_read) for group in groups]
        return tuple([member.alone() for member in chosen if member is not None])

    def gather(self) -> None:
        """Add the counts of this route to its ends."""
        counted, self.counted = self.counted, 0
        for end in self.resolution.ends:
            end.events += counted


class Routes:
    """The cached routes of topics. All are discarded when a subscription change may affect one, or when ROUTES_MAX is
    reached.

    `epoch` grows each time; values that a front end derives from a route are valid within one epoch.
    """

    def __init__(self, tree: Pst, subscriptions: Subscriptions, timers: TimerQueue) -> None:
        self.tree = tree
        self.subscriptions = subscriptions
        self._timers = timers
        self.epoch = 0
        self.topic_levels_max = TOPIC_LEVELS_MAX
        """Levels of topic names and topic filters of clients."""
        self.work = 0
        """The cost of routing so far, in units of about a microsecond. A publication costs 1, each copy 1, four
        Subscription Identifiers 1, a group 1 and eight members of it 1. Matching its content costs CONTENT, an eighth
        of its length, 1 for two subscriptions that match, and the cost of patterns. A new topic costs 8, a sixteenth of
        its length, and 1 for each topic filter that matches.
        """
        self.matched_publication: Publication | None = None
        """The last publication given to `copies_for`, of `matched_route`, until it is accepted or subscriptions change;
        `matched_copies` is the result.
        """
        self.matched_route: Route | None = None
        self.matched_copies: tuple[Copy, ...] = ()
        self.accepting: list[Subscription] = []
        """The subscriptions whose content filter accepts it, members of groups included."""
        self.closed: MinuteCounts | None = None
        """The counts of a closed minute that are not yet written, or None."""
        self.has_remote_members = False
        """Whether other gateways have members of any group."""
        self.ask: PermissionQuery | None = None
        """Returns read permissions; None if every client may read everything. Call `forget` when permissions change."""
        self._by_topic: dict[str, Route] = {}
        self._weight = 0
        self._release_step = RELEASED_AT_ONCE
        self._tree_epoch = tree.epoch
        self._ungathered: list[Route] = []
        self._ungathered_ends = 0
        self._released: list[dict[Any, Any]] = []
        self._extractors: dict[frozenset[str], Extractor] = {}
        self._births: Births | None = None
        self.unreadable = UnreadableCounts()
        """The publications whose content decided about copies, and could not be read."""
        self.arrays_too_long = 0
        """Arrays in publications of which tests of any element have not seen all."""

    def __len__(self) -> int:
        return len(self._by_topic)

    def route(self, topic: str) -> Route:
        """Return the route of *topic*, a valid topic name; create it if it is not in the cache."""
        route = self._by_topic.get(topic)
        if route is None:
            if self._weight >= ROUTES_MAX:
                self.forget()
            route = self._by_topic[topic] = Route(topic, self)
            ends = len(route.resolution.ends)
            self.work += 8 + (len(topic) >> 4) + ends
            self._weight += weight(topic) + ends // ENDS_PER_WEIGHT
        return route

    def count_accepting(self) -> None:
        """Count the accepted publication for each subscription whose content filter accepted it."""
        self.matched_publication = None
        closed = self.closed
        for subscription in self.accepting:
            if closed is not None:
                closed.save_subscription(subscription)
            subscription.matched += 1

    def extractor(self, wanted: frozenset[str]) -> Extractor:
        """Return an extractor of the attributes *wanted*; topics that want the same attributes share it."""
        extractor = self._extractors.get(wanted)
        if extractor is None:
            if len(self._extractors) >= EXTRACTORS_MAX:
                self._extractors.clear()
            extractor = self._extractors[wanted] = Extractor(wanted)
        return extractor

    def metrics(self, topic: str, wanted: frozenset[str], plain: Extractor | None) -> Extractor | None:
        """As `extractor`, for a Sparkplug topic: the extractor resolves metric aliases from birth certificates, and
        stores these.

        Returns *plain* for other topics, and where content does not matter.
        """
        from edgebroker.filters.sparkplug import Births, is_sparkplug, tells  # loaded with the first Sparkplug topic

        if not is_sparkplug(topic) or (plain is None and not tells(topic)):
            return plain
        if self._births is None:  # an empty Births is falsy, but extractors already share it
            self._births = Births()
        return Extractor(wanted, self._births)

    @property
    def births(self) -> Births | None:
        """The birth certificates of Sparkplug devices; None before the first Sparkplug topic."""
        return self._births

    def add_ungathered(self, route: Route) -> None:
        """Remember *route*, whose counts must be gathered."""
        if len(self._ungathered) >= UNGATHERED_MAX or self._ungathered_ends >= UNGATHERED_ENDS_MAX:
            self.gather()
        self._ungathered.append(route)
        self._ungathered_ends += len(route.resolution.ends)

    def gather(self) -> None:
        """Bring the counts of all ends up to date. Must be called *before* a subscription is added or removed."""
        ungathered, self._ungathered = self._ungathered, []
        self._ungathered_ends = 0
        closed = self.closed
        for route in ungathered:
            if closed is not None:
                closed.save_ends(route.resolution.ends)
            route.gather()

    def follow(self) -> None:
        """Discard all routes if the epoch of the tree changed. Must be called *after* a subscription is added or
        removed.
        """
        self.matched_publication = None
        if self.tree.epoch != self._tree_epoch:
            self.forget()

    def forget(self) -> None:
        """Discard all routes."""
        self.matched_publication = None
        self._tree_epoch = self.tree.epoch
        self.epoch += 1
        self._release_step = max(1, RELEASED_AT_ONCE * len(self._by_topic) // max(1, self._weight))
        self._weight = 0
        self._by_topic = self.emptied(self._by_topic)

    def emptied(self, cache: dict[K, V]) -> dict[K, V]:
        """Return an empty dictionary to replace *cache*, which has an entry for each route.

        Freeing the memory of 20,000 entries takes 8 ms, so large ones are freed in steps of `tidy`.
        """
        if len(cache) <= self._release_step:
            cache.clear()
            return cache
        if len(self._released) >= RELEASED_MAX:
            self._released.pop()
        self._released.append(cache)
        self._timers.set(TIDY, 0)  # at the end of this turn
        return {}

    @property
    def is_tidy(self) -> bool:
        """Whether the memory of all discarded routes is freed."""
        return not self._released

    def tidy(self) -> None:
        """Free the memory of some discarded routes."""
        if self._released:
            cache = self._released[-1]
            for _ in range(min(len(cache), self._release_step)):
                cache.popitem()
            if not cache:
                self._released.pop()
