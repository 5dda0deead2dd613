"""What may wait for a remote: as the settings of its bridge say, or until they can be used again."""

from __future__ import annotations

from edgebridge.frontend.bounds import Bounds
from edgebridge.frontend.bridgesession import BridgeSession
from edgebridge.frontend.entrance import RESERVED
from edgebridge.frontend.frontend import Frontend
from edgebridge.session.outbox import QueueFull
from edgebroker.instants import SECOND, Instant
from edgebroker.world.settings.aside import Aside
from edgebroker.world.settings.bridge import BridgeSettings


def bounds_of(settings: BridgeSettings) -> Bounds:
    """As they say."""
    return Bounds(
        settings.queue_messages_max,
        settings.queue_bytes_max,
        settings.queue_full,
        (settings.queue_age_s_max or 0) * SECOND,
        settings.live_first,
    )


def hold(frontend: Frontend, name: str, aside: Aside, now: Instant) -> None:
    """Keep what waits for the bridge *name* that is set aside, and what comes as far as there is room."""
    memory = BridgeSession(frontend, RESERVED + name)
    session = memory.session
    if session is None:
        return
    if aside.settings is not None:
        memory.bound(bounds_of(aside.settings), now)
        return
    # Bounds that are not all known are no reason to give anything up.
    messages, size = (aside.given.get(key) for key in ("queue_messages_max", "queue_bytes_max"))
    terms, outbox = frontend.terms, session.outbox
    messages_max = messages if isinstance(messages, int) else terms.queue_messages_max
    bytes_max = size if isinstance(size, int) else terms.queue_bytes_max
    bounds = Bounds(max(messages_max, len(outbox)), max(bytes_max, outbox.held_bytes), QueueFull.DROP_NEWEST)
    memory.bound(bounds, now)


def ownerless(frontend: Frontend, names: frozenset[str]) -> list[str]:
    """Bridges that have a session, and are not among *names*."""
    ids = [one.removeprefix(RESERVED) for one in frontend.connecting.sessions if one.startswith(RESERVED)]
    return [name for name in ids if name not in names]


def end(frontend: Frontend, name: str, now: Instant) -> int:
    """End the session of the bridge *name*, which is no more. How many messages waited in it."""
    session = BridgeSession(frontend, RESERVED + name).session
    if session is None:
        return 0
    waiting = session.outstanding
    if session.connection is not None:
        frontend.closed(session.connection, now)
    frontend.connecting.expire_session(session, now)
    return waiting
