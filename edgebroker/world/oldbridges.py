"""Sessions of bridges that the settings no longer have: what waits in them would wait for ever."""

from __future__ import annotations

from collections.abc import Iterator, Set

from edgebridge.frontend.entrance import RESERVED
from edgebridge.frontend.frontend import Frontend
from edgebroker.world.reactor import clock


def end_old_bridges(frontend: Frontend, names: Set[str]) -> Iterator[str]:
    """End them; a line for each. *names* are the bridges that there are."""
    for session in list(frontend.connecting.sessions.values()):
        if session.client_id.startswith(RESERVED) and session.client_id.removeprefix(RESERVED) not in names:
            yield f"{session.client_id} is no bridge any more: {session.outstanding} messages for it are dropped"
            frontend.connecting.expire_session(session, clock())
