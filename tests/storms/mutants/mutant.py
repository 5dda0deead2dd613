"""A mutant: the product with one bug seeded into it. `*.toml` in this folder describes each.

[name-of-what-it-does]
breaks = ["P2"]            the promises that it breaks, as docs/promises.md numbers them; `error` if it raises an
                           exception, `rest` if it lets copies without a fate
file = "edgebroker/..."
text = '''...'''           exactly this, which stands in the file once,
instead = '''...'''        is this
seed = 7                   a storm that notices
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDERS = (".", "bridge", "firmware-sim")
SECONDS_MAX = 1_200
"""For one call of `edgebroker simulate`: 500 storms take 300 s of one core."""


class TextNotThere(Exception):
    """The text to be replaced is not in its file, or more than once: the file has changed, and so must the mutant."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug."""

    name: str
    breaks: list[str]
    file: str
    text: str
    instead: str
    seed: int

    def seeded(self, source: str) -> str:
        """*source*, that of `file`, with the bug. Raises TextNotThere."""
        count = source.count(self.text)
        if count != 1:
            raise TextNotThere(f"{self.name}: its text is {count} times in {self.file}, not once")
        return source.replace(self.text, self.instead)


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for path in sorted(HERE.glob("*.toml")):
        for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items():
            yield Mutant(name, **fields)


class Tree:
    """A copy of the pure sources, for as long as the tests run: whatever is done to it, the product stays as it is."""

    def __init__(self, root: Path, folder: Path) -> None:
        """*root*: the product's; *folder*: where the copy is to be."""
        command = [sys.executable, str(root / "tools" / "puretree.py"), str(folder)]
        subprocess.run(command, check=True, timeout=120)
        self._folder = folder

    @contextmanager
    def infected(self, mutant: Mutant) -> Iterator[None]:
        """The tree has the bug meanwhile."""
        path = self._folder / mutant.file
        healthy = path.read_text(encoding="utf-8")
        self._put(path, mutant.seeded(healthy))
        try:
            yield
        finally:
            self._put(path, healthy)

    def noticed(self, mutant: Mutant, seed: int, scenarios: int) -> dict[str, Any] | None:
        """The first of so many storms from *seed* on that breaks a promise which *mutant* is said to break."""
        end = seed + scenarios
        with self.infected(mutant):
            while seed < end and (broken := self.storms(seed, end - seed)["broken"]):
                first: dict[str, Any] = broken[0]
                if not set(mutant.breaks).isdisjoint(first["promises"]):
                    return first
                seed = first["seed"] + 1
        return None

    def storms(self, seed: int, scenarios: int) -> dict[str, Any]:
        """What `edgebroker simulate` says of so many scenarios from *seed* on, up to the first that breaks anything."""
        folders = os.pathsep.join(str(self._folder / name) for name in FOLDERS)
        command = [sys.executable, "-P", "-m", "edgebroker", "simulate", "--until-broken", "--json"]
        command += ["--seed", str(seed), "--scenarios", str(scenarios)]
        environment = os.environ | {"PYTHONPATH": folders}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
        if done.returncode not in (0, 1) or not done.stdout:
            raise RuntimeError(f"edgebroker simulate ended with {done.returncode}: {done.stderr[-2_000:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _put(self, path: Path, source: str) -> None:
        """Write *source*, and let nothing that was compiled of another one be taken for it: clocks tick slowly."""
        path.write_text(source, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
