"""The list of blocked clients, saved over restarts: a small JSON file in the data folder, written in a worker
thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgebridge.frontend.handlers.connect import Ban
from edgebroker.instants import SECOND, Instant
from edgebroker.runtime.private_files import FileUnusable, read_own_json, replace_private, set_aside

BLOCK_LIST_FILE: Final = "blocked.json"
"""In the data folder. Deleting it while the gateway is off unblocks all clients."""


def expire_block(blocked: dict[str, Ban], name: str, ban: Ban) -> None:
    """Ends *ban*, unless the client was blocked anew meanwhile."""
    if blocked.get(name) is ban:
        del blocked[name]


def restore_blocks(file: Path, blocked: dict[str, Ban], unix_s: int, now: Instant) -> Iterator[str]:
    """Reads the blocks that have not ended into *blocked*. Must be called in the event loop. Yields lines for the
    operator.

    No block lasts longer than its duration from now, because the clock may have been set back.
    """
    try:
        entries = [
            (str(entry["client"]), int(entry["since"]), int(entry["seconds"]), str(entry["why"]))
            for entry in _read(file)
        ]
    except (FileUnusable, ValueError, KeyError, TypeError) as error:
        yield f"who is kept out cannot be read, so nobody is: {error}; {set_aside(file)}"
        return
    for name, since, seconds, reason in entries:
        remaining_s = min(since + seconds - unix_s, seconds)
        if remaining_s > 0:
            ban = blocked[name] = Ban(now + remaining_s * SECOND, since, seconds, reason)
            asyncio.get_running_loop().call_later(remaining_s, expire_block, blocked, name, ban)


class BlockListFile:
    """Writes the file, one write at a time, each with the whole present list."""

    def __init__(self, file: Path, blocked: dict[str, Ban]) -> None:
        self._file = file
        self._blocked = blocked
        self._lock = asyncio.Lock()

    async def save(self) -> str:
        """Returns an empty text when the file is on disk, or why it could not be written."""
        async with self._lock:
            rows = [
                {"client": name, "since": ban.since_unix_s, "seconds": ban.seconds, "why": ban.why}
                for name, ban in sorted(self._blocked.items())
            ]
            text = json.dumps(rows, indent=1) + "\n"
            try:
                await asyncio.to_thread(replace_private, self._file, text)
            except FileUnusable as error:
                return str(error)
            return ""


def _read(file: Path) -> list[dict[str, str | int]]:
    entries = read_own_json(file)
    if not isinstance(entries, list):
        raise ValueError("it is no list")
    return entries
