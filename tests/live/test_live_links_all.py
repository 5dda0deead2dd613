"""`edgebroker links --all`: the links of every gateway, asked over the links, and the gateways that are not reached."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ..support.topologies import ROW_OF_THREE
from .conftest import Gateway, command_line

pytestmark = pytest.mark.live


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        path = tmp_path / "row.toml"
        path.write_text(ROW_OF_THREE.format(*(one.getsockname()[1] for one in taken)))
    return path


def asked(http: str) -> tuple[int, dict[str, Any]]:
    code, said = command_line("links", "--all", "--http", http, "--json")
    return code, json.loads(said)


def test_the_links_of_every_gateway_are_shown_and_those_that_are_not_reached(
    start_gateway: Callable[..., Gateway], topology: Path
) -> None:
    federated = ("--topology", str(topology), "--memory", "--name")
    first = start_gateway(*federated, "gw-a", "--http", "0")
    middle, last = start_gateway(*federated, "gw-b"), start_gateway(*federated, "gw-c")
    http = f"127.0.0.1:{first.listening['http']['port']}"
    while (answer := asked(http))[0] != 0:
        pass
    found = answer[1]
    assert found["unreached"] == []
    assert {one["name"]: [row["peer"] for row in one["links"]] for one in found["gateways"]} == {
        "gw-a": ["gw-b"],
        "gw-b": ["gw-a", "gw-c"],
        "gw-c": ["gw-b"],
    }
    assert all(row["up"] and row["round_trip_ms"] is not None for one in found["gateways"] for row in one["links"])
    lines = command_line("links", "--all", "--http", http)[1].splitlines()
    assert lines[0] == "plant: 3 of 3 gateways answer"
    assert [line.split()[:3] for line in lines[3:]] == [
        ["gw-a", "gw-b", "up"],
        ["gw-b", "gw-a", "up"],
        ["gw-b", "gw-c", "up"],
        ["gw-c", "gw-b", "up"],
    ]

    last.stop()
    while (answer := asked(http))[1]["unreached"] == []:
        pass
    code, found = answer
    assert code == 1
    assert [one["name"] for one in found["gateways"]] == ["gw-a", "gw-b"]
    [missing] = found["unreached"]
    assert (missing["name"], list(missing["reasons"])) == ("gw-c", ["gw-b"])
    said = command_line("links", "--all", "--http", http)[1]
    assert "plant: 2 of 3 gateways answer" in said
    assert "gw-c is not reached (gw-b: " in said

    middle.stop()
    while len((answer := asked(http))[1]["unreached"]) < 2:
        pass
    assert [one["name"] for one in answer[1]["unreached"]] == ["gw-b", "gw-c"]
    first.stop()
