"""What the commands share: units of their options, common options, and error handling."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from edgebroker.instants import SECOND, Duration
from edgedevices import DeviceError, InputInvalid

EXIT_FAILED = 1
EXIT_IMPOSSIBLE = 2
DURATION_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0}
DURATIONS_S = (1e-3, 366 * 86_400.0)
SPEEDS = (1e-6, 1e9)  # beyond, the next message would be due after years, or all at once

Command = TypeVar("Command", bound=Callable[..., Any])


def duration(text: str) -> float:
    """Parses seconds, or a number with a unit: 500ms, 1s, 5m, 2h."""
    unit = next((unit for unit in DURATION_UNITS_S if text.endswith(unit)), "s")
    seconds = _positive(text.removesuffix(unit)) * DURATION_UNITS_S[unit]
    if not DURATIONS_S[0] <= seconds <= DURATIONS_S[1]:
        raise click.BadParameter(f"{text!r} is no duration of 1ms to 366 days; write 10, 500ms, 1s, 5m or 2h")
    return seconds


def speed_factor(text: str) -> float | None:
    """Parses a factor, or `max` (None)."""
    if text == "max":
        return None
    factor = _positive(text)
    if not SPEEDS[0] <= factor <= SPEEDS[1]:
        raise click.BadParameter(f"{text!r} is no speed of {SPEEDS[0]:f} to {SPEEDS[1]:,.0f}; write 1, 10 or max")
    return factor


def _positive(text: str) -> float:
    """Returns the number in *text*; 0 if it is not a positive finite number."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0.0 < number < float("inf") else 0.0


def brokers_option() -> Callable[[Command], Command]:
    """Returns the option for the brokers."""
    about = "May be repeated: then devices are dealt to brokers in turn."
    default = ("127.0.0.1:1883",)
    return click.option(
        "--broker",
        "--to",
        "brokers",
        multiple=True,
        default=default,
        show_default=True,
        metavar="HOST:PORT",
        help=about,
    )


def common(command: Command) -> Command:
    """Adds the options of every command that publishes."""
    for option in (
        click.option(
            "--journal", type=click.Path(path_type=Path), help="Write one JSON line per message to this file."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end."),
        click.option(
            "--progress/--no-progress", default=None, help="Show progress on stderr [default: on a terminal]."
        ),
        click.option(
            "--drain", type=duration, default="10", show_default=True, help="Wait that long for the last acks."
        ),
        brokers_option(),
    ):
        command = option(command)
    return access_options(command)


def follow_option(command: Command) -> Command:
    """Adds the option to go where brokers send devices."""
    about = "Go where a broker sends a device of MQTT 5, for now or for good."
    return click.option("--follow", is_flag=True, help=about)(command)


def access_options(command: Command) -> Command:
    """Adds the options for a broker's authentication."""
    file = click.Path(path_type=Path)
    for option in (
        click.option("--tls", is_flag=True, help="TLS, with the authorities of this system if --cafile is not given."),
        click.option("--key", type=file, help="Its private key."),
        click.option("--cert", type=file, help="Our certificate, where the broker asks for one."),
        click.option("--cafile", "--ca", "ca", type=file, help="TLS: the authorities that may vouch for the broker."),
        click.option("--password-file", type=file, help="Its first line is the password."),
        click.option("-u", "--username", help="User name for the broker."),
    ):
        command = option(command)
    return command


def only(options: dict[str, Any], excluded: Mapping[str, str], why: str) -> dict[str, Any]:
    """Returns *options* without the *excluded* ones. Raises InputInvalid if the user gave one of these."""
    for name, option in excluded.items():
        if options[name] not in (None, False, ""):
            raise InputInvalid(f"{option} means nothing here: {why}")
    return {name: value for name, value in options.items() if name not in excluded}


def microseconds(seconds: float | None) -> Duration | None:
    """Returns *seconds* in microseconds, None for None."""
    return None if seconds is None else round(seconds * SECOND)


@contextmanager
def one_line() -> Iterator[None]:
    """Turns an expected error into one line and exit code 2."""
    try:
        yield
    except DeviceError as error:
        click.echo(f"edgedevices: {error}", err=True)
        sys.exit(EXIT_IMPOSSIBLE)


class DeviceJournal:
    """The file of `--journal`. A full disk does not end a run: it is reported, and later texts are dropped."""

    def __init__(self, path: Path) -> None:
        """Raises InputInvalid."""
        self._path = path
        self.is_broken = False
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise InputInvalid(f"cannot write {path}: {error.strerror}") from error

    def write(self, text: str) -> None:
        """Appends *text*."""
        if not self.is_broken:
            try:
                self._file.write(text)
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Flushes and closes the file."""
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.is_broken:
            self.is_broken = True
            click.echo(f"edgedevices: cannot write {self._path}: {error.strerror}; it ends there", err=True)


@contextmanager
def journal_file(path: Path | None) -> Iterator[DeviceJournal | None]:
    """Opens the file of `--journal`; yields None without the option. Raises InputInvalid."""
    if path is None:
        yield None
        return
    journal = DeviceJournal(path)
    try:
        yield journal
    finally:
        journal.close()


def end_run(
    summary: dict[str, Any], words: Callable[[dict[str, Any]], str], as_json: bool, is_good: bool,
    journal: DeviceJournal | None = None,
) -> NoReturn:  # fmt: skip
    """Prints the *summary* of a run, for people in *words*, and exits: with 0 if it *is_good* and the journal whole."""
    click.echo(json.dumps(summary) if as_json else words(summary))
    sys.exit(0 if is_good and (journal is None or not journal.is_broken) else EXIT_FAILED)


def print_line(line: str) -> None:
    """Prints a line about the run on standard error."""
    click.echo(f"edgedevices: {line}", err=True)


def in_words(summary: dict[str, Any]) -> str:
    """Returns the summary of a run for people."""
    lines = [
        f"{summary['published']:,} messages published in {summary['seconds']:.1f} s: "
        f"{summary['acknowledged']:,} acknowledged, {summary['sent']:,} sent with QoS 0, {summary['failed']:,} failed"
    ]
    lines += [f"  failed, {cause}: {number:,}" for cause, number in summary["failures"].items()]
    lines += [f"  line lost, {reason}: {number:,}" for reason, number in summary["losses"].items()]
    if "followed" in summary:
        lines.append(f"  sent to another broker, and gone there: {summary['followed']:,} times")
    if summary["never_connected"]:
        lines.append(f"  devices that never got a connection: {summary['never_connected']:,}")
    if summary.get("not_publishable"):
        lines.append(f"  recorded messages that nobody may publish: {summary['not_publishable']:,}")
    if summary.get("bad_rows"):
        lines.append(f"  rows that could not be used: {summary['bad_rows']:,} of {summary['rows']:,}")
    return "\n".join(lines)
