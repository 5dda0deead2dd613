"""Section `data`."""

from __future__ import annotations

from pathlib import Path

from edgebridge.session.durability import SYNC, Durability
from edgebroker.dataclasses import dataclass
from edgebroker.limits import JOURNAL_BYTES_MAX, MIB
from edgebroker.world.settings.durability import ClientDurability, ClientDurabilityKind, DurabilityKind
from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Folder, Several, Whole


@dataclass(frozen=True, slots=True)
class DataSettings:
    """What the gateway keeps between runs."""

    dir: Path | None = key(None, Folder())
    durability: Durability = key(SYNC, DurabilityKind())
    clients: tuple[ClientDurability, ...] = key((), Several(ClientDurabilityKind(), 256))
    commit_ms: int = key(15, Whole(1, 1_000))
    bytes_max: int = key(JOURNAL_BYTES_MAX, Whole(32 * MIB, 64 * 1_024 * MIB))
    card_gb: int = key(32, Whole(1, 16_384))
    card_cycles: int = key(500, Whole(1, 1_000_000))
