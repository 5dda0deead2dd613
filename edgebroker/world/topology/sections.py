"""The sections of a topology file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import field, fields
from typing import Final

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.overlay.address import Address
from edgebroker.overlay.draft import Dials, DraftGateway, DraftLink, Site
from edgebroker.overlay.factor import POSITION
from edgebroker.overlay.uplink import UPLINKS, Uplink
from edgebroker.world.settings.section import Conflict, Section, key
from edgebroker.world.topology.kinds import Addresses, Paths
from edgebroker.world.valuekinds import Choice, Several, Text, Whole

NAME: Final = Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_' or '-'")
DIALS: Final = {"auto": Dials.AUTO, "always": Dials.ALWAYS, "never": Dials.NEVER}
BYTES_MAX: Final = 10**12  # of a second, or a day: more is a number with a few noughts too many


def _missing(given: Set[str], **meanings: str) -> Iterator[Conflict]:
    """The keys that must stand in a section and do not."""
    return ((name, "is missing", meaning) for name, meaning in meanings.items() if name not in given)


@dataclass(frozen=True, slots=True)
class FederationSection:
    """What all of it is called."""

    name: str = key("", NAME)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return _missing(given, name="give the federation a name")


@dataclass(frozen=True, slots=True)
class FactorSection:
    """The tree of positions."""

    tree: tuple[str, ...] = key((), Paths(256))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return _missing(given, tree='write paths of positions, like "a-b-c"')


@dataclass(frozen=True, slots=True)
class SiteSection:
    """A site, which is a cluster, and its uplink."""

    name: str = key("", NAME)
    index: int | None = key(None, Whole(0, limits.CLUSTERS_MAX - 1))
    uplink: str = key("wan", Choice(tuple(UPLINKS)))
    batch_ms: int | None = key(None, Whole(0, 60_000))
    bytes_per_s: int | None = key(None, Whole(100, BYTES_MAX))
    bytes_per_day: int | None = key(None, Whole(100_000, BYTES_MAX))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return _missing(given, name="give the site a name")

    def site(self, place: int) -> Site:
        """As the overlay has it. *place*: its place in the file, from 0."""
        usual = UPLINKS[self.uplink]
        batch_ms = usual.batch_ms if self.batch_ms is None else self.batch_ms
        uplink = Uplink(self.uplink, batch_ms, self.bytes_per_s, self.bytes_per_day)
        return Site(self.name, place if self.index is None else self.index, uplink)


@dataclass(frozen=True, slots=True)
class GatewaySection:
    """A gateway: where it stands, what it holds, and how it is reached."""

    name: str = key("", NAME)
    number: int | None = key(None, Whole(0, limits.GATEWAY_NUMBER_MAX))
    site: str = key("", NAME)
    positions: tuple[str, ...] = key(
        (), Several(Text(POSITION, "1 to 16 letters, digits or '_'"), limits.POSITIONS_MAX)
    )
    address: tuple[Address, ...] = key((), Addresses(8))
    lan: tuple[Address, ...] = key((), Addresses(8))
    dials: str = key("auto", Choice(tuple(DIALS)))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return _missing(given, name="give the gateway a name", site="name the [[site]] where it stands")

    def gateway(self, before: DraftGateway | None) -> DraftGateway:
        """As the overlay has it. *before*: the one above in the file."""
        number = self.number
        if number is None:
            number = before.number + 1 if before else 0
        dials = DIALS[self.dials]
        return DraftGateway(self.name, number, self.site, self.positions, self.address, self.lan, dials)


@dataclass(frozen=True, slots=True)
class LinkSection:
    """An exception for the connection of two gateways."""

    between: tuple[str, ...] = key((), Several(NAME, 2))
    dials: str = key("", NAME)
    address: tuple[Address, ...] = key((), Addresses(8))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        yield from _missing(given, between="name the two gateways", dials="say which of them dials")
        if "between" in given and len(set(self.between)) != 2:
            yield "between", f"names {' and '.join(self.between) or 'nobody'}", "name two gateways"

    def link(self) -> DraftLink:
        """As the overlay has it."""
        one, other = self.between
        return DraftLink((one, other), self.dials, self.address)


@dataclass(frozen=True, slots=True)
class _File:
    """The sections, as a file may have them."""

    federation: FederationSection = field(default_factory=FederationSection)
    factor: FactorSection = field(default_factory=FactorSection)
    sites: tuple[SiteSection, ...] = field(default_factory=lambda: (SiteSection(),), metadata={"section": "site"})
    gateways: tuple[GatewaySection, ...] = field(
        default_factory=lambda: (GatewaySection(),), metadata={"section": "gateway", "most": 1_024}
    )
    links: tuple[LinkSection, ...] = field(
        default_factory=lambda: (LinkSection(),), metadata={"section": "link", "most": 1_024}
    )


SECTIONS: Final[Mapping[str, Section]] = {section.name: section for section in map(Section.of, fields(_File))}
"""By the name that a file gives them."""
