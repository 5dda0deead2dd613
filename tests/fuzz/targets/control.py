"""What programs and people tell a running gateway to do: POST /bridges?do=..."""

from __future__ import annotations

from collections.abc import Coroutine
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any, cast
from urllib.parse import quote

from edgebridge.bridge.rule_budget import CONDITION_WORK_CACHE
from edgebroker.runtime.bridges.bridges import BridgeNameTaken, NoSuchBridge
from edgebroker.runtime.bridges.state import added_text
from edgebroker.runtime.http.bridges import run_bridge_order
from edgebroker.runtime.http.server import REQUEST_BYTES_MAX, HttpResponse
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.bridge_section import RULES_MAX, BridgeSettings
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
RULES = b"do=add&settings=[[bridge]]%0Atopic=["
HEAD = RULES.replace(b"%0A", b"%0Aname='x'%0Aaddresses=['h:1']%0A")
ORS = b"+AND+".join(b"(a%d=1+OR+b%d=2)" % (number, number) for number in range(6))
LIKES = b"+AND+".join(b"(a+LIKE+'%%25%d%%25_a%%25'+OR+b+LIKE+'%%25%d_%%25')" % (n, n) for n in range(5))
FIELDS = b",".join(b"f%d.x" % number for number in range(25))
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


class NamesTaken(Bridges):
    """The same, and nothing is written: a gateway does that in a turn of its own (`Bridging._change`)."""

    async def add(self, settings: BridgeSettings) -> None:
        raise BridgeNameTaken(settings.name)


def at_once(answering: Coroutine[None, None, HttpResponse]) -> HttpResponse:
    """What *answering* returns, which waits for nothing: these bridges write no file."""
    try:
        answering.send(None)
    except StopIteration as end:
        answer: HttpResponse = end.value
        return answer
    raise AssertionError("it waits for something")


def read_control(data: bytes) -> None:
    """An answer, and no file of elsewhere is read for who shows no token."""
    answer = answer_of(Bridges(), data)
    assert answer.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT)
    assert answer.body


def read_anew(data: bytes) -> None:
    """Conditions too, as if none had been read before."""
    CONDITION_WORK_CACHE.clear()
    answer_of(NamesTaken(), data)


def answer_of(bridges: Bridges, data: bytes) -> HttpResponse:
    return at_once(run_bridge_order(cast(Any, bridges), "/bridges?" + data.decode("latin-1"), has_token=False))


def rules(words: bytes) -> bytes:
    """A bridge with as many rules of *words*, which have one number in them, as go into a request."""
    found = HEAD
    for number in range(RULES_MAX):
        rule = b'"' + words % number + b'",'
        if len(found) + len(rule) + 1 > REQUEST_BYTES_MAX:
            break
        found += rule
    return found + b"]"


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
        plain=read_anew,
        bombs={
            "fields": lambda: filled(b"&a=1", size=REQUEST_BYTES_MAX),
            "per cents": lambda: filled(b"%", b"do=add&settings=", size=REQUEST_BYTES_MAX),
            "brackets": lambda: filled(b"[", b"do=add&settings=a+%3D+", size=REQUEST_BYTES_MAX),
            "bridges": lambda: filled(b"[[bridge]]%0A", b"do=add&settings=", size=REQUEST_BYTES_MAX),
            "rules": lambda: filled(b'"a/%23",', RULES, b"]", REQUEST_BYTES_MAX),
            "a long condition": lambda: filled(b"x=1+OR+", RULES + b'"a+where+', b'x=1"]', REQUEST_BYTES_MAX),
            "rules of one word": lambda: rules(b"a%d"),
            "short conditions": lambda: rules(b"a+where+b=%d"),
            "conditions": lambda: rules(b"a+where+temp>%d+AND+site='north'"),
            "conditions with one OR": lambda: rules(b"a+where+(a=%d+OR+b=2)"),
            "conditions to multiply out": lambda: rules(b"a+where+c=%d+AND+" + ORS),
            "equal conditions to multiply out": lambda: rules(b"a%d+where+" + ORS),
            "patterns to multiply out": lambda: rules(b"a+where+c=%d+AND+" + LIKES.replace(b"%", b"%%")),
            "conditions that are too complex": lambda: rules(b"a+where+c=%d+AND+" + ORS + b"+AND+(x=1+OR+y=1)"),
            "selected fields": lambda: rules(b"a%d+select=" + FIELDS),
            "options of rules": lambda: rules(b"a%d+retain=false+convert=cbor+batch_messages=5+batch_s=1"),
            "words of a rule": lambda: filled(b"a+", HEAD + b"'", b"']", REQUEST_BYTES_MAX),
            "options of a rule": lambda: filled(b"a=+", HEAD + b"'a+", b"']", REQUEST_BYTES_MAX),
            "renamed fields of a rule": lambda: filled(b"a:b,", HEAD + b"'a+rename=", b"a:b']", REQUEST_BYTES_MAX),
            "a long act": lambda: filled(b"x", b"do=", size=REQUEST_BYTES_MAX),
        },  # more does not come through the door, which the target `http` has
    ),
)
