"""What a gateway must know of bridges before it has any: whether there are, and whose sessions wait for nobody."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

from edgebridge.frontend.entrance import RESERVED
from edgebridge.frontend.frontend import Frontend
from edgebroker.world.reactor import clock
from edgebroker.world.settings import Settings

ADDED: Final = "bridges.toml"
"""In the data folder: bridges that were added while the gateway ran."""
KEPT: Final = "bridges.json"
"""In the data folder. Who deletes it loses pauses, and the names of subscriptions that no rule has any more."""


def has_bridges(settings: Settings, folder: Path | None) -> bool:
    """Whether there are any, or were: of those that left while the gateway was off an operator is told."""
    if settings.bridges or settings.aside:
        return True
    return folder is not None and any((folder / name).exists() for name in (ADDED, KEPT))


def end_old_bridges(frontend: Frontend, names: Set[str]) -> Iterator[str]:
    """End the sessions of all bridges but those of *names*: what waits in them would wait for ever. A line for each."""
    for session in list(frontend.connecting.sessions.values()):
        if session.client_id.startswith(RESERVED) and session.client_id.removeprefix(RESERVED) not in names:
            yield f"{session.client_id} is no bridge any more: {session.outstanding} messages for it are dropped"
            frontend.connecting.expire_session(session, clock())
