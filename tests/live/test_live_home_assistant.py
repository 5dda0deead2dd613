"""What Home Assistant and the devices that announce themselves to it rely on: MQTT discovery, birth and wills.

The home here is a small one: it subscribes to the discovery topics as Home Assistant does, reads the abbreviations of
https://www.home-assistant.io/integrations/mqtt#discovery-messages, and keeps entities and their availability.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from .conftest import V5, Guest

pytestmark = pytest.mark.live

VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5"])
DISCOVERY = ("homeassistant/+/+/config", "homeassistant/+/+/+/config")
BIRTH = "homeassistant/status"
ABBREVIATIONS = {
    "avty_t": "availability_topic",
    "cmps": "components",
    "dev": "device",
    "dev_cla": "device_class",
    "ids": "identifiers",
    "mdl": "model",
    "mf": "manufacturer",
    "o": "origin",
    "opts": "options",
    "p": "platform",
    "stat_t": "state_topic",
    "uniq_id": "unique_id",
    "unit_of_meas": "unit_of_measurement",
    "val_tpl": "value_template",
}
KINDS = (("temperature", "\N{DEGREE SIGN}C"), ("humidity", "%"), ("battery", "%"), ("voltage", "V"))
DEVICES, LARGE_BYTES = 12, 200_000  # a device with a hundred components announces itself with 50 to 200 kB


def config_of(device: int, kind: str, unit: str) -> tuple[str, dict[str, Any]]:
    """The topic and the abbreviated announcement of one sensor."""
    node = f"meter-{device}"
    announced = {
        "~": f"meters/{node}",
        "name": kind,
        "uniq_id": f"{node}-{kind}",
        "stat_t": "~/state",
        "avty_t": "~/status",
        "dev_cla": kind,
        "unit_of_meas": unit,
        "val_tpl": "{{ value_json." + kind + " }}",
        "dev": {"ids": [node], "mf": "Acme" if device % 2 else "Bolt", "mdl": "M1", "sw": "1.0"},
    }
    return f"homeassistant/sensor/{node}/{kind}/config", announced


def spelled_out(value: Any, base: str = "") -> Any:
    """An announcement without abbreviations."""
    if isinstance(value, list):
        return [spelled_out(one, base) for one in value]
    if not isinstance(value, dict):
        return value.replace("~", base) if isinstance(value, str) and base else value
    base = value.get("~", base)
    return {ABBREVIATIONS.get(key, key): spelled_out(one, base) for key, one in value.items() if key != "~"}


class Device:
    """A meter with four sensors, which announces itself whenever a home is born."""

    def __init__(self, guest: Guest, number: int) -> None:
        self.guest = guest
        self.number = number
        self.status = f"meters/meter-{number}/status"
        guest.client.will_set(self.status, b"offline", 1, retain=True)
        guest.connect()
        self.announce()

    def announce(self) -> None:
        for kind, unit in KINDS:
            topic, announced = config_of(self.number, kind, unit)
            self.guest.publish(topic, json.dumps(announced).encode(), retain=True)
        self.guest.publish(self.status, b"online", retain=True)

    def forget(self) -> None:
        for kind, unit in KINDS:
            self.guest.publish(config_of(self.number, kind, unit)[0], b"", retain=True)
        self.guest.publish(self.status, b"", retain=True)


class Home:
    """Entities by their unique id, as far as they have announced themselves."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.entities: dict[str, dict[str, Any]] = {}
        self._ids: dict[str, set[str]] = {}

    def discover(self, *filters: str) -> None:
        self.guest.subscribe([(topic, 0) for topic in filters])

    def hear(self, writer: Guest) -> None:
        """Everything that *writer* and all before it have published."""
        for message in self.guest.all_from(writer):
            if message.topic.endswith("/config"):
                self.learn(message.topic, message.payload)
            elif message.topic.endswith("/status"):
                for entity in self.entities.values():
                    if entity["availability_topic"] == message.topic:
                        entity["is_available"] = message.payload == b"online"

    def learn(self, topic: str, payload: bytes) -> None:
        for gone in self._ids.pop(topic, set()):
            del self.entities[gone]
        if payload:
            announced = spelled_out(json.loads(payload))
            parts = announced["components"].values() if "components" in announced else [announced]
            self.entities |= {part["unique_id"]: part for part in parts}
            self._ids[topic] = {part["unique_id"] for part in parts}


def expected(devices: range) -> set[str]:
    return {f"meter-{device}-{kind}" for device in devices for kind, _ in KINDS}


@VERSIONS
def test_a_home_finds_all_that_announced_itself(guest: Callable[..., Any], version: Any) -> None:
    """Before it came, while it is there, and again after it has unsubscribed or was away."""
    devices = [Device(guest(connected=False), number) for number in range(DEVICES)]
    home, writer = Home(guest("home")), guest("writer")
    home.discover(*DISCOVERY, "meters/+/status")
    home.hear(writer)
    assert set(home.entities) == expected(range(DEVICES))
    assert home.entities["meter-3-humidity"] | {"device": None} == {
        "name": "humidity",
        "unique_id": "meter-3-humidity",
        "state_topic": "meters/meter-3/state",
        "availability_topic": "meters/meter-3/status",
        "device_class": "humidity",
        "unit_of_measurement": "%",
        "value_template": "{{ value_json.humidity }}",
        "device": None,
        "is_available": True,
    }
    devices.append(Device(guest(connected=False), DEVICES))
    home.hear(writer)
    assert set(home.entities) == expected(range(DEVICES + 1)), "one that came later"
    for topic in DISCOVERY:
        home.guest.unsubscribe(topic)
    devices[0].forget()
    again = Home(home.guest)
    again.discover(*DISCOVERY)
    again.hear(writer)
    assert set(again.entities) == expected(range(1, DEVICES + 1)), "what is retained now, no more and no less"
    devices[1].forget()
    again.hear(writer)
    assert set(again.entities) == expected(range(2, DEVICES + 1)), "an empty announcement takes an entity away"
    for device in devices[2:]:
        device.forget()


@VERSIONS
def test_availability_follows_the_connection(guest: Callable[..., Any], version: Any) -> None:
    devices = [Device(guest(connected=False), number) for number in range(2)]
    home, writer = Home(guest("home")), guest("writer")
    home.discover(*DISCOVERY, "meters/+/status")
    home.hear(writer)
    devices[1].guest.vanish()
    # The will is published when the gateway has seen the end of the connection: wait for it, not for time.
    while (message := home.guest.next()).payload != b"offline":
        pass
    assert (message.topic, message.retain) == (devices[1].status, False)
    late = Home(guest("late"))
    late.discover(*DISCOVERY)
    late.hear(writer)
    late.discover("meters/+/status")
    late.hear(writer)
    assert {name for name, entity in late.entities.items() if entity["is_available"]} == expected(range(1))
    devices[1] = Device(guest(connected=False), 1)
    late.hear(writer)
    assert all(entity["is_available"] for entity in late.entities.values())
    for device in devices:
        device.forget()


@VERSIONS
def test_devices_announce_themselves_when_a_home_is_born(guest: Callable[..., Any], version: Any) -> None:
    """Home Assistant says `online` when it has started, and leaves `offline` as its will."""
    device = Device(guest(connected=False), 0)
    device.forget()
    device.guest.subscribe(BIRTH, 1)
    home = Home(guest("home", connected=False))
    home.guest.client.will_set(BIRTH, b"offline", 0)
    home.guest.connect()
    home.discover(*DISCOVERY)
    home.guest.publish(BIRTH, b"online", 0)
    assert device.guest.next().payload == b"online"
    device.announce()
    home.hear(device.guest)
    assert set(home.entities) == expected(range(1))
    home.guest.vanish()
    assert device.guest.next().payload == b"offline"
    device.forget()


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_device_announces_a_hundred_components_at_once(guest: Callable[..., Any], version: Any, qos: int) -> None:
    """In one large retained message on the device topic, which the discovery topics match too."""
    components = {
        f"part-{number}": {"p": "select", "uniq_id": f"part-{number}", "opts": ["x" * 50] * 40} for number in range(100)
    }
    announced = {"dev": {"ids": "big", "mf": "Acme"}, "o": {"name": "test"}, "cmps": components}
    payload = json.dumps(announced).encode()
    assert len(payload) > LARGE_BYTES
    device = guest("device")
    device.publish("homeassistant/device/big/config", payload, qos, retain=True)
    for name in ("first", "second"):
        home = Home(guest(name))
        home.discover(*DISCOVERY)
        home.hear(device)
        assert set(home.entities) == set(components)
        assert home.entities["part-7"]["options"] == ["x" * 50] * 40
    device.publish("homeassistant/device/big/config", b"", qos, retain=True)


@VERSIONS
def test_a_home_that_wants_some_entities_only(guest: Callable[..., Any], version: Any) -> None:
    """A content filter on the announcement itself: less to read for a small display."""
    devices = [Device(guest(connected=False), number) for number in range(4)]
    display, writer = Home(guest("display")), guest("writer")
    wanted = "dev_cla IN ('temperature', 'humidity') AND dev.mf = 'Acme'"
    display.discover(f"$filter/{wanted}/homeassistant/+/+/+/config")
    display.hear(writer)
    assert set(display.entities) == {f"meter-{number}-{kind}" for number in (1, 3) for kind, _ in KINDS[:2]}
    devices.append(Device(guest(connected=False), 5))
    display.hear(writer)
    assert {name for name in display.entities if name.startswith("meter-5")} == {
        "meter-5-temperature",
        "meter-5-humidity",
    }
    for device in devices:
        device.forget()


@pytest.mark.parametrize("handling", [0, 1, 2])
def test_retain_handling(guest: Callable[..., Any], handling: int) -> None:
    """Version 5: a home that reconnects to its session may ask to be told again, only if it is new, or never."""
    device = Device(guest("meter", V5, connected=False), 0)
    home = Home(guest("home", V5))
    for told in ({0: 4, 1: 4, 2: 0}, {0: 4, 1: 0, 2: 0}):
        home.guest.subscribe("homeassistant/+/+/+/config", options=SubscribeOptions(0, retainHandling=handling))
        assert len(home.guest.all_from(device.guest)) == told[handling]
    device.forget()


@VERSIONS
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_home_finds_all_after_the_gateway_was_away(
    start_gateway: Callable[..., Any], tmp_path: Path, version: Any, end: signal.Signals
) -> None:
    """Large announcements too: what was acknowledged is on the disk."""
    first = start_gateway("--data", str(tmp_path / "data"))
    devices = [Device(Guest(first.port, version, f"meter-{number}"), number) for number in range(3)]
    components = {
        f"part-{number}": {"p": "select", "uniq_id": f"part-{number}", "opts": ["x"] * 400} for number in range(50)
    }
    big = json.dumps({"cmps": {name: part | {"avty_t": "none"} for name, part in components.items()}}).encode()
    devices[0].guest.publish("homeassistant/device/big/config", big, retain=True)
    if end is signal.SIGTERM:
        first.stop()
    else:
        first.kill()
    for device in devices:
        device.guest.client.loop_stop()
    again = start_gateway("--data", str(tmp_path / "data"))
    home, writer = Home(Guest(again.port, version, "home")), Guest(again.port, version, "writer")
    home.guest.connect()
    writer.connect()
    home.discover(*DISCOVERY)
    home.hear(writer)
    assert set(home.entities) == expected(range(3)) | set(components)
    for one in (home.guest, writer):
        one.leave()
