"""The damage of a journal that no operator has acknowledged yet, in a small file beside the segments."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from edgebroker.runtime.private_files import FileUnusable, read_own_json, replace_private

DAMAGE_FILE: Final = "damage.json"
PLACES_MAX: Final = 1_000
"""Places that the file keeps, as many as a recovery reports."""


class DamageNotice:
    """Keeps what recovery reported until an operator acknowledges it, over restarts.

    The gateway writes the file at its start, a command of the operator changes it at any time. What was acknowledged is
    remembered as long as recovery finds it, so that it does not warn again.
    """

    def __init__(self, folder: Path) -> None:
        """*folder*: that of the journal."""
        self._path = folder / DAMAGE_FILE
        self._lines: list[str] = []
        self.failure = ""
        """Why `record` could not write the file; "" if it could."""

    def record(self, found: Iterable[str]) -> None:
        """Adds what a recovery found. A file that cannot be written leaves `failure`, and the warning of this run."""
        places = list(found)
        open_places, acknowledged = self._read()
        still_found = [place for place in acknowledged if place in places]
        self._lines = _merged(open_places, (place for place in places if place not in still_found))
        if (self._lines, still_found) != (open_places, acknowledged):
            try:
                self._write(self._lines, still_found)
            except FileUnusable as error:
                self.failure = str(error)

    def add(self, found: Iterable[str]) -> None:
        """Adds what was found since. What was acknowledged stays so."""
        self.record([*self._read()[1], *found])

    def unacknowledged(self) -> list[str]:
        """Returns what a running gateway warns of. Reads the file only if there was something when it started."""
        if self._lines and not self.failure:
            self._lines = self._read()[0]
        return self._lines

    def read(self) -> list[str]:
        """Returns what is not acknowledged, by the file."""
        return self._read()[0]

    def acknowledge(self, found: Iterable[str] = ()) -> list[str]:
        """Ends the warnings. *found*: damage that no gateway has found at a start yet. Returns what is acknowledged
        now and was not before. Raises FileUnusable.
        """
        open_places, acknowledged = self._read()
        new = _merged(open_places, (place for place in found if place not in acknowledged))
        if new:
            self._write([], _merged(acknowledged, new))
        return new

    def _read(self) -> tuple[list[str], list[str]]:
        """Returns what is not acknowledged, and what is."""
        try:
            if not self._path.exists():
                return [], []
            fields = read_own_json(self._path)
            return [str(place) for place in fields["damage"]], [str(place) for place in fields["acknowledged"]]
        except (OSError, ValueError, TypeError, KeyError, FileUnusable):
            return [f"{DAMAGE_FILE} cannot be read: which damage it names is not known"], []

    def _write(self, open_places: list[str], acknowledged: list[str]) -> None:
        """Replaces the file, owned by who owns the folder: an operator may be another user than the gateway."""
        fields = {"damage": open_places, "acknowledged": acknowledged}
        is_new = not self._path.exists()
        replace_private(self._path, json.dumps(fields, ensure_ascii=False, indent=1) + "\n")
        if is_new:
            with suppress(OSError):
                owner = self._path.parent.stat()
                os.chown(self._path, owner.st_uid, owner.st_gid)


def _merged(places: list[str], more: Iterable[str]) -> list[str]:
    """Returns both without repetitions, at most PLACES_MAX."""
    return list(dict.fromkeys([*places, *more]))[:PLACES_MAX]
