"""What every test may use: a seed that can be repeated, a free port, and the certainty of which build is tested."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import shutil
import tempfile
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from hypothesis import settings

from edgelab.processes import free_ports

STATE = tempfile.mkdtemp(prefix="edgebroker-state-")
"""Where gateways of tests keep things that are not told otherwise: never in the folders of who runs the tests."""
os.environ["XDG_STATE_HOME"] = STATE
os.environ.pop("STATE_DIRECTORY", None)
ROOT = Path(__file__).resolve().parent.parent

# `make test` gives the same examples on every machine. EDGEBROKER_TEST_PROFILE=explore looks for new ones;
# what it finds is printed as a `@reproduce_failure` line and kept in .hypothesis/.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
# `brief` is for the pure run: the whole suite has all examples.
settings.register_profile("explore", max_examples=1_000, deadline=None, print_blob=True)
settings.register_profile("brief", derandomize=True, max_examples=30, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("EDGEBROKER_TEST_PROFILE", "repeatable"))


def kernels() -> dict[str, str]:
    """The modules that may be compiled, as pyproject.toml lists them: name -> the file an import of it would run.

    That of a .pyx that was not compiled is the .pyx, which cannot be imported: its twin in Python stands in.
    """
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    found = {}
    for path in tool["edgebroker"]["compiled"]:
        name = path.removeprefix("bridge/").removesuffix(".py").removesuffix(".pyx").replace("/", ".")
        spec = find_spec(name)
        if spec is None and path.endswith(".pyx"):
            found[name] = str(ROOT / path)
            continue
        assert spec is not None, f"pyproject.toml lists {path} as compiled, but {name} cannot be found"
        assert spec.origin is not None
        found[name] = spec.origin
    return found


def find_spec(name: str) -> ModuleSpec | None:
    """As `importlib.util.find_spec`. None too if the package around a .pyx cannot be imported without it."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


def is_source(file: str) -> bool:
    """Whether *file* is a source, and not an extension module."""
    return file.endswith((".py", ".pyx"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A law cut into shards is quick in its first; the others are the slow rest, and so are stories byte by byte."""
    for item in items:
        drawn = getattr(item, "callspec", None)
        if drawn is None:
            continue
        if any(drawn.params.get(name, 0) for name in ("shard", "part")) or "bytewise" in drawn.id:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again and again, nor at what is new as often
    as it does by itself. It took a sixth of the processor time of tests without processes of their own.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    shutil.rmtree(STATE, ignore_errors=True)


def pytest_report_header() -> str:
    """The first line of every run says what is tested."""
    files = kernels()
    compiled = sum(not is_source(file) for file in files.values())
    return f"edgebroker: {compiled} of {len(files)} kernels compiled, from {Path(__file__).parent.parent}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was fuzzed, by kind: tests in tests/fuzz say so in their reports."""
    kinds: dict[str, list[float]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "fuzzed" and report.when == "call":
                kind, *counts = value
                kinds[kind] = [sum(pair) for pair in zip(kinds.get(kind, (0, 0, 0)), counts, strict=True)]
    if kinds:
        terminalreporter.section("fuzzed")
    for kind, (inputs, seconds, findings) in kinds.items():
        terminalreporter.write_line(f"{kind:<18} {inputs:>12,} inputs {seconds:>7,.1f} s {findings:>4} findings")


@pytest.fixture(scope="session")
def kernel_files() -> dict[str, str]:
    """Module name -> the file that runs when it is imported."""
    return kernels()


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's folder."""
    return ROOT


@pytest.fixture
def seed() -> int:
    """The seed of a randomised test. EDGEBROKER_TEST_SEED chooses another; `chance` prints it when a test fails."""
    return int(os.environ.get("EDGEBROKER_TEST_SEED", "20240229"), 0)


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A seeded source of chance. The command that repeats the test is in the captured output of a failure."""
    print(f"EDGEBROKER_TEST_SEED={seed} .venv/bin/pytest '{request.node.nodeid}'")
    return random.Random(seed)


@pytest.fixture
def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    return free_ports(1)[0]


@pytest.fixture
def another_free_port(free_port: int) -> int:
    """One more."""
    while (port := free_ports(1)[0]) == free_port:
        pass
    return port


@pytest.fixture
def yet_another_free_port(free_port: int, another_free_port: int) -> int:
    """And one more."""
    while (port := free_ports(1)[0]) in (free_port, another_free_port):
        pass
    return port
