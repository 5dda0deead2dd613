"""`edgebroker run` as a process: what it says, what it refuses with one line, and how it stops."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
)
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker import PURE_COSTS
from edgebroker.matching.kernel import IS_COMPILED

from .conftest import command_line

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
RUN = [sys.executable, "-m", "edgebroker", "run"]


class Peer:
    """A client on a blocking socket."""

    def __init__(self, port: int, name: str, dialect: Dialect = V5, **more: Any) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._framer = Framer(1 << 20)
        self.dialect = dialect
        self.say(Connect(name, dialect=dialect, **more))
        assert isinstance(self.hear(), ConnAck)

    def say(self, packet: Packet) -> None:
        self._socket.sendall(encode_packet(packet, self.dialect))

    def hear(self) -> Packet | None:
        """The next packet; None if the gateway has closed the connection."""
        while (frame := self._framer.next_frame()) is None:
            chunk = self._socket.recv(65_536)
            if not chunk:
                self._socket.close()
                return None
            self._framer.feed(chunk)
        return decode_packet(*frame, self.dialect)

    def subscribe(self, topic: str, qos: int = 0) -> None:
        self.say(Subscribe(1, [SubscriptionOption(topic, qos)]))
        assert isinstance(self.hear(), SubAck)


def refused(*options: str, code: int = 2) -> str:
    """What a run says that cannot start: nothing on standard output, and how it ends."""
    ended = subprocess.run([*RUN, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout) == (code, ""), ended
    return ended.stderr


# -- starting --------------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_and_what_to_try(free_port: int) -> None:
    process = subprocess.Popen([*RUN, "--port", str(free_port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        said = [process.stdout.readline().decode() for _ in range(3 if IS_COMPILED else 4)]
        assert IS_COMPILED or said.pop() == f"pure Python: {PURE_COSTS}\n"
        assert said.pop().startswith("sessions that are to last, and what they were promised, are kept in ")
        assert said == [
            f"edgebroker listens on 127.0.0.1:{free_port} (MQTT 3.1.1 and 5)\n",
            f"try: mosquitto_sub -p {free_port} -t '$filter/temp%3E30/sensors/#' -v\n",
        ]
        Peer(free_port, "a")
        process.terminate()
        output, complaints = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, complaints) == (0, b"")
        assert output.startswith(b"stopped: ")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("settings", "is_closed"),
    [
        ("", True),
        ("anonymous = true", False),
        ('[access]\npassword_file = "users"', False),
        ('proxy_protocol = true\nproxy_sources = ["192.0.2.1"]', True),
    ],
)
def test_a_listener_at_which_nobody_can_connect_says_how_to_let_devices_in(
    tmp_path: Path, settings: str, is_closed: bool
) -> None:
    (tmp_path / "users").touch(0o600)
    (tmp_path / "g.toml").write_text(f'[[listener]]\nhost = "0.0.0.0"\nport = 0\n{settings}\n')
    command = [*RUN, "--config", str(tmp_path / "g.toml"), "--memory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        listens = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        more = process.stdout.read()
    port = listens.partition("0.0.0.0:")[2].split()[0]
    assert (f"nobody can connect at 0.0.0.0:{port} yet" in more) == is_closed
    assert ("`edgebroker init`" in more and "listener.anonymous = true" in more) == is_closed


def test_settings_come_from_a_file_and_the_command_line_before_them(
    start_gateway: Callable[..., Any], free_port: int, tmp_path: Path
) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[node]\nname = "north"\n[listener]\nport = {free_port}\n[log]\ndir = "log"\n')
    process = subprocess.Popen([*RUN, "--config", str(settings), "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        assert json.loads(process.stdout.readline())["port"] == free_port
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert [path.name.startswith("north-") for path in (tmp_path / "log").glob("*.edl")] == [True]
    other = start_gateway("--config", str(settings))  # with --port 0
    assert other.port != free_port
    other.stop()


def test_several_listeners_serve_the_same_topics(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text("[[listener]]\n[[listener]]\nport = 0\n[[listener]]\nport = 0\n")
    gateway = start_gateway("--config", str(settings))
    ports = [listener["port"] for listener in gateway.listening["listeners"]]
    assert (ports[0], len(set(ports))) == (gateway.port, 3)
    reader, writer = Peer(ports[2], "reader"), Peer(ports[1], "writer")
    reader.subscribe("a")
    writer.say(Publish("a", b"x", 0))
    message = reader.hear()
    assert isinstance(message, Publish)
    assert message.payload == b"x"
    gateway.stop()


# -- not starting ----------------------------------------------------------------------------------------------


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("--port", str(port))
    assert line == (
        f"Error: cannot listen on 127.0.0.1:{port}: the port is in use; another broker? "
        "choose one with --port or listener.port\n"
    )


def test_a_host_that_is_not_here() -> None:
    said = refused("--host", "192.0.2.1", "-p", "0")
    assert said.startswith("Error: cannot listen on 192.0.2.1:0: this machine has no such address, or has it not yet")


@pytest.mark.parametrize("option", ["--data", "--log-dir"])
def test_a_directory_that_cannot_be_made(option: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refused("--port", "0", option, str(file)) == f"Error: cannot use the directory {file}: it is a file\n"
    below = file / "below"
    assert refused("--port", "0", option, str(below)) == f"Error: cannot make the directory {below}: Not a directory\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[listener]\n\nprot = 1\n", "{}:3: listener.prot: unknown key; did you mean port?"),
        ("[listener]\nport = 65536\n", "{}:2: listener.port: is 65,536; write a number, 0 to 65,535"),
        ("[listen]\n", "{}:1: listen: unknown section; did you mean [listener]?"),
    ],
)
def test_bad_settings(tmp_path: Path, content: str, expected: str) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text(content)
    assert refused("--config", str(settings), code=78) == f"Error: {expected.format(settings)}\n"


def test_what_may_be_there_at_the_next_start_ends_otherwise_than_what_is_wrong(tmp_path: Path) -> None:
    """By the exit code a service manager knows whether to try again."""
    settings = tmp_path / "gateway.toml"
    settings.write_text('[listener]\nport = 0\n[access]\npassword_file = "missing"\n')
    assert "missing" in refused("--config", str(settings), code=2)
    settings.write_text("[listener]\nport = 0\n")
    assert "notices.level" in refused("--config", str(settings), "--log-level", "loud", code=2)


def test_no_settings(tmp_path: Path) -> None:
    missing = tmp_path / "gateway.toml"
    assert refused("--config", str(missing)) == f"Error: {missing}: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("--port", "65536", "65,536"), ("--port", "-1", "-1"), ("--port", "x", "'x'"), ("--host", "", "''")],
)
def test_bad_options(option: str, value: str, named: str) -> None:
    assert named in refused(option, value).splitlines()[-1]


# -- stopping --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_says_good_bye_and_closes_the_books(
    start_gateway: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    gateway = start_gateway("--log-dir", str(log))
    lasting = {Property.SESSION_EXPIRY_INTERVAL: 60}
    slow = Peer(gateway.port, "slow", properties=lasting)  # never acknowledges
    old = Peer(gateway.port, "old", V311)
    writer = Peer(gateway.port, "writer")
    for peer in (slow, old):
        peer.subscribe("#", 1)
    for number_sent in range(1, 4):
        writer.say(Publish("a/b", b"x", 1, packet_id=number_sent))
        assert isinstance(writer.hear(), PubAck)
    for _ in range(3):
        copy = old.hear()
        assert isinstance(copy, Publish)
        old.say(PubAck(copy.packet_id))
    writer.say(Publish("a/b", b"last", 0))
    heard_by_old = old.hear()  # what it acknowledged has been taken in before this is sent
    assert isinstance(heard_by_old, Publish)

    accounts = gateway.stop(number)
    assert (accounts["published"], accounts["copies"], accounts["queued"]) == (4, 8, 3)

    good_bye = writer.hear()
    assert isinstance(good_bye, Disconnect)
    assert good_bye.reason == ReasonCode.SERVER_SHUTTING_DOWN == 0x8B
    assert writer.hear() is None
    assert [type(slow.hear()) for _ in range(6)] == [Publish] * 4 + [Disconnect, type(None)]
    assert old.hear() is None, "3.1.1 has no DISCONNECT from the server"

    assert [path.suffix for path in log.iterdir()] == [".edl"]
    command = [sys.executable, "-m", "edgebroker", "log", "stat", "--json", str(log)]
    stat = json.loads(subprocess.check_output(command, timeout=PATIENCE_S))
    assert (stat["ended"], stat["damage"], stat["unreadable"], stat["blocks_missing"]) == ("cleanly", 0, 0, 0)
    assert stat["fates"] == {"published": 4, "matched": 8, "delivered": 5, "queued": 3}


def test_two_signals_are_as_good_as_one(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway()
    gateway.process.send_signal(signal.SIGTERM)
    gateway.stop(signal.SIGTERM)


def test_it_goes_on_when_nobody_reads_what_it_says(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway()
    gateway.process.stdout.close()
    gateway.process.terminate()
    assert gateway.process.wait(PATIENCE_S) == 0
    assert gateway.process.stderr.read() == b""


def test_clients_that_do_not_read_do_not_hold_up_the_end(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway()
    deaf, writer = Peer(gateway.port, "deaf"), Peer(gateway.port, "writer")
    deaf.subscribe("#")
    for packet_id in range(1, 65):
        writer.say(Publish("flood", bytes(256 * 1024), 1, packet_id=packet_id))
        writer.hear()
    accounts = gateway.stop()
    assert accounts["copies"] == 64
    assert accounts["dropped"]


# -- standard output that takes nothing ------------------------------------------------------------------------


def heard(process: subprocess.Popen[bytes], many: int) -> list[str]:
    """So many lines of its standard error."""
    assert process.stderr is not None
    lines = []
    for _ in range(many):
        assert select.select([process.stderr], [], [], PATIENCE_S)[0], lines
        lines.append(process.stderr.readline().decode().partition(" ")[2])
    return lines


def come(port: int) -> Peer:
    """A client, as soon as a gateway listens that does not say so."""
    for _ in range(int(PATIENCE_S / 0.1)):
        with contextlib.suppress(ConnectionRefusedError):
            return Peer(port, "a")
        time.sleep(0.1)
    raise AssertionError("nobody listens")


def test_it_starts_reloads_and_stops_on_a_full_disk_and_the_log_says_what_was_to_be_said(free_port: int) -> None:
    full = "warning unsaid: standard output cannot be written (No space left on device): "
    with open("/dev/full", "wb", buffering=0) as output:
        command = [*RUN, "--port", str(free_port), "--memory"]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, bufsize=0)
    try:
        first, second = heard(process, 2)
        assert first.startswith(f"{full}edgebroker listens on 127.0.0.1:{free_port}")
        assert second.startswith(f"{full}try: ")
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert heard(process, 1)[0].startswith(full), "it hears a second one too"
        Peer(free_port, "a")
        process.terminate()
        assert heard(process, 1)[0].startswith(f"{full}stopped: ")
        assert process.wait(PATIENCE_S) == 0
        assert heard(process, 1) == [""]
    finally:
        process.kill()
        process.communicate()


def test_it_serves_and_stops_although_a_full_pipe_takes_nothing(free_port: int) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4_096))
    os.set_blocking(writing, True)
    command = [*RUN, "--port", str(free_port), "--memory", "--log-level", "info"]
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, bufsize=0)
    try:
        os.close(writing)
        come(free_port)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        os.close(reading)
        process.kill()
        process.communicate()


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_it_starts_reloads_and_stops_where_its_own_descriptors_are_closed(
    free_port: int, closed: str, tmp_path: Path
) -> None:
    command = [*RUN, "--port", str(free_port), "--data", str(tmp_path), "--log-level", "info"]
    process = subprocess.Popen(["sh", "-c", f'exec "$@" {closed}', "sh", *command], stderr=subprocess.PIPE)
    try:
        peer = come(free_port)
        process.send_signal(signal.SIGHUP)
        peer.subscribe("a")
        peer.say(Publish("a", b"x", 0))
        heard_back = peer.hear()
        assert isinstance(heard_back, Publish), "and nothing that was said to the operator"
        opened = [os.readlink(f"/proc/{process.pid}/fd/{descriptor}") for descriptor in range(3)]
        assert opened.count(os.devnull) >= closed.count("&"), opened
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_signals_that_mean_something_to_mosquitto_end_nothing(start_gateway: Callable[..., Any], name: str) -> None:
    gateway = start_gateway()
    gateway.process.send_signal(getattr(signal, name))
    with socket.create_connection(("127.0.0.1", gateway.port), 30) as line:
        line.sendall(bytes.fromhex("100d 00044d515454 04 02 0000 0001 61"))
        assert line.recv(4) == b"\x20\2\0\0"
    gateway.stop()


def test_check_tells_of_a_listener_at_which_nobody_can_connect(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    for host, more, is_closed in (
        ("0.0.0.0", "", True),
        ("0.0.0.0", "anonymous = true", False),
        ("127.0.0.1", "", False),
        ("localhost", "proxy_protocol = true", True),
    ):
        settings.write_text(f'[listener]\nhost = "{host}"\n{more}\n')
        code, told = command_line("check", str(settings))
        assert (code, f"nobody can connect at {host}:1883 yet" in told) == (0, is_closed), (host, more)
