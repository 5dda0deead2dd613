"""The units under a real systemd, in a box: what they promise about starting, hanging, dying, reloading and rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .systemdbox import CannotBox, SystemdBox

pytestmark = pytest.mark.live

UNIT = "edgebroker"
SETTINGS = "/etc/edgebroker/gateway.toml"
FAST = "[Service]\nWatchdogSec=4\nRestartSec=100ms\n"


@pytest.fixture(scope="module")
def box(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdBox]:
    try:
        made = SystemdBox(tmp_path_factory.mktemp("box"), root / "deploy")
    except CannotBox as reason:
        pytest.skip(f"no systemd can be had here: {reason}")
    try:
        made.well("install", "-D", "-m", "644", "/opt/deploy/systemd/gateway.toml", SETTINGS)
        made.well("cp", "/opt/deploy/systemd/edgebroker.service", "/etc/systemd/system")
        drop_in(made, UNIT, FAST)
        yield made
    finally:
        made.close()


def drop_in(box: SystemdBox, unit: str, text: str) -> None:
    box.well("install", "-D", "-m", "644", "/dev/stdin", f"/etc/systemd/system/{unit}.service.d/test.conf", stdin=text)
    box.well("systemctl", "daemon-reload")


@pytest.fixture
def gateway(box: SystemdBox) -> Iterator[SystemdBox]:
    """A box whose gateway serves clients. Whatever a test does to it, it stops in time and cleanly."""
    box.well("systemctl", "start", UNIT)
    yield box
    box.well("systemctl", "stop", UNIT)
    assert (box.shows(UNIT, "Result"), box.shows(UNIT, "ExecMainStatus")) == ("success", "0"), box.told


def publish(box: SystemdBox, text: str) -> None:
    """Said to be kept, by a gateway that promises only what is on its disk."""
    box.well("edgebroker", "pub", "-q", "1", "-t", "a", "-m", text)


def kept(box: SystemdBox, *wait: str) -> str:
    """What waits for a client whose session lasts."""
    return box.run("edgebroker", "sub", "-c", "-i", "archive", "-q", "1", "-t", "a", *wait)[1]


def test_who_waited_for_the_unit_is_served_by_a_user_that_may_write_its_folder_alone(gateway: SystemdBox) -> None:
    publish(gateway, "served at once")
    pid = gateway.shows(UNIT, "MainPID")
    has = dict(line.split(":\t") for line in gateway.well("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)
    assert (int(has["CapPrm"], 16), int(has["CapBnd"], 16), has["NoNewPrivs"], has["Seccomp"]) == (0, 0, "1", "2")
    user = has["Uid"].split()[0]
    as_it = ["nsenter", "-t", pid, "-m", "setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    tried = "/etc/x /etc/edgebroker/x /usr/x /home/x /var/x /var/lib/edgebroker/x /run/edgebroker/x"
    script = f'for file in {tried}; do if (: > "$file") 2> /dev/null; then echo "$file"; rm "$file"; fi; done'
    assert gateway.well(*as_it, "sh", "-c", script).split() == ["/var/lib/edgebroker/x", "/run/edgebroker/x"]
    assert gateway.well("stat", "-L", "-c", "%a %U", "/var/lib/edgebroker") == "700 edgebroker\n"
    assert gateway.shows(UNIT, "StatusText").startswith("listens on 127.0.0.1:1883")


def test_one_that_hangs_or_is_killed_comes_back_with_all_it_promised(gateway: SystemdBox) -> None:
    kept(gateway, "-W", "1")
    for number, name in enumerate(("KILL", "STOP"), start=1):
        publish(gateway, name)
        gateway.well("systemctl", "kill", "--kill-who=main", f"--signal={name}", UNIT)
        gateway.until(lambda n=number: gateway.shows(UNIT, "NRestarts") == str(n))
        gateway.until(lambda: gateway.shows(UNIT, "ActiveState") == "active")
        assert kept(gateway, "-C", "1", "-W", "20") == f"{name}\n"
    assert "Watchdog timeout" in gateway.told
    assert "Fatal Python error: Aborted" in gateway.well("journalctl", "-u", UNIT), "it tells where it hung"


def test_a_reload_takes_what_is_right_and_fails_for_what_is_wrong(gateway: SystemdBox) -> None:
    pid, right = gateway.shows(UNIT, "MainPID"), gateway.well("cat", SETTINGS)
    try:
        gateway.well("tee", SETTINGS, stdin=right + "\n[limits]\nconnections_max = 7\n")
        gateway.well("systemctl", "reload", UNIT)
        gateway.until(lambda: "limits.connections_max: 10000 -> 7" in gateway.well("journalctl", "-u", UNIT))
        gateway.well("tee", SETTINGS, stdin=right + "\n[nonsense]\n")
        code, said = gateway.run("systemctl", "reload", UNIT)
        assert (code, "failed" in said) == (1, True), said
        gateway.until(lambda: "rejected" in gateway.shows(UNIT, "StatusText"))
        warned = gateway.well("journalctl", "-u", UNIT, "-p", "warning", "-o", "cat")
        assert "reload: rejected, the settings of before still hold" in warned
        assert "nonsense: unknown section" in gateway.well("journalctl", "-u", UNIT, "-p", "err", "-o", "cat")
        assert (gateway.shows(UNIT, "MainPID"), gateway.shows(UNIT, "ActiveState")) == (pid, "active")
        publish(gateway, "it goes on")
    finally:
        gateway.well("tee", SETTINGS, stdin=right)
    gateway.well("systemctl", "reload", UNIT)


def test_what_init_makes_runs_as_its_first_lines_say(box: SystemdBox) -> None:
    box.well("edgebroker", "init", "/home/site", "--host", "localhost")
    unit = box.well("cat", "/home/site/edgebroker.service")
    steps = [line.removeprefix("#   ") for line in unit.splitlines() if line.startswith("#   ")]
    assert "useradd" in steps.pop(0)  # the box has the user
    assert steps.pop().startswith("systemctl enable")
    box.well("sh", "-ec", "\n".join(steps).replace("/etc/systemd/system/", "/etc/systemd/system/made.service"))
    box.well("systemctl", "daemon-reload")
    box.well("systemctl", "start", "made")
    try:
        pid = box.shows("made", "MainPID")
        assert box.well("stat", "-c", "%U", f"/proc/{pid}", "/run/made").split() == ["edgebroker", "edgebroker"]
        way = ["-h", "localhost", "-p", "8883", "--cafile", "/home/site/ca.crt", "-q", "1", "-t", "a", "-m", "hello"]
        pair = [f"--{kind}=/home/site/clients/example.{end}" for kind, end in (("cert", "crt"), ("key", "key"))]
        box.well("edgebroker", "pub", *way, *pair)
        box.well("edgebroker", "certificate", "server", "--host", "localhost", "--dir", "/home/site")
        box.well("systemctl", "reload", "made")
        assert box.run("sh", "-c", f"nsenter -t {pid} -m setpriv --reuid 990 --clear-groups cat /home/site/ca.key")[0]
    finally:
        box.well("systemctl", "stop", "made")
    assert box.shows("made", "Result") == "success"


@pytest.mark.parametrize(
    ("wrong", "is_tried_again"), [("\n[nonsense]\n", False), ('\n[data]\ndir = "/proc/nowhere"\n', True)]
)
def test_what_a_start_cannot_mend_is_not_tried_again(box: SystemdBox, wrong: str, is_tried_again: bool) -> None:
    right = box.well("cat", SETTINGS)
    try:
        box.well("tee", SETTINGS, stdin=right.partition("[data]")[0] + wrong)
        box.run("systemctl", "start", UNIT)
        if is_tried_again:
            box.until(lambda: int(box.shows(UNIT, "NRestarts")) >= 2)
        else:
            box.until(lambda: box.shows(UNIT, "ActiveState") == "failed")
            assert (box.shows(UNIT, "NRestarts"), box.shows(UNIT, "ExecMainStatus")) == ("0", "78")
    finally:
        box.well("tee", SETTINGS, stdin=right)
        box.run("systemctl", "stop", UNIT)
        box.run("systemctl", "reset-failed", UNIT)
    box.well("systemctl", "start", UNIT)
    box.well("systemctl", "stop", UNIT)
