"""Runs an operator's order, such as POST /clients?do=disconnect&name=a; its effect is on disk before the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from edgebridge.session.access import OPEN
from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.query import Query, QueryInvalid, json_response, parse_target, read_choice, suggestion
from edgebroker.runtime.http.server import HttpResponse, text_response

DISK_S: Final = 5.0
"""How long the disk has. A card that collects garbage takes one second."""
LOOK_S: Final = 0.005
NAMELESS: Final = "clients must say who they are here, and so must you: set http.token_file"

OrderHandler = Callable[[GatewayView, Query], Awaitable[dict[str, Any]]]
OrderHandlers = Mapping[str, tuple[OrderHandler, frozenset[str]]]
"""What may be done -> (how, names of what is said with it)."""


class OrderError(EdgebrokerError):
    """It was not done; the text says why."""


def may_order(view: GatewayView, has_token: bool) -> bool:
    """Whether whoever asks may have something done. *has_token*: he has shown one."""
    return has_token or view.frontend.authenticator.access == OPEN


async def run_order(view: GatewayView, acts: OrderHandlers, target: str, has_token: bool) -> HttpResponse:
    """Do what *target* asks for; the answer says what was done, or why nothing was.

    *has_token*: whoever asks has shown one. Any user of this machine may ask without, which is more than a client may
    who has to say who it is.
    """
    if not may_order(view, has_token):
        return text_response(HTTPStatus.FORBIDDEN, NAMELESS)
    try:
        _, query = parse_target(target)
        act, names = acts[read_choice(query, "do", "", acts)]
        for name in query.keys() - names - {"do"}:
            raise QueryInvalid(f"{query['do']} knows no {name!r}; {suggestion(name, names)}")
        done = await act(view, query)
    except QueryInvalid as refused:
        return text_response(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return text_response(HTTPStatus.CONFLICT, str(error))
    return json_response(done)


async def wait_until_synced(view: GatewayView) -> None:
    """Return when all that was done until now is on disk, if it is to be there. Raises Unanswerable."""
    keeping = view.frontend.journal
    awaited, ends = keeping.awaited, asyncio.get_running_loop().time() + DISK_S
    while keeping.synced < awaited:
        if keeping.is_refusing:
            raise OrderError(f"it is done, but not for the next start: the disk takes nothing: {keeping.trouble}")
        if asyncio.get_running_loop().time() > ends:
            raise OrderError(f"it is done, but was not on disk after {DISK_S:.0f} s")
        await asyncio.sleep(LOOK_S)
