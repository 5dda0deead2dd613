"""The delivery tracer: tells the statistics of relocation what became of traced events here, and how long it took.

Only the events of trace sessions are looked at, which are at most some hundred a second (`federation.relocation`).
Three times are measured of them:

- the input queue: from the beginning of the turn of the loop in which an event was read, until it is its turn;
- matching: until its readers are found and its copies handed to clients and links;
- the queue of a peer: until the copy has left for the socket, for one copy of each peer at a time.

They are taken from the clock of the process. On virtual time, where a turn takes no time, the first two are 0. The
wait of copies for clients is not measured: most leave in the turn in which they were made.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgebridge.frontend.options import FrontendHost
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.relocation import RelocationStatistics, TraceReport
from edgebroker.header import host_of
from edgebroker.instants import Instant
from edgebroker.log_schema import TRACE
from edgebroker.node.ledger import Ledger
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import SHARED


class DeliveryTracer:
    """Observes the traced events of one gateway."""

    def __init__(
        self, statistics: RelocationStatistics, links: LinkTable, number: int, ledger: Ledger, host: FrontendHost
    ) -> None:
        """number: that of this gateway. ledger: has the delivery log, if there is one."""
        self.outputs: dict[str, tuple[int, Instant]] = {}
        """Peer -> how many messages had entered its queue when a traced copy had, and when; one copy for each peer."""
        self._statistics = statistics
        self._links = links
        self._number = number
        self._ledger = ledger
        self._host = host

    @property
    def due(self) -> Instant | None:
        """When to call `fire`."""
        return self._statistics.due

    def clock(self, now: Instant) -> Instant:
        """Return the time now, in the turn that began at *now*."""
        return max(now, self._host.clock_us())

    def published(self, event: tuple[int, int], peers: Sequence[str], copies: int, now: Instant) -> None:
        """Observe the event of a local client that was just routed, if it is traced. *copies*: those for local clients;
        the turn began at *now*.
        """
        if event == self._statistics.published:
            routed = self.clock(now)
            self._statistics.record_published(peers, copies, now)
            self._statistics.monitor.add_input(routed - now, 0)
            self._begin_outputs(peers, routed)

    def received(self, forward: Forward, peers: Sequence[str], copies: int, begun: Instant, now: Instant) -> None:
        """Observe the traced event *forward* of another gateway, or a local client's that had to wait. *begun*: when
        this gateway began to look for its readers.
        """
        statistics, header = self._statistics, forward.header
        if host_of(header.publisher) == self._number:
            statistics.record_late(header, peers)
            return
        routed = self.clock(now)
        statistics.record(header, peers, copies, forward.was_marked, now)
        statistics.monitor.add_input(begun - now, routed - begun)
        self._begin_outputs(peers, routed)

    def flushed(self, now: Instant) -> None:
        """Observe that the links have written what they can: traced copies that have left waited until now."""
        at = self.clock(now)
        for peer, (entered, since) in [*self.outputs.items()]:
            if _left(self._links[peer]) >= entered:
                del self.outputs[peer]
                self._statistics.monitor.add_output(peer, at - since)

    def fire(self, now: Instant) -> list[SendMessage]:
        """Begin and end sessions. Returns the messages that ask for records."""
        self.measure_links()
        sends = self._statistics.fire(now)
        for report in self._statistics.take_reports():
            if self._ledger.log is not None:
                self._ledger.log.placed(now, TRACE, trace_rows(report, now))
        return sends

    def link_down(self, peer: str) -> None:
        """Give up the copy whose wait for *peer* was measured: the link is lost."""
        self.outputs.pop(peer, None)

    def measure_links(self) -> None:
        """Tell the statistics how long the way to each peer is: half a round trip of the link's heartbeat."""
        for link in self._links:
            if link.connection is not None and link.heartbeat.round_trip:
                self._statistics.monitor.set_link(link.peer, link.heartbeat.round_trip // 2)

    def _begin_outputs(self, peers: Sequence[str], at: Instant) -> None:
        for peer in peers:
            if peer not in self.outputs and self._links[peer].connection is not None:
                entered = sum(self._links[peer].figures(service).entered for service in SHARED)
                self.outputs[peer] = entered, at


def trace_rows(report: TraceReport, now: Instant) -> list[tuple[object, ...]]:
    """Return the rows of a session for `log_schema.TRACE`, one for each gateway that recorded it."""
    end = report.end
    stays = "" if report.refusal is None else report.refusal.name.lower()
    rows: list[tuple[object, ...]] = []
    for record in end.records:
        broker, delays = record.broker, record.delays
        outputs, links = delays.outputs or {}, delays.links or {}
        peers = "; ".join(f"{peer} {outputs.get(peer, 0)} {links.get(peer, 0)}" for peer in sorted({*outputs, *links}))
        rows.append(
            (
                *(now, report.client, end.publisher, end.session),
                *(broker, f"{record.delivered:x}", record.deliveries),
                *(record.copies, record.marked, delays.input, delays.matching, delays.clients, peers),
                *(int(report.loads.get(broker, 0)), round(report.delays.get(broker, 0)), report.ways.get(broker, 0)),
                *(report.events, report.payload_bytes, report.lasted, int(end.is_partial), report.target, stays),
            )
        )
    return rows


def _left(link: Link) -> int:
    return sum(link.figures(service).left for service in SHARED)
