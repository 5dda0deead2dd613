"""Retained messages of a federation: kept where they are published and where they enter a site, queried elsewhere.

A retained message has a *stamp*, the header with which it was forwarded: it names the gateway that has the original,
and orders two messages by age. A new subscriber does not get a copy whose original can be queried: the reply is never
older than the copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from edgebridge.frontend.federation.convert import forward_retained
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.retained_replay import RetainedReplay, attributes_of
from edgebridge.session.retained import RetainedStore
from edgebridge.session.subscription_text import SubscriptionRequest
from edgebroker.federation.effects import Effect
from edgebroker.federation.router import FederationRouter
from edgebroker.filters import Extractor
from edgebroker.header import EventHeader, host_of
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.interest import Interest
from edgebroker.node.subscriptions import Subscription
from edgebroker.overlay.id_allocator import is_newer
from edgebroker.overlay.link.journal_records import StoredLinks, header_record
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter, is_reserved

REPLIES_AT_ONCE: Final = 100
"""Places in the store looked at for one question in one go: 1 ms."""
REPLY_INTERVAL: Final = 5 * MILLISECOND
QUERIES_MAX: Final = 1_000
"""Questions that wait here for their answers; more are not answered."""
PENDING_MAX: Final = 10_000
"""Subscriptions that wait for answers of others; the oldest is forgotten first."""


class _PeerQuery:
    """What a peer asks for, as far as it was answered."""

    def __init__(self, request: int, interest: Interest, matches: Iterator[Publication | None]) -> None:
        self.request = request
        self.matches = matches
        self._interest = interest
        self._extractor = Extractor(sorted({test.attribute for test in interest.predicate}))

    def matches_query(self, kept: Publication) -> bool:
        """Whether *kept* is asked for."""
        return self._interest.accepts(kept.topic, attributes_of(kept, self._extractor))


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
        self._queries: deque[_PeerQuery] = deque()
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
        return stamp is not None and self._peers is not None and self._peers.is_queried(stamp)

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
        predicates = ((),) if request.filter is None else request.filter.predicates
        self._perform(self._peers.query_retained(subscription.number, request.topic_filter, predicates, now), now)

    def reply_received(self, number: int, publication: Publication, header: EventHeader, now: Instant) -> None:
        """One message for the local subscription *number*, unless it got what is kept here, and that is not older.

        An event that had to go around what was down left a copy where none would ask for its original. If the gateway
        of the copy's publisher keeps an older message, it crashed before the newer one was on its disk, and was not
        acknowledged: then the subscriber, who did not get the copy, gets what that gateway has.
        """
        topic = publication.topic
        stamp = self._stamps.get(topic)
        if stamp is not None and self._retained.find(topic) is not None:
            if not self.is_elsewhere(topic):
                is_wanted = is_newer(header, stamp)
            else:
                is_wanted = host_of(header.publisher) == host_of(stamp.publisher) or not is_newer(stamp, header)
            if not is_wanted:
                return
        asking = self._pending.get(number)
        if asking is not None and not publication.has_expired(now):
            self._replay.deliver_remote(*asking, publication, now)

    def subscription_ended(self, number: int) -> None:
        """The subscription is no more."""
        self._pending.pop(number, None)

    # -- questions of peers ---------------------------------------------------------------------------------------

    def query_received(self, request: int, interest: Interest, now: Instant) -> None:
        """A peer asks."""
        if len(self._queries) < QUERIES_MAX:
            self._queries.append(_PeerQuery(request, interest, self._retained.walk(interest.topic_filter)))
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
                self._queries.popleft()
                return
            if kept is not None and not kept.has_expired(now):
                self._reply(question, kept, now)
        self._queries.rotate(-1)

    def _reply(self, question: _PeerQuery, kept: Publication, now: Instant) -> None:
        assert self._peers is not None
        header = self._stamps.get(kept.topic)
        if header is not None and question.matches_query(kept) and self._replay.is_still_allowed(kept):
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
