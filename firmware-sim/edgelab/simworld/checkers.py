"""The promises of the broker, checked on what simulated clients published and received. Each checker yields
violations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

from edgebridge.session.subscription_text import SubscriptionRequest, parse_subscription
from edgebroker.filters import Extractor
from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.log_schema import DIGEST, SUM_MODULUS, Cause, Fate
from edgebroker.storage.deliverylog.reader import LogFile, read_segment
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.participant import Participant, PublishedMessage, ReceivedMessage

ROUNDED: Final[Duration] = 10 * MILLISECOND
"""A message may expire earlier by this time: each gateway on its way rounds the rest down to a millisecond."""


@lru_cache(maxsize=1_000)
def _request(text: str) -> SubscriptionRequest:
    return parse_subscription(text)


def wants(text: str, published: PublishedMessage) -> bool:
    """Return whether the subscription *text* matches *published*, by evaluating both without tree or cache."""
    return _wants(text, published.topic, published.payload, published.qos, published.publisher)


@lru_cache(maxsize=20_000)
def _wants(text: str, topic: str, payload: bytes, qos: int, publisher: str) -> bool:
    request = _request(text)
    if not request.topic_filter.matches(topic):
        return False
    if request.filter is None:
        return True
    extractor = Extractor(request.filter.attributes)
    return request.filter.accepts(extractor.extract(payload, topic=topic, qos=qos, retain=False, client=publisher))


def all_published(participants: Iterable[Participant]) -> dict[bytes, PublishedMessage]:
    """Return every message and every will by its payload, which is unique in a workload."""
    return {
        published.payload: published
        for participant in participants
        for published in (*participant.published, *participant.wills)
    }


def unwanted(participants: list[Participant]) -> Iterator[str]:
    """P5: no client receives a message that none of its subscriptions ever matched, and nothing is altered."""
    known = all_published(participants)
    for participant in participants:
        for received in participant.received:
            published = known.get(received.payload)
            if published is None or published.topic != received.topic or received.qos > published.qos:
                yield f"{participant.name} heard {received}, which nobody said"
            elif not any(wants(text, published) for text in participant.requested):
                yield f"{participant.name} heard {received}, which it never asked for"


def missed(participants: list[Participant], steady: list[Participant], granted: dict[str, int]) -> Iterator[str]:
    """P5 and P2: a client that kept its session and its subscriptions receives every QoS 1 and 2 message that matches.

    Publishers that did not keep theirs may have lost unacknowledged messages. *granted*: text -> QoS.
    """
    for subscriber in steady:
        received = {one.payload for one in subscriber.received}
        for publisher in participants:
            for published in publisher.published if publisher.kept else ():
                sure = published.qos and any(granted[text] and wants(text, published) for text in subscriber.granted)
                if sure and published.payload not in publisher.refused and published.payload not in received:
                    yield f"{subscriber.name} missed {published}"


def doubled(
    participants: list[Participant],
    copies: Callable[[Participant, PublishedMessage], int] = lambda participant, published: 1,
) -> Iterator[str]:
    """P3: QoS 2 exactly once, QoS 0 at most once. *copies*: the number of copies that a client may receive, if more
    than one.
    """
    known = all_published(participants)
    for participant in participants:
        for payload, count in Counter(one.payload for one in participant.received if not one.is_retained).items():
            # A message published at QoS 1 may be accepted twice, whatever the reader's QoS (MQTT 5.0 section 4.3.2).
            published = known[payload]
            if (
                count > 1
                and count > copies(participant, published)
                and published.qos != 1
                and not _may_repeat(participant, payload)
            ):
                yield f"{participant.name} heard {published} {count} times"


def _may_repeat(participant: Participant, payload: bytes) -> bool:
    """Return whether a copy was received at QoS 1, which is repeated until it is acknowledged."""
    return any(received.qos == 1 for received in participant.received if received.payload == payload)


def disordered(
    participants: list[Participant],
    steady: list[Participant],
    concerns: Callable[[Participant, PublishedMessage], bool] = lambda participant, published: True,
    are_clocks_right: bool = True,
) -> Iterator[str]:
    """P4: per publisher, topic and QoS, messages are received for the first time in the order of publication.

    A publisher whose connection broke repeats its QoS 1 messages, in order. Only a client that surely received the
    first copy (a *steady* subscriber, at QoS 1 or 2) can distinguish the repetition from disorder. *concerns*: whether
    order is promised for this client and message.

    A first copy may have expired while later messages did not: the repetition may then follow them, but not before the
    message could have expired. If not *are_clocks_right*, that may have been at any time.
    """
    republished = {payload for one in participants for payload in one.republished}
    place = {published.payload: number for one in participants for number, published in enumerate(one.published)}
    known = all_published(participants)
    for participant in participants:
        latest: dict[tuple[str, str, int, int], ReceivedMessage] = {}
        seen: set[bytes] = set()
        for received in participant.received:
            if received.is_retained or received.payload in seen or received.payload not in place:
                continue
            seen.add(received.payload)
            published = known[received.payload]
            if not concerns(participant, published) or (
                published.qos == 1 and (not received.qos or participant not in steady)
            ):
                continue
            flow = (published.publisher, published.topic, published.qos, received.qos)
            before = latest.get(flow)
            if before is not None and place[before.payload] > place[received.payload]:
                is_old = not are_clocks_right or received.at - published.at >= published.expiry_s * SECOND - ROUNDED
                if published.qos == 1 and published.expiry_s and published.payload in republished and is_old:
                    continue
                yield f"{participant.name} heard {received} after {before}"
            latest[flow] = received


def unaccounted(broker: SimulatedBroker, participants: list[Participant]) -> Iterator[str]:
    """P7: the open copies of the ledger are exactly those in queues; all others have one fate with a valid cause."""
    ledger, frontend = broker.ledger, broker.frontend
    sessions = frontend.connect_handler.sessions.values()
    waiting = sum(len(one.inflight) + len(one.outbox) for one in sessions) + frontend.pager.given_up_messages
    unwritten = sum(connection.out_messages for connection in frontend.connections.values())
    if ledger.queued != waiting + unwritten:
        yield f"{ledger.queued} copies are open in the ledger, {waiting} wait and {unwritten} are unwritten"
    # Only QoS 1 may be accepted twice; QoS 0 may be lost on the way to the broker.
    published = Counter(one.qos for participant in participants for one in participant.published)
    if broker.runs == 1 and not published[2] <= ledger.published:
        yield f"{ledger.published} messages were accepted, {published[2]} were said at QoS 2 alone"
    if Cause.NONE in ledger.dropped:
        yield "a copy was dropped without a cause"


def unbalanced(log: bytes | LogFile) -> Iterator[str]:
    """P7 per flow, from the closed delivery log *log*: every copy that was made has exactly one fate.

    Count, sum and xor of the message numbers must agree, so a lost copy and a doubled one do not cancel out.
    """
    segment = read_segment(log, growing=True) if isinstance(log, bytes) else log
    yield from map(str, segment.damage)
    digest = segment.tables[DIGEST.name]
    made: dict[tuple[str, str, int], tuple[int, int, int]] = {}
    ended: dict[tuple[str, str, int], tuple[int, int, int]] = {}
    names = ("publisher", "subscriber", "qos", "fate", "count", "sum", "xor")
    for publisher, subscriber, qos, fate, count, total, xor in zip(*(digest[name] for name in names), strict=True):
        if fate in (Fate.PUBLISHED, Fate.FILTERED):
            continue
        totals = made if fate == Fate.MATCHED else ended
        flow = (publisher, subscriber, qos)
        before = totals.get(flow, (0, 0, 0))
        totals[flow] = (before[0] + count, (before[1] + total) % SUM_MODULUS, before[2] ^ xor)
    for flow in sorted(made.keys() | ended.keys()):
        if made.get(flow) != ended.get(flow):
            yield f"{flow}: copies made {made.get(flow)}, fates {ended.get(flow)} (count, sum, xor)"
