"""Is the gateway well? One answer for load balancers, watchdogs and people, with the reasons if it is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edgebroker.dataclasses import dataclass
from edgebroker.limits import MIB
from edgebroker.world.insight import Insight
from edgebroker.world.journalfiles import FOLDER_GONE
from edgebroker.world.reactor import clock

LAG_S_MAX: Final = 0.5
"""The 99th percentile of a minute: when every hundredth message waits half a second, clients time out."""
BEATS_MIN: Final = 20
"""Two seconds: at its start a process is late for reasons of its own."""
DISK_FREE_BYTES_MIN: Final = 64 * MIB
"""A day of delivery log at 60 messages a second; below it, whatever else writes on this disk fails soon too."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: `found` are its figures, `reason` is empty if it is well."""

    name: str
    reason: str
    found: dict[str, Any]


def checks(insight: Insight) -> list[Check]:
    """Look at everything. Takes about 30 us, half of it to sort a minute of beats."""
    return [_listening(insight), _loop(insight), *_journal(insight), *_links(insight), *_disks(insight)]


def report(insight: Insight) -> dict[str, Any]:
    """What `/health` says: `status` is `ok` or `failing`, `reasons` has a line for each check that fails.

    `warnings` need somebody too, and are no reason to restart a gateway or to send clients elsewhere.
    """
    found = checks(insight)
    reasons = [check.reason for check in found if check.reason]
    return {
        "status": "failing" if reasons else "ok",
        "reasons": reasons,
        "warnings": list(_warnings(insight)),
        "checks": {check.name: {"ok": not check.reason, **check.found} for check in found},
    }


def _listening(insight: Insight) -> Check:
    is_listening = insight.listeners.is_open
    return Check("listening", "" if is_listening else "no listener accepts clients", {})


def _loop(insight: Insight) -> Check:
    median_s, p99_s, worst_s = insight.pulse.recent()
    is_judged = insight.pulse.beats_recent >= BEATS_MIN
    reason = (
        "" if p99_s <= LAG_S_MAX or not is_judged else f"the loop is {1_000 * p99_s:.0f} ms late at the 99th percentile"
    )
    figures = {"p50_ms": median_s, "p99_ms": p99_s, "max_ms": worst_s, "limit_ms": LAG_S_MAX}
    found = {name: round(1_000 * value, 3) for name, value in figures.items()}
    return Check("loop_lag", reason, {**found, "is_judged": is_judged})


def _journal(insight: Insight) -> Iterator[Check]:
    if insight.store is not None:
        journal = insight.store.journal
        reason = f"the journal takes nothing: {journal.trouble}" if journal.is_refusing else ""
        missing = insight.store.worker.files.misplaced()
        if missing == FOLDER_GONE:
            reason = (
                f"{insight.store.folder} was taken away or exchanged: put it back, or what is kept is lost at the next"
                " start; nothing more is taken until then"
            )
        elif missing:
            reason = f"{missing} from {insight.store.folder}: see that nothing else is; the next commit makes another"
        yield Check("journal", reason, {"waiting": journal.lsn - journal.synced, "warning": journal.warning})


def _links(insight: Insight) -> Iterator[Check]:
    """A link that is down is no reason to restart a gateway, which works on; one that is refused needs somebody."""
    if insight.peering is not None:
        trouble = insight.peering.trouble
        refused = [f"{peer}: {trouble.get(peer, '')}" for peer in sorted(insight.peering.refused)]
        down = [link.peer for link in insight.peering.overlay.links if link.stream is None]
        yield Check("links", f"refused: {'; '.join(refused)}" if refused else "", {"down": down})


def _warnings(insight: Insight) -> Iterator[str]:
    if insight.peering is not None:
        now = clock()
        links = insight.peering.overlay.links
        yield from (f"links: {link.runs.twin}" for link in links if link.runs.has_twin(now))
    bridging = insight.bridging()
    if bridging is not None:
        yield from (f"set aside: {one}" for one in bridging.aside)


def _disks(insight: Insight) -> Iterator[Check]:
    for name, folder in insight.folders.items():
        free = _free_bytes(folder)
        reason = ""
        if free is None:
            reason = f"{name}: {folder} cannot be looked at"
        elif free < DISK_FREE_BYTES_MIN:
            reason = f"{name}: {free // MIB} MiB are free in {folder}, less than {DISK_FREE_BYTES_MIN // MIB}"
        yield Check(f"disk_{name}", reason, {"folder": str(folder), "free_bytes": free})


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
