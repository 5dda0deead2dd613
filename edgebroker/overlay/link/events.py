"""Events of a link for its gateway. Each names the peer."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.handshake import RefusalCode
from edgebroker.overlay.messages import CAPABILITY_MESSAGES, Message


@dataclass(frozen=True, slots=True)
class DialRequest:
    """Asks for a connection to the peer; answer with `dialled` or `dial_failed`."""

    peer: str


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Messages arrive from now on. `goes_on`: no CONTROL message sent since the last LinkUp was lost; otherwise routing
    state must be compared.
    """

    peer: str
    goes_on: bool
    capabilities: frozenset[str] = field(default=frozenset(CAPABILITY_MESSAGES), compare=False)
    """The capabilities of the peer, by name."""


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection ended."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class LinkLeaseEnd:
    """The peer was away for longer than its sessions last, and *count* messages that waited for it are dropped."""

    peer: str
    count: int


@dataclass(frozen=True, slots=True)
class LinkRefusal:
    """The peer or this gateway refused the connection; `code.wants_somebody` tells whether an operator must act."""

    peer: str
    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class DropEvent:
    """Messages for the peer were dropped."""

    peer: str
    messages: tuple[Message, ...]
    cause: Cause
    fate: Fate
    """EXPIRED, or DROPPED because of `cause`."""


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """The peer has these events; those of QoS 0 were written to the connection."""

    peer: str
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class ReceiveEvent:
    """Messages arrived from the peer, in order. Handle all of them, then call `handled`."""

    peer: str
    messages: list[Message]


LinkEvent: TypeAlias = DialRequest | LinkUp | LinkDown | LinkRefusal | DropEvent | DeliveryEvent | ReceiveEvent
"""Any event of a link."""
