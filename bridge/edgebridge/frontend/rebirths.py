"""Asks Sparkplug's edge nodes to be born again, whose aliases nobody here knows: after a restart, or a birth not seen.

An edge node that hears `Node Control/Rebirth` says all its births once more (Sparkplug 3.0, section 6.4.18). Who needs
no names is not asked: an alias is looked up only where a content filter is interested in the message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from edgebridge.frontend.publishing import Publishing
from edgebridge.frontend.refusal import DiskRefuses, QueueRefuses
from edgebridge.frontend.systopics import PUBLISHER
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.node.node import Node
from edgebroker.publication import Publication

TIMER: Final = ("rebirths",)


class Rebirths:
    """One request for each such node, every so often: QoS 0, not retained, as the specification has it."""

    def __init__(self, node: Node, publishing: Publishing, interval_s: int) -> None:
        """*interval_s*: 0 asks nobody."""
        self.unix_us: Callable[[], int] = lambda: 0
        """What the wall clock says; to be set by a world that has one."""
        self.asked = 0
        """Requests so far."""
        self._node = node
        self._publishing = publishing
        self._interval = interval_s * SECOND

    def start(self, now: Instant) -> None:
        """Begin, if anybody is to be asked."""
        if self._interval:
            self._node.timers.set(TIMER, now + self._interval)

    def fire(self, now: Instant) -> None:
        """Ask whom there is to ask, and come again after the interval."""
        births = self._node.routes.births
        for node in births.take_strangers() if births is not None else ():
            from edgebroker.filters.sparkplug import rebirth  # for who is sent any

            topic, payload = rebirth(node, self.unix_us() // MILLISECOND)
            self.asked += 1
            with suppress(DiskRefuses, QueueRefuses):
                self._publishing.accept(Publication(PUBLISHER, topic, payload, 0, False, now), now)
        self._node.timers.set(TIMER, now + self._interval)
