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
from edgebroker.runtime.listeners.listeners import HOW_TO_LET_IN, has_way_in, load_one, no_way_in
from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.reading import read_settings_text
from edgebroker.runtime.settings.settings import Settings
from edgebroker.runtime.settings.toml import KeyLines

if TYPE_CHECKING:
    from edgebroker.runtime.listeners.tls import ListenerTls

NO_TOPOLOGY: Final = "name a topology file; `edgebroker topology check` says whether a gateway would take it"


class _ReferencingFile:
    """A file that names other files, with the lines of its keys."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = KeyLines(text)

    def placed(self, problem: Problem, section: str, index: int) -> Problem:
        """Returns *problem* of a named file as a problem of this one; the place in the named file becomes part of the
        reason.
        """
        key, reason, mend = problem.key, problem.reason, problem.mend
        if not key.startswith(f"{section}."):  # of a topology, whose sections have other names
            key, reason, mend = "overlay.topology", ": ".join(filter(None, (key, reason))), mend or NO_TOPOLOGY
        if problem.file:
            reason = str(Problem(problem.file, problem.line, "", reason))
        name = key.removeprefix(f"{section}.")
        # One of the two finds only the section: the first in `[listener]`, the second in `[[listener]]`.
        line = max(self._lines.line(section, index, name), self._lines.line(section, name))
        return Problem(self._file, line, key, reason, mend)


def _added_bridges_file(folder: Path, added: Settings) -> _ReferencingFile:
    file = folder / ADDED_FILE
    text = (
        "" if added.aside else read_settings_text(file)
    )  # without lines if an entry is invalid, because then the numbers of entries are wrong
    return _ReferencingFile(str(file), text)


class ReferencedFiles:
    """Reads all files that *settings* name. Raises SettingsRefused with all their problems. *text*: the settings file's
    own.
    """

    def __init__(self, settings: Settings, text: str, file: str) -> None:
        self.notes: list[str] = [str(warning) for warning in settings.warnings]
        """What the gateway would log about the files."""
        self.certificates: list[ListenerTls | None] = []
        """The TLS of each listener."""
        self._settings = settings
        self._referencing_file = _ReferencingFile(file, text)
        self._problems: list[Problem] = []
        closed = [
            listener.label
            for listener in settings.listeners
            if not has_way_in(listener, listener.admits_anonymous(), settings.access)
        ]
        if closed:
            self.notes += [no_way_in(", ".join(closed)), *HOW_TO_LET_IN]
        for index, item in enumerate(settings.listeners):
            with self._collect_problems("listener", index):
                self.certificates.append(load_one(item))
        with self._collect_problems("access"):
            load_access(settings.access, self.notes.append)
        with self._collect_problems("http"):
            load_http_access(settings.http, self.notes.append)
        if settings.overlay.topology is not None:
            from edgebroker.runtime.peers.membership import load_membership  # loaded only where there are peers

            with self._collect_problems("overlay"):
                load_membership(settings)
        self._read_bridges()
        if self._problems:
            raise SettingsRefused(sorted(self._problems, key=lambda item: (item.file != file, item.line)))

    @contextmanager
    def _collect_problems(self, section: str, index: int = 0) -> Iterator[None]:
        """Collects the problems raised inside as problems of this section, or of its entry *index*."""
        try:
            yield
        except SettingsRefused as refused:
            self._problems += [self._referencing_file.placed(item, section, index) for item in refused.problems]

    def _read_bridges(self) -> None:
        """Reads the files of the bridges of the settings and of those added while the gateway ran."""
        settings, folder = self._settings, self._data_folder()
        if not has_bridges(settings, folder):
            return
        from edgebroker.runtime.bridges.plan import BridgePlanner
        from edgebroker.runtime.bridges.state import load_added, paused_in

        added, paused = load_added(folder), paused_in(folder)
        plans = BridgePlanner(settings, identity="").plan_all(settings, added)
        plans.set_duplicates_aside({}, lambda item: item.paused or item.name in paused)
        for entry in plans.aside:
            referencing_file, bridges = self._referencing_file, settings.bridges
            if entry.settings not in bridges and folder is not None:
                referencing_file, bridges = _added_bridges_file(folder, added), added.bridges
            for problem in entry.problems:
                if entry.settings is not None:  # otherwise its line is known from parsing
                    problem = referencing_file.placed(problem, "bridge", bridges.index(entry.settings))
                self._problems.append(problem)

    def _data_folder(self) -> Path | None:
        """Returns the folder of added bridges; None if it cannot be read, which is noted, or if no gateway would use
        it.
        """
        folder = None
        try:
            folder = data_folder(self._settings)
            has_bridges(self._settings, folder)
        except OSError as error:  # it may be private to the service's user
            why = f"{folder} cannot be looked at: {error.strerror}"
            self.notes.append(f"bridges that were added are not checked: {why}")
            return None
        except StoreUnusable:
            return None
        return folder
