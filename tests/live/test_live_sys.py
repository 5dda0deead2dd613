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
