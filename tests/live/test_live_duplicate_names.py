"""Two gateways of a federation configured with one name, as processes: what an operator sees, and where."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
from weakref import WeakKeyDictionary

import pytest

from .conftest import PATIENCE_S, Gateway, command_line

pytestmark = pytest.mark.live

HEARD: WeakKeyDictionary[Gateway, bytearray] = WeakKeyDictionary()
"""What each has said that nobody has looked at."""

TOPOLOGY = """
[federation]
name = "plant"

[factor]
tree = ["a"]

[[site]]
name = "here"

[[site]]
name = "there"

[[gateway]]
name = "gw-here"
site = "here"
address = "127.0.0.1:1"

[[gateway]]
name = "gw-there"
site = "there"
address = "127.0.0.1:{there}"
"""


def line_of(gateway: Gateway, code: str) -> str:
    """The first line of *code* in the operator's log that was not asked for before."""
    assert gateway.process.stderr is not None
    said = HEARD.setdefault(gateway, bytearray())
    while True:
        while b"\n" in said:
            line, _, said[:] = said.partition(b"\n")
            if b" %b: " % code.encode() in line:
                return line.decode()
        assert select.select([gateway.process.stderr], [], [], PATIENCE_S)[0], f"{code} is not told"
        said += os.read(gateway.process.stderr.fileno(), 65_536)


def asked(gateway: Gateway, path: str) -> str:
    try:
        answer = urlopen(f"http://127.0.0.1:{gateway.listening['http']['port']}{path}", timeout=PATIENCE_S)
    except HTTPError as error:
        answer = error
    with answer:
        return str(answer.read().decode())


def test_both_addresses_are_told_where_somebody_looks(
    start_gateway: Callable[..., Gateway], tmp_path: Path, free_port: int
) -> None:
    topology = tmp_path / "topology.toml"
    topology.write_text(TOPOLOGY.format(there=free_port))

    def start(name: str) -> Gateway:
        return start_gateway(
            *("--topology", str(topology), "--memory", "--name", name, "--http", "0", "--log-level", "info")
        )

    judge = start("gw-there")
    first = start("gw-here")
    line_of(judge, "link-up")
    second = start("gw-here")
    told = line_of(judge, "link-twins")
    assert "two gateways are called 'gw-here': one is linked with gw-there from 127.0.0.1:" in told
    assert "another one dials from 127.0.0.1:" in told
    assert "gw-here came anew from 127.0.0.1:" in line_of(first, "link-down")
    assert "two gateways are called 'gw-here'" in line_of(second, "link-refused")

    [row] = json.loads(asked(judge, "/links"))["links"]
    assert (row["up"], row["refused"], row["twins_refused"] > 0) == (True, False, True)
    assert "two gateways are called 'gw-here'" in row["twins"]
    code, said = command_line("links", "--http", f"127.0.0.1:{judge.listening['http']['port']}")
    assert (code, "gw-here: two gateways are called 'gw-here'" in said) == (0, True)
    health = json.loads(asked(judge, "/health"))
    assert (health["status"], len(health["warnings"])) == ("ok", 1)
    assert "two gateways are called 'gw-here'" in health["warnings"][0]
    assert 'edgebroker_link_twins_refused_total{peer="gw-here"} ' in asked(judge, "/metrics")
    assert json.loads(asked(first, "/health"))["status"] == "ok"
    [refused] = json.loads(asked(second, "/health"))["reasons"]
    assert "refused: gw-there: two gateways are called 'gw-here'" in refused
    for gateway in (second, first, judge):
        gateway.kill()
