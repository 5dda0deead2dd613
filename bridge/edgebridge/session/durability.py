"""How sure an acknowledgement is: a user may choose, by listener and by client, and sees the choice in CONNACK."""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, Duration


@dataclass(frozen=True, slots=True)
class Durability:
    """What is promised about a session that outlives its connection.

    `keeps`: it survives a restart. `waits`: an answer leaves only when what it promises is on disk. `patience_us`: how
    long a record for which nobody waits may wait for others that go to the disk with it.
    """

    is_persistent: bool
    waits_for_sync: bool
    sync_delay_us: Duration = 100 * MILLISECOND  # ten syncs a second at most, for the sake of the card

    def __str__(self) -> str:
        if not self.is_persistent:
            return "memory"
        return "sync" if self.waits_for_sync else f"batched:{self.sync_delay_us // MILLISECOND}"


MEMORY: Final = Durability(is_persistent=False, waits_for_sync=False)
"""A restart forgets the session."""
SYNC: Final = Durability(is_persistent=True, waits_for_sync=True)
"""What was acknowledged is on disk."""


def batched(milliseconds: int) -> Durability:
    """Answers are up to *milliseconds* ahead of the disk: a power cut takes so much, and the card is spared."""
    return Durability(is_persistent=True, waits_for_sync=False, sync_delay_us=milliseconds * MILLISECOND)
