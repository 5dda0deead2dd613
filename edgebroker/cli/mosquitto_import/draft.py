"""The settings while the lines are being translated: sections, listeners and bridges, each value with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgebridge.bridge.rules import BridgeRule
from edgebroker.cli.mosquitto_import.conf_file import ConfLine
from edgebroker.runtime.settings import KEYS
from edgebroker.runtime.settings.kinds import Integer

Value = str | int | bool | list[str]


class ValueUnusable(Exception):
    """Raised for a value that Mosquitto itself would refuse; the message says which values it accepts."""


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """The value of a key, and its source: a line of the configuration, or a reason."""

    value: Value
    source: ConfLine | str


@dataclass(slots=True)
class ListenerDraft:
    """A listener. `line` is its `listener` line; the default listener has none, and may stay unused."""

    line: ConfLine | None
    port: int = 1883
    host: str = ""
    path: str = ""
    """The path of a Unix socket, or empty."""
    domain: str = ""
    """`ipv4` or `ipv6` if the listener is restricted to it, else empty."""
    is_used: bool = False
    lines: dict[str, ConfLine] = field(default_factory=dict)
    """The options of the listener by name; `ListenerTranslation` evaluates them when all lines have been read."""
    origins: list[ConfLine] = field(default_factory=list)
    """The lines `websockets_origin`: each adds one."""
    keys: dict[str, DraftEntry] = field(default_factory=dict)
    names_users: bool = False
    """Whether a client certificate names the user, and CONNECT does not."""
    is_closed: bool = False
    """Whether `Exposure` has bound it to the loopback address."""

    @property
    def is_anonymous(self) -> bool:
        """Whether clients without a user name come in."""
        return self.keys["anonymous"].value is True


@dataclass(slots=True)
class RuleDraft:
    """A rule of a bridge, and its `topic` line."""

    rule: BridgeRule
    source: ConfLine


@dataclass(slots=True)
class BridgeDraft:
    """A bridge: its `connection` line, its keys and its rules."""

    line: ConfLine
    keys: dict[str, DraftEntry] = field(default_factory=dict)
    rules: list[RuleDraft] = field(default_factory=list)
    unretained: ConfLine | None = None
    """The line `bridge_outgoing_retain false`, if there is one."""
    guards: list[ConfLine] = field(default_factory=list)
    """Lines with a protection, or a secret, that has no equivalent here or is not understood."""
    silenced: ConfLine | None = None
    """The line by which Mosquitto tells the remote nothing of the bridge."""


@dataclass(slots=True)
class PluginDraft:
    """A plug-in, with its options by name. `kind`: the name of its file without `mosquitto_` and the suffix."""

    line: ConfLine
    kind: str
    options: dict[str, ConfLine] = field(default_factory=dict)
    listeners: list[ListenerDraft] = field(default_factory=list)
    """Those that use it, if it is not one for all."""
    is_global: bool = False
    """Whether it is used by all."""


class ImportDraft:
    """The settings, as far as they have been translated."""

    def __init__(self, folder: Path) -> None:
        """Relative paths are resolved against *folder*, because Mosquitto's working directory is unknown."""
        self._folder = folder
        self.sections: dict[str, dict[str, DraftEntry]] = {}
        self.default_listener = ListenerDraft(None)
        self.listeners: list[ListenerDraft] = []
        self.bridges: list[BridgeDraft] = []
        self.connections: dict[str, BridgeDraft] = {}
        """The first bridge of each name in the configuration."""
        self.bridge_names: set[str] = set()
        """The names that the bridges have in the settings."""
        self.is_per_listener = False
        self.allow_anonymous: ConfLine | None = None
        self.store: dict[str, ConfLine] = {}
        """The options about persistence by name; `persistence` evaluates them when all lines have been read."""
        self.sizes: dict[str, ConfLine] = {}
        """The options about packet sizes by name; `packet_sizes` evaluates them likewise."""
        self.plugins: list[PluginDraft] = []
        self.plugin_names: dict[str, PluginDraft] = {}
        """Those of `plugin_load` by the name that it gives them."""
        self.owners: dict[ConfLine, ListenerDraft] = {}
        """Line -> its listener, if it concerns that one alone."""
        self.openers: list[ConfLine] = []
        """Lines that make Mosquitto open its default listener, as long as no later line overrides them."""
        self.harmless: set[ConfLine] = set()
        """Lines without equivalent that keep nobody out, though others of their option may."""
        self.overridden: dict[ConfLine, ConfLine] = {}
        """Line -> the later line that overrides it."""

    def put(self, section: str, key: str, value: Value, source: ConfLine | str) -> str:
        """Set a key of a section, and return its full name. The last line overrides others, as in Mosquitto."""
        self.sections.setdefault(section, {})[key] = DraftEntry(value, source)
        return f"{section}.{key}"

    def discard(self, overridden: dict[ConfLine, ConfLine]) -> None:
        """Undo the effects of *overridden* lines that the later lines have not replaced."""
        self.overridden = overridden
        self.default_listener.is_used |= any(line not in overridden for line in self.openers)
        for bridge in self.bridges:
            bridge.guards = [line for line in bridge.guards if line not in overridden]
            if bridge.unretained in overridden:
                bridge.unretained = None
            if bridge.silenced in overridden:
                bridge.silenced = None
        for keys in (*self.sections.values(), *(bridge.keys for bridge in self.bridges)):
            for key in [key for key, entry in keys.items() if entry.source in overridden]:
                del keys[key]

    def path(self, line: ConfLine) -> str:
        """Return the absolute path that a line names. Raises ValueUnusable."""
        if not line.value or "\0" in line.value:
            raise ValueUnusable(f"{line.name} takes a path")
        path = (self._folder / line.value).absolute()
        if " #" in line.value and not path.exists():
            raise ValueUnusable("the name is the rest of the line, with the remark: give that a line of its own")
        return str(path)

    def used_listeners(self) -> list[ListenerDraft]:
        """Return the listeners in their order; the default listener only if it is used, or if there is no other."""
        default = self.default_listener
        if default.is_used or not self.listeners:
            if not default.is_used:
                default.host = "127.0.0.1"  # without any listener Mosquitto serves this machine alone
            return [default, *self.listeners]
        return self.listeners

    def value(self, section: str, key: str) -> Any:
        """Return the value that a key has so far, or None."""
        entry = self.sections.get(section, {}).get(key)
        return None if entry is None else entry.value


@dataclass(slots=True)
class ConfContext:
    """The listener, the bridge and the plug-in to which a line belongs. Each file begins with the default listener."""

    listener: ListenerDraft
    bridge: BridgeDraft | None = None
    plugin: PluginDraft | None = None


def within(section: str, key: str, number: int) -> int:
    """Return *number*, or the nearest number that the key accepts."""
    kind = KEYS[section][key].metadata["kind"]
    assert isinstance(kind, Integer)
    return min(max(number, kind.least), kind.most)
