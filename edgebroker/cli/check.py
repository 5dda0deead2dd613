"""`edgebroker check`: checks a settings file, or with --http the health of a running gateway.

For monitoring programs like Nagios the answer is one line with performance data, and an exit code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

import click

from edgebroker.cli.display import count, span
from edgebroker.cli.http_client import (
    GatewayAnswerInvalid,
    GatewayEndpoint,
    GatewayNoAnswer,
    GatewayOptions,
    get_json,
    token_file_option,
)
from edgebroker.cli.output import Unwritable, complain, say
from edgebroker.cli.parameters import HttpAddress, HttpAddressType, examples
from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.listeners.listeners import expiries
from edgebroker.runtime.referenced_files import ReferencedFiles
from edgebroker.runtime.settings import Settings, SettingsRefused, default_of
from edgebroker.runtime.settings.reading import read_settings_text


def refuse_file(file: Path, refused: SettingsRefused, as_json: bool) -> NoReturn:
    """Reports all problems of *file*, and exits with code 2."""
    if as_json:
        problems = [asdict(problem) for problem in refused.problems]
        click.echo(json.dumps({"ok": False, "file": str(file), "problems": problems}))
    else:
        complain(str(refused))
    sys.exit(2)


class ProbeState(IntEnum):
    """Exit codes of a monitoring plug-in, in the order of the Monitoring Plugins guidelines."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the measures; None: not checked."""

    warn_lag_ms: float | None = 100.0
    crit_lag_ms: float | None = 500.0
    warn_queue: int | None = None
    crit_queue: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeMeasure:
    """One measure with its limits. `unit` is one of the guidelines': none, ms, B, c (a counter)."""

    name: str
    value: int | float
    unit: str = ""
    warn: float | None = None
    crit: float | None = None

    @property
    def state(self) -> ProbeState:
        """The result of the comparison with the limits."""
        if self.crit is not None and self.value > self.crit:
            return ProbeState.CRITICAL
        return ProbeState.WARNING if self.warn is not None and self.value > self.warn else ProbeState.OK

    @property
    def perfdata(self) -> str:
        """`name=value[unit];warn;crit;min`."""
        bounds = ";".join("" if bound is None else f"{bound:g}" for bound in (self.warn, self.crit))
        return f"{self.name}={self.value}{self.unit};{bounds};0"  # %g would round counters


def judge_status(status: Mapping[str, Any], thresholds: Thresholds) -> tuple[ProbeState, str]:
    """Returns the state and the line for the contents of `/status`."""
    lag = status["health"]["checks"]["loop_lag"]
    is_judged = lag.get("is_judged", True)  # false just after the start, whose lag is no sign of overload
    lag_limits = (thresholds.warn_lag_ms, thresholds.crit_lag_ms) if is_judged else (None, None)
    copies, sessions = status["copies"], status["sessions"]
    measures = [
        ProbeMeasure("loop_lag_p99", lag["p99_ms"], "ms", *lag_limits),
        ProbeMeasure("queue", status["queue"]["messages"], "", thresholds.warn_queue, thresholds.crit_queue),
        ProbeMeasure("queue_longest", status["queue"]["longest"]),
        ProbeMeasure("clients", sessions["connected"]),
        ProbeMeasure("away", sessions["away"]),
        ProbeMeasure("published", status["messages"]["published"], "c"),
        ProbeMeasure("delivered", copies["delivered"], "c"),
        ProbeMeasure("dropped", sum(copies["dropped"].values()), "c"),
        ProbeMeasure("memory", status["process"]["resident_bytes"] or 0, "B"),
    ]
    reasons = list(status["health"]["reasons"])
    warnings = status["health"].get("warnings", ())
    state = (
        ProbeState.CRITICAL
        if reasons
        else max(ProbeState.WARNING if warnings else ProbeState.OK, *(measure.state for measure in measures))
    )
    reasons += warnings
    for measure in measures:
        if measure.state:
            bound = measure.crit if measure.state is ProbeState.CRITICAL else measure.warn
            reasons.append(f"{measure.name} is {measure.value:g}{measure.unit}, more than {bound:g}")
    summary = f"up {span(status['uptime_s'])}, {count(sessions['connected'])} clients"
    return state, probe_line(state, f"{status['name']}: {'; '.join(reasons) or summary}", measures)


def probe_line(state: ProbeState, text: str, measures: list[ProbeMeasure] | None = None) -> str:
    """Returns a line as the guidelines require. The part behind `|` is for programs."""
    line = f"EDGEBROKER {state.name} - {' '.join(text.replace('|', '/').split())}"
    return f"{line} | {' '.join(measure.perfdata for measure in measures)}" if measures else line


PROBE_OPTIONS = ("--http", "--warn-", "--crit-")
"""Prefixes of options that concern a running gateway."""
_bound = click.FloatRange(min=0)


class CheckCommand(click.Command):
    """A command whose usage errors in a probe are the state UNKNOWN, in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_probe, as_json = any(word.startswith(PROBE_OPTIONS) for word in args), "--json" in args
        try:
            unparsed = super().parse_args(ctx, args)
            if is_probe and not ctx.params["http"] and not ctx.params["file"]:
                raise click.UsageError("name the running gateway with --http")
            return unparsed
        except click.UsageError as error:
            if is_probe:
                _answer(ProbeState.UNKNOWN, probe_line(ProbeState.UNKNOWN, error.format_message()), as_json)
            raise


@click.command(
    "check",
    cls=CheckCommand,
    epilog=examples("edgebroker check gateway.toml", "edgebroker check --http 9883 --warn-queue 1000"),
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
@click.option("--quiet", "-q", is_flag=True, help="Of a FILE show only what is not in order.")
@click.option("--http", type=HttpAddressType(), help="Check the gateway that answers there, for Nagios and its kin.")
@token_file_option
@click.option("--warn-lag-ms", type=_bound, default=100.0, show_default=True, help="How late the loop may be (99 %).")
@click.option("--crit-lag-ms", type=_bound, default=500.0, show_default=True, help="The same, for CRITICAL.")
@click.option("--warn-queue", type=click.IntRange(0), help="Messages that may wait in all sessions.")
@click.option("--crit-queue", type=click.IntRange(0), help="The same, for CRITICAL.")
def command(
    file: Path | None,
    as_json: bool,
    quiet: bool,
    http: HttpAddress | None,
    token_file: Path | None,
    warn_lag_ms: float,
    crit_lag_ms: float,
    warn_queue: int | None,
    crit_queue: int | None,
) -> None:
    """Check a settings FILE and show what it says; or, with --http, a running gateway.

    FILE: exit code 0 if a gateway would take all of it, 2 if not; then every problem is shown with its line. A gateway
    runs with a bridge that cannot be used, without that bridge.

    --http: one line with performance data. Exit code 0 OK, 1 WARNING, 2 CRITICAL (also if nobody answers), 3 UNKNOWN
    (also if something is wrong with the command line).
    """
    if http is not None:
        thresholds = Thresholds(warn_lag_ms, crit_lag_ms, warn_queue, crit_queue)
        try:
            if file is not None:
                raise click.UsageError("either FILE or --http")
            state, line = _ask(GatewayOptions(http, None, token_file).endpoint(), thresholds)
        except (click.UsageError, EdgebrokerError) as error:
            state, line = ProbeState.UNKNOWN, probe_line(ProbeState.UNKNOWN, str(error))
        _answer(state, line, as_json)
    if file is None:
        raise click.UsageError("name the settings FILE, or a running gateway with --http")
    _check_file(file, as_json, quiet)


def _answer(state: ProbeState, line: str, as_json: bool) -> NoReturn:
    try:
        say(json.dumps({"state": state.name, "line": line}) if as_json else line)
    except Unwritable as unwritable:  # 2, as elsewhere, would mean CRITICAL
        complain(f"Error: {unwritable}")
        sys.exit(ProbeState.UNKNOWN)
    sys.exit(state)


def _ask(endpoint: GatewayEndpoint, thresholds: Thresholds) -> tuple[ProbeState, str]:
    try:
        return judge_status(get_json(endpoint, "/status", limit=0), thresholds)
    except GatewayNoAnswer as error:
        return ProbeState.CRITICAL, probe_line(ProbeState.CRITICAL, str(error))
    except GatewayAnswerInvalid as error:
        return ProbeState.UNKNOWN, probe_line(ProbeState.UNKNOWN, str(error))
    except (KeyError, TypeError) as error:
        return ProbeState.UNKNOWN, probe_line(
            ProbeState.UNKNOWN, f"{endpoint} is a gateway of another version: {error} is missing"
        )


def _check_file(file: Path, as_json: bool, quiet: bool) -> None:
    try:
        text = read_settings_text(file)
        settings = Settings.parse(text, str(file), file.parent)
        files = ReferencedFiles(settings, text, str(file))
    except SettingsRefused as refused:
        refuse_file(file, refused, as_json)
    if as_json:
        certificates = [
            {"listener": listener.label, "file": str(listener.tls_certificate), "expires": tls.validity.end.isoformat()}
            for listener, tls in zip(settings.listeners, files.certificates, strict=True)
            if tls is not None
        ]
        answer = {"ok": True, "file": str(file), "settings": settings.values(), "certificates": certificates}
        answer["notes"] = files.notes
        click.echo(json.dumps(answer))
    elif not quiet:
        click.echo(f"{file}: OK")
        for expiry in expiries(settings.listeners, files.certificates, with_all=True):
            click.echo(f"{file}: {expiry}")
        for note in files.notes:
            click.echo(note)
        click.echo(effective(settings))
    else:
        for note in files.notes:
            click.echo(note, err=True)


def effective(settings: Settings) -> str:
    """Returns every effective value in the format of a settings file; `# default` marks values that were not set."""
    lines: list[str] = []
    for section, values in settings.values().items():
        entries = values if isinstance(values, list) else [values]
        header = f"[[{section}]]" if len(entries) > 1 else f"[{section}]"
        for entry in entries:
            lines += ["", header, *_lines(section, entry)]
    return "\n".join(lines)


def _lines(section: str, values: dict[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if value is None:
            yield f"# {key} is not set"
        else:
            line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
            yield line if value != default_of(section, key) else f"{line}  # default"
