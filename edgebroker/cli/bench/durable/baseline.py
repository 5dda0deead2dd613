"""What a database costs: one commit per message with SQLite, as a plug-in or a script would do it."""

from __future__ import annotations

import sqlite3
import time
from array import array
from pathlib import Path

from .disk import written_by
from .load import Outcome


def sqlite_per_message(folder: Path, seconds: float, payload_bytes: int, pid: int) -> tuple[Outcome, int]:
    """Insert and commit one message after the other, with a write-ahead log and full syncs.

    Returns what it saw, and the bytes this process wrote meanwhile.
    """
    database = sqlite3.connect(folder / "messages.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, topic TEXT, payload BLOB)")
    payload = bytes(payload_bytes)
    before, waits = written_by(pid), array("q")
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        database.execute("INSERT INTO message (topic, payload) VALUES (?, ?)", ("bench/durable/00", payload))
        waits.append(int((time.perf_counter() - now) * 1e9))
    outcome = Outcome(len(waits), time.perf_counter() - began, waits)
    written = written_by(pid) - before
    database.close()
    return outcome, written
