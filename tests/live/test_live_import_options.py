"""What `edgebroker import` says of single options is true of a gateway, and where it can be, the same by Mosquitto."""

from __future__ import annotations

import getpass
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from edgebroker import limits
from edgebroker.runtime.listeners.websocket import REQUEST_BYTES_MAX

from .conftest import ENVIRONMENT, PATIENCE_S, V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")
pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

V311 = MQTTProtocolVersion.MQTTv311
OPEN = "listener {port} 127.0.0.1\nallow_anonymous true\n"


def written(folder: Path, text: str, port: int) -> Path:
    """A configuration of Mosquitto in *folder*, which the user of this test may read."""
    config = folder / "mosquitto.conf"
    config.write_text(f"user {getpass.getuser()}\n" + text.format(port=port, folder=folder))
    return config


def imported(config: Path) -> tuple[Path, dict[str, str]]:
    """The settings that the command makes of *config*, and of each option what it said."""
    target = config.with_suffix(".toml")
    command = [sys.executable, "-m", "edgebroker", "import", str(config), "--json", "-o", str(target), "--force"]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False)
    assert ended.returncode == 0, ended
    return target, {one["option"]: one["note"] for one in json.loads(ended.stdout)["findings"]}


def came(port: int, name: str, user: str = "", version: Any = V5) -> Guest:
    guest = Guest(port, version, name)
    if user:
        guest.client.username_pw_set(user, user)
    guest.connect()
    return guest


# -- the chain ---------------------------------------------------------------------------------------------------


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=PATIENCE_S)


def chain(folder: Path) -> None:
    """root.crt, middle.crt signed by it, server.crt signed by that; ca.crt has the first two."""
    for name, signer in (("root", ""), ("middle", "root"), ("server", "middle")):
        key, asked, made = (str(folder / f"{name}.{kind}") for kind in ("key", "csr", "crt"))
        extension = "basicConstraints=critical,CA:TRUE" if name != "server" else "subjectAltName=DNS:localhost"
        (folder / "extension").write_text(extension)
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", asked, "-subj", f"/CN={name}")
        by = ["-CA", str(folder / f"{signer}.crt"), "-CAkey", str(folder / f"{signer}.key"), "-CAcreateserial"]
        by = by if signer else ["-signkey", key]
        openssl("x509", "-req", "-in", asked, "-out", made, "-days", "2", "-extfile", str(folder / "extension"), *by)
    (folder / "ca.crt").write_text((folder / "middle.crt").read_text() + (folder / "root.crt").read_text())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed; it makes the certificates")
def test_cafile_completes_the_chain_that_is_sent(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    """A client that trusts the root alone verifies a server whose certfile has only its own certificate."""
    chain(tmp_path)
    files = "cafile {folder}/ca.crt\ncertfile {folder}/server.crt\nkeyfile {folder}/server.key\n"
    config = written(tmp_path, OPEN + files, free_port)

    def verified(port: int) -> str:
        context = ssl.create_default_context(cafile=str(tmp_path / "root.crt"))
        line = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        with context.wrap_socket(line, server_hostname="localhost") as safe:
            return str(dict(pair[0] for pair in safe.getpeercert()["subject"])["commonName"])  # type: ignore[index,misc]

    with running(config, free_port):
        theirs = verified(free_port)
    settings, notes = imported(config)
    assert verified(start_gateway("--config", str(settings)).port) == theirs == "server"
    assert notes["cafile"].startswith("completes the chain")


# -- retained messages ------------------------------------------------------------------------------------------------

BOTH, LOST = "user anna\ntopic #\nuser bert\ntopic #\n", "user anna\ntopic #\nuser bert\ntopic read #\n"


@pytest.mark.skipif(MOSQUITTO_PASSWD is None, reason="mosquitto_passwd is not installed")
@pytest.mark.parametrize(
    ("line", "theirs", "ours"),
    [
        ("check_retain_source true\n", ["t/2"], ["t/2"]),
        ("check_retain_source false\n", ["t/1", "t/2"], ["t/1", "t/2"]),
        ("", ["t/1", "t/2"], ["t/2"]),  # its manual says that true is the default, and its program that it is not
    ],
)
def test_what_is_retained_of_whom_lost_the_right(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, line: str, theirs: list[str], ours: list[str]
) -> None:
    (tmp_path / "users").touch(0o600)
    for user in ("anna", "bert"):
        subprocess.run([str(MOSQUITTO_PASSWD), "-b", str(tmp_path / "users"), user, user], check=True)
    rules = tmp_path / "rules"
    text = "listener {port} 127.0.0.1\npassword_file {folder}/users\nacl_file {folder}/rules\n" + line
    config = written(tmp_path, text, free_port)

    def retained(port: int) -> list[str]:
        reader = came(port, "reader", "anna")
        reader.subscribe("t/#", 0)
        topics = sorted(message.topic for message in reader.all_from(reader))
        reader.leave()
        return topics

    def answers(port: int, reload: Callable[[], Any]) -> list[str]:
        rules.chmod(0o600)
        bert, anna = came(port, "b", "bert"), came(port, "a", "anna")
        bert.publish("t/1", b"1", retain=True)
        anna.publish("t/2", b"2", retain=True)
        assert retained(port) == ["t/1", "t/2"]
        rules.write_text(LOST)
        reload()
        reader = came(port, "c", "anna")
        reader.subscribe("w/#", 0)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:  # until the new rules hold: then bert's is kept from its reader
            bert.publish("w/bert", b"", 0)
            if not [one for one in reader.all_from(reader) if one.topic == "w/bert"]:
                break
        for guest in (bert, anna, reader):
            guest.leave()
        return retained(port)

    rules.write_text(BOTH)
    rules.chmod(0o600)
    with running(config, free_port) as process:
        assert answers(free_port, lambda: process.send_signal(signal.SIGHUP)) == theirs
    rules.write_text(BOTH)
    gateway = start_gateway("--config", str(imported(config)[0]), "--memory")
    assert answers(gateway.port, gateway.reload) == ours


def test_what_becomes_of_a_retained_message_where_none_is_available(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    """3.1.1: it reaches who has subscribed, is not retained, and its publisher stays. 5: 0x9A."""
    ended: list[int] = []
    config = written(tmp_path, OPEN + "retain_available false\n", free_port)
    with running(config, free_port):
        guest = came(free_port, "writer")
        assert guest.terms.RetainAvailable == 0
        guest.client.publish("t", b"x", 1, retain=True)
        assert guest.is_gone()
        guest.client.loop_stop()
    settings, notes = imported(config)
    gateway = start_gateway("--config", str(settings))
    reader, writer = came(gateway.port, "reader", version=V311), came(gateway.port, "writer", version=V311)
    reader.subscribe("t", 1)
    writer.publish("t", b"x", retain=True)
    assert reader.next().payload == b"x"
    late = came(gateway.port, "late", version=V311)
    late.subscribe("t", 1)
    assert late.all_from(writer) == []
    for guest in (reader, writer, late):
        guest.leave()
    newer = came(gateway.port, "newer")
    assert newer.terms.RetainAvailable == 0
    newer.client.on_disconnect = lambda client, userdata, flags, reason, properties: ended.append(reason.value)
    newer.client.publish("t", b"x", 1, retain=True)
    newer.client.loop_stop()
    newer.client.loop_forever()
    assert ended == [0x9A]
    assert notes["retain_available"] == (
        "a retained message of a 3.1.1 client goes to who has subscribed and is not kept, where Mosquitto closes; "
        "a version 5 client is disconnected (0x9A), as by Mosquitto"
    )


# -- notes ------------------------------------------------------------------------------------------------------------


def test_the_notes_about_topic_aliases_say_what_is_granted_and_sent(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    """In both directions."""
    settings, notes = imported(written(tmp_path, OPEN + "max_topic_alias 10\nmax_topic_alias_broker 10\n", free_port))
    gateway = start_gateway("--config", str(settings))
    writer = came(gateway.port, "writer")
    assert notes["max_topic_alias"] == f"{writer.terms.TopicAliasMaximum} aliases are granted to each client"
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as line:
        line.sendall(bytes.fromhex("1011 00044d515454 05 02 0000 03 22ffff 0001 72"))  # it takes 65,535
        line.sendall(bytes.fromhex("8207 0001 00 0001 23 01"))  # SUBSCRIBE #
        reading = line.makefile("rb")
        assert reading.read(1) == b"\x20"
        reading.read(reading.read(1)[0])
        assert reading.read(1) == b"\x90"
        reading.read(reading.read(1)[0])
        aliases = set()
        for number in range(limits.OUT_ALIASES_MAX + 3):
            writer.publish(f"long/topic/{number:02}", b"x")
            head = reading.read(2)
            body = reading.read(head[1])
            assert body[2:15].decode() == f"long/topic/{number:02}"
            properties = body[18 : 18 + body[17]]
            aliases |= {properties[1:3]} if properties[:1] == b"\x23" else set()
    writer.leave()
    assert notes["max_topic_alias_broker"] == f"a client that takes aliases is sent {len(aliases)} at most"


def test_the_note_about_the_head_of_a_websocket_says_what_is_taken(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    text = OPEN + "protocol websockets\nwebsockets_headers_size 4096\n"
    settings, notes = imported(written(tmp_path, text, free_port))
    gateway = start_gateway("--config", str(settings))
    assert notes["websockets_headers_size"] == f"the head of a request may have {REQUEST_BYTES_MAX:,} bytes"
    answered = []
    for size in (REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1):
        head = (
            "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Protocol: mqtt\r\nX-Fill: {}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as line:
            line.sendall(head.format("x" * (size - len(head) + 2)).encode())
            answered.append(line.recv(12).decode())
    assert answered[0] == "HTTP/1.1 101"
    assert answered[1] != "HTTP/1.1 101"


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_without_persistence_nothing_is_on_the_disk(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    settings, notes = imported(written(tmp_path, OPEN + "persistence false\n", free_port))
    for expected in ([], []):
        gateway = start_gateway("--config", str(settings))
        guest = came(gateway.port, "a")
        guest.subscribe("t", 1)
        assert [message.topic for message in guest.all_from(guest)] == expected
        guest.publish("t", b"x", retain=True)
        guest.leave()
        gateway.stop()
    assert notes["persistence"] == "nothing is kept on disk"


@pytest.mark.parametrize("version", [V311, V5])
def test_an_unproved_name_has_the_rights_of_nobody(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, version: Any
) -> None:
    """Mosquitto goes by it, without a password file: the one place where an import that stays open would differ."""
    (tmp_path / "rules").write_text("topic #\nuser anna\ntopic read #\ntopic deny secret\n")
    (tmp_path / "rules").chmod(0o600)
    config = written(tmp_path, OPEN + "acl_file {folder}/rules\n", free_port)

    def comes_through(port: int) -> bool:
        anna, other = came(port, "a", "anna", version), came(port, "o", version=version)
        other.subscribe("secret", 1)
        anna.publish("secret", b"x")
        found = other.all_from(other)
        anna.leave()
        other.leave()
        return bool(found)

    with running(config, free_port):
        assert not comes_through(free_port)
    settings, _ = imported(config)
    assert comes_through(start_gateway("--config", str(settings)).port)
    wide = written(tmp_path, OPEN.replace(" 127.0.0.1", "") + "acl_file {folder}/rules\n", free_port)
    assert "no user name is proved" in imported(wide)[1]["acl_file"]
    assert 'host = "127.0.0.1"' in imported(wide)[0].read_text()
