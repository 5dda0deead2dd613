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
from edgebroker.runtime.leftover_bridges import ADDED_FILE, STATE_FILE
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.private_files import FileUnusable, read_bytes, read_private, replace_private, set_aside
from edgebroker.runtime.settings import SECTIONS, Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.problems import InvalidEntry
from edgebroker.runtime.settings.toml import toml_value


def paused_in(folder: Path | None) -> frozenset[str]:
    """The bridges that an operator has paused, as far as that can be read; nothing is changed."""
    try:
        known = {} if folder is None else json.loads(read_private(folder / STATE_FILE))
        return frozenset(name for name, one in known.items() if one.get("paused") is True)
    except (FileUnusable, OSError, ValueError, AttributeError):
        return frozenset()


class BridgeStateFile:
    """By the name of the bridge. Without a folder it lasts as long as the gateway runs.

    It is written soon, in a thread, once for all that changed meanwhile: a card may take half a second each time. What
    has to be on disk before anything else happens waits for that alone: the answer that a bridge is paused (`settled`),
    and what the remote is asked for (`is_on_disk`). Damage is set aside, and told.
    """

    def __init__(self, folder: Path | None, notices: OperatorLog) -> None:
        self._file = None if folder is None else folder / STATE_FILE
        self._notices = notices
        self._paused: set[str] = set()
        self._asked: dict[str, frozenset[str]] = {}
        self._knowing: set[str] = set()
        self._met: dict[str, str] = {}
        self._writing: asyncio.Task[None] | None = None
        self._changes = 0
        self._written = 0  # of them
        self._needed: dict[str, int] = {}  # by bridge: the change that must be on disk before it asks for anything
        self._waiting: list[Callable[[], None]] = []
        if self._file is not None and self._file.exists():
            self._load(self._file)

    def is_paused(self, name: str) -> bool:
        """Whether an operator wants it so."""
        return name in self._paused

    def subscriptions_at_remote(self, name: str) -> frozenset[str]:
        """What the remote was asked for, and may send."""
        return self._asked.get(name, frozenset())

    def set_paused(self, name: str, is_paused: bool) -> None:
        """Let the bridge rest, or no longer, after a restart too."""
        if is_paused != self.is_paused(name):
            (self._paused.add if is_paused else self._paused.discard)(name)
            self._save()

    def set_subscriptions(self, name: str, texts: frozenset[str]) -> None:
        """The remote is to be asked for *texts*, once `is_on_disk`, and no longer for anything else."""
        before = self.subscriptions_at_remote(name)
        if texts != before:
            self._asked[name] = texts
            if not texts < before:
                self._needed[name] = self._changes + 1
            self._save()

    def is_on_disk(self, name: str) -> bool:
        """Whether the remote may hear what it is asked for; or the disk takes nothing, and an operator knows."""
        return self._needed.get(name, 0) <= self._written

    def on_written(self, then: Callable[[], None]) -> None:
        """Call *then* once, when what changed so far is on disk."""
        self._waiting.append(then)

    def knows_bridges(self, name: str) -> bool:
        """Whether the remote greeted us last when we had said that this is a bridge, in version 3.1.1."""
        return name in self._knowing

    def client_id_at_remote(self, name: str) -> str | None:
        """The client identifier by which the remote greeted us last, if that is known."""
        return self._met.get(name)

    def record_greeting(self, name: str, client_id: str, knows_bridges: bool) -> None:
        """It has greeted us, as *client_id*. If that is another one than before, nothing is said until it is on disk: a
        crash would have us end what the remote keeps for us from then on.
        """
        before = self._met.get(name), self.knows_bridges(name)
        if before != (client_id, knows_bridges):
            if before[0] != client_id:
                self._needed[name] = self._changes + 1
            self._met[name] = client_id
            (self._knowing.add if knows_bridges else self._knowing.discard)(name)
            self._save()

    def forget(self, name: str) -> None:
        """The bridge is no more."""
        if any(name in known for known in (self._paused, self._asked, self._knowing, self._met)):
            self._paused.discard(name)
            self._knowing.discard(name)
            self._asked.pop(name, None)
            self._met.pop(name, None)
            self._needed.pop(name, None)
            self._save()

    def keep_only(self, names: Collection[str]) -> None:
        """There are no other bridges: others left the settings while the gateway was off."""
        for name in sorted(self._paused.union(self._asked, self._knowing, self._met).difference(names)):
            if self.subscriptions_at_remote(name):
                text = (
                    "its remote was not told, and may go on collecting "
                    f"{', '.join(sorted(self.subscriptions_at_remote(name)))} for it"
                )
                self._notices.log(Level.WARNING, "bridge-left-behind", text, bridge=name)
            self.forget(name)

    async def wait_written(self) -> None:
        """Return when all is written."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    def _load(self, file: Path) -> None:
        try:
            for name, known in json.loads(read_private(file)).items():
                if known.get("paused") is True:
                    self._paused.add(name)
                if known.get("private") is True:
                    self._knowing.add(name)
                if isinstance(client_id := known.get("client_id"), str):
                    self._met[name] = client_id
                self._asked[name] = frozenset(map(str, known.get("asked", ())))
        except (FileUnusable, ValueError, AttributeError, TypeError) as error:
            self._complain(file, f"cannot be read, and is begun anew: {error}; {set_aside(file)}")

    def _save(self) -> None:
        self._changes += 1
        if self._file is None:
            self._written = self._changes
        elif self._writing is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # before the gateway runs
                self._told(self._write(self._file, self._text()))
                self._written = self._changes
            else:
                self._writing = loop.create_task(self._write_on(self._file))

    async def _write_on(self, file: Path) -> None:
        while self._written < self._changes:
            changes, text = self._changes, self._text()
            self._told(await asyncio.to_thread(self._write, file, text))
            self._written = changes
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()
        self._writing = None

    def _text(self) -> str:
        """What is to be in the file from now on; empty: no file."""
        known: dict[str, Any] = {
            name: {
                "paused": name in self._paused,
                "asked": sorted(self.subscriptions_at_remote(name)),
                **({"private": True} if name in self._knowing else {}),
                **({"client_id": self._met[name]} if name in self._met else {}),
            }
            for name in sorted(self._paused | self._asked.keys() | self._knowing | self._met.keys())
        }
        return json.dumps(known, indent=1) + "\n" if known else ""

    @staticmethod
    def _write(file: Path, text: str) -> str:
        """Why that is impossible, if it is; in any thread."""
        try:
            if text:
                replace_private(file, text)
            else:
                file.unlink(missing_ok=True)
        except (FileUnusable, OSError) as error:
            return str(error)
        return ""

    def _told(self, trouble: str) -> None:
        if trouble and self._file is not None:  # what is known holds as long as the gateway runs
            self._complain(self._file, f"cannot be written, so it is forgotten at a restart: {trouble}")

    def _complain(self, file: Path, why: str) -> None:
        self._notices.log(Level.WARNING, "bridges-forgotten", f"what is known of bridges in {file} {why}")


SPENT_FILE: Final = "bridges-spent.json"
MINUTE_S: Final = 60
LATE_S: Final = 0.05
_YEAR: Final = 400  # more than it has days: with the day of the year behind it, days have an order


def local_time(unix_s: float | None = None) -> LocalTime:
    """What a clock on the wall shows here, now or at *unix_s*."""
    # Not `localtime()`: it reads a coarser clock, which shows the minute before for up to 10 ms.
    now = time.localtime(time.time() if unix_s is None else unix_s)
    return LocalTime(now.tm_year * _YEAR + now.tm_yday, now.tm_hour * 60 + now.tm_min)


def next_minute_s() -> float:
    """Seconds until the clock shows another minute, and a little more: a timer may be early."""
    return MINUTE_S - time.time() % MINUTE_S + LATE_S


class BudgetStore:
    """By the name of the bridge. Without a folder nothing is kept. Trouble with the file is no trouble: it is written
    again when more is spent.
    """

    def __init__(self, folder: Path | None, notices: OperatorLog) -> None:
        self._file = None if folder is None else folder / SPENT_FILE
        self._known: dict[str, BudgetRecord] = {}
        if self._file is not None and self._file.exists():
            try:
                self._known = _read(self._file)
            except (FileUnusable, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                text = f"what bridges spent today, in {self._file}, cannot be read: {error!r}; {set_aside(self._file)}"
                notices.log(Level.WARNING, "bridges-forgotten", text)
        self._writing: asyncio.Task[None] | None = None
        self._is_stale = False

    def spent(self, name: str) -> BudgetRecord:
        """What the bridge had spent when it was last noted."""
        return self._known.get(name, BudgetRecord())

    def record(self, name: str, spent: BudgetRecord) -> None:
        """Keep it, soon: a card may take its time to write, and nobody waits for it."""
        self._known[name] = spent
        self._is_stale = True
        if self._writing is None and self._file is not None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def forget(self, name: str) -> None:
        """The bridge is no more."""
        if self._known.pop(name, None) is not None:
            self._is_stale = True

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._writing is not None:
            await self._writing
        await self._write()

    async def _write(self) -> None:
        while self._is_stale and self._file is not None:
            self._is_stale = False
            text = json.dumps({name: spent._asdict() for name, spent in self._known.items()}) + "\n"
            with suppress(FileUnusable):
                await asyncio.to_thread(replace_private, self._file, text)
        self._writing = None


def _read(file: Path) -> dict[str, BudgetRecord]:
    """What is there. Raises all kinds of errors if it makes no sense."""
    said: dict[str, Any] = json.loads(read_bytes(file))
    return {name: BudgetRecord(*(int(one[field]) for field in BudgetRecord._fields)) for name, one in said.items()}


HEAD = "# Written by the gateway: `edgebroker bridge add` and `edgebroker bridge remove` change it.\n"


def load_added(folder: Path | None) -> Settings:
    """What is there: bridges, and in `aside` those that cannot be used; one without a name if nothing can be read."""
    file = None if folder is None else folder / ADDED_FILE
    try:
        return Settings.load(file, True, is_own=True) if file is not None and file.exists() else Settings.defaults()
    except OSError as error:
        problem = Problem(str(file), 0, "", f"cannot be looked at: {error.strerror}")
        return replace(Settings.defaults(), aside=(InvalidEntry("", (problem,)),))
    except SettingsRefused as refused:
        return replace(Settings.defaults(), aside=(InvalidEntry("", tuple(refused.problems)),))


def check_added(folder: Path, bridges: Sequence[BridgeSettings]) -> None:
    """See that a file of *bridges* is one that is read while clients wait. Raises SettingsRefused."""
    Settings.parse(added_text(bridges), str(folder / ADDED_FILE), folder, apart=True)


def save_added(folder: Path, bridges: Sequence[BridgeSettings]) -> None:
    """Let *bridges* be there after a restart too. Raises FileRefused."""
    file = folder / ADDED_FILE
    if bridges:
        replace_private(file, added_text(bridges))
    else:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise FileUnusable(f"{file}: cannot be deleted: {error.strerror}") from error


def added_text(bridges: Sequence[BridgeSettings]) -> str:
    """The file, as `load_added` reads it."""
    return HEAD + "\n".join(line for one in bridges for line in _lines(one)) + "\n"


def _lines(bridge: BridgeSettings) -> Iterator[str]:
    section = SECTIONS["bridge"]
    yield "[[bridge]]"
    for name, value in section.shown(bridge).items():
        if value is not None and getattr(bridge, name) != section.keys[name].default:
            yield f"{name} = {toml_value(value)}"
