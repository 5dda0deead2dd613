"""The options of a gateway in a federation."""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FederationOptions:
    """How a gateway takes part. The defaults are ours; `PUBLISHED` is what the source describes."""

    is_dynamic: bool = False
    """Go around congested iLinks (IDR), not only around those that are down."""
    sorts: bool = True
    """Put events back into order that come around something congested or down. They wait a moment for that."""
    is_precise: bool = True
    """Tell hosts what the cluster wants of a publisher, not only that it wants something."""
    is_covering: bool = True
    """Announce no interest that another one covers."""
    wants_answers: bool = True
    """Have every cluster answer an advertisement, and let events wait for that."""
    lease_s: int = 24 * 3600
    """How long what a peer told holds while the link to it is down."""
    idle_s: int = 300
    """How long an advertisement holds without events."""


DEFAULT_OPTIONS: Final = FederationOptions()
PUBLISHED_OPTIONS: Final = FederationOptions(sorts=False, is_precise=False, is_covering=False, wants_answers=False)
