"""Bridges before any runs: whether the settings or the data folder have some, and which sessions have no bridge.

Every gateway loads this module; the package `bridges` is loaded only where there are bridges.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.settings import Settings

ADDED_FILE: Final = "bridges.toml"
"""The name of the file in the data folder that has the bridges added to the running gateway."""
STATE_FILE: Final = "bridges.json"
"""In the data folder. Deleting it loses pauses, and the names of subscriptions that no rule has any more."""


def has_bridges(settings: Settings, folder: Path | None) -> bool:
    """Whether there are bridges, or were: a removed bridge is reported to the operator at the next start."""
    if settings.bridges or settings.aside:
        return True
    return folder is not None and any((folder / name).exists() for name in (ADDED_FILE, STATE_FILE))


def end_leftover_sessions(frontend: Frontend, names: Set[str]) -> Iterator[str]:
    """Ends the sessions of all bridges except *names*: their messages would wait for ever. Yields a line for each."""
    for session in list(frontend.connect_handler.sessions.values()):
        if (
            session.client_id.startswith(BRIDGE_CLIENT_PREFIX)
            and session.client_id.removeprefix(BRIDGE_CLIENT_PREFIX) not in names
        ):
            yield f"{session.client_id} is no bridge any more: {session.outstanding} messages for it are dropped"
            frontend.connect_handler.expire_session(session, clock())
