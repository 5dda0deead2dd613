"""A gateway's bridge to an unmodified Mosquitto: out, in, both directions, and while either side is down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from .conftest import V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

VERSIONS = pytest.mark.parametrize("spoken", ["5", "3.1.1"])
WARM, COOL = b'{"temp":31}', b'{"temp":29}'


def guest_of(port: int, name: str, version: MQTTProtocolVersion = V5) -> Guest:
    guest = Guest(port, version, name)
    guest.connect()
    return guest


@contextlib.contextmanager
def mosquitto(folder: Path, port: int, *lines: str) -> Iterator[None]:
    config = folder / "mosquitto.conf"
    # 2.0.11 forgets what is queued for a client of version 5 beyond its window of 20, now and then.
    plain = (f"listener {port} 127.0.0.1", "allow_anonymous true", "max_inflight_messages 0", "max_queued_messages 0")
    config.write_text("\n".join((*plain, *lines)) + "\n")
    with running(config, port):
        yield


def settings(folder: Path, remote: int, spoken: str, *rules: str, more: str = "") -> str:
    """A settings file with one bridge; its path."""
    file = folder / "gateway.toml"
    listed = ", ".join(f"'{rule}'" for rule in rules)
    file.write_text(
        f'[data]\ndir = "{folder}/data"\n'
        f'[[bridge]]\nname = "up"\naddresses = ["127.0.0.1:{remote}"]\nversion = "{spoken}"\n'
        f'topic = [{listed}]\nnotification_topic = "here/up"\nretry_s_max = 1\n{more}'
    )
    return str(file)


def await_bridge(there: Guest, state: bytes = b"1") -> None:
    """Until the bridge has told there that it is connected (1) or not (0)."""
    there.subscribe("here/up", 1)
    while (message := there.next()).topic != "here/up" or message.payload != state:
        pass
    there.unsubscribe("here/up")


def seen(message: Any) -> tuple[str, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_out(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str, qos: int) -> None:
    with mosquitto(tmp_path, free_port):
        rules = (f"sensors/# out {qos}", f"alarm/# out {qos} local/ site/")
        gateway = start_gateway("--config", settings(tmp_path, free_port, spoken, *rules))
        there, here = guest_of(free_port, "there"), guest_of(gateway.port, "here")
        await_bridge(there)
        there.subscribe("#", 2)
        for number in range(20):
            here.publish("sensors/a", b"%d" % number, 2)
        here.publish("elsewhere", b"", 2)
        here.publish("local/alarm/fire", WARM, 2)
        received = [message for _ in range(22) if (message := there.next()).topic != "here/up"]
        expected = [("sensors/a", b"%d" % number, qos, False) for number in range(20)]
        assert [seen(one) for one in received] == [*expected, ("site/alarm/fire", WARM, qos, False)]
        gateway.stop()


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_in(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str, qos: int) -> None:
    with mosquitto(tmp_path, free_port):
        there = guest_of(free_port, "there")
        there.publish("world/kept", b"kept", 2, retain=True)
        rules = (f"sensors/# in {qos} where temp > 30", f"kept in {qos} home/ world/")
        gateway = start_gateway("--config", settings(tmp_path, free_port, spoken, *rules))
        here = guest_of(gateway.port, "here")
        here.subscribe("#", 2)
        assert (first := here.next()).topic == "home/kept", "and now the bridge has subscribed"
        assert first.payload == b"kept"
        for payload in (COOL, WARM, b"not json", WARM):
            there.publish("sensors/a", payload, 2)
        assert [seen(here.next()) for _ in range(2)] == [("sensors/a", WARM, qos, False)] * 2
        there.publish("world/kept", b"last", 2)
        assert here.next().payload == b"last"
        gateway.stop()


@VERSIONS
def test_both(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str) -> None:
    """Every message is on each side once, although both sides are told of it."""
    with mosquitto(tmp_path, free_port):
        gateway = start_gateway("--config", settings(tmp_path, free_port, spoken, "both/+ both 1"))
        there, here = guest_of(free_port, "there"), guest_of(gateway.port, "here")
        await_bridge(there)
        for one in (here, there):
            one.subscribe("both/+", 1)
        for number in range(10):
            here.publish("both/here", b"%d" % number)
            there.publish("both/there", b"%d" % number)
        for one in (here, there):
            received = [one.next() for _ in range(20)]
            for topic in ("both/here", "both/there"):
                assert [int(message.payload) for message in received if message.topic == topic] == list(range(10))
        here.publish("both/last", b"here")
        assert (there.next().payload, here.next().payload) == (b"here", b"here"), "nothing came twice"
        gateway.stop()


@VERSIONS
def test_what_is_published_while_either_is_away_arrives_later(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str
) -> None:
    """First the remote has never been there; then it is lost, and we are restarted meanwhile."""
    config = settings(tmp_path, free_port, spoken, "up/# out 2", "down/# in 1", more="retained_again = false\n")
    gateway = start_gateway("--config", config)
    here = guest_of(gateway.port, "here")
    for number in range(50):  # retained, for nobody can be there before the bridge
        here.publish(f"up/{number}", b"first", 2, retain=True)
    with mosquitto(tmp_path, free_port):
        there = guest_of(free_port, "there")
        there.subscribe("up/#", 2)
        assert {there.next().topic for _ in range(50)} == {f"up/{number}" for number in range(50)}
        await_bridge(there)
        gateway.kill()
        for number in range(5):
            there.publish("down/a", b"%d" % number)
        gateway = start_gateway("--config", config)
        here = guest_of(gateway.port, "here too")
        here.subscribe("down/#", 1)
        here.publish("up/a", b"again", 2)
        assert there.next().payload == b"again", "and not what came before"
        there.leave()
    for number in range(5):
        here.publish("up/5", b"%d" % number, 2, retain=True)
    with mosquitto(tmp_path, free_port):
        there = guest_of(free_port, "there")
        there.subscribe("up/5", 2)
        while there.next().payload != b"4":
            pass
    gateway.stop()


def test_who_was_told_that_a_remote_is_not_there_is_told_when_it_is(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    gateway = start_gateway("--config", settings(tmp_path, free_port, "5", "a/# out"), "--log-level", "warning")
    assert " warning bridge-down: " in gateway.process.stderr.readline().decode()
    with mosquitto(tmp_path, free_port):
        while " warning bridge-up: the remote is there " not in (line := gateway.process.stderr.readline().decode()):
            assert " warning bridge-down: " in line
        gateway.kill()
