"""What an operator does with clients: POST /clients?do=disconnect&name=pump-3"""

from __future__ import annotations

from typing import Any, Final

from edgebridge.frontend.entrance import RESERVED
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.ousting import disconnect, end
from edgebridge.session.session import Session
from edgebroker.names import ClientId
from edgebroker.world.control.orders import Act, Unanswerable, kept
from edgebroker.world.insight import Insight
from edgebroker.world.operatorlog import Level
from edgebroker.world.query import Query, QueryRefused
from edgebroker.world.reactor import clock

NEAREST_MAX: Final = 1_000
"""Among more no name is looked for that is like a wrong one: that would take more than 50 ms."""


def found(frontend: Frontend, query: Query) -> Session:
    """The session that `name` names. Raises QueryRefused."""
    name, sessions = query.get("name", ""), frontend.connecting.sessions
    session = sessions.get(ClientId(name))
    if session is not None:
        return session
    hint = ""
    if len(sessions) <= NEAREST_MAX:
        import difflib  # what only a slip needs

        hint = "".join(f"; did you mean {one}?" for one in difflib.get_close_matches(name, sessions, n=1))
    raise QueryRefused(f"there is no client {name!r}{hint}")


def _of_a_client(insight: Insight, query: Query) -> Session:
    """As `found`, unless it is a part of the gateway. Raises QueryRefused, Unanswerable."""
    session = found(insight.frontend, query)
    if session.client_id.startswith(RESERVED):
        name = session.client_id.removeprefix(RESERVED)
        raise Unanswerable(f"{session.client_id} is a bridge of this gateway; see `edgebroker bridge pause {name}`")
    return session


async def _disconnect(insight: Insight, query: Query) -> dict[str, Any]:
    session = _of_a_client(insight, query)
    is_done = disconnect(insight.frontend, session)
    insight.reactor.turn()
    insight.reactor.arm()
    return {"client": session.client_id, "disconnected": is_done, "session_kept": is_done and session.expiry_s > 0}


async def _end(insight: Insight, query: Query) -> dict[str, Any]:
    session = _of_a_client(insight, query)
    was_connected = session.is_present
    if session.number and insight.frontend.keeping.is_refusing:
        raise Unanswerable(f"the disk takes nothing: {insight.frontend.keeping.trouble}")
    dropped = end(insight.frontend, session, clock())
    insight.notices.tell(
        Level.WARNING, "session-ended", "an operator ended a session", client=session.client_id, dropped=dropped
    )
    insight.reactor.turn()
    insight.reactor.arm()
    await kept(insight)
    return {"client": session.client_id, "disconnected": was_connected, "dropped": dropped}


ACTS: Final[dict[str, tuple[Act, frozenset[str]]]] = {
    "disconnect": (_disconnect, frozenset({"name"})),
    "end": (_end, frozenset({"name"})),
}
