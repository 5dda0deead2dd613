"""The promises of the broker, checked on what simulated clients said and heard. Each checker names what was broken."""

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
"""So much earlier a message may expire: each gateway on its way rounds what is left down to a millisecond."""


@lru_cache(maxsize=1_000)
def _request(text: str) -> SubscriptionRequest:
    return parse_subscription(text)


def wants(text: str, said: PublishedMessage) -> bool:
    """Whether the subscription *text* asks for *said*: by looking at both, without tree or cache."""
    return _wants(text, said.topic, said.payload, said.qos, said.publisher)


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
    """Every message and every will by its payload, which is unique in a workload."""
    return {said.payload: said for participant in participants for said in (*participant.published, *participant.wills)}


def unwanted(participants: list[Participant]) -> Iterator[str]:
    """P5: nobody hears what no subscription of theirs ever asked for, and nothing is altered."""
    known = all_published(participants)
    for participant in participants:
        for heard in participant.received:
            said = known.get(heard.payload)
            if said is None or said.topic != heard.topic or heard.qos > said.qos:
                yield f"{participant.name} heard {heard}, which nobody said"
            elif not any(wants(text, said) for text in participant.requested):
                yield f"{participant.name} heard {heard}, which it never asked for"


def missed(participants: list[Participant], steady: list[Participant], granted: dict[str, int]) -> Iterator[str]:
    """P5 and P2: who kept its session and its subscriptions hears every QoS 1 and 2 message that matches.

    Publishers that did not keep theirs may have lost what they did not get acknowledged. *granted*: text -> QoS.
    """
    for subscriber in steady:
        heard = {one.payload for one in subscriber.received}
        for publisher in participants:
            for said in publisher.published if publisher.kept else ():
                sure = said.qos and any(granted[text] and wants(text, said) for text in subscriber.granted)
                if sure and said.payload not in publisher.refused and said.payload not in heard:
                    yield f"{subscriber.name} missed {said}"


def doubled(
    participants: list[Participant],
    copies: Callable[[Participant, PublishedMessage], int] = lambda participant, said: 1,
) -> Iterator[str]:
    """P3: QoS 2 exactly once, QoS 0 at most once. *copies*: how many copies somebody may be given, if more than one."""
    known = all_published(participants)
    for participant in participants:
        for payload, count in Counter(one.payload for one in participant.received if not one.is_retained).items():
            # A message said at QoS 1 may be accepted twice, whatever the reader's QoS (MQTT 5.0 section 4.3.2).
            said = known[payload]
            if (
                count > 1
                and count > copies(participant, said)
                and said.qos != 1
                and not _may_repeat(participant, payload)
            ):
                yield f"{participant.name} heard {said} {count} times"


def _may_repeat(participant: Participant, payload: bytes) -> bool:
    """Whether a copy was heard at QoS 1, which is sent again until it is acknowledged."""
    return any(heard.qos == 1 for heard in participant.received if heard.payload == payload)


def disordered(
    participants: list[Participant],
    steady: list[Participant],
    concerns: Callable[[Participant, PublishedMessage], bool] = lambda participant, said: True,
    are_clocks_right: bool = True,
) -> Iterator[str]:
    """P4: per publisher, topic and QoS, the first hearings are in the order of saying.

    A publisher that was cut off says its QoS 1 messages again, in order. Only who is sure to have got the first time
    (a *steady* subscriber, at QoS 1 or 2) can tell the repetition from disorder. *concerns*: who hears what in order.

    Nobody is sure to have got what expired the first time while those behind it did not: it may come behind them, if
    it was said again, and not before it could have expired. If not *are_clocks_right*, that may have been at any time.
    """
    again = {payload for one in participants for payload in one.republished}
    place = {said.payload: number for one in participants for number, said in enumerate(one.published)}
    known = all_published(participants)
    for participant in participants:
        latest: dict[tuple[str, str, int, int], ReceivedMessage] = {}
        seen: set[bytes] = set()
        for heard in participant.received:
            if heard.is_retained or heard.payload in seen or heard.payload not in place:
                continue
            seen.add(heard.payload)
            said = known[heard.payload]
            if not concerns(participant, said) or (said.qos == 1 and (not heard.qos or participant not in steady)):
                continue
            flow = (said.publisher, said.topic, said.qos, heard.qos)
            before = latest.get(flow)
            if before is not None and place[before.payload] > place[heard.payload]:
                is_old = not are_clocks_right or heard.at - said.at >= said.expiry_s * SECOND - ROUNDED
                if said.qos == 1 and said.expiry_s and said.payload in again and is_old:
                    continue
                yield f"{participant.name} heard {heard} after {before}"
            latest[flow] = heard


def unaccounted(broker: SimulatedBroker, participants: list[Participant]) -> Iterator[str]:
    """P7: what the ledger says is open is exactly what waits; all else has one fate, and the causes make sense."""
    ledger, frontend = broker.ledger, broker.frontend
    waiting = sum(len(one.inflight) + len(one.outbox) for one in frontend.connect_handler.sessions.values())
    unwritten = sum(connection.out_messages for connection in frontend.connections.values())
    if ledger.queued != waiting + unwritten:
        yield f"{ledger.queued} copies are open in the ledger, {waiting} wait and {unwritten} are unwritten"
    # Only QoS 1 is ever accepted twice; QoS 0 may be lost on the way to the broker.
    said = Counter(one.qos for participant in participants for one in participant.published)
    if broker.runs == 1 and not said[2] <= ledger.published:
        yield f"{ledger.published} messages were accepted, {said[2]} were said at QoS 2 alone"
    if Cause.NONE in ledger.dropped:
        yield "a copy was dropped without a cause"


def unbalanced(log: bytes | LogFile) -> Iterator[str]:
    """P7 per flow, from the closed delivery log *log*: message by message, every copy made has exactly one fate.

    Count, sum and xor of the message numbers must agree; a copy lost here and doubled there would not cancel out.
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
        books = made if fate == Fate.MATCHED else ended
        flow = (publisher, subscriber, qos)
        before = books.get(flow, (0, 0, 0))
        books[flow] = (before[0] + count, (before[1] + total) % SUM_MODULUS, before[2] ^ xor)
    for flow in sorted(made.keys() | ended.keys()):
        if made.get(flow) != ended.get(flow):
            yield f"{flow}: copies made {made.get(flow)}, fates {ended.get(flow)} (count, sum, xor)"
