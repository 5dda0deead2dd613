"""From a topic to its readers, remembered as long as no subscription came or went that could change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from edgebroker.filters.attributes import Extractor
from edgebroker.filters.payloads import SPARKPLUG
from edgebroker.instants import Instant
from edgebroker.limits import ROUTES_MAX
from edgebroker.log_schema import Cause
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
"""Routes with counts of their own, and their ends. To gather them takes 0.1 us and 0.03, and somebody waits for it."""
ENDS_PER_WEIGHT = 8
"""So many subscriptions under a topic take the memory of another topic: 2,000 of them kept 47 KiB for each."""
CONTENT = 4
"""What it takes to look into a publication, 14 us; patterns are counted as `ElementaryTest.pattern_work` says."""
EXTRACTORS_MAX = 64
"""Extractors that topics share: to make one takes 0.3 us for each attribute."""
RELEASED_AT_ONCE = 1_000
"""Forgotten routes, or what was made of them, whose memory is given back in one turn: up to 0.4 us each. Of those that
count for several, fewer."""
RELEASED_MAX = 4
"""Caches that wait for that. They are large, so only an attack fills more; then somebody waits 10 ms after all."""


class Route:
    """What one topic means for every publication under it."""

    __slots__ = (
        "_by_client",
        "_by_number",
        "_denies",
        "_guard",
        "_identified",
        "_routes",
        "_sharing",
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
        self._guard: ReadAccess | None = None  # None too where nobody is forbidden anything
        self._denies = False
        if routes.ask is not None:
            self._guard = guard = ReadAccess(routes.ask, topic)
            plain = [
                subscription
                for subscription in plain
                if subscription.group is not None or guard.allowed_subscriptions((subscription,))
            ]
            self._denies = guard.is_denying
        self._by_client: dict[ClientId, Copy] = {}
        reach(self._by_client, [subscription for subscription in plain if subscription.group is None])
        self.copies = tuple(self._by_client.values())
        """The copies of a publication that no content filter accepts, but for those that groups get."""
        self._identified = sum([len(copy.identifiers) for copy in self.copies]) >> 2
        shared: list[SharedGroup] = [subscription.group for subscription in plain if subscription.group is not None]
        self.groups = tuple(dict.fromkeys(shared))
        """The groups that want every publication; each chooses its member anew."""
        self._sharing: list[SharedGroup] = []  # the groups whose content filter accepted what is at hand
        self.extractor = routes.extractor(self.resolution.wanted) if self.resolution.contents else None
        """None if the content of no publication matters under this topic: then `copies` is the answer."""
        if self.extractor is None and self._guard is not None and self._guard.conditions:
            self.extractor = Extractor(())
        self.has_no_local = any(copy.has_no_local for copy in self.copies)
        """Whether some of `copies` may not go back to the publisher."""
        self.nobody = Cause.NO_SUBSCRIBER if self.extractor is None else Cause.CONTENT
        if self._denies and not self.groups and self.extractor is None:
            self.nobody = Cause.NOT_ALLOWED
        """Why a publication without copies has none."""
        if topic.startswith(SPARKPLUG):
            self.extractor = routes.metrics(topic, self.resolution.wanted, self.extractor)
        self.counted = 0
        """Publications since the ends were last told."""

    def count(self, publications: int) -> None:
        """Note so many *publications* for the selectivity counts."""
        if not self.counted:
            self._routes.note(self)
        self.counted += publications

    def accept(self, publication: Publication, ledger: Ledger, now: Instant, leaving: int = 0) -> tuple[Copy, ...]:
        """Number *publication*, enter it into the books and find its readers: one copy for each.

        *leaving*: copies that it has besides, for other gateways.
        """
        self.count(1)
        copies = self.copies
        has_no_local = self.has_no_local
        if self.extractor is not None:
            copies = self.copies_for(publication)
            self._routes.count_accepting()
            if copies is not self.copies:
                has_no_local = True in [copy.has_no_local for copy in copies]
        nobody = self.nobody
        if self._guard is not None and self._guard.is_denying:
            nobody = Cause.NOT_ALLOWED
        if has_no_local:
            without = [copy.without_own(publication.publisher) for copy in copies]
            copies = tuple([copy for copy in without if copy is not None])
            nobody = Cause.OWN_MESSAGE
        if self.groups or self._sharing:
            copies += self._shared(publication)
        self._routes.work += 1 + len(copies) + self._identified
        publication.number = ledger.accept(
            now,
            publication.publisher,
            1,
            publication.topic,
            publication.qos,
            len(publication.payload),
            len(copies) + leaving,
            nobody,
            publication.trace,
        )
        return copies

    def copies_for(self, publication: Publication) -> tuple[Copy, ...]:
        """One copy for each receiver that wants *publication*. Reads the payload at most once, if a filter asks.

        Groups are only noted; `accept` chooses their members.
        """
        if self.extractor is None:
            return self.copies
        routes = self._routes
        if routes.asked is not publication or routes.asked_route is not self:
            routes.answer = self._wanted_by(publication)
            routes.asked = publication
            routes.asked_route = self
        return routes.answer

    def _wanted_by(self, publication: Publication) -> tuple[Copy, ...]:
        """As `copies_for`, where content matters."""
        assert self.extractor is not None
        all_accepting = self._routes.accepting
        all_accepting.clear()
        self._sharing.clear()
        attributes = self.extractor.extract(
            publication.payload,
            topic=publication.topic,
            qos=publication.qos,
            retain=publication.retain,
            client=publication.publisher,
            user=publication.user,
            content_type=publication.content_type,
        )
        numbers: list[int] = []
        if self.resolution.contents:
            tree = self._tree
            before = tree.pattern_work
            numbers = tree.match(self.resolution, attributes)
            self._routes.work += tree.pattern_work - before
        self._routes.work += CONTENT + (len(publication.payload) >> 3) + (len(numbers) >> 1)
        guard = self._guard
        if guard is not None:
            guard.is_denying = self._denies
        if not numbers:
            return self.copies if guard is None else guard.allowed_copies(self.copies, publication)
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
                    self._sharing.append(subscription.group)
        if guard is not None:
            accepting = guard.allowed_subscriptions(accepting)
        copies = self._by_client.copy()
        reach(copies, accepting)
        found = tuple(copies.values())
        return found if guard is None else guard.allowed_copies(found, publication)

    @property
    def may_read(self) -> MayRead | None:
        """Who may read what comes under the topic; None if everybody may."""
        return None if self._guard is None else self._guard.permits

    def wanting(self) -> tuple[SharedGroup, ...]:
        """The groups that want the publication for which `copies_for` was asked last."""
        return (*self.groups, *self._sharing)

    def _shared(self, publication: Publication) -> tuple[Copy, ...]:
        """One copy for each group that wants *publication*, whatever else its member gets."""
        groups = self.groups
        if self._sharing:
            groups = tuple(dict.fromkeys([*groups, *self._sharing]))
            self._sharing.clear()
        may_read = self.may_read
        self._routes.work += sum([1 + (len(group.members) >> 3) for group in groups])
        chosen = [group.choose(publication, may_read) for group in groups]
        return tuple([member.alone() for member in chosen if member is not None])

    def gather(self) -> None:
        """Tell the ends what was counted here."""
        counted, self.counted = self.counted, 0
        for end in self.resolution.ends:
            end.events += counted


class Routes:
    """The routes of the topics seen lately, forgotten as a whole when one may have changed or ROUTES_MAX is met.

    `epoch` grows each time they are; what a front end derives from a route holds within one epoch.
    """

    def __init__(self, tree: Pst, subscriptions: Subscriptions, timers: TimerQueue) -> None:
        self.tree = tree
        self.subscriptions = subscriptions
        self._timers = timers
        self.epoch = 0
        self.work = 0
        """What routing took so far, in units of about a microsecond: of a publication 1 and each copy of it 1, of four
        subscription identifiers 1, of a group 1, and one more for eight members; if its content matters CONTENT, an
        eighth of its length, 1 for two subscriptions that it meets, and what patterns took. A new topic takes 8, a 16th
        of its length, and 1 for each topic filter that matches it.
        """
        self.asked: Publication | None = None
        """What `copies_for` was last asked about, of `asked_route`, until it is accepted or a subscription changes."""
        self.asked_route: Route | None = None
        self.answer: tuple[Copy, ...] = ()
        self.accepting: list[Subscription] = []
        """The subscriptions whose content filter accepts it, members of groups included."""
        self.closed: MinuteCounts | None = None
        """The minute whose counts must be kept apart from those that come now, if there is one."""
        self.ask: PermissionQuery | None = None
        """How to learn who may read what; None where nobody is forbidden anything. `forget` when answers change."""
        self._known: dict[str, Route] = {}
        self._weight = 0
        self._at_once = RELEASED_AT_ONCE
        self._tree_epoch = tree.epoch
        self._ungathered: list[Route] = []
        self._ungathered_ends = 0
        self._released: list[dict[Any, Any]] = []
        self._extractors: dict[frozenset[str], Extractor] = {}
        self._births: Births | None = None

    def __len__(self) -> int:
        return len(self._known)

    def route(self, topic: str) -> Route:
        """The route of *topic*, a valid topic name."""
        route = self._known.get(topic)
        if route is None:
            if self._weight >= ROUTES_MAX:
                self.forget()
            route = self._known[topic] = Route(topic, self)
            ends = len(route.resolution.ends)
            self.work += 8 + (len(topic) >> 4) + ends
            self._weight += weight(topic) + ends // ENDS_PER_WEIGHT
        return route

    def count_accepting(self) -> None:
        """What `copies_for` was asked about is accepted: the content filters that accept it count it."""
        self.asked = None
        closed = self.closed
        for subscription in self.accepting:
            if closed is not None:
                closed.save_subscription(subscription)
            subscription.matched += 1

    def extractor(self, wanted: frozenset[str]) -> Extractor:
        """What takes the attributes *wanted* out of publications; topics that want the same share it."""
        extractor = self._extractors.get(wanted)
        if extractor is None:
            if len(self._extractors) >= EXTRACTORS_MAX:
                self._extractors.clear()
            extractor = self._extractors[wanted] = Extractor(wanted)
        return extractor

    def metrics(self, topic: str, wanted: frozenset[str], plain: Extractor | None) -> Extractor | None:
        """As `extractor`, for a topic of Sparkplug's: it knows what devices said at their birth, and listens to births.

        *plain* if the content does not matter, and for other topics.
        """
        from edgebroker.filters.sparkplug import Births, is_sparkplug, tells  # for who is sent any

        if not is_sparkplug(topic) or (plain is None and not tells(topic)):
            return plain
        if self._births is None:  # one that knows nothing yet is a false one, and already shared
            self._births = Births()
        return Extractor(wanted, self._births)

    @property
    def births(self) -> Births | None:
        """What Sparkplug's devices said at their birth; None while there were none."""
        return self._births

    def note(self, route: Route) -> None:
        """Remember that *route*, which had counted nothing, is about to."""
        if len(self._ungathered) >= UNGATHERED_MAX or self._ungathered_ends >= UNGATHERED_ENDS_MAX:
            self.gather()
        self._ungathered.append(route)
        self._ungathered_ends += len(route.resolution.ends)

    def gather(self) -> None:
        """Bring the counts of all ends up to date. Must be done *before* a subscription comes or goes."""
        ungathered, self._ungathered = self._ungathered, []
        self._ungathered_ends = 0
        closed = self.closed
        for route in ungathered:
            if closed is not None:
                closed.save_ends(route.resolution.ends)
            route.gather()

    def follow(self) -> None:
        """Start anew if the tree is in another epoch. Must be done *after* a subscription came or went."""
        self.asked = None
        if self.tree.epoch != self._tree_epoch:
            self.forget()

    def forget(self) -> None:
        """Start anew."""
        self.asked = None
        self._tree_epoch = self.tree.epoch
        self.epoch += 1
        self._at_once = max(1, RELEASED_AT_ONCE * len(self._known) // max(1, self._weight))
        self._weight = 0
        self._known = self.emptied(self._known)

    def emptied(self, known: dict[K, V]) -> dict[K, V]:
        """An empty dictionary in place of *known*, which holds something for each route.

        To give back the memory of 20,000 takes 8 ms. So if there are many that is done by and by, at the deadline TIDY.
        """
        if len(known) <= self._at_once:
            known.clear()
            return known
        if len(self._released) >= RELEASED_MAX:
            self._released.pop()
        self._released.append(known)
        self._timers.set(TIDY, 0)  # as soon as there is time
        return {}

    @property
    def is_tidy(self) -> bool:
        """Whether all memory of forgotten routes is given back."""
        return not self._released

    def tidy(self) -> None:
        """Give back the memory of as many forgotten routes as may be at once."""
        if self._released:
            known = self._released[-1]
            for _ in range(min(len(known), self._at_once)):
                known.popitem()
            if not known:
                self._released.pop()
