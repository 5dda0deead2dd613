"""The $SYS tree: what the broker says of itself, under Mosquitto's names and its own. docs/mqtt.md lists it.

Every topic is retained, and written again only when its value has changed. Between two looks it costs nothing: all that
is said here is counted anyway. A message that nobody reads is none for the accounts; one that somebody reads is one
of the publisher PUBLISHER like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import edgebroker
from edgebridge.frontend.connecting import Connecting
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.load import Load
from edgebridge.frontend.publishing import Publishing
from edgebridge.frontend.terms import Terms
from edgebridge.session.retained import Retained
from edgebroker.instants import SECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication
from edgebroker.records import Cause

if TYPE_CHECKING:
    from edgebridge.frontend.presence import Presence

ROOT: Final = "$SYS/broker/"
PUBLISHER: Final = ClientId("$SYS")
TIMER: Final = ("sys",)
Facts = Mapping[str, int]
"""Counters that only the world has, by the rest of their topic: `bytes/received`, `bytes/sent`, `heap/current`."""
LOADS: Final = {
    "load/messages/received": "messages/received",
    "load/messages/sent": "messages/sent",
    "load/publish/received": "publish/messages/received",
    "load/publish/sent": "publish/messages/sent",
    "load/publish/dropped": "publish/messages/dropped",
    "load/bytes/received": "bytes/received",
    "load/bytes/sent": "bytes/sent",
    "load/sockets": "sockets",
    "load/connections": "connections",
}
"""A load, and the counter it is the load of."""
HIDDEN: Final = frozenset({"sockets", "connections"})
"""Counters of which only the load is told."""


class SysTopics:
    """Says what there is to say, every so often."""

    def __init__(
        self,
        node: Node,
        connecting: Connecting,
        publishing: Publishing,
        keeping: Keeping,
        retained: Retained,
        traffic: Callable[[], Facts],
        terms: Terms,
    ) -> None:
        """*traffic*: what went in and out."""
        self.facts: Callable[[], Facts] = dict
        """To be set by a world that has some."""
        self.unix_us: Callable[[], int] = lambda: 0
        """What the wall clock says; to be set by a world that has one."""
        self.presence: Presence | None = None
        if terms.presence:
            from edgebridge.frontend.presence import Presence  # for who wants it

            self.presence = Presence(node, publishing, connecting.notes, lambda: self.unix_us())
        self._node = node
        self._connecting = connecting
        self._publishing = publishing
        self._keeping = keeping
        self._retained = retained
        self._traffic = traffic
        self._interval = terms.sys_interval_s * SECOND
        self._said: dict[str, str] = {}
        self._loads = {name: Load() for name in LOADS}
        self._started: Instant = 0
        self._last: Instant = 0

    def start(self, now: Instant) -> None:
        """Say everything for the first time."""
        if self._interval:
            self._started = self._last = now
            self._say("version", f"edgebroker version {edgebroker.__version__}", now)
            self.fire(now)

    def fire(self, now: Instant, is_presence: bool = False) -> None:
        """Say what has changed, and come again after the interval; or who came and went."""
        if is_presence:
            if self.presence is not None:
                self.presence.fire(now)
            return
        counters = self._counters()
        for name, value in counters.items():
            if name not in HIDDEN:
                self._say(name, str(value), now)
        for name, value in self._gauges().items():
            self._say(name, str(value), now)
        self._say("uptime", f"{(now - self._started) // SECOND} seconds", now)
        passed = now - self._last
        for name, load in self._loads.items():
            counter = LOADS[name]
            if counter in counters:
                if passed:
                    load.update(counters[counter], passed)
                for span, average in load:
                    self._say(f"{name}/{span}", average, now)
        self._last = now
        self._node.timers.set(TIMER, now + self._interval)

    def _counters(self) -> dict[str, int]:
        """What only grows."""
        ledger, connecting = self._node.ledger, self._connecting
        counters = {
            "publish/messages/received": ledger.published,
            "publish/messages/sent": ledger.delivered,
            "publish/messages/dropped": sum(ledger.dropped.values()),
            "connections": connecting.attendance.admitted,
            "clients/expired": connecting.attendance.expired,
            "fates/published": ledger.published,
            "fates/filtered": ledger.filtered,
            "fates/copies": ledger.matched,
            "fates/delivered": ledger.delivered,
            "fates/expired": ledger.expired,
            "fates/refused": self._publishing.refused,
            **self._traffic(),
            **self.facts(),
        }
        for cause, count in ledger.dropped.items():
            counters[f"fates/dropped/{Cause(cause).name.lower()}"] = count
        for refusal, count in self._publishing.refusals.items():
            counters[f"fates/refused/{refusal.value}"] = count
        return counters

    def _gauges(self) -> dict[str, int]:
        """What goes up and down."""
        node, connecting, retained = self._node, self._connecting, self._retained
        stored = len(retained) + connecting.queued.messages
        away = len(connecting.sessions) - connecting.attendance.now
        shared = node.groups.count_members()
        return {
            "clients/total": len(connecting.sessions),
            "clients/connected": connecting.attendance.now,
            "clients/active": connecting.attendance.now,  # Mosquitto's older names of the same
            "clients/disconnected": away,
            "clients/inactive": away,
            "clients/maximum": connecting.attendance.most,
            "subscriptions/count": len(node.subscriptions) - shared,  # as Mosquitto counts them
            "shared_subscriptions/count": shared,
            "retained messages/count": len(retained),
            "messages/stored": stored,
            "store/messages/count": stored,
            "store/messages/bytes": retained.held_bytes + connecting.queued.bytes,
            "fates/queued": node.ledger.queued,
            "queue/messages": connecting.queued.messages,
            "queue/bytes": connecting.queued.bytes,
            **self._disk(),
        }

    def _disk(self) -> dict[str, int]:
        """What the journal did; nothing without one."""
        journal = self._keeping.journal
        if journal is None:
            return {}
        return {
            "journal/records": journal.lsn,
            "journal/synced": journal.synced,
            "journal/failures": journal.failures,
            "journal/refusing": int(journal.is_refusing),
        }

    def _say(self, name: str, value: str, now: Instant) -> None:
        if self._said.get(name) == value:
            return
        self._said[name] = value
        publication = Publication(PUBLISHER, ROOT + name, value.encode(), 0, True, now)
        self._retained.keep(publication)
        route = self._node.routes.route(publication.topic)
        if route.copies or route.groups or route.extractor is not None:
            self._publishing.route(publication, route, now)
