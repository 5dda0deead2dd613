"""Debian's mosquitto_sub as members of a shared subscription."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

SUB, PUB, STDBUF = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub"), shutil.which("stdbuf")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not (SUB and PUB and STDBUF), reason="mosquitto_sub, mosquitto_pub or stdbuf is not installed"),
]
PATIENCE_S = 30
SHARED = "$share/team/$filter/temp%3E30/sensors/#"


def member(port: int, version: str, count: int) -> subprocess.Popen[str]:
    """A member that has subscribed and ends after *count* messages. At QoS 1 it would count who acknowledges first."""
    options = ["-p", str(port), "-V", version, "-q", "0", "-t", SHARED, "-C", str(count), "-W", str(PATIENCE_S), "-d"]
    process = subprocess.Popen(
        [str(STDBUF), "-oL", str(SUB), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Subscribed"):
            break
    return process


def test_members_of_either_version_share_what_a_filter_lets_through(gateway: Any) -> None:
    members = [member(gateway.port, "311", 3), member(gateway.port, "5", 3)]
    try:
        for temperature in (31, 10, 32, 33, 34, 29, 35, 36):
            said = ["-p", str(gateway.port), "-q", "1", "-t", "sensors/a", "-m", f'{{"temp":{temperature}}}']
            subprocess.run([str(PUB), *said], check=True, timeout=PATIENCE_S)
        heard = []
        for one in members:
            output = one.communicate(timeout=PATIENCE_S)[0]
            assert one.returncode == 0, output
            heard.append([line for line in output.splitlines() if line.startswith("{")])
    finally:
        for one in members:
            one.kill()
            one.communicate()
    assert [len(lines) for lines in heard] == [3, 3]
    assert sorted(heard[0] + heard[1]) == [f'{{"temp":{temperature}}}' for temperature in range(31, 37)]
    accounts = gateway.stop()
    assert (accounts["published"], accounts["filtered"], accounts["delivered"]) == (8, 2, 6)
