"""What each bridge has spent of its day's bytes, kept over restarts in a small file; and the clock on the wall."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from edgebridge.upstream.purse import Moment, Spent
from edgebroker.world.damaged import set_aside
from edgebroker.world.operatorlog import Level, OperatorLog
from edgebroker.world.privatefile import FileRefused, bytes_of, replace_private

SPENT: Final = "bridges-spent.json"
MINUTE_S: Final = 60
LATE_S: Final = 0.05
_YEAR: Final = 400  # more than it has days: with the day of the year behind it, days have an order


def moment(unix_s: float | None = None) -> Moment:
    """What a clock on the wall shows here, now or at *unix_s*."""
    # Not `localtime()`: it reads a coarser clock, which shows the minute before for up to 10 ms.
    now = time.localtime(time.time() if unix_s is None else unix_s)
    return Moment(now.tm_year * _YEAR + now.tm_yday, now.tm_hour * 60 + now.tm_min)


def next_minute_s() -> float:
    """Seconds until the clock shows another minute, and a little more: a timer may be early."""
    return MINUTE_S - time.time() % MINUTE_S + LATE_S


class Till:
    """By the name of the bridge. Without a folder nothing is kept. Trouble with the file is no trouble: it is written
    again when more is spent.
    """

    def __init__(self, folder: Path | None, notices: OperatorLog) -> None:
        self._file = None if folder is None else folder / SPENT
        self._known: dict[str, Spent] = {}
        if self._file is not None and self._file.exists():
            try:
                self._known = _read(self._file)
            except (FileRefused, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                text = f"what bridges spent today, in {self._file}, cannot be read: {error!r}; {set_aside(self._file)}"
                notices.tell(Level.WARNING, "bridges-forgotten", text)
        self._writing: asyncio.Task[None] | None = None
        self._is_stale = False

    def spent(self, name: str) -> Spent:
        """What the bridge had spent when it was last noted."""
        return self._known.get(name, Spent())

    def note(self, name: str, spent: Spent) -> None:
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
            with suppress(FileRefused):
                await asyncio.to_thread(replace_private, self._file, text)
        self._writing = None


def _read(file: Path) -> dict[str, Spent]:
    """What is there. Raises all kinds of errors if it makes no sense."""
    said: dict[str, Any] = json.loads(bytes_of(file))
    return {name: Spent(*(int(one[field]) for field in Spent._fields)) for name, one in said.items()}
