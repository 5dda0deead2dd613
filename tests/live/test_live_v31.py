"""MQTT 3.1 by the clients that still speak it, and Mosquitto's bridges in every version, private or not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTv31

from .conftest import Guest
from .mosquitto import NEEDS_MOSQUITTO
from .test_live_mosquitto_bridge import bridge

pytestmark = pytest.mark.live
PUB = shutil.which("mosquitto_pub")


def test_paho_in_3_1(gateway: Any, guest: Callable[..., Any]) -> None:
    old = Guest(gateway.port, MQTTv31, "old")
    old.connect()
    new = guest("new")
    for one in (old, new):
        one.subscribe("t/#", 2)
    for number, writer in enumerate((old, new)):
        writer.publish("t/a", b"%d" % number, 2)
        assert [one.next().payload for one in (old, new)] == [b"%d" % number] * 2
    old.leave()


@pytest.mark.skipif(PUB is None, reason="mosquitto_pub is not installed")
def test_mosquitto_pub_in_3_1(gateway: Any, guest: Callable[..., Any]) -> None:
    reader = guest("reader")
    reader.subscribe("t", 1)
    said = ["-p", str(gateway.port), "-V", "mqttv31", "-q", "1", "-t", "t", "-m", "old", "-u", "user", "-P", "word"]
    subprocess.run([str(PUB), *said], check=True, timeout=30)
    assert reader.next().payload == b"old"


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("private", ["true", "false"])
@pytest.mark.parametrize("spoken", ["mqttv31", "mqttv311"])
def test_a_bridge_works_both_ways(
    gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str, private: str
) -> None:
    there = guest("there")
    there.publish("down/first", b"1", retain=True)
    there.subscribe("up/+", 1)
    rules = (f"try_private {private}", "topic up/+ out 1", "topic down/+ in 1")
    with bridge(tmp_path, free_port, gateway.port, spoken, *rules) as here:
        here.subscribe("down/+", 1)
        assert here.next().topic == "down/first"
        for number in range(5):
            here.publish("up/a", b"%d" % number)
            there.publish("down/a", b"%d" % number)
        assert [there.next().payload for _ in range(5)] == [b"%d" % number for number in range(5)]
        assert [here.next().payload for _ in range(5)] == [b"%d" % number for number in range(5)]
    there.publish("down/first", b"", retain=True)
