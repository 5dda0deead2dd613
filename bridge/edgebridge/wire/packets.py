"""The packets of MQTT, one class each. They say what a packet means; how it looks in bytes is the codec's affair.

Fields a dialect does not have (properties, reason codes, subscription options beyond QoS) keep their defaults when
read from it and are left out when written to it.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from edgebridge.wire.dialect import V5, Dialect
from edgebridge.wire.properties import Properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass


@dataclass(slots=True)
class Will:
    """What the broker publishes for a client whose connection ends without a word."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Connect:
    """Client to server, first of all. `clean_start` is Clean Session in 3.1.1; `keep_alive_s` 0 means none."""

    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=dict)
    dialect: Dialect = V5


@dataclass(slots=True)
class ConnAck:
    """Server to client, answers CONNECT. In 3.1.1 `reason` stands for the return code that means the same."""

    session_present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Publish:
    """A message, either way. `packet_id` is 0 exactly if `qos` is 0; `topic` may be "" if a topic alias is given."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class PubAck:
    """Answers a QoS 1 PUBLISH."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class PubRec:
    """Answers a QoS 2 PUBLISH: received."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class PubRel:
    """Answers PUBREC: the packet identifier may be forgotten."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class PubComp:
    """Answers PUBREL: it is forgotten."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class SubscriptionOption:
    """One topic filter of a SUBSCRIBE, as it was written: whether it is a valid filter is judged later.

    `retain_handling`: 0 send retained messages, 1 only if the subscription is new, 2 never.
    """

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """Client to server. At least one subscription."""

    packet_id: int
    subscriptions: list[SubscriptionOption]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class SubAck:
    """Answers SUBSCRIBE: one reason per topic filter, in order; 0 to 2 is the QoS granted."""

    packet_id: int
    reasons: list[int]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Unsubscribe:
    """Client to server. At least one topic filter."""

    packet_id: int
    topic_filters: list[str]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class UnsubAck:
    """Answers UNSUBSCRIBE: one reason per topic filter, in order; none in 3.1.1."""

    packet_id: int
    reasons: list[int] = field(default_factory=list)
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class PingReq:
    """Client to server: I am here."""


@dataclass(slots=True)
class PingResp:
    """Server to client: so am I."""


@dataclass(slots=True)
class Disconnect:
    """The last packet, either way; in 3.1.1 from the client only."""

    reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Auth:
    """One step of an extended authentication, either way; version 5 only."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


Ack: TypeAlias = PubAck | PubRec | PubRel | PubComp
"""The four acknowledgements of PUBLISH, which look alike."""

Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | Ack
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
