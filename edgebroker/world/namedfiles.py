"""The files that settings name, all of them: what is wrong with each, at the line of the key that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgebroker.errors import StoreUnusable
from edgebroker.world.accessfiles import load_access
from edgebroker.world.doors.listeners import load_one
from edgebroker.world.httpaccess import load_http_access
from edgebroker.world.oldbridges import ADDED, has_bridges
from edgebroker.world.settings.problems import Problem, SettingsRefused
from edgebroker.world.settings.reading import text_of
from edgebroker.world.settings.settings import Settings
from edgebroker.world.store import data_folder
from edgebroker.world.tomllines import KeyLines

if TYPE_CHECKING:
    from edgebroker.world.doors.contexts import Tls

NO_TOPOLOGY: Final = "name a topology file; `edgebroker topology check` says whether a gateway would take it"


class _Naming:
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


def _of_added(folder: Path, added: Settings) -> _Naming:
    file = folder / ADDED
    text = "" if added.aside else text_of(file)  # no line rather than a wrong one: who is aside has no number
    return _Naming(str(file), text)


class NamedFiles:
    """Those of *settings*, which are read from *text*. Raises SettingsRefused with all that is wrong."""

    def __init__(self, settings: Settings, text: str, file: str) -> None:
        self.notes: list[str] = []
        """What a gateway would tell of them."""
        self.certificates: list[Tls | None] = []
        """The TLS of every listener."""
        self._settings = settings
        self._naming = _Naming(file, text)
        self._problems: list[Problem] = []
        for index, one in enumerate(settings.listeners):
            with self._named("listener", index):
                self.certificates.append(load_one(one))
        with self._named("access"):
            load_access(settings.access, self.notes.append)
        with self._named("http"):
            load_http_access(settings.http, self.notes.append)
        if settings.overlay.topology is not None:
            from edgebroker.world.peering.membership import load_membership  # who has peers pays for the overlay

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
        from edgebroker.world.bridging.added import load_added
        from edgebroker.world.bridging.kept import paused_in
        from edgebroker.world.bridging.planning import Planning

        added, paused = load_added(folder), paused_in(folder)
        plans = Planning(settings, identity="").plans(settings, added)
        plans.part({}, lambda one: one.paused or one.name in paused)
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
