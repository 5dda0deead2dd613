"""TLS and mutual TLS, as Mosquitto's clients and plain sockets find it: who comes in, who is turned away and why."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.init.authority import Authority, KeyPair

from .conftest import command_line

PATIENCE_S = 30.0
SUB, PUB = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub")
needs_mosquitto = pytest.mark.skipif(not (SUB and PUB), reason="mosquitto_sub or mosquitto_pub is not installed")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates"),
]

CONNECT = bytes.fromhex("1010 00044d515454 04 02 0000 0004") + b"name"
CONNACK = bytes.fromhex("20020000")


@dataclass(frozen=True)
class Certificates:
    """One authority that is trusted, one that is not, and what they signed."""

    ca: Path
    server: KeyPair
    client: KeyPair
    expired: KeyPair
    stranger: KeyPair


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder, elsewhere = tmp_path_factory.mktemp("ca"), tmp_path_factory.mktemp("other")
    authority = Authority.make(folder, "Test")
    return Certificates(
        authority.pair.certificate,
        authority.server(folder, ["localhost", "127.0.0.1"]),
        authority.client(folder, "pump-3"),
        authority.client(folder, "late", days=-1),
        Authority.make(elsewhere, "Other").client(elsewhere, "stranger"),
    )


@pytest.fixture
def serve(start_gateway: Callable[..., Any], certificates: Certificates, tmp_path: Path) -> Callable[..., Any]:
    """A gateway with a plain listener and, last, one of TLS; `tls_port` is its port."""

    def serve(more: str = "") -> Any:
        settings = tmp_path / "gateway.toml"
        pair = certificates.server
        settings.write_text(
            f'[[listener]]\n[[listener]]\nname = "safe"\nport = 0\n{more}\n'
            f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
        )
        gateway = start_gateway("--config", str(settings), "--log-level", "warning", "--log-format", "json")
        gateway.tls_port = gateway.listening["listeners"][-1]["port"]
        return gateway

    return serve


def mutual(certificates: Certificates, client: str = "required") -> str:
    return f'tls_client = "{client}"\ntls_client_ca = "{certificates.ca}"'


def dial(port: int, certificates: Certificates, pair: KeyPair | None = None) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), PATIENCE_S), server_hostname="localhost")


def said_at_end(gateway: Any) -> list[tuple[str, str]]:
    """(code, text) of all that a gateway had to say to the operator."""
    gateway.process.terminate()
    _, complaints = gateway.process.communicate(timeout=PATIENCE_S)
    assert gateway.process.returncode == 0
    notices = [json.loads(line) for line in complaints.splitlines()]
    return [(notice["code"], notice["text"]) for notice in notices if "peer" in notice and "listener" in notice]


@needs_mosquitto
@pytest.mark.parametrize("client", ["none", "optional", "required"])
def test_mosquitto_clients_come_in(serve: Callable[..., Any], certificates: Certificates, client: str) -> None:
    gateway = serve(mutual(certificates, client) if client != "none" else "")
    options = ["-h", "localhost", "-p", str(gateway.tls_port), "--cafile", str(certificates.ca)]
    if client == "required":
        options += ["--cert", str(certificates.client.certificate), "--key", str(certificates.client.key)]
    large = "x" * 100_000
    publish = [str(PUB), *options, "-t", "a", "-q", "1", "-r", "-m", large]
    subprocess.run(publish, check=True, timeout=PATIENCE_S)
    command = [str(SUB), *options, "-t", "a", "-C", "1", "-W", "30"]
    assert subprocess.check_output(command, timeout=PATIENCE_S).decode() == large + "\n"
    assert gateway.stop()["delivered"] == 1


def test_many_packets_in_few_records_and_one_packet_in_many(
    serve: Callable[..., Any], certificates: Certificates
) -> None:
    gateway = serve()
    with dial(gateway.tls_port, certificates) as line:
        for octet in CONNECT:
            line.sendall(bytes([octet]))
        assert line.recv(4) == CONNACK
        line.sendall(bytes.fromhex("8206 0001 0001 61 00"))
        assert line.recv(5) == bytes.fromhex("9003 0001 00")
        message = b"\x30\x0b\x00\x01a12345678"
        line.sendall(message * 20_000)
        heard = bytearray()
        while len(heard) < 20_000 * len(message):
            chunk = line.recv(1 << 20)
            assert chunk, "the gateway closed the connection"
            heard += chunk
        assert heard == message * 20_000
        line.sendall(b"\xe0\x00")
        assert line.recv(10) == b"", "the gateway says good-bye in TLS too: nothing was cut off"
    assert gateway.stop()["delivered"] == 20_000


def test_a_handshake_may_come_byte_by_byte(serve: Callable[..., Any], certificates: Certificates) -> None:
    gateway = serve()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(certificates.ca)).wrap_bio(incoming, outgoing, False, "localhost")
    with socket.create_connection(("127.0.0.1", gateway.tls_port), PATIENCE_S) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                for octet in outgoing.read():
                    line.sendall(bytes([octet]))
                incoming.write(line.recv(1 << 16))
        client.write(CONNECT)
        for octet in outgoing.read():
            line.sendall(bytes([octet]))
        heard = b""
        while not heard:
            incoming.write(line.recv(1 << 16))
            with suppress(ssl.SSLWantReadError):
                heard = client.read(100)
        assert heard == CONNACK
    gateway.stop()


def test_bytes_that_are_no_tls_are_told(serve: Callable[..., Any]) -> None:
    gateway = serve()
    for first in (CONNECT, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", gateway.tls_port), PATIENCE_S) as line:
            line.sendall(first)
            assert line.recv(10) == b""
    told = "turned away: the first byte is 0x{}; this listener speaks TLS alone"
    assert said_at_end(gateway) == [("no-tls", told.format(first)) for first in ("10", "47")]


REFUSED = {
    "nothing": (None, "no-client-certificate", "peer did not return a certificate"),
    "expired": ("expired", "client-certificate", "certificate has expired"),
    "another authority": ("stranger", "client-certificate", "unable to get local issuer certificate"),
}


@pytest.mark.parametrize(("shown", "code", "why"), REFUSED.values(), ids=REFUSED)
def test_who_shows_no_valid_certificate_is_turned_away(
    serve: Callable[..., Any], certificates: Certificates, shown: str | None, code: str, why: str
) -> None:
    gateway = serve(mutual(certificates))
    with dial(gateway.tls_port, certificates, shown and getattr(certificates, shown)) as line:
        with suppress(OSError):
            line.sendall(CONNECT)
        with pytest.raises(OSError, match=r"alert|reset|broken"):  # in TLS 1.3 a client hears only now of it
            line.recv(4)
    with dial(gateway.tls_port, certificates, certificates.client) as line:
        line.sendall(CONNECT)
        assert line.recv(4) == CONNACK
    assert said_at_end(gateway) == [(code, f"turned away: {why}")]


def test_an_older_tls_than_allowed_is_refused(serve: Callable[..., Any], certificates: Certificates) -> None:
    gateway = serve('tls_minimum = "1.3"')
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", gateway.tls_port), PATIENCE_S) as line,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(line, server_hostname="localhost")
    assert said_at_end(gateway) == [("tls-handshake", "turned away: unsupported protocol")]


def test_half_a_handshake_is_no_place_to_stay(serve: Callable[..., Any], certificates: Certificates) -> None:
    """It counts as a connection of the listener, and gives way to the next one; a client that has come in does not."""
    gateway = serve("connections_max = 1")
    with socket.create_connection(("127.0.0.1", gateway.tls_port), PATIENCE_S) as slow:
        slow.sendall(b"\x16\x03\x01")
        with dial(gateway.tls_port, certificates) as second:
            assert slow.recv(10) == b""
            second.sendall(CONNECT)
            assert second.recv(4) == CONNACK
            with socket.create_connection(("127.0.0.1", gateway.tls_port), PATIENCE_S) as third:
                assert third.recv(10) == b""
    assert said_at_end(gateway) == [("listener-full", "turned away: there are 1 already")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("key", "stranger"), "tls_key: {stranger} is not the key of {server}; name the key that was made with"),
        (("key", "absent"), "tls_key: {absent} cannot be read: No such file or directory"),
        (("certificate", "key"), "tls_certificate: {key} is no certificate; it must be one in PEM"),
    ],
)
def test_files_that_do_not_fit_are_refused_at_the_start(
    certificates: Certificates, tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    names = {
        "stranger": certificates.stranger.key,
        "absent": tmp_path / "absent",
        "key": certificates.server.key,
        "server": certificates.server.certificate,
    }
    files = {"certificate": certificates.server.certificate, "key": certificates.server.key}
    files[change[0]] = names[change[1]]
    settings = tmp_path / "s.toml"
    settings.write_text(
        f'[listener]\nport = 0\ntls_certificate = "{files["certificate"]}"\ntls_key = "{files["key"]}"\n'
    )
    for command in (["run", "--config", str(settings)], ["check", str(settings)]):
        ended = subprocess.run(
            [sys.executable, "-m", "edgebroker", *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 2
        assert told.format(**names) in ended.stderr


OLD_CIPHERS = ("AES128-SHA", "AES256-SHA256", "AES128-GCM-SHA256", "DHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA")
"""RSA key exchange, finite-field Diffie-Hellman, and CBC with SHA-1."""


@pytest.fixture(scope="module")
def rsa_pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    folder = tmp_path_factory.mktemp("rsa")
    pair = KeyPair(folder / "server.crt", folder / "server.key")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-out", pair.certificate, "-keyout", pair.key], check=True, capture_output=True)
    return pair


@pytest.mark.parametrize("cipher", OLD_CIPHERS)
def test_old_devices_come_in_where_they_may(
    start_gateway: Callable[..., Any], rsa_pair: KeyPair, tmp_path: Path, cipher: str
) -> None:
    listener = f'[[listener]]\nport = 0\ntls_certificate = "{rsa_pair.certificate}"\ntls_key = "{rsa_pair.key}"\n'
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[[listener]]\n{listener}{listener}tls_ciphers = "old-devices"\n')
    gateway = start_gateway("--config", str(settings), "--log-level", "warning", "--log-format", "json")
    usual, old = (one["port"] for one in gateway.listening["listeners"][1:])
    context = ssl.create_default_context(cafile=str(rsa_pair.certificate))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{cipher}:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", old), PATIENCE_S) as line,
        context.wrap_socket(line, server_hostname="localhost") as safe,
    ):
        assert (safe.cipher() or ("",))[0] == cipher
        safe.sendall(CONNECT)
        assert safe.recv(4) == CONNACK
    with socket.create_connection(("127.0.0.1", usual), PATIENCE_S) as line, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(line, server_hostname="localhost")
    assert said_at_end(gateway) == [("tls-handshake", "turned away: no shared cipher")]


def test_ciphers_that_nobody_knows_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    pair = certificates.server
    settings = tmp_path / "gateway.toml"
    settings.write_text(
        f'[listener]\ntls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\ntls_ciphers = "old-device"\n'
    )
    code, told = command_line("check", str(settings))
    assert (code, "tls_ciphers: OpenSSL knows no cipher of 'old-device'" in told) == (2, True), told
