"""What an operator does with the bridges of a running gateway: POST /bridges?do=pause&name=cloud"""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from edgebroker.errors import EdgebrokerError, SettingsInvalid
from edgebroker.world.bridging.bridging import Bridging
from edgebroker.world.bridging.rows import row
from edgebroker.world.http import Answer, plain
from edgebroker.world.settings import Problem, Settings, SettingsRefused

FIELDS_MAX: Final = 8


def control(bridging: Bridging, target: str) -> Answer:
    """Do what *target* asks for; the answer says how the bridge is then, or why nothing was done."""
    try:
        query = dict(parse_qsl(urlsplit(target).query, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        return plain(HTTPStatus.BAD_REQUEST, f"not a path with a query: {error}")
    act = _ACTS.get(query.get("do", ""))
    if act is None:
        return plain(HTTPStatus.BAD_REQUEST, f"do={query.get('do', '')!r} is not known; there are {', '.join(_ACTS)}")
    try:
        return Answer(HTTPStatus.OK, "application/json", (json.dumps(act(bridging, query)) + "\n").encode())
    except SettingsInvalid as refused:
        return plain(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return plain(HTTPStatus.CONFLICT, str(error))


def _add(bridging: Bridging, query: dict[str, str]) -> dict[str, Any]:
    """*settings* is the text of a [[bridge]]."""
    settings = Settings.parse(query.get("settings", ""), "the bridge", bridging.folder or bridging.here)
    if len(settings.bridges) != 1:
        raise SettingsRefused([Problem("the bridge", 0, "", "is not one [[bridge]]", "send one at a time")])
    return row(bridging.add(settings.bridges[0]), bridging)


def _remove(bridging: Bridging, query: dict[str, str]) -> dict[str, Any]:
    return {"name": query.get("name", ""), "dropped": bridging.remove(query.get("name", ""))}


def _pause(bridging: Bridging, query: dict[str, str]) -> dict[str, Any]:
    bridge = bridging.find(query.get("name", ""))
    bridge.pause()
    return row(bridge, bridging)


def _resume(bridging: Bridging, query: dict[str, str]) -> dict[str, Any]:
    bridge = bridging.find(query.get("name", ""))
    bridge.resume()
    return row(bridge, bridging)


_ACTS: Final[dict[str, Callable[[Bridging, dict[str, str]], dict[str, Any]]]] = {
    "add": _add,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
}
