"""The messages of relocation between gateways, as values, and what a gateway does with them [GRAPE 3, 4].

A publisher is named by the number that its gateway gave it (`header.hosted`), as in the header of its events. All these
messages are control messages of the overlay, which overtake events; but MCM travels behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Duration

# -- GRAPE: trace sessions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueDelays:
    """How long events wait and work takes in one gateway, as of its latest events."""

    input: Duration = 0
    """The wait in the input queue."""
    matching: Duration = 0
    """The time in which the gateway finds out who wants an event."""
    clients: Duration = 0
    """The wait of a copy for a client."""
    outputs: Mapping[str, Duration] | None = None
    """Peer -> the wait of a copy for it; None: no peers."""
    links: Mapping[str, Duration] | None = None
    """Peer -> the time on the way to it; None: not measured."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """What one gateway recorded of a trace session. Published, its neighbours are in it too; here all know them."""

    broker: str
    delivered: int
    """The bit vector: bit d is set if event d of the session was delivered to at least one local client."""
    deliveries: int
    """Pairs of an event and a local client that it was delivered to."""
    copies: int
    """Events of the session that arrived."""
    marked: int
    """Those of them that had been on a detour around a congested or broken link."""
    delays: QueueDelays


@dataclass(frozen=True, slots=True)
class TraceInformationRequest:
    """TIR: asks a peer for the records of all gateways behind it to which the session's events went."""

    publisher: int
    session: int
    """The sequence of the session's first event."""
    levels: int
    """How many further links the request may pass. The farther, the shorter a gateway waits for answers."""


@dataclass(frozen=True, slots=True)
class TraceInformationAnswer:
    """TIA: the records of the sender and of all gateways behind it."""

    publisher: int
    session: int
    records: tuple[TraceRecord, ...]
    is_partial: bool
    """Whether an answer is missing."""


# -- POP: traced events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TraceResult:
    """TRM: how many clients at and behind the sender got an event."""

    publisher: int
    sequence: int
    clients: int
    is_partial: bool
    """Whether an answer is missing; then the figure must not be averaged."""


@dataclass(frozen=True, slots=True)
class RelocationRequest:
    """RRM: looks for the gateway that is closest to a publisher's readers, from gateway to gateway."""

    publisher: int
    clients: float
    """The clients on the sender's side of the link."""
    brokers: tuple[str, ...]
    """The gateways that have handled the request, the latest first."""


@dataclass(frozen=True, slots=True)
class RelocationAnswer:
    """RAM: tells the publisher's gateway, at the end of the list, that the first one is the closest."""

    publisher: int
    brokers: tuple[str, ...]


# -- moving ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MigrationUpdate:
    """MUM: travels from the gateway to which a publisher moves to the one that it leaves."""

    publisher: int
    path: tuple[str, ...]
    """All gateways from the target to the source."""


@dataclass(frozen=True, slots=True)
class MigrationComplete:
    """MCM: travels back, behind the last events that the publisher said at its old gateway."""

    publisher: int
    path: tuple[str, ...]


RelocationMessage: TypeAlias = (
    TraceInformationRequest
    | TraceInformationAnswer
    | TraceResult
    | RelocationRequest
    | RelocationAnswer
    | MigrationUpdate
    | MigrationComplete
)


# -- effects -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendRelocation:
    """Send a message to a peer."""

    peer: str
    message: RelocationMessage


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The records of a trace session of this gateway's publisher are here."""

    publisher: int
    session: int
    records: tuple[TraceRecord, ...]
    is_partial: bool


@dataclass(frozen=True, slots=True)
class ClosestBroker:
    """POP has found the closest gateway for this gateway's publisher: the first one of *path*, which ends here."""

    publisher: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationEnd:
    """All that the publisher said at its old gateway is ahead of what it says here from now on."""

    publisher: int


RelocationEffect: TypeAlias = SendRelocation | SessionEnd | ClosestBroker | MigrationEnd
