"""A bridge of an unmodified Mosquitto to a gateway: out, in, both directions, and over a restart."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

VERSIONS = pytest.mark.parametrize("spoken", ["mqttv311", "mqttv50"])
IN_TOPIC = "$filter/temp%3E30/sensors/#"
WARM, COOL = b'{"temp":31}', b'{"temp":29}'


@contextlib.contextmanager
def bridge(folder: Path, port: int, remote: int, spoken: str, *rules: str) -> Iterator[Guest]:
    """Mosquitto on *port* with a bridge to *remote*; a guest of Mosquitto, who knows that the bridge is connected."""
    config = folder / "mosquitto.conf"
    lines = (
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "connection uplink",
        f"address 127.0.0.1:{remote}",
        f"bridge_protocol_version {spoken}",
        "remote_clientid bridge",
        "restart_timeout 1",
        *rules,
    )
    config.write_text("\n".join(lines) + "\n")
    with running(config, port):
        here = Guest(port, V5, "here")
        here.connect()
        here.subscribe("$SYS/broker/connection/bridge/state", 1)
        await_state(here, b"1")
        yield here
        here.leave()


def await_state(guest: Guest, state: bytes) -> None:
    """Until the bridge has told that it is connected (1) or not (0)."""
    while (message := guest.next()).topic != "$SYS/broker/connection/bridge/state" or message.payload != state:
        pass


def seen(message: Any) -> tuple[str, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_out(gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str, qos: int) -> None:
    there, writer = guest("there"), guest("there too")
    there.subscribe("sensors/#", 2)
    with bridge(tmp_path, free_port, gateway.port, spoken, f"topic sensors/# out {qos}") as here:
        for number in range(20):
            here.publish("sensors/a", b"%d" % number, 2)
        here.publish("elsewhere", b"", 2)
        here.publish("sensors/kept", WARM, 2, retain=True)
        received = [seen(there.next()) for _ in range(21)]
        expected = [("sensors/a", b"%d" % number, qos, False) for number in range(20)]
        assert received == [*expected, ("sensors/kept", WARM, qos, False)]
        late = guest("late")
        late.subscribe("$filter/temp%3E30/sensors/#", 2)
        assert seen(late.next()) == ("sensors/kept", WARM, qos, True), "what was retained there is retained here"
        assert there.all_from(writer) == []
    writer.publish("sensors/kept", b"", retain=True)


@VERSIONS
def test_in(gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str) -> None:
    writer = guest("writer")
    writer.publish("sensors/kept", WARM, retain=True)
    writer.publish("sensors/cool", COOL, retain=True)
    with bridge(tmp_path, free_port, gateway.port, spoken, f"topic {IN_TOPIC} in 1", "topic plain/+ in 2") as here:
        here.subscribe("#", 2)
        assert here.next().topic == "sensors/kept", "and now the bridge has subscribed"
        for payload in (COOL, WARM, b"not json"):
            writer.publish("sensors/a", payload)
            writer.publish("plain/a", payload, 2)
        received = [seen(here.next()) for _ in range(4)]
        assert [one for one in received if one[0] == "sensors/a"] == [("sensors/a", WARM, 1, False)]
        assert [one[1:3] for one in received if one[0] == "plain/a"] == [(COOL, 2), (WARM, 2), (b"not json", 2)]
    for topic in ("sensors/kept", "sensors/cool"):
        writer.publish(topic, b"", retain=True)


@VERSIONS
def test_both(gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str) -> None:
    """Every message is on each side once, although both sides are told of it."""
    there = guest("there")
    there.publish("both/first", b"1", retain=True)
    there.subscribe("both/+", 1)
    assert there.next().topic == "both/first"
    with bridge(tmp_path, free_port, gateway.port, spoken, "topic both/+ both 1") as here:
        here.subscribe("both/+", 1)
        assert here.next().topic == "both/first", "and now the bridge has subscribed"
        for number in range(10):
            here.publish("both/here", b"%d" % number)
            there.publish("both/there", b"%d" % number)
        for one in (here, there):
            received = [one.next() for _ in range(20)]
            for topic in ("both/here", "both/there"):
                assert [int(message.payload) for message in received if message.topic == topic] == list(range(10))
        here.publish("both/last", b"here")
        assert (there.next().payload, here.next().payload) == (b"here", b"here"), "nothing came twice"
    there.publish("both/first", b"", retain=True)


@VERSIONS
def test_prefixes(gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str) -> None:
    there = guest("there")
    there.subscribe("site/+/#", 1)
    rules = ("topic # both 1 remote/ site/north/", "topic alarm/# out 1 local/ site/")
    with bridge(tmp_path, free_port, gateway.port, spoken, *rules) as here:
        here.subscribe("remote/#", 1)
        here.publish("remote/a/b", b"1")
        here.publish("local/alarm/fire", b"2")
        assert [(m.topic, m.payload) for m in (there.next(), there.next())] == [
            ("site/north/a/b", b"1"),
            ("site/alarm/fire", b"2"),
        ]
        assert here.next().topic == "remote/a/b"
        there.publish("site/north/c", b"3")
        assert here.next().topic == "remote/c"


@VERSIONS
def test_it_tells_the_gateway_whether_it_is_connected(
    gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str
) -> None:
    there = guest("there")
    there.subscribe("$SYS/broker/connection/+/state", 1)
    with bridge(tmp_path, free_port, gateway.port, spoken, "topic a out 1"):
        await_state(there, b"1")
    await_state(there, b"0")


@VERSIONS
def test_moving_in(gateway: Any, guest: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str) -> None:
    """A Mosquitto with a past brings its retained messages along; clients move one by one, both ways all the time."""
    session_journal = ("persistence true", f"persistence_location {tmp_path}/", f"user {getpass.getuser()}")
    config = tmp_path / "before.conf"
    config.write_text("\n".join((f"listener {free_port} 127.0.0.1", "allow_anonymous true", *session_journal)) + "\n")
    with running(config, free_port):
        old = Guest(free_port, V5, "old")
        old.connect()
        for number in range(50):
            old.publish(f"home/{number}", b"%d" % number, retain=True)
        old.leave()
    there = guest("there")
    there.subscribe("home/+", 1)
    with bridge(tmp_path, free_port, gateway.port, spoken, *session_journal, "topic # both 1") as here:
        assert sorted(int(there.next().payload) for _ in range(50)) == list(range(50))
        here.subscribe("home/moved", 1)
        there.publish("home/moved", b"1", retain=True)
        assert here.next().payload == b"1"
    late = guest("late")
    late.subscribe("home/#", 1)
    assert len(late.all_from(there)) == 51, "all is retained here now"
    for topic in ("moved", *range(50)):
        there.publish(f"home/{topic}", b"", retain=True)


@pytest.mark.slow  # Mosquitto looks every five seconds whether a bridge is to be connected again
@VERSIONS
def test_our_restart(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str) -> None:
    """What was published there meanwhile comes when we are back, and what it wants from us it asks for again."""
    kept = ("--data", str(tmp_path / "data")) if spoken == "mqttv50" else ()  # with its session, and without
    gateway = start_gateway(*kept)
    rules = (f"topic {IN_TOPIC} in 1", "topic up/# out 1", "cleansession false")
    with bridge(tmp_path, free_port, gateway.port, spoken, *rules) as here:
        here.subscribe("sensors/#", 1)
        gateway.stop()
        for number in range(5):
            here.publish(f"up/{number}", b"meanwhile", retain=True)
        start_gateway("--port", str(gateway.port), *kept)
        await_state(here, b"1")
        there = Guest(gateway.port, V5, "there")
        there.connect()
        there.publish("sensors/first", WARM, retain=True)  # waits until the bridge has subscribed
        there.subscribe("up/+", 1)
        assert here.next().topic == "sensors/first"
        there.publish("sensors/a", COOL)
        there.publish("sensors/a", WARM)
        assert seen(here.next()) == ("sensors/a", WARM, 1, False)
        here.publish("up/5", b"")
        topics = [there.next().topic for _ in range(5)]
        while topics[-1] != "up/5":  # with each attempt to connect, Mosquitto queues what it retains once more
            topics.append(there.next().topic)
        assert set(topics) == {f"up/{number}" for number in range(6)}
        there.leave()
