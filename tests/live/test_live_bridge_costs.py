"""What a bridge has spent of its day's bytes, and who spent it, over other settings and a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ENVIRONMENT, Gateway
from .mosquitto import NEEDS_MOSQUITTO
from .test_live_bridge_control import await_state, bridge
from .test_live_bridge_faults import await_row
from .test_live_own_bridge import await_bridge, guest_of, mosquitto, settings

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]
BUDGET = "bytes_per_day = 20_000\n"


def costs(gateway: Gateway) -> dict[str, Any]:
    code, said = bridge(gateway, "costs", "up", "--depth", "2", "--json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_the_days_bytes_outlast_settings_and_restarts(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TZ", f"X{time.gmtime().tm_hour - 12}")  # here it is noon, so no day ends
    with mosquitto(tmp_path, free_port):
        config = settings(tmp_path, free_port, "5", "a/# out 1", "b/# in 1", more=BUDGET)
        gateway = start_gateway("--config", config, "--http", "0")
        there, here = guest_of(free_port, "there"), guest_of(gateway.port, "here")
        await_bridge(there)
        there.subscribe("a/#", 1)
        here.subscribe("b/#", 1)
        for number in range(10):
            here.publish(f"a/big/{number}", b"x" * 1_000, 1)
            there.publish(f"b/{number}", b"", 1)
        assert {there.next().topic for _ in range(10)} == {f"a/big/{number}" for number in range(10)}
        assert {here.next().topic for _ in range(10)} == {f"b/{number}" for number in range(10)}
        found = costs(gateway)
        first, *others = found["prefixes"]
        assert first["prefix"] == "a/big"
        assert first["today"] == first["total"]
        assert first["today"]["out"]["messages"] == 10
        assert 10_000 < first["today"]["out"]["bytes"] < 11_000
        assert sum(row["total"]["in"]["messages"] for row in others) == 10
        line = found["line"]["today"]
        spent = line["out"]["bytes"] + line["in"]["bytes"]
        assert 10_000 < spent <= await_state(gateway, "open")["toll"]["spent"] < spent + 100, "an answer may be late"
        said = bridge(gateway, "costs", "up")[1].splitlines()
        assert said[2].startswith("a/big ")
        assert said[-1].startswith("answers, pings, greetings ")

        Path(config).write_text(Path(config).read_text() + "rate_messages_s = 100\n")
        there.subscribe("here/up", 1)  # before: who comes when the bridge is back finds only that it is
        gateway.reload()
        states = iter(lambda: there.next().payload, None)
        assert b"0" in states
        assert b"1" in states
        there.unsubscribe("here/up")
        later = await_state(gateway, "open")["toll"]
        assert (later["rate_messages_s"], costs(gateway)["prefixes"]) == (100, [])
        assert later["spent"] > spent
        gateway.stop()
        gateway = start_gateway("--config", config, "--http", "0")
        assert await_state(gateway, "open")["toll"]["spent"] > later["spent"]
        here = guest_of(gateway.port, "here")
        for number in range(10, 30):
            here.publish(f"a/big/{number}", b"x" * 1_000, 1)
        said = "the 20,000 bytes of the day are spent: what goes out waits until 00:00"
        assert await_row(gateway, lambda row: row["toll"]["warning"] == said)["toll"]["held"] > 10
        assert f"up: {said}\n" in bridge(gateway, "list")[1]
