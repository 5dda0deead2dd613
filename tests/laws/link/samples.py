"""Messages of every kind, as they might be and as they hardly are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from edgebroker.filters.filter import Filter
from edgebroker.header import EventHeader
from edgebroker.interest import Interest
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    Backpressure,
    ClusterBits,
    ClusterBitsAck,
    ConditionalRetainedQuery,
    Differ,
    Digest,
    EventSeries,
    Forward,
    GroupCount,
    GroupMembers,
    InterestFlush,
    InterestFlushed,
    LinkStateUpdate,
    Message,
    PendingWill,
    PendingWills,
    Relay,
    Restate,
    RetainedDigest,
    RetainedQuery,
    RetainedReply,
    RetainedUnmodified,
    SendAgain,
    StateKind,
    StatusQuery,
    StatusReply,
    Unadvertise,
    Withdraw,
)
from edgebroker.topics import TopicFilter
from edgebroker.trace_records import QueueDelays, TraceInformationAnswer, TraceInformationRequest, TraceRecord

FILTERS = (
    "temp > 30 AND site = 'north'",
    "temp BETWEEN -3.5 AND 1e20 AND NOT ok",
    "name LIKE 'p%_x%' AND name NOT LIKE '%q' AND name >= 'p'",
    "big > 123456789012345678901234567890 AND x IS NULL AND y IS NOT NULL",
    "v IN (1, 2, 3) AND w IN ('a', 'ü', '')",
)
TEXTS = ("", "a", "press-7", "ü/日本", "x" * 300, "y" * 1_500)


def some_interest(chance: Random) -> Interest:
    topic_filter = TopicFilter.parse(chance.choice(["#", "a/+/c", "plant/line4/#", "$SYS/x"]))
    predicates = [()] if chance.random() < 0.3 else list(Filter.parse(chance.choice(FILTERS)).predicates)
    return Interest(topic_filter, chance.choice(predicates))


def some_series(chance: Random, flows: int = 5) -> EventSeries:
    """Events as `some_forward` makes them, as far as a series can have them."""
    first, count = some_forward(chance, flows), chance.choice([2, 3, 40])
    payload = chance.randbytes(count * chance.choice([1, 23, 60]))
    header = replace(first.header, sequence=min(first.header.sequence, (1 << 32) - count))
    qos = chance.randrange(2)
    return EventSeries(
        replace(first, header=header, payload=payload, qos=qos, retain=False, expires_in_ms=None, predecessors=()),
        count,
    )


def some_interests(chance: Random) -> tuple[Interest, ...]:
    return tuple(some_interest(chance) for _ in range(chance.randrange(4)))


def some_number(chance: Random, bits: int) -> int:
    return chance.choice([0, 1, (1 << bits) - 1, chance.randrange(1 << bits)])


def some_forward(chance: Random, flows: int = 5) -> Forward:
    flow = chance.randrange(flows)
    steady = chance.random() < 0.8
    header = EventHeader(
        flow,
        some_number(chance, 32) if chance.random() < 0.1 else chance.randrange(1, 1_000),
        0 if steady else some_number(chance, 32),
        0 if steady else some_number(chance, 8),
        0 if steady else some_number(chance, 16),
        0 if steady else some_number(chance, 16),
        0 if steady else some_number(chance, 32),
        0 if steady else some_number(chance, 16),
        0 if steady else some_number(chance, 16),
        some_number(chance, 48) if chance.random() < 0.1 else 1_800_000_000_000 + chance.randrange(10_000),
    )
    return Forward(
        header,
        f"t/{flow}" if chance.random() < 0.95 else "long/" + "x" * chance.choice([100, 1_100]),
        chance.randbytes(chance.choice([0, 1, 23, 24, 60, 255, 256, 1_500, 9_000])),
        chance.randrange(3),
        chance.random() < 0.2,
        "client" if steady else chance.choice(TEXTS),
        () if steady else tuple((chance.choice(TEXTS), chance.choice(TEXTS)) for _ in range(chance.randrange(3))),
        None if steady else chance.choice([None, "text/plain"]),
        b"" if steady else chance.randbytes(chance.choice([0, 5])),
        None if chance.random() < 0.8 else chance.randrange(1 << 40),
        0 if steady else some_number(chance, 8),
        chance.random() < 0.1,
        () if steady else tuple(chance.randrange(1_024) for _ in range(chance.randrange(3))),
        () if steady else tuple((cluster, some_number(chance, 32)) for cluster in range(chance.randrange(3))),
    )


def some_advertise(chance: Random) -> Advertise:
    return Advertise(
        some_number(chance, 32),
        some_number(chance, 32),
        chance.choice(TEXTS),
        TopicFilter.parse(chance.choice(["a/#", "+", "b/c"])),
        chance.randrange(16),
        60,
        chance.random() < 0.5,
    )


def some_numbers(chance: Random, bits: int) -> tuple[int, ...]:
    return tuple(some_number(chance, bits) for _ in range(chance.randrange(5)))


def some_record(chance: Random) -> TraceRecord:
    numbers = [some_number(chance, 32) for _ in range(6)]
    peers = [{chance.choice(TEXTS): some_number(chance, 32) for _ in range(chance.randrange(3))} or None for _ in "ol"]
    delays = QueueDelays(*numbers[3:], *peers)
    return TraceRecord(chance.choice(TEXTS), chance.getrandbits(chance.choice([1, 100, 1_000])), *numbers[:3], delays)


SOME: dict[type[Any], Callable[[Random], Message]] = {
    Announce: lambda chance: Announce(some_interests(chance), some_number(chance, 16)),
    Withdraw: lambda chance: Withdraw(some_interests(chance), some_number(chance, 16)),
    Advertise: some_advertise,
    Unadvertise: lambda chance: Unadvertise(some_numbers(chance, 32)),
    ClusterBits: lambda chance: ClusterBits(
        some_numbers(chance, 32),
        chance.randrange(16),
        some_number(chance, 64),
        chance.random() < 0.5,
        chance.choice([None, some_interests(chance)]),
    ),
    ClusterBitsAck: lambda chance: ClusterBitsAck(chance.randrange(16), some_number(chance, 64)),
    Digest: lambda chance: Digest(
        chance.choice(list(StateKind)), some_number(chance, 16), some_number(chance, 32), some_number(chance, 64)
    ),
    Differ: lambda chance: Differ(chance.choice(list(StateKind)), some_numbers(chance, 64)),
    Restate: lambda chance: Restate(
        chance.choice(list(StateKind)),
        8,
        3,
        some_number(chance, 16),
        some_interests(chance),
        tuple(some_advertise(chance) for _ in range(chance.randrange(3))),
    ),
    RetainedQuery: lambda chance: RetainedQuery(some_number(chance, 32), some_interest(chance)),
    RetainedReply: lambda chance: RetainedReply(some_number(chance, 32), some_forward(chance)),
    LinkStateUpdate: lambda chance: LinkStateUpdate(
        chance.randrange(1_024), some_number(chance, 64), some_numbers(chance, 10)
    ),
    Backpressure: lambda chance: Backpressure(
        chance.randrange(1_024), some_number(chance, 64), chance.randrange(1_024), some_interests(chance)
    ),
    StatusQuery: lambda chance: StatusQuery(some_number(chance, 32)),
    StatusReply: lambda chance: StatusReply(
        some_number(chance, 32), chance.randrange(1_024), chance.randbytes(chance.randrange(300))
    ),
    InterestFlush: lambda chance: InterestFlush(some_number(chance, 32)),
    InterestFlushed: lambda chance: InterestFlushed(some_number(chance, 32)),
    SendAgain: lambda chance: SendAgain(chance.randbytes(8), (1, some_number(chance, 64), 2, some_number(chance, 64))),
    ConditionalRetainedQuery: lambda chance: ConditionalRetainedQuery(
        some_number(chance, 32),
        some_interest(chance),
        tuple(
            RetainedDigest(chance.randrange(1_024), (some_number(chance, 64),) * chance.choice([1, 2, 128]))
            for _ in range(chance.randrange(3))
        ),
    ),
    PendingWills: lambda chance: PendingWills(
        some_number(chance, 64),
        chance.random() < 0.5,
        chance.random() < 0.5,
        tuple(
            PendingWill(
                chance.choice(TEXTS),
                some_number(chance, 32),
                chance.random() < 0.5,
                chance.randrange(3),
                chance.random() < 0.5,
                "t",
                chance.randbytes(chance.choice([0, 5, 300])),
                chance.randbytes(chance.choice([0, 5])),
            )
            for _ in range(chance.randrange(3))
        ),
        tuple(chance.choice(TEXTS) for _ in range(chance.randrange(3))),
    ),
    GroupMembers: lambda chance: GroupMembers(
        chance.randrange(1_024),
        some_number(chance, 64),
        tuple(
            GroupCount(chance.choice(TEXTS), some_number(chance, 32), some_number(chance, 32))
            for _ in range(chance.randrange(3))
        ),
    ),
    TraceInformationRequest: lambda chance: TraceInformationRequest(
        some_number(chance, 32), some_number(chance, 32), some_number(chance, 8)
    ),
    TraceInformationAnswer: lambda chance: TraceInformationAnswer(
        some_number(chance, 32),
        some_number(chance, 32),
        tuple(some_record(chance) for _ in range(chance.randrange(4))),
        chance.random() < 0.5,
    ),
    RetainedUnmodified: lambda chance: RetainedUnmodified(
        some_number(chance, 32), chance.randrange(1_024), chance.randbytes(chance.randrange(17))
    ),
    Relay: lambda chance: Relay(
        chance.randrange(1_024), chance.randrange(1_024), chance.randrange(256), some_plain(chance)
    ),
    Forward: some_forward,
}


def some_plain(chance: Random) -> Message:
    """Any message that is not relayed."""
    kind = chance.choice([kind for kind in SOME if kind is not Relay])
    return SOME[kind](chance)


def some_message(chance: Random) -> Message:
    """Half of all are events."""
    return some_forward(chance) if chance.random() < 0.5 else SOME[chance.choice(list(SOME))](chance)
