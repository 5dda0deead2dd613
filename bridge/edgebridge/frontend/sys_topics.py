"""The $SYS tree: retained statistics under the topic names of Mosquitto and our own. docs/mqtt.md lists them.

A topic is written again only when its value has changed. A message that no subscription matches does not count in the
accounts; one with readers counts as a message of the publisher PUBLISHER. `LoadAverage` computes $SYS/broker/load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import exp
from typing import TYPE_CHECKING, Final

import edgebroker
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.frontend.handlers.publish import PublishHandler
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.options import FrontendHost
from edgebridge.session.retained import RetainedStore
from edgebroker.instants import MINUTE, SECOND, Duration, Instant
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebridge.frontend.presence import ClientPresence

SPANS: Final = {"1min": MINUTE, "5min": 5 * MINUTE, "15min": 15 * MINUTE}


class LoadAverage:
    """Exponentially weighted averages of one counter's rate, in counts per minute. They begin at zero."""

    def __init__(self) -> None:
        self._count = 0
        self._averages = dict.fromkeys(SPANS, 0.0)

    def update(self, count: int, passed: Duration) -> None:
        """The counter stands at *count* now, and *passed*, more than nothing, is the time since the last update."""
        rate = (count - self._count) * MINUTE / passed
        self._count = count
        for name, span in SPANS.items():
            kept = exp(-passed / span)
            self._averages[name] = rate + kept * (self._averages[name] - rate)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(span, average with two decimals)."""
        return ((name, f"{average:.2f}") for name, average in self._averages.items())


SYS_ROOT: Final = "$SYS/broker/"
SYS_PUBLISHER: Final = ClientId("$SYS")
SYS_TIMER: Final = ("sys",)
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
        connect_handler: ConnectHandler,
        publish_handler: PublishHandler,
        session_journal: SessionJournal,
        retained: RetainedStore,
        traffic: Callable[[], Facts],
        interval_s: int,
        host: FrontendHost,
        presence: ClientPresence | None,
    ) -> None:
        """*traffic*: counters of packets and transports. *interval_s*: 0 publishes nothing."""
        self._host = host
        self.presence = presence
        self._node = node
        self._connect_handler = connect_handler
        self._publish_handler = publish_handler
        self._journal = session_journal
        self._retained = retained
        self._traffic = traffic
        self._interval = interval_s * SECOND
        self._published: dict[str, str] = {}
        self._loads = {name: LoadAverage() for name in LOADS}
        self._started: Instant = 0
        self._last: Instant = 0

    def start(self, now: Instant) -> None:
        """Say everything for the first time."""
        if self._interval:
            self._started = self._last = now
            self._publish("version", f"edgebroker version {edgebroker.__version__}", now)
            self.fire(now)

    def fire(self, now: Instant, is_presence: bool = False) -> None:
        """Say what has changed, and come again after the interval; or who came and went."""
        if is_presence:
            if self.presence is not None:
                self.presence.publish(self._publish_handler, now)
            return
        counters = self._counters()
        for name, value in counters.items():
            if name not in HIDDEN:
                self._publish(name, str(value), now)
        for name, value in self._gauges().items():
            self._publish(name, str(value), now)
        self._publish("uptime", f"{(now - self._started) // SECOND} seconds", now)
        passed = now - self._last
        for name, load in self._loads.items():
            counter = LOADS[name]
            if counter in counters:
                if passed:
                    load.update(counters[counter], passed)
                for span, average in load:
                    self._publish(f"{name}/{span}", average, now)
        self._last = now
        self._node.timers.set(SYS_TIMER, now + self._interval)

    def _counters(self) -> dict[str, int]:
        """What only grows."""
        ledger, connect_handler = self._node.ledger, self._connect_handler
        counters = {
            "publish/messages/received": ledger.published,
            "publish/messages/sent": ledger.delivered,
            "publish/messages/dropped": sum(ledger.dropped.values()),
            "connections": connect_handler.counters.admitted,
            "clients/expired": connect_handler.counters.expired,
            "fates/published": ledger.published,
            "fates/filtered": ledger.filtered,
            "fates/copies": ledger.matched,
            "fates/delivered": ledger.delivered,
            "fates/expired": ledger.expired,
            "fates/refused": self._publish_handler.refused,
            **self._traffic(),
            **self._host.facts(),
        }
        for cause, count in ledger.dropped.items():
            counters[f"fates/dropped/{Cause(cause).name.lower()}"] = count
        for refusal, count in self._publish_handler.refusals.items():
            counters[f"fates/refused/{refusal.value}"] = count
        return counters

    def _gauges(self) -> dict[str, int]:
        """What goes up and down."""
        node, connect_handler, retained = self._node, self._connect_handler, self._retained
        memory = connect_handler.memory_accounts
        stored = len(retained) + connect_handler.queued.messages
        away = len(connect_handler.sessions) - connect_handler.counters.current
        shared = node.groups.count_members()
        return {
            "clients/total": len(connect_handler.sessions),
            "clients/connected": connect_handler.counters.current,
            "clients/active": connect_handler.counters.current,  # Mosquitto's older names of the same
            "clients/disconnected": away,
            "clients/inactive": away,
            "clients/maximum": connect_handler.counters.maximum,
            "subscriptions/count": len(node.subscriptions) - shared,  # as Mosquitto counts them
            "shared_subscriptions/count": shared,
            "retained messages/count": len(retained),
            "messages/stored": stored,
            "store/messages/count": stored,
            "store/messages/bytes": retained.held_bytes + connect_handler.queued.bytes,
            "fates/queued": node.ledger.queued,
            "queue/messages": connect_handler.queued.messages,
            "queue/bytes": connect_handler.queued.bytes,
            "memory/bytes": memory.held_bytes,
            **{f"memory/{kind}/bytes": size for kind, size in memory.by_kind.items()},
            **self._disk(),
        }

    def _disk(self) -> dict[str, int]:
        """What the journal did; nothing without one."""
        journal = self._journal.storage
        if journal is None:
            return {}
        return {
            "journal/records": journal.lsn,
            "journal/synced": journal.synced,
            "journal/failures": journal.failures,
            "journal/refusing": int(journal.is_refusing),
        }

    def _publish(self, name: str, value: str, now: Instant) -> None:
        if self._published.get(name) == value:
            return
        self._published[name] = value
        publication = Publication(SYS_PUBLISHER, SYS_ROOT + name, value.encode(), 0, True, now)
        self._retained.retain(publication)
        route = self._node.routes.route(publication.topic)
        if route.copies or route.groups or route.extractor is not None:
            self._publish_handler.route(publication, route, now)
