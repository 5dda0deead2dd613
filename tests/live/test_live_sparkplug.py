"""Sparkplug B through a gateway: filters name metrics, births tell what aliases stand for, whoever listens to them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.live

# As a Sparkplug library writes them: a metric has name, alias, type (10: Double) and double_value.
TEMP = b"\x0a\x04temp\x10\x01\x20\x0a\x69" + struct.pack("<d", 20.0)
BIRTH = b"\x12" + bytes([len(TEMP)]) + TEMP
TOPIC = "spBv1.0/plant/{}/edge/press"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    settings = tmp_path_factory.mktemp("gateway") / "gateway.toml"
    settings.write_text("[listener]\nport = 0\n[mqtt]\nsparkplug_rebirth_s = 1\n")
    return "--config", str(settings)


def reading(value: float) -> bytes:
    """DDATA: the alias alone."""
    metric = b"\x10\x01\x69" + struct.pack("<d", value)
    return b"\x12" + bytes([len(metric)]) + metric


def test_a_subscriber_asks_for_a_metric_by_its_name(gateway: Any, guest: Callable[..., Any]) -> None:
    press, before, after = guest("press"), guest("before"), guest("after")
    before.subscribe("$filter/temp > 30/spBv1.0/#", 1)
    press.publish(TOPIC.format("DBIRTH"), BIRTH)
    after.subscribe("$filter/temp > 30/spBv1.0/+/DDATA/#", 1)  # the birth was before it came
    for value in (31.0, 29.0, 32.0):
        press.publish(TOPIC.format("DDATA"), reading(value))
    for reader in (before, after):
        assert [message.payload for message in reader.all_from(press)] == [reading(31.0), reading(32.0)]
    press.publish(TOPIC.format("DDEATH"), b"")
    press.publish(TOPIC.format("DDATA"), reading(33.0))
    assert before.all_from(press) == []


def test_a_node_whose_aliases_nobody_knows_is_asked_for_another_birth(gateway: Any, guest: Callable[..., Any]) -> None:
    press, reader = guest("press"), guest("reader")
    reader.subscribe("$filter/temp > 30/spBv1.0/+/DDATA/#", 1)
    press.subscribe("spBv1.0/plant/NCMD/edge", 1)
    press.publish(TOPIC.format("DDATA"), reading(31.0))  # what 1 stands for was said before this gateway came
    request = press.next()
    assert (request.topic, request.payload[-24:]) == (
        "spBv1.0/plant/NCMD/edge",
        b"Node Control/Rebirth\x20\x0b\x70\x01",
    )
    press.publish(TOPIC.format("DBIRTH"), BIRTH)
    press.publish(TOPIC.format("DDATA"), reading(32.0))
    assert [message.payload for message in reader.all_from(press)] == [reading(32.0)]
    press.publish(TOPIC.format("DDEATH"), b"")


def test_a_birth_reaches_who_wants_it_and_is_nobodys_otherwise(gateway: Any, guest: Callable[..., Any]) -> None:
    press, reader, warm = guest("press"), guest("reader"), guest("warm")
    reader.subscribe("spBv1.0/plant/DBIRTH/#", 1)
    warm.subscribe("$filter/temp < 0/spBv1.0/plant/DBIRTH/#", 1)
    press.publish(TOPIC.format("DBIRTH"), BIRTH)
    assert reader.next().payload == BIRTH
    assert warm.all_from(press) == []
