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

SYNC_TIMEOUT_S: Final = 5.0
"""How long a sync may take. An SD card that collects garbage takes one second."""
POLL_S: Final = 0.005
TOKEN_NEEDED: Final = "clients must say who they are here, and so must you: set http.token_file"

OrderHandler = Callable[[GatewayView, Query], Awaitable[dict[str, Any]]]
OrderHandlers = Mapping[str, tuple[OrderHandler, frozenset[str]]]
"""Name of an order -> (handler, names that its query may have)."""


class OrderError(EdgebrokerError):
    """The order was not executed, or not completely; the text says why."""


def may_order(view: GatewayView, has_token: bool) -> bool:
    """Whether orders are authorized: by a token, or because clients need no authentication either."""
    return has_token or view.frontend.authenticator.access == OPEN


async def run_order(view: GatewayView, handlers: OrderHandlers, target: str, has_token: bool) -> HttpResponse:
    """Executes the order in *target*; the response says what was done, or why nothing was.

    *has_token*: whether the request is authorized by a token. Every user of this machine can send requests without one;
    where clients must authenticate, that is not enough.
    """
    if not may_order(view, has_token):
        return text_response(HTTPStatus.FORBIDDEN, TOKEN_NEEDED)
    try:
        _, query = parse_target(target)
        handler, names = handlers[read_choice(query, "do", "", handlers)]
        for name in query.keys() - names - {"do"}:
            raise QueryInvalid(f"{query['do']} knows no {name!r}; {suggestion(name, names)}")
        done = await handler(view, query)
    except QueryInvalid as refused:
        return text_response(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return text_response(HTTPStatus.CONFLICT, str(error))
    return json_response(done)


async def wait_until_synced(view: GatewayView) -> None:
    """Returns when everything done so far is on disk, as far as it is durable. Raises OrderError."""
    journal = view.frontend.journal
    lsn, deadline = journal.awaited, asyncio.get_running_loop().time() + SYNC_TIMEOUT_S
    while journal.synced < lsn:
        if journal.is_refusing:
            raise OrderError(f"it is done, but not for the next start: the disk takes nothing: {journal.trouble}")
        if asyncio.get_running_loop().time() > deadline:
            raise OrderError(f"it is done, but was not on disk after {SYNC_TIMEOUT_S:.0f} s")
        await asyncio.sleep(POLL_S)
