"""How sure an acknowledgement is, as settings say it."""

from __future__ import annotations

import re
from pathlib import Path

from edgebridge.session.durability import MEMORY, SYNC, Durability, batched
from edgebroker.dataclasses import dataclass
from edgebroker.world.valuekinds import Unusable, toml_name

BATCH_MS_MAX = 60_000  # who may lose more than a minute wants `memory`


@dataclass(frozen=True, slots=True)
class DurabilityKind:
    """Reads `sync`, `batched:MS` and `memory`."""

    def read(self, value: object, folder: Path) -> Durability:
        if not isinstance(value, str):
            raise Unusable(f"is {toml_name(value)}", f"write {self}")
        if value in ("sync", "memory"):
            return SYNC if value == "sync" else MEMORY
        found = re.fullmatch(r"batched:([0-9]{1,6})", value)
        if not found or not 1 <= int(found[1]) <= BATCH_MS_MAX:
            raise Unusable(f"is {value!r}", f"write {self}, with 1 to {BATCH_MS_MAX:,} milliseconds")
        return batched(int(found[1]))

    def __str__(self) -> str:
        return '"sync", "batched:MS" or "memory"'


@dataclass(frozen=True, slots=True)
class ClientDurability:
    """What is promised to clients whose identifiers match `pattern`."""

    pattern: str
    durability: Durability

    def __str__(self) -> str:
        return f"{self.pattern}={self.durability}"


@dataclass(frozen=True, slots=True)
class ClientDurabilityKind:
    """Reads `PATTERN=MODE`, where PATTERN may hold `*` and `?`."""

    def read(self, value: object, folder: Path) -> ClientDurability:
        if not isinstance(value, str):
            raise Unusable(f"is {toml_name(value)}", f"write {self}")
        pattern, equals, mode = value.rpartition("=")
        if not equals or not pattern:
            raise Unusable(f"is {value!r}", f"write {self}")
        return ClientDurability(pattern, DurabilityKind().read(mode, folder))

    def __str__(self) -> str:
        return '"PATTERN=MODE", where PATTERN matches client identifiers and MODE is ' + str(DurabilityKind())
