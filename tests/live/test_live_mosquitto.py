"""Debian's Mosquitto clients: content filters with nothing installed, requests, sessions, wills and the rest."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

SUB, PUB, STDBUF = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub"), shutil.which("stdbuf")
RR = shutil.which("mosquitto_rr")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not (SUB and PUB and STDBUF), reason="mosquitto_sub, mosquitto_pub or stdbuf is not installed"),
]

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
IN_TOPIC = "$filter/temp%3E30/sensors/#"
WHERE = "temp > 30 OR site IN ('a','b')"
READINGS = ('{"temp":29}', '{"temp":31}', '{"temp":"31"}', "not json", '{"site":"b"}', '{"site":"c"}')
LAST = '{"temp":99}'  # accepted by every filter here


def publish(port: int, topic: str, payload: str, *options: str) -> None:
    command = [str(PUB), "-p", str(port), "-q", "1", "-t", topic, "-m", payload, *options]
    subprocess.run(command, check=True, timeout=PATIENCE_S)


@contextlib.contextmanager
def subscribed(port: int, *options: str, until: str = "Subscribed") -> Iterator[Callable[[], list[str]]]:
    """mosquitto_sub, which has printed a line that begins with *until*. Call what comes for the messages, at its end.

    It needs `-C`, so that it ends by itself.
    """
    command = [str(STDBUF), "-oL", str(SUB), "-p", str(port), "-d", "-W", f"{PATIENCE_S:.0f}", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line.rstrip("\n"))
        if line.startswith(until):
            break

    def rest() -> list[str]:
        assert process.stdout is not None
        printed.extend(process.stdout.read().splitlines())
        assert process.wait(PATIENCE_S) == 0, printed
        return [line for line in printed if not line.startswith(("Client ", "Subscribed "))]

    try:
        yield rest
    finally:
        process.kill()
        process.communicate()


def readings(port: int) -> None:
    for payload in (*READINGS, LAST):
        publish(port, "sensors/a", payload)


@pytest.mark.parametrize("version", ["311", "5"])
def test_a_filter_in_the_topic(gateway: Any, version: str) -> None:
    with subscribed(gateway.port, "-V", version, "-t", IN_TOPIC, "-v", "-C", "2") as printed:
        readings(gateway.port)
        assert printed() == ['sensors/a {"temp":31}', f"sensors/a {LAST}"]


def test_a_filter_as_user_property(gateway: Any) -> None:
    where = ["-V", "5", "-D", "subscribe", "user-property", "$where", WHERE]
    with subscribed(gateway.port, "-t", "sensors/#", *where, "-C", "3") as printed:
        readings(gateway.port)
        assert printed() == ['{"temp":31}', '{"site":"b"}', LAST]


def test_both_together(gateway: Any) -> None:
    where = ["-V", "5", "-D", "subscribe", "user-property", "$where", "temp < 99 OR $topic = 'sensors/last'"]
    with subscribed(gateway.port, "-t", IN_TOPIC, *where, "-C", "2") as printed:
        readings(gateway.port)
        publish(gateway.port, "sensors/last", LAST)
        assert printed() == ['{"temp":31}', LAST]


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_filter_of_retained_messages(gateway: Any, qos: str) -> None:
    for topic, payload in (("kept/cool", READINGS[0]), ("kept/warm", READINGS[1])):
        publish(gateway.port, topic, payload, "-r")
    with subscribed(gateway.port, "-q", qos, "-t", "$filter/temp > 30/kept/#", "-v", "-C", "1") as printed:
        assert printed() == ['kept/warm {"temp":31}']
    for topic in ("kept/cool", "kept/warm"):
        publish(gateway.port, topic, "", "-r")


@pytest.mark.parametrize(
    ("version", "asked", "code"),
    [
        ("311", ["-t", "$share/g/$filter/temp%3E%3E30/sensors/#"], 0x80),
        ("5", ["-t", "$share/g/$filter/temp%3E%3E30/sensors/#"], 0x8F),
        ("311", ["-t", "$filter/temp%3E%3E30/sensors/#"], 0x80),
        ("5", ["-t", "$filter/temp%3E%3E30/sensors/#"], 0x8F),
        ("5", ["-t", "sensors/#", "-D", "subscribe", "user-property", "$where", "temp >"], 0x8F),
        ("5", ["-t", "sensors/#", "-D", "subscribe", "user-property", "$where", "NOT " * 17 + "a"], 0x97),
    ],
)
def test_refusals(gateway: Any, version: str, asked: list[str], code: int) -> None:
    """The reason strings, which mosquitto_sub does not print, are in test_live_paho_v5.py."""
    command = [str(SUB), "-p", str(gateway.port), "-V", version, "-d", *asked]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, text=True, check=False)
    assert f"Subscribed (mid: 1): {code}" in ended.stdout
    assert "All subscription requests were denied." in ended.stderr


# -- what has nothing to do with filters -----------------------------------------------------------------------


VERSIONS = pytest.mark.parametrize("version", ["31", "311", "5"])
EVERY_QOS = pytest.mark.parametrize("qos", ["0", "1", "2"])


@VERSIONS
@EVERY_QOS
def test_lines_arrive_in_order(gateway: Any, version: str, qos: str) -> None:
    lines = [f"line {number}" for number in range(100)]
    with subscribed(gateway.port, "-V", version, "-q", "2", "-t", "lines", "-C", "100") as printed:
        command = [str(PUB), "-p", str(gateway.port), "-V", version, "-q", qos, "-t", "lines", "-l"]
        publisher = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        try:
            assert publisher.stdin is not None
            publisher.stdin.write("\n".join(lines) + "\n")
            publisher.stdin.close()
            assert printed() == lines
            if qos != "0":  # without acknowledgements, one in thousands sends all lines and then hangs, whatever broker
                assert publisher.wait(PATIENCE_S) == 0
        finally:
            publisher.kill()
            publisher.wait()


@VERSIONS
def test_a_session_is_kept(gateway: Any, version: str) -> None:
    kept = ["-V", version, "-i", f"kept-{version}", "-c", "-q", "1", "-t", f"kept/{version}"]
    kept += ["-x", "60"] if version == "5" else []
    subprocess.run([str(SUB), "-p", str(gateway.port), *kept, "-E"], check=True, timeout=PATIENCE_S)
    for number in range(10):
        publish(gateway.port, f"kept/{version}", str(number))
    command = [str(SUB), "-p", str(gateway.port), *kept, "-C", "10", "-W", "30"]
    ended = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S, text=True)
    assert ended.stdout.split() == [str(number) for number in range(10)]


@VERSIONS
def test_a_will_of_who_is_killed(gateway: Any, version: str) -> None:
    will = ["--will-topic", "wills/a", "--will-payload", "gone", "--will-qos", "1", "--will-retain"]
    with subscribed(gateway.port, "-t", "wills/#", "-v", "-C", "1") as printed:
        with subscribed(gateway.port, "-V", version, "-t", "unused", "-C", "1", *will):
            pass
        assert printed() == ["wills/a gone"]
    with subscribed(gateway.port, "-t", "wills/#", "-F", "%r %t %p", "-C", "1") as printed:
        assert printed() == ["1 wills/a gone"], "and retained"
    publish(gateway.port, "wills/a", "", "-r")


def test_properties_are_shown(gateway: Any) -> None:
    told = ["content-type", "application/json"], ["response-topic", "answers"], ["user-property", "site", "north"]
    options = [word for words in told for word in ("-D", "publish", *words)]
    with subscribed(gateway.port, "-V", "5", "-t", "props", "-F", "%C|%R|%P|%p", "-C", "1") as printed:
        publish(gateway.port, "props", "1", "-V", "5", *options)
        assert printed() == ["application/json|answers|site:north|1"]


@pytest.mark.skipif(RR is None, reason="mosquitto_rr is not installed")
@pytest.mark.parametrize("spoken", ["311", "5"])
def test_a_request_is_answered(gateway: Any, guest: Callable[..., Any], spoken: str) -> None:
    """In version 5 the request says where the answer goes and what it answers; in 3.1.1 both sides must know."""
    service = guest("service")
    topics = []

    def answer(client: Any, userdata: Any, message: Any) -> None:
        asked = message.properties
        topics.append(getattr(asked, "ResponseTopic", None))
        carried = Properties(PacketTypes.PUBLISH)
        if hasattr(asked, "CorrelationData"):
            carried.CorrelationData = asked.CorrelationData
        client.publish("rr/answer", b"21 x 2 = " + message.payload, 1, properties=carried)

    service.client.on_message = answer
    service.subscribe("rr/request", 1)
    command = [str(RR), "-p", str(gateway.port), "-V", spoken, "-q", "1", "-t", "rr/request", "-e", "rr/answer"]
    correlated = ["-D", "publish", "correlation-data", "7"] if spoken == "5" else []
    options = ["-m", "42", *correlated, "-F", "%p %D" if spoken == "5" else "%p", "-W", "30"]
    ended = subprocess.run([*command, *options], check=True, capture_output=True, timeout=PATIENCE_S, text=True)
    assert ended.stdout.strip() == ("21 x 2 = 42 7" if spoken == "5" else "21 x 2 = 42")
    assert topics == ["rr/answer" if spoken == "5" else None]
