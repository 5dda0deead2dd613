"""`edgebroker check`: would a gateway take these settings; or, with --http, is a running gateway well?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from edgebroker.cli.complaint import complain
from edgebroker.cli.fileproblems import refuse
from edgebroker.cli.httpaddress import HttpAddress, HttpAddressType
from edgebroker.cli.inquiry import BadAnswer, Inquiree, NoAnswer, ask, inquiree, token_file_option
from edgebroker.cli.output import Unwritable, say
from edgebroker.cli.verdictline import State, Thresholds, judge, line
from edgebroker.errors import EdgebrokerError
from edgebroker.world.doors.listeners import expiries
from edgebroker.world.namedfiles import NamedFiles
from edgebroker.world.settings import Settings, SettingsRefused, default_of
from edgebroker.world.settings.reading import text_of

PROBING = ("--http", "--warn-", "--crit-")
"""How words begin by which a running gateway is meant."""
_bound = click.FloatRange(min=0)


class Check(click.Command):
    """What is wrong with the words of a probe is its own trouble, not the gateway's: UNKNOWN, in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_probe, as_json = any(word.startswith(PROBING) for word in args), "--json" in args
        try:
            rest = super().parse_args(ctx, args)
            if is_probe and not ctx.params["http"] and not ctx.params["file"]:
                raise click.UsageError("name the running gateway with --http")
            return rest
        except click.UsageError as error:
            if is_probe:
                _answer(State.UNKNOWN, line(State.UNKNOWN, error.format_message()), as_json)
            raise


@click.command("check", cls=Check)
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
            state, said = _ask(inquiree(http, None, token_file), thresholds)
        except (click.UsageError, EdgebrokerError) as error:
            state, said = State.UNKNOWN, line(State.UNKNOWN, str(error))
        _answer(state, said, as_json)
    if file is None:
        raise click.UsageError("name the settings FILE, or a running gateway with --http")
    _check_file(file, as_json, quiet)


def _answer(state: State, said: str, as_json: bool) -> NoReturn:
    try:
        say(json.dumps({"state": state.name, "line": said}) if as_json else said)
    except Unwritable as unwritable:  # 2, as elsewhere, would be the gateway's trouble
        complain(f"Error: {unwritable}")
        sys.exit(State.UNKNOWN)
    sys.exit(state)


def _ask(asked: Inquiree, thresholds: Thresholds) -> tuple[State, str]:
    try:
        return judge(ask(asked, "/status", limit=0), thresholds)
    except NoAnswer as error:
        return State.CRITICAL, line(State.CRITICAL, str(error))
    except BadAnswer as error:
        return State.UNKNOWN, line(State.UNKNOWN, str(error))
    except (KeyError, TypeError) as error:
        return State.UNKNOWN, line(State.UNKNOWN, f"{asked} is a gateway of another version: {error} is missing")


def _check_file(file: Path, as_json: bool, quiet: bool) -> None:
    try:
        text = text_of(file)
        settings = Settings.parse(text, str(file), file.parent)
        named = NamedFiles(settings, text, str(file))
    except SettingsRefused as refused:
        refuse(file, refused, as_json)
    if as_json:
        certificates = [
            {"listener": one.label, "file": str(one.tls_certificate), "expires": tls.validity.end.isoformat()}
            for one, tls in zip(settings.listeners, named.certificates, strict=True)
            if tls is not None
        ]
        told = {"ok": True, "file": str(file), "settings": settings.values(), "certificates": certificates}
        told["notes"] = named.notes
        click.echo(json.dumps(told))
    elif not quiet:
        click.echo(f"{file}: OK")
        for expiry in expiries(settings.listeners, named.certificates, with_all=True):
            click.echo(f"{file}: {expiry}")
        for note in named.notes:
            click.echo(note)
        click.echo(effective(settings))
    else:
        for note in named.notes:
            click.echo(note, err=True)


def effective(settings: Settings) -> str:
    """Every value that holds, as a settings file would say it; `# default` marks what was not set."""
    lines: list[str] = []
    for section, values in settings.values().items():
        several = values if isinstance(values, list) else [values]
        header = f"[[{section}]]" if len(several) > 1 else f"[{section}]"
        for one in several:
            lines += ["", header, *_lines(section, one)]
    return "\n".join(lines)


def _lines(section: str, values: dict[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if value is None:
            yield f"# {key} is not set"
        else:
            shown = f"{key} = {json.dumps(value, ensure_ascii=False)}"
            yield shown if value != default_of(section, key) else f"{shown}  # default"
