"""Blocked clients, kept over restarts: a small JSON file in the data folder, written in a worker thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgebridge.frontend.handlers.connect import Ban
from edgebroker.instants import SECOND, Instant
from edgebroker.runtime.private_files import FileUnusable, read_private, replace_private, set_aside

BLOCK_LIST_FILE: Final = "blocked.json"
"""In the data folder. Who deletes it while the gateway is off lets everybody in again."""


def expire_block(blocked: dict[str, Ban], name: str, ban: Ban) -> None:
    """The time of *ban* has come, unless another was set meanwhile."""
    if blocked.get(name) is ban:
        del blocked[name]


def restore_blocks(file: Path, blocked: dict[str, Ban], unix_s: int, now: Instant) -> Iterator[str]:
    """Read into *blocked* who is still to be kept out, and let nobody stay so for longer than was said: the clock may
    have been set back. To be called in the loop; lines for the operator.
    """
    try:
        known = [(str(one["client"]), int(one["since"]), int(one["seconds"]), str(one["why"])) for one in _read(file)]
    except (FileUnusable, ValueError, KeyError, TypeError) as error:
        yield f"who is kept out cannot be read, so nobody is: {error}; {set_aside(file)}"
        return
    for name, since, seconds, why in known:
        left = min(since + seconds - unix_s, seconds)
        if left > 0:
            ban = blocked[name] = Ban(now + left * SECOND, since, seconds, why)
            asyncio.get_running_loop().call_later(left, expire_block, blocked, name, ban)


class BlockListFile:
    """Writes the file, one after the other: each has all that holds by then."""

    def __init__(self, file: Path, blocked: dict[str, Ban]) -> None:
        self._file = file
        self._blocked = blocked
        self._lock = asyncio.Lock()

    async def save(self) -> str:
        """Return when it is on disk: empty, or why it is not."""
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
    known = json.loads(read_private(file))
    if not isinstance(known, list):
        raise ValueError("it is no list")
    return known
