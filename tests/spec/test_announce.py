"""`edgebroker announce`: what Home Assistant is told of devices, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edgebroker
from edgebroker.cli import Refused, main
from edgebroker.cli.announce import GATEWAY_VALUES, announcements

DEVICE: dict[str, Any] = {"id": "unit-07", "topic": "truck/unit-07", "values": {"temperature": {"unit": "C"}}}


def said(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = announcements({"device": list(devices), **more}, "homeassistant")
    return {topic: json.loads(payload) for topic, payload in found.items()}


def test_a_value_is_an_entity_of_its_device() -> None:
    device = DEVICE | {"name": "Unit 07", "maker": "Acme", "model": "M1"}
    device["values"] = {
        "temperature": {
            "unit": "\u00b0C",
            "class": "temperature",
            "state_class": "measurement",
            "name": "Inside",
        }
    }
    assert said(device) == {
        "homeassistant/sensor/unit-07/temperature/config": {
            "name": "Inside",
            "unique_id": "unit-07-temperature",
            "state_topic": "truck/unit-07",
            "value_template": "{{ value_json.temperature }}",
            "unit_of_measurement": "\u00b0C",
            "device_class": "temperature",
            "state_class": "measurement",
            "origin": {"name": "edgebroker", "sw_version": edgebroker.__version__},
            "device": {"identifiers": ["unit-07"], "name": "Unit 07", "manufacturer": "Acme", "model": "M1"},
        }
    }


@pytest.mark.parametrize(
    ("key", "value", "template"),
    [
        ("lat", {"path": "pos.lat"}, "{{ value_json.pos.lat }}"),
        ("first", {"path": "tags[0]"}, "{{ value_json.tags[0] }}"),
        ("odd key", {}, '{{ value_json["odd key"] }}'),
        ("quote", {"path": 'a"}} {{x'}, '{{ value_json["a\\"}} {{x"] }}'),
        ("door_open", {"kind": "binary_sensor"}, "{{ value_json.door_open | lower }}"),
    ],
)
def test_templates(key: str, value: dict[str, str], template: str) -> None:
    (found,) = said(DEVICE | {"values": {key: value}}).values()
    assert found["value_template"] == template


def test_what_is_on_or_off_and_who_is_there() -> None:
    device = DEVICE | {"status": "truck/unit-07/status", "values": {"door": {"kind": "binary_sensor", "class": "door"}}}
    ((topic, found),) = said(device).items()
    assert topic == "homeassistant/binary_sensor/unit-07/door/config"
    assert (found["payload_on"], found["payload_off"]) == ("true", "false")
    assert found["availability_topic"] == "truck/unit-07/status"


def test_words_for_on_and_off_are_compared_in_lower_case() -> None:
    values = {"door": {"kind": "binary_sensor", "on": "OPEN", "off": "Closed"}}
    (found,) = said(DEVICE | {"values": values}).values()
    assert found["value_template"] == "{{ value_json.door | lower }}"
    assert (found["payload_on"], found["payload_off"]) == ("open", "closed")


def test_a_gateway_shows_its_own_figures() -> None:
    found = said(gateway={"id": "gw", "sys": "gw/$SYS/broker"})
    assert len(found) == len(GATEWAY_VALUES)
    assert (
        found["homeassistant/sensor/gw/clients-connected/config"]["state_topic"] == "gw/$SYS/broker/clients/connected"
    )
    assert len({one["unique_id"] for one in found.values()}) == len(found)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "nothing to announce"),
        ({"devices": []}, "no key 'devices'; did you mean device?"),
        ({"device": [{"id": "a"}]}, "[[device]] 1: topic is missing"),
        ({"device": [DEVICE | {"id": "a/b"}]}, "id is 'a/b'"),
        ({"device": [DEVICE | {"topic": "a/#"}]}, "[[device]] 1: "),
        ({"device": [DEVICE | {"values": {"a": 3}}]}, "[[device]] 1, values.a is no table"),
        ({"device": [DEVICE | {"values": {"a": {"units": "C"}}}]}, "no key 'units'; did you mean unit?"),
        ({"device": [DEVICE | {"values": {"a": {"kind": "light"}}}]}, "write sensor or binary_sensor"),
        ({"device": [DEVICE | {"values": {"a": {"state_class": "sum"}}}]}, "write measurement, "),
        ({"device": [DEVICE, DEVICE]}, "is announced twice"),
        ({"gateway": {"name": "x"}}, "[gateway]: id is missing"),
        ({"gateway": []}, "gateway is no table"),
    ],
)
def test_what_cannot_be_announced_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Refused) as refused:
        announcements(given, "homeassistant")
    assert complaint in str(refused.value)


def test_a_dry_run_connects_to_nobody(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text('[[device]]\nid = "a"\ntopic = "t"\nvalues = { temp = {} }\n')
    announced = CliRunner().invoke(main, ["announce", str(file), "--dry-run", "--prefix", "ha"])
    topic, _, payload = announced.output.partition(" ")
    assert (topic, json.loads(payload)["unique_id"]) == ("ha/sensor/a/temp/config", "a-temp")
    withdrawn = CliRunner().invoke(main, ["announce", str(file), "--dry-run", "--withdraw", "--prefix", "ha"])
    assert withdrawn.output == "ha/sensor/a/temp/config\n"
    file.write_text("[[device]\n")
    broken = CliRunner().invoke(main, ["announce", str(file), "--dry-run"])
    assert (broken.exit_code, str(file) in broken.output) == (2, True)
