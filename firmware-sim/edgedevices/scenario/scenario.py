"""A scenario: the contents of a file with all references resolved. Every problem is reported, each at its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeAlias

from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.reading import read_sections, read_settings_text
from edgebroker.runtime.settings.toml import KeyLines
from edgedevices.scenario.sections import (
    MAINS,
    SECTIONS,
    WIRED,
    BatterySection,
    FleetSection,
    MischiefSection,
    RadioSection,
    ScenarioSection,
    UpdateSection,
)

Named: TypeAlias = FleetSection | RadioSection | BatterySection
Where: TypeAlias = tuple[str, int, str]
"""(section, index of the table, key)."""

REFERENCES: Final = (
    ("fleet", "radio", "radio", WIRED),
    ("fleet", "battery", "battery", MAINS),
    ("update", "fleet", "fleet", ""),
    ("mischief", "fleet", "fleet", ""),
)
"""(section, key, the section that has the names, another value that is allowed)."""


@dataclass(frozen=True, slots=True)
class DeviceScenario:
    """The sections of one file; names are unique and references valid."""

    terms: ScenarioSection
    fleets: tuple[FleetSection, ...]
    radios: dict[str, RadioSection]
    batteries: dict[str, BatterySection]
    updates: tuple[UpdateSection, ...] = ()
    mischiefs: tuple[MischiefSection, ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices of all fleets."""
        return sum(fleet.devices for fleet in self.fleets)

    def described(self) -> str:
        """A description in one line."""
        fleets = ", ".join(f"{fleet.devices:,} {fleet.name}" for fleet in self.fleets)
        return f"{self.terms.name}: {self.devices:,} devices ({fleets})"


def load_scenario(path: Path) -> DeviceScenario:
    """Reads a scenario file. Raises SettingsRefused."""
    return parse_scenario(read_settings_text(path), str(path))


def parse_scenario(text: str, file: str) -> DeviceScenario:
    """Returns a scenario from TOML text. *file*: its name in problems. Raises SettingsRefused."""
    content = read_sections(SECTIONS, text, file, Path())
    missing = [name for name in ("scenario", "fleet") if name not in content]
    if missing:
        raise SettingsRefused([Problem(file, 0, name, "is missing", f"write {_header(name)}") for name in missing])
    lines = KeyLines(text)
    mistakes = [*_duplicate_names(content), *_unknown_references(content)]
    if mistakes:
        problems = [
            Problem(file, lines.line(*where), f"{where[0]}.{where[2]}", reason, mend)
            for where, reason, mend in mistakes
        ]
        raise SettingsRefused(sorted(problems, key=lambda problem: problem.line))
    return DeviceScenario(
        content["scenario"],
        content["fleet"],
        {one.name: one for one in content.get("radio", ())},
        {one.name: one for one in content.get("battery", ())},
        content.get("update", ()),
        content.get("mischief", ()),
    )


def _header(name: str) -> str:
    return f"[[{name}]]" if SECTIONS[name].is_list else f"[{name}]"


def _duplicate_names(content: dict[str, tuple[Named, ...]]) -> Iterator[tuple[Where, str, str]]:
    for section in ("fleet", "radio", "battery"):
        seen: set[str] = set()
        for index, one in enumerate(content.get(section, ())):
            if one.name in seen:
                yield (section, index, "name"), f'"{one.name}" stands twice', "give each a name of its own"
            seen.add(one.name)


def _unknown_references(content: dict[str, tuple[Named, ...]]) -> Iterator[tuple[Where, str, str]]:
    for section, name, target, else_ in REFERENCES:
        known = [one.name for one in content.get(target, ())]
        for index, one in enumerate(content.get(section, ())):
            meant = getattr(one, name)
            if meant not in (*known, else_):
                words = [*known, *([else_] if else_ else [])]
                nearest = get_close_matches(meant, words, n=1)
                mend = f'did you mean "{nearest[0]}"?' if nearest else f"there is {', '.join(words) or 'none'}"
                yield (section, index, name), f'"{meant}" is no [[{target}]]', mend
