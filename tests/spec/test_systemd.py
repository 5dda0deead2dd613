"""sd_notify(3): what is said to systemd, when, and that nobody is waited for. And the unit file."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.init.template import memory_max_mib, settings_file, unit_file
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.systemd import Systemd


@pytest.fixture(params=["path", "abstract"])
def notified(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A socket that hears what is said, and the environment that leads to it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@edgebroker-test-{os.getpid()}-{id(request)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
        hearing.bind("\0" + name[1:] if name.startswith("@") else name)
        hearing.setblocking(False)
        yield hearing, {"NOTIFY_SOCKET": name}


def heard(hearing: socket.socket) -> list[str]:
    said = []
    while True:
        try:
            said.append(hearing.recv(4_096).decode())
        except BlockingIOError:
            return said


def test_ready_reloading_and_stopping(notified: Any) -> None:
    hearing, environment = notified
    systemd = Systemd(environment, clock=lambda: 12.5)
    assert systemd.is_there
    systemd.ready("listens on 127.0.0.1:1883\nREADY=0")
    systemd.reloading()
    systemd.stopping()
    assert heard(hearing) == [
        "READY=1\nSTATUS=listens on 127.0.0.1:1883 READY=0",
        "RELOADING=1\nMONOTONIC_USEC=12500000\nSTATUS=reads its settings again",
        "STOPPING=1\nSTATUS=says good-bye to clients",
    ]


def test_a_sign_of_life_at_half_of_what_systemd_waits(notified: Any) -> None:
    hearing, environment = notified
    now = 0.0
    systemd = Systemd(environment | {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, lambda: now)
    systemd.ready("x")
    assert heard(hearing)[1:] == ["WATCHDOG=1"]
    signs = []
    for tenth in range(600):
        now = tenth / 10
        systemd.alive()
        if heard(hearing):
            signs.append(now)
    assert signs == [15.0, 30.0, 45.0]


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "1"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9" * 400}, {"WATCHDOG_USEC": "-1"}],
)
def test_without_systemd_it_is_silent(environment: dict[str, str]) -> None:
    systemd = Systemd(environment)
    assert not systemd.is_there
    systemd.ready("x")
    systemd.alive()
    systemd.stopping()


def test_the_watchdog_of_another_process_is_not_ours(notified: Any) -> None:
    hearing, environment = notified
    systemd = Systemd(environment | {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"})
    systemd.alive()
    assert heard(hearing) == []


def test_a_full_queue_and_a_listener_that_went_hold_nobody_up(notified: Any) -> None:
    hearing, environment = notified
    systemd = Systemd(environment)
    for _ in range(10_000):
        systemd.stopping()
    assert heard(hearing)
    hearing.close()
    systemd.stopping()


# -- what lies in deploy/ -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_takes_the_unit(root: Path, tmp_path: Path) -> None:
    unit = (root / "deploy/systemd/edgebroker.service").read_text()
    file = tmp_path / "edgebroker.service"
    file.write_text(unit.replace("/usr/bin/edgebroker", shutil.which("true") or "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_the_unit_runs_what_there_is(root: Path) -> None:
    unit = (root / "deploy/systemd/edgebroker.service").read_text()
    assert re.search(r"^ExecStart=/usr/bin/edgebroker run --config /etc/edgebroker/gateway.toml$", unit, re.MULTILINE)
    settings = Settings.load(root / "deploy/systemd/gateway.toml")
    for folder in (settings.log.dir, settings.data.dir):
        assert folder is not None
        assert folder.is_relative_to("/var/lib/edgebroker"), "StateDirectory is all that it may write"
    descriptors = int(re.findall(r"^LimitNOFILE=(\d+)$", unit, re.MULTILINE)[0])
    assert descriptors > settings.limits.connections_max


@pytest.mark.parametrize("of", ["deploy", "init"])
def test_the_unit_has_memory_for_the_program_and_half_as_much_again_as_clients_may_hold(
    root: Path, tmp_path: Path, of: str
) -> None:
    if of == "deploy":
        unit = (root / "deploy/systemd/edgebroker.service").read_text()
        settings = Settings.load(root / "deploy/systemd/gateway.toml")
    else:
        unit = unit_file(["edgebroker"], "/etc/edgebroker", "broker")
        (tmp_path / "gateway.toml").write_text(settings_file("gateway", ["localhost"]))
        settings = Settings.load(tmp_path / "gateway.toml")
    megabytes = int(re.findall(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)[0])
    assert megabytes == memory_max_mib(settings.quota.memory_bytes_max) == 224


@pytest.mark.parametrize("of", ["deploy", "init"])
def test_the_unit_is_tried_for_good_and_has_time_to_read_what_it_keeps(root: Path, of: str) -> None:
    """By default five failures in 10 s are the end, and a start may take 90 s: a small board does not read 1 GiB."""
    deployed = (root / "deploy/systemd/edgebroker.service").read_text()
    unit = deployed if of == "deploy" else unit_file(["/usr/bin/edgebroker"], "/srv", "pi")
    assert {
        *("StartLimitIntervalSec=0", "Restart=on-failure", "RestartPreventExitStatus=78", "TimeoutStartSec=900")
    } <= set(unit.splitlines())


def test_the_unit_of_init_lets_a_gateway_do_no_more(root: Path) -> None:
    """But for the homes: its folder may lie in one. And its user may be a person with other programs (RemoveIPC)."""
    deployed = (root / "deploy/systemd/edgebroker.service").read_text().partition("nothing else.\n")[2]
    wanted = {
        line for line in deployed.partition("\n\n")[0].splitlines() if line not in {"ProtectHome=yes", "RemoveIPC=yes"}
    }
    assert len(wanted) > 20
    assert wanted <= set(unit_file(["/usr/bin/edgebroker"], "/srv", "pi").splitlines())


def test_the_settings_beside_the_unit_say_only_what_they_mean(root: Path) -> None:
    text = (root / "deploy/systemd/gateway.toml").read_text()
    assert set(tomllib.loads(text)) == {"node", "listener", "http", "log", "data", "quota"}
