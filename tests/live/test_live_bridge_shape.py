"""What a rule makes of payloads, as an unmodified Mosquitto gets it; and batches, from it and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebridge.bridge.batching import decode_envelope

from .mosquitto import NEEDS_MOSQUITTO
from .test_live_own_bridge import await_bridge, guest_of, mosquitto, settings

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]


def test_payloads_and_batches(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    rules = (
        "plain/# out 1 select=temp,pos.lat rename=temp:t",
        'sensors/# out 1 "" site/ convert=cbor batch_messages=3',
        "sensors/# in 1 back/ site/ convert=json unbatch=true batch_topic=again",
    )
    with mosquitto(tmp_path, free_port):
        gateway = start_gateway("--config", settings(tmp_path, free_port, "5", *rules))
        there, here = guest_of(free_port, "there"), guest_of(gateway.port, "here")
        await_bridge(there)
        there.subscribe("plain/#", 2)
        there.subscribe("site/batch", 2)
        here.subscribe("back/#", 2)
        here.publish("plain/a", b'{"temp": 31, "pos": {"lat": 1.50, "lon": 2}, "id": 7}', 2)
        assert there.next().payload == b'{"t":31,"pos":{"lat":1.5}}'
        for number in range(3):
            here.publish(f"sensors/{number}", b'{"n":%d}' % number, 1)
        batch = there.next()
        read = [(one.topic, one.payload) for one in decode_envelope(batch.payload).entries]
        assert read == [(f"site/sensors/{number}", b"\xa1\x61n" + bytes([number])) for number in range(3)]
        assert batch.properties.ContentType == "application/cbor"
        there.publish("site/again", batch.payload, 1)
        came = [here.next() for _ in range(3)]
        assert [(one.topic, one.payload) for one in came] == [(f"back/sensors/{n}", b'{"n":%d}' % n) for n in range(3)]
        gateway.stop()
