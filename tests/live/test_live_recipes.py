"""The lines for mosquitto.conf that the documents show, in an unmodified Mosquitto: only what matches comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

ROOT = Path(__file__).parents[2]
LINES = re.compile(r"^```text\n(connection \S+\naddress (\S+)\ntopic \$filter/.*?)^```$", re.M | re.S)
SHOWN = {
    path.name: found
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if (found := LINES.search(path.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("document", SHOWN)
def test_a_mosquitto_with_the_lines_gets_the_matching_stream_alone(
    gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, document: str
) -> None:
    lines = SHOWN[document][1].replace(SHOWN[document][2], f"127.0.0.1:{gateway.port}")
    config = tmp_path / "mosquitto.conf"
    # Its own name: else it resumes the session of the document before, for which what is retained now waited as well.
    config.write_text(f"listener {free_port} 127.0.0.1\nallow_anonymous true\n{lines}remote_clientid {document}\n")
    writer = guest("writer")
    writer.publish("sensors/kept", b'{"temp":40}', retain=True)
    with running(config, free_port):
        there = Guest(free_port, V5, "there")
        there.connect()
        there.subscribe("#", 1)
        assert there.next().topic == "sensors/kept", "and now the bridge has subscribed"
        for topic, payload in (
            ("sensors/a", b'{"temp":29}'),
            ("sensors/b", b'{"temp":31}'),
            ("elsewhere", b'{"temp":32}'),
            ("sensors/c", b"no reading"),
            ("sensors/d/e", b'{"temp":33}'),
        ):
            writer.publish(topic, payload, 1)
        received = [there.next() for _ in range(2)]
        there.leave()
    writer.publish("sensors/kept", b"", retain=True)
    assert [(message.topic, message.payload) for message in received] == [
        ("sensors/b", b'{"temp":31}'),
        ("sensors/d/e", b'{"temp":33}'),
    ]


def test_the_lines_are_shown() -> None:
    assert "recipes.md" in SHOWN
