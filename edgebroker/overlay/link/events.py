"""What a link tells its gateway, besides messages. Each names its peer."""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.handshake import RefusalCode
from edgebroker.overlay.messages import Message


@dataclass(frozen=True, slots=True)
class DialRequest:
    """Open a connection to the peer; then call `dialled`, or `dial_failed`."""

    peer: str


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Messages arrive from now on. `goes_on`: the peer has, or gets, every message of CONTROL sent since the last Up;
    else it must be told anew what it has to know.
    """

    peer: str
    goes_on: bool


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection ended."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class LinkRefusal:
    """The peer, or we, would not have the connection; `code.wants_somebody` says whether that goes on by itself."""

    peer: str
    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class DropEvent:
    """Messages to the peer that will not be sent."""

    peer: str
    messages: tuple[Message, ...]
    cause: Cause
    fate: Fate
    """EXPIRED, or DROPPED because of `cause`."""


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """Events that the peer has; those of QoS 0 were written."""

    peer: str
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class ReceiveEvent:
    """Messages of the peer, in order. Handle all of them, then call `handled`."""

    peer: str
    messages: list[Message]


LinkEvent: TypeAlias = DialRequest | LinkUp | LinkDown | LinkRefusal | DropEvent | DeliveryEvent | ReceiveEvent
"""Everything a link has to tell."""
