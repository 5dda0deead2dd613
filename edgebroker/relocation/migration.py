"""The migration of a publisher: when it may move, and its way from one gateway to another in a cluster [GRAPE 3.3].

Inside a cluster every gateway knows the interests of all others, so no routing table depends on where a publisher is.
What remains of the published protocol is its fence. The MUM goes from the target to the source, and each gateway on the
path forgets the statistics of the publisher. The source sends the MCM back when the publisher's last event has come in;
it travels behind the events, link by link. When it arrives, everything that the publisher said before has passed all
gateways from which its new events will go another way, so no subscriber gets them in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebroker.instants import MINUTE, Duration, Instant
from edgebroker.relocation.messages import (
    MigrationComplete,
    MigrationEnd,
    MigrationUpdate,
    RelocationEffect,
    SendRelocation,
)
from edgebroker.relocation.placement import PlacementRefusal

PAUSE: Final[Duration] = 10 * MINUTE
"""A publisher moves once in that time at most."""
MARKED_MAX: Final = 0.2
"""A session with a greater share of events on detours is not used, unless the one before was alike: queues behind a
detour say nothing about the usual way, but what lasts for two sessions is the usual way.
"""


class MoveLimiter:
    """Decides which sessions may move a publisher of one gateway, and keeps publishers from moving to and fro."""

    def __init__(self, pause: Duration = PAUSE) -> None:
        self._pause = pause
        self._moved: dict[int, Instant] = {}
        self._marked: set[int] = set()  # publishers whose last session had too many detours
        self.refusals = dict.fromkeys(PlacementRefusal, 0)
        """How often each reason kept a publisher where it is."""

    def arrived(self, publisher: int, now: Instant) -> None:
        """Note that a publisher has moved to this gateway."""
        self._moved[publisher] = now

    def examine(self, publisher: int, is_partial: bool, marked_share: float, now: Instant) -> bool:
        """Return whether a session may move its publisher. A refusal is counted."""
        return self.refusal(publisher, is_partial, marked_share, now) is None

    def refusal(self, publisher: int, is_partial: bool, marked_share: float, now: Instant) -> PlacementRefusal | None:
        """Return why a session may not move its publisher, and count it; None: it may."""
        was_marked = publisher in self._marked
        is_marked = marked_share > MARKED_MAX
        (self._marked.add if is_marked else self._marked.discard)(publisher)
        moved = self._moved.get(publisher)
        if moved is not None and moved + self._pause <= now:
            del self._moved[publisher]
            moved = None
        reason = None
        if is_partial:
            reason = PlacementRefusal.PARTIAL
        elif is_marked and not was_marked:
            reason = PlacementRefusal.DETOURS
        elif moved is not None:
            reason = PlacementRefusal.RECENT
        self.count(reason)
        return reason

    def count(self, reason: PlacementRefusal | None) -> bool:
        """Count a refusal; return whether there is none."""
        if reason is not None:
            self.refusals[reason] += 1
        return reason is None

    def forget(self, publisher: int) -> None:
        """Forget a publisher that has left this gateway."""
        self._moved.pop(publisher, None)
        self._marked.discard(publisher)


class Migrations:
    """The migrations on whose paths one gateway is."""

    def __init__(self, name: str, forget: Callable[[int], None]) -> None:
        """forget: called with a publisher whose statistics must be forgotten."""
        self._name = name
        self._forget = forget
        self._waiting: dict[int, MigrationUpdate] = {}  # as the source: until the publisher has said its last event
        self._silent: set[int] = set()

    def begin(self, publisher: int, path: tuple[str, ...]) -> list[RelocationEffect]:
        """Begin as the target, the first gateway of *path*, which has two or more."""
        return self.receive(MigrationUpdate(publisher, path))

    def fall_silent(self, publisher: int) -> list[RelocationEffect]:
        """Note as the source that the publisher's last event has come in."""
        self._silent.add(publisher)
        return self._complete(publisher)

    def receive(self, message: MigrationUpdate | MigrationComplete) -> list[RelocationEffect]:
        """Handle a message on its way along the path."""
        at = message.path.index(self._name)
        if isinstance(message, MigrationUpdate):
            self._forget(message.publisher)
            if at + 1 < len(message.path):
                return [SendRelocation(message.path[at + 1], message)]
            self._waiting[message.publisher] = message
            return self._complete(message.publisher)
        if at:
            return [SendRelocation(message.path[at - 1], message)]
        return [MigrationEnd(message.publisher)]

    def _complete(self, publisher: int) -> list[RelocationEffect]:
        if publisher not in self._waiting or publisher not in self._silent:
            return []
        self._silent.discard(publisher)
        path = self._waiting.pop(publisher).path
        return [SendRelocation(path[-2], MigrationComplete(publisher, path))]
