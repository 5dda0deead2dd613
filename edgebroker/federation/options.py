"""The options of a gateway in a federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.limits import IDLE_ADVERTISEMENTS_MAX, RETAINED_CACHE_BYTES_MAX, SESSION_EXPIRY_S_MAX
from edgebroker.overlay.link.budget import OutboxFull
from edgebroker.relocation.placement import PlacementGoal
from edgebroker.topics import TopicFilter


@dataclass(frozen=True, slots=True)
class OutboxOptions:
    """How much may wait for a peer, and what becomes of more."""

    bytes_max: int | None = None
    """None: as much as the disk has room for, at least 64 MiB."""
    messages_max: int | None = None
    """None: `OutboxBounds.messages`."""
    policy: OutboxFull = OutboxFull.REFUSE


DEFAULT_OUTBOX: Final = OutboxOptions()


class RelocationMode(Enum):
    """What a gateway does to find better gateways for its publishers."""

    OFF = "off"
    """Nothing is traced or recorded."""
    PROPOSE = "propose"
    """Publishers are traced, and better gateways are proposed to the operator."""
    APPLY = "apply"
    """The gateway also moves its publishers there itself, a few in a minute (`relocation.automatic_moves`)."""


@dataclass(frozen=True, slots=True)
class RelocationOptions:
    """How better gateways are found for publishers."""

    mode: RelocationMode = RelocationMode.PROPOSE
    goal: PlacementGoal = PlacementGoal()
    excluded_clients: tuple[str, ...] = ()
    """Patterns, with `*` and `?`, of client identifiers that are never traced."""
    excluded_topics: tuple[TopicFilter, ...] = ()
    """A client that publishes under one of them is not traced any more."""
    moves_per_minute: int = 6
    """How many publishers the gateway moves itself in a minute at most."""


DEFAULT_RELOCATION: Final = RelocationOptions()


@dataclass(frozen=True, slots=True)
class FederationOptions:
    """How a gateway takes part in a federation. The defaults are those of this project; `PUBLISHED_OPTIONS` is the
    published algorithm [SCOT].
    """

    is_dynamic: bool = True
    """Route around congested iLinks (IDR), not only around those that are down."""
    sorts: bool = True
    """Let events that take another path than their predecessors name them, and wait for them where both arrive."""
    is_precise: bool = True
    """Answer an advertisement with the interests of the cluster, not only with one bit."""
    is_covering: bool = True
    """Announce no interest that another one covers."""
    wants_answers: bool = True
    """Ask every cluster to answer an advertisement, and let events wait for the answers."""
    lease_s: int = SESSION_EXPIRY_S_MAX
    """How long the state that a peer announced stays valid while the link to it is down: as long as its longest
    session may last.
    """
    flow_s: int = 300
    """How long the number of a publisher stays valid without events."""
    advertised_s: int = 24 * 3600
    """How long an advertisement, with the answers to it, stays valid without events."""
    idle_advertisements_max: int = IDLE_ADVERTISEMENTS_MAX
    """How many advertisements under which no client publishes at the moment are kept."""
    suback_wait_ms: int = 1_000
    """How long the SUBACK of a subscription waits at most until other gateways know the subscription; 0: not at all."""
    retained_cache_bytes_max: int = RETAINED_CACHE_BYTES_MAX
    """The memory for retained messages that other gateways have answered; 0: none is kept."""
    dead_gateway_wills_after_s: int = 120
    """How long a gateway must be without any link until another one of its site publishes its clients' wills; 0: none
    are, and this gateway tells nobody of its clients' wills.
    """
    roams: bool = True
    """Whether a client that connects at another gateway finds its session there (`session_directory`)."""
    session_wait_ms: int = 2_000
    """How long a CONNECT waits at most for the session of its client, while other gateways may have one."""
    outbox: OutboxOptions = DEFAULT_OUTBOX
    outboxes: Mapping[str, OutboxOptions] = field(default_factory=dict)
    """Peer -> its options where they are others."""
    relocation: RelocationOptions = DEFAULT_RELOCATION


DEFAULT_OPTIONS: Final = FederationOptions()
PUBLISHED_OPTIONS: Final = FederationOptions(
    is_dynamic=False,
    sorts=False,
    is_precise=False,
    is_covering=False,
    wants_answers=False,
    suback_wait_ms=0,
    dead_gateway_wills_after_s=0,
    roams=False,
    relocation=RelocationOptions(RelocationMode.OFF),
)
