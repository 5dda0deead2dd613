"""`edgebroker bench durable`: what it costs to keep every acknowledged message on the disk."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.existing import Existing
from edgebroker.cli.word import Word

from .. import report as machine_report
from ..mqtt import pinned, stopped_by_sigterm
from ..subjects import SubjectMissing, edgebroker, mosquitto
from .disk import is_in_memory
from .report import as_json as report_json
from .report import as_table
from .running import Plan
from .trial import Figures, durable_mosquitto, measure, measure_sqlite

PEERS = ("mosquitto", "sqlite")
QUICK_S = 0.3


@click.command(name="durable", short_help="Measure what a promise costs at QoS 1.")
@click.option("--against", multiple=True, type=Word([*PEERS, "none"]), help="Only this peer; may be repeated.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Of each load.")
@click.option(
    "--payload", "payload_bytes", type=click.IntRange(8, 65_536), default=64, show_default=True, help="Bytes."
)
@click.option("--publishers", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--window", type=click.IntRange(1, 900), default=20, show_default=True, help="Unacknowledged, of each.")
@click.option(
    "--dir",
    "folder",
    type=Existing(file_okay=False),
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
    and once more with a journal of up to 100 MB, full of messages for a session that is away.

    Exit code 0: measured; 1: a run failed, or the durable session was lost; 2: it cannot be done here.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    if is_in_memory(folder.resolve()):
        raise Refused(f"{folder} lies in memory and not on a disk; give --dir FOLDER")
    peers = [peer for peer in against or PEERS if peer != "none"]
    with stopped_by_sigterm(), pinned() as cores:
        about = machine_report.machine(cores)
        plan = Plan(cores, folder, QUICK_S if quick else seconds, publishers, window, payload_bytes)
        ours = measure(edgebroker(), plan, "acknowledges what is synced to the disk", teller("edgebroker"))
        sides: list[Figures] = [ours]
        for peer in peers:
            if peer == "sqlite":
                teller("sqlite")("one commit per message")
                sides.append(measure_sqlite(plan))
            else:
                try:
                    subject = durable_mosquitto(mosquitto())
                except SubjectMissing as missing:
                    raise Refused(f"skipped: {missing}") from None
                promise = "acknowledges at once, and writes every 30 minutes and when it ends"
                sides.append(measure(subject, plan, promise, teller("mosquitto")))
    click.echo((report_json if as_json else as_table)(about, sides))
    if any(side.failure for side in sides) or not ours.values.get("kept"):
        raise SystemExit(1)


def teller(name: str) -> Callable[[str], None]:
    """Says on stderr what is going on with one side."""
    return lambda text: click.echo(f"{name}: {text}", err=True)


__all__ = ["command"]
