"""The outcome of a run of a scenario: as JSON values, and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from edgebroker.instants import SECOND
from edgedevices.population import FleetPopulation
from edgedevices.station import Station

BROKER_FAULTS: Final = ("not acknowledged in time", "refused: ")
"""Prefixes of causes of failure that are the broker's fault; others are caused by the scenario."""

FAULTS: Final = ("missing", "doubled", "doubled_qos_0", "disordered")
"""Findings of an audit that no broker may cause."""


def summary_of(population: FleetPopulation) -> dict[str, Any]:
    """Returns the account of a run that is over."""
    run = population.run
    return {
        "seconds": run.seconds,
        "interrupted": run.interrupted,
        "devices": len(run.devices),
        "never_connected": run.never_connected,
        **run.ledger.summary(),
        "fleets": {name: _fleet(stations) for name, stations in population.fleets.items()},
        "audit": run.audit.summary() if run.audit is not None else None,
    }


def _fleet(stations: Sequence[Station]) -> dict[str, Any]:
    pranks = sum((station.pranks for station in stations), Counter())
    return {
        "devices": len(stations),
        "connections": sum(station.modem.connections for station in stations),
        "boots": sum(station.boots for station in stations),
        "updated": sum(station.firmware.version > 1 for station in stations),
        "updates_failed": sum(station.updates_failed for station in stations),
        "empty": sum(station.is_gone for station in stations),
        "bytes_up": sum(station.modem.up.octets for station in stations),
        "bytes_down": sum(station.modem.down.octets for station in stations),
        "airtime_s": round(sum(station.modem.up.airtime_us for station in stations) / SECOND, 3),
        "mischief": {prank.value: number for prank, number in sorted(pranks.items(), key=lambda item: item[0].value)},
    }


def is_kept(summary: dict[str, Any]) -> bool:
    """Whether the broker kept its promises: everything acknowledged and delivered, in order, QoS 0 and 2 once."""
    audit = summary["audit"] or {}
    has_failures = any(cause.startswith(BROKER_FAULTS) for cause in summary["failures"])
    return not (has_failures or summary["never_connected"] or any(audit.get(fault) for fault in FAULTS))


def in_words(summary: dict[str, Any]) -> str:
    """Returns the account for people."""
    rows = [
        ("devices", f"{summary['devices']:,}", _never(summary)),
        ("seconds", f"{summary['seconds']:.1f}", "interrupted" if summary["interrupted"] else ""),
        ("messages published", f"{summary['published']:,}", ""),
        ("  acknowledged", f"{summary['acknowledged']:,}", "QoS 1 and 2"),
        ("  sent", f"{summary['sent']:,}", "QoS 0"),
        ("  failed", f"{summary['failed']:,}", _causes(summary["failures"])),
        ("connections", f"{summary['connections']:,}", f"{summary['reconnects']:,} of them again"),
        *((f"  lost, {reason}", f"{number:,}", "") for reason, number in summary["losses"].items()),
    ]
    for name, fleet in summary["fleets"].items():
        rows += _fleet_rows(name, fleet)
    if summary["audit"] is not None:
        rows += _audit_rows(summary["audit"])
    if "cost" in summary:
        cost = summary["cost"]
        rows.append(("this process", f"{cost['cpu_s']:.1f} s", f"of one core, {cost['memory_mib']:,} MiB at most"))
    width = max(len(name) for name, _, _ in rows)
    number_width = max(len(number) for _, number, _ in rows)
    return "\n".join(f"{name:<{width}}  {number:>{number_width}}  {note}".rstrip() for name, number, note in rows)


def _fleet_rows(name: str, fleet: dict[str, Any]) -> list[tuple[str, str, str]]:
    rows = [
        (f"fleet {name}", f"{fleet['devices']:,}", f"devices, booted {fleet['boots']:,} times"),
        ("  bytes on air, up", f"{fleet['bytes_up']:,}", f"{fleet['airtime_s']:,} s" if fleet["airtime_s"] else ""),
        ("  bytes on air, down", f"{fleet['bytes_down']:,}", ""),
    ]
    if fleet["empty"]:
        rows.append(("  batteries empty", f"{fleet['empty']:,}", "these devices are gone"))
    if fleet["updated"] or fleet["updates_failed"]:
        rows.append(("  updated", f"{fleet['updated']:,}", f"{fleet['updates_failed']:,} updates failed"))
    rows += [(f"  {prank}", f"{number:,}", "") for prank, number in fleet["mischief"].items()]
    return rows


def _audit_rows(audit: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        ("audit: acknowledged", f"{audit['acknowledged']:,}", ""),
        ("  heard", f"{audit['heard']:,}", "all QoS"),
        ("  missing", f"{audit['missing']:,}", ", ".join(audit["first_missing"])),
        ("  doubled at QoS 2", f"{audit['doubled']:,}", ""),
        ("  doubled at QoS 0", f"{audit['doubled_qos_0']:,}", ""),
        ("  out of order", f"{audit['disordered']:,}", ", ".join(audit["first_disordered"])),
        ("  repeated, as it may be", f"{audit['repeated']:,}", ""),
        *([("  from others", f"{audit['foreign']:,}", "")] if audit["foreign"] else []),
    ]


def _never(summary: dict[str, Any]) -> str:
    return f"{summary['never_connected']:,} never got a connection" if summary["never_connected"] else ""


def _causes(failures: dict[str, int]) -> str:
    return ", ".join(f"{cause}: {number:,}" for cause, number in failures.items())
