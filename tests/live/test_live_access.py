"""Passwords on real sockets, with Debian's Mosquitto clients, and a fleet that comes all at once."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUB, PUB = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub")
MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")
PATIENCE_S = 30.0
FLEET = 40  # each password takes 41 ms to check: 1 s in two threads

pytestmark = pytest.mark.live


def passwd(file: Path, user: str, password: str, *options: str) -> None:
    command = [sys.executable, "-m", "edgebroker", "passwd", str(file), user, "--stdin", *options]
    subprocess.run(command, input=password.encode(), check=True, timeout=PATIENCE_S)


@pytest.fixture
def guarded(tmp_path: Path, start_gateway: Any) -> Any:
    """A gateway that knows anna (scrypt) and, if Mosquitto is there, carl."""
    passwd(tmp_path / "users", "anna", "a long sentence")
    if MOSQUITTO_PASSWD is not None:
        subprocess.run([MOSQUITTO_PASSWD, "-b", str(tmp_path / "users"), "carl", "kürbis"], check=True)
    settings = tmp_path / "gateway.toml"
    settings.write_text('[listener]\nport = 0\n[access]\npassword_file = "users"\n')
    return start_gateway("--config", str(settings))


def connected(port: int, user: str, password: str) -> socket.socket:
    """A socket on which CONNECT (3.1.1) was sent."""
    fields = [b"", user.encode(), password.encode()]
    body = b"\0\4MQTT\4\xc2\0\0" + b"".join(len(one).to_bytes(2, "big") + one for one in fields)
    opened = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    opened.sendall(bytes([0x10, len(body)]) + body)
    return opened


@pytest.mark.skipif(PUB is None or MOSQUITTO_PASSWD is None, reason="Mosquitto's clients are not installed")
@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize(
    ("user", "password", "code"),
    [("anna", "a long sentence", 0), ("carl", "kürbis", 0), ("carl", "x", 1), ("dora", "x", 1)],
)
def test_mosquitto_pub_with_a_password(guarded: Any, version: str, user: str, password: str, code: int) -> None:
    command = [str(PUB), "-p", str(guarded.port), "-V", version, "-t", "t", "-m", "x", "-u", user, "-P", password]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, text=True, check=False)
    if not code:
        assert (ended.returncode, ended.stderr) == (0, "")
    else:
        assert ended.returncode
        assert "not authorised" in ended.stderr.lower() or "bad user name or password" in ended.stderr.lower()


def test_a_fleet_comes_at_once(guarded: Any) -> None:
    """Right and wrong, all in one moment: every one gets its own answer, and who is here already does not wait."""
    sockets = [connected(guarded.port, "anna", "a long sentence" if number % 4 else "no") for number in range(FLEET)]
    with socket.create_connection(("127.0.0.1", guarded.port), PATIENCE_S) as other:
        other.sendall(b"\x10\x0c\0\4MQTT\4\2\0\0\0\0" + b"\xc0\0")
        assert other.recv(4) == b"\x20\2\0\0"
        assert other.recv(2) == b"\xd0\0"
    for number, opened in enumerate(sockets):
        with opened:
            opened.settimeout(PATIENCE_S)
            assert opened.recv(4) == (b"\x20\2\0\0" if number % 4 else b"\x20\2\0\4"), number


def test_a_password_file_that_is_not_there(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text('[listener]\nport = 0\n[access]\npassword_file = "users"\n')
    command = [sys.executable, "-m", "edgebroker", "run", "--config", str(settings)]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, text=True, check=False)
    assert ended.returncode == 2
    assert f"{tmp_path / 'users'}: access.password_file: cannot be read: No such file or directory" in ended.stderr


@pytest.mark.skipif(PUB is None or SUB is None, reason="Mosquitto's clients are not installed")
def test_rules_that_change_on_reload(tmp_path: Path, start_gateway: Any) -> None:
    """A subscriber that stays gets what it may, and after SIGHUP what it may then; a mistake changes nothing."""
    passwd(tmp_path / "users", "anna", "a")
    passwd(tmp_path / "users", "root", "r")
    rules = tmp_path / "rules"
    root = "user root\ntopic #\n"
    rules.write_text(f"{root}user anna\ntopic read a\n")
    settings = tmp_path / "gateway.toml"
    settings.write_text('[access]\npassword_file = "users"\nacl_file = "rules"\n')
    gateway = start_gateway("--config", str(settings))

    def publish(topic: str) -> None:
        command = [str(PUB), "-p", str(gateway.port), "-q", "1", "-u", "root", "-P", "r", "-t", topic, "-m", topic]
        subprocess.run(command, check=True, timeout=PATIENCE_S)

    def reload() -> bool:
        gateway.process.send_signal(signal.SIGHUP)
        return bool(json.loads(gateway.process.stdout.readline())["taken"])

    command = [
        str(SUB),
        "-p",
        str(gateway.port),
        "-u",
        "anna",
        "-P",
        "a",
        "-t",
        "#",
        "-q",
        "1",
        "-C",
        "3",
        "-d",
        "-W",
        "30",
    ]
    with subprocess.Popen(["stdbuf", "-oL", *command], stdout=subprocess.PIPE, text=True) as subscriber:
        assert subscriber.stdout is not None
        while not subscriber.stdout.readline().startswith("Subscribed"):
            pass
        publish("a")
        publish("b")
        rules.write_text(f"{root}user anna\ntopic read b\n")
        assert reload()
        publish("a")
        publish("b")
        rules.write_text(f"{root}user anna\nnonsense\n")
        assert not reload()
        publish("a")
        publish("b")
        printed = subscriber.stdout.read()
        assert [line for line in printed.splitlines() if line in ("a", "b")] == ["a", "b", "b"]
