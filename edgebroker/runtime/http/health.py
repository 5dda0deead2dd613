"""The health of a gateway: one report for load balancers, watchdogs and people, with a reason for each failed check.

`GatewayView` holds the parts of a running gateway that HTTP pages read. Reading changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.memory_accounts import WARNING_SHARE, account_title
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.session.session import Session
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.limits import MIB
from edgebroker.runtime.journal.files import FOLDER_GONE
from edgebroker.runtime.journal.store import Store
from edgebroker.runtime.listeners.listeners import Listeners
from edgebroker.runtime.loop.lag import LoopLagMonitor
from edgebroker.runtime.loop.reactor import Reactor, clock
from edgebroker.runtime.operator_log import LogPump, OperatorLog, quoted

if TYPE_CHECKING:
    from edgebroker.runtime.block_list import BlockListFile
    from edgebroker.runtime.bridges.bridges import BridgeManager
    from edgebroker.runtime.delivery_log import DeliveryLogDirectory
    from edgebroker.runtime.http.tracing import Tracer
    from edgebroker.runtime.peers.peers import PeerManager
    from edgebroker.runtime.placement_runner import PlacementRunner
    from edgebroker.runtime.reload import ReloadOutcome
    from edgebroker.storage.deliverylog.writer import DeliveryLog


@dataclass(slots=True)
class GatewayView:
    """The parts of a running gateway. `log` and `log_dir` are None where no delivery log is written."""

    name: str
    """The gateway's name in the settings."""
    frontend: Frontend
    reactor: Reactor
    listeners: Listeners
    lag_monitor: LoopLagMonitor
    log: DeliveryLog | None
    log_dir: DeliveryLogDirectory | None
    folders: Mapping[str, Path]
    """Folders that the gateway writes to, by section of the settings."""
    operator_log: OperatorLog
    log_pump: LogPump
    tracer: Tracer
    store: Store | None
    """The journal; None where everything is in memory."""
    peer_manager: PeerManager | None
    """The links to peers; None where there are none."""
    bridge_manager: Callable[[], BridgeManager | None]
    """Returns the bridges to other brokers; the first may be added while the gateway runs."""
    started_at: Instant
    started_unix_s: float
    """The system clock at the start; it may have been wrong."""
    block_list: BlockListFile | None = None
    """Saves the blocked clients; made when the first client is blocked."""
    placements: PlacementRunner | None = None
    """Moves publishers to other gateways; None where there are none."""
    reload: Callable[[], Awaitable[ReloadOutcome | None]] | None = None
    """Reloads the settings, as SIGHUP does; None where there is no settings file. Returns None if the reload failed."""


LAG_S_MAX: Final = 0.5
"""Limit of the 99th percentile of a minute: if every hundredth message waits half a second, clients time out."""
BEATS_MIN: Final = 20
"""Two seconds of measurements; before that the lag is that of the start."""
DISK_FREE_BYTES_MIN: Final = 64 * MIB
"""A day of delivery log at 60 messages a second; below it, other writers on the disk fail soon, too."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check: `found` has its figures, `reason` is empty if it passed."""

    name: str
    reason: str
    found: dict[str, Any]


def checks(view: GatewayView) -> list[HealthCheck]:
    """Runs all checks. Takes about 30 us, half of it to sort a minute of measurements."""
    return [_listening(view), _loop(view), *_journal(view), *_links(view), *_disks(view)]


def report(view: GatewayView) -> dict[str, Any]:
    """Returns the contents of `/health`: `status` is `ok` or `failing`, `reasons` has a line for each failed check.

    `warnings` need an operator, but are no reason to restart the gateway or to send clients elsewhere.
    """
    results = checks(view)
    reasons = [check.reason for check in results if check.reason]
    return {
        "status": "failing" if reasons else "ok",
        "reasons": reasons,
        "warnings": list(_warnings(view)),
        "checks": {check.name: {"ok": not check.reason, **check.found} for check in results},
    }


def _listening(view: GatewayView) -> HealthCheck:
    is_listening = view.listeners.is_open
    return HealthCheck("listening", "" if is_listening else "no listener accepts clients", {})


def _loop(view: GatewayView) -> HealthCheck:
    median_s, p99_s, max_s = view.lag_monitor.recent_lag()
    has_enough_beats = view.lag_monitor.beats_recent >= BEATS_MIN
    reason = (
        ""
        if p99_s <= LAG_S_MAX or not has_enough_beats
        else f"the loop is {1_000 * p99_s:.0f} ms late at the 99th percentile"
    )
    figures = {"p50_ms": median_s, "p99_ms": p99_s, "max_ms": max_s, "limit_ms": LAG_S_MAX}
    figures_ms = {name: round(1_000 * value, 3) for name, value in figures.items()}
    return HealthCheck("loop_lag", reason, {**figures_ms, "is_judged": has_enough_beats})


def _journal(view: GatewayView) -> Iterator[HealthCheck]:
    if view.store is not None:
        journal = view.store.journal
        reason = f"the journal takes nothing: {journal.refusal_reason}" if journal.is_refusing else ""
        missing = view.store.worker.files.misplaced()
        if missing == FOLDER_GONE:
            reason = (
                f"{view.store.folder} was taken away or exchanged: put it back, or what is kept is lost at the next"
                " start; nothing more is taken until then"
            )
        elif missing:
            reason = f"{missing} from {view.store.folder}: see that nothing else is; the next commit makes another"
        warning = journal.warning
        if not warning and (failure := view.store.worker.files.control_failure):
            warning = f"the control file cannot be written, so the loss of a segment may not be noticed: {failure}"
        yield HealthCheck("journal", reason, {"waiting": journal.lsn - journal.synced, "warning": warning})


def _links(view: GatewayView) -> Iterator[HealthCheck]:
    """Checks the links. A link that is down is no reason to restart the gateway; a refused one needs an operator."""
    if view.peer_manager is not None:
        trouble = view.peer_manager.trouble
        refused = [f"{peer}: {trouble.get(peer, '')}" for peer in sorted(view.peer_manager.refused)]
        down = [link.peer for link in view.peer_manager.overlay.links if link.connection is None]
        yield HealthCheck("links", f"refused: {'; '.join(refused)}" if refused else "", {"down": down})
        risks = view.peer_manager.watch.risks(clock())
        yield HealthCheck("outboxes", "; ".join(risks), {"risks": risks})


SESSIONS_SHARE_MAX: Final = 0.8
"""Of `quota.sessions_max`: beyond it anonymous sessions will soon end for newcomers, or newcomers be refused."""


def _memory_warnings(view: GatewayView) -> Iterator[str]:
    accounts = view.frontend.memory_limit.accounts
    held, held_max = accounts.held_bytes, accounts.bytes_max
    if held > WARNING_SHARE * held_max:
        account, size = accounts.largest()
        kind = accounts.largest_kind(account)
        yield (
            f"memory: clients hold {held / MIB:.1f} of {held_max / MIB:.0f} MiB (quota.memory_bytes_max); most of it, "
            f"{size / MIB:.1f} MiB, {account_title(account)}, mainly {kind.replace('_', ' ')}"
        )
    for kind, count in accounts.not_restored.items():
        yield f"memory: {count} {kind} of the journal had no room in memory and were given up"


NAMED_QUEUES: Final = 10
"""Clients that a warning names; it tells how many more there are."""


def _queue_warnings(view: GatewayView) -> Iterator[str]:
    """Warns of queues that are nearly full, or have dropped something. Visits all sessions while messages wait: 1 ms
    for 10,000.
    """
    connect_handler = view.frontend.connect_handler
    queued = connect_handler.queued
    if queued.messages:
        nearly_full = [
            quoted(session.client_id) for session in connect_handler.sessions.values() if has_nearly_full_queue(session)
        ]
        if nearly_full:
            yield f"queues: nearly full, at nine tenths or more of what may wait, for {_first_of(nearly_full)}"
    if queued.is_nearly_full:
        yield (
            f"queues: all together hold {queued.messages:,} messages and {queued.bytes / MIB:.1f} MiB, nine tenths or"
            " more of what they may (limits.queued_messages_max, limits.queued_bytes_max)"
        )
    dropped = view.log_pump.recent_queue_drops()
    if dropped:
        names = [
            f"{quoted(client) if client else 'others'} ({cause.name.lower()})" for client, cause in dropped.items()
        ]
        yield f"queues: messages were dropped in the last 15 minutes for {_first_of(names)}"


def has_nearly_full_queue(session: Session) -> bool:
    """Whether the queue of a durable *session*, or of that of a bridge, holds nine tenths of what it may, or more."""
    is_watched = session.number or session.client_id.startswith(BRIDGE_CLIENT_PREFIX)
    return bool(is_watched) and session.outbox.is_nearly_full


def _first_of(names: list[str]) -> str:
    more = len(names) - NAMED_QUEUES
    return ", ".join(names[:NAMED_QUEUES]) + (f" and {more:,} more" if more > 0 else "")


def _warnings(view: GatewayView) -> Iterator[str]:
    yield from _memory_warnings(view)
    yield from _queue_warnings(view)
    connect_handler = view.frontend.connect_handler
    sessions, most = len(connect_handler.sessions), connect_handler.session_quota.sessions_max
    if sessions >= SESSIONS_SHARE_MAX * most:
        yield f"sessions: {sessions:,} of {most:,}, which quota.sessions_max allows"
    if view.store is not None:
        yield from view.store.damage_warnings()
    if view.peer_manager is not None:
        now = clock()
        links = view.peer_manager.overlay.links
        yield from (f"links: {link.boots.twin}" for link in links if link.boots.has_twin(now))
        yield from view.peer_manager.watch.warnings(now)
    bridge_manager = view.bridge_manager()
    if bridge_manager is not None:
        yield from (f"set aside: {entry}" for entry in bridge_manager.aside)
        for name, bridge in bridge_manager.bridges.items():
            yield from (f"bridge {name}: {text}" for text in bridge.warnings)


def _disks(view: GatewayView) -> Iterator[HealthCheck]:
    for name, folder in view.folders.items():
        free = _free_bytes(folder)
        reason = ""
        if free is None:
            reason = f"{name}: {folder} cannot be looked at"
        elif free < DISK_FREE_BYTES_MIN:
            reason = f"{name}: {free // MIB} MiB are free in {folder}, less than {DISK_FREE_BYTES_MIN // MIB}"
        yield HealthCheck(f"disk_{name}", reason, {"folder": str(folder), "free_bytes": free})


def _free_bytes(folder: Path) -> int | None:
    """Returns the free bytes of the file system of *folder*, or of its nearest existing parent."""
    for ancestor in (folder, *folder.parents):
        try:
            disk = os.statvfs(ancestor)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize
    return None
