"""One password file and one access-control file, read by Debian's Mosquitto and by us: the same answers.

Files are made up at random. For every user it is asked of both brokers who may publish where (PUBACK of MQTT 5), and
who gets what of everything that an administrator publishes. Where we refuse a subscription at once, Mosquitto grants it
and delivers nothing: that counts as the same.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
)

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")
PATIENCE_S = 30.0
FILES = 8
ADMIN = "admin"
USERS = {ADMIN: "root", "anna": "apple", "bert": "pä ss:wörd", "": ""}
"""Name -> password; the empty one comes without either."""
LEVELS = ("a", "b", "c-anna", "anna", "")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not (MOSQUITTO and MOSQUITTO_PASSWD), reason="Mosquitto is not installed"),
]


class Talker:
    """One client of MQTT 5 on a blocking socket."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._framer = Framer(1 << 20)
        self._received: list[Packet] = []
        given = (user, password.encode()) if user else (None, None)
        self.say(Connect(f"c-{user}", True, 0, *given, dialect=V5))
        self.connack: int = self.hear(ConnAck)[-1].reason

    def say(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(encode_packet(packet, V5) for packet in packets))

    def hear(self, until: type[Packet]) -> list[Any]:
        """All packets up to the first of the kind *until*."""
        heard: list[Packet] = []
        while True:
            while self._received:
                heard.append(self._received.pop(0))
                if isinstance(heard[-1], until):
                    return heard
            chunk = self._socket.recv(65_536)
            assert chunk, "the broker closed the connection"
            self._framer.feed(chunk)
            while frame := self._framer.next_frame():
                self._received.append(decode_packet(*frame, V5))

    def close(self) -> None:
        self._socket.close()


def some_rule(chance: random.Random, marks: tuple[str, ...] = ()) -> str:
    levels = [chance.choice((*LEVELS, "+", *marks)) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.3:
        levels.append("#")
    word = chance.choice(("read ", "write ", "readwrite ", "deny ", ""))
    return word + ("/".join(levels) or "a")


def some_acl(chance: random.Random) -> str:
    lines = ["# made up", *(f"topic {some_rule(chance)}" for _ in range(chance.randint(0, 3)))]
    for user in ("anna", "bert"):
        lines += ["", f"user {user}", *(f"topic {some_rule(chance)}" for _ in range(chance.randint(0, 5)))]
    lines += [f"user {ADMIN}", "topic readwrite #"]
    lines += [f"pattern {some_rule(chance, ('%c', '%u'))}" for _ in range(chance.randint(0, 3))]
    return "\n".join(lines) + "\n"


def some_topics(chance: random.Random) -> list[str]:
    topics = {"/".join(chance.choice(LEVELS) for _ in range(chance.randint(1, 4))) for _ in range(25)}
    return sorted(topics - {""})


def answers(port: int, topics: list[str]) -> dict[str, Any]:
    """Who came in, who may write what, who got what."""
    said: dict[str, Any] = {}
    talkers = {user: Talker(port, user, password) for user, password in USERS.items()}
    wrong = Talker(port, "anna", "birch")
    # To a wrong password Mosquitto says 0x87, not authorized; we say 0x86, which is what it is.
    said["let in"] = [not talker.connack for talker in (*talkers.values(), wrong)]
    wrong.close()
    for user, talker in talkers.items():
        talker.say(*(Publish(topic, b"w", 1, packet_id=at) for at, topic in enumerate(topics, 1)), PingReq())
        acks = [packet for packet in talker.hear(PingResp) if isinstance(packet, PubAck)]
        assert [ack.packet_id for ack in acks] == list(range(1, len(topics) + 1))
        said[f"{user} writes"] = [topic for topic, ack in zip(topics, acks, strict=True) if ack.reason < 0x80]
    for talker in talkers.values():
        talker.say(Subscribe(1, [SubscriptionOption("#", 0)]))
        talker.hear(SubAck)
    admin = talkers[ADMIN]
    admin.say(*(Publish(topic, b"r", 1, packet_id=at) for at, topic in enumerate(topics, 1)))
    for _ in topics:
        admin.hear(PubAck)
    for user, talker in talkers.items():
        talker.say(PingReq())
        got = [packet.topic for packet in talker.hear(PingResp) if isinstance(packet, Publish)]
        if user != ADMIN:
            said[f"{user} reads"] = got
        talker.close()
    return said


@contextmanager
def mosquitto(folder: Path, port: int) -> Iterator[Callable[[], None]]:
    """Mosquitto with the files of *folder*."""
    settings = folder / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\n"
        f"password_file {folder / 'users'}\nacl_file {folder / 'acl'}\nuser root\n"
    )
    process = subprocess.Popen(
        [str(MOSQUITTO), "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "mosquitto does not listen"
                assert process.poll() is None, "mosquitto ended"
                time.sleep(0.02)
        yield lambda: None
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_the_same_answers_as_mosquitto(
    tmp_path: Path, start_gateway: Any, free_port: int, chance: random.Random
) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    for number, (user, password) in enumerate(USERS.items()):
        if user:
            kind = ["-H", "sha512"] if number % 2 else []
            subprocess.run([str(MOSQUITTO_PASSWD), *kind, "-b", str(users), user, password], check=True)
    settings = tmp_path / "gateway.toml"
    settings.write_text('[access]\npassword_file = "users"\nacl_file = "acl"\n')
    allowed = 0
    for _ in range(FILES):
        text, topics = some_acl(chance), some_topics(chance)
        (tmp_path / "acl").write_text(text)
        with mosquitto(tmp_path, free_port):
            expected = answers(free_port, topics)
        gateway = start_gateway("--config", str(settings))
        ours = answers(gateway.port, topics)
        gateway.stop()
        assert ours == expected, text
        allowed += sum(len(value) for name, value in expected.items() if name != "let in")
        assert expected["let in"] == [True, True, True, True, False]
    assert allowed > 10 * FILES  # or nothing was shown
