"""Reads the topology file, which is the same on every gateway of a federation; docs/topology.md explains every key.

    topology = load_topology(Path("topology.toml"))

Every error is reported with its line and a remedy, as for settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import field, fields
from pathlib import Path
from typing import Final

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.names import Address, ClientAddress
from edgebroker.overlay.topology.draft import (
    UPLINKS,
    DialPreference,
    DraftGateway,
    DraftLink,
    Site,
    TopologyDraft,
    TopologyInvalid,
    TopologyMistake,
    Uplink,
)
from edgebroker.overlay.topology.factor import POSITION
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.settings.kinds import Choice, Integer, ListOf, OneOrMoreOf, ParsedText, Text
from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.reading import read_sections, read_settings_text
from edgebroker.runtime.settings.schema import Conflict, Section, key, missing_keys
from edgebroker.runtime.settings.toml import KeyLines

_ANOTHER: Final = f"(-{POSITION}){{0,{limits.POSITIONS_MAX - 1}}}"
_PATH: Final = Text(POSITION + _ANOTHER, 'positions with "-" between, like "a-b-c"')


_ADDRESS: Final = ParsedText('host:port, like "gw.example.org:8884" or "[2001:db8::1]:8884"', Address.parse)
ADDRESSES: Final = OneOrMoreOf(_ADDRESS, "addresses", 8)
"""The addresses of a gateway, the preferred one first."""
CLIENT_ADDRESSES: Final = OneOrMoreOf(
    ParsedText("mqtt://host:port, or mqtts://host:port for TLS", ClientAddress.parse), "addresses", 8
)
"""Where clients of a gateway connect, the preferred address first."""
NAME: Final = Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_' or '-'")
DIALS: Final = {"auto": DialPreference.AUTO, "always": DialPreference.ALWAYS, "never": DialPreference.NEVER}
BYTES_MAX: Final = 10**12  # per second, or per day: a larger number has a few zeros too many


@dataclass(frozen=True, slots=True)
class FederationSection:
    """The name of the federation."""

    name: str = key("", NAME)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return missing_keys(given, name="give the federation a name")


@dataclass(frozen=True, slots=True)
class FactorSection:
    """The acyclic factor: a tree of positions, which the gateways of each site hold among them."""

    tree: tuple[str, ...] = key((), OneOrMoreOf(_PATH, "paths", 256))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return missing_keys(given, tree='write paths of positions, like "a-b-c"')


@dataclass(frozen=True, slots=True)
class SiteSection:
    """A site, which is a cluster of gateways, and its uplink to the others."""

    name: str = key("", NAME)
    index: int | None = key(None, Integer(0, limits.CLUSTERS_MAX - 1))
    uplink: str = key("wan", Choice(tuple(UPLINKS)))
    batch_ms: int | None = key(None, Integer(0, 60_000))
    bytes_per_s: int | None = key(None, Integer(100, BYTES_MAX))
    bytes_per_day: int | None = key(None, Integer(100_000, BYTES_MAX))
    covering_bytes: int = key(limits.COVERING_BYTES, Integer(256, limits.COVERING_BYTES_MAX))
    cost: int | None = key(None, Integer(0, 1_000))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return missing_keys(given, name="give the site a name")

    def site(self, index: int) -> Site:
        """Returns the overlay's site. *index*: its place in the file, from 0."""
        preset = UPLINKS[self.uplink]
        batch_ms = preset.batch_ms if self.batch_ms is None else self.batch_ms
        cost = preset.cost if self.cost is None else self.cost
        uplink = Uplink(self.uplink, batch_ms, self.bytes_per_s, self.bytes_per_day, self.covering_bytes, cost)
        return Site(self.name, index if self.index is None else self.index, uplink)


@dataclass(frozen=True, slots=True)
class GatewaySection:
    """A gateway: its site, its positions and its addresses."""

    name: str = key("", NAME)
    number: int | None = key(None, Integer(0, limits.GATEWAY_NUMBER_MAX))
    site: str = key("", NAME)
    positions: tuple[str, ...] = key((), ListOf(Text(POSITION, "1 to 16 letters, digits or '_'"), limits.POSITIONS_MAX))
    address: tuple[Address, ...] = key((), ADDRESSES)
    lan: tuple[Address, ...] = key((), ADDRESSES)
    dials: str = key("auto", Choice(tuple(DIALS)))
    clients: tuple[ClientAddress, ...] = key((), CLIENT_ADDRESSES)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return missing_keys(given, name="give the gateway a name", site="name the [[site]] where it stands")

    def gateway(self, previous: DraftGateway | None) -> DraftGateway:
        """Returns the overlay's gateway. *previous*: the one above in the file."""
        number = self.number
        if number is None:
            number = previous.number + 1 if previous else 0
        dials = DIALS[self.dials]
        return DraftGateway(self.name, number, self.site, self.positions, self.address, self.lan, dials, self.clients)


@dataclass(frozen=True, slots=True)
class LinkSection:
    """Which of two gateways opens the connection between them, and to which addresses."""

    between: tuple[str, ...] = key((), ListOf(NAME, 2))
    dials: str = key("", NAME)
    address: tuple[Address, ...] = key((), ADDRESSES)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        yield from missing_keys(given, between="name the two gateways", dials="say which of them dials")
        if "between" in given and len(set(self.between)) != 2:
            yield "between", f"names {' and '.join(self.between) or 'nobody'}", "name two gateways"

    def link(self) -> DraftLink:
        """Returns the overlay's link."""
        one, other = self.between
        return DraftLink((one, other), self.dials, self.address)


@dataclass(frozen=True, slots=True)
class _TopologySections:
    """The sections that a file may have."""

    federation: FederationSection = field(default_factory=FederationSection)
    factor: FactorSection = field(default_factory=FactorSection)
    sites: tuple[SiteSection, ...] = field(default_factory=lambda: (SiteSection(),), metadata={"section": "site"})
    gateways: tuple[GatewaySection, ...] = field(
        default_factory=lambda: (GatewaySection(),), metadata={"section": "gateway", "most": 1_024}
    )
    links: tuple[LinkSection, ...] = field(
        default_factory=lambda: (LinkSection(),), metadata={"section": "link", "most": 1_024}
    )


SECTIONS: Final[Mapping[str, Section]] = {
    section.name: section for section in map(Section.of, fields(_TopologySections))
}
"""The schemas by the names of the sections in a file."""


def load_topology(path: Path) -> Topology:
    """Reads a topology file. Raises SettingsRefused."""
    return parse_topology(read_settings_text(path), str(path))


def parse_topology(text: str, file: str) -> Topology:
    """Returns a topology from TOML text. *file*: its name in problems. Raises SettingsRefused."""
    content = read_sections(SECTIONS, text, file, Path())
    if missing := [name for name in ("federation", "factor") if name not in content]:
        raise SettingsRefused([Problem(file, 0, name, "is missing", f"write a section [{name}]") for name in missing])
    federation: FederationSection = content["federation"]
    factor: FactorSection = content["factor"]
    sites = tuple(section.site(index) for index, section in enumerate(content.get("site", ())))
    gateways: list[DraftGateway] = []
    for section in content.get("gateway", ()):
        gateways.append(section.gateway(gateways[-1] if gateways else None))
    links = tuple(section.link() for section in content.get("link", ()))
    try:
        return Topology(TopologyDraft(federation.name, factor.tree, sites, tuple(gateways), links))
    except TopologyInvalid as invalid:
        lines = KeyLines(text)
        problems = [_problem(mistake, lines, file) for mistake in invalid.mistakes]
        raise SettingsRefused(sorted(problems, key=lambda problem: problem.line)) from invalid


def _problem(mistake: TopologyMistake, lines: KeyLines, file: str) -> Problem:
    key = ".".join(name for name in mistake.where if isinstance(name, str))
    return Problem(file, lines.line(*mistake.where), key, mistake.reason, mistake.mend)


__all__ = ["load_topology", "parse_topology"]
