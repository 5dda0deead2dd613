"""Sparkplug rebirth requests: asks edge nodes whose aliases are unknown for their birth certificates.

An edge node that receives `Node Control/Rebirth` publishes all its births again (Sparkplug 3.0, section 6.4.18). A
node is asked only if a content filter needs the names of its metrics: no alias is looked up otherwise.
"""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.handlers.publish import PublishHandler
from edgebridge.frontend.options import FrontendHost
from edgebridge.frontend.sys_topics import SYS_PUBLISHER
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.node.node import Node
from edgebroker.publication import Publication

TIMER: Final = ("rebirths",)


class SparkplugRebirth:
    """One request for each such node, every so often: QoS 0, not retained, as the specification has it."""

    def __init__(self, node: Node, publish_handler: PublishHandler, interval_s: int, host: FrontendHost) -> None:
        """*interval_s*: 0 asks nobody."""
        self._host = host
        self.requested = 0
        """Requests so far."""
        self._node = node
        self._publish_handler = publish_handler
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

            topic, payload = rebirth(node, self._host.unix_us() // MILLISECOND)
            self.requested += 1
            self._publish_handler.publish(Publication(SYS_PUBLISHER, topic, payload, 0, False, now), now)
        self._node.timers.set(TIMER, now + self._interval)
