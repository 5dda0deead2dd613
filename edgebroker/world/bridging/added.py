"""Bridges that were added while the gateway ran: a settings file of their own, in the gateway's data folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from edgebroker.world.oldbridges import ADDED
from edgebroker.world.privatefile import FileRefused, replace_private
from edgebroker.world.settings import SECTIONS, Problem, Settings, SettingsRefused
from edgebroker.world.settings.aside import Aside
from edgebroker.world.settings.bridge import BridgeSettings
from edgebroker.world.tomlvalue import toml_value

HEAD = "# Written by the gateway: `edgebroker bridge add` and `edgebroker bridge remove` change it.\n"


def load_added(folder: Path | None) -> Settings:
    """What is there: bridges, and in `aside` those that cannot be used; one without a name if nothing can be read."""
    file = None if folder is None else folder / ADDED
    try:
        return Settings.load(file, True, is_own=True) if file is not None and file.exists() else Settings.defaults()
    except OSError as error:
        problem = Problem(str(file), 0, "", f"cannot be looked at: {error.strerror}")
        return replace(Settings.defaults(), aside=(Aside("", (problem,)),))
    except SettingsRefused as refused:
        return replace(Settings.defaults(), aside=(Aside("", tuple(refused.problems)),))


def check_added(folder: Path, bridges: Sequence[BridgeSettings]) -> None:
    """See that a file of *bridges* is one that is read while clients wait. Raises SettingsRefused."""
    Settings.parse(added_text(bridges), str(folder / ADDED), folder, apart=True)


def save_added(folder: Path, bridges: Sequence[BridgeSettings]) -> None:
    """Let *bridges* be there after a restart too. Raises FileRefused."""
    file = folder / ADDED
    if bridges:
        replace_private(file, added_text(bridges))
    else:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise FileRefused(f"{file}: cannot be deleted: {error.strerror}") from error


def added_text(bridges: Sequence[BridgeSettings]) -> str:
    """The file, as `load_added` reads it."""
    return HEAD + "\n".join(line for one in bridges for line in _lines(one)) + "\n"


def _lines(bridge: BridgeSettings) -> Iterator[str]:
    section = SECTIONS["bridge"]
    yield "[[bridge]]"
    for name, value in section.shown(bridge).items():
        if value is not None and getattr(bridge, name) != section.keys[name].default:
            yield f"{name} = {toml_value(value)}"
