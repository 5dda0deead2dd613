"""Retained messages for a new subscription: a bounded number in each turn, as fast as the client reads them.

100,000 retained messages take a second to send. In one turn they would delay every other client, and what does not
fit into the subscriber's buffers would be lost. So a subscription that matches more than REPLAY_AT_ONCE goes on in
later turns. Packets of that client are handled meanwhile: among them are the acknowledgements that make room for the
rest. A client has no more replays pending than it has subscriptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, islice
from typing import Final, Protocol

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.handlers.authorization import Authorizer
from edgebridge.frontend.job import PROPERTIES_SHIFT, WORK_AT_ONCE
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.journal.session_records import is_owed, owed
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.session.subscription_text import SubscriptionRequest
from edgebroker.filters import Extractor
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause, MessageOrigin
from edgebroker.node.node import Node
from edgebroker.node.subscriptions import Copy, Subscription
from edgebroker.predicate import Attributes
from edgebroker.publication import Publication

REPLAY_AT_ONCE: Final = 200
"""Messages looked at in one turn: 2 ms at 10 us for each that is sent. Fewer if that is more than WORK_AT_ONCE."""
SEND_WORK: Final = 8
"""What one that is sent takes, and an eighth of the length of its properties. 200 of 1,798 properties took 43 ms."""
FILTER_WORK: Final = 16
"""What one takes that a filter looks into, and a quarter of its length: 60 patterns take 0.2 ms for 300 characters."""
QUEUED_AT_ONCE: Final = 1_000
"""Messages that wait already and are looked at in one turn: 2 ms."""


class SubscriptionReplay:
    """One subscription's retained messages, as far as they were looked at."""

    __slots__ = (
        "_copy",
        "_extractor",
        "_queue",
        "first",
        "matches",
        "remote_messages",
        "request",
        "skips_own",
        "subscription",
    )

    def __init__(
        self,
        subscription: Subscription,
        request: SubscriptionRequest,
        skips_own: bool,
        queue: ReplayQueue | None = None,
        first: Sequence[Publication] = (),
    ) -> None:
        """*queue*: it belongs to that one. *first*: messages that are looked at before those of the store."""
        self._queue = queue
        self.first = first
        self.remote_messages: deque[Publication] | None = None
        """What is kept elsewhere and was handed over, as far as it was not looked at: then `matches` gives that."""
        self.begin(subscription, request, skips_own)

    def begin(self, subscription: Subscription, request: SubscriptionRequest, skips_own: bool) -> None:
        """From the start, for *subscription*."""
        self.subscription = subscription
        self.request = request
        self.skips_own = skips_own
        self.matches: Iterator[Publication | None] | None = None
        """What is looked at next; None: nothing was yet."""
        self._copy: Copy | None = None  # these are made for the first match: most filters meet no retained message
        self._extractor: Extractor | None = None

    @property
    def copy(self) -> Copy:
        """What the subscription gets of each."""
        self._copy = self._copy or Copy((self.subscription,))
        return self._copy

    def replace_subscription(self, subscription: Subscription) -> None:
        """Go on for *subscription*, which is the same one with other options."""
        self.subscription, self._copy = subscription, None

    def wants(self, kept: Publication) -> bool:
        """Whether *kept* is for the subscription, and its client may read it."""
        subscription = self.subscription
        if self.skips_own and kept.publisher == subscription.client:
            return False
        if self._queue is not None and not self._queue.wants(kept, subscription.qos):
            return False
        rights = subscription.receiver.rights
        if rights is not None and not rights.may_read(kept):
            return False
        wanted = self.request.filter
        if wanted is None:
            return True
        self._extractor = self._extractor or Extractor(wanted.attributes)
        return wanted.accepts(attributes_of(kept, self._extractor))

    def sent(self, topic: str) -> None:
        """What is retained of *topic* is on its way, and not to come by another subscription."""
        if self._queue is not None and self._queue.sent_topics is not None:
            self._queue.sent_topics.add(topic)


def attributes_of(kept: Publication, extractor: Extractor) -> Attributes:
    """What filters may ask of a retained message."""
    return extractor.extract(
        kept.payload,
        topic=kept.topic,
        qos=kept.qos,
        retain=True,
        client=kept.publisher,
        user=kept.user,
        content_type=kept.content_type,
    )


class ReplayQueue(deque[SubscriptionReplay]):
    """Those of one session, and with it they end."""

    def __init__(self, waiting: Iterator[str | None] | None = None, lost: Set[str] | None = None) -> None:
        """*waiting*, of who gets all once: for each message that waits for it already its topic, if it is what is
        retained there. Others get what is retained for each subscription that matches (MQTT 5.0 section 3.3.1.3).

        *lost*, of who had all once: what was sent at QoS 1 or 2 has arrived, but for these topics, and is not sent
        again.
        """
        super().__init__()
        self.by_text: dict[str, SubscriptionReplay] = {}
        """Those of what is retained here, by the text of their subscription."""
        self.sent_topics: set[str] | None = None if waiting is None else set()
        """Topics of which what is retained waits for the client or was sent; None: nobody asks."""
        self._waiting = waiting
        self._lost = lost

    def wants(self, kept: Publication, qos: int) -> bool:
        """Whether *kept* is to be sent at *qos*, or at its own if that is lower."""
        if self.sent_topics is not None and kept.topic in self.sent_topics:
            return False
        return self._lost is None or not (qos and kept.qos) or kept.topic in self._lost

    def send_first(
        self, subscription: Subscription, request: SubscriptionRequest, messages: Sequence[Publication]
    ) -> None:
        """*subscription* gets *messages*, and then what is retained if it is scheduled."""
        replay = SubscriptionReplay(subscription, request, True, self, messages)
        replay.matches = iter(messages)
        self.by_text[subscription.text] = replay
        self.append(replay)

    def schedule(self, subscription: Subscription, request: SubscriptionRequest, skips_own: bool) -> None:
        """*subscription* gets what is retained, behind others; if it was to get it already, from the start."""
        pending = self.by_text.get(subscription.text)
        if pending is not None:
            pending.begin(subscription, request, skips_own)
        else:
            pending = self.by_text[subscription.text] = SubscriptionReplay(subscription, request, skips_own, self)
            self.append(pending)

    def finish(self) -> SubscriptionReplay:
        """The first one is done."""
        done = self.popleft()
        if done.remote_messages is None:
            del self.by_text[done.subscription.text]
        return done

    @property
    def is_scanning(self) -> bool:
        """Whether there is more that waits already, and has to be looked at first."""
        return self._waiting is not None

    def scan_queued(self) -> None:
        """Look at some of what waits already."""
        if self._waiting is None or self.sent_topics is None:
            return
        looked = list(islice(self._waiting, QUEUED_AT_ONCE))
        self.sent_topics.update(topic for topic in looked if topic is not None)
        if len(looked) < QUEUED_AT_ONCE:
            self._waiting = None

    def sent(self, publication: Publication) -> None:
        """What is retained of a topic from now on is on its way, and not to come as what is retained; or nothing is."""
        if self.sent_topics is not None:
            (self.sent_topics.add if publication.payload else self.sent_topics.discard)(publication.topic)


class RetainedOriginals(Protocol):
    """What a federation knows of retained messages that are copies here."""

    def is_elsewhere(self, topic: str) -> bool:
        """Whether another gateway has the original of what is retained for *topic* and can be asked for it."""


class RetainedReplay:
    """Sends retained messages anew: each is a message of its own in the accounts, for one reader."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        session_journal: SessionJournal,
        retained: RetainedStore,
        authorizer: Authorizer,
    ) -> None:
        self._authorizer = authorizer
        self._node = node
        self._delivery = delivery
        self._journal = session_journal
        self._retained = retained
        self.examined = 0
        """Places looked at so far."""
        self.dropped_queries = 0
        """Questions for what is kept at other gateways that were given up, ours or theirs: too many waited."""
        self.originals: RetainedOriginals | None = None
        """Knows of which topics another gateway has the original; None: everything is our own."""

    def schedule(self, subscription: Subscription, request: SubscriptionRequest, skips_own: bool) -> None:
        """A new subscription gets what matches, with *skips_own* but the client's own: some with each `go_on`."""
        session: Session = subscription.receiver
        if session.replays is None:
            session.replays = ReplayQueue()
        session.replays.schedule(subscription, request, skips_own)

    def is_pending(self, session: Session, text: str) -> bool:
        """Whether the subscription with this text still gets something of what is retained here."""
        return session.replays is not None and text in session.replays.by_text

    def replace_subscription(self, subscription: Subscription) -> None:
        """A subscription takes the place of an equal one: what that one still had to get is for it now."""
        session: Session = subscription.receiver
        pending = None if session.replays is None else session.replays.by_text.get(subscription.text)
        if pending is not None:
            pending.replace_subscription(subscription)

    def deliver_remote(
        self, subscription: Subscription, request: SubscriptionRequest, skips_own: bool, kept: Publication, now: Instant
    ) -> None:
        """Send a message that is kept elsewhere, if a new subscription wants it."""
        session: Session = subscription.receiver
        replay = SubscriptionReplay(subscription, request, skips_own, session.replays)
        if not self._is_current(subscription) or not replay.wants(kept):
            return
        if _is_scanning(session):
            self._defer(kept, replay, session)
        else:
            self._send(kept, replay, now)

    def _defer(self, kept: Publication, replay: SubscriptionReplay, session: Session) -> None:
        """Send *kept* when it is known what waits already: perhaps it does."""
        last = session.replays[-1] if session.replays else None
        if last is not None and last.remote_messages is not None and last.subscription is replay.subscription:
            last.remote_messages.append(kept)
            return
        replay.remote_messages = given = deque((kept,))
        replay.matches = _drained(given)
        _append(replay, session)

    def deliver_known(
        self,
        subscription: Subscription,
        request: SubscriptionRequest,
        skips_own: bool,
        messages: Iterable[Publication | None],
    ) -> None:
        """Send *messages*, which are kept elsewhere and known here, some with each `resume`."""
        session: Session = subscription.receiver
        if not self._is_current(subscription):
            return
        if session.replays is None:
            session.replays = ReplayQueue()
        replay = SubscriptionReplay(subscription, request, skips_own, session.replays)
        given: deque[Publication] = deque()
        replay.remote_messages = given
        replay.matches = chain(messages, _drained(given))
        _append(replay, session)

    def _is_current(self, subscription: Subscription) -> bool:
        """Whether it has neither ended nor been replaced by another, which has its own replay."""
        own = self._node.subscriptions.of(subscription.client)
        return own.get(subscription.text) is subscription

    def resume(self, session: Session, now: Instant) -> None:
        """Send some more of what waits, if there is room."""
        replays = session.replays
        if _is_scanning(session):
            replays.scan_queued()
        elif replays and self._step(replays[0], now):
            done = replays.finish()
            if not replays and replays.sent_topics is None:
                session.replays = None
            if done.remote_messages is None:
                self.record_pending(done.subscription.receiver, done.subscription.text, False, now)

    def paged_in(self, session: Session) -> None:
        """Note what is retained among the messages that were read from the disk: it is not sent twice."""
        sent_topics = _sent_topics(session)
        if sent_topics is not None:
            publications = [entry.publication for entry in session.outbox.before_pages()]
            sent_topics.update([one.topic for one in publications if self._retained.holds(one)])

    def can_resume(self, session: Session) -> bool:
        """Whether another turn would do something for what waits."""
        return bool(session.replays) and (_is_scanning(session) or self.has_room(session))

    def has_room(self, session: Session) -> bool:
        """Whether the client reads and acknowledges fast enough to get more."""
        connection, outbox = session.connection, session.outbox
        return (
            connection is not None
            and not connection.closing
            and not (outbox.pages and _sent_topics(session) is not None)  # what is retained may be in a page
            and 2 * connection.out_bytes < connection.out_bytes_max
            and 2 * len(outbox) < outbox.messages_max
            and 2 * outbox.held_bytes < outbox.bytes_max
        )

    def _step(self, replay: SubscriptionReplay, now: Instant) -> bool:
        """Look at REPLAY_AT_ONCE places, or until there is no room. True if there is nothing left."""
        subscription = replay.subscription
        session: Session = subscription.receiver
        if not self._is_current(subscription):
            return True
        if replay.matches is None:
            replay.matches = chain(replay.first, self._retained.walk(replay.request.topic_filter))
        work = WORK_AT_ONCE
        for _ in range(REPLAY_AT_ONCE):
            if work <= 0 or not self.has_room(session):
                return False
            kept = next(replay.matches, _END)
            self.examined += 1
            if kept is _END:
                return True
            if kept is None or kept.has_expired(now):
                continue
            if replay.request.filter is not None:
                work -= FILTER_WORK + (len(kept.payload) >> 2)
            if not replay.wants(kept):
                continue
            if replay.remote_messages is None and (self._is_copy(kept.topic) or not self.is_still_allowed(kept)):
                continue
            work -= SEND_WORK + (kept.properties_bytes >> PROPERTIES_SHIFT)
            self._send(kept, replay, now)
        return False

    def is_still_allowed(self, kept: Publication) -> bool:
        """Whether the publisher of *kept*, which is retained here, still has the right to publish it."""
        return self._authorizer.may_still_publish(kept, self._retained.account_of(kept.topic))

    def _is_copy(self, topic: str) -> bool:
        return self.originals is not None and self.originals.is_elsewhere(topic)

    def record_pending(self, session: Session, text: str, is_pending: bool, now: Instant) -> None:
        """Record whether the subscription *text* still has to get retained messages, so that a later run sends them."""
        record = session.subscription_records.get(text)
        if record is not None and is_owed(record) != is_pending:
            record = session.subscription_records[text] = owed(record, is_pending)
            if session.number:
                self._journal.append(record, False, now)

    def _send(self, kept: Publication, replay: SubscriptionReplay, now: Instant) -> None:
        replay.sent(kept.topic)
        again = Publication(
            kept.publisher,
            kept.topic,
            kept.payload,
            kept.qos,
            True,
            now,
            properties=kept.properties,
            expires_at=kept.expires_at,
            user=kept.user,
            content_type=kept.content_type,
            properties_bytes=kept.properties_bytes,
            trace=kept.trace,
        )
        again.origin = MessageOrigin.RETAINED
        again.number = self._node.ledger.accept(
            now,
            kept.publisher,
            1,
            kept.topic,
            kept.qos,
            len(kept.payload),
            1,
            Cause.NONE,
            kept.trace,
            origin=MessageOrigin.RETAINED,
        )
        self._delivery.deliver_retained(again, replay.copy, now)


def _append(replay: SubscriptionReplay, session: Session) -> None:
    """Let *replay* be the last one of *session*."""
    session.replays.append(replay)
    connection = session.connection
    if connection is not None and not connection.is_dirty:  # then it is looked at, and goes on
        connection.is_dirty = True
        connection.dirty.append(connection)


def _is_scanning(session: Session) -> bool:
    return session.replays is not None and session.replays.is_scanning


def _sent_topics(session: Session) -> set[str] | None:
    return None if session.replays is None else session.replays.sent_topics


def _drained(given: deque[Publication]) -> Iterator[Publication]:
    while given:
        yield given.popleft()


_END: Final = Publication("", "", b"", 0, False, 0)
