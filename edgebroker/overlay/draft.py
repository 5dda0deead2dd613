"""What a topology file says, before anybody has asked whether it is a topology."""

from __future__ import annotations

from enum import IntEnum

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.address import Address
from edgebroker.overlay.uplink import UPLINKS, Uplink


class Dials(IntEnum):
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
    dials: Dials = Dials.AUTO


@dataclass(frozen=True, slots=True)
class DraftLink:
    """What two gateways do otherwise than the rule says: who dials, and where it reaches the other."""

    between: tuple[str, str]
    dials: str
    address: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """All of a file. `tree`: the paths of the factor."""

    federation: str
    tree: tuple[str, ...]
    sites: tuple[Site, ...]
    gateways: tuple[DraftGateway, ...]
    links: tuple[DraftLink, ...] = ()
