"""Mosquitto with a configuration, and a gateway with what `edgebroker import` makes of it, give the same answers."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from .conftest import ENVIRONMENT, PATIENCE_S, V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")
V311 = MQTTProtocolVersion.MQTTv311
LIMITS = """
listener {port} 127.0.0.1
allow_anonymous true
max_packet_size 2000
max_queued_messages 5
max_inflight_messages 3
persistent_client_expiration 1d
"""


def imported(config: Path) -> Path:
    """The settings that the command makes of *config*."""
    target = config.with_suffix(".toml")
    command = [sys.executable, "-m", "edgebroker", "import", str(config), "-o", str(target)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False)
    assert ended.returncode == 0, ended
    return target


def compared(
    answers: Callable[[int], Any], text: str, folder: Path, port: int, start_gateway: Callable[..., Any]
) -> Any:
    """What both answer; they must agree."""
    config = folder / "mosquitto.conf"
    config.write_text(text.format(port=port, folder=folder))
    with running(config, port):
        theirs = answers(port)
    gateway = start_gateway("--config", str(imported(config)))
    ours = answers(gateway.port)
    gateway.stop()
    assert ours == theirs
    return ours


def came(port: int, version: MQTTProtocolVersion, name: str, keep: bool = False) -> Guest:
    guest = Guest(port, version, name, keep=keep)
    guest.connect()
    return guest


def sizes_and_queues(port: int) -> dict[str, Any]:
    """How large a packet may be, and how many messages wait for who is away."""
    seen: dict[str, Any] = {}
    for version in (V311, V5):
        reader, writer = came(port, version, "reader"), came(port, version, "writer")
        reader.subscribe("size/#", 1)
        writer.publish("size/small", b"x" * 1_900)
        seen[f"small {version.name}"] = len(reader.next().payload)
        writer.client.publish("size/large", b"x" * 2_100, 1)
        seen[f"large {version.name}"] = writer.is_gone()
        writer.client.loop_stop()
        reader.leave()
        keeper, writer = came(port, version, f"keeper {version.name}", keep=True), came(port, version, "writer")
        keeper.subscribe("queue/#", 1)
        keeper.leave()
        for number in range(20):
            writer.publish("queue/a", b"%d" % number)
        seen[f"present {version.name}"] = keeper.connect()
        seen[f"kept {version.name}"] = [int(message.payload) for message in keeper.all_from(writer)]
        keeper.leave()
        writer.leave()
    guest = came(port, V5, "terms")
    seen["announced"] = guest.terms.MaximumPacketSize
    guest.leave()
    return seen


def test_limits(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    seen = compared(sizes_and_queues, LIMITS, tmp_path, free_port, start_gateway)
    assert seen["large MQTTv5"] is True
    assert seen["announced"] == 2_000


GUARDED = """
listener {port} 127.0.0.1
allow_anonymous false
password_file {folder}/users
acl_file {folder}/rules
"""
OPEN_TO_ALL = GUARDED.replace("allow_anonymous false", "allow_anonymous true")
RULES = """
topic read public/#
user anna
topic readwrite home/#
topic deny home/secret
user bert
topic read home/+
pattern write from/%u/%c
"""


def who_may_do_what(port: int) -> dict[str, Any]:
    """Who comes in, what is granted, and what arrives."""
    seen: dict[str, Any] = {}
    for user, password in (("anna", "apple"), ("anna", "pear"), ("bert", "banana"), ("nobody", "x"), (None, None)):
        guest = Guest(port, V5, f"{user}-1")
        if user is not None:
            guest.client.username_pw_set(user, password)
        try:
            guest.connect()
        except AssertionError:
            seen[f"{user} {password}"] = "refused"  # by us with 0x86, what the standard has for it; Mosquitto says 0x87
            guest.client.loop_stop()
            continue
        seen[f"{user} {password}"] = "comes in"
        for topic in ("home/a", "home/secret", "public/a", "elsewhere", f"from/{user}/{user}-1", "from/anna/x"):
            told = guest.client.publish(topic, f"{user}", 1)
            told.wait_for_publish(PATIENCE_S)
        guest.subscribe([("home/#", 1), ("public/#", 1), ("from/#", 1)])
        guest.leave()
    reader, writer = (Guest(port, V5, name) for name in ("reader", "writer"))
    for guest, (user, password) in ((reader, ("bert", "banana")), (writer, ("anna", "apple"))):
        guest.client.username_pw_set(user, password)
        guest.connect()
    reader.subscribe([("home/#", 1), ("from/#", 1)])
    for topic in ("home/a", "home/a/b", "home/secret", "from/anna/writer", "home/last"):
        writer.publish(topic, b"1")
    arrived = []
    while (message := reader.next()).topic != "home/last":
        arrived.append(message.topic)
    seen["arrived"] = arrived
    reader.leave()
    writer.leave()
    return seen


@pytest.mark.skipif(MOSQUITTO_PASSWD is None, reason="mosquitto_passwd is not installed")
@pytest.mark.parametrize("text", [GUARDED, OPEN_TO_ALL], ids=["guarded", "open"])
def test_users_and_rules(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, text: str) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    for user, password in (("anna", "apple"), ("bert", "banana")):
        subprocess.run([str(MOSQUITTO_PASSWD), "-b", str(users), user, password], check=True, capture_output=True)
    (tmp_path / "rules").write_text(RULES)
    (tmp_path / "rules").chmod(0o600)
    text = f"user {getpass.getuser()}\n{text}"  # else Mosquitto, started by root, may not read the files
    seen = compared(who_may_do_what, text, tmp_path, free_port, start_gateway)
    assert seen["anna apple"] == "comes in"
    assert seen["anna pear"] == "refused"
    assert seen["arrived"] == ["home/a"]


def test_a_bridge(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    """What goes out, and what comes in, is the same by Mosquitto's bridge and by that of a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        remote = held.getsockname()[1]
    config = tmp_path / "remote.conf"
    config.write_text(f"listener {remote} 127.0.0.1\nallow_anonymous true\n")
    bridge = f"connection up\naddress 127.0.0.1:{remote}\ntopic out/# out 1\ntopic in/# in 2 here/ there/\n"

    def carried(port: int) -> list[tuple[str, bytes, int]]:
        there, here = came(remote, V5, "there"), came(port, V5, "here")
        there.subscribe("out/#", 2)
        here.subscribe("here/#", 2)
        there.publish("there/in/kept", b"kept", retain=True)
        found = [here.next()]  # and now the bridge has subscribed
        here.publish("out/a", b"to the remote", 2)
        found.append(there.next())
        there.publish("there/in/b", b"from the remote", 2)
        found.append(here.next())
        there.publish("there/in/kept", b"", retain=True)
        for guest in (there, here):
            guest.leave()
        return [(message.topic, message.payload, message.qos) for message in found]

    with running(config, remote):
        text = "listener {port} 127.0.0.1\nallow_anonymous true\n" + bridge
        seen = compared(carried, text, tmp_path, free_port, start_gateway)
    assert seen == [
        ("here/in/kept", b"kept", 1),
        ("out/a", b"to the remote", 1),
        ("here/in/b", b"from the remote", 2),
    ]
