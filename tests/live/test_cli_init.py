"""`edgebroker init`: what it makes works as it is, and it overwrites nothing."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebroker.cli.certificate import command as certificate
from edgebroker.cli.init import command as init
from edgebroker.cli.init import own_names
from edgebroker.cli.init.template import unit_file
from edgebroker.cli.topology import OVERLAY_PORT
from edgebroker.runtime.settings import Settings

from .conftest import command_line

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates"),
]
PATIENCE_S = 30.0


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder with nothing beside it: `init` looks there for an authority."""
    folder = tmp_path / "alone"
    folder.mkdir()
    return folder


def made(folder: Path, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(init, [str(folder), "--json", *options])
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_gateway_runs_and_who_has_the_password_or_the_certificate_comes_in(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    answer = made(folder, "--host", "localhost", "--host", "127.0.0.1", "--user", "anna", "--client", "pump-3")
    settings = folder / "gateway.toml"
    settings.write_text(settings.read_text().replace("port = 8883", "port = 0").replace("port = 9883", "port = 0"))
    code, said = command_line("check", str(settings))
    assert code == 0
    assert f"listener devices: the certificate {folder / 'server.crt'} is valid until 20" in said
    gateway = start_gateway("--config", str(settings))
    asked = ["--http", str(gateway.listening["http"]["port"])]
    assert command_line("status", *asked)[0] == 2, "clients say who they are, and so does who asks"
    token = ["--token-file", str(folder / "http-token")]
    assert command_line("status", *asked, *token)[0] == 0
    assert command_line("reload", *asked, *token)[0] == 0
    port = str(gateway.listening["listeners"][1]["port"])
    way = ["-h", "localhost", "-p", port, "--cafile", str(folder / "ca.crt"), "-t", "a", "-q", "1"]
    publish = ["pub", *way, "-r", "-m", "hello"]
    pair = ["--cert", str(folder / "clients/pump-3.crt"), "--key", str(folder / "clients/pump-3.key")]
    assert command_line(*publish)[0] == 1, "who says nothing stays outside"
    assert command_line(*publish, "-u", "anna", "-P", "wrong")[0] == 1
    assert command_line(*publish, *pair) == (0, "")
    receive = ["sub", *way, "-C", "1", "-W", "20"]
    assert command_line(*receive, "-u", "anna", "-P", answer["password"]) == (0, "hello\n")
    gateway.process.terminate()
    assert gateway.process.wait(PATIENCE_S) == 0


def test_keys_and_passwords_are_private_and_the_settings_are_read_by_people(tmp_path: Path) -> None:
    made(tmp_path)
    for path in tmp_path.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.suffix == ".key" or path.name in ("users", "http-token"):
            assert mode == 0o600, path
    assert not list(tmp_path.glob(".init-*"))
    text = (tmp_path / "gateway.toml").read_text()
    commented = "\n".join(
        line.removeprefix("# ")
        if line.startswith(("# [", "# ")) and ("=" in line or "[[" in line) and "`" not in line
        else line
        for line in text.splitlines()
    )
    settings = Settings.parse(commented, "gateway.toml", tmp_path)
    assert [one.label for one in settings.listeners] == ["local", "devices", "browsers", "socket"], (
        "what is commented out holds too when it is not"
    )


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    made(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "gateway.toml").unlink()
    done = CliRunner().invoke(init, [str(tmp_path)])
    assert done.exit_code == 2
    assert (
        "users, http-token, edgebroker.service, ca.crt, ca.key, server.crt, server.key, clients/example.crt"
        in done.stderr
    )
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before.keys() - {tmp_path / "gateway.toml"}


def test_a_second_authority_is_made_only_on_purpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "gateway-1", tmp_path / "gateway-2"
    made(first)
    for folder, here in ((second, tmp_path), (first / "inside", tmp_path), (tmp_path / "far/away", first)):
        monkeypatch.chdir(here)
        done = CliRunner().invoke(init, [str(folder)])
        assert done.exit_code == 2
        assert "lets it sign for this gateway too, --new-ca makes a second one" in done.stderr
        assert not folder.exists()
    answer = made(second, "--ca-dir", str(first), "--host", "localhost")
    assert "ca.key" not in answer["files"]
    assert not (second / "ca.key").exists()
    assert (second / "ca.crt").read_bytes() == (first / "ca.crt").read_bytes()
    for name in ("server.crt", "clients/example.crt"):
        check = ["openssl", "verify", "-CAfile", str(first / "ca.crt"), str(second / name)]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
    assert "ca.key" in made(tmp_path / "gateway-3", "--new-ca")["files"]
    done = CliRunner().invoke(init, [str(tmp_path / "gateway-4"), "--ca-dir", str(second)])
    assert (done.exit_code, "there is no" in done.stderr) == (2, True)


def test_the_unit_starts_the_program_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ours", "other"):
        program = tmp_path / name / "edgebroker"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nfrom edgebroker.cli import main\nmain()\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    ways = ([str(tmp_path / "ours/edgebroker")], [sys.executable, "-P", "-m", "edgebroker"])
    for number, command in enumerate(ways):
        folder = tmp_path / f"made-{number}"
        subprocess.run([*command, "init", str(folder), "--new-ca"], check=True, stdout=subprocess.DEVNULL)
        lines = (folder / "edgebroker.service").read_text().splitlines()
        assert f"ExecStart={' '.join(command)} run --config {folder}/gateway.toml" in lines


def test_browsers_and_peers_come_by_other_ports(tmp_path: Path) -> None:
    made(tmp_path)
    text = (tmp_path / "gateway.toml").read_text()
    assert f"port = {OVERLAY_PORT}" not in text


@pytest.mark.parametrize(
    "options", [["--user", "a b"], ["--client", "../x"], ["--host", "a,DNS:b"], ["--host", "$ENV"], ["--node", "-"]]
)
def test_names_that_would_mean_something_else_are_refused(tmp_path: Path, options: list[str]) -> None:
    done = CliRunner().invoke(init, [str(tmp_path / "d"), *options])
    assert done.exit_code == 2
    assert not (tmp_path / "d").exists()


def test_the_certificate_has_every_name_of_this_machine(tmp_path: Path) -> None:
    assert made(tmp_path)["hosts"] == own_names()
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    [authority] = context.get_ca_certs()
    assert str(authority["subject"]).count("authority") == 1
    text = subprocess.check_output(
        ["openssl", "x509", "-in", str(tmp_path / "server.crt"), "-noout", "-text"], text=True
    )
    assert "DNS:localhost" in text
    assert "IP Address:127.0.0.1" in text


def test_more_certificates_come_from_the_same_authority(tmp_path: Path) -> None:
    made(tmp_path, "--host", "localhost")
    ca, old = str(tmp_path / "ca.crt"), (tmp_path / "server.crt").read_bytes()
    run = CliRunner().invoke
    assert run(certificate, ["client", "pump-3", "pump-4", "--dir", str(tmp_path)]).exit_code == 0
    (tmp_path / "server.key").chmod(0o640)  # as for a gateway of another user in the same group
    assert run(certificate, ["server", "--host", "edge.example", "--dir", str(tmp_path)]).exit_code == 0
    assert stat.S_IMODE((tmp_path / "server.key").stat().st_mode) == 0o640
    assert (tmp_path / "server.crt").read_bytes() != old
    assert run(certificate, ["gateway", "gw-1", "--dir", str(tmp_path)]).exit_code == 0
    names = ("server.crt", "clients/pump-3.crt", "clients/pump-4.crt", "gateways/gw-1.crt")
    made_now = [str(tmp_path / name) for name in names]
    for purpose in ("sslserver", "sslclient"):  # a gateway dials, and is dialled
        check = ["openssl", "verify", "-CAfile", ca, "-purpose", purpose, made_now[-1]]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["openssl", "verify", "-CAfile", ca, *made_now], check=True, stdout=subprocess.DEVNULL)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    again = run(certificate, ["client", "pump-5", "pump-3", "--dir", str(tmp_path)])
    assert again.exit_code == 2
    assert "nothing is overwritten" in again.stderr
    assert not (tmp_path / "clients/pump-5.crt").exists()
    elsewhere = run(certificate, ["client", "x", "--dir", str(tmp_path / "clients")])
    assert elsewhere.exit_code == 2
    assert "`edgebroker init` makes it" in elsewhere.stderr


def test_without_openssl_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "edgebroker", "init", str(tmp_path / "d")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "apt install openssl" in done.stderr
    assert not (tmp_path / "d").exists()


def test_certificates_are_revoked_in_one_list(tmp_path: Path) -> None:
    made(tmp_path)
    run = CliRunner().invoke
    assert run(certificate, ["client", "pump-3", "pump-4", "--dir", str(tmp_path)]).exit_code == 0
    for name in ("pump-3", "pump-4"):
        said = run(certificate, ["revoke", name, "--dir", str(tmp_path)])
        assert (said.exit_code, said.output.split()[:3]) == (0, [str(tmp_path / "ca.crl"), "has", name])
    listed = subprocess.check_output(["openssl", "crl", "-in", tmp_path / "ca.crl", "-noout", "-text"], text=True)
    assert listed.count("Serial Number:") == 2
    code, told = command_line("certificate", "revoke", "pump-3", "--dir", str(tmp_path))
    assert (code, "revoked" in told) == (2, True), told
    code, told = command_line("certificate", "revoke", "pump-9", "--dir", str(tmp_path))
    assert (code, "pump-9.crt: not there" in told) == (2, True), told
    assert run(certificate, ["gateway", "gw-a", "--dir", str(tmp_path)]).exit_code == 0
    said = run(certificate, ["revoke", "--gateway", "gw-a", "--dir", str(tmp_path)])
    assert (said.exit_code, "has gw-a now: where overlay.tls_crl names it" in said.output) == (0, True), said.output


@pytest.mark.parametrize(
    ("folder", "settings", "writable"),
    [
        ("/srv/site", "/srv/site/gateway.toml", "/srv/site/data /srv/site/delivery-log"),
        ("/my site", '"/my site/gateway.toml"', '"/my site/data" "/my site/delivery-log"'),
        ("/a%i/$b", '"/a%%i/$$b/gateway.toml"', '"/a%%i/$b/data" "/a%%i/$b/delivery-log"'),
        ('/a"\\', '"/a\\"\\\\/gateway.toml"', '"/a\\"\\\\/data" "/a\\"\\\\/delivery-log"'),
    ],
)
def test_a_unit_finds_folders_of_any_name(folder: str, settings: str, writable: str) -> None:
    lines = unit_file(["/my venv/edgebroker"], folder, "pi").splitlines()
    assert f'ExecStart="/my venv/edgebroker" run --config {settings}' in lines
    assert f'ExecReload="/my venv/edgebroker" check --quiet {settings}' in lines
    assert f"ReadWritePaths={writable}" in lines
    assert "User=pi" in lines


def test_what_root_made_runs_as_somebody_else() -> None:
    assert "User=edgebroker" in unit_file(["/usr/bin/edgebroker"], "/etc/edgebroker", "root").splitlines()
