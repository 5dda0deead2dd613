"""All settings of a gateway: read from a file, overridden on the command line, and shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields, replace
from pathlib import Path
from typing import Any

from edgebroker.dataclasses import dataclass
from edgebroker.names import hostport
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.kinds import InvalidValue
from edgebroker.runtime.settings.problems import InvalidEntry, Problem, SettingsRefused
from edgebroker.runtime.settings.schema import Section, plain, read_value
from edgebroker.runtime.settings.sections import (
    AccessSettings,
    DataSettings,
    FileSettings,
    HttpSettings,
    LimitSettings,
    ListenerSettings,
    LogSettings,
    MqttSettings,
    NodeSettings,
    NoticeSettings,
    OverlaySettings,
    QuotaSettings,
    RedirectSettings,
    RelocationSettings,
    hosts_overlap,
)

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, by section; a section that may occur several times is a tuple."""

    node: NodeSettings = field(default_factory=NodeSettings)
    listeners: tuple[ListenerSettings, ...] = field(
        default_factory=lambda: (ListenerSettings(),), metadata={"section": "listener"}
    )
    log: LogSettings = field(default_factory=LogSettings)
    data: DataSettings = field(default_factory=DataSettings)
    files: FileSettings = field(default_factory=FileSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    mqtt: MqttSettings = field(default_factory=MqttSettings)
    redirect: RedirectSettings = field(default_factory=RedirectSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
    relocation: RelocationSettings = field(default_factory=RelocationSettings)
    bridges: tuple[BridgeSettings, ...] = field(
        default_factory=tuple, metadata={"section": "bridge", "made": BridgeSettings, "apart": True}
    )
    http: HttpSettings = field(default_factory=HttpSettings)
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    aside: tuple[InvalidEntry, ...] = ()
    """Bridges that cannot be used, where that is no reason to refuse the rest."""
    warnings: tuple[Problem, ...] = ()
    """Keys of the file that are ignored because this version does not have them any more."""

    @classmethod
    def defaults(cls) -> Settings:
        """Return the settings of a gateway without a settings file."""
        return cls()

    @classmethod
    def load(cls, path: Path, apart: bool = False, is_own: bool = False) -> Settings:
        """Read a settings file. Paths in it are relative to the file's own folder. Raises SettingsRefused.

        *apart*: leave invalid bridges out, in `aside`, instead of refusing them: a gateway reads its file so.
        *is_own*: the gateway itself wrote the file (see `read_sections`).
        """
        from edgebroker.runtime.settings.reading import read_settings_text

        return cls.parse(read_settings_text(path), str(path), path.parent, apart, is_own)

    @classmethod
    def parse(cls, text: str, file: str, folder: Path, apart: bool = False, is_own: bool = False) -> Settings:
        """Parse TOML text, as `load` does. *file* names it in problems; paths are relative to *folder*."""
        # Imported here: the TOML parser takes 0.4 MiB, which a gateway without a file does not need.
        from edgebroker.runtime.settings.reading import read_sections

        aside: list[InvalidEntry] | None = [] if apart else None
        warnings: list[Problem] = []
        sections = read_sections(SECTIONS, text, file, folder, aside, is_own, warnings)
        parts = {SECTIONS[name].attribute: values for name, values in sections.items()}
        settings = cls(**parts, aside=tuple(aside or ()), warnings=tuple(warnings))
        if taken := list(settings._taken_ports()):
            from edgebroker.runtime.settings.toml import KeyLines

            raise SettingsRefused([Problem(file, KeyLines(text).line(name, "port"), *said) for name, *said in taken])
        return settings

    def overridden(
        self,
        host: str | None = None,
        port: int | None = None,
        log_dir: Path | None = None,
        data: Path | None = None,
        durability: str | None = None,
        http: tuple[str, int] | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        name: str | None = None,
        topology: Path | None = None,
        insecure: bool | None = None,
    ) -> Settings:
        """Return these settings with the values of the command line, where they are not None. Raises SettingsRefused.

        *host* and *port* are those of the first listener.
        """
        wanted = {
            ("listener", "host"): host,
            ("listener", "port"): port,
            ("log", "dir"): log_dir,
            ("data", "dir"): data,
            ("data", "durability"): durability,
            ("http", "host"): http[0] if http else None,
            ("http", "port"): http[1] if http else None,
            ("notices", "level"): log_level,
            ("notices", "format"): log_format,
            ("node", "name"): name,
            ("overlay", "topology"): topology,
            ("overlay", "insecure"): insecure,
        }
        problems: list[Problem] = []
        settings = self
        for (name, key), value in wanted.items():
            if value is None:
                continue
            section = SECTIONS[name]
            try:
                checked = read_value(SECTIONS, section, key, str(value) if isinstance(value, Path) else value, Path())
            except InvalidValue as error:
                problems.append(Problem(COMMAND_LINE, 0, f"{name}.{key}", *error.args))
            else:
                settings = settings._with(section, key, checked)
                problems += settings._conflicts(section, key)
        problems = problems or [Problem(COMMAND_LINE, 0, *said) for _, *said in settings._taken_ports()]
        if problems:
            raise SettingsRefused(problems)
        return settings

    def values(self) -> dict[str, Any]:
        """Return section -> key -> JSON value; for a section that may occur several times, a list of key -> value."""
        shown: dict[str, Any] = {}
        for section in SECTIONS.values():
            values = getattr(self, section.attribute)
            shown[section.name] = [section.shown(one) for one in values] if section.is_list else section.shown(values)
        return shown

    def _conflicts(self, section: Section, changed: str) -> Iterator[Problem]:
        """Yield the contradictions that *changed* causes, a key of the section or of its first entry."""
        values = getattr(self, section.attribute)
        first = values[0] if section.is_list else values
        for key, reason, mend in section.conflicts(first, section.changed_keys(first) | {changed}):
            yield Problem(COMMAND_LINE, 0, f"{section.name}.{key}", reason, mend)

    def _taken_ports(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield (section, key, reason, mend) for each port that an earlier section uses already.

        The port for peers is checked only if `overlay.host` is set; otherwise the topology file has the address.
        """
        taken = [("listener.port", one.host, one.port) for one in self.listeners if one.path is None]
        for section, one in (("overlay", self.overlay), ("http", self.http)):
            key, host, port = f"{section}.port", one.host, one.port
            if host is None or not port:
                continue
            for name, other, same in taken:
                if same == port and hosts_overlap(host, other):
                    yield section, key, f"is {port}, and so is {name} at {hostport(other, same)}", "choose another"
                    break
            taken.append((key, host, port))

    def _with(self, section: Section, key: str, value: object) -> Settings:
        attribute = section.attribute
        values = getattr(self, attribute)
        first = replace(values[0] if section.is_list else values, **{key: value})
        changes: dict[str, Any] = {attribute: (first, *values[1:]) if section.is_list else first}
        return replace(self, **changes)


SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (Section.of(one) for one in fields(Settings) if one.name not in ("aside", "warnings"))
}
"""The schemas by the names of the sections in a file."""
KEYS: Mapping[str, Mapping[str, Field[Any]]] = {name: section.keys for name, section in SECTIONS.items()}


def default_of(section: str, key: str) -> object:
    """Return the default of a key as a JSON value."""
    return plain(KEYS[section][key].default)
