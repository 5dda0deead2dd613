"""Gateways of a federation as real processes on loopback, with clients of paho at either end."""

from __future__ import annotations

import json
import queue
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from paho.mqtt.client import MQTTMessage

from edgebroker.cli.init.authority import Authority

from .conftest import PATIENCE_S, V5, Gateway, Guest, command_line

pytestmark = pytest.mark.live

TOPOLOGY = """
[federation]
name = "{federation}"

[factor]
tree = ["a"]

[[site]]
name = "here"

[[site]]
name = "there"

[[gateway]]
name = "gw-here"
site = "here"
address = "127.0.0.1:{here}"

[[gateway]]
name = "gw-there"
site = "there"
address = "127.0.0.1:{there}"
"""


@pytest.fixture
def topology(tmp_path: Path, free_port: int, another_free_port: int) -> Path:
    """Two sites with a gateway each."""
    path = tmp_path / "topology.toml"
    path.write_text(TOPOLOGY.format(federation="plant", here=free_port, there=another_free_port))
    return path


Start = Callable[..., Gateway]


def guest(gateway: Gateway, name: str, **more: Any) -> Guest:
    made = Guest(gateway.port, V5, name, **more)
    made.connect()
    return made


def let_meet(writer: Guest, reader: Guest) -> None:
    """Return when what *writer* publishes reaches *reader* at the other site."""
    reader.subscribe("meet", 1)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        writer.publish("meet", b"", 1)
        with suppress(queue.Empty):
            reader.messages.get(timeout=0.2)
            reader.unsubscribe("meet")
            return
    raise AssertionError("the gateways do not meet")


def next_of(reader: Guest, topic: str) -> MQTTMessage:
    """The next message whose topic begins with *topic*, behind those by which the gateways met."""
    while not (message := reader.next()).topic.startswith(topic):
        assert message.topic == "meet"
    return message


def test_content_filters_retained_messages_and_wills_reach_the_other_site(start_gateway: Start, topology: Path) -> None:
    federated = ("--topology", str(topology), "--memory", "--name")
    here, there = start_gateway(*federated, "gw-here", "--http", "0"), start_gateway(*federated, "gw-there")
    assert here.listening["overlay"]["peers"] == ["gw-there"]
    writer, reader = guest(here, "writer"), guest(there, "reader")
    let_meet(writer, reader)
    http = f"127.0.0.1:{here.listening['http']['port']}"
    code, said = command_line("links", "--http", http, "--json")
    (link,) = json.loads(said)["links"]
    assert (code, link["peer"], link["up"], link["links"]) == (0, "gw-there", True, ["iLink a"])
    assert command_line("links", "--http", http)[1].splitlines()[3].split()[:2] == ["gw-there", "up"]

    reader.subscribe("$filter/temp%3E30/t", 1)
    for number in range(28, 36):
        writer.publish("t", json.dumps({"temp": number}).encode())
    assert [json.loads(next_of(reader, "t").payload)["temp"] for _ in range(31, 36)] == [31, 32, 33, 34, 35]

    report = json.loads(command_line("links", "--http", http, "--json")[1])
    assert report["subacks_held"].keys() == {"confirmed", "timed_out", "no_room"}
    (link,) = report["links"]
    routes = link["routes"]
    assert (routes["interests"], routes["publishers"]) == (None, 2), "meet and t"
    assert "peers     1 of 1 connected; " in command_line("status", "--http", http)[1]
    assert 1 <= routes["publishers_wanted"] <= 2, "nobody wants meet any more, and a second later that is said"
    writer.publish("r", b"kept", retain=True)
    reader.subscribe("r", 1)
    kept = next_of(reader, "r")
    if not kept.retain:  # it crossed the link after the subscription had come to its gateway
        reader.unsubscribe("r")
        reader.subscribe("r", 1)
        kept = next_of(reader, "r")
    assert (kept.payload, kept.retain) == (b"kept", True)

    mortal = Guest(here.port, V5, "mortal")
    mortal.client.will_set("w", b"gone", 1)
    mortal.connect()
    reader.subscribe("w", 1)
    mortal.vanish()
    assert next_of(reader, "w").payload == b"gone"
    there.stop()
    while (asked := command_line("links", "--http", http))[0] == 0:
        pass
    assert "gw-there  down" in asked[1]
    metrics = urlopen(f"http://{http}/metrics", timeout=PATIENCE_S).read().decode()
    assert 'edgebroker_link_up{peer="gw-there"} 0' in metrics
    assert 'edgebroker_subacks_held_total{outcome="timed_out"} 0' in metrics
    health = json.load(urlopen(f"http://{http}/health", timeout=PATIENCE_S))
    assert health["checks"]["links"] == {"ok": True, "down": ["gw-there"]}
    here.stop()


def test_health_fails_while_the_outbox_for_a_peer_is_nearly_full(start_gateway: Start, topology: Path) -> None:
    federated = ("--topology", str(topology), "--memory", "--name")
    here, there = start_gateway(*federated, "gw-here", "--http", "0"), start_gateway(*federated, "gw-there")
    writer, sleeper = guest(here, "writer"), guest(there, "sleeper", keep=True)
    let_meet(writer, sleeper)
    sleeper.subscribe("large", 1)
    writer.publish("large", b"first", 1)
    assert next_of(sleeper, "large").payload == b"first"
    http = f"http://127.0.0.1:{here.listening['http']['port']}/health"
    assert json.load(urlopen(http, timeout=PATIENCE_S))["checks"]["outboxes"] == {"ok": True, "risks": []}
    there.kill()
    for _ in range(59):
        writer.publish("large", bytes(1_000_000), 1)
    with pytest.raises(HTTPError) as failing:
        urlopen(http, timeout=PATIENCE_S)
    assert failing.value.code == 503
    [reason] = json.load(failing.value)["reasons"]
    assert reason.startswith("the outbox for gw-there is nearly full (56.")
    here.stop()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_new_clients_say_under_new_prefixes_crosses_only_if_it_is_wanted(
    qos: int, start_gateway: Start, topology: Path, tmp_path: Path
) -> None:
    def start(name: str) -> Gateway:
        data = str(tmp_path / name)
        return start_gateway("--topology", str(topology), "--name", name, "--data", data, "--http", "0")

    here, there = start("gw-here"), start("gw-there")
    writer, reader = guest(here, "writer"), guest(there, "reader")
    let_meet(writer, reader)
    reader.subscribe("device/7/#", qos)
    writer.publish("device/7/first", b"7", qos)
    assert next_of(reader, "device").topic == "device/7/first", "the other site knows the subscription"
    before = arrived(there)
    for number in range(10):
        once = guest(here, f"once-{number}")
        once.publish(f"device/{number}/boot", b"%d" % number, qos)
        once.publish("nobody/wants/this", b"%d" % number, qos)
        once.leave()
    assert next_of(reader, "device").topic == "device/7/boot"
    writer.publish("device/7/last", b"7", qos)
    assert next_of(reader, "device").topic == "device/7/last"
    assert arrived(there) == before + 2, "what is wanted, and nothing else"
    there.stop()
    here.stop()


def arrived(gateway: Gateway) -> int:
    """The messages that *gateway*, which has no publishers of its own, has accepted."""
    (line,) = [line for line in metrics_of(gateway) if line.startswith("edgebroker_messages_published_total ")]
    return int(line.split()[1])


def metrics_of(gateway: Gateway) -> list[str]:
    url = f"http://127.0.0.1:{gateway.listening['http']['port']}/metrics"
    return urlopen(url, timeout=PATIENCE_S).read().decode().splitlines()


def test_a_gateway_that_is_killed_misses_nothing_of_qos_1(start_gateway: Start, topology: Path, tmp_path: Path) -> None:
    def start(name: str, port: int = 0) -> Gateway:
        data = str(tmp_path / name)
        given = ("--name", name, "--data", data, "--port", str(port), "--http", "0")
        return start_gateway("--topology", str(topology), *given)

    here, there = start("gw-here"), start("gw-there")
    writer, sleeper = guest(here, "writer"), guest(there, "sleeper", keep=True)
    let_meet(writer, sleeper)
    sleeper.subscribe("t", 1)
    for number in range(300):
        writer.publish("t", str(number).encode())
        if number == 100:
            sleeper.vanish()
            there.process.kill()
            there.process.communicate(timeout=PATIENCE_S)
        if number == 200:
            there = start("gw-there")
    again = Guest(there.port, V5, "sleeper", keep=True)
    heard = [int(message.payload) for message in drained(sleeper) if message.topic == "t"]
    assert again.connect(), "the session is there"
    while 'edgebroker_directory_sessions{gateway="gw-there"} 1' not in metrics_of(here):
        pass
    while not heard or heard[-1] != 299:
        heard.append(int(again.next().payload))
    # What the sleeper had, and had not acknowledged when the gateway was killed, may come again: that is QoS 1.
    assert list(dict.fromkeys(heard)) == list(range(300)), "nothing lost, order kept"
    there.stop()
    here.stop()


def drained(reader: Guest) -> Iterator[MQTTMessage]:
    """What has come so far."""
    with suppress(queue.Empty):
        while True:
            yield reader.messages.get_nowait()


def test_gateways_with_certificates_meet_and_strangers_do_not(
    start_gateway: Start, topology: Path, tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path, "plant")
    stranger = Authority.make(tmp_path, "elsewhere", "other")

    def settings(name: str, signer: Authority) -> str:
        pair = signer.gateway(tmp_path, name)
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'[node]\nname = "{name}"\n[listener]\nport = 0\n[data]\ndurability = "memory"\n[overlay]\n'
            f'topology = "{topology}"\ntls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
            f'tls_ca = "{authority.pair.certificate}"\n'
        )
        return str(path)

    there = start_gateway("--config", settings("gw-there", authority))
    assert there.listening["overlay"]["tls"]
    here = start_gateway("--config", settings("gw-here", stranger), "--log-level", "warning")
    assert "does it accept our certificate?" in first_complaint(here)
    here.kill()
    there.stop()
    here = start_gateway("--config", settings("gw-here", authority), "--log-level", "warning")
    there = start_gateway("--config", settings("gw-there", stranger))
    while "its certificate is not accepted" not in (complaint := first_complaint(here)):
        assert "Connect call failed" in complaint or "refused" in complaint, complaint
    here.kill()
    there.stop()
    here = start_gateway("--config", settings("gw-here", authority))
    there = start_gateway("--config", settings("gw-there", authority))
    writer, reader = guest(here, "writer"), guest(there, "reader")
    let_meet(writer, reader)
    there.stop()
    here.stop()


@pytest.mark.parametrize("stolen", ["gw-there", "gw-here"])
def test_a_gateway_whose_certificate_is_revoked_has_to_go(
    stolen: str, start_gateway: Start, topology: Path, tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path, "plant")
    revoked = authority.revoke(tmp_path, [])

    def settings(name: str, folder: str) -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        pair = authority.gateway(tmp_path / folder, name)
        path = tmp_path / folder / f"{name}.toml"
        path.write_text(
            f'[node]\nname = "{name}"\n[listener]\nport = 0\n[data]\ndurability = "memory"\n[overlay]\n'
            f'topology = "{topology}"\ntls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
            f'tls_ca = "{authority.pair.certificate}"\ntls_crl = "{revoked}"\n'
        )
        return path

    own = settings("gw-here" if stolen == "gw-there" else "gw-there", "first")
    theirs = settings(stolen, "first")
    ours = start_gateway("--config", str(own), "--log-level", "warning")
    thief = start_gateway("--config", str(theirs), "--log-level", "warning")
    let_meet(guest(ours, "writer"), guest(thief, "reader"))
    assert ours.reload()["notes"] == []
    authority.revoke(tmp_path, [theirs.with_suffix(".crt")])  # the list may have the same second as the other
    assert ours.reload()["notes"] == ["overlay: 1 peers have to show their certificates again"]
    # Who dials says why: it does not accept the other's certificate, or the other hung up on its own.
    dialler = ours if stolen == "gw-there" else thief
    while "certificate" not in (complaint := first_complaint(dialler)) or "link-no-answer" not in complaint:
        assert "link-" in complaint, complaint
    thief.kill()
    again = start_gateway("--config", str(settings(stolen, "second")))
    let_meet(guest(ours, "other-writer"), guest(again, "other-reader"))
    again.kill()
    revoked.write_text("")
    [problem] = ours.reload()["problems"]
    assert (problem["key"], "no certificate" in problem["reason"]) == ("overlay.tls_crl", True)
    ours.kill()


def test_who_was_told_that_a_peer_does_not_answer_is_told_when_it_does(start_gateway: Start, topology: Path) -> None:
    options = ("--topology", str(topology), "--memory", "--log-level", "warning", "--name")
    here = start_gateway(*options, "gw-here")  # the one that dials
    assert " warning link-no-answer:" in first_complaint(here)
    there = start_gateway(*options, "gw-there")
    assert " warning link-up: a peer is there" in first_complaint(here)
    here.kill()
    there.kill()


def test_a_gateway_of_another_federation_is_refused_with_the_difference(
    start_gateway: Start, topology: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text(topology.read_text().replace("plant", "works"))
    there = start_gateway("--topology", str(other), "--memory", "--name", "gw-there")
    here = start_gateway(*("--topology", str(topology), "--memory", "--name", "gw-here", "--log-level", "warning"))
    assert "gw-here belongs to federation 'plant', not 'works'" in first_complaint(here)
    here.kill()
    there.stop()


def test_a_reload_brings_other_addresses_and_refuses_another_federation(
    start_gateway: Start, topology: Path, tmp_path: Path, another_free_port: int
) -> None:
    right = topology.read_text()
    truth = tmp_path / "truth.toml"
    truth.write_text(right)
    topology.write_text(right.replace(f":{another_free_port}", ":1"))
    here = start_gateway("--topology", str(topology), "--memory", "--name", "gw-here")
    there = start_gateway("--topology", str(truth), "--memory", "--name", "gw-there")
    topology.write_text(right.replace("plant", "works"))
    refused = here.reload()
    assert "federation plant is called works" in refused["problems"][0]["reason"]
    topology.write_text(right)
    taken = here.reload()
    address = f"127.0.0.1:{another_free_port}"
    assert taken["notes"] == [f"topology: gateway gw-there has address {address}, had 127.0.0.1:1"]
    let_meet(guest(here, "writer"), guest(there, "reader"))
    there.stop()
    here.stop()


NEW_SITE = """
[[site]]
name = "yonder"

[[gateway]]
name = "gw-yonder"
site = "yonder"
address = "127.0.0.1:{yonder}"
"""


def test_a_site_joins_while_clients_of_the_others_stay(
    start_gateway: Start, topology: Path, tmp_path: Path, yet_another_free_port: int
) -> None:
    def start(name: str) -> Gateway:
        return start_gateway("--topology", str(topology), "--data", str(tmp_path / name), "--name", name)

    here, there = start("gw-here"), start("gw-there")
    writer, reader = guest(here, "writer"), guest(there, "reader")
    let_meet(writer, reader)
    reader.subscribe("news/#", 1)
    topology.write_text(topology.read_text() + NEW_SITE.format(yonder=yet_another_free_port))
    yonder = start("gw-yonder")
    newcomer = guest(yonder, "newcomer")
    newcomer.subscribe("news/#", 2)
    for gateway in (here, there):
        notes = gateway.reload()["notes"]
        assert notes == ["topology: site yonder is new", "topology: gateway gw-yonder is new"]
        writer.publish("news/while", b"%d" % gateway.port, 1)
    for gateway in (there, yonder):
        let_meet(writer, guest(gateway, "probe"))
    writer.publish("news/after", b"after", 1)
    while newcomer.next().payload != b"after":  # perhaps what waited for its gateway, too
        pass
    came = [next_of(reader, "news/").payload for _ in range(3)]
    assert sorted(came) == sorted([b"%d" % here.port, b"%d" % there.port, b"after"])
    for gateway in (yonder, there, here):
        gateway.stop()


def first_complaint(gateway: Gateway) -> str:
    """The first line on standard error."""
    assert gateway.process.stderr is not None
    assert select.select([gateway.process.stderr], [], [], PATIENCE_S)[0], "nothing is said"
    return gateway.process.stderr.readline().decode()


def test_a_name_that_is_not_in_the_topology_is_refused_with_those_that_are(topology: Path) -> None:
    code, said = command_line("run", "--topology", str(topology), "--name", "gw-theer", "--port", "0")
    assert code == 2
    assert "none is called 'gw-theer'; did you mean gw-there?" in said
