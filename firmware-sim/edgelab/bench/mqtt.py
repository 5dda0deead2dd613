"""`edgebroker bench mqtt`: this broker and another under the same load, side by side, also over TLS.

The certificate has a P-256 key; OpenSSL chooses TLS 1.3.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click

from edgebroker.cli import Refused
from edgebroker.cli.init.authority import Authority
from edgebroker.cli.parameters import WordChoice, examples
from edgelab.bench import report, rounds
from edgelab.bench.client import HOST
from edgelab.bench.subjects import SUBJECTS, Subject, SubjectNotFound, pure_edgebroker, with_log
from edgelab.bench.trial import BrokerFailed, Cores, among_strangers, running
from edgelab.bench.workloads import NAMES, WORKLOADS

TLS_SETTINGS = """\
[listener]
host = "{host}"
port = {port}
tls_certificate = "server.crt"
tls_key = "server.key"
"""
MOSQUITTO_TLS_SETTINGS = """\
certfile {folder}/server.crt
keyfile {folder}/server.key
"""


def over_tls(subject: Subject) -> Subject:
    """The same broker behind TLS. Raises KeyError for one that has none."""
    return replace(subject, command=_TLS_COMMANDS[subject.name.partition("-")[0]](subject), is_tls=True)


def _edgebroker_tls(subject: Subject) -> Callable[[int, Path], list[str]]:
    def command(port: int, folder: Path) -> list[str]:
        Authority.make(folder, "bench").server(folder, ["localhost"])
        (folder / "gateway.toml").write_text(TLS_SETTINGS.format(host=HOST, port=port))
        plain = subject.command(port, folder)
        return [*plain[: plain.index("run") + 1], "--config", str(folder / "gateway.toml")]

    return command


def _mosquitto_tls(subject: Subject) -> Callable[[int, Path], list[str]]:
    def command(port: int, folder: Path) -> list[str]:
        Authority.make(folder, "bench").server(folder, ["localhost"])
        plain = subject.command(port, folder)
        settings = Path(plain[-1])
        if os.geteuid() == 0:  # else it becomes another user, who may not read the key
            settings.write_text(f"user root\n{settings.read_text()}")
        settings.write_text(settings.read_text() + MOSQUITTO_TLS_SETTINGS.format(folder=folder))
        return plain

    return command


_TLS_COMMANDS = {"edgebroker": _edgebroker_tls, "mosquitto": _mosquitto_tls}


RUN_FAILED = 1  # exit code: a run lost messages or a broker stopped


@click.command(
    name="mqtt",
    short_help="Measure the broker, alternating with another one.",
    epilog=examples("edgebroker bench mqtt --against mosquitto --only throughput_single"),
)
@click.option(
    "--against",
    type=WordChoice(["mosquitto", "relay", "edgebroker", "none"]),
    default="mosquitto",
    show_default=True,
    help="The peer. `relay` only copies bytes: the ceiling. `edgebroker` shows what --logging costs.",
)
@click.option(
    "--subject",
    type=WordChoice(sorted(SUBJECTS)),
    default="edgebroker",
    show_default=True,
    help="Measured as ours. `mosquitto` against mosquitto shows the noise of the machine.",
)
@click.option("--pure", is_flag=True, help="Measure ours without compiled modules as well.")
@click.option("--tls", is_flag=True, help="Over TLS 1.3, both brokers with a P-256 certificate.")
@click.option("--logging", is_flag=True, help="Ours writes a delivery log.")
@click.option("--warnings", is_flag=True, help="Both refuse 20 clients a second, and write that into their logs.")
@click.option("--only", multiple=True, type=WordChoice(NAMES), help="Only this workload; may be repeated.")
@click.option("--rounds", "round_count", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="Length of a run.")
@click.option("--quick", is_flag=True, help="One round of very short runs: shows that it works, measures nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    against: str,
    subject: str,
    pure: bool,
    tls: bool,
    logging: bool,
    warnings: bool,
    only: tuple[str, ...],
    round_count: int,
    seconds: float,
    quick: bool,
    as_json: bool,
) -> None:
    """Measure the broker, alternating with another one on the same cores.

    The broker has one core, the load generator the other; everything stays on the loopback interface. A run in which
    a message is lost, doubled or damaged is marked failed and is not averaged.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    with stopped_by_sigterm(), tempfile.TemporaryDirectory(prefix="edgebroker-pure-") as folder, pinned() as cores:
        sides = chosen_sides(subject, against, Path(folder) if pure else None, tls, logging)
        if warnings:
            sides = {role: among_strangers(side) for role, side in sides.items()}
        about = report.machine(cores)
        for side in sides.values():
            check_that_it_starts(side, cores)
        plan = rounds.RoundPlan(sides, cores, 1 if quick else round_count, seconds, quick)
        rows = [
            row
            for workload in WORKLOADS
            if not only or workload.name in only
            for row in rounds.run(plan, workload, lambda line: click.echo(line, err=True))
        ]
    click.echo((report.as_json if as_json else report.as_table)(about, sides, rows))
    if any(row.failed for row in rows):
        raise SystemExit(RUN_FAILED)


def chosen_sides(
    subject: str, against: str, pure_folder: Path | None, tls: bool = False, logging: bool = False
) -> dict[str, Subject]:
    """The sides by role, in running order. Raises Refused if one is not installed."""
    if logging and subject != "edgebroker":
        raise click.UsageError("--logging is for our broker")
    try:
        sides = {rounds.OURS: with_log(SUBJECTS[subject]()) if logging else SUBJECTS[subject]()}
        if pure_folder is not None:
            sides[rounds.PURE] = pure_edgebroker(pure_folder)
        if against != "none":
            sides[rounds.PEER] = SUBJECTS[against]()
    except SubjectNotFound as missing:
        raise Refused(f"skipped: {missing}") from None
    if tls:
        if "relay" in (subject, against):
            raise click.UsageError("the relay speaks no TLS")
        return {role: over_tls(side) for role, side in sides.items()}
    return sides


def check_that_it_starts(side: Subject, cores: Cores) -> None:
    """Start once, unmeasured: reports a broken broker early and warms the page cache and Python's byte code."""
    try:
        with running(side, cores):
            pass
    except BrokerFailed as failure:
        raise Refused(str(failure)) from None


@contextlib.contextmanager
def pinned() -> Iterator[Cores]:
    """Choose the cores and keep this process off the broker's."""
    allowed = os.sched_getaffinity(0)
    first, *others = sorted(allowed)
    cores = Cores(broker=first, generator=others[0] if others else first)
    if not others:
        click.echo("only one core: broker and generator disturb each other, the figures are of little use", err=True)
    os.sched_setaffinity(0, {cores.generator})
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C does, so that every child is ended."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
