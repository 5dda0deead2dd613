"""What lies in a folder that we may not enter is neither missing nor damaged: one line says so, and exit code 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ENVIRONMENT, PATIENCE_S

STRANGER = 65_534
AS_NO_GOD = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown", "--inh-caps=-all")
"""Root too stands before closed doors then."""
COMMANDS = (
    "journal check X/data",
    "journal show X/data",
    "passwd X/users --check",
    "passwd X/users --delete anna",
    "passwd X/users anna --stdin",
    "token key X/new fleet",
    "token check X/keys t",
    "acl X/rules",
    "check X/gateway.toml",
    "import OWN -o X/gateway.toml",
    "certificate client anna --dir X/site",
    "reload --config X/gateway.toml",
    "log cat X/logs",
    "log stat X/logs",
    "log export X/logs --csv -",
    "why --topic a --log X/logs",
    "pub -t a -f X/payload",
    "announce X/devices.toml",
    "explain a --subscriptions X/lines",
    "bench match --subscriptions X/subscriptions --events X/events",
)

pytestmark = pytest.mark.live


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that `edgebroker`, as `run` starts it, may not enter."""
    folder = tmp_path / "closed"
    (folder / "data").mkdir(parents=True)
    for name in ("users", "keys", "rules", "payload"):
        (folder / name).touch(0o600)
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None or subprocess.run([*AS_NO_GOD, "true"], check=False).returncode:
            pytest.skip("root enters every folder here: setpriv is not installed, or may not take that away")
        os.chown(folder, STRANGER, STRANGER)
        folder.chmod(0o700)
    else:
        folder.chmod(0)
    yield folder
    folder.chmod(0o700)  # so that it can be deleted


def run(*words: str) -> tuple[int, list[str]]:
    as_whom = AS_NO_GOD if os.geteuid() == 0 else ()
    line = [*as_whom, sys.executable, "-m", "edgebroker", *words]
    done = subprocess.run(
        line, input="secret\n", capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_S, check=False
    )
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_folder_is_said_in_one_line(command: str, closed: Path, tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("listener 1883\n")
    paths = {"OWN": str(tmp_path / "mosquitto.conf")}
    code, said = run(*(paths.get(word, word.replace("X", str(closed))) for word in command.split()))
    assert (code, len(said)) == (2, 1), said
    assert str(closed) in said[0]
    assert "ermission denied" in said[0] or "cannot be read" in said[0]
