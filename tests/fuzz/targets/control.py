"""What programs and people tell a running gateway to do: POST /bridges?do=..."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest.mock import patch
from urllib.parse import quote

from edgebroker.runtime.bridges.bridges import BridgeNameTaken, NoSuchBridge
from edgebroker.runtime.bridges.state import added_text
from edgebroker.runtime.http.bridges import run_bridge_order
from edgebroker.runtime.http.server import REQUEST_BYTES_MAX, HttpResponse
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.settings import KEYS
from tests.fuzz.frame.target import Target, filled

FOLDER = Path("/nowhere")
BRIDGE = """\
[[bridge]]
name = "cloud"
addresses = ["mqtt.example.org:8883", "[::1]:1"]
topic = ["sensors/# out 1 where temp > 30", "orders/# in 2 a/ b/"]
username = "u"
password_file = "secret"
tls_server_name = "x"
queue_full = "drop-oldest"
[[bridge.topic]]
pattern = "#"
retain = false
"""
ACTS = (b"do=pause&name=x", b"do=resume&name=x", b"do=remove&name=%00", b"do=add&settings=", b"do=", b"")
VALUES = ('""', "0", "true", '"x"', '["a out"]', '"\\u0007"', '"\U0001f600"', '["h:1"]', '"../x"', "[{pattern = 'a'}]")


class Bridges:
    """In place of the bridges of a gateway: there are none, and what is added is written, read, and not taken."""

    folder = FOLDER
    here = FOLDER

    def set_paused(self, name: str, is_paused: bool) -> None:
        raise NoSuchBridge(name)

    async def remove(self, name: str) -> int:
        raise NoSuchBridge(name)

    async def add(self, settings: BridgeSettings) -> None:
        assert settings.password_file is None or settings.password_file.is_relative_to(FOLDER)
        assert Settings.parse(added_text([settings]), "bridges.toml", FOLDER).bridges == (settings,)
        raise BridgeNameTaken(settings.name)


async def in_this_thread(function: Callable[..., object], *arguments: object) -> object:
    """In place of `asyncio.to_thread`: the lines that *function* runs are seen."""
    return function(*arguments)


def at_once(answering: Coroutine[None, None, HttpResponse]) -> HttpResponse:
    """What *answering* returns, which waits for nothing: these bridges write no file."""
    try:
        with patch("asyncio.to_thread", in_this_thread):
            answering.send(None)
    except StopIteration as end:
        answer: HttpResponse = end.value
        return answer
    raise AssertionError("it waits for something")


def read_control(data: bytes) -> None:
    """An answer, and no file of elsewhere is read for who shows no token."""
    target = "/bridges?" + data.decode("latin-1")
    answer = at_once(run_bridge_order(cast(Any, Bridges()), target, has_token=False))
    assert answer.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT)
    assert answer.body


def made(chance: Random) -> bytes:
    """A bridge that is nearly right."""
    lines = BRIDGE.splitlines()
    for _ in range(chance.randrange(4)):
        key = chance.choice(sorted(KEYS["bridge"]))
        lines.insert(chance.randrange(1, 8), f"{key} = {chance.choice(VALUES)}")
        del lines[chance.randrange(len(lines))]
    return b"do=add&settings=" + quote("\n".join(lines)).encode()


TARGETS = (
    Target(
        "bridge-control",
        read_control,
        (*ACTS, b"do=add&settings=" + quote(BRIDGE).encode()),
        words=(b"&", b"=", b"%0A", b"%22", b"%5B%5Bbridge%5D%5D%0A", b"%ED%A0%80", b"%00", b"+", b"#", b"[", b"]"),
        make=made,
        bombs={
            "fields": lambda: filled(b"&a=1", size=REQUEST_BYTES_MAX),
            "per cents": lambda: filled(b"%", b"do=add&settings=", size=REQUEST_BYTES_MAX),
            "a long act": lambda: filled(b"x", b"do=", size=REQUEST_BYTES_MAX),
        },  # what the loop does itself; a worker thread parses the settings
    ),
)
