"""The $SYS tree beside that of a running Mosquitto: who watches one finds the same in the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import V5, Gateway, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

ABSENT = {"$SYS/broker/publish/bytes/received", "$SYS/broker/publish/bytes/sent"}
"""What docs/mqtt.md says is not there."""


def retained(guest: Any) -> set[str]:
    """The topics of what is retained under $SYS: up to the first that is not."""
    guest.subscribe("$SYS/#", 1)
    names: set[str] = set()
    while (message := guest.next()).retain:
        names.add(message.topic)
    return names


SAME = {
    "subscriptions/count": b"3",
    "shared_subscriptions/count": b"2",
    "clients/total": b"3",
    "clients/connected": b"2",
    "clients/disconnected": b"1",
}
"""What both say when a reader with two subscriptions and one that shares, a sleeper that shares, and a watcher came."""


def await_figures(port: int) -> None:
    """Until each figure of SAME is told; it never is if it means something else there."""
    reader, sleeper, watcher = (
        Guest(port, V5, name, keep=name == "sleeper") for name in ("reader", "sleeper", "watcher")
    )
    for one in (reader, sleeper, watcher):
        one.connect()
    for topic in ("a", "b/#", "$share/g/c"):
        reader.subscribe(topic, 1)
    sleeper.subscribe("$share/g/c", 1)
    sleeper.leave()
    watcher.subscribe("$SYS/broker/+/#", 0)
    missing = dict(SAME)
    looks = 0
    while missing and looks < 15:
        message = watcher.next()
        name = message.topic.removeprefix("$SYS/broker/")
        looks += name == "uptime"
        if missing.get(name) == message.payload:
            del missing[name]
    assert not missing
    for one in (reader, watcher):
        one.leave()


def test_figures_mean_what_they_mean_in_mosquitto(tmp_path: Path, free_port: int) -> None:
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {free_port} 127.0.0.1\nallow_anonymous true\nsys_interval 1\n")
    settings = tmp_path / "gateway.toml"
    settings.write_text("[listener]\nport = 0\n[mqtt]\nsys_interval_s = 1\n")
    with running(config, free_port):
        await_figures(free_port)
    gateway = Gateway("--config", str(settings))
    try:
        await_figures(gateway.port)
    finally:
        gateway.stop()


def test_every_topic_of_mosquitto_is_here(tmp_path: Path, free_port: int) -> None:
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {free_port} 127.0.0.1\nallow_anonymous true\nsys_interval 1\n")
    settings = tmp_path / "gateway.toml"
    settings.write_text("[listener]\nport = 0\n[mqtt]\nsys_interval_s = 1\n")
    gateway = Gateway("--config", str(settings))
    try:
        with running(config, free_port):
            theirs, ours = Guest(free_port, V5, "watcher"), Guest(gateway.port, V5, "watcher")
            for one in (theirs, ours):
                one.connect()
            names, own = retained(theirs), retained(ours)
            for one in (theirs, ours):
                one.leave()
    finally:
        gateway.stop()
    assert len(names) > 40
    assert names - own == ABSENT
