"""The schema of the delivery log: the columns of each table that the broker writes and the analytics read.

Columns are append-only: a new column is added at the end of its table, and an old one never changes its meaning.

A *message* is one accepted publication; its number counts up from 1 over all publishers of one run (`boot`) of a
broker. A *copy* is one message for one subscriber (several matching subscriptions of one client make one copy). Every
copy has exactly one final fate, so per publisher and subscriber `matched = delivered + expired + dropped + queued`, and
every message is either matched at least once or `filtered`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from edgebroker.dataclasses import dataclass


class Fate(IntEnum):
    """The fate of a message or of a copy."""

    PUBLISHED = 0
    """Message: accepted from its publisher."""
    MATCHED = 1
    """Copy: a subscription of the subscriber matched. In digests only."""
    FILTERED = 2
    """Message: no copy was made. `cause` says whether a topic matched at all."""
    DELIVERED = 3
    """Copy: at QoS 0 written to the subscriber's socket; at QoS 1 and 2 acknowledged by the subscriber."""
    EXPIRED = 4
    """Copy: its message expiry interval ran out while it waited."""
    DROPPED = 5
    """Copy: discarded; `cause` gives the reason."""
    QUEUED = 6
    """Copy: still waiting or unacknowledged when the log was closed."""


class Cause(IntEnum):
    """The reason why a copy was dropped or a message filtered."""

    NONE = 0
    NO_SUBSCRIBER = 1
    """Filtered: no subscription has a matching topic filter."""
    CONTENT = 2
    """Filtered: topic filters matched, but every content filter was false or unknown."""
    OUT_BUFFER_FULL = 3
    """Dropped: QoS 0 to a subscriber whose out-buffer is full."""
    QUEUE_FULL = 4
    """Dropped: QoS 1 or 2 to a client whose queue is full."""
    OFFLINE = 5
    """Dropped: QoS 0 to a session without a connection."""
    CONNECTION_LOST = 6
    """Dropped: QoS 0 that was still in the out-buffer when the connection ended."""
    SESSION_ENDED = 7
    """Dropped: QoS 1 or 2 that was waiting when the session ended."""
    PACKET_TOO_LARGE = 8
    """Dropped: larger than the maximum packet size the subscriber announced."""
    OWN_MESSAGE = 9
    """Filtered: the only matching subscriptions are the publisher's own with "no local"."""
    REFUSED = 10
    """Dropped: the subscriber refused it (PUBACK or PUBREC with an error reason code)."""
    HANDED_OVER = 11
    """Dropped: it waited for a member of a shared subscription that left, and another member gets a copy instead; or on
    a link that broke, and a copy takes another path.
    """
    NOT_ALLOWED = 12
    """Filtered: every client that subscribed is forbidden to read the topic. Dropped: its subscriber lost that right.
    """
    SUPERSEDED = 13
    """Dropped: a later message of its topic arrived while it waited, and the queue keeps only the last one."""
    MEMORY_FULL = 14
    """Dropped: all clients together exceeded the memory limit, and this queue was the largest."""
    BUDGET_SPENT = 15
    """Dropped: QoS 0 for a peer gateway after the daily byte budget of the link was spent."""
    TOO_OLD = 16
    """Dropped: it waited longer than the subscriber's queue allows."""
    THINNED = 17
    """Dropped: the subscriber's queue was full, and every second message of each topic was removed."""
    DAMAGED = 18
    """Dropped: it waited on the disk, and its page file could not be read. The operator is told of the damage."""
    LEASE_ENDED = 19
    """Dropped: it waited for a peer gateway that was away for longer than its sessions last (`overlay.lease_s`)."""
    DISCARDED = 20
    """Dropped: it waited for a peer gateway, and an operator discarded it."""
    PEER_REMOVED = 21
    """Dropped: it waited for a peer gateway that was taken out of the topology, and was for that alone."""


class MessageOrigin(IntEnum):
    """The place that a message came from. The rows and digests of its copies have the same."""

    CLIENT = 0
    """A client of this gateway, or the gateway itself. Logs of older gateways have no other origin."""
    PEER = 1
    """A peer gateway, whose own log has the message already."""
    RESUMED = 2
    """The journal: its copies waited when the run before ended, or on the disk in this one, or until other clusters had
    said what they want. They were counted then.
    """
    RETAINED = 3
    """The retained messages: it is a copy for a new subscription."""
    WILL = 4
    """A will message: its client has gone."""
    BRIDGE = 5
    """A remote broker that a bridge of this gateway connects."""


PEER_PREFIX: Final = "gateway:"
"""A copy for a peer gateway has this and the peer's name as its subscriber."""


class TraceParent(NamedTuple):
    """The place of a message in a trace that its publisher wants recorded (W3C Trace Context, section 3.2.2)."""

    trace_id: str
    """32 hexadecimal digits in lower case."""
    parent_id: str
    """16 hexadecimal digits in lower case: the publisher's operation that published the message."""


EventId: TypeAlias = tuple[int, int]
"""An event's publisher and its sequence there, as its header in the overlay has them (`EventHeader.eid`)."""
NO_EVENT: Final[EventId] = (0, 0)
"""The message is no event of a federation."""


class ColumnType(Enum):
    """The encoding of a column's values and their type in Spark."""

    INT = "int"
    """A whole number in 64 bits (Spark: long)."""
    TEXT = "text"
    """Unicode text, dictionary-coded per block (Spark: string)."""
    BYTES = "bytes"
    """Bytes, coded like texts. Used in recordings only; a delivery log has no such column."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `name`, `type`, and whether consecutive values are close, so that differences are written."""

    name: str
    type: ColumnType
    delta: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of record."""

    name: str
    columns: tuple[Column, ...]


DELIVERY = Table(
    "delivery",
    (
        Column("t_us", ColumnType.INT, delta=True),  # monotonic microseconds when the fate was decided
        Column("message", ColumnType.INT, delta=True),  # the message's number
        Column("publisher", ColumnType.TEXT),  # client id
        Column("subscriber", ColumnType.TEXT),  # client id; "" in rows of PUBLISHED and FILTERED
        Column("topic", ColumnType.TEXT),
        Column("filter", ColumnType.TEXT),  # the subscription, any content filter in it as $filter/...; "" as above
        Column("qos", ColumnType.INT),  # the copy's QoS; the message's in rows of PUBLISHED and FILTERED
        Column("fate", ColumnType.INT),
        Column("cause", ColumnType.INT),
        Column("wait_us", ColumnType.INT),  # from acceptance to fate; 0 in rows of PUBLISHED and FILTERED
        Column("payload_bytes", ColumnType.INT),
        Column("copies", ColumnType.INT),  # copies made (PUBLISHED); 0 in other rows
        Column("trace_id", ColumnType.TEXT),  # of a message that its publisher wants traced; "" of all others
        Column("parent_id", ColumnType.TEXT),  # as above
        Column("event_publisher", ColumnType.INT),  # PUBLISHED, in a federation: the event's publisher in its header
        Column("event_sequence", ColumnType.INT),  # and its sequence there; 0 and 0 for other messages and other rows
        Column("origin", ColumnType.INT),  # `MessageOrigin` of the message; 0 in older logs
    ),
)
"""One row per message (PUBLISHED), per message without copies (FILTERED) and per fate of a copy; QoS 0 may be sampled.

A message with a trace has all its rows, whatever its QoS. An event of a federation is a separate message at each
gateway that it reaches; its publisher and sequence (`EventHeader.eid`) are the same in the rows of all.
"""

DIGEST = Table(
    "digest",
    (
        Column("minute", ColumnType.INT, delta=True),  # t_us // 60,000,000
        Column("publisher", ColumnType.TEXT),
        Column("subscriber", ColumnType.TEXT),  # "" for PUBLISHED and FILTERED
        Column("qos", ColumnType.INT),
        Column("fate", ColumnType.INT),
        Column("cause", ColumnType.INT),
        Column("count", ColumnType.INT),
        Column("sum", ColumnType.INT),  # of message numbers, modulo 2**63
        Column("xor", ColumnType.INT),  # of message numbers
        Column("origin", ColumnType.INT),  # `MessageOrigin` of the messages; 0 in older logs
    ),
)
"""All messages, sampled or not: count, sum and xor of the message numbers of one fate of a flow in one minute.

QoS is that of the copy; MATCHED and the later fates of a copy have the same QoS.
"""

FILTER = Table(
    "filter",
    (
        Column("minute", ColumnType.INT, delta=True),
        Column("subscriber", ColumnType.TEXT),
        Column("filter", ColumnType.TEXT),
        Column("evaluated", ColumnType.INT),  # messages whose topic matched the subscription's topic filter
        Column("matched", ColumnType.INT),  # of these, messages the content filter accepted
    ),
)
"""Selectivity: one row per subscription and minute in which a message's topic matched."""

ANCHOR = Table(
    "anchor",
    (
        Column("t_us", ColumnType.INT, delta=True),
        Column("unix_us", ColumnType.INT, delta=True),
    ),
)
"""The wall clock time at a monotonic instant; a gateway's clock may be wrong and be corrected later."""

TRACE = Table(
    "trace",
    (
        Column("t_us", ColumnType.INT, delta=True),  # monotonic microseconds when the records of the session were there
        Column("publisher", ColumnType.TEXT),  # client id
        Column("event_publisher", ColumnType.INT),  # its number in headers of events
        Column("session", ColumnType.INT),  # the sequence of the session's first event
        Column("gateway", ColumnType.TEXT),  # whose record it is
        Column("delivered", ColumnType.TEXT),  # bit vector in hexadecimal digits: bit d: event d was delivered there
        Column("deliveries", ColumnType.INT),  # pairs of an event and a local client
        Column("copies", ColumnType.INT),  # events of the session that arrived there
        Column("marked", ColumnType.INT),  # of these, those that had been on a detour
        Column("input_us", ColumnType.INT),  # the wait in its input queue
        Column("matching_us", ColumnType.INT),  # the time in which it found the readers
        Column("clients_us", ColumnType.INT),  # the wait of a copy for a client
        Column("peers", ColumnType.TEXT),  # "gw-b 12 3000; ...": wait of a copy for gw-b, time on the link, in us
        Column("load", ColumnType.INT),  # gateways that the session's events would enter from there, all together
        Column("delay_us", ColumnType.INT),  # mean time from there to a reader
        Column("way_us", ColumnType.INT),  # the time from the publisher to there, as assumed
        Column("events", ColumnType.INT),  # of the session; 0: unknown
        Column("payload_bytes", ColumnType.INT),  # of all its events
        Column("lasted_us", ColumnType.INT),  # from its begin to its last event
        Column("partial", ColumnType.INT),  # 1: a gateway did not answer
        Column("target", ColumnType.TEXT),  # the gateway that was chosen; "" if none was
        Column("stays", ColumnType.TEXT),  # why the publisher stays, as in metrics; "": a move to `target` is proposed
    ),
)
"""Trace sessions: one row per session of a publisher of this gateway and per gateway that recorded it."""

MIGRATION = Table(
    "migration",
    (
        Column("t_us", ColumnType.INT, delta=True),  # monotonic microseconds when the outcome was noted
        Column("publisher", ColumnType.TEXT),  # client id
        Column("target", ColumnType.TEXT),  # the gateway to which it was sent
        Column("plan", ColumnType.TEXT),  # whose move it was; "automatic": the gateway's own
        Column("way", ColumnType.TEXT),  # how the client was told
        Column("outcome", ColumnType.TEXT),
        Column("age_s", ColumnType.INT),  # how long ago it was ordered
        Column("pause_us", ColumnType.INT),  # how long the client had no connection; -1 here and below: unknown
        # mean time from the publisher's gateway to a reader: before the move, as predicted, as a session there says
        Column("delay_before_us", ColumnType.INT),
        Column("delay_predicted_us", ColumnType.INT),
        Column("delay_realised_us", ColumnType.INT),
        # gateways that 1,000 messages enter
        Column("load_before", ColumnType.INT),
        Column("load_predicted", ColumnType.INT),
        Column("load_realised", ColumnType.INT),
        # payload bytes of 1,000 messages that cross from site to site
        Column("uplink_bytes_before", ColumnType.INT),
        Column("uplink_bytes_predicted", ColumnType.INT),
        Column("uplink_bytes_realised", ColumnType.INT),
    ),
)
"""Publishers that were moved to another gateway by a plan: one row per move, when it is known what came of it."""

TABLES: tuple[Table, ...] = (DELIVERY, DIGEST, FILTER, ANCHOR, TRACE, MIGRATION)

TRAFFIC = Table(
    "traffic",
    (
        Column("t_us", ColumnType.INT, delta=True),  # monotonic microseconds when the recorder had read the message
        Column("client", ColumnType.TEXT),  # the publisher, if the recorder was configured to find it; else ""
        Column("topic", ColumnType.TEXT),
        Column("qos", ColumnType.INT),
        Column("retain", ColumnType.INT),  # 1: its RETAIN flag was set
        Column("payload", ColumnType.BYTES),
        Column("properties", ColumnType.BYTES),  # CBOR map of MQTT 5 properties; empty if there were none
    ),
)
"""One row per message that a recorder received. Delivery logs do not contain this table; only recordings do."""

SUM_MODULUS = 2**63
