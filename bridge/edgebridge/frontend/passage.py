"""The way of runs between gateways: a run of a local publisher leaves as a series, and a series comes out as a run."""

from __future__ import annotations

from edgebridge.frontend.plans import Plans
from edgebridge.frontend.runs import Runs
from edgebroker.instants import Instant
from edgebroker.node.ledger import Ledger
from edgebroker.node.peereffects import Send
from edgebroker.node.serial import Serial
from edgebroker.overlay.advertisements import Record
from edgebroker.overlay.link.links import Links
from edgebroker.overlay.messages import Series


class Passage:
    """Where runs cross between the clients of a gateway and its links."""

    def __init__(self, serial: Serial, links: Links, ledger: Ledger, plans: Plans, runs: Runs) -> None:
        self._serial = serial
        self._links = links
        self._ledger = ledger
        self._plans = plans
        self._runs = runs

    def way(self, client: str, topic: str, count_max: int) -> Record | None:
        """Where a run of up to *count_max* messages may leave as a series; None: they take the long way.

        With a delivery log all do: it notes the identity of each event.
        """
        return None if self._ledger.log is not None else self._serial.way(client, topic, count_max)

    def leave(self, way: Record, topic: str, payloads: bytes, count: int, now: Instant) -> int:
        """Send the series to the peers that want it. Returns their number: the books do not know of it yet."""
        sends = self._serial.leave(way, topic, payloads, count, now)
        self._send(sends, now)
        return len(sends)

    def came(self, peer: str, series: Series, now: Instant) -> bool:
        """Hand *series* to local clients and pass it on, all at once. False: it must be taken event by event."""
        first = series.first
        if self._ledger.log is not None or first.user or first.content_type is not None or first.properties:
            return False
        plan = self._plans.plan(first.topic.encode())
        if not plan.is_quick:
            return False
        sends = self._serial.receive(peer, series)
        if sends is None:
            return False
        self._send(sends, now)
        self._runs.hand_payloads(plan, first.payload, series.count, first.client, len(sends), now)
        return True

    def _send(self, sends: list[Send], now: Instant) -> None:
        for send in sends:
            self._links[send.peer].send(send.message, send.service, now)
