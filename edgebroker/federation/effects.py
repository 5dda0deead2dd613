"""The effects of the federation router, in the order in which they must be carried out."""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters.announcement import InterestDelta
from edgebroker.header import EventHeader
from edgebroker.interest import Interest
from edgebroker.overlay.messages import Forward, Message
from edgebroker.overlay.traffic_class import TrafficClass


@dataclass(frozen=True, slots=True)
class SendMessage:
    """A message for a peer. What is sent to a peer in one class must arrive in this order."""

    peer: str
    message: Message
    service: TrafficClass


@dataclass(frozen=True, slots=True)
class DeliverEvent:
    """An event from another gateway for whichever local clients want it."""

    forward: Forward
    is_entry: bool
    """It entered the cluster here: a retained message is kept here, for late subscribers of the whole cluster."""
    is_late: bool
    """A later event of its publisher was handed on before."""
    was_held: bool = False
    """It waited for others, since a `Hold`."""


@dataclass(frozen=True, slots=True)
class HoldEvent:
    """An event of QoS 1 or 2 for local clients waits for others that it may have overtaken. It is taken all the same:
    what holds it must outlive the run, until it is handed on.
    """

    forward: Forward
    is_entry: bool


@dataclass(frozen=True, slots=True)
class AttachHeader:
    """The event just published goes out with this header. Whoever keeps it as a retained message keeps that too."""

    header: EventHeader


@dataclass(frozen=True, slots=True)
class LookUpRetained:
    """Say with `Peers.retained` which retained messages *interest* means."""

    request: int
    interest: Interest


@dataclass(frozen=True, slots=True)
class DeliverRetained:
    """A retained message of another gateway, for the subscription that asked."""

    number: int
    forward: Forward


@dataclass(frozen=True, slots=True)
class StoreInterests:
    """What the neighbour *peer* wants has changed. It is to outlive the run: whoever does not know what a dead
    neighbour wants keeps nothing for it.
    """

    peer: str
    delta: InterestDelta


@dataclass(frozen=True, slots=True)
class RedialPeer:
    """Others have a connection with *peer* again, and we have none: it lives, so dial it."""

    peer: str


Effect: TypeAlias = (
    SendMessage
    | DeliverEvent
    | HoldEvent
    | AttachHeader
    | LookUpRetained
    | DeliverRetained
    | StoreInterests
    | RedialPeer
)
