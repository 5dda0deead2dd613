"""The publishers that were moved because a plan said so, kept over restarts: a small JSON file in the data folder,
written in a worker thread. Without a data folder they are in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

from edgebroker.runtime.peers.placement import MeanCosts
from edgebroker.runtime.private_files import FileUnusable, read_own_json, replace_private, set_aside

HISTORY_FILE: Final = "placements.json"
"""In the data folder. It may be deleted at any time while the gateway is off."""
HISTORY_MAX: Final = 200
"""Moves that are remembered, 80 KiB; older ones are forgotten."""
AUTOMATIC: Final = "automatic"
"""The plan of all moves that the gateway made itself."""


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
    before: MeanCosts
    """Its costs as they were, by its last trace session at this gateway."""
    predicted: MeanCosts
    """Its costs at the other gateway, as predicted from the same session."""
    realised: MeanCosts | None = None
    """Its costs by the first trace session at the other gateway; None: it has not ended yet, or was not told."""
    outcome: str = ""
    """What became of it; empty: that is not settled yet."""
    pause_ms: float | None = None
    """How long it had no connection; None: it was not seen to arrive."""

    def as_json(self) -> dict[str, Any]:
        """Returns it as JSON values."""
        return self._asdict()

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> AppliedMove:
        """Returns the move that `as_json` has made. Raises ValueError, KeyError, TypeError."""
        texts = str(row["client"]), str(row["gateway"]), str(row["plan"])
        before, predicted = MeanCosts.from_json(row["before"]), MeanCosts.from_json(row["predicted"])
        realised = None if row["realised"] is None else MeanCosts.from_json(row["realised"])
        pause_ms = None if row["pause_ms"] is None else float(row["pause_ms"])
        unix_s, way, outcome = int(row["unix_s"]), str(row["way"]), str(row["outcome"])
        return cls(*texts, unix_s, way, before, predicted, realised, outcome, pause_ms)


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
            self.moves.extend([AppliedMove.from_json(row) for row in read_own_json(self._file)])
        except (FileUnusable, ValueError, KeyError, TypeError) as error:
            return f"{error}; {set_aside(self._file)}"
        return ""

    async def add(self, move: AppliedMove) -> str:
        """Appends *move*. Returns an empty text when it is on disk, or why a restart will forget it."""
        self.moves.append(move)
        return await self._save()

    async def settle(self, settled: dict[AppliedMove, AppliedMove]) -> str:
        """Replaces moves by what is known of them now. Returns as `add`."""
        for place, move in enumerate(self.moves):
            self.moves[place] = settled.get(move, move)
        return await self._save()

    async def _save(self) -> str:
        if self._file is None:
            return "there is no data folder"
        async with self._lock:
            text = json.dumps([one.as_json() for one in self.moves], indent=1) + "\n"
            try:
                await asyncio.to_thread(replace_private, self._file, text)
            except FileUnusable as error:
                return str(error)
        return ""
