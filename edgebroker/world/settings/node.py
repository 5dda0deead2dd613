"""Section `node`."""

from __future__ import annotations

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Text, Whole


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Who this gateway is, and how its process waits."""

    name: str = key("gateway", Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_' or '-'"))
    spin_us: int = key(limits.SPIN_US, Whole(0, 10_000))
    gather_us: int = key(limits.GATHER_US, Whole(0, 10_000))
    awake_percent: int = key(limits.AWAKE_PERCENT, Whole(0, 100))
