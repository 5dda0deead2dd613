"""The effects of the federation router, in the order in which they must be carried out."""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters.announcement import InterestDelta
from edgebroker.header import EventHeader
from edgebroker.interest import Interest
from edgebroker.log_schema import EventId
from edgebroker.overlay.messages import Forward, GroupMembers, Message, PendingWill, StatusReply
from edgebroker.overlay.traffic_class import TrafficClass


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to a peer. Messages for one peer in one class must arrive in this order."""

    peer: str
    message: Message
    service: TrafficClass


@dataclass(frozen=True, slots=True)
class DeliverEvent:
    """Deliver an event of another gateway to the local clients that subscribed to it; there may be none."""

    forward: Forward
    is_entry: bool
    """Whether it entered the cluster here. If it is to be retained, this gateway keeps it for the whole cluster."""
    was_held: bool = False
    """Whether it was held in the reorder buffer, since a `HoldEvent`."""


@dataclass(frozen=True, slots=True)
class HoldEvent:
    """Hold an event of QoS 1 or 2, which its sender is told that this gateway has: it must be stored durably.

    An event of a peer is held in the reorder buffer until its `DeliverEvent`; an event of a local client waits for the
    answers of other clusters until its `ReleaseEvent`.
    """

    forward: Forward
    arrival: str | None
    """The neighbour from which it came; empty if it entered the cluster here; None: a local client published it."""


@dataclass(frozen=True, slots=True)
class ReleaseEvent:
    """The copies of a local client's event, which was held, are on their way. It must not be stored any more."""

    eid: EventId


@dataclass(frozen=True, slots=True)
class AttachHeader:
    """The event just published has this header. If it is retained, its header must be stored with it."""

    header: EventHeader


@dataclass(frozen=True, slots=True)
class LookUpRetained:
    """Look up the retained messages that *interest* matches and return each with `FederationRouter.answer_retained`."""

    request: int
    interest: Interest
    sums: tuple[int, ...] = ()
    """The digest of those of this gateway's own publishers that are known where they are asked for: of these, only what
    differs is answered, behind `RetainedQueries.answer_unmodified`. Empty: no digest was sent.
    """


@dataclass(frozen=True, slots=True)
class DeliverRetained:
    """Deliver a retained message of another gateway to the local subscription *number* that queried it."""

    number: int
    forward: Forward


@dataclass(frozen=True, slots=True)
class DeliverUnmodified:
    """Deliver retained messages of another gateway, which are known here and are unmodified, to the local subscription
    *number*. There may be thousands.
    """

    number: int
    forwards: tuple[Forward, ...]


@dataclass(frozen=True, slots=True)
class PublishWills:
    """The gateway with the number *gateway* is dead: publish the wills of its clients, and call
    `FederationRouter.will_published` for each. Do both in one transaction.
    """

    gateway: int
    wills: tuple[PendingWill, ...]


@dataclass(frozen=True, slots=True)
class StoreInterests:
    """The interests of the neighbour *peer* have changed. Store the change durably: after a restart, a gateway that
    does not know the interests of a dead neighbour would queue nothing for it.
    """

    peer: str
    delta: InterestDelta


@dataclass(frozen=True, slots=True)
class StoreGroupMembers:
    """Another gateway has other members in groups that are shared over the federation than before. Store it durably:
    after a restart, a gateway that knows no member would drop what is for them.
    """

    members: GroupMembers


@dataclass(frozen=True, slots=True)
class RedialPeer:
    """Dial *peer* now: other gateways are connected with it again and this one is not."""

    peer: str


@dataclass(frozen=True, slots=True)
class RequestAgain:
    """The link to *peer* is broken, but *peer* can be reached over others: ask it with `FederationRouter.request_again`
    to send on other paths what waits there, and tell it what has been received.
    """

    peer: str


@dataclass(frozen=True, slots=True)
class EmptyOutbox:
    """*peer* asks for what waits on the link to it, which is broken at its end, on other paths. End the connection,
    handle the acknowledgement of *received*, take all events out of the outbox, and send what
    `Forwarder.send_again` returns for them.
    """

    peer: str
    store: bytes
    received: tuple[int, ...]
    """As in `SendAgain`."""


@dataclass(frozen=True, slots=True)
class EndLease:
    """*peer* was away for so long that its sessions have ended. Drop what waits for it."""

    peer: str


@dataclass(frozen=True, slots=True)
class SendAround:
    """*peer* does not answer: what waits for it and is for other clusters too must reach them another way."""

    peer: str


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """Another gateway asks for the report of this gateway's links: return it with `StatusQueries.answer`."""

    request: int


@dataclass(frozen=True, slots=True)
class ReceiveStatus:
    """The report of another gateway, for which this one has asked."""

    reply: StatusReply


@dataclass(frozen=True, slots=True)
class EndFlush:
    """The flush *request* of this gateway has ended: all gateways that were waited for know the interests that were
    announced before it, or, without `is_complete`, it has waited for too long.
    """

    request: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class SessionElsewhere:
    """Another gateway has a durable session whose client has the fingerprint of one with a durable session here.
    `SessionDirectory.clients_of` names the client; it may be another one with the same fingerprint.
    """

    client_fingerprint: int
    gateway: int
    stamp_ms: int
    """When the client connected there, in milliseconds since 1970; 0: it is not known, because a summary has none."""


Effect: TypeAlias = (
    SendMessage
    | DeliverEvent
    | HoldEvent
    | ReleaseEvent
    | AttachHeader
    | LookUpRetained
    | DeliverRetained
    | DeliverUnmodified
    | PublishWills
    | StoreInterests
    | StoreGroupMembers
    | RedialPeer
    | RequestAgain
    | EmptyOutbox
    | EndLease
    | SendAround
    | ReportStatus
    | ReceiveStatus
    | EndFlush
    | SessionElsewhere
)
