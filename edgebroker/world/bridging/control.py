"""What an operator does with the bridges of a running gateway: POST /bridges?do=pause&name=cloud"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from edgebroker.errors import EdgebrokerError, SettingsInvalid
from edgebroker.world.bridging.bridging import Bridging
from edgebroker.world.bridging.rows import row
from edgebroker.world.http import Answer, plain
from edgebroker.world.settings import Problem, Settings, SettingsRefused

FIELDS_MAX: Final = 8


async def control(bridging: Bridging, target: str, has_token: bool) -> Answer:
    """Do what *target* asks for; the answer says how the bridge is then, or why nothing was done.

    *has_token*: whoever asks has shown one. Any user of this machine may ask without, and must not be able to send
    another broker the first line of files that only the gateway can read.
    """
    try:
        query = dict(parse_qsl(urlsplit(target).query, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        return plain(HTTPStatus.BAD_REQUEST, f"not a path with a query: {error}")
    act = _ACTS.get(query.get("do", ""))
    if act is None:
        return plain(HTTPStatus.BAD_REQUEST, f"do={query.get('do', '')!r} is not known; there are {', '.join(_ACTS)}")
    try:
        done = await act(bridging, query, has_token)
    except SettingsInvalid as refused:
        return plain(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return plain(HTTPStatus.CONFLICT, str(error))
    return Answer(HTTPStatus.OK, "application/json", (json.dumps(done) + "\n").encode())


async def _add(bridging: Bridging, query: dict[str, str], has_token: bool) -> dict[str, Any]:
    """*settings* is the text of a [[bridge]]."""
    folder = bridging.folder or bridging.here
    settings = Settings.parse(query.get("settings", ""), "the bridge", folder)
    if len(settings.bridges) != 1:
        raise SettingsRefused([Problem("the bridge", 0, "", "is not one [[bridge]]", "send one at a time")])
    file = settings.bridges[0].password_file
    if file is not None and not has_token and not file.resolve().is_relative_to(folder.resolve()):
        mend = f"put it into {folder}, or set http.token_file and show a token"
        raise SettingsRefused([Problem("the bridge", 0, "bridge.password_file", f"{file} is elsewhere", mend)])
    return row(await bridging.add(settings.bridges[0]), bridging)


async def _remove(bridging: Bridging, query: dict[str, str], _: bool) -> dict[str, Any]:
    return {"name": query.get("name", ""), "dropped": await bridging.remove(query.get("name", ""))}


async def _pause(bridging: Bridging, query: dict[str, str], _: bool) -> dict[str, Any]:
    return row(bridging.pause(query.get("name", ""), True), bridging)


async def _resume(bridging: Bridging, query: dict[str, str], _: bool) -> dict[str, Any]:
    return row(bridging.pause(query.get("name", ""), False), bridging)


_ACTS: Final[dict[str, Callable[[Bridging, dict[str, str], bool], Awaitable[dict[str, Any]]]]] = {
    "add": _add,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
}
