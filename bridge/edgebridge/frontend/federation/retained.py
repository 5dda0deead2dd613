"""Retained messages of a federation: kept where they are published and where they enter a site, queried elsewhere.

A retained message has a *stamp*, the header with which it was forwarded: it names the gateway that has the original,
and orders two messages by age. A new subscriber does not get a copy whose original can be queried: the reply is never
older than the copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol
from weakref import WeakSet

from edgebridge.frontend.federation.convert import forward_retained, to_publication
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.retained_replay import RetainedReplay, attributes_of
from edgebridge.session.retained import RetainedStore
from edgebridge.session.subscription_text import SubscriptionRequest
from edgebroker.federation.effects import Effect, LookUpRetained
from edgebroker.federation.retained_cache import RetainedDigestBuilder, part_of, retained_fingerprint
from edgebroker.federation.router import FederationRouter
from edgebroker.filters import Extractor
from edgebroker.header import EventHeader, host_of
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.subscriptions import Subscription
from edgebroker.overlay.id_allocator import is_newer
from edgebroker.overlay.link.journal_records import StoredLinks, header_record
from edgebroker.overlay.messages import Forward
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter, is_reserved

REPLIES_AT_ONCE: Final = 100
"""Places in the store looked at for one question in one go: 1 ms."""
SURVEY_PLACES_MAX: Final = 5_000
"""Places in the store that are searched for copies before a question of ours is asked: 250 ms. Copies behind them are
answered as if they were not known.
"""
REPLY_INTERVAL: Final = 5 * MILLISECOND
QUERIES_MAX: Final = 1_000
"""Questions that wait here for their answers; more are not answered."""
PENDING_MAX: Final = 10_000
"""Subscriptions that wait for answers of others; the oldest is forgotten first."""


class _PeerQuery:
    """What a peer asks for, as far as it was answered.

    With *sums*, the store is walked twice: what is our own is summed first, and answered where the sums differ then.
    """

    def __init__(self, query: LookUpRetained, store: RetainedStore) -> None:
        self.request = query.request
        self.matches = store.walk(query.interest.topic_filter)
        self.builder = RetainedDigestBuilder(len(query.sums)) if query.sums else None
        """Sums what is our own; None: all of it is answered."""
        self._store = store
        self._interest = query.interest
        self._extractor = Extractor(sorted({test.attribute for test in query.interest.predicate}))
        self._sums = query.sums
        self._unmodified = 0
        self._modified = 0  # parts of what was published or cleared while sums are made

    def matches_query(self, kept: Publication) -> bool:
        """Whether *kept* is asked for."""
        return self._interest.accepts(kept.topic, attributes_of(kept, self._extractor))

    def changed(self, topic: str) -> None:
        """What is kept of *topic* changes: it counts as different, as it may be in the sums already."""
        if self.builder is not None:
            self._modified |= 1 << part_of(topic, len(self._sums))

    def end_sums(self) -> int:
        """All was summed. Returns the parts that are unmodified, as bits; the others are answered from now on."""
        assert self.builder is not None
        self._unmodified = self.builder.equal_parts(self._sums) & ~self._modified
        self.builder = None
        self.matches = self._store.walk(self._interest.topic_filter)
        return self._unmodified

    @property
    def is_second_walk(self) -> bool:
        """Whether copies were answered already."""
        return bool(self._sums) and self.builder is None

    def is_known(self, topic: str) -> bool:
        """Whether the peer knows what is kept of *topic*."""
        return bool(self._unmodified) and bool(self._unmodified >> part_of(topic, len(self._sums)) & 1)


class _CopySurvey:
    """A question of ours to other gateways: first the copies of what they keep are collected, so that they need not
    send it.
    """

    def __init__(self, number: int, topic_filter: TopicFilter, store: RetainedStore) -> None:
        self.number = number
        self.topic_filter = topic_filter
        self.matches = islice(store.walk(topic_filter), SURVEY_PLACES_MAX)


class UnmodifiedMessages:
    """Retained messages of another gateway, known here, on their way to one subscription."""

    def __init__(self, forwards: Iterable[Forward], convert: Callable[[Forward], Publication | None]) -> None:
        self._forwards = {forward.topic: forward for forward in forwards}
        self._convert = convert

    def __iter__(self) -> Iterator[Publication | None]:
        while self._forwards:
            yield self._convert(self._forwards.popitem()[1])

    def discard(self, topic: str) -> None:
        """A later message of *topic* has come, and is not to be followed by this one."""
        self._forwards.pop(topic, None)


class EffectPerformer(Protocol):
    """Carries out what the router of a federation decides."""

    def perform(self, effects: Iterable[Effect], now: Instant) -> object:
        """Carry out *effects* in their order."""


class FederatedRetained:
    """The front end's retained messages as the federation sees them."""

    def __init__(self, session_journal: SessionJournal, retained: RetainedStore, replaying: RetainedReplay) -> None:
        self._journal = session_journal
        self._retained = retained
        self._replay = replaying
        self._stamps: dict[str, EventHeader] = {}
        self.due: Instant | None = None
        """When to go on with answers to peers."""
        self._queries: deque[_PeerQuery | _CopySurvey] = deque()
        self._unmodified: WeakSet[UnmodifiedMessages] = WeakSet()
        self._pending: dict[int, tuple[Subscription, SubscriptionRequest, bool]] = {}
        self._peers: FederationRouter | None = None
        self._performer: EffectPerformer | None = None

    def __len__(self) -> int:
        """Stamps, of which some may have lost their message."""
        return len(self._stamps)

    def attach(self, peers: FederationRouter, performer: EffectPerformer, stored: StoredLinks) -> None:
        """Query and answer through *peers*, whose effects *performer* carries out."""
        self._peers = peers
        self._performer = performer
        self._stamps = dict(stored.stamps)
        self._replay.originals = self

    def advertise(self, now: Instant) -> None:
        """Show others what an earlier run kept for its own clients."""
        assert self._peers is not None
        for topic in list(self._stamps):
            kept = self._retained.find(topic)
            if kept is None:
                del self._stamps[topic]
            elif self._is_own(topic):
                self._perform(self._peers.advertise(kept.publisher, topic, now), now)

    def _perform(self, effects: Iterable[Effect], now: Instant) -> None:
        assert self._performer is not None
        self._performer.perform(effects, now)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def published(self, header: EventHeader, publication: Publication, now: Instant) -> None:
        """A local client's *publication* went out with *header*, and is kept if anything of its topic is."""
        topic = publication.topic
        self.superseded(topic)
        was_own = self._is_own(topic)
        if not publication.payload:
            self._stamps.pop(topic, None)
            self._claim(topic, header, now)
        elif self._retained.find(topic) is publication:
            self._stamp(topic, header, now)
            if not was_own:
                self._claim(topic, header, now)
        else:
            self._stamps.pop(topic, None)

    def superseded(self, topic: str) -> None:
        """A message to be retained of *topic* has come, whoever published it."""
        for messages in tuple(self._unmodified) if self._unmodified else ():
            messages.discard(topic)
        self._changed(topic)

    def _changed(self, topic: str) -> None:
        for query in self._queries:
            if isinstance(query, _PeerQuery):
                query.changed(topic)

    def _claim(self, topic: str, stamp: EventHeader, now: Instant) -> None:
        assert self._peers is not None
        self._perform(self._peers.claim_retained(topic, stamp, now), now)

    def claimed(self, payload: bytes, now: Instant) -> None:
        """Another gateway of the site has, or has cleared, the retained message of a topic: what is older here goes.

        Its subscribers here hear nothing of that: they got what was published there.
        """
        assert self._peers is not None
        claim = self._peers.read_claim(payload, now)
        if claim is None:
            return
        topic, header = claim
        kept, stamp = self._retained.find(topic), self._stamps.get(topic)
        if kept is None:
            return
        if stamp is not None and is_newer(stamp, header):
            if self._is_own(topic):
                self._claim(topic, stamp, now)
            return
        self._stamps.pop(topic, None)
        self._changed(topic)
        self._retained.clear(topic)
        self._journal.retained(Publication(kept.publisher, topic, b"", 1, True, now), now)

    def stamp(self, topic: str) -> EventHeader | None:
        """That of what is kept here: what a local client publishes now, to be kept, replaces it and counts as newer,
        even if the clock of the gateway where that was published is ahead of ours.
        """
        return self._stamps.get(topic)

    def retain(self, publication: Publication, header: EventHeader, now: Instant) -> None:
        """A message to be retained entered the site here. It is kept unless a newer one is."""
        topic = publication.topic
        before = self._stamps.get(topic)
        if before is not None and is_newer(before, header) and self._retained.find(topic) is not None:
            return
        if not self._retained.messages_max:
            return
        if not self._retained.retain(publication):
            self._retained.not_retained += 1
            return
        if publication.payload:
            self._stamp(topic, header, now)
        else:
            self._stamps.pop(topic, None)
        self._journal.retained(publication, now)

    def retains_own(self, topic_filter: TopicFilter) -> bool:
        """Whether a message of a local client is kept under *topic_filter*."""
        return any(kept is not None and self._is_own(kept.topic) for kept in self._retained.walk(topic_filter))

    def is_elsewhere(self, topic: str) -> bool:
        """Whether what is kept of *topic* is a copy whose original can be asked for."""
        stamp = self._stamps.get(topic)
        return stamp is not None and self._peers is not None and self._peers.retained_queries.is_queried(stamp)

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again."""
        for topic, header in list(self._stamps.items()):
            if topic in self._stamps and self._retained.find(topic) is not None:
                yield header_record(topic, header)

    # -- late subscribers -----------------------------------------------------------------------------------------

    def query(self, subscription: Subscription, request: SubscriptionRequest, skips_own: bool, now: Instant) -> None:
        """Ask others for what a new subscription wants."""
        if is_reserved(request.topic_filter.text):
            return
        assert self._peers is not None
        while len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]
            self._replay.dropped_queries += 1
        self._pending[subscription.number] = (subscription, request, skips_own)
        if request.filter is None and self._stamps and len(self._queries) < QUERIES_MAX:
            self._queries.append(_CopySurvey(subscription.number, request.topic_filter, self._retained))
            self.continue_replies(now)
        else:
            self._ask(subscription.number, request, now)

    def _ask(self, number: int, request: SubscriptionRequest, now: Instant) -> None:
        assert self._peers is not None
        predicates = ((),) if request.filter is None else request.filter.predicates
        self._perform(self._peers.query_retained(number, request.topic_filter, predicates, now), now)

    def unmodified_received(self, number: int, forwards: Iterable[Forward], now: Instant) -> None:
        """Messages for the local subscription *number*, which were known here: as with `reply_received`, but some in
        each turn, as fast as the client reads them.
        """
        asking = self._pending.get(number)
        if asking is None:
            return

        def convert(forward: Forward) -> Publication | None:
            is_wanted = self._is_wanted(forward.topic, forward.header)
            return to_publication(forward, now) if is_wanted else None

        messages = UnmodifiedMessages(forwards, convert)
        self._unmodified.add(messages)
        self._replay.deliver_known(*asking, messages)

    def reply_received(self, number: int, publication: Publication, header: EventHeader, now: Instant) -> None:
        """One message for the local subscription *number*, unless it got what is kept here, and that is not older.

        An event that had to go around what was down left a copy where none would ask for its original. If the gateway
        of the copy's publisher keeps an older message, it crashed before the newer one was on its disk, and was not
        acknowledged: then the subscriber, who did not get the copy, gets what that gateway has.
        """
        asking = self._pending.get(number)
        if asking is not None and self._is_wanted(publication.topic, header) and not publication.has_expired(now):
            self._replay.deliver_remote(*asking, publication, now)

    def _is_wanted(self, topic: str, header: EventHeader) -> bool:
        """Whether a message of another gateway is to be delivered, in spite of what is kept here."""
        stamp = self._stamps.get(topic)
        if stamp is None or self._retained.find(topic) is None:
            return True
        if not self.is_elsewhere(topic):
            return is_newer(header, stamp)
        return host_of(header.publisher) == host_of(stamp.publisher) or not is_newer(stamp, header)

    def subscription_ended(self, number: int) -> None:
        """The subscription is no more."""
        self._pending.pop(number, None)

    # -- questions of peers ---------------------------------------------------------------------------------------

    def query_received(self, query: LookUpRetained, now: Instant) -> None:
        """A peer asks."""
        if len(self._queries) < QUERIES_MAX:
            self._queries.append(_PeerQuery(query, self._retained))
            self.continue_replies(now)
        else:
            self._replay.dropped_queries += 1

    def continue_replies(self, now: Instant) -> None:
        """Answer some more, and say when to go on."""
        if self._queries:
            self._reply_some(now)
        self.due = now + REPLY_INTERVAL if self._queries else None

    def _reply_some(self, now: Instant) -> None:
        question = self._queries[0]
        for _ in range(REPLIES_AT_ONCE):
            try:
                kept = next(question.matches)
            except StopIteration:
                if not self._goes_on(question, now):
                    self._queries.popleft()
                return
            header = None if kept is None else self._stamps.get(kept.topic)
            if kept is None or header is None or kept.has_expired(now):
                continue
            if isinstance(question, _PeerQuery):
                self._reply(question, kept, header, now)
            elif not self._is_own(kept.topic):
                assert self._peers is not None
                self._peers.retained_queries.know(question.topic_filter, forward_retained(kept, header, now), now)
        self._queries.rotate(-1)

    def _goes_on(self, question: _PeerQuery | _CopySurvey, now: Instant) -> bool:
        """All places were looked at. Returns whether they are looked at once more."""
        if isinstance(question, _CopySurvey):
            asking = self._pending.get(question.number)
            if asking is not None:
                self._ask(question.number, asking[1], now)
            return False
        if question.builder is None:
            return False
        assert self._peers is not None
        self._perform(self._peers.retained_queries.answer_unmodified(question.request, question.end_sums()), now)
        return True

    def _reply(self, question: _PeerQuery, kept: Publication, header: EventHeader, now: Instant) -> None:
        assert self._peers is not None
        topic, is_own = kept.topic, self._is_own(kept.topic)
        if question.is_second_walk and (not is_own or question.is_known(topic)):
            return
        if not question.matches_query(kept) or not self._replay.is_still_allowed(kept):
            return
        if is_own and question.builder is not None:
            question.builder.add(topic, retained_fingerprint(topic, header))
        else:
            self._perform(self._peers.answer_retained(question.request, forward_retained(kept, header, now), now), now)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _stamp(self, topic: str, header: EventHeader, now: Instant) -> None:
        for _ in range(min(2, len(self._stamps))):  # messages expire, and nobody tells us: two are looked at for each
            known = next(iter(self._stamps))
            stamp = self._stamps.pop(known)
            if self._retained.find(known) is not None:
                self._stamps[known] = stamp
        self._stamps[topic] = header
        if self._journal.storage is not None:
            self._journal.append(header_record(topic, header), False, now)

    def _is_own(self, topic: str) -> bool:
        stamp = self._stamps.get(topic)
        return stamp is not None and self._peers is not None and host_of(stamp.publisher) == self._peers.gateway.number
