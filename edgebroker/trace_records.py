"""What a trace session of a publisher brings together: TIR, TIA, and the record of each gateway [GRAPE 4.1].

They are values of floor 0, because the overlay sends what relocation makes. docs/relocation.md explains trace sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Duration

OFFSET_MAX: Final = 1_000
"""The longest session, in events. The events of other gateways decide how long a bit vector is."""


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
