"""The settings as a whole."""

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
    hosts_overlap,
)

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything an operator may set, by section. A tuple is a section that may stand several times."""

    node: NodeSettings = field(default_factory=NodeSettings)
    listeners: tuple[ListenerSettings, ...] = field(
        default_factory=lambda: (ListenerSettings(),), metadata={"section": "listener"}
    )
    log: LogSettings = field(default_factory=LogSettings)
    data: DataSettings = field(default_factory=DataSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    mqtt: MqttSettings = field(default_factory=MqttSettings)
    redirect: RedirectSettings = field(default_factory=RedirectSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
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
        """What holds without a file."""
        return cls()

    @classmethod
    def load(cls, path: Path, apart: bool = False, is_own: bool = False) -> Settings:
        """Read a settings file. Paths in it are relative to the file's own folder. Raises SettingsRefused.

        *apart*: not for a bridge that cannot be used; it stands in `aside` then. So a gateway reads its file.
        *is_own*: the gateway wrote it, and takes back all that it has written.
        """
        from edgebroker.runtime.settings.reading import read_settings_text

        return cls.parse(read_settings_text(path), str(path), path.parent, apart, is_own)

    @classmethod
    def parse(cls, text: str, file: str, folder: Path, apart: bool = False, is_own: bool = False) -> Settings:
        """Settings from TOML text. `file` names it in problems; paths are relative to `folder`."""
        # TOML: 0.4 MiB that a gateway without a file need not hold
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
    ) -> Settings:
        """These settings with what the command line says instead; None leaves a value. Raises SettingsRefused.

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
        """Section -> key -> value, as JSON can hold it; for a section that may stand several times, a list of those."""
        shown: dict[str, Any] = {}
        for section in SECTIONS.values():
            values = getattr(self, section.attribute)
            shown[section.name] = [section.shown(one) for one in values] if section.is_list else section.shown(values)
        return shown

    def _conflicts(self, section: Section, changed: str) -> Iterator[Problem]:
        """What *changed*, a key of the section or of the first of its name, does not go together with."""
        values = getattr(self, section.attribute)
        first = values[0] if section.is_list else values
        for key, reason, mend in section.conflicts(first, section.changed_keys(first) | {changed}):
            yield Problem(COMMAND_LINE, 0, f"{section.name}.{key}", reason, mend)

    def _taken_ports(self) -> Iterator[tuple[str, str, str, str]]:
        """(section, its key, reason, mend) of each port that a section above has already.

        Where peers are awaited if `overlay.host` is not set, only the topology knows.
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
"""By the name that a file gives them."""
KEYS: Mapping[str, Mapping[str, Field[Any]]] = {name: section.keys for name, section in SECTIONS.items()}


def default_of(section: str, key: str) -> object:
    """What holds if the file does not name the key, as JSON can hold it."""
    return plain(KEYS[section][key].default)
