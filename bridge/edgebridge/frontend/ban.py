"""A client that an operator keeps out."""

from __future__ import annotations

from typing import NamedTuple

from edgebroker.instants import Instant


class Ban(NamedTuple):
    """Until when, since when, and why."""

    until: Instant
    since_unix_s: int
    """Seconds since 1970, by the clock that the journal goes by where there is one."""
    seconds: int
    """How long it was to last then."""
    why: str
    """What the operator said; may be empty."""
