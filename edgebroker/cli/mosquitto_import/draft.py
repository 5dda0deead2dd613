"""The settings as they grow while lines are read: sections, listeners and bridges, each value with its line."""

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
    """A value that Mosquitto itself would refuse; the message says what it takes."""


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """A value of ours, and where it comes from: a line, or a reason of our own."""

    value: Value
    source: ConfLine | str


@dataclass(slots=True)
class ListenerDraft:
    """A listener. `line` is the one that opens it; the default listener has none and may stay unused."""

    line: ConfLine | None
    port: int = 1883
    host: str = ""
    path: str = ""
    """Of a Unix socket."""
    domain: str = ""
    """`ipv4` or `ipv6`, if only that is wanted."""
    is_used: bool = False
    lines: dict[str, ConfLine] = field(default_factory=dict)
    """Options of the listener by name, looked at together when all are read."""
    keys: dict[str, DraftEntry] = field(default_factory=dict)


@dataclass(slots=True)
class RuleDraft:
    """A rule of a bridge, and the line it comes from."""

    rule: BridgeRule
    source: ConfLine


@dataclass(slots=True)
class BridgeDraft:
    """A bridge: its keys, and its topic rules."""

    line: ConfLine
    keys: dict[str, DraftEntry] = field(default_factory=dict)
    rules: list[RuleDraft] = field(default_factory=list)
    unretained: ConfLine | None = None
    """The line that forbids the remote to retain what goes out."""
    guards: list[ConfLine] = field(default_factory=list)
    """Lines that kept a stranger out or a secret in, and that have no equivalent here."""


class ImportDraft:
    """Everything gathered so far."""

    def __init__(self, folder: Path) -> None:
        """Relative paths are taken to be relative to *folder*: Mosquitto's own working folder is not known."""
        self._folder = folder
        self.sections: dict[str, dict[str, DraftEntry]] = {}
        self.default_listener = ListenerDraft(None)
        self.listeners: list[ListenerDraft] = []
        self.bridges: list[BridgeDraft] = []
        self.connections: dict[str, BridgeDraft] = {}
        """The first bridge of each name, as Mosquitto calls it."""
        self.bridge_names: set[str] = set()
        """As we call them."""
        self.is_per_listener = False
        self.allow_anonymous: ConfLine | None = None
        self.store: dict[str, ConfLine] = {}
        """Options about persistence by name, looked at together when all are read."""
        self.sizes: dict[str, ConfLine] = {}
        """Those about the size of packets, likewise."""
        self.guards: list[ConfLine] = []
        """Lines that kept somebody out and that have no equivalent here."""
        self.overridden: dict[ConfLine, ConfLine] = {}
        """Line -> the later one that holds in its place."""

    def put(self, section: str, key: str, value: Value, source: ConfLine | str) -> str:
        """Set a key of a section; its name. The last line wins, as in Mosquitto."""
        self.sections.setdefault(section, {})[key] = DraftEntry(value, source)
        return f"{section}.{key}"

    def discard(self, overridden: dict[ConfLine, ConfLine]) -> None:
        """Take back what *overridden* lines have done, where the later one does something else or nothing at all."""
        self.overridden = overridden
        self.guards = [line for line in self.guards if line not in overridden]
        for bridge in self.bridges:
            bridge.guards = [line for line in bridge.guards if line not in overridden]
            if bridge.unretained in overridden:
                bridge.unretained = None
        for keys in (*self.sections.values(), *(bridge.keys for bridge in self.bridges)):
            for key in [key for key, entry in keys.items() if entry.source in overridden]:
                del keys[key]

    def path(self, line: ConfLine) -> str:
        """The path that a line names, from the root. Raises ValueUnusable."""
        if not line.value or "\0" in line.value:
            raise ValueUnusable(f"{line.name} takes a path")
        return str((self._folder / line.value).absolute())

    def used_listeners(self) -> list[ListenerDraft]:
        """In the order of the file; the default one if it is used, or if there is no other."""
        default = self.default_listener
        if default.is_used or not self.listeners:
            if not default.is_used:
                default.host = "127.0.0.1"  # without any listener Mosquitto serves this machine alone
            return [default, *self.listeners]
        return self.listeners

    def value(self, section: str, key: str) -> Any:
        """What is set so far; None if nothing is."""
        entry = self.sections.get(section, {}).get(key)
        return None if entry is None else entry.value


@dataclass(slots=True)
class ConfContext:
    """Where in a file we are. Every file begins with the default listener and no bridge."""

    listener: ListenerDraft
    bridge: BridgeDraft | None = None


def within(section: str, key: str, number: int) -> int:
    """*number*, or the nearest that the key takes."""
    kind = KEYS[section][key].metadata["kind"]
    assert isinstance(kind, Integer)
    return min(max(number, kind.least), kind.most)
