"""Section `data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Folder


@dataclass(frozen=True, slots=True)
class DataSettings:
    """What the gateway keeps between runs."""

    dir: Path | None = key(None, Folder())
