"""What a disk does not take that is full is said in one line on standard error, with an exit code that means it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ENVIRONMENT, PATIENCE_S

COMMANDS = (
    "--version",
    "--help",
    "pub --help",
    "explain temp>3",
    "topology plan --sites 2 --gateways 1,1",
    "check X/gateway.toml",
    "import X/mosquitto.conf",
)
FULL = "Error: standard output cannot be written: No space left on device\n"

pytestmark = pytest.mark.live


def on_a_full_disk(*words: str, **environment: str) -> tuple[int, str]:
    """How a command ends whose standard output is there, and what it complains of."""
    with open("/dev/full", "wb", buffering=0) as full:
        done = subprocess.run(
            [sys.executable, "-m", "edgebroker", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": "", **environment},
            timeout=PATIENCE_S,
            check=False,
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").touch()
    (tmp_path / "mosquitto.conf").write_text("listener 1883\n")
    code, said = on_a_full_disk(*command.replace("X", str(tmp_path)).split())
    assert (code, said) == (2, FULL)


def test_it_is_so_too_where_python_keeps_nothing_back() -> None:
    code, said = on_a_full_disk("--version", PYTHONUNBUFFERED="1")
    assert (code, said) == (2, "Error: what was to be written is lost: No space left on device\n")


def test_a_probe_that_cannot_answer_knows_nothing() -> None:
    """2 would be CRITICAL: the gateway's trouble."""
    assert on_a_full_disk("check", "--http", "127.0.0.1:1") == (3, FULL)


def test_standard_error_may_lie_there_as_well() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        command = [sys.executable, "-m", "edgebroker", "--version"]
        assert subprocess.run(command, stdout=full, stderr=full, env=ENVIRONMENT, check=False).returncode == 2


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
def test_a_password_that_is_shown_once_and_was_not_can_be_had_anew(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    code, said = on_a_full_disk("init", str(folder))
    assert (code, said.count("\n")) == (2, 1)
    words = said.partition("give another one: edgebroker ")[2].split()
    assert words == ["passwd", str(folder / "users"), "admin"]
    command = [sys.executable, "-m", "edgebroker", *words, "--stdin"]
    mended = subprocess.run(command, input="secret\n", text=True, env=ENVIRONMENT, capture_output=True, check=False)
    assert mended.returncode == 0, mended.stderr


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
@pytest.mark.parametrize("free_kib", [0, 4, 8, 24])
def test_what_init_cannot_finish_is_not_begun(tmp_path: Path, free_kib: int) -> None:
    """Of a disk that is full openssl says nothing, or something else."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        pytest.skip("to make a small disk takes root, and may be forbidden to it")
    try:
        (tmp_path / "fill").write_bytes(bytes((64 - free_kib) * 1_024))
        command = [sys.executable, "-m", "edgebroker", "init", str(tmp_path / "new" / "gateway")]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        (said,) = done.stderr.splitlines()
        assert said.endswith(": No space left on device"), said
        assert str(tmp_path / "new" / "gateway") in said
        assert [path.name for path in tmp_path.iterdir()] == ["fill"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
