"""What an operator may set, in one TOML file or on the command line; docs/settings.md explains every key.

    settings = Settings.load(Path("gateway.toml")).overridden(port=1884)
    listen(settings.listener.host, settings.listener.port)

Reading is strict: an unknown key, a wrong type or a value out of range is refused, and all problems of a file at once.
Settings are frozen; a part of the gateway is handed its own section, never the whole.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from edgebroker import limits
from edgebroker.errors import SettingsInvalid
from edgebroker.instants import SECOND
from edgebroker.world.logdir import SEGMENT_AGE_US_MAX, SEGMENT_BYTES_MAX
from edgebroker.world.tomllines import KeyLines, line_of_error
from edgebroker.world.valuekinds import Folder, Kind, Text, Unusable, Whole

FILE_BYTES_MAX = 1 * limits.MIB  # ours has about 1 KiB; a larger file is something else, given by mistake
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. `line` counts from 1 and is 0 where there is no line; `key` is `section.name` or empty."""

    file: str
    line: int
    key: str
    reason: str
    mend: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(filter(None, (place, self.key, self.reason))) + (f"; {self.mend}" if self.mend else "")


class SettingsRefused(SettingsInvalid):
    """Settings with problems: `problems` has all of them, the message one line for each."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def _key(default: object, kind: Kind) -> Any:
    return field(default=default, metadata={"kind": kind})


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Who this gateway is."""

    name: str = _key("gateway", Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_' or '-'"))


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where devices connect."""

    host: str = _key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int = _key(1883, Whole(0, 65_535))


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The delivery log; none is written without `dir`."""

    dir: Path | None = field(default=None, metadata={"kind": Folder()})
    sample_qos0: int = _key(1, Whole(1, 1_000_000))
    segment_bytes_max: int = _key(SEGMENT_BYTES_MAX, Whole(64 * limits.KIB, 64 * limits.MIB))
    segment_age_s_max: int = _key(SEGMENT_AGE_US_MAX // SECOND, Whole(1, 7 * 24 * 3_600))


@dataclass(frozen=True, slots=True)
class DataSettings:
    """What the gateway keeps between runs."""

    dir: Path | None = field(default=None, metadata={"kind": Folder()})


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The bounds of `edgebroker.limits` that an operator may move, under the same names."""

    out_bytes_max: int = _key(limits.OUT_BYTES_MAX, Whole(16 * limits.KIB, 256 * limits.MIB))
    queue_messages_max: int = _key(limits.QUEUE_MESSAGES_MAX, Whole(1, 1_000_000))
    queue_bytes_max: int = _key(limits.QUEUE_BYTES_MAX, Whole(1 * limits.KIB, 1_024 * limits.MIB))
    inflight_max: int = _key(limits.INFLIGHT_MAX, Whole(1, 65_535))
    receive_maximum: int = _key(limits.RECEIVE_MAXIMUM, Whole(1, 65_535))
    packet_bytes_max: int = _key(limits.PACKET_BYTES_MAX, Whole(128, 255 * limits.MIB))  # MQTT says 256
    connections_max: int = _key(limits.CONNECTIONS_MAX, Whole(1, 1_000_000))
    retained_messages_max: int = _key(limits.RETAINED_MESSAGES_MAX, Whole(0, 10_000_000))
    session_expiry_s_max: int = _key(limits.SESSION_EXPIRY_S_MAX, Whole(0, 0xFFFF_FFFE))  # 0xFFFFFFFF means never


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything an operator may set, by section."""

    node: NodeSettings = NodeSettings()
    listener: ListenerSettings = ListenerSettings()
    log: LogSettings = LogSettings()
    data: DataSettings = DataSettings()
    limits: LimitSettings = LimitSettings()

    @classmethod
    def defaults(cls) -> Settings:
        """What holds without a file."""
        return cls()

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read a settings file. Folders in it are relative to the file's own. Raises SettingsRefused."""
        try:
            with path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            text = data.decode()
        except OSError as error:
            raise SettingsRefused([Problem(str(path), 0, "", f"cannot be read: {error.strerror}")]) from error
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise SettingsRefused([Problem(str(path), line, "", "is not UTF-8", "save it as UTF-8 text")]) from error
        if len(data) > FILE_BYTES_MAX:
            raise SettingsRefused([Problem(str(path), 0, "", f"has more than {FILE_BYTES_MAX:,} bytes")])
        return cls.parse(text, str(path), path.parent)

    @classmethod
    def parse(cls, text: str, file: str, folder: Path) -> Settings:
        """Settings from TOML text. `file` names it in problems; paths are relative to `folder`."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            reason, line = line_of_error(str(error), text)
            mend = "a key or section may stand only once" if "twice" in reason or "overwrite" in reason else ""
            raise SettingsRefused([Problem(file, line, "", f"not TOML: {reason}", mend)]) from error
        lines = KeyLines.of(text)
        problems: list[Problem] = []
        sections: dict[str, Any] = {}
        for name, values in content.items():
            known = SECTIONS.get(name)
            if known is None:
                problems.append(Problem(file, lines.line(name), name, *_unknown_section(name)))
            elif not isinstance(values, dict):
                problems.append(Problem(file, lines.line(name), name, "is a section", f"write [{name}] on a line"))
            else:
                given: dict[str, Any] = {}
                for key, value in values.items():
                    try:
                        given[key] = _read(name, key, value, folder)
                    except Unusable as error:
                        problems.append(Problem(file, lines.line(name, key), f"{name}.{key}", *error.args))
                if not problems:
                    sections[name] = known(**given)
        if problems:
            raise SettingsRefused(sorted(problems, key=lambda problem: problem.line))
        return cls(**sections)

    def overridden(
        self, host: str | None = None, port: int | None = None, log_dir: Path | None = None, data: Path | None = None
    ) -> Settings:
        """These settings with what the command line says instead; None leaves a value. Raises SettingsRefused."""
        wanted = {
            ("listener", "host"): host,
            ("listener", "port"): port,
            ("log", "dir"): log_dir,
            ("data", "dir"): data,
        }
        problems: list[Problem] = []
        settings = self
        for (section, key), value in wanted.items():
            if value is None:
                continue
            try:
                checked = _read(section, key, str(value) if isinstance(value, Path) else value, Path())
            except Unusable as error:
                problems.append(Problem(COMMAND_LINE, 0, f"{section}.{key}", *error.args))
            else:
                changed = replace(getattr(settings, section), **{key: checked})
                settings = replace(settings, **{section: changed})
        if problems:
            raise SettingsRefused(problems)
        return settings

    def values(self) -> dict[str, dict[str, str | int | None]]:
        """Section -> key -> value, as JSON can hold it: folders as text."""
        return {
            section: {
                key: str(value) if isinstance(value, Path) else value
                for key in keys
                for value in (getattr(getattr(self, section), key),)
            }
            for section, keys in KEYS.items()
        }


SECTIONS: Mapping[str, type[Any]] = {
    "node": NodeSettings,
    "listener": ListenerSettings,
    "log": LogSettings,
    "data": DataSettings,
    "limits": LimitSettings,
}
KEYS: Mapping[str, Mapping[str, Field[Any]]] = {
    name: {key.name: key for key in fields(section)} for name, section in SECTIONS.items()
}


def _read(section: str, key: str, value: object, folder: Path) -> object:
    """The checked value of a key. Raises Unusable(reason, mend)."""
    known = KEYS[section].get(key)
    if known is None:
        raise Unusable("unknown key", _nearest_key(section, key))
    kind: Kind = known.metadata["kind"]
    return kind.read(value, folder)


def _nearest_key(section: str, key: str) -> str:
    if elsewhere := list(_sections_with(key)):
        return f"it belongs in [{'] or ['.join(elsewhere)}]"
    nearest = difflib.get_close_matches(key, KEYS[section], n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"[{section}] has {', '.join(KEYS[section])}"


def _unknown_section(name: str) -> tuple[str, str]:
    """(reason, mend) for a name at the top of the file that is no section."""
    if belongs := list(_sections_with(name)):
        return "stands outside any section", f"put it under [{'] or ['.join(belongs)}]"
    nearest = difflib.get_close_matches(name, SECTIONS, n=1)
    return "unknown section", f"did you mean [{nearest[0]}]?" if nearest else f"there are {', '.join(SECTIONS)}"


def _sections_with(key: str) -> Iterator[str]:
    return (section for section, keys in KEYS.items() if key in keys)
