"""What an operator does with clients: POST /clients?do=disconnect&name=pump-3"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from edgebridge.frontend.ban import Ban
from edgebridge.frontend.entrance import RESERVED
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.ousting import disconnect, end
from edgebridge.session.session import Session
from edgebroker.instants import SECOND
from edgebroker.names import ClientId
from edgebroker.world.blocklist import BLOCKED, Blocklist, is_over
from edgebroker.world.control.orders import Act, Unanswerable, kept
from edgebroker.world.insight import Insight
from edgebroker.world.operatorlog import Level
from edgebroker.world.query import Query, QueryRefused, nearest, whole
from edgebroker.world.reactor import clock

BLOCKED_MAX: Final = 1_000
BLOCK_S: Final = 3_600
BLOCK_S_MAX: Final = 30 * 86_400
WHY_CHARS_MAX: Final = 200
"""Of what an operator says about it: with 1,000 names the file has 300 KiB at most."""
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
        raise _bridge(session.client_id)
    return session


def _bridge(client: str) -> Unanswerable:
    name = client.removeprefix(RESERVED)
    return Unanswerable(f"{client} is a bridge of this gateway; see `edgebroker bridge pause {name}`")


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


async def _block(insight: Insight, query: Query) -> dict[str, Any]:
    name, frontend = query.get("name", ""), insight.frontend
    seconds = whole(query, "seconds", BLOCK_S, 1, BLOCK_S_MAX)
    if not name:
        raise QueryRefused("which client? say name=")
    if name.startswith(RESERVED):
        raise _bridge(name)
    why = query.get("why", "")
    if len(why) > WHY_CHARS_MAX:
        raise QueryRefused(f"why has {len(why)} characters; say it in {WHY_CHARS_MAX}")
    blocked = frontend.connecting.blocked
    if name not in blocked and len(blocked) >= BLOCKED_MAX:
        raise Unanswerable(f"{BLOCKED_MAX:,} clients are blocked, and no more can be; unblock some")
    ban = blocked[name] = Ban(clock() + seconds * SECOND, _unix_s(insight), seconds, why)
    asyncio.get_running_loop().call_later(seconds, is_over, blocked, name, ban)
    session = frontend.connecting.sessions.get(ClientId(name))
    is_gone = session is not None and disconnect(frontend, session)
    insight.notices.tell(
        Level.WARNING, "client-blocked", "an operator keeps a client out", client=name, seconds=seconds, why=why
    )
    insight.reactor.turn()
    insight.reactor.arm()
    return {"client": name, "seconds": seconds, "disconnected": is_gone, "forgotten": await _saved(insight)}


def _unix_s(insight: Insight) -> int:
    """By the clock of what is kept, which never goes back; without, by the machine's."""
    if insight.store is None:
        return int(time.time())
    return (clock() + insight.frontend.keeping.clock) // SECOND


async def _saved(insight: Insight) -> str:
    """Return when who is kept out is on disk: empty, or why a restart will not know it."""
    if insight.store is None:
        return "there is no data folder"
    if insight.blocklist is None:
        insight.blocklist = Blocklist(insight.store.folder / BLOCKED, insight.frontend.connecting.blocked)
    return await insight.blocklist.save()


async def _unblock(insight: Insight, query: Query) -> dict[str, Any]:
    name, blocked = query.get("name", ""), insight.frontend.connecting.blocked
    if name not in blocked:
        raise Unanswerable(f"{name!r} is not blocked; {nearest(name, list(blocked)) if blocked else 'nobody is'}")
    del blocked[name]
    return {"client": name, "forgotten": "" if insight.store is None else await _saved(insight)}


def kept_out(insight: Insight) -> dict[str, Any]:
    """Who is blocked, for how long still, since when and why."""
    now, unix_s = clock(), _unix_s(insight)
    rows = [
        {
            "client": name,
            "ends_in_s": round((ban.until - now) / SECOND, 3),
            "since_unix_s": ban.since_unix_s,
            "since_s": max(0, unix_s - ban.since_unix_s),
            "why": ban.why,
        }
        for name, ban in sorted(insight.frontend.connecting.blocked.items())
    ]
    return {"blocked": rows}


ACTS: Final[dict[str, tuple[Act, frozenset[str]]]] = {
    "disconnect": (_disconnect, frozenset({"name"})),
    "end": (_end, frozenset({"name"})),
    "block": (_block, frozenset({"name", "seconds", "why"})),
    "unblock": (_unblock, frozenset({"name"})),
}
