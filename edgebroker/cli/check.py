"""`edgebroker check`: would a gateway take these settings; or, with --http, is a running gateway well?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import click

from edgebroker.cli.complaint import complain
from edgebroker.cli.fileproblems import refuse
from edgebroker.cli.httpaddress import HttpAddress, HttpAddressType
from edgebroker.cli.inquiry import BadAnswer, Inquiree, NoAnswer, ask, inquiree, token_file_option
from edgebroker.cli.output import Unwritable, say
from edgebroker.cli.verdictline import State, Thresholds, judge, line
from edgebroker.errors import EdgebrokerError, StoreUnusable
from edgebroker.world.accessfiles import load_access
from edgebroker.world.doors.listeners import expiries, load_all
from edgebroker.world.httpaccess import load_http_access
from edgebroker.world.oldbridges import has_bridges
from edgebroker.world.settings import Settings, SettingsRefused, default_of
from edgebroker.world.store import data_folder

PROBING = ("--http", "--warn-", "--crit-")
"""How words begin by which a running gateway is meant."""
_bound = click.FloatRange(min=0)


class Check(click.Command):
    """What is wrong with the words of a probe is its own trouble, not the gateway's: UNKNOWN, in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_probe, as_json = any(word.startswith(PROBING) for word in args), "--json" in args
        try:
            return super().parse_args(ctx, args)
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
        settings = Settings.load(file)
        loaded = load_all(settings.listeners)
        notes: list[str] = []
        load_access(settings.access, notes.append)
        load_http_access(settings.http, notes.append)
        if settings.overlay.topology is not None:
            from edgebroker.world.peering.membership import load_membership  # who has peers pays for the overlay

            load_membership(settings)
        _check_bridges(settings, notes.append)
    except SettingsRefused as refused:
        refuse(file, refused, as_json)
    if as_json:
        certificates = [
            {"listener": one.label, "file": str(one.tls_certificate), "expires": tls.validity.end.isoformat()}
            for one, tls in zip(settings.listeners, loaded, strict=True)
            if tls is not None
        ]
        told = {"ok": True, "file": str(file), "settings": settings.values(), "certificates": certificates}
        told["notes"] = notes
        click.echo(json.dumps(told))
    elif not quiet:
        click.echo(f"{file}: OK")
        for expiry in expiries(settings.listeners, loaded, with_all=True):
            click.echo(f"{file}: {expiry}")
        for note in notes:
            click.echo(note)
        click.echo(effective(settings))
    else:
        for note in notes:
            click.echo(note, err=True)


def _check_bridges(settings: Settings, tell: Callable[[str], None]) -> None:
    """Those of the settings, and those that were added while the gateway ran. Raises SettingsRefused."""
    folder = None
    try:
        folder = data_folder(settings)
        if not has_bridges(settings, folder):
            return
    except OSError as error:  # it may be for the service's user alone
        tell(f"bridges that were added are not checked: {folder} cannot be looked at: {error.strerror}")
        folder = None
    except StoreUnusable:  # nor does a gateway find any there
        pass
    from edgebroker.world.bridging.added import load_added
    from edgebroker.world.bridging.kept import paused_in
    from edgebroker.world.bridging.planning import Planning

    plans, paused = Planning(settings, identity="").plans(settings, load_added(folder)), paused_in(folder)
    plans.part({}, lambda one: one.paused or one.name in paused)
    if plans.aside:
        raise SettingsRefused([problem for one in plans.aside for problem in one.problems])


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
