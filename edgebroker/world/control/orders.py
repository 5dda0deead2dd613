"""An order at the HTTP door: POST /clients?do=disconnect&name=pump-3. What it does is on disk when it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from edgebridge.session.access import OPEN
from edgebroker.errors import EdgebrokerError
from edgebroker.world.http import Answer, plain
from edgebroker.world.insight import Insight
from edgebroker.world.query import Query, QueryRefused, choice, in_json, nearest, parts_of

DISK_S: Final = 5.0
"""How long the disk has. A card that collects garbage takes one second."""
LOOK_S: Final = 0.005
NAMELESS: Final = "clients must say who they are here, and so must you: set http.token_file"

Act = Callable[[Insight, Query], Awaitable[dict[str, Any]]]
Acts = Mapping[str, tuple[Act, frozenset[str]]]
"""What may be done -> (how, names of what is said with it)."""


class Unanswerable(EdgebrokerError):
    """It was not done; the text says why."""


def may_order(insight: Insight, has_token: bool) -> bool:
    """Whether whoever asks may have something done. *has_token*: he has shown one."""
    return has_token or insight.frontend.authenticating.access == OPEN


async def obey(insight: Insight, acts: Acts, target: str, has_token: bool) -> Answer:
    """Do what *target* asks for; the answer says what was done, or why nothing was.

    *has_token*: whoever asks has shown one. Any user of this machine may ask without, which is more than a client may
    who has to say who it is.
    """
    if not may_order(insight, has_token):
        return plain(HTTPStatus.FORBIDDEN, NAMELESS)
    try:
        _, query = parts_of(target)
        act, names = acts[choice(query, "do", "", acts)]
        for name in query.keys() - names - {"do"}:
            raise QueryRefused(f"{query['do']} knows no {name!r}; {nearest(name, names)}")
        done = await act(insight, query)
    except QueryRefused as refused:
        return plain(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return plain(HTTPStatus.CONFLICT, str(error))
    return in_json(done)


async def kept(insight: Insight) -> None:
    """Return when all that was done until now is on disk, if it is to be there. Raises Unanswerable."""
    keeping = insight.frontend.keeping
    awaited, ends = keeping.awaited, asyncio.get_running_loop().time() + DISK_S
    while keeping.synced < awaited:
        if keeping.is_refusing:
            raise Unanswerable(f"it is done, but not for the next start: the disk takes nothing: {keeping.trouble}")
        if asyncio.get_running_loop().time() > ends:
            raise Unanswerable(f"it is done, but was not on disk after {DISK_S:.0f} s")
        await asyncio.sleep(LOOK_S)
