"""Checks every file that the settings name, and reports each problem at the line of the key that names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgebroker.errors import StoreUnusable
from edgebroker.runtime.access_files import load_access
from edgebroker.runtime.http.auth import load_http_access
from edgebroker.runtime.journal.store import data_folder
from edgebroker.runtime.leftover_bridges import ADDED_FILE, has_bridges
from edgebroker.runtime.listeners.listeners import load_one
from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.reading import read_settings_text
from edgebroker.runtime.settings.settings import Settings
from edgebroker.runtime.settings.toml import KeyLines

if TYPE_CHECKING:
    from edgebroker.runtime.listeners.tls import ListenerTls

NO_TOPOLOGY: Final = "name a topology file; `edgebroker topology check` says whether a gateway would take it"


class _ReferencingFile:
    """A file that names others, and where."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = KeyLines(text)

    def placed(self, problem: Problem, section: str, index: int) -> Problem:
        """What is wrong with a file, or in it, as a problem of this one: its own place goes into the reason."""
        key, reason, mend = problem.key, problem.reason, problem.mend
        if not key.startswith(f"{section}."):  # of a topology, which has sections of its own
            key, reason, mend = "overlay.topology", ": ".join(filter(None, (key, reason))), mend or NO_TOPOLOGY
        if problem.file:
            reason = str(Problem(problem.file, problem.line, "", reason))
        name = key.removeprefix(f"{section}.")
        # One of the two finds no more than the section: the first in `[listener]`, the second in `[[listener]]`.
        line = max(self._lines.line(section, index, name), self._lines.line(section, name))
        return Problem(self._file, line, key, reason, mend)


def _of_added(folder: Path, added: Settings) -> _ReferencingFile:
    file = folder / ADDED_FILE
    text = (
        "" if added.aside else read_settings_text(file)
    )  # no line rather than a wrong one: who is aside has no number
    return _ReferencingFile(str(file), text)


class ReferencedFiles:
    """Those of *settings*, which are read from *text*. Raises SettingsRefused with all that is wrong."""

    def __init__(self, settings: Settings, text: str, file: str) -> None:
        self.notes: list[str] = []
        """What a gateway would tell of them."""
        self.certificates: list[ListenerTls | None] = []
        """The TLS of every listener."""
        self._settings = settings
        self._naming = _ReferencingFile(file, text)
        self._problems: list[Problem] = []
        for index, one in enumerate(settings.listeners):
            with self._named("listener", index):
                self.certificates.append(load_one(one))
        with self._named("access"):
            load_access(settings.access, self.notes.append)
        with self._named("http"):
            load_http_access(settings.http, self.notes.append)
        if settings.overlay.topology is not None:
            from edgebroker.runtime.peers.membership import load_membership  # who has peers pays for the overlay

            with self._named("overlay"):
                load_membership(settings)
        self._read_bridges()
        if self._problems:
            raise SettingsRefused(sorted(self._problems, key=lambda one: (one.file != file, one.line)))

    @contextmanager
    def _named(self, section: str, index: int = 0) -> Iterator[None]:
        """What is refused inside was named by this section, or by that one of several."""
        try:
            yield
        except SettingsRefused as refused:
            self._problems += [self._naming.placed(one, section, index) for one in refused.problems]

    def _read_bridges(self) -> None:
        """Those of the settings, and those that were added while the gateway ran."""
        settings, folder = self._settings, self._data_folder()
        if not has_bridges(settings, folder):
            return
        from edgebroker.runtime.bridges.plan import BridgePlanner
        from edgebroker.runtime.bridges.state import load_added, paused_in

        added, paused = load_added(folder), paused_in(folder)
        plans = BridgePlanner(settings, identity="").plan_all(settings, added)
        plans.set_duplicates_aside({}, lambda one: one.paused or one.name in paused)
        for aside in plans.aside:
            naming, bridges = self._naming, settings.bridges
            if aside.settings not in bridges and folder is not None:
                naming, bridges = _of_added(folder, added), added.bridges
            for problem in aside.problems:
                if aside.settings is not None:  # else it has its line, from who read the file
                    problem = naming.placed(problem, "bridge", bridges.index(aside.settings))
                self._problems.append(problem)

    def _data_folder(self) -> Path | None:
        """Where bridges may be that were added; None if nobody can look, which is told, or no gateway finds any."""
        folder = None
        try:
            folder = data_folder(self._settings)
            has_bridges(self._settings, folder)
        except OSError as error:  # it may be for the service's user alone
            why = f"{folder} cannot be looked at: {error.strerror}"
            self.notes.append(f"bridges that were added are not checked: {why}")
            return None
        except StoreUnusable:
            return None
        return folder
