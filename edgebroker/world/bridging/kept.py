"""What must be known of bridges after a restart and stands in no settings: a file in the gateway's data folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from edgebroker.world.damaged import set_aside
from edgebroker.world.oldbridges import KEPT
from edgebroker.world.operatorlog import Level, OperatorLog
from edgebroker.world.privatefile import FileRefused, read_private, replace_private


def paused_in(folder: Path | None) -> frozenset[str]:
    """The bridges that an operator has paused, as far as that can be read; nothing is changed."""
    try:
        known = {} if folder is None else json.loads(read_private(folder / KEPT))
        return frozenset(name for name, one in known.items() if one.get("paused") is True)
    except (FileRefused, OSError, ValueError, AttributeError):
        return frozenset()


class Kept:
    """By the name of the bridge. Without a folder it lasts as long as the gateway runs.

    It is written soon, in a thread, once for all that changed meanwhile: a card may take half a second each time. What
    has to be on disk before anything else happens waits for that alone: the answer that a bridge is paused (`settled`),
    and what the remote is asked for (`is_on_disk`). Damage is set aside, and told.
    """

    def __init__(self, folder: Path | None, notices: OperatorLog) -> None:
        self._file = None if folder is None else folder / KEPT
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

    def asked(self, name: str) -> frozenset[str]:
        """What the remote was asked for, and may send."""
        return self._asked.get(name, frozenset())

    def pause(self, name: str, is_paused: bool) -> None:
        """Let the bridge rest, or no longer, after a restart too."""
        if is_paused != self.is_paused(name):
            (self._paused.add if is_paused else self._paused.discard)(name)
            self._save()

    def ask(self, name: str, texts: frozenset[str]) -> None:
        """The remote is to be asked for *texts*, once `is_on_disk`, and no longer for anything else."""
        before = self.asked(name)
        if texts != before:
            self._asked[name] = texts
            if not texts < before:
                self._needed[name] = self._changes + 1
            self._save()

    def is_on_disk(self, name: str) -> bool:
        """Whether the remote may hear what it is asked for; or the disk takes nothing, and an operator knows."""
        return self._needed.get(name, 0) <= self._written

    def when_written(self, then: Callable[[], None]) -> None:
        """Call *then* once, when what changed so far is on disk."""
        self._waiting.append(then)

    def knows_bridges(self, name: str) -> bool:
        """Whether the remote greeted us last when we had said that this is a bridge, in version 3.1.1."""
        return name in self._knowing

    def met_as(self, name: str) -> str | None:
        """The client identifier by which the remote greeted us last, if that is known."""
        return self._met.get(name)

    def meet(self, name: str, client_id: str, knows_bridges: bool) -> None:
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
            if self.asked(name):
                text = f"its remote was not told, and may go on collecting {', '.join(sorted(self.asked(name)))} for it"
                self._notices.tell(Level.WARNING, "bridge-left-behind", text, bridge=name)
            self.forget(name)

    async def settled(self) -> None:
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
        except (FileRefused, ValueError, AttributeError, TypeError) as error:
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
                "asked": sorted(self.asked(name)),
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
        except (FileRefused, OSError) as error:
            return str(error)
        return ""

    def _told(self, trouble: str) -> None:
        if trouble and self._file is not None:  # what is known holds as long as the gateway runs
            self._complain(self._file, f"cannot be written, so it is forgotten at a restart: {trouble}")

    def _complain(self, file: Path, why: str) -> None:
        self._notices.tell(Level.WARNING, "bridges-forgotten", f"what is known of bridges in {file} {why}")
