"""The events that wait for others that they may have overtaken (`overlay.sorting`), as the journal knows them.

They are acknowledged to the peer that they came from like everything else that it sent, so they must outlive the run:
an event is in the journal from the group that says that it came, to the group with all that it led to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from edgebridge.frontend.keeping import Keeping
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.peereffects import Hold
from edgebroker.overlay.link.records import handed_record, held_record
from edgebroker.overlay.messages import Forward

Eid = tuple[int, int]


class Held:
    """Those of one gateway."""

    def __init__(self, keeping: Keeping, stored: Mapping[Eid, tuple[Forward, bool, int | None]]) -> None:
        """*stored*: what an earlier run left."""
        self._keeping = keeping
        self._events = dict(stored)
        self.went_on = 0
        """Events that went on to peers before they were handed on here: each is two messages in the books."""

    def hold(self, hold: Hold, now: Instant) -> None:
        """An event waits from *now* on."""
        if self._keeping.journal is None:
            return
        forward = hold.forward
        expires_in_ms = forward.expires_in_ms
        at = None if expires_in_ms is None else now + expires_in_ms * MILLISECOND + self._keeping.clock
        self._events[forward.header.eid] = (forward, hold.is_entry, at)
        self._keeping.append(held_record(forward, hold.is_entry, at), True, now)

    def handed(self, eid: Eid, now: Instant) -> None:
        """An event is handed on, and what it leads to is appended next to this."""
        if self._events.pop(eid, None) is not None:
            self._keeping.append(handed_record(eid), False, now)

    def left(self, now: Instant) -> list[tuple[Forward, bool]]:
        """What an earlier run left: each event, and whether it entered the cluster here."""
        return [(self._aged(forward, at, now), is_entry) for forward, is_entry, at in self._events.values()]

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again."""
        for event in tuple(self._events.values()):
            yield held_record(*event)

    def _aged(self, forward: Forward, at: int | None, now: Instant) -> Forward:
        if at is None:
            return forward
        return replace(forward, expires_in_ms=max(0, at - self._keeping.clock - now) // MILLISECOND)
