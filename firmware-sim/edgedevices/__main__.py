"""The command `edgedevices`. Exit codes: 0 all well, 1 some messages failed, 2 usage, unreadable input or no broker."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgebroker.instants import SECOND
from edgedevices.errors import DeviceError, InputInvalid

if TYPE_CHECKING:
    from edgedevices.fleet import Member, Terms
    from edgedevices.line import Identity
    from edgedevices.message import Source

EXIT_FAILED = 1
EXIT_IMPOSSIBLE = 2
DURATION_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0}

Command = TypeVar("Command", bound=Callable[..., Any])


def duration(text: str) -> float:
    """Seconds as a number, or with a unit: 500ms, 1s, 5m, 2h."""
    unit = next((unit for unit in DURATION_UNITS_S if text.endswith(unit)), "s")
    seconds = _positive(text.removesuffix(unit)) * DURATION_UNITS_S[unit]
    if not seconds:
        raise click.BadParameter(f"{text!r} is no duration above zero; write 10, 500ms, 1s, 5m or 2h")
    return seconds


def speed_factor(text: str) -> float | None:
    """A factor, or `max` (None)."""
    if text == "max":
        return None
    factor = _positive(text)
    if not factor:
        raise click.BadParameter(f"{text!r} is no speed above zero; write 1, 10 or max")
    return factor


def _positive(text: str) -> float:
    """The number in *text*; 0 if there is none, or if it is not above zero and finite."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0.0 < number < float("inf") else 0.0


def common(command: Command) -> Command:
    """The options every command has."""
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
        click.option(
            "--broker",
            "brokers",
            multiple=True,
            default=("127.0.0.1:1883",),
            show_default=True,
            metavar="HOST:PORT",
            help="May be repeated: then devices are dealt to brokers in turn.",
        ),
    ):
        command = option(command)
    return command


class Commands(click.Group):
    """A package that is not installed is one clear line, whichever command needs it."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as missing:
            click.echo(f"edgedevices: {missing.name} is not installed: pip install 'edgebroker[sim]'", err=True)
            sys.exit(EXIT_IMPOSSIBLE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """MQTT devices to try a gateway with: simulated fleets, this machine, recorded files."""


@main.command()
@click.option("--devices", type=click.IntRange(1, 10_000), default=40, show_default=True)
@click.option(
    "--profile", type=click.Choice(["cold-chain", "weather", "vibration"]), default="cold-chain", show_default=True
)
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1_000),
    default=1.0,
    show_default=True,
    help="Messages per second and device.",
)
@click.option("--seconds", type=duration, help="Stop each device after that long [default: run until interrupted].")
@click.option("--messages", type=click.IntRange(1), help="Stop each device after that many messages.")
@click.option("--seed", type=int, default=1, show_default=True, help="Same seed, same messages.")
@click.option("--payload", type=click.Choice(["json", "cbor", "mixed"]), default="json", show_default=True)
@click.option(
    "--qos",
    type=click.Choice(["0", "1", "2", "mix"]),
    default="mix",
    show_default=True,
    help="mix: 60/30/10 % of the devices.",
)
@click.option("--mqtt", type=click.Choice(["3.1.1", "5", "mixed"]), default="mixed", show_default=True)
@click.option("--retain", is_flag=True, help="Publish measurements retained.")
@click.option(
    "--will", is_flag=True, help='Keep a retained "online"/"offline" under TOPIC/status, the latter as the will.'
)
@click.option("--reconnect-every", type=duration, help="Drop each device's connection that often, on average.")
@click.option(
    "--world-speed",
    type=click.FloatRange(0, 10_000, min_open=True),
    default=60.0,
    show_default=True,
    help="Simulated seconds per second.",
)
@common
def fleet(
    devices: int, profile: str, rate: float, seconds: float | None, messages: int | None, seed: int, payload: str,
    qos: str, mqtt: str, retain: bool, will: bool, reconnect_every: float | None, world_speed: float, **how: Any,
) -> None:  # fmt: skip
    """Run a fleet of simulated devices."""
    from edgedevices.device import Dialect, FleetPlan
    from edgedevices.fleet import Terms
    from edgedevices.line import Identity
    from edgedevices.message import Form

    plan = FleetPlan(
        profile=profile,
        devices=devices,
        seed=seed,
        rate=rate,
        forms=(Form.JSON, Form.CBOR) if payload == "mixed" else (Form(payload),),
        qos=(0, 1, 2) if qos == "mix" else (int(qos),),
        dialects=(Dialect.V311, Dialect.V5) if mqtt == "mixed" else (Dialect(mqtt),),
        retain=retain,
        messages_max=messages,
        duration_us=_microseconds(seconds),
        world_speed=world_speed,
    )
    crew = [
        (device, Identity(device.name, device.habits.dialect, f"{device.place.topic}/status" if will else None))
        for device in plan.build()
    ]
    terms = Terms(seed, how.pop("drain"), reconnect_every)
    _run(crew, terms, {"profile": profile, "devices": devices, "seed": seed}, **how)


@main.command()
@click.option("--topic-prefix", default="host/{hostname}", show_default=True, help="Messages go to PREFIX/telemetry.")
@click.option("--every", type=duration, default="1", show_default=True, help="Interval between messages.")
@click.option("--seconds", type=duration, help="Stop after that long [default: run until interrupted].")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@click.option("--payload", type=click.Choice(["json", "cbor"]), default="json", show_default=True)
@click.option("--mqtt", type=click.Choice(["3.1.1", "5"]), default="5", show_default=True)
@click.option("--retain", is_flag=True, help="Publish retained.")
@common
def host(
    topic_prefix: str, every: float, seconds: float | None, qos: int, payload: str, mqtt: str, retain: bool, **how: Any
) -> None:
    """Publish this machine's real telemetry: processor, memory, disk, network, temperatures."""
    from edgedevices.message import Form
    from edgedevices.topictext import is_publishable

    with _one_line():
        from edgedevices.host import Host

        source = Host(topic_prefix, int(every * SECOND), _microseconds(seconds), qos, Form(payload), retain)
        if not is_publishable(source.topic):
            raise InputInvalid(f"--topic-prefix: {source.topic!r} is no topic to publish to")
    _run_one(source, source.name, mqtt, {"topic": source.topic}, **how)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--time-column", required=True, help="Column with ISO 8601 or Unix times.")
@click.option("--topic", required=True, help="Topic with column names in braces, for instance site/{site}/meter.")
@click.option("--speed", type=speed_factor, default="1", show_default=True, help="Recorded seconds per second, or max.")
@click.option("--columns", help="Columns to publish, comma-separated [default: all].")
@click.option("--limit", type=click.IntRange(1), help="Stop after that many messages.")
@click.option("--device", help="Device name and MQTT client identifier [default: replay-FILE].")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@click.option("--payload", type=click.Choice(["json", "cbor"]), default="json", show_default=True)
@click.option("--mqtt", type=click.Choice(["3.1.1", "5"]), default="5", show_default=True)
@click.option("--retain", is_flag=True, help="Publish retained.")
@common
def replay(
    file: Path, time_column: str, topic: str, speed: float | None, columns: str | None, limit: int | None,
    device: str | None, qos: int, payload: str, mqtt: str, retain: bool, **how: Any,
) -> None:  # fmt: skip
    """Publish the rows of a CSV file, at the pace at which they were recorded."""
    from edgedevices.message import Form
    from edgedevices.replay import CsvFile, Replay

    with _one_line():
        rows = CsvFile(file, time_column)
        names = [name.strip() for name in columns.split(",")] if columns else []
        name = device or f"replay-{file.stem}"
        source = Replay(rows, name, topic, names, speed, limit, qos, Form(payload), retain)
        if source.due_us is None:
            first = f"; line {rows.bad_rows[0][0]}: {rows.bad_rows[0][1]}" if rows.bad_rows else ""
            raise InputInvalid(f"{file} has no usable row{first}")

    def account() -> dict[str, Any]:
        first = [{"line": line, "reason": reason} for line, reason in rows.bad_rows[:5]]
        for bad in first:
            click.echo(f"edgedevices: {file} line {bad['line']}: {bad['reason']}", err=True)
        return {"rows": rows.rows_read, "bad_rows": rows.bad_count, "first_bad": first, "late_rows": source.late_rows}

    _run_one(source, name, mqtt, {"file": str(file)}, account, **how)


def _run_one(
    source: Any, name: str, mqtt: str, about: dict[str, Any], account: Callable[[], dict[str, Any]] = dict, **how: Any
) -> None:
    from edgedevices.device import Dialect
    from edgedevices.fleet import Terms
    from edgedevices.line import Identity

    _run([(source, Identity(name, Dialect(mqtt)))], Terms(0, how.pop("drain")), about, account, **how)


def _run(
    crew: Sequence[tuple[Source, Identity]],
    terms: Terms,
    about: dict[str, Any],
    account: Callable[[], dict[str, Any]] = dict,
    *,
    brokers: tuple[str, ...],
    as_json: bool,
    journal: Path | None,
    progress: bool | None,
) -> None:
    """Run *crew*, print the summary, exit with the code that says how it went. account: asked at the end."""
    from edgedevices.address import Address
    from edgedevices.fleet import Fleet, Member
    from edgedevices.ledger import Ledger
    from edgedevices.progress import progress_for

    with _one_line(), _journal(journal) as file:
        addresses = [Address.parse(broker) for broker in brokers]
        for address in addresses:
            address.check_reachable()
        members = [Member(*one, address) for one, address in zip(crew, cycle(addresses), strict=False)]
        ledger = Ledger(file)

        async def whole_run() -> Any:
            return await Fleet(members, ledger, terms).run(progress_for(progress))

        result = asyncio.run(whole_run())
    summary = {
        **about,
        "broker": ", ".join(map(str, addresses)),
        **({"dealt": _dealt(members)} if len(addresses) > 1 else {}),
        "seconds": result.seconds,
        "interrupted": result.interrupted,
        "never_connected": result.never_connected,
        **ledger.summary(),
        **account(),
    }
    click.echo(json.dumps(summary) if as_json else _in_words(summary))
    sys.exit(EXIT_FAILED if ledger.failed.total() or result.never_connected else 0)


def _dealt(members: list[Member]) -> dict[str, list[str]]:
    """Broker -> its devices."""
    dealt: dict[str, list[str]] = {}
    for member in members:
        dealt.setdefault(str(member.address), []).append(member.identity.device)
    return dealt


def _in_words(summary: dict[str, Any]) -> str:
    lines = [
        f"{summary['published']:,} messages published in {summary['seconds']:.1f} s: "
        f"{summary['acknowledged']:,} acknowledged, {summary['sent']:,} sent with QoS 0, {summary['failed']:,} failed"
    ]
    lines += [f"  failed, {cause}: {number:,}" for cause, number in summary["failures"].items()]
    lines += [f"  line lost, {reason}: {number:,}" for reason, number in summary["losses"].items()]
    if summary["never_connected"]:
        lines.append(f"  devices that never got a connection: {summary['never_connected']:,}")
    if summary.get("bad_rows"):
        lines.append(f"  rows that could not be used: {summary['bad_rows']:,} of {summary['rows']:,}")
    return "\n".join(lines)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn an expected error into one line and exit code 2."""
    try:
        yield
    except DeviceError as error:
        click.echo(f"edgedevices: {error}", err=True)
        sys.exit(EXIT_IMPOSSIBLE)


@contextmanager
def _journal(path: Path | None) -> Iterator[Any]:
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InputInvalid(f"cannot write {path}: {error.strerror}") from error
    with file:
        yield file


if __name__ == "__main__":
    main(prog_name="edgedevices")
