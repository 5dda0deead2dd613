"""`edgebroker bench durable`: the cost of keeping every acknowledged message on the disk, and its report."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import ExistingPath, WordChoice, examples
from edgelab.bench import report as machine_report
from edgelab.bench.durable.trial import (
    DurableFigures,
    DurablePlan,
    durable_mosquitto,
    is_in_memory,
    measure,
    measure_sqlite,
)
from edgelab.bench.mqtt import pinned, stopped_by_sigterm
from edgelab.bench.subjects import SubjectNotFound, edgebroker, mosquitto

ROWS = (
    ("rate", "acknowledged, as fast as it goes, msg/s", "{:,.0f}", ">= 5,000"),
    ("fast_p50_ms", "acknowledgement then, p50, ms", "{:.1f}", ""),
    ("fast_p99_ms", "acknowledgement then, p99, ms", "{:.1f}", ""),
    ("p50_ms", "acknowledgement at 1,000 msg/s, p50, ms", "{:.1f}", ""),
    ("p99_ms", "acknowledgement at 1,000 msg/s, p99, ms", "{:.1f}", "<= 30"),
    ("written", "bytes written per byte of payload", "{:.1f}", "<= 3"),
    ("journal_mb", "journal when it was killed, MB", "{:.1f}", ""),
    ("recovery_ms", "recovery of it, ms", "{:.0f}", ""),
    ("recovery_s_per_100_mb", "100 MB would take, s", "{:.2f}", "<= 2"),
    ("recovery_cpu_s_per_100_mb", "the same, processor time, s", "{:.2f}", ""),
    ("start_ms", "start on nothing, ms", "{:.0f}", ""),
    ("start_after_kill_ms", "start after the kill, ms", "{:.0f}", ""),
    ("kept", "the durable session is still there", "{}", "yes"),
    ("away_messages", "messages for a session that is away", "{:,.0f}", ""),
    ("away_mib", "memory with them, MiB", "{:.0f}", "<= 60"),
    ("away_written", "bytes written per byte of payload, as fast as it goes", "{:.1f}", ""),
    ("away_growing_written", "the same at 1,000 msg/s", "{:.1f}", "<= 3"),
    ("away_mb", "journal when it was killed, MB", "{:.1f}", ""),
    ("away_start_ms", "start with it, ms", "{:.0f}", "<= 3000"),
    ("away_start_cpu_ms", "the same, processor time, ms", "{:.0f}", ""),
    ("away_peak_mib", "most memory until then, MiB", "{:.0f}", ""),
    ("away_kept", "all messages are still there", "{}", "yes"),
    ("away_drained", "messages a second when it comes back", "{:,.0f}", ">= 50,000"),
)
SMALL_MB = 10.0
"""Of a smaller journal, what each start costs counts more than what is in it."""


def report_json(about: Mapping[str, object], sides: Sequence[DurableFigures]) -> str:
    """{machine, sides: [{name, version, promise, values, failure}]}."""
    return json.dumps({"machine": about, "sides": [asdict(side) for side in sides]}, indent=2)


def report_table(about: Mapping[str, object], sides: Sequence[DurableFigures]) -> str:
    """One column for each side, targets on the right."""
    cells = [("", *(side.name for side in sides), "target")]
    for key, label, form, target in ROWS:
        if any(key in side.values for side in sides):
            cells.append((label, *(_cell(side, key, form) for side in sides), target))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    promises = [f"{side.name} {side.version}: {side.promise}" for side in sides]
    where = f"{about['processor']}, {about['cores']} cores, {about['kernel']}, Python {about['python']}"
    failures = [f"{side.name} FAILED: {side.failure}" for side in sides if side.failure]
    small = [
        f"\n{side.name}: the load left {side.values['journal_mb']:.1f} MB, so what 100 MB would take is mostly what "
        "any recovery costs, many times over"
        for side in sides
        if side.values.get("journal_mb", SMALL_MB) < SMALL_MB
    ]
    return "\n".join([*promises, where, "", *lines, *small, *failures])


def _cell(side: DurableFigures, key: str, form: str) -> str:
    if side.failure or key not in side.values:
        return ""
    value = side.values[key]
    return ("yes" if value else "NO") if key.endswith("kept") else form.format(value)


PEERS = ("mosquitto", "sqlite")
QUICK_S = 0.3


@click.command(
    name="durable",
    short_help="Measure what a promise costs at QoS 1.",
    epilog=examples("edgebroker bench durable --against mosquitto --dir /var/tmp"),
)
@click.option("--against", multiple=True, type=WordChoice([*PEERS, "none"]), help="Only this peer; may be repeated.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Of each load.")
@click.option(
    "--payload", "payload_bytes", type=click.IntRange(8, 65_536), default=64, show_default=True, help="Bytes."
)
@click.option("--publishers", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--window", type=click.IntRange(1, 900), default=20, show_default=True, help="Unacknowledged, of each.")
@click.option(
    "--dir",
    "folder",
    type=ExistingPath(file_okay=False),
    default=tempfile.gettempdir(),
    show_default=True,
    help="Where to keep the data: on the disk to be measured.",
)
@click.option("--quick", is_flag=True, help="Very short loads: shows that it works, measures nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    against: tuple[str, ...],
    seconds: float,
    payload_bytes: int,
    publishers: int,
    window: int,
    folder: Path,
    quick: bool,
    as_json: bool,
) -> None:
    """Publish at QoS 1 to a durable session, time every PUBACK, count what is written, kill the broker, start it again;
    and once more with up to a million messages that wait for a session that is away.

    Exit code 0: measured; 1: a run failed, or the durable session was lost; 2: it cannot be done here.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    if is_in_memory(folder.resolve()):
        raise Refused(f"{folder} lies in memory and not on a disk; give --dir FOLDER")
    peers = [peer for peer in against or PEERS if peer != "none"]
    with stopped_by_sigterm(), pinned() as cores:
        about = machine_report.machine(cores)
        plan = DurablePlan(cores, folder, QUICK_S if quick else seconds, publishers, window, payload_bytes)
        ours = measure(edgebroker(), plan, "acknowledges what is synced to the disk", teller("edgebroker"))
        sides: list[DurableFigures] = [ours]
        for peer in peers:
            if peer == "sqlite":
                teller("sqlite")("one commit per message")
                sides.append(measure_sqlite(plan))
            else:
                try:
                    subject = durable_mosquitto(mosquitto())
                except SubjectNotFound as missing:
                    raise Refused(f"skipped: {missing}") from None
                promise = "acknowledges at once, and writes every 30 minutes and when it ends"
                sides.append(measure(subject, plan, promise, teller("mosquitto")))
    click.echo((report_json if as_json else report_table)(about, sides))
    if any(side.failure for side in sides) or not ours.values.get("kept"):
        raise SystemExit(1)


def teller(name: str) -> Callable[[str], None]:
    """Says on stderr what is going on with one side."""
    return lambda text: click.echo(f"{name}: {text}", err=True)


__all__ = ["command"]
