"""The publishers that were moved because a plan said so, kept over restarts: a small JSON file in the data folder,
written in a worker thread. Without a data folder they are in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

from edgebroker.runtime.private_files import FileUnusable, read_own_json, replace_private, set_aside

HISTORY_FILE: Final = "placements.json"
"""In the data folder. It may be deleted at any time while the gateway is off."""
HISTORY_MAX: Final = 200
"""Moves that are remembered, 40 KiB; older ones are forgotten."""


class AppliedMove(NamedTuple):
    """A client that was sent to another gateway because a plan said so."""

    client: str
    gateway: str
    """To which it was sent."""
    plan: str
    """Which plan it was; moves with the same text belong together."""
    unix_s: int
    way: str
    """How it was told, as in metrics: `use_another_server` or `closed`."""
    delay_ms: tuple[float, float]
    """The mean time from it to its readers as it was, and as it was predicted."""
    load: tuple[float, float]
    """The gateways that a message of it entered, and those predicted; the mean."""


class PlacementHistory:
    """The moves of applied plans, the oldest first."""

    def __init__(self, file: Path | None) -> None:
        """*file*: where they are kept; None: in memory."""
        self.moves: deque[AppliedMove] = deque(maxlen=HISTORY_MAX)
        self._file = file
        self._lock = asyncio.Lock()

    def read(self) -> str:
        """Reads the file, if there is one. Returns an empty text, or why it cannot be read."""
        if self._file is None or not self._file.exists():
            return ""
        try:
            for row in read_own_json(self._file):
                (delay, better), (load, less) = row["delay_ms"], row["load"]
                texts = str(row["client"]), str(row["gateway"]), str(row["plan"])
                pairs = (float(delay), float(better)), (float(load), float(less))
                self.moves.append(AppliedMove(*texts, int(row["unix_s"]), str(row["way"]), *pairs))
        except (FileUnusable, ValueError, KeyError, TypeError) as error:
            return f"{error}; {set_aside(self._file)}"
        return ""

    async def add(self, move: AppliedMove) -> str:
        """Appends *move*. Returns an empty text when it is on disk, or why a restart will forget it."""
        self.moves.append(move)
        if self._file is None:
            return "there is no data folder"
        async with self._lock:
            text = json.dumps([one._asdict() for one in self.moves], indent=1) + "\n"
            try:
                await asyncio.to_thread(replace_private, self._file, text)
            except FileUnusable as error:
                return str(error)
        return ""
