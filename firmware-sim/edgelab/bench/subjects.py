"""What can be measured: this broker compiled, this broker in pure Python, Mosquitto, and the relay as a ceiling."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgebroker import __version__
from edgelab.bench.client import HOST
from edgelab.processes import python

# Byte code is at hand, as it is where the broker was installed: else every start compiles 200 modules again.
BYTE_CODE = {"PYTHONDONTWRITEBYTECODE": ""}
# The packages the broker process imports.
PACKAGES = ("edgebroker", "edgebridge")

# No disk, no log, no limit that would drop messages, and TCP_NODELAY as edgebroker sets it: without it Nagle's
# algorithm would hold back Mosquitto's small packets and spoil its latency.
MOSQUITTO_SETTINGS = """\
listener {port} {host}
allow_anonymous true
persistence false
log_dest none
connection_messages false
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
max_queued_bytes 0
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A broker that can be started: `command(port, directory)` may write files into the directory first."""

    name: str
    version: str
    command: Callable[[int, Path], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    compiled: tuple[str, ...] = ()  # compiled modules it can load
    is_tls: bool = False
    has_strangers: bool = False
    """Clients come all the time that it refuses, which it writes into its log."""


class SubjectNotFound(Exception):
    """The broker is not installed here; the message says how to get it."""


def edgebroker() -> Subject:
    """This broker as it is installed."""
    words = python()
    return Subject("edgebroker", version_of(words, {}), runner(words), BYTE_CODE, compiled_modules())


def with_log(subject: Subject) -> Subject:
    """*subject*, one of ours, with a delivery log; all but its place is as by default."""

    def command(port: int, directory: Path) -> list[str]:
        return [*subject.command(port, directory), "--log-dir", str(directory / "log")]

    return replace(subject, name=f"{subject.name}-logging", command=command)


def pure_edgebroker(directory: Path) -> Subject:
    """This broker without compiled modules: a copy of its packages in *directory*, found first on the path.

    A copy cannot load a compiled module by mistake, whatever the build does. It keeps modification times, so that
    cached byte code stays valid and the start time is not that of a first compilation.
    """
    for package in PACKAGES:
        if (source := package_folder(package)) is not None:
            shutil.copytree(source, directory / package, ignore=shutil.ignore_patterns("*.so", "*.c"))
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, "EDGEBROKER_PURE": "1", **BYTE_CODE}
    words = [sys.executable, "-P"]  # -P: the current folder, perhaps the source tree, does not come first
    return Subject("edgebroker-pure", version_of(words, environment), runner(words), environment)


def mosquitto() -> Subject:
    """Debian's Mosquitto. Raises SubjectMissing."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SubjectNotFound("mosquitto is not installed; install the package mosquitto, or use --against none")

    def command(port: int, directory: Path) -> list[str]:
        settings = directory / "mosquitto.conf"
        settings.write_text(MOSQUITTO_SETTINGS.format(port=port, host=HOST))
        return [program, "-c", str(settings)]

    banner = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    return Subject("mosquitto", banner.split("\n", 1)[0].rpartition(" ")[2] or "unknown", command)


def relay() -> Subject:
    """The generator's ceiling (see `relay.py`); only for workloads without wildcards."""
    return Subject("relay", __version__, lambda port, _: [*python(), "-m", f"{__package__}.relay", str(port)])


def runner(words: list[str]) -> Callable[[int, Path], list[str]]:
    """The command a user would type, with default settings; what it keeps is kept where it does not stay."""

    def command(port: int, directory: Path) -> list[str]:
        where = ("--host", HOST, "--port", str(port), "--data", str(directory / "data"))
        return [*words, "-m", "edgebroker", "run", *where]

    return command


def with_settings(subject: Subject, text: str) -> Subject:
    """*subject*, one of ours, with *text* as its settings file, or behind what it has there already."""

    def command(port: int, directory: Path) -> list[str]:
        plain = subject.command(port, directory)
        settings = directory / "gateway.toml"
        has_some = "--config" in plain
        settings.write_text((settings.read_text() if has_some else "") + text)
        return plain if has_some else [*plain, "--config", str(settings)]

    return replace(subject, command=command)


def version_of(words: list[str], environment: Mapping[str, str]) -> str:
    """What `edgebroker --version` says behind its name: version, compiled or pure, Python."""
    command = [*words, "-m", "edgebroker", "--version"]
    said = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return said.stdout.strip().partition(" ")[2] or "unknown"


def compiled_modules() -> tuple[str, ...]:
    """Names of the compiled modules in the installed packages."""
    folders = [(name, folder) for name in PACKAGES if (folder := package_folder(name)) is not None]
    return tuple(
        sorted(
            ".".join((name, *found.relative_to(folder).parent.parts, found.name.partition(".")[0]))
            for name, folder in folders
            for found in folder.rglob("*.so")
        )
    )


def package_folder(name: str) -> Path | None:
    """Where a package is installed, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


SUBJECTS: dict[str, Callable[[], Subject]] = {"edgebroker": edgebroker, "mosquitto": mosquitto, "relay": relay}
