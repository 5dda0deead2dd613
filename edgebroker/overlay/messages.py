"""The messages between gateways, as values; `link.codec` encodes them.

There are three conversations [SCOT 2.9]: inside a cluster, over aLinks, gateways announce the *interests* behind them;
inside a region, over iLinks, a publisher's gateway sends its *advertisements*, and each other cluster answers whether
it wants such events; *events* go over both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.header import EventHeader
from edgebroker.interest import Interest, fingerprint_of
from edgebroker.limits import KIB
from edgebroker.topics import TopicFilter
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest

INTERESTS_AT_ONCE: Final = 256
"""Interests per message; more are announced in several. Decoding one takes 3 us, inserting it in the tree 10 to
30 us.
"""


STATUS_REPORT_BYTES_MAX: Final = 64 * KIB
"""The report of a gateway with 64 peers has 20 KiB."""


class StateKind(IntEnum):
    """Kinds of state that one gateway announces and another stores, so that the two can be compared."""

    INTERESTS = 0
    """The interests behind the sender, over an aLink."""
    ADVERTISEMENTS = 1
    """The advertisements of the sender's own publishers, over an iLink."""


# -- over aLinks: interests -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announce:
    """SUB: a subscriber behind the sender has these interests."""

    interests: tuple[Interest, ...]
    epoch: int
    """16 bits: the number of changes of the sender's search tree."""

    def parts(self) -> Iterator[Announce]:
        """Iterate over messages with at most INTERESTS_AT_ONCE interests each."""
        for part in _parts(self.interests):
            yield Announce(part, self.epoch)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """UNSUB: no subscriber behind the sender has these interests any more."""

    interests: tuple[Interest, ...]
    epoch: int

    def parts(self) -> Iterator[Withdraw]:
        """Iterate over messages with at most INTERESTS_AT_ONCE interests each."""
        for part in _parts(self.interests):
            yield Withdraw(part, self.epoch)


def _parts(interests: tuple[Interest, ...]) -> Iterator[tuple[Interest, ...]]:
    for start in range(0, max(1, len(interests)), INTERESTS_AT_ONCE):
        yield interests[start : start + INTERESTS_AT_ONCE]


# -- over iLinks: advertisements and answers --------------------------------------------------------------------------


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
    """How long the receiver keeps the advertisement without a connection to the sender."""
    wants_answer: bool
    """Whether the receiver must answer with ClusterBits even if its cluster wants no such events."""

    def fingerprint(self) -> int:
        """Return a 64-bit hash for state digests."""
        return fingerprint_of((self.adv, self.publisher, self.client, self.topic_filter.text, self.hc, self.lease_s))


@dataclass(frozen=True, slots=True)
class Unadvertise:
    """UNADV: these advertisements of the sender end."""

    advs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterBits:
    """CIB_SET or CIB_CLEAR: whether *cluster*, the sender's, wants events under advertisements."""

    advs: tuple[int, ...]
    cluster: int
    number: int
    """64 bits; grows with every such message of the sender to this receiver, across its restarts too."""
    is_set: bool
    covering: tuple[Interest, ...] | None
    """If `is_set`: interests that cover all such events that the cluster wants; None: it may want any of them."""


@dataclass(frozen=True, slots=True)
class ClusterBitsAck:
    """The receiver of ClusterBits confirms all up to *number*."""

    cluster: int
    number: int


# -- both: when interests are known -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InterestFlush:
    """Asks a neighbour to return it when the gateways behind it know what was announced before, and the hosts to which
    they have sent ClusterBits.
    """

    request: int
    """32 bits, `header.hosted`."""


@dataclass(frozen=True, slots=True)
class InterestFlushed:
    """Returns an InterestFlush."""

    request: int


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Forward:
    """PUB: one copy of an event. Treat it as immutable, like its header; creating a frozen one takes four times as
    long.
    """

    header: EventHeader
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client: str
    """The publisher's client id."""
    user: tuple[tuple[str, str], ...] = ()
    """The MQTT user properties, which filters may test."""
    content_type: str | None = None
    properties: bytes = b""
    """The other encoded MQTT properties, for the front ends of other gateways."""
    expires_in_ms: int | None = None
    """The remaining message expiry interval; None: it does not expire."""
    walked: int = 0
    """8 bits: aLinks passed in this cluster while it was marked with other clusters; limits its path."""
    was_marked: bool = False
    """Whether it, or the copy it was made of, took a detour around a congested or broken link, so that other events may
    have overtaken it. Only gateways without the capability "order" use it.
    """
    passed: tuple[int, ...] = ()
    """The gateways that it only passed through, around links that are down. If there are any, it only passes through
    the receiver too: it is for the clusters of `header.civ` and not for the receiver's.
    """
    predecessors: tuple[tuple[int, int], ...] = ()
    """(cluster, distance) for clusters that this copy still has to reach: the publisher's previous event for the
    cluster has a sequence that is *distance* smaller; 0: there is none, or none that may still be on its way. Events of
    QoS 0 are counted apart from all others. A cluster that is missing gets the copy on the same path as its
    predecessor.
    """

    def distance(self, cluster: int) -> int | None:
        """Return the distance of the predecessor for *cluster*; None if it is not given."""
        for one, distance in self.predecessors:
            if one == cluster:
                return distance
        return None


@dataclass(slots=True)
class EventSeries:
    """Several consecutive events of one publisher and topic, published at the same time, with payloads of one size that
    is not 0. QoS 0, without RETAIN and without expiry.

    Each is an event with a sequence of its own; together they are routed, encoded and decoded at once.
    """

    first: Forward
    """The first event, but with the concatenated payloads of all."""
    count: int

    def events(self) -> Iterator[Forward]:
        """Iterate over the events."""
        first, header = self.first, self.first.header
        size = len(first.payload) // self.count
        for number in range(self.count):
            payload = first.payload[number * size : (number + 1) * size]
            yield replace(first, header=replace(header, sequence=header.sequence + number), payload=payload)

    def parts(self, octets: int) -> Iterator[EventSeries | Forward]:
        """Divide it into parts of at most *octets* bytes of payload, or of one event."""
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


# -- synchronisation after a link was down or a gateway restarted -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Digest:
    """All that the sender has announced: the number of items, and the sum of their fingerprints modulo 2**64."""

    kind: StateKind
    epoch: int
    count: int
    sum: int


@dataclass(frozen=True, slots=True)
class Differ:
    """The answer to a Digest that does not agree: the sums of the sender's items, in parts by the lowest bits of
    fingerprints.

    `sums`: one for each part; there are 2**n parts.
    """

    kind: StateKind
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restate:
    """All that the sender has announced in one part. Only one of the two lists is used, according to *kind*."""

    kind: StateKind
    parts: int
    part: int
    epoch: int
    interests: tuple[Interest, ...] = ()
    advertisements: tuple[Advertise, ...] = ()


# -- retained messages for late subscribers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetainedQuery:
    """Asks each gateway that it reaches for retained messages that the interest matches. Replies return on the same
    path.
    """

    request: int
    """32 bits, `header.hosted`."""
    interest: Interest


@dataclass(frozen=True, slots=True)
class RetainedReply:
    """One retained message that answers a query."""

    request: int
    forward: Forward


RETAINED_PARTS_MAX: Final = 128
"""Parts of the topics in a digest of retained messages."""


@dataclass(frozen=True, slots=True)
class RetainedDigest:
    """The digest of the retained messages of one gateway, its own publishers', that match an interest."""

    gateway: int
    """The number of the gateway."""
    sums: tuple[int, ...]
    """For each part of the topics the sum of the messages' fingerprints modulo 2**64; a power of two of parts, up to
    RETAINED_PARTS_MAX.
    """


@dataclass(frozen=True, slots=True)
class ConditionalRetainedQuery:
    """A RetainedQuery of a gateway that knows answers already: whoever finds its number in *digests* sends only what
    differs, behind a RetainedUnmodified.
    """

    request: int
    interest: Interest
    digests: tuple[RetainedDigest, ...]

    def plain(self) -> RetainedQuery:
        """Return the query without digests."""
        return RetainedQuery(self.request, self.interest)


@dataclass(frozen=True, slots=True)
class RetainedUnmodified:
    """Answers the digest of one gateway in a ConditionalRetainedQuery."""

    request: int
    gateway: int
    """The number of the gateway that answers."""
    parts: bytes
    """The parts whose sums agree, as bits: the first part is the lowest bit of the last byte. The messages of the
    other parts follow, each as a RetainedReply.
    """


# -- failures and backpressure ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkStateUpdate:
    """The peers with which a gateway has no connection. Flooded: each gateway forwards an update that is new to it."""

    gateway: int
    """The number of the gateway."""
    number: int
    """64 bits; grows with every such message of the gateway, across its restarts too."""
    peers: tuple[int, ...]
    """The numbers of the peers."""


@dataclass(frozen=True, slots=True)
class Backpressure:
    """The outbox of a gateway for a neighbour is nearly full: gateways must refuse the neighbour's interests where they
    are published. Flooded: each gateway forwards an update that is new to it.
    """

    gateway: int
    """The number of the gateway."""
    number: int
    """64 bits; grows with every such message of the gateway, across its restarts too."""
    neighbour: int
    """The number of the neighbour."""
    interests: tuple[Interest, ...]
    """The interests of the neighbour, up to a limit; empty: there is room again."""


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Asks a gateway to send as relays what waits for the sender on the link between the two, which is broken.
    Only gateways with the capability "order" decode it.
    """

    store: bytes
    """Names the journal of the receiver from which the sender received these numbers."""
    received: tuple[int, ...]
    """Class, last number received of this class, class, number ..., as in a hello."""


# -- shared subscriptions over gateways -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The members that one gateway has in one group."""

    name: str
    """The group's name, topic filter and content filter, as a subscription text."""
    connected: int
    """32 bits: members whose clients are connected."""
    kept: int
    """32 bits: members whose clients are away, and for whom messages of QoS 1 and 2 are queued."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """All groups that are shared over the federation and have members at one gateway. Flooded: each gateway forwards an
    update that is new to it.
    """

    gateway: int
    """The number of the gateway."""
    number: int
    """64 bits; grows with every such message of the gateway, across its restarts too."""
    groups: tuple[GroupCount, ...]


# -- operators --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """Asks every gateway that it reaches for a report of its links. Each gateway sends it on once; replies return on
    the path of the query.
    """

    request: int
    """32 bits, `header.hosted`."""


@dataclass(frozen=True, slots=True)
class StatusReply:
    """The report of one gateway."""

    request: int
    gateway: int
    """The number of the gateway."""
    report: bytes
    """JSON, at most STATUS_REPORT_BYTES_MAX."""


# -- wills ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingWill:
    """The will of a client of the sender: another gateway publishes it if the sender is dead."""

    client: str
    delay_s: int
    """32 bits: the seconds between the loss of the client's connection, or of the gateway, and the will."""
    is_gone: bool
    """Whether the client's connection is lost already, so that the delay is what is left of it."""
    qos: int
    retain: bool
    topic: str
    payload: bytes
    properties: bytes
    """The encoded MQTT properties of the will."""

    def fingerprint(self) -> int:
        """Return a 64-bit hash of what is published."""
        return fingerprint_of((self.qos, self.retain, self.topic, self.payload, self.properties))


@dataclass(frozen=True, slots=True)
class PendingWills:
    """Changes of the pending wills of the sender."""

    boot: int
    """64 bits; grows with every run of the sender."""
    is_first: bool
    """Whether all that was told before is void."""
    wants_answer: bool
    """Whether the sender waits to be told that it has heard of all its wills that were published."""
    wills: tuple[PendingWill, ...]
    settled: tuple[str, ...]
    """Clients whose wills are not pending any more."""


# -- which peers decode what ------------------------------------------------------------------------------------------


CAPABILITY_MESSAGES: Final[dict[str, tuple[type, ...]]] = {
    "crowded": (Backpressure,),
    "digest": (ConditionalRetainedQuery, RetainedUnmodified),
    "flush": (InterestFlush, InterestFlushed),
    "groups": (GroupMembers,),
    "operator": (StatusQuery, StatusReply),
    "order": (SendAgain,),
    "trace": (TraceInformationRequest, TraceInformationAnswer),
    "wills": (PendingWills,),
}
"""Capability -> the messages that only peers with it decode. They are not sent to others; instead of a
ConditionalRetainedQuery, those get a RetainedQuery.
"""


@dataclass(frozen=True, slots=True)
class Relay:
    """A message between two gateways without a connection, forwarded by others."""

    origin: int
    destination: int
    hops: int
    """8 bits: the number of gateways that may still choose its path. With none left an event takes the static path and
    waits at a closed connection, so it neither circulates nor is lost; any other message is dropped.
    """
    message: Message
    is_alone: bool = False
    """Whether the event in it is for the destination's own clients only: gateways behind it get the event on another
    path.
    """


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
    | StatusQuery
    | StatusReply
    | InterestFlush
    | InterestFlushed
    | SendAgain
    | ConditionalRetainedQuery
    | RetainedUnmodified
    | PendingWills
    | GroupMembers
    | TraceInformationRequest
    | TraceInformationAnswer
)
"""Any message between gateways."""
