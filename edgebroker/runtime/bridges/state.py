"""State of bridges that survives a restart, in files of the data folder.

`bridges.json` has pauses and subscriptions at the remote, `bridges-spent.json` the bytes spent today, and
`bridges.toml` the bridges that an operator added while the gateway ran.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from edgebridge.bridge.budget import BudgetRecord, LocalTime
from edgebridge.wire.dialect import V311_BRIDGE
from edgebroker.runtime.leftover_bridges import ADDED_FILE, STATE_FILE
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.private_files import FileUnusable, read_own_json, replace_private, set_aside
from edgebroker.runtime.settings import SECTIONS, Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.problems import InvalidEntry
from edgebroker.runtime.settings.toml import toml_value


def paused_in(folder: Path | None) -> frozenset[str]:
    """Returns the bridges that an operator has paused, as far as the file can be read; changes nothing."""
    try:
        known = {} if folder is None else read_own_json(folder / STATE_FILE)
        return frozenset(name for name, one in known.items() if one.get("paused") is True)
    except (FileUnusable, OSError, ValueError, AttributeError):
        return frozenset()


class BridgeStateFile:
    """The state of all bridges, by name of the bridge. Without a folder it lasts as long as the process.

    A thread writes the file soon after a change, once for all changes meanwhile: a card may take half a second for each
    write. Two things wait for the write: the answer that a bridge is paused (`wait_written`), and packets that the
    remote must not receive before (`is_on_disk`). A damaged file is set aside and logged.
    """

    def __init__(self, folder: Path | None, operator_log: OperatorLog) -> None:
        self._file = None if folder is None else folder / STATE_FILE
        self._operator_log = operator_log
        self._paused: set[str] = set()
        self._subscriptions: dict[str, frozenset[str]] = {}
        self._greeted_versions: dict[str, str] = {}
        self._client_ids: dict[str, str] = {}
        self._writing: asyncio.Task[None] | None = None
        self._changes = 0
        self._written = 0  # how many of the changes are written
        self._required: dict[str, int] = {}  # by bridge: the change that must be on disk before it sends anything
        self._on_written: list[Callable[[], None]] = []
        if self._file is not None and self._file.exists():
            self._load(self._file)

    def is_paused(self, name: str) -> bool:
        """Whether an operator paused the bridge."""
        return name in self._paused

    def subscriptions_at_remote(self, name: str) -> frozenset[str]:
        """Returns the topic filters that the bridge may have subscribed at the remote."""
        return self._subscriptions.get(name, frozenset())

    def set_paused(self, name: str, is_paused: bool) -> None:
        """Pauses the bridge or resumes it, also for later runs."""
        if is_paused != self.is_paused(name):
            (self._paused.add if is_paused else self._paused.discard)(name)
            self._save()

    def set_subscriptions(self, name: str, texts: frozenset[str]) -> None:
        """Records that the remote receives subscriptions for *texts*, once `is_on_disk`, and for nothing else."""
        before = self.subscriptions_at_remote(name)
        if texts != before:
            self._subscriptions[name] = texts
            if not texts < before:
                self._required[name] = self._changes + 1
            self._save()

    def is_on_disk(self, name: str) -> bool:
        """Whether the state that the next packets depend on is written, or its write failed and was logged."""
        return self._required.get(name, 0) <= self._written

    def on_written(self, callback: Callable[[], None]) -> None:
        """Calls *callback* once, when all changes so far are written."""
        self._on_written.append(callback)

    def greeted_version(self, name: str) -> str:
        """Returns the version (`Dialect.version`) of the CONNECT that the remote accepted last; empty: unknown."""
        return self._greeted_versions.get(name, "")

    def client_id_at_remote(self, name: str) -> str | None:
        """Returns the client identifier that the remote accepted last; None: unknown."""
        return self._client_ids.get(name)

    def record_greeting(self, name: str, client_id: str, version: str) -> None:
        """Records that the remote accepted CONNECT of *client_id*, in *version*.

        For a new identifier nothing is sent until that is on disk: after a crash the next run would otherwise end the
        session that the remote keeps for it.
        """
        before = self._client_ids.get(name), self.greeted_version(name)
        if before != (client_id, version):
            if before[0] != client_id:
                self._required[name] = self._changes + 1
            self._client_ids[name] = client_id
            self._greeted_versions[name] = version
            self._save()

    def forget(self, name: str) -> None:
        """Forgets the removed bridge *name*."""
        if any(
            name in entries for entries in (self._paused, self._subscriptions, self._greeted_versions, self._client_ids)
        ):
            self._paused.discard(name)
            self._greeted_versions.pop(name, None)
            self._subscriptions.pop(name, None)
            self._client_ids.pop(name, None)
            self._required.pop(name, None)
            self._save()

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets all bridges except *names*: the others left the settings while the gateway was off."""
        for name in sorted(
            self._paused.union(self._subscriptions, self._greeted_versions, self._client_ids).difference(names)
        ):
            if self.subscriptions_at_remote(name):
                text = (
                    "its remote was not told, and may go on collecting "
                    f"{', '.join(sorted(self.subscriptions_at_remote(name)))} for it"
                )
                self._operator_log.log(Level.WARNING, "bridge-left-behind", text, bridge=name)
            self.forget(name)

    async def wait_written(self) -> None:
        """Returns when all changes are written."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    def _load(self, file: Path) -> None:
        try:
            for name, entries in read_own_json(file).items():
                if entries.get("paused") is True:
                    self._paused.add(name)
                version = V311_BRIDGE.version if entries.get("private") is True else entries.get("greeted")
                if isinstance(version, str):  # "private" is how earlier releases wrote it
                    self._greeted_versions[name] = version
                if isinstance(client_id := entries.get("client_id"), str):
                    self._client_ids[name] = client_id
                self._subscriptions[name] = frozenset(map(str, entries.get("asked", ())))
        except (FileUnusable, ValueError, AttributeError, TypeError) as error:
            self._warn(file, f"cannot be read, and is begun anew: {error}; {set_aside(file)}")

    def _save(self) -> None:
        self._changes += 1
        if self._file is None:
            self._written = self._changes
        elif self._writing is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # before the loop runs
                self._log_write_error(self._write(self._file, self._text()))
                self._written = self._changes
            else:
                self._writing = loop.create_task(self._write_until_current(self._file))

    async def _write_until_current(self, file: Path) -> None:
        while self._written < self._changes:
            changes, text = self._changes, self._text()
            self._log_write_error(await asyncio.to_thread(self._write, file, text))
            self._written = changes
            waiting, self._on_written = self._on_written, []
            for callback in waiting:
                callback()
        self._writing = None

    def _text(self) -> str:
        """Returns the contents of the file; empty: there is to be no file."""
        entries: dict[str, Any] = {
            name: {
                "paused": name in self._paused,
                "asked": sorted(self.subscriptions_at_remote(name)),
                **({"greeted": self._greeted_versions[name]} if name in self._greeted_versions else {}),
                **({"client_id": self._client_ids[name]} if name in self._client_ids else {}),
            }
            for name in sorted(self._paused.union(self._subscriptions, self._greeted_versions, self._client_ids))
        }
        return json.dumps(entries, indent=1) + "\n" if entries else ""

    @staticmethod
    def _write(file: Path, text: str) -> str:
        """Writes the file; called in a thread. Returns the error, empty if there is none."""
        try:
            if text:
                replace_private(file, text)
            else:
                file.unlink(missing_ok=True)
        except (FileUnusable, OSError) as error:
            return str(error)
        return ""

    def _log_write_error(self, error: str) -> None:
        if error and self._file is not None:  # the state still holds as long as the gateway runs
            self._warn(self._file, f"cannot be written, so it is forgotten at a restart: {error}")

    def _warn(self, file: Path, cause: str) -> None:
        self._operator_log.log(Level.WARNING, "bridges-forgotten", f"what is known of bridges in {file} {cause}")


SPENT_FILE: Final = "bridges-spent.json"
MINUTE_S: Final = 60
LATE_S: Final = 0.05
"""Margin after the minute: a timer may fire early."""
_YEAR: Final = 400  # more than the days of a year, so that year and day of the year give a number that increases


def local_time(unix_s: float | None = None) -> LocalTime:
    """Returns the local time of day and the number of the day, now or at *unix_s*."""
    # Not `localtime()`: it reads a coarser clock, which shows the minute before for up to 10 ms.
    now = time.localtime(time.time() if unix_s is None else unix_s)
    return LocalTime(now.tm_year * _YEAR + now.tm_yday, now.tm_hour * 60 + now.tm_min)


def next_minute_s() -> float:
    """Returns the seconds until shortly after the next minute begins."""
    return MINUTE_S - time.time() % MINUTE_S + LATE_S


class BudgetStore:
    """Keeps how much of its daily byte budget each bridge has spent. Without a folder nothing is saved.

    A failed write is not an error: the next change writes the file again.
    """

    def __init__(self, folder: Path | None, operator_log: OperatorLog) -> None:
        self._file = None if folder is None else folder / SPENT_FILE
        self._records: dict[str, BudgetRecord] = {}
        if self._file is not None and self._file.exists():
            try:
                self._records = _read(self._file)
            except (FileUnusable, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                text = f"what bridges spent today, in {self._file}, cannot be read: {error!r}; {set_aside(self._file)}"
                operator_log.log(Level.WARNING, "bridges-forgotten", text)
        self._writing: asyncio.Task[None] | None = None
        self._is_unsaved = False

    def spent(self, name: str) -> BudgetRecord:
        """Returns the last record of the bridge *name*."""
        return self._records.get(name, BudgetRecord())

    def record(self, name: str, spent: BudgetRecord) -> None:
        """Saves *spent* soon, in a thread: a card may be slow."""
        self._records[name] = spent
        self._is_unsaved = True
        if self._writing is None and self._file is not None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def forget(self, name: str) -> None:
        """Forgets the removed bridge *name*."""
        if self._records.pop(name, None) is not None:
            self._is_unsaved = True

    async def close(self) -> None:
        """Writes what is not written yet."""
        if self._writing is not None:
            await self._writing
        await self._write()

    async def _write(self) -> None:
        while self._is_unsaved and self._file is not None:
            self._is_unsaved = False
            text = json.dumps({name: spent._asdict() for name, spent in self._records.items()}) + "\n"
            with suppress(FileUnusable):
                await asyncio.to_thread(replace_private, self._file, text)
        self._writing = None


def _read(file: Path) -> dict[str, BudgetRecord]:
    """Reads the file. Raises ValueError, TypeError, KeyError and others if it is damaged."""
    entries: dict[str, Any] = read_own_json(file)
    return {
        name: BudgetRecord(*(int(entry[field]) for field in BudgetRecord._fields)) for name, entry in entries.items()
    }


HEAD = "# Written by the gateway: `edgebroker bridge add` and `edgebroker bridge remove` change it.\n"


def load_added(folder: Path | None) -> Settings:
    """Reads the added bridges. `aside` of the result has the invalid entries; one without a name if nothing can be
    read.
    """
    file = None if folder is None else folder / ADDED_FILE
    try:
        return Settings.load(file, True, is_own=True) if file is not None and file.exists() else Settings.defaults()
    except OSError as error:
        problem = Problem(str(file), 0, "", f"cannot be looked at: {error.strerror}")
        return replace(Settings.defaults(), aside=(InvalidEntry("", (problem,)),))
    except SettingsRefused as refused:
        return replace(Settings.defaults(), aside=(InvalidEntry("", tuple(refused.problems)),))


def check_added(bridges: Sequence[BridgeSettings]) -> None:
    """Raises SettingsRefused if *bridges* are more than `load_added` takes from one file."""
    most = SECTIONS["bridge"].tables_max
    if len(bridges) > most:
        problem = Problem(ADDED_FILE, 0, "bridge", f"has {len(bridges)} entries", f"add at most {most}")
        raise SettingsRefused([problem])


def save_added(folder: Path, bridges: Sequence[BridgeSettings]) -> None:
    """Saves *bridges* for later runs. Raises FileUnusable."""
    file = folder / ADDED_FILE
    if bridges:
        replace_private(file, added_text(bridges))
    else:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise FileUnusable(f"{file}: cannot be deleted: {error.strerror}") from error


def added_text(bridges: Sequence[BridgeSettings]) -> str:
    """Returns *bridges* in the format that `load_added` reads."""
    return HEAD + "\n".join(line for one in bridges for line in _lines(one)) + "\n"


def _lines(bridge: BridgeSettings) -> Iterator[str]:
    section = SECTIONS["bridge"]
    yield "[[bridge]]"
    for name, value in section.shown(bridge).items():
        if value is not None and getattr(bridge, name) != section.keys[name].default:
            yield f"{name} = {toml_value(value)}"
