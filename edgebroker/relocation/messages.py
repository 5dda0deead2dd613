"""The messages of relocation between gateways, as values, and what a gateway does with them [GRAPE 3, 4].

A publisher is named by the number that its gateway gave it (`header.hosted`), as in the header of its events. All these
messages are control messages of the overlay, which overtake events; but MCM travels behind them. Those of trace
sessions are in `trace_records`.
"""

from __future__ import annotations

from typing import TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest, TraceRecord

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
