"""The health of a gateway: one report for load balancers, watchdogs and people, with a reason for each failed check.

`GatewayView` holds the parts of a running gateway that HTTP pages read. Reading changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.frontend import Frontend
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.limits import MIB
from edgebroker.runtime.journal.files import FOLDER_GONE
from edgebroker.runtime.journal.store import Store
from edgebroker.runtime.listeners.listeners import Listeners
from edgebroker.runtime.loop.lag import LoopLagMonitor
from edgebroker.runtime.loop.reactor import Reactor, clock
from edgebroker.runtime.operator_log import LogPump, OperatorLog

if TYPE_CHECKING:
    from edgebroker.runtime.block_list import BlockListFile
    from edgebroker.runtime.bridges.bridges import BridgeManager
    from edgebroker.runtime.delivery_log import DeliveryLogDirectory
    from edgebroker.runtime.http.tracing import Tracer
    from edgebroker.runtime.peers.peers import PeerManager
    from edgebroker.runtime.reload import ReloadOutcome
    from edgebroker.storage.deliverylog.writer import DeliveryLog


@dataclass(slots=True)
class GatewayView:
    """`log` and `log_dir` are None where no delivery log is written."""

    name: str
    """What the operator calls the gateway."""
    frontend: Frontend
    reactor: Reactor
    listeners: Listeners
    lag_monitor: LoopLagMonitor
    log: DeliveryLog | None
    log_dir: DeliveryLogDirectory | None
    folders: Mapping[str, Path]
    """Where the gateway writes, by section of the settings."""
    operator_log: OperatorLog
    log_pump: LogPump
    tracer: Tracer
    store: Store | None
    """What is kept on disk; None where everything is in memory."""
    peer_manager: PeerManager | None
    """The sockets of peers; None where there are none."""
    bridge_manager: Callable[[], BridgeManager | None]
    """The bridges to foreign brokers; the first may come while the gateway runs."""
    started_at: Instant
    started_unix_s: float
    """What the wall clock said then; it may have been wrong."""
    block_list: BlockListFile | None = None
    """Keeps on disk whom an operator keeps out; made when somebody is."""
    reload: Callable[[], Awaitable[ReloadOutcome | None]] | None = None
    """Reads the settings again, as SIGHUP does; None where nobody can. Its own: the outcome is None if that failed."""


LAG_S_MAX: Final = 0.5
"""The 99th percentile of a minute: when every hundredth message waits half a second, clients time out."""
BEATS_MIN: Final = 20
"""Two seconds: at its start a process is late for reasons of its own."""
DISK_FREE_BYTES_MIN: Final = 64 * MIB
"""A day of delivery log at 60 messages a second; below it, whatever else writes on this disk fails soon too."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing looked at: `found` are its figures, `reason` is empty if it is well."""

    name: str
    reason: str
    found: dict[str, Any]


def checks(view: GatewayView) -> list[HealthCheck]:
    """Look at everything. Takes about 30 us, half of it to sort a minute of beats."""
    return [_listening(view), _loop(view), *_journal(view), *_links(view), *_disks(view)]


def report(view: GatewayView) -> dict[str, Any]:
    """What `/health` says: `status` is `ok` or `failing`, `reasons` has a line for each check that fails.

    `warnings` need somebody too, and are no reason to restart a gateway or to send clients elsewhere.
    """
    found = checks(view)
    reasons = [check.reason for check in found if check.reason]
    return {
        "status": "failing" if reasons else "ok",
        "reasons": reasons,
        "warnings": list(_warnings(view)),
        "checks": {check.name: {"ok": not check.reason, **check.found} for check in found},
    }


def _listening(view: GatewayView) -> HealthCheck:
    is_listening = view.listeners.is_open
    return HealthCheck("listening", "" if is_listening else "no listener accepts clients", {})


def _loop(view: GatewayView) -> HealthCheck:
    median_s, p99_s, worst_s = view.lag_monitor.recent_lag()
    is_judged = view.lag_monitor.beats_recent >= BEATS_MIN
    reason = (
        "" if p99_s <= LAG_S_MAX or not is_judged else f"the loop is {1_000 * p99_s:.0f} ms late at the 99th percentile"
    )
    figures = {"p50_ms": median_s, "p99_ms": p99_s, "max_ms": worst_s, "limit_ms": LAG_S_MAX}
    found = {name: round(1_000 * value, 3) for name, value in figures.items()}
    return HealthCheck("loop_lag", reason, {**found, "is_judged": is_judged})


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
        yield HealthCheck("journal", reason, {"waiting": journal.lsn - journal.synced, "warning": journal.warning})


def _links(view: GatewayView) -> Iterator[HealthCheck]:
    """A link that is down is no reason to restart a gateway, which works on; one that is refused needs somebody."""
    if view.peer_manager is not None:
        trouble = view.peer_manager.trouble
        refused = [f"{peer}: {trouble.get(peer, '')}" for peer in sorted(view.peer_manager.refused)]
        down = [link.peer for link in view.peer_manager.overlay.links if link.connection is None]
        yield HealthCheck("links", f"refused: {'; '.join(refused)}" if refused else "", {"down": down})


def _warnings(view: GatewayView) -> Iterator[str]:
    if view.peer_manager is not None:
        now = clock()
        links = view.peer_manager.overlay.links
        yield from (f"links: {link.boots.twin}" for link in links if link.boots.has_twin(now))
    bridge_manager = view.bridge_manager()
    if bridge_manager is not None:
        yield from (f"set aside: {one}" for one in bridge_manager.aside)


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
    """What we may still write where *folder* is, or where it will be once it is made."""
    for place in (folder, *folder.parents):
        try:
            disk = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize
    return None
