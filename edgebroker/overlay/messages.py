"""What gateways say to each other about events and about who wants them. Values only; their bytes are made elsewhere.

Three conversations [SCOT 2.9]: inside a cluster, over aLinks, gateways tell the *interests* behind them; inside a
region, over iLinks, a publisher's gateway tells its *advertisements*, and each other cluster answers whether somebody
there wants such events; *events* go over both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.header import EventHeader
from edgebroker.interest import Interest, fingerprint_of
from edgebroker.topics import TopicFilter

INTERESTS_AT_ONCE: Final = 256
"""More are announced and withdrawn in several messages: to read one interest takes 3 us, to route by it 10 to 30."""


class StateKind(IntEnum):
    """Things that one gateway tells another and both remember, so that they can be compared."""

    INTERESTS = 0
    """Those behind the sender, over an aLink."""
    ADVERTISEMENTS = 1
    """Those of the sender's own publishers, over an iLink."""


# -- over aLinks: who wants what --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announce:
    """SUB: somebody behind the sender has these interests."""

    interests: tuple[Interest, ...]
    epoch: int
    """16 bits: how often the sender's search tree has changed."""

    def parts(self) -> Iterator[Announce]:
        """The same in several that have INTERESTS_AT_ONCE at most."""
        for part in _parts(self.interests):
            yield Announce(part, self.epoch)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """UNSUB: nobody behind the sender has these interests any more, or others that it announced cover them."""

    interests: tuple[Interest, ...]
    epoch: int

    def parts(self) -> Iterator[Withdraw]:
        """The same in several that have INTERESTS_AT_ONCE at most."""
        for part in _parts(self.interests):
            yield Withdraw(part, self.epoch)


def _parts(interests: tuple[Interest, ...]) -> Iterator[tuple[Interest, ...]]:
    for start in range(0, max(1, len(interests)), INTERESTS_AT_ONCE):
        yield interests[start : start + INTERESTS_AT_ONCE]


# -- over iLinks: who publishes what, and whether anybody in a cluster wants it ---------------------------------------


@dataclass(frozen=True, slots=True)
class Advertise:
    """ADV: a publisher of the sender may publish under these topics."""

    adv: int
    """32 bits, `header.hosted`."""
    publisher: int
    """32 bits, `header.hosted`."""
    client: str
    """The publisher's client id."""
    topic_filter: TopicFilter
    hc: int
    """The host cluster: the sender's."""
    lease_s: int
    """How long the receiver keeps it while it hears nothing of the sender."""
    wants_answer: bool
    """Whether the receiver answers with ClusterBits even if nobody there wants such events."""

    def fingerprint(self) -> int:
        """64 bits to compare what two gateways hold."""
        return fingerprint_of((self.adv, self.publisher, self.client, self.topic_filter.text, self.hc, self.lease_s))


@dataclass(frozen=True, slots=True)
class Unadvertise:
    """UNADV: these advertisements of the sender end."""

    advs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterBits:
    """CIB_SET or CIB_CLEAR: whether somebody in *cluster*, the sender's, wants events under advertisements."""

    advs: tuple[int, ...]
    cluster: int
    number: int
    """64 bits; grows with every such message of the sender to this receiver, also over its restarts."""
    is_set: bool
    covering: tuple[Interest, ...] | None
    """With `is_set`: what the cluster wants of such events is covered by these; None: it may be anything."""


@dataclass(frozen=True, slots=True)
class ClusterBitsAck:
    """The receiver of ClusterBits has them, up to *number*."""

    cluster: int
    number: int


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Forward:
    """PUB: one copy of an event. As with its header: nobody changes one, and a frozen one takes four times as long."""

    header: EventHeader
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client: str
    """The publisher's client id."""
    user: tuple[tuple[str, str], ...] = ()
    """MQTT's user properties, which filters may ask for."""
    content_type: str | None = None
    properties: bytes = b""
    """What else the publisher's front end wants readers' front ends to know."""
    expires_in_ms: int | None = None
    """How long it is of use from now on; None: for ever."""
    walked: int = 0
    """8 bits: aLinks passed in this cluster while it had to reach others too; it must not stray for ever."""
    was_marked: bool = False
    """Whether it, or the copy it was made of, went around something congested or down: events may have overtaken it."""
    passed: tuple[int, ...] = ()
    """The gateways that it only passed through, around links that are down. If there are any, it only passes through
    the receiver too: it serves the clusters of `header.civ` and not the receiver's."""


@dataclass(slots=True)
class EventSeries:
    """Several events, one behind the other: of one publisher and topic, with consecutive sequences, published at one
    time, with payloads of one size that is not 0. QoS 0, not to be retained, of use for ever.

    Each is an event like others, with a sequence of its own; together they are only decided upon, written and read.
    """

    first: Forward
    """The first of them, but for its payload: that is those of all, one behind the other."""
    count: int

    def events(self) -> Iterator[Forward]:
        """Each of them."""
        first, header = self.first, self.first.header
        size = len(first.payload) // self.count
        for number in range(self.count):
            payload = first.payload[number * size : (number + 1) * size]
            yield replace(first, header=replace(header, sequence=header.sequence + number), payload=payload)

    def parts(self, octets: int) -> Iterator[EventSeries | Forward]:
        """The same in parts of at most *octets* bytes of payload, or of one event."""
        first, header = self.first, self.first.header
        size = len(first.payload) // self.count
        step = max(1, octets // size)
        if step >= self.count:
            yield self
            return
        for start in range(0, self.count, step):
            count = min(step, self.count - start)
            payload = first.payload[start * size : (start + count) * size]
            part = replace(first, header=replace(header, sequence=header.sequence + start), payload=payload)
            yield part if count == 1 else EventSeries(part, count)


# -- synchronising after a link was down or a gateway restarted -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Digest:
    """All that the sender has told: how many items, and the sum of their fingerprints modulo 2**64."""

    kind: StateKind
    epoch: int
    count: int
    sum: int


@dataclass(frozen=True, slots=True)
class Differ:
    """The answer to a Digest that does not agree: what the sender holds, in parts by the lowest bits of fingerprints.

    `sums`: that of each part; there are 2**n parts.
    """

    kind: StateKind
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restate:
    """What the sender told of one part is this, and nothing else. Only one of the two lists is used, as *kind* says."""

    kind: StateKind
    parts: int
    part: int
    epoch: int
    interests: tuple[Interest, ...] = ()
    advertisements: tuple[Advertise, ...] = ()


# -- retained messages for late subscribers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetainedQuery:
    """Who keeps a retained message that the interest means shall send it back the way this came."""

    request: int
    """32 bits, `header.hosted`."""
    interest: Interest


@dataclass(frozen=True, slots=True)
class RetainedReply:
    """One retained message, on its way back."""

    request: int
    forward: Forward


# -- around what is down ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkStateUpdate:
    """Which of its peers a gateway has no connection with. Told to everybody by everybody who learns something new."""

    gateway: int
    """Its number."""
    number: int
    """64 bits; grows with every such message of the gateway, also over its restarts."""
    peers: tuple[int, ...]
    """Their numbers."""


@dataclass(frozen=True, slots=True)
class Backpressure:
    """A gateway has little room left for what waits for a neighbour: what the neighbour wants is to be refused where it
    is published. Told to everybody by everybody who learns something new.
    """

    gateway: int
    """Its number."""
    number: int
    """64 bits; grows with every such message of the gateway, also over its restarts."""
    neighbour: int
    """That one's number."""
    interests: tuple[Interest, ...]
    """What the neighbour wants, as far as so many say it; none: there is room again."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A message between two gateways without a connection. It stands in for the link between the two."""

    origin: int
    destination: int
    hops: int
    """8 bits: the gateways that may still choose its way. With none left an event goes straight, as if all connections
    were there, and waits where one is not; so it neither strays for ever nor is lost. Anything else is dropped."""
    message: Message
    is_alone: bool = False
    """The event in it is for the destination's own clients only: whoever is behind it got it another way."""


Message: TypeAlias = (
    Announce
    | Withdraw
    | Advertise
    | Unadvertise
    | ClusterBits
    | ClusterBitsAck
    | Forward
    | EventSeries
    | Digest
    | Differ
    | Restate
    | RetainedQuery
    | RetainedReply
    | LinkStateUpdate
    | Relay
    | Backpressure
)
"""Everything that can be said."""
