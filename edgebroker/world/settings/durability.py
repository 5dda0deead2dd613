"""How sure an acknowledgement is, as a listener's clients are promised it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edgebroker.world.valuekinds import Unusable, toml_name

BATCH_MS_MAX = 60_000  # who may lose more than a minute wants `memory`


@dataclass(frozen=True, slots=True)
class Durability:
    """`mode` is `sync`, `batched` or `memory`; `batch_ms` says how long an answer may be ahead of the disk."""

    mode: str
    batch_ms: int = 0

    def __str__(self) -> str:
        return f"{self.mode}:{self.batch_ms}" if self.batch_ms else self.mode


@dataclass(frozen=True, slots=True)
class DurabilityKind:
    """Reads `sync`, `batched:MS` and `memory`."""

    def read(self, value: object, folder: Path) -> Durability:
        if not isinstance(value, str):
            raise Unusable(f"is {toml_name(value)}", f"write {self}")
        if value in ("sync", "memory"):
            return Durability(value)
        found = re.fullmatch(r"batched:([0-9]{1,6})", value)
        if not found or not 1 <= int(found[1]) <= BATCH_MS_MAX:
            raise Unusable(f"is {value!r}", f"write {self}, with 1 to {BATCH_MS_MAX:,} milliseconds")
        return Durability("batched", int(found[1]))

    def __str__(self) -> str:
        return '"sync", "batched:MS" or "memory"'
