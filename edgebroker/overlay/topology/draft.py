"""A topology draft: sites, gateways, links and uplinks as the file says them, before validation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.names import Address


@dataclass(frozen=True, slots=True)
class Uplink:
    """What may be sent over a link, in each direction."""

    kind: str
    """`lan`, `wan` or `metered`. What is no `lan` is deflated."""
    batch_ms: int
    """How long after a packet a message may wait for others to share the next one with."""
    bytes_per_s: int | None = None
    """None: as fast as the link takes it."""
    bytes_per_day: int | None = None
    """None: without end."""

    def __str__(self) -> str:
        bounds = [(self.bytes_per_s, "bytes/s"), (self.bytes_per_day, "bytes a day")]
        said = [self.kind, f"{self.batch_ms} ms", *(f"{bound:,} {unit}" for bound, unit in bounds if bound is not None)]
        return ", ".join(said)

    def thriftier(self, other: Uplink) -> Uplink:
        """What holds for a link that passes both: of everything the more sparing."""
        return Uplink(
            max(self.kind, other.kind, key=[*UPLINKS].index),
            max(self.batch_ms, other.batch_ms),
            _least(self.bytes_per_s, other.bytes_per_s),
            _least(self.bytes_per_day, other.bytes_per_day),
        )


def _least(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


UPLINKS: Final[Mapping[str, Uplink]] = {
    # A network of one's own: nothing to be saved.
    "lan": Uplink("lan", batch_ms=0),
    # Two milliseconds are little in 20 to 100 of way, and at 1,000 messages a second save half of the packets.
    "wan": Uplink("wan", batch_ms=2),
    # A packet costs 40 bytes of TCP/IP and 22 of TLS; shared by the ten messages of a second, six bytes for each.
    "metered": Uplink("metered", batch_ms=1_000),
}
"""By kind, the freest first: what holds where a site says nothing else."""


class DialPreference(IntEnum):
    """How eager a gateway is to be the one of two that dials."""

    NEVER = 0
    AUTO = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class Site:
    """A site, which is a cluster. `index`: its cluster index, from 0."""

    name: str
    index: int
    uplink: Uplink = UPLINKS["wan"]


@dataclass(frozen=True, slots=True)
class DraftGateway:
    """A gateway and the positions that it holds in the cluster of its site, its home first.

    positions: none, if it is the only one of its site and holds them all.  number: what others know it by; never given
    to another.  address: where everybody reaches it; lan: where only gateways of its own site do, tried first.
    """

    name: str
    number: int
    site: str
    positions: tuple[str, ...] = ()
    address: tuple[Address, ...] = ()
    lan: tuple[Address, ...] = ()
    dials: DialPreference = DialPreference.AUTO


@dataclass(frozen=True, slots=True)
class DraftLink:
    """What two gateways do otherwise than the rule says: who dials, and where it reaches the other."""

    between: tuple[str, str]
    dials: str
    address: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyDraft:
    """All of a file. `tree`: the paths of the factor."""

    federation: str
    tree: tuple[str, ...]
    sites: tuple[Site, ...]
    gateways: tuple[DraftGateway, ...]
    links: tuple[DraftLink, ...] = ()
