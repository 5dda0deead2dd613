"""The page `/metrics` in the text format of OpenMetrics 1.0; docs/operations.md lists every metric.

    page = Exposition()
    page.family("edgebroker_copies_dropped", "counter", "Copies given up, by cause.")
    page.sample("_total", 3, cause="queue_full")
    page.text()

The caller keeps the rules of the format about names: a family's name ends in its unit, the samples of a family are
consecutive, those of a counter end in `_total`. The tests parse each page with the specification's grammar. Metric
names never change: dashboards and alert rules use them. Labels are few: only the sessions with the longest queues are
named, so that ten thousand clients do not become ten thousand time series.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import edgebroker
from edgebridge.frontend.handlers.connect import DisplacementCause
from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebridge.session.footprint import HeldKind
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND
from edgebroker.log_schema import Cause
from edgebroker.relocation.placement import PlacementRefusal
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.session_census import SessionCensus, take_census
from edgebroker.runtime.loop.lag import LAG_BOUNDS_S
from edgebroker.runtime.process import ProcessUsage

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember
    from edgebroker.federation.router import FederationRouter

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """Builds one page of metrics, from top to bottom."""

    __slots__ = ("_lines", "_name")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""

    def family(self, name: str, kind: str, meaning: str, unit: str = "") -> None:
        """Begins the metric *name* of *kind* (counter, gauge, histogram, info); its samples follow."""
        self._name = name
        self._lines.append(f"# TYPE {name} {kind}")
        if unit:
            self._lines.append(f"# UNIT {name} {unit}")
        self._lines.append(f"# HELP {name} {meaning.translate(_ESCAPES)}")

    def sample(self, suffix: str, value: int | float, **labels: str) -> None:
        """Adds a sample to the present family. *suffix* is `_total`, `_bucket` and so on, or empty."""
        label_text = ""
        if labels:
            pairs = (f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
            label_text = "{" + ",".join(pairs) + "}"
        self._lines.append(f"{self._name}{suffix}{label_text} {value}")

    def counter(self, name: str, meaning: str, value: int | float, unit: str = "") -> None:
        """Adds a family of one counter."""
        self.family(name, "counter", meaning, unit)
        self.sample("_total", value)

    def gauge(self, name: str, meaning: str, value: int | float, unit: str = "") -> None:
        """Adds a family of one gauge."""
        self.family(name, "gauge", meaning, unit)
        self.sample("", value)

    def histogram(
        self, name: str, meaning: str, unit: str, bounds: Iterable[float], counts: Iterable[int], total: float
    ) -> None:
        """Adds a family of one histogram. *counts* has one number for each of *bounds*, and one for the values beyond.

        The counts are those of each bucket alone; the page has cumulative ones, as the format requires.
        """
        self.family(name, "histogram", meaning, unit)
        cumulative = 0
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            cumulative += count
            self.sample("_bucket", cumulative, le=bound)
        self.sample("_sum", total)
        self.sample("_count", cumulative)

    def text(self) -> bytes:
        """Returns the whole page."""
        return "\n".join([*self._lines, "# EOF", ""]).encode("utf-8", "replace")


DROP_CAUSES: Final = [
    cause for cause in Cause if cause not in (Cause.NONE, Cause.NO_SUBSCRIBER, Cause.CONTENT, Cause.OWN_MESSAGE)
]
"""Causes that copies are dropped for. Each has a series from the start: `increase` sees no first burst of a new one."""
NO_ROOM_REASONS: Final = (ReasonCode.QUOTA_EXCEEDED, ReasonCode.SERVER_BUSY)
"""Reasons that alert rules watch for their first time, so they have a series from the start, too."""
NAMED_SESSIONS: Final = 10
"""Sessions with a time series of their own: enough to find the cause, few enough for any number of gateways."""

SYNC_BOUND_US_MIN, SYNC_BOUND_US_MAX = 128, 8 * SECOND
"""Sixteen bounds, each twice the one before: from a disk that ignores syncs to a card that is about to fail."""


BRIDGE_QUEUES: Final = (
    ("waiting", "edgebroker_bridge_waiting_messages", "", "Messages that the remote has not acknowledged."),
    ("waiting_bytes", "edgebroker_bridge_waiting_bytes", "bytes", "What they hold."),
)
BRIDGE_WAYS: Final = (
    ("messages", "edgebroker_bridge_messages", "", "Messages that went on, by bridge and direction."),
    ("bytes", "edgebroker_bridge_message_bytes", "bytes", "Their packets."),
)
LINK_TIMES: Final = (
    ("round_trip_ms", "edgebroker_link_round_trip_seconds", "To the peer and back, smoothed."),
    ("offset_ms", "edgebroker_link_clock_offset_seconds", "By how much the peer's clock is ahead of ours."),
)
LINK_QUEUES: Final = (
    ("waiting", "edgebroker_link_waiting_messages", "", "Messages that wait to be sent, by peer and class."),
    ("unacknowledged", "edgebroker_link_unacknowledged_messages", "", "Sent, and not acknowledged by the peer."),
    ("bytes", "edgebroker_link_held_bytes", "bytes", "What both hold."),
)
"""(Key of a row, name, unit, meaning)."""


async def metrics_page(view: GatewayView) -> bytes:
    """Returns the whole page. Sessions are counted in slices; everything else is as of one moment."""
    census = await take_census(view.frontend, "queue", NAMED_SESSIONS)
    page = Exposition()
    _about(page, view)
    _messages(page, view)
    _listeners(page, view)
    _clients(page, view, census)
    _matching(page, view)
    _delivery_log(page, view)
    _files(page, view)
    _journal(page, view)
    _links(page, view)
    _bridges(page, view)
    _machine(page, view)
    return page.text()


def _about(page: Exposition, view: GatewayView) -> None:
    page.family("edgebroker_build", "info", "What runs here.")
    page.sample(
        "_info",
        1,
        node=view.name,
        version=edgebroker.__version__,
        kernel=view.frontend.node.tree.kernel.__name__.rpartition(".")[2],
        loop=type(asyncio.get_running_loop()).__module__.partition(".")[0],
        python=".".join(map(str, sys.version_info[:3])),
        implementation=sys.implementation.name,
    )


def _messages(page: Exposition, view: GatewayView) -> None:
    ledger, frontend = view.frontend.ledger, view.frontend
    page.counter("edgebroker_messages_published", "Messages accepted from publishers.", ledger.published)
    page.counter("edgebroker_messages_filtered", "Messages of which no copy was made.", ledger.filtered)
    page.family("edgebroker_messages_refused", "counter", "Messages not accepted, by cause.")
    for refusal in Refusal:
        page.sample("_total", frontend.publish_handler.refusals[refusal], cause=refusal.value)
    not_retained = frontend.retained.not_retained
    page.counter("edgebroker_messages_not_retained", "Messages that were to be, and are not.", not_retained)
    forbidden = frontend.publish_handler.forbidden
    page.counter("edgebroker_messages_forbidden", "Of these, those that their client may not publish.", forbidden)
    page.counter("edgebroker_copies_made", "Copies made, one for each reader of a message.", ledger.matched)
    page.counter("edgebroker_copies_delivered", "Copies that reached their reader.", ledger.delivered)
    page.counter("edgebroker_copies_expired", "Copies that became useless while they waited.", ledger.expired)
    page.family("edgebroker_copies_dropped", "counter", "Copies given up, by cause.")
    for cause in DROP_CAUSES:
        page.sample("_total", ledger.dropped.get(cause, 0), cause=cause.name.lower())
    page.gauge("edgebroker_copies_open", "Copies whose fate is still open.", ledger.queued)
    reactor = view.reactor
    page.counter("edgebroker_received_bytes", "Bytes from clients.", reactor.received_bytes, "bytes")
    page.counter("edgebroker_sent_bytes", "Bytes handed to the sockets of clients.", reactor.sent_bytes, "bytes")
    meaning = "Of these, those that the system had not taken when the connection ended."
    page.counter("edgebroker_cut_bytes", meaning, reactor.cut_bytes, "bytes")


def _listeners(page: Exposition, view: GatewayView) -> None:
    listeners = view.listeners
    page.family("edgebroker_listener_connections", "gauge", "Transports open now, by the listener they came by.")
    for listener in listeners:
        page.sample("", listener.connections, listener=listener.label)
    page.family("edgebroker_turned_away", "counter", "Clients turned away before their CONNECT was read, by cause.")
    for cause, count in sorted(listeners.refusals.counts.items(), key=lambda item: item[0].value):
        page.sample("_total", count, cause=cause.value)
    meaning = "When the certificate of a listener expires, since 1970."
    page.family("edgebroker_certificate_expiry_seconds", "gauge", meaning, "seconds")
    for listener in listeners:
        if listener.tls is not None:
            page.sample("", listener.tls.validity.end.timestamp(), listener=listener.label)


def _clients(page: Exposition, view: GatewayView, census: SessionCensus) -> None:
    frontend = view.frontend
    page.counter("edgebroker_connections_accepted", "Transports accepted.", frontend.accepted)
    page.gauge("edgebroker_connections", "Transports open now.", len(frontend.connections))
    page.gauge("edgebroker_connections_paused", "Of these, those whose peer reads too slowly.", census.paused)
    page.family("edgebroker_refusals", "counter", "Connections refused, or closed for what the client did, by reason.")
    for reason, count in {**dict.fromkeys(NO_ROOM_REASONS, 0), **frontend.disconnector.refusals}.items():
        page.sample("_total", count, reason=reason.name.lower())
    meaning = "Connections that ended because their client identifier connected again."
    page.counter("edgebroker_connections_taken_over", meaning, frontend.connect_handler.counters.taken_over)
    moves = frontend.connect_handler.moves
    page.family("edgebroker_clients_moved", "counter", "Clients that were sent to another gateway, by way.")
    for way, count in moves.moved.items():
        page.sample("_total", count, way=way.value)
    page.family("edgebroker_client_moves_ended", "counter", "The same, by what became of them.")
    for outcome, count in moves.ended.items():
        page.sample("_total", count, outcome=outcome.value)
    meaning = "CONNECTs refused because the client was sent to another gateway."
    page.counter("edgebroker_moved_clients_refused", meaning, moves.refused)
    displaced = {cause.value: count for cause, count in frontend.displaced.items() if count}
    if view.peer_manager is not None and view.peer_manager.displaced:
        displaced[DisplacementCause.PEER.value] = view.peer_manager.displaced
    meaning = "Connections, sessions and password checks that were given up so that others are served, by cause."
    page.family("edgebroker_displaced", "counter", meaning)
    for name, count in sorted(displaced.items()):
        page.sample("_total", count, cause=name)
    page.family("edgebroker_sessions_refused", "counter", "Sessions refused because there were too many, by whose.")
    for cause in ("account", "all"):
        page.sample("_total", frontend.connect_handler.session_quota.refused[cause], cause=cause)
    handshakes = frontend.connect_handler.connecting.handshake_bytes
    page.gauge("edgebroker_handshake_bytes", "What TLS handshakes hold that go on.", handshakes, "bytes")
    page.family("edgebroker_subscriptions_refused", "counter", "Entries of SUBSCRIBE that were not granted, by cause.")
    for cause, count in sorted(frontend.subscribe_handler.refused.items()):
        page.sample("_total", count, cause=cause)
    page.gauge("edgebroker_clients_verified_now", "Clients whose proof is being checked.", len(frontend.authenticator))
    meaning = "Texts of more than 4,096 characters, of which no pattern of LIKE is sure; once for each test that asked."
    page.counter("edgebroker_texts_too_long_for_like", meaning, frontend.node.routes.tree.too_long)
    _input_and_memory(page, view)
    page.family("edgebroker_sessions", "gauge", "Sessions, by whether their client is here.")
    page.sample("", census.connected, state="connected")
    page.sample("", census.sessions - census.connected, state="away")
    presence = frontend.sys_topics.presence
    missed = 0 if presence is None else presence.missed
    page.counter("edgebroker_presence_missed", "Comings and goings that nobody was told of.", missed)
    page.gauge("edgebroker_subscriptions", "Subscriptions granted.", len(frontend.node.subscriptions))
    page.gauge("edgebroker_retained_messages", "Topics with a retained message.", len(frontend.retained))
    held = frontend.retained.held_bytes
    page.gauge("edgebroker_retained_bytes", "What retained messages hold.", held, "bytes")
    page.counter("edgebroker_retained_expired", "Retained messages whose time was over.", frontend.retained.expired)
    page.gauge("edgebroker_queue_messages", "QoS 1 and 2 messages waiting in sessions.", census.queue_messages)
    page.gauge("edgebroker_queue_bytes", "What they hold.", census.queue_bytes, "bytes")
    page.gauge("edgebroker_queue_paged_messages", "Of these, those that are on the disk.", census.paged_messages)
    page.gauge("edgebroker_queue_paged_bytes", "What they hold.", census.paged_bytes, "bytes")
    page.gauge("edgebroker_queue_pages", "The page files that they are in.", census.pages)
    meaning = "Queues of durable sessions and bridges that hold nine tenths of what they may, or more."
    page.gauge("edgebroker_queues_nearly_full", meaning, census.queues_nearly_full)
    page.gauge("edgebroker_inflight_messages", "Sent and not acknowledged.", census.inflight_messages)
    page.gauge("edgebroker_inflight_bytes", "What they hold.", census.inflight_bytes, "bytes")
    page.gauge("edgebroker_unsent_bytes", "In the out-buffers of clients.", census.unsent_bytes, "bytes")
    page.family("edgebroker_session_queue_messages", "gauge", f"The {NAMED_SESSIONS} longest queues, by client.")
    for session in census.ranked:
        page.sample("", len(session.outbox), client=session.client_id)


def _input_and_memory(page: Exposition, view: GatewayView) -> None:
    frontend = view.frontend
    turns, memory = frontend.input_scheduler, frontend.memory_limit
    page.counter("edgebroker_input_cut_short", "Inputs that were too much for one turn and went on.", turns.cut_short)
    page.counter("edgebroker_input_slowed", "Pauses of clients that published too fast.", turns.slowed)
    page.gauge("edgebroker_held_bytes", "What all clients held when it was last measured.", memory.held_bytes, "bytes")
    page.family("edgebroker_held_kind_bytes", "gauge", "The same by kind.", "bytes")
    for kind, size in memory.accounts.by_kind.items():
        page.sample("", size, kind=kind.value)
    largest = memory.accounts.largest()[1]
    page.gauge("edgebroker_held_account_max_bytes", "What the largest account held.", largest, "bytes")
    page.family("edgebroker_memory_refused", "counter", "What was not granted for want of memory, by kind.")
    for kind in HeldKind:
        page.sample("_total", memory.accounts.refused[kind], kind=kind.value)
    page.gauge("edgebroker_held_max_bytes", "What they may hold.", memory.bytes_max, "bytes")
    page.counter(
        "edgebroker_memory_relieved", "Clients cut off, or queues dropped, for want of memory.", memory.relieved
    )


def _matching(page: Exposition, view: GatewayView) -> None:
    node = view.frontend.node
    tree = node.tree
    page.gauge("edgebroker_matching_predicates", "Different content predicates, by topic filter.", len(tree.leaves))
    page.gauge("edgebroker_matching_topic_nodes", "Nodes of the topic tree.", tree.topics.nodes)
    page.gauge("edgebroker_matching_routes", "Topics whose readers are remembered.", len(node.routes))
    page.counter("edgebroker_matching_steps", "Forks and buckets visited by searches.", tree.steps)
    meaning = "Arrays with more elements than tests of any element look at."
    page.counter("edgebroker_arrays_too_long", meaning, node.routes.arrays_too_long)
    page.family("edgebroker_payloads_unreadable", "counter", "Messages that filters asked for in vain, by whose.")
    page.sample("_total", node.routes.unreadable.total, asked_by="clients")
    if view.peer_manager is not None:
        page.sample("_total", view.peer_manager.overlay.peers.forwarder.unreadable.total, asked_by="gateways")
    if (births := node.routes.births) is not None:
        page.gauge("edgebroker_sparkplug_metrics", "Metrics of Sparkplug births that are remembered.", len(births))
        page.counter("edgebroker_sparkplug_births_forgotten", "Nodes given up for want of room.", births.forgotten)
        page.counter("edgebroker_sparkplug_aliases_unknown", "Metrics that no birth had named.", births.unknown)
        page.counter("edgebroker_sparkplug_deaths_late", "Deaths of a connection before the last.", births.outlived)
        asked = view.frontend.sparkplug_rebirth.requested
        page.counter("edgebroker_sparkplug_rebirths_asked", "Requests for another birth.", asked)


def _delivery_log(page: Exposition, view: GatewayView) -> None:
    if view.log is None or view.log_dir is None:
        return
    log_dir = view.log_dir
    page.counter("edgebroker_log_rows", "Rows of the delivery log.", view.log.rows_written)
    page.counter("edgebroker_log_blocks_lost", "Blocks of it that could not be written.", log_dir.blocks_lost)
    page.counter("edgebroker_log_segments_finished", "Files of it that are finished.", log_dir.segments_finished)
    page.counter("edgebroker_log_segments_deleted", "Finished files deleted for room.", log_dir.segments_deleted)


def _files(page: Exposition, view: GatewayView) -> None:
    service = view.frontend.publish_handler.file_service
    if service is None:
        return
    store = service.store
    page.gauge("edgebroker_file_chunks", "Chunks of files on the disk.", len(store))
    page.gauge("edgebroker_file_chunks_held_bytes", "Their bytes.", store.held_bytes, "bytes")
    page.gauge("edgebroker_file_chunks_max_bytes", "As many as there may be.", store.bytes_max, "bytes")
    page.counter("edgebroker_file_chunks_evicted", "Chunks that went for others.", store.evicted)
    page.counter("edgebroker_file_chunks_damaged", "Chunks whose file was damaged or gone.", store.damaged)
    page.counter("edgebroker_file_requests", "Requests of clients for files.", service.requests)
    page.family("edgebroker_file_requests_refused", "counter", "Of these, those that were refused, by cause.")
    for status, count in sorted(service.refusals.items()):
        page.sample("_total", count, cause=status.name.lower())
    page.counter("edgebroker_file_sent_bytes", "Bytes of chunks sent to clients.", service.sent_bytes, "bytes")
    meaning = "Bytes of chunks stored for clients."
    page.counter("edgebroker_file_received_bytes", meaning, service.received_bytes, "bytes")
    files = None if view.peer_manager is None else view.peer_manager.overlay.gateway_events.files
    if files is not None:
        exchange = files.exchange
        page.gauge("edgebroker_file_chunks_wanted", "Chunks wanted from other gateways.", len(exchange.wanted))
        page.counter("edgebroker_file_chunks_fetched", "Chunks that came from other gateways.", exchange.fetched)
        page.counter("edgebroker_file_chunks_handed_on", "Chunks sent to other gateways.", exchange.sent)
        meaning = "Chunks of gateways that nobody had asked for, dropped while the disk was behind."
        page.counter("edgebroker_file_chunks_unwanted", meaning, service.unwanted)
        meaning = "Messages of gateways about chunks that could not be read."
        page.counter("edgebroker_file_messages_unreadable", meaning, exchange.unreadable)


def _journal(page: Exposition, view: GatewayView) -> None:
    if view.store is None:
        return
    journal, files = view.store.journal, view.store.worker.files
    page.gauge("edgebroker_journal_refusing", "1 while nothing more may be promised.", int(journal.is_refusing))
    damaged = len(view.store.worker.damage_notice.unacknowledged())
    page.gauge("edgebroker_journal_damaged_places", "Damage at a start that nobody has acknowledged.", damaged)
    page.counter("edgebroker_journal_failures", "Writes and syncs that failed.", journal.failures)
    page.counter("edgebroker_journal_records", "The last record's number (LSN).", journal.lsn)
    page.counter("edgebroker_journal_records_synced", "All records up to this one are on the disk.", journal.synced)
    waiting = journal.lsn - journal.synced
    page.gauge("edgebroker_journal_records_waiting", "Records that are not on the disk yet.", waiting)
    written = files.bytes_written
    page.counter("edgebroker_journal_written_bytes", "Bytes handed to the operating system.", written, "bytes")
    card = files.card_bytes_written
    page.counter("edgebroker_journal_card_bytes", "Bytes that went to the card, in sectors or pages.", card, "bytes")
    wear = view.store.worker.wear.written
    daily, years = wear.bytes_per_day, wear.years
    if daily is not None and years is not None:  # after an hour
        page.gauge("edgebroker_journal_card_daily_bytes", "What goes to the card in a day of work.", daily, "bytes")
        page.gauge("edgebroker_journal_card_years", "How long the card lasts so.", years)
    times = files.sync_us
    page.family("edgebroker_journal_sync_seconds", "histogram", "How long syncs took.", "seconds")
    for bound_us, count in times.buckets():
        if SYNC_BOUND_US_MIN <= bound_us <= SYNC_BOUND_US_MAX:
            page.sample("_bucket", count, le=str(bound_us / SECOND))
    page.sample("_bucket", times.count, le="+Inf")
    page.sample("_sum", times.total_us / SECOND)
    page.sample("_count", times.count)
    page.gauge("edgebroker_journal_recovery_seconds", "What recovery took.", view.store.recovery_s, "seconds")


def _retained_and_wills(page: Exposition, peers: FederationRouter) -> None:
    queries, wills = peers.retained_queries, peers.wills
    page.counter("edgebroker_recalls_late", "Answers to questions that were forgotten.", queries.late)
    unmodified, repeated = queries.unmodified, queries.repeated
    page.counter("edgebroker_recalls_unmodified", "Retained messages elsewhere that were known here.", unmodified)
    page.counter("edgebroker_recalls_repeated", "Questions asked again without what was known.", repeated)
    page.family("edgebroker_recalls_cached_bytes", "gauge", "Memory of retained messages elsewhere.", "bytes")
    page.sample("", queries.cache.bytes)
    page.family("edgebroker_wills_kept", "gauge", "Wills of clients of other gateways that are kept here.")
    page.sample("", wills.count)
    page.counter("edgebroker_wills_published", "Wills of dead gateways' clients that were published.", wills.published)
    page.counter("edgebroker_wills_not_kept", "Wills for which there was no room.", wills.not_kept)


def _directory(page: Exposition, overlay: FederationMember) -> None:
    directory, names = overlay.directory, {one.number: one.name for one in overlay.topology.gateways}
    page.family("edgebroker_directory_sessions", "gauge", "Durable sessions of other gateways that are known here.")
    for number, summary in directory.summaries():
        page.sample("", summary.count, gateway=names[number])
    page.family("edgebroker_directory_bytes", "gauge", "Memory of what is known of them.", "bytes")
    page.sample("", directory.memory_bytes)
    page.counter("edgebroker_directory_questions", "Questions about summaries that differed.", directory.questions)
    meaning = "Sessions that another gateway told of, and whose client may have one here."
    page.counter("edgebroker_directory_doubles", meaning, directory.elsewhere)
    page.counter("edgebroker_directory_unreadable", "Events about sessions that are unreadable.", directory.unreadable)


def _roaming(page: Exposition, overlay: FederationMember) -> None:
    roaming = overlay.roaming
    if roaming is None:
        return
    page.counter("edgebroker_sessions_claimed", "Sessions that were claimed from other gateways.", roaming.claimed)
    page.counter("edgebroker_sessions_arrived", "Sessions that came from other gateways.", roaming.arrived)
    page.counter("edgebroker_sessions_departed", "Sessions that went to other gateways.", roaming.departed)
    meaning = "Clients that got a new session because no other gateway had answered in time."
    page.counter("edgebroker_sessions_not_found_in_time", meaning, roaming.timed_out)
    page.counter("edgebroker_roaming_unreadable", "Messages about sessions that are unreadable.", roaming.unreadable)
    meaning = "Moves of sessions that ended because the other gateway was taken out of the topology."
    page.counter("edgebroker_sessions_stranded", meaning, roaming.stranded)
    page.family("edgebroker_sessions_moving", "gauge", "Sessions that come or go at the moment.")
    page.sample("", roaming.moving)


def _relocation(page: Exposition, peers: FederationRouter) -> None:
    statistics = peers.relocation
    figures = statistics.figures
    page.gauge("edgebroker_relocation_publishers", "Publishers that are looked at.", figures["publishers"])
    page.gauge("edgebroker_relocation_traced_publishers", "Of these, those that are traced now.", figures["traced"])
    page.counter("edgebroker_relocation_untracked", "Publishers too many to look at.", statistics.untracked)
    meaning = "Trace sessions of all gateways that are recorded here."
    page.gauge("edgebroker_relocation_sessions", meaning, figures["recorded"])
    page.family("edgebroker_relocation_sessions_ended", "counter", "Trace sessions of publishers here, by outcome.")
    page.sample("_total", statistics.proposed, outcome="proposed")
    page.sample("_total", statistics.abandoned, outcome="abandoned")
    for refusal, times in statistics.limiter.refusals.items():
        if refusal is not PlacementRefusal.EXCLUDED:  # those are not traced
            page.sample("_total", times, outcome=refusal.name.lower())
    page.counter("edgebroker_relocation_events_refused", "Traced events not recorded.", figures["refused"])
    meaning = "Recorded sessions that nobody asked for."
    page.counter("edgebroker_relocation_sessions_forgotten", meaning, figures["forgotten"])
    page.family("edgebroker_relocation_messages", "counter", "Messages about trace sessions to peers, by kind.")
    for kind in ("request", "answer"):
        page.sample("_total", statistics.sent[kind], kind=kind)
    page.counter("edgebroker_relocation_message_bytes", "Their bytes.", statistics.sent["bytes"], "bytes")


def _moves(page: Exposition, view: GatewayView) -> None:
    from edgebroker.runtime.placement_runner import SETTLED_OUTCOMES  # loaded where there are peers

    assert view.peer_manager is not None
    meaning = 'Publishers that the gateway moved itself (relocation.mode = "apply").'
    page.counter("edgebroker_relocation_automatic_moves", meaning, view.peer_manager.automatic_moves.made)
    page.family("edgebroker_relocation_moves_settled", "counter", "Moves of plans whose outcome is known, by outcome.")
    for outcome in SETTLED_OUTCOMES:
        times = 0 if view.placements is None else view.placements.outcomes[outcome]
        page.sample("_total", times, outcome=outcome)


def _links(page: Exposition, view: GatewayView) -> None:
    if view.peer_manager is None:
        return
    from edgebroker.runtime.http.peers import detours, link_rows

    rows = list(link_rows(view.peer_manager))
    page.counter("edgebroker_peers_received_bytes", "Bytes from peers.", view.peer_manager.received_bytes, "bytes")
    page.counter("edgebroker_peers_sent_bytes", "Bytes handed to their sockets.", view.peer_manager.sent_bytes, "bytes")
    meaning = "Signed topologies that peers handed on and that were taken."
    page.counter("edgebroker_topologies_adopted", meaning, view.peer_manager.topologies_adopted)
    meaning = "Connections to the port for peers whose TLS handshake took too long."
    page.counter("edgebroker_peers_overdue_handshakes", meaning, view.peer_manager.overdue_handshakes)
    page.family("edgebroker_link_up", "gauge", "Whether there is a connection, by peer.")
    for row in rows:
        page.sample("", int(row["up"]), peer=row["peer"])
    page.family("edgebroker_link_twins_refused", "counter", "Dials refused: another gateway of the name is linked.")
    for row in rows:
        page.sample("_total", row["twins_refused"], peer=row["peer"])
    page.family("edgebroker_link_false_acks", "counter", "Acknowledgements of messages that were never sent.")
    for row in rows:
        page.sample("_total", row["false_acks"], peer=row["peer"])
    page.family("edgebroker_link_clock_differences", "counter", "How often its clock began to be over a minute off.")
    for peer, times in view.peer_manager.watch.clock_differences.items():
        page.sample("_total", times, peer=peer)
    page.family("edgebroker_link_congested", "gauge", "Whether its queue was congested when it was last looked at.")
    for row in rows:
        page.sample("", int(row["congested"]), peer=row["peer"])
    page.family("edgebroker_link_congestion_index", "gauge", "How congested it is, since somebody last asked.")
    for row in rows:
        page.sample("", row["congestion_index"], peer=row["peer"])
    page.family("edgebroker_detours", "counter", "Events that went around something congested or down, by how.")
    for case, count in detours(view.peer_manager).items():
        page.sample("_total", count, case=case)
    duplicates = view.peer_manager.overlay.peers.forwarder.duplicates
    page.counter("edgebroker_peers_duplicates", "Copies of events that were here already.", duplicates)
    failed = view.peer_manager.overlay.inbox.failed
    page.counter("edgebroker_peers_given_up", "Messages of peers whose handling ended in an error.", failed)
    given_up = view.frontend.subscribe_handler.replay.dropped_queries
    page.counter("edgebroker_recalls_given_up", "Questions for retained messages that were given up.", given_up)
    _retained_and_wills(page, view.peer_manager.overlay.peers)
    _directory(page, view.peer_manager.overlay)
    _roaming(page, view.peer_manager.overlay)
    _relocation(page, view.peer_manager.overlay.peers)
    _moves(page, view)
    page.family("edgebroker_subacks_held", "counter", "SUBACKs that waited for other gateways, by why they left.")
    for outcome, count in view.peer_manager.overlay.held_subacks.outcomes.items():
        page.sample("_total", count, outcome=outcome)
    page.family("edgebroker_group_copies", "counter", "Copies for members of groups at other gateways, or from them.")
    for way, count in view.peer_manager.overlay.groups.counts().items():
        page.sample("_total", count, way=way)
    for key, name, meaning in LINK_TIMES:
        page.family(name, "gauge", meaning, "seconds")
        for row in rows:
            if row[key] is not None:
                page.sample("", row[key] / 1_000, peer=row["peer"])
    for key, name, unit, meaning in LINK_QUEUES:
        page.family(name, "gauge", meaning, unit)
        for row in rows:
            for service, queue in row["queues"].items():
                page.sample("", queue[key], peer=row["peer"], service=service)
    page.family("edgebroker_link_messages_sent", "counter", "Messages that left the queue, by peer and class.")
    for row in rows:
        for service, queue in row["queues"].items():
            page.sample("_total", queue["sent"], peer=row["peer"], service=service)
    page.family("edgebroker_link_dropped", "counter", "Messages for the peer that were given up, by cause.")
    for row in rows:
        for cause, count in row["dropped"].items():
            page.sample("_total", count, peer=row["peer"], cause=cause)


def _bridges(page: Exposition, view: GatewayView) -> None:
    """Adds the metrics of bridges, with a time series for each bridge. Topics have none: `/bridges/costs` has the bytes
    by prefix.
    """
    bridge_manager = view.bridge_manager()
    page.family("edgebroker_bridges_set_aside", "gauge", "Bridges whose settings or files cannot be used.")
    page.sample("", 0 if bridge_manager is None else len(bridge_manager.aside))
    if bridge_manager is None or not bridge_manager.bridges:
        return
    from edgebroker.runtime.http.bridges import bridge_rows

    rows = bridge_rows(bridge_manager)["bridges"]
    page.family("edgebroker_bridge_up", "gauge", "Whether the remote has greeted the bridge, by bridge.")
    for row in rows:
        page.sample("", int(row["state"] == "open"), bridge=row["name"])
    if pairs := [row for row in rows if row["role"] is not None]:
        meaning = "Whether the bridge is the active one of its pair, by bridge."
        page.family("edgebroker_bridge_active", "gauge", meaning)
        for row in pairs:
            page.sample("", int(row["role"] == "active"), bridge=row["name"])
        page.family("edgebroker_bridge_takeovers", "counter", "How often this gateway became active, by bridge.")
        for row in pairs:
            page.sample("_total", row["takeovers"], bridge=row["name"])
    for key, name, unit, meaning in BRIDGE_QUEUES:
        page.family(name, "gauge", meaning, unit)
        for row in rows:
            page.sample("", row[key], bridge=row["name"])
    for key, name, unit, meaning in BRIDGE_WAYS:
        page.family(name, "counter", meaning, unit)
        for row in rows:
            for direction in ("out", "in"):
                page.sample("_total", row[direction][key], bridge=row["name"], direction=direction)
    page.family("edgebroker_bridge_dropped", "counter", "Messages that did not go on, by bridge, direction and cause.")
    for row in rows:
        for direction in ("out", "in"):
            dropped = Counter(row[direction]["dropped"])
            if direction == "out":  # and by its queue, except "refused", which the bridge counts by its cause
                queue = row["spool"]["dropped"]
                dropped.update({cause: count for cause, count in queue.items() if cause != "refused"})
            for cause, count in dropped.items():
                page.sample("_total", count, bridge=row["name"], direction=direction, cause=cause)
    meaning = "Acknowledgements of the remote that are not of the kind that the message calls for, by bridge."
    page.family("edgebroker_bridge_wrong_acknowledgements", "counter", meaning)
    for row in rows:
        page.sample("_total", sum(row["out"]["wrong_acknowledgements"].values()), bridge=row["name"])
    page.family("edgebroker_bridge_day_bytes", "gauge", "What crossed the line since midnight, both ways.", "bytes")
    for row in rows:
        page.sample("", row["toll"]["spent"], bridge=row["name"])


def _machine(page: Exposition, view: GatewayView) -> None:
    lag = view.lag_monitor
    page.histogram(
        "edgebroker_loop_lag_seconds",
        "How late a timer rang: how long the loop kept others waiting.",
        "seconds",
        LAG_BOUNDS_S,
        lag.counts,
        lag.sum_s,
    )
    page.family("edgebroker_notices", "counter", "What happened that an operator should know, told or not, by level.")
    for level, count in view.operator_log.counts.items():
        page.sample("_total", count, level=level.name.lower())
    process = ProcessUsage.now()
    page.counter("process_cpu_seconds", "Processor time, user and system.", process.cpu_s, "seconds")
    if process.resident_bytes is not None:
        page.gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes, "bytes")
    if process.descriptors is not None:
        page.gauge("process_open_fds", "Open file descriptors.", process.descriptors)
    page.gauge("process_max_fds", "File descriptors at most.", process.descriptors_max)
    page.gauge("process_start_time_seconds", "Start, since 1970.", view.started_unix_s, "seconds")
