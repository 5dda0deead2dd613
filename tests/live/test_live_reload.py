"""SIGHUP: new certificates, new listeners and mistakes, while clients stay connected."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.init.authority import Authority

pytestmark = pytest.mark.live

PATIENCE_S = 30.0
CONNECT = bytes.fromhex("1011 00044d515454 05 02 0000 00 0004")
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def enter(line: socket.socket) -> None:
    line.settimeout(PATIENCE_S)
    line.sendall(CONNECT + b"%04d" % line.fileno())
    assert line.recv(1_024)[0] == 0x20


def is_alive(line: socket.socket) -> bool:
    line.sendall(PINGREQ)
    return line.recv(2) == PINGRESP


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
def test_a_new_certificate_is_shown_to_who_comes_and_nobody_has_to_go(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path, "Test")
    authority.server(tmp_path, ["localhost"])
    settings = tmp_path / "gateway.toml"
    text = (
        '[[listener]]\n[[listener]]\nname = "safe"\nport = 0\ntls_certificate = "server.crt"\ntls_key = "server.key"\n'
    )
    settings.write_text(text)
    gateway = start_gateway("--config", str(settings))
    port = gateway.listening["listeners"][1]["port"]
    context = ssl.create_default_context(cafile=str(authority.pair.certificate))

    def dial() -> ssl.SSLSocket:
        line = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        return context.wrap_socket(line, server_hostname="localhost")

    with dial() as early:
        enter(early)
        said = gateway.reload()
        assert (said["taken"], said["changes"], said["notes"]) == (True, [], [])
        authority.server(tmp_path, ["localhost"])
        said = gateway.reload()
        assert (said["taken"], said["changes"]) == (True, [])
        assert [note.partition(",")[0] for note in said["notes"]] == ["listener safe: another certificate"]
        with dial() as late:
            enter(late)
            assert late.getpeercert() != early.getpeercert()
            good = (tmp_path / "server.key").read_bytes()
            (tmp_path / "server.key").write_text("no key")
            said = gateway.reload()
            assert said["taken"] is False
            assert said["problems"][0]["key"] == "listener.tls_key"
            (tmp_path / "server.key").write_bytes(good)
        with dial() as last:
            enter(last)
        assert is_alive(early)
    gateway.stop()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
def test_a_client_whose_certificate_is_revoked_has_to_go_and_others_come_again(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path, "Test")
    authority.server(tmp_path, ["localhost"])
    pairs = {name: authority.client(tmp_path, name) for name in ("pump-3", "pump-4")}
    authority.revoke(tmp_path, [])
    settings = tmp_path / "gateway.toml"
    settings.write_text(
        '[[listener]]\n[[listener]]\nport = 0\ntls_certificate = "server.crt"\ntls_key = "server.key"\n'
        'tls_client = "required"\ntls_client_ca = "ca.crt"\ntls_client_crl = "ca.crl"\n'
        '[access]\ncertificate_user = "common name"\n'
    )
    gateway = start_gateway("--config", str(settings))
    port = gateway.listening["listeners"][1]["port"]

    def dial(name: str) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(authority.pair.certificate))
        context.load_cert_chain(pairs[name].certificate, pairs[name].key)
        line = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        return context.wrap_socket(line, server_hostname="localhost")

    def is_refused(name: str) -> bool:
        with dial(name) as line, pytest.raises(OSError, match="revoked"):
            line.recv(1)  # in TLS 1.3 a client hears only now of it
        return True

    with dial("pump-3") as third, dial("pump-4") as fourth, socket.create_connection(("127.0.0.1", gateway.port)) as by:
        for line in (third, fourth, by):
            enter(line)
        assert gateway.reload()["notes"] == []
        authority.revoke(tmp_path, [pairs["pump-3"].certificate])
        [note] = gateway.reload()["notes"]
        assert note.endswith(": 2 clients were sent away")
        assert [line.recv(1_024)[0] for line in (third, fourth)] == [0xE0, 0xE0]
        assert is_alive(by)
        with dial("pump-4") as again:
            enter(again)
        assert is_refused("pump-3")
        authority.revoke(tmp_path, [pairs["pump-4"].certificate])  # what was revoked before stays so
        gateway.reload()
        assert is_refused("pump-3")
        assert is_refused("pump-4")
        for wrong, why in ((authority.pair.certificate.read_text(), "has certificates in it"), ("", "no certificate")):
            (tmp_path / "ca.crl").write_text(wrong)
            [problem] = gateway.reload()["problems"]
            assert problem["key"] == "listener.tls_client_crl"
            assert why in problem["reason"]
    gateway.stop()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
def test_a_certificate_that_is_revoked_in_the_middle_of_its_handshake_lets_nobody_in(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path, "Test")
    authority.server(tmp_path, ["localhost"])
    pair = authority.client(tmp_path, "pump-3")
    authority.revoke(tmp_path, [])
    settings = tmp_path / "gateway.toml"
    settings.write_text(
        '[[listener]]\n[[listener]]\nport = 0\ntls_certificate = "server.crt"\ntls_key = "server.key"\n'
        'tls_client = "required"\ntls_client_ca = "ca.crt"\ntls_client_crl = "ca.crl"\n'
    )
    gateway = start_gateway("--config", str(settings))
    context = ssl.create_default_context(cafile=str(authority.pair.certificate))
    context.load_cert_chain(pair.certificate, pair.key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    address = "127.0.0.1", gateway.listening["listeners"][1]["port"]
    with socket.create_connection(address, PATIENCE_S) as line:
        with pytest.raises(ssl.SSLWantReadError):
            half.do_handshake()
        line.sendall(outgoing.read())
        incoming.write(line.recv(65_536))  # the server's half: what comes next has our certificate in it
        half.do_handshake()
        authority.revoke(tmp_path, [pair.certificate])
        [note] = gateway.reload()["notes"]
        assert note.endswith(": 1 clients were sent away")
        half.write(CONNECT + b"0001")
        with suppress(ConnectionError):  # it is closed, or was reset
            line.sendall(outgoing.read())
            assert line.recv(65_536) == b""
    gateway.stop()


def test_strangers_have_to_go_when_their_listener_takes_none(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    settings = tmp_path / "gateway.toml"
    door = f'[[listener]]\n[[listener]]\nname = "hall"\nport = {free_port}\n'
    settings.write_text(door)
    gateway = start_gateway("--config", str(settings))
    with (
        socket.create_connection(("127.0.0.1", gateway.port)) as elsewhere,
        socket.create_connection(("127.0.0.1", free_port)) as stranger,
        socket.create_connection(("127.0.0.1", free_port)) as unknown,
    ):
        enter(elsewhere)
        enter(stranger)
        settings.write_text(door + "anonymous = false\n")
        assert gateway.reload()["notes"] == ["listener hall: 2 clients were sent away"]
        assert stranger.recv(1_024)[:3:2] == b"\xe0\x98"
        unknown.settimeout(PATIENCE_S)
        assert unknown.recv(1) == b"", "or it could still come in on the terms of before"
        assert is_alive(elsewhere)
    gateway.stop()


def test_listeners_come_and_go_and_so_do_their_clients(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[[listener]]\n[[listener]]\nport = {free_port}\n[[listener]]\npath = "door"\n')
    gateway = start_gateway("--config", str(settings))
    with socket.create_connection(("127.0.0.1", gateway.port)) as stays, socket.socket(socket.AF_UNIX) as leaves:
        leaves.connect(str(tmp_path / "door"))
        enter(stays)
        enter(leaves)
        settings.write_text(
            f'[[listener]]\n[[listener]]\nport = {free_port}\nname = "hall"\n[[listener]]\npath = "gate"\n'
        )
        said = gateway.reload()
        assert [(one["key"], one["old"], one["new"]) for one in said["changes"]] == [
            ("listener hall.name", None, "hall"),
            ("listener", None, str(tmp_path / "gate")),
            ("listener", str(tmp_path / "door"), None),
        ]
        assert {one["outcome"] for one in said["changes"]} == {"applied"}
        good_bye = leaves.recv(1_024)
        assert good_bye[0] == 0xE0
        assert good_bye[2] == 0x98, "administrative action"
        assert leaves.recv(1) == b""
        assert not (tmp_path / "door").exists()
        with socket.socket(socket.AF_UNIX) as new:
            new.connect(str(tmp_path / "gate"))
            enter(new)
        assert is_alive(stays)
    gateway.stop()
    assert not (tmp_path / "gate").exists()


def test_a_listener_opens_to_the_network_and_closes_again_at_its_port(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    settings = tmp_path / "gateway.toml"

    def listens(host: str, further: str = "") -> None:
        where = f'host = "{host}"\nport = {free_port}\nanonymous = true\n'
        settings.write_text(f"[[listener]]\n[[listener]]\n{where}{further}")

    listens("127.0.0.1")
    gateway = start_gateway("--config", str(settings))
    for before, host in (("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "localhost"), ("localhost", "127.0.0.1")):
        with socket.create_connection(("127.0.0.1", free_port)) as line:
            enter(line)
            listens(host, '[[listener]]\nhost = "203.0.113.1"\n')
            assert gateway.reload()["taken"] is False, "no machine has this address"
            assert is_alive(line)
            listens(host)
            said = gateway.reload()
            address, was = f"{host}:{free_port}", f"{before}:{free_port}"
            assert [(one["old"], one["new"]) for one in said["changes"]] == [(None, address), (was, None)]
            assert {one["outcome"] for one in said["changes"]} == {"applied"}
            assert line.recv(1_024)[0] == 0xE0, "this listener is closed"
        with socket.create_connection(("127.0.0.1", free_port)) as line:
            enter(line)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", free_port))
    gateway.stop()


def test_what_cannot_be_opened_rejects_the_whole_file(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int
) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text("")
    gateway = start_gateway("--config", str(settings))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings.write_text(f"[[listener]]\n[[listener]]\nport = {free_port}\n[[listener]]\nport = {port}\n")
        said = gateway.reload()
    assert said["taken"] is False
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use" in said["problems"][0]["reason"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port), PATIENCE_S)
    settings.write_text("[listener]\nprot = 1\n")
    [problem] = gateway.reload()["problems"]
    assert (problem["line"], problem["key"]) == (2, "listener.prot")
    settings.write_text("[limits]\ninflight_max = 5\n")
    [change] = gateway.reload()["changes"]
    assert (change["key"], change["outcome"]) == ("limits.inflight_max", "needs restart")
    with socket.create_connection(("127.0.0.1", gateway.port)) as line:
        enter(line)
    gateway.stop()
