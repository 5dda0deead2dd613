"""Three members of a shared subscription at two gateways: one of the federation gets each message."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgelab.processes import free_ports

from ..support.topologies import TWO_GATEWAYS
from .conftest import PATIENCE_S, Gateway
from .test_live_own_bridge import guest_of

pytestmark = pytest.mark.live
SETTINGS = """
[node]
name = "{name}"
[overlay]
topology = "topology.toml"
[http]
port = 0
[mqtt]
federated_groups = ["work*"]
"""
SHARED = "$share/workers/jobs/#"


def links(gateway: Gateway) -> dict[str, Any]:
    http = gateway.listening["http"]
    with urllib.request.urlopen(f"http://{http['host']}:{http['port']}/links", timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_one_of_three_members_at_two_gateways_gets_each_message(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    (tmp_path / "topology.toml").write_text(TWO_GATEWAYS.format(*free_ports(2)))
    gateways = []
    for name in ("gw-here", "gw-there"):
        settings = tmp_path / f"{name}.toml"
        settings.write_text(SETTINGS.format(name=name))
        gateways.append(start_gateway("--config", str(settings), "--data", str(tmp_path / name)))
    here, there = gateways
    deadline = time.monotonic() + PATIENCE_S
    while not all(links(gateway)["links"][0]["up"] for gateway in gateways):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    members = [guest_of(port, f"m{n}") for n, port in enumerate((here.port, there.port, there.port))]
    for member in members:
        assert member.subscribe(SHARED, 2)[0] == [2]
    writer = guest_of(here.port, "writer")
    sent = 0
    while links(here)["federated_groups"]["sent"] < 3:  # gw-here hears of the members of the other site a moment later
        assert time.monotonic() < deadline
        writer.publish("jobs/a", b"%d" % sent, qos=1 + sent % 2)
        sent += 1
    received: Counter[bytes] = Counter()
    while received.total() < sent:
        assert time.monotonic() < deadline, received
        for member in members:
            while not member.messages.empty():
                received[member.messages.get().payload] += 1
        time.sleep(0.02)
    time.sleep(0.1)
    assert received == Counter({b"%d" % number: 1 for number in range(sent)})
    assert all(member.messages.empty() for member in members)
    settings = tmp_path / "gw-there.toml"
    settings.write_text(settings.read_text().replace("work*", "other"))
    said = there.reload()
    assert [(each["key"], each["outcome"]) for each in said["changes"]] == [("mqtt.federated_groups", "applied")]
    assert said["notes"] == ["mqtt: 2 members of shared subscriptions are in another group"]
