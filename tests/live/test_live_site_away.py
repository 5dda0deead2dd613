"""Three sites as processes, one of which is away: what its reader is owed waits on the disk of the publisher's gateway.

EDGEBROKER_AWAY_S=600 pytest tests/live/test_live_site_away.py
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from paho.mqtt.client import MQTTMessage, MQTTProtocolVersion

from .conftest import PATIENCE_S, V5, Gateway, Guest, command_line

pytestmark = pytest.mark.live

AWAY_S = float(os.environ.get("EDGEBROKER_AWAY_S", "60"))
RATE = 100
"""Messages a second."""
PAYLOAD_BYTES = 10_000
MEMORY_GROWTH_MAX = 24 << 20
"""The pages' worth of messages that stay in memory at both ends of an outbox are 2 MiB; the rest is the allocator's."""
SITES = ("here", "there", "away")
TOPOLOGY = '[federation]\nname = "plant"\n[factor]\ntree = "a"\n'


def link(gateway: Gateway, peer: str) -> dict[str, Any]:
    said = command_line("links", "--http", f"127.0.0.1:{gateway.listening['http']['port']}", "--json")[1]
    return next(row for row in json.loads(said)["links"] if row["peer"] == peer)


def memory(gateway: Gateway) -> int:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return 1_024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])


class Flow:
    """A publisher at a steady rate, and which of its messages were acknowledged."""

    def __init__(self, guest: Guest) -> None:
        self.refused = 0
        self._client = guest.client
        self._numbers: dict[int, int] = {}  # packet identifier -> number: below 65,536, each is used once
        self._acknowledged: list[int] = []
        self._client.on_publish = self._answered

    @property
    def acknowledged(self) -> set[int]:
        return {self._numbers[mid] for mid in list(self._acknowledged)}

    def _answered(self, _client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self.refused += 1
        else:
            self._acknowledged.append(mid)

    def publish(self, seconds: float) -> None:
        start = time.monotonic()
        for at in range(round(seconds * RATE)):
            time.sleep(max(0.0, start + at / RATE - time.monotonic()))
            number = len(self._numbers) + 1
            payload = number.to_bytes(8, "big") + os.urandom(PAYLOAD_BYTES - 8)
            self._numbers[self._client.publish("t", payload, 1).mid] = number

    def wait(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(self._acknowledged) + self.refused < len(self._numbers):
            assert time.monotonic() < until, "some are not answered"
            time.sleep(0.05)


def topology_of(folder: Path, *ports: int) -> Path:
    file = folder / "topology.toml"
    text = TOPOLOGY
    for site, port in zip(SITES, ports, strict=True):
        text += f'[[site]]\nname = "{site}"\n'
        text += f'[[gateway]]\nname = "gw-{site}"\nsite = "{site}"\naddress = "127.0.0.1:{port}"\n'
    file.write_text(text)
    return file


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_while_a_site_is_away(
    start_gateway: Callable[..., Gateway],
    tmp_path: Path,
    free_port: int,
    another_free_port: int,
    yet_another_free_port: int,
) -> None:
    topology = topology_of(tmp_path, free_port, another_free_port, yet_another_free_port)

    def start(site: str) -> Gateway:
        return start_gateway(
            "--topology", str(topology), "--name", f"gw-{site}", "--data", str(tmp_path / site), "--http", "0"
        )

    here, there, away = map(start, SITES)
    received: list[int] = []

    def remember(_client: Any, _data: Any, message: MQTTMessage) -> None:
        received.append(int.from_bytes(message.payload[:8], "big"))

    def read() -> Guest:
        reader = Guest(away.port, MQTTProtocolVersion.MQTTv311, "reader", keep=True)
        reader.client.on_message = remember
        reader.connect()
        return reader

    reader = read()
    reader.subscribe("t", 1)
    writer = Guest(here.port, V5, "writer")
    writer.client.max_inflight_messages_set(1_000)
    writer.connect()
    flow = Flow(writer)
    until = time.monotonic() + PATIENCE_S
    while not received:
        assert time.monotonic() < until, "the gateways do not meet"
        flow.publish(0.2)
    away.kill()
    reader.client.loop_stop()
    flow.publish(5)  # that it is away is known to all gateways
    before, sent = memory(here), link(here, "gw-there")["day_bytes"]
    elsewhere = link(there, "gw-away")["waiting"]
    flow.publish(AWAY_S)
    flow.wait()
    grown = memory(here) - before
    carried = link(here, "gw-there")["day_bytes"] - sent
    waiting = link(here, "gw-away")["waiting"]
    print(f"{waiting} messages wait; memory grew by {grown / 1e6:.1f} MB; the other uplink carried {carried} bytes")
    assert waiting > 0.9 * AWAY_S * RATE
    assert flow.refused == 0, "the disk has room for all of them"
    assert carried < 20_000, "signals of the link alone"
    assert link(there, "gw-away")["waiting"] == elsewhere
    assert grown < MEMORY_GROWTH_MAX

    away = start("away")
    reader = read()
    until = time.monotonic() + PATIENCE_S + AWAY_S
    while not flow.acknowledged <= set(received):
        assert time.monotonic() < until, f"{len(flow.acknowledged - set(received))} acknowledged messages are missing"
        time.sleep(0.2)
    assert link(here, "gw-away")["dropped"] == {}
    for gateway in (away, there, here):
        gateway.stop()


def test_an_operator_sees_what_waits_for_a_peer_and_discards_it(
    start_gateway: Callable[..., Gateway],
    tmp_path: Path,
    free_port: int,
    another_free_port: int,
    yet_another_free_port: int,
) -> None:
    """The others were never there, so nobody knows what they want, and they get everything."""
    topology = topology_of(tmp_path, free_port, another_free_port, yet_another_free_port)
    settings = tmp_path / "gateway.toml"
    settings.write_text(
        f'[node]\nname = "gw-here"\n[data]\ndir = "{tmp_path / "here"}"\n[http]\nport = 0\n[overlay]\n'
        f'topology = "{topology}"\noutbox_messages_max = 8\noutbox = ["gw-there 2000000 drop-newest"]\n'
        "roaming = false\n"  # nothing waits but what clients publish
    )
    here = start_gateway("--config", str(settings))
    where = ("--http", f"127.0.0.1:{here.listening['http']['port']}")
    writer = Guest(here.port, V5, "writer")
    writer.connect()
    for number in range(20):
        writer.publish("t", b"%d" % number, 1)
    until = time.monotonic() + PATIENCE_S
    while link(here, "gw-away")["waiting"] < 15:
        assert time.monotonic() < until, "nothing waits"
        time.sleep(0.1)
    code, said = command_line("outbox", "list", "gw-away", *where, "--limit", "2")
    assert (code, said.count("writer")) == (0, 2)
    assert "15 messages, " in said, "nearly twice as much as may wait, of what nobody is known to want"
    assert "8 messages and" in said
    assert "dropped: 7 queue_full" in command_line("outbox", "list", "gw-there", *where)[1], "the rest was refused"
    with pytest.raises(HTTPError) as failure:
        urlopen(f"http://{where[1]}/health", timeout=PATIENCE_S)
    health = json.load(failure.value)
    warnings = [text for text in health["warnings"] if text.startswith("links: ")]
    risks = health["checks"]["outboxes"]["risks"]
    assert any("the outbox for gw-away is nearly full" in text and "will be refused" in text for text in risks)
    assert "links: acknowledged messages for gw-there were dropped since the start: 7 queue_full" in warnings
    assert command_line("outbox", "discard", "gw-away", *where)[0] == 2, "nobody is there who could be asked"
    assert command_line("outbox", "discard", "gw-away", *where, "--yes") == (0, "15 discarded\n")
    assert command_line("outbox", "discard", "gw-away", *where, "--yes") == (1, "0 discarded\n")
    code, said = command_line("outbox", "list", "gw-away", *where)
    assert (code, "dropped: 15 discarded" in said) == (1, True)
    assert "peer is 'gw-awry'; did you mean gw-away" in command_line("outbox", "list", "gw-awry", *where)[1]
    here.stop()
