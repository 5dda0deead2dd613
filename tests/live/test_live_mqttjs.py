"""MQTT.js on Node.js, as dashboards and Node-RED use it: one conversation in each version, over each transport.

The package comes from npm, in one pinned version, once, into a cache outside the tree. Without Node.js, npm or the
registry these tests are skipped and say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.init.authority import Authority

pytestmark = pytest.mark.live

MQTT_JS = "5.16.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgebroker-tests" / f"mqtt.js-{MQTT_JS}"
CONVERSATION = Path(__file__).with_name("conversation.cjs")
NODE, NPM = shutil.which("node"), shutil.which("npm")
PATIENCE_S = 60.0
INSTALL_S = 120.0  # 44 small packages: four seconds where the registry is near
VERSIONS = pytest.mark.parametrize("spoken", [4, 5], ids=["3.1.1", "5"])


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder with MQTT.js in it."""
    if NODE is None or NPM is None:
        pytest.skip("node or npm is not installed (Debian: nodejs, npm)")
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as fresh:
            install(fresh)
            with contextlib.suppress(OSError):  # another run was quicker
                Path(fresh).rename(CACHE)
                Path(fresh).mkdir()
    return CACHE / "node_modules"


def install(folder: str) -> None:
    """MQTT.js into *folder*, or skip the test."""
    command = [str(NPM), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder]
    try:
        ended = subprocess.run(
            [*command, f"mqtt@{MQTT_JS}"], capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install mqtt@{MQTT_JS} within {INSTALL_S:.0f} s")
    if ended.returncode:
        why = next((line for line in ended.stderr.splitlines() if "npm error" in line), ended.stderr.strip())
        pytest.skip(f"npm could not install mqtt@{MQTT_JS}: {why}")


def conversation(url: str, spoken: int, modules: Path, trusted: Path | None = None) -> dict[str, Any]:
    """What each part of the conversation saw. *trusted* signs the gateway's certificate."""
    command = [str(NODE), str(CONVERSATION), url, str(spoken)]
    environment = os.environ | {"NODE_PATH": str(modules)}
    if trusted is not None:
        environment["NODE_EXTRA_CA_CERTS"] = str(trusted)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen


def brief(messages: list[dict[str, Any]]) -> list[tuple[str, str, int, bool]]:
    return [(one["topic"], one["payload"], one["qos"], one["retain"]) for one in messages]


def check(seen: dict[str, Any], spoken: int) -> None:
    """All that every transport must show."""
    is_v5 = spoken == 5
    every = seen["everyQos"]
    assert every["granted"] == [2]
    # Packets of different QoS overtake one another; those of one QoS do not [MQTT-4.6.0-6].
    for qos in range(3):
        received = [one for one in brief(every["received"]) if one[2] == qos]
        assert received == [("qos/a", str(number), qos, False) for number in range(qos, 30, 3)]
    filtered = [("sensors/a", '{"temp":31}', 1, False), ("sites/a", '{"site":"b"}', 1, False)]
    assert brief(seen["filters"]["received"]) == (filtered if is_v5 else filtered[:1])
    assert seen["filters"]["refused"] == f"Subscribe error: {'Topic Filter invalid' if is_v5 else 'Unspecified error'}"
    assert brief(seen["retainedAndWill"]["kept"]) == [("kept/a", "1", 1, True)]
    assert brief(seen["retainedAndWill"]["told"]) == [("kept/a", "", 1, False), ("wills/a", "gone", 1, False)]
    assert seen["aKeptSession"] == {"present": True, "received": [str(number) for number in range(10)]}
    assert seen["aLargePayload"] == {"bytes": 1 << 20, "same": True}
    assert seen["aRequest"] == ({"answer": "42", "correlation": "7", "user": "north"} if is_v5 else {"answer": "42"})


@VERSIONS
def test_over_tcp(gateway: Any, modules: Path, spoken: int) -> None:
    check(conversation(f"mqtt://127.0.0.1:{gateway.port}", spoken, modules), spoken)


@VERSIONS
def test_over_websocket(start_gateway: Callable[..., Any], tmp_path: Path, modules: Path, spoken: int) -> None:
    port = listening(start_gateway, tmp_path, 'protocol = "websocket"')
    check(conversation(f"ws://127.0.0.1:{port}/mqtt", spoken, modules), spoken)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
@pytest.mark.parametrize(("scheme", "protocol"), [("mqtts", "mqtt"), ("wss", "websocket")])
@VERSIONS
def test_over_tls(
    start_gateway: Callable[..., Any], tmp_path: Path, modules: Path, scheme: str, protocol: str, spoken: int
) -> None:
    authority = Authority.make(tmp_path, "Test")
    server = authority.server(tmp_path, ["127.0.0.1"])
    tls = f'protocol = "{protocol}"\ntls_certificate = "{server.certificate}"\ntls_key = "{server.key}"\n'
    port = listening(start_gateway, tmp_path, tls)
    seen = conversation(f"{scheme}://127.0.0.1:{port}/mqtt", spoken, modules, authority.pair.certificate)
    check(seen, spoken)


def listening(start_gateway: Callable[..., Any], folder: Path, listener: str) -> int:
    """The port of a gateway with one more listener."""
    settings = folder / "gateway.toml"
    settings.write_text(f"[[listener]]\n[[listener]]\nport = 0\n{listener}\n")
    port: int = start_gateway("--config", str(settings)).listening["listeners"][-1]["port"]
    return port
