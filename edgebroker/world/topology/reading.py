"""A topology from TOML text, or everything that is wrong with it, each at its line."""

from __future__ import annotations

from pathlib import Path

from edgebroker.overlay.draft import Draft, DraftGateway
from edgebroker.overlay.mistake import Mistake, TopologyInvalid
from edgebroker.overlay.topology import Topology
from edgebroker.world.settings.problems import Problem, SettingsRefused
from edgebroker.world.settings.reading import read, text_of
from edgebroker.world.tomllines import KeyLines
from edgebroker.world.topology.sections import SECTIONS, FactorSection, FederationSection


def load_topology(path: Path) -> Topology:
    """Read a topology file. Raises SettingsRefused."""
    return parse_topology(text_of(path), str(path))


def parse_topology(text: str, file: str) -> Topology:
    """A topology from TOML text. `file` names it in problems. Raises SettingsRefused."""
    content = read(SECTIONS, text, file, Path())
    if missing := [name for name in ("federation", "factor") if name not in content]:
        raise SettingsRefused([Problem(file, 0, name, "is missing", f"write a section [{name}]") for name in missing])
    federation: FederationSection = content["federation"]
    factor: FactorSection = content["factor"]
    sites = tuple(one.site(place) for place, one in enumerate(content.get("site", ())))
    gateways: list[DraftGateway] = []
    for one in content.get("gateway", ()):
        gateways.append(one.gateway(gateways[-1] if gateways else None))
    links = tuple(one.link() for one in content.get("link", ()))
    try:
        return Topology(Draft(federation.name, factor.tree, sites, tuple(gateways), links))
    except TopologyInvalid as invalid:
        lines = KeyLines(text)
        problems = [_problem(mistake, lines, file) for mistake in invalid.mistakes]
        raise SettingsRefused(sorted(problems, key=lambda problem: problem.line)) from invalid


def _problem(mistake: Mistake, lines: KeyLines, file: str) -> Problem:
    key = ".".join(name for name in mistake.where if isinstance(name, str))
    return Problem(file, lines.line(*mistake.where), key, mistake.reason, mistake.mend)
