"""What a link tells its gateway, besides messages. Each names its peer."""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.messages import Message
from edgebroker.records import Cause, Fate

from .hello import Refusal


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a connection to the peer; then call `dialled`, or `dial_failed`."""

    peer: str


@dataclass(frozen=True, slots=True)
class Up:
    """Messages arrive from now on. `goes_on`: the peer has, or gets, every message of CONTROL sent since the last Up;
    else it must be told anew what it has to know.
    """

    peer: str
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Down:
    """The connection ended."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer, or we, would not have the connection; `code.wants_somebody` says whether that goes on by itself."""

    peer: str
    code: Refusal
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """Messages to the peer that will not be sent."""

    peer: str
    messages: tuple[Message, ...]
    cause: Cause
    fate: Fate
    """EXPIRED, or DROPPED because of `cause`."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Events that the peer has; those of QoS 0 were written."""

    peer: str
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of the peer, in order. Handle all of them, then call `handled`."""

    peer: str
    messages: list[Message]


LinkEvent: TypeAlias = Dial | Up | Down | Refused | Dropped | Delivered | Received
"""Everything a link has to tell."""
