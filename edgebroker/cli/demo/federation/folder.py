"""What the demo of a federation leaves behind: logs of nine gateways and what their processes said."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Final

TOPOLOGY: Final = "topology.toml"
SETTINGS: Final = "gateway.toml"
JOURNAL: Final = "fleet.jsonl"
PROCESSES: Final = ("fleet", "gw-*")
OURS: Final = (
    *(TOPOLOGY, SETTINGS, JOURNAL),
    *(f"{process}.{kind}" for process in PROCESSES for kind in ("out", "log")),
    *(f"log/gw-*/*.{kind}" for kind in ("edl", "edl.part")),
)
"""Every file that we write, as patterns."""


def clear(folder: Path) -> None:
    """Make *folder* and take an earlier demo's files out of it, and nothing else. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in chain.from_iterable(map(folder.glob, OURS)):
        path.unlink(missing_ok=True)
