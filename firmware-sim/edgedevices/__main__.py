"""The command `edgedevices`. Exit codes: 0 success, 1 some messages failed, 2 usage, unreadable input or no broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgebroker.instants import SECOND
from edgedevices import InputInvalid
from edgedevices.options import (
    EXIT_IMPOSSIBLE,
    common,
    duration,
    end_run,
    follow_option,
    in_words,
    journal_file,
    microseconds,
    one_line,
    only,
    speed_factor,
)
from edgedevices.scenario.command import check, run
from edgedevices.traffic.command import CSV_ALONE, RECORDING_ALONE, record, replay_recording

if TYPE_CHECKING:
    from edgedevices.message import MessageSource
    from edgedevices.server_reference import ReferenceFollower
    from edgedevices.session import DeviceIdentity


class DeviceCommands(click.Group):
    """Reports a package that is not installed in one line, whichever command needs it."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as missing:
            click.echo(f"edgedevices: {missing.name} is not installed: pip install 'edgebroker[sim]'", err=True)
            sys.exit(EXIT_IMPOSSIBLE)


@click.group(cls=DeviceCommands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """MQTT devices to try a gateway with: simulated fleets, this machine, recorded files and traffic."""


main.add_command(record)
main.add_command(run)
main.add_command(check)


@main.command(epilog="\b\nExample:\n  edgedevices fleet --devices 100 --rate 2 --seconds 60")
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
@click.option(
    "-V",
    "--protocol-version",
    "--mqtt",
    "mqtt",
    type=click.Choice(["3.1.1", "5", "mixed"]),
    default="mixed",
    show_default=True,
)
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
@follow_option
@common
def fleet(
    devices: int, profile: str, rate: float, seconds: float | None, messages: int | None, seed: int, payload: str,
    qos: str, mqtt: str, retain: bool, will: bool, reconnect_every: float | None, world_speed: float, **how: Any,
) -> None:  # fmt: skip
    """Run a fleet of simulated devices."""
    from edgedevices.device import FleetPlan
    from edgedevices.message import PayloadForm
    from edgedevices.session import DeviceDialect, DeviceIdentity

    plan = FleetPlan(
        profile=profile,
        devices=devices,
        seed=seed,
        rate=rate,
        forms=(PayloadForm.JSON, PayloadForm.CBOR) if payload == "mixed" else (PayloadForm(payload),),
        qos=(0, 1, 2) if qos == "mix" else (int(qos),),
        dialects=(DeviceDialect.V311, DeviceDialect.V5) if mqtt == "mixed" else (DeviceDialect(mqtt),),
        retain=retain,
        messages_max=messages,
        duration_us=microseconds(seconds),
        world_speed=world_speed,
    )
    members = [
        (device, DeviceIdentity(device.name, device.habits.dialect, f"{device.place.topic}/status" if will else None))
        for device in plan.build()
    ]
    _run(
        members, {"profile": profile, "devices": devices, "seed": seed}, seed=seed, dropped_every=reconnect_every, **how
    )


@main.command(epilog="\b\nExample:\n  edgedevices host --broker 192.168.1.10:1883 --interval 10")
@click.option(
    "--prefix",
    "--topic-prefix",
    "topic_prefix",
    default="host/{hostname}",
    show_default=True,
    help="Messages go to PREFIX/telemetry.",
)
@click.option(
    "--interval", "--every", "every", type=duration, default="1", show_default=True, help="Interval between messages."
)
@click.option("--seconds", type=duration, help="Stop after that long [default: run until interrupted].")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@click.option("--payload", type=click.Choice(["json", "cbor"]), default="json", show_default=True)
@click.option(
    "-V", "--protocol-version", "--mqtt", "mqtt", type=click.Choice(["3.1.1", "5"]), default="5", show_default=True
)
@click.option("--retain", is_flag=True, help="Publish retained.")
@follow_option
@common
def host(
    topic_prefix: str, every: float, seconds: float | None, qos: int, payload: str, mqtt: str, retain: bool, **how: Any
) -> None:
    """Publish this machine's real telemetry: processor, memory, disk, network, temperatures."""
    from edgedevices.message import PayloadForm, is_publishable

    with one_line():
        from edgedevices.host import HostTelemetry

        source = HostTelemetry(
            topic_prefix, int(every * SECOND), microseconds(seconds), qos, PayloadForm(payload), retain
        )
        if not is_publishable(source.topic):
            raise InputInvalid(f"--topic-prefix: {source.topic!r} is no topic to publish to")
    _run_one(source, source.name, mqtt, {"topic": source.topic}, **how)


@main.command(
    epilog="\b\nExamples:"
    "\n  edgedevices replay meter.csv --time-column time --topic 'site/{site}/meter' --speed 10"
    "\n  edgedevices replay traffic.edl --speed max"
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--time-column", help="CSV: column with ISO 8601 or Unix times.")
@click.option("--topic", help="CSV: topic with column names in braces, for instance site/{site}/meter.")
@click.option("--speed", type=speed_factor, default="1", show_default=True, help="Recorded seconds per second, or max.")
@click.option("--limit", "--count", type=click.IntRange(1), help="Stop after that many messages.")
@click.option("--device", help="Device name and MQTT client identifier [default: replay-FILE].")
@click.option(
    "-V", "--protocol-version", "--mqtt", "mqtt", type=click.Choice(["3.1.1", "5"]), default="5", show_default=True
)
@click.option("--loop", "loops", is_flag=True, help="Recording: begin again at its end, until interrupted.")
@click.option("--prefix", default="", help="Recording: put this in front of every topic, for instance test/.")
@click.option("--columns", help="CSV: columns to publish, comma-separated [default: all].")
@click.option("--qos", type=click.IntRange(0, 2), help="CSV [default: 1].")
@click.option("--payload", type=click.Choice(["json", "cbor"]), help="CSV [default: json].")
@click.option("--retain", is_flag=True, help="CSV: publish retained.")
@common
def replay(file: Path, **options: Any) -> None:
    """Publish what a file holds, at the pace at which it was recorded.

    FILE is a recording of `edgedevices record`, whose messages keep topic, payload, QoS, RETAIN flag and client; or
    CSV, every row a message.
    """
    from edgedevices.traffic.recording import is_recording

    with one_line():
        if is_recording(file):
            replay_recording(file, **only(options, CSV_ALONE, f"{file} is a recording"))
        else:
            _replay_csv(file, **only(options, RECORDING_ALONE, f"{file} is no recording"))


def _replay_csv(
    file: Path, time_column: str | None, topic: str | None, speed: float | None, columns: str | None,
    limit: int | None, device: str | None, qos: int | None, payload: str | None, mqtt: str, retain: bool, **how: Any,
) -> None:  # fmt: skip
    from edgedevices.message import PayloadForm
    from edgedevices.replay import CsvFile, CsvReplay

    if time_column is None or topic is None:
        raise InputInvalid(f"{file} is no recording: for CSV give --time-column NAME and --topic TOPIC")
    rows = CsvFile(file, time_column)
    names = [name.strip() for name in columns.split(",")] if columns else []
    name = device or f"replay-{file.stem}"
    form = PayloadForm(payload or "json")
    source = CsvReplay(rows, name, topic, names, speed, limit, 1 if qos is None else qos, form, retain)
    if source.due_us is None:
        first_bad = f"; line {rows.bad_rows[0][0]}: {rows.bad_rows[0][1]}" if rows.bad_rows else ""
        raise InputInvalid(f"{file} has no usable row{first_bad}")

    def row_counts() -> dict[str, Any]:
        first_bad = [{"line": line, "reason": reason} for line, reason in rows.bad_rows[:5]]
        for row in first_bad:
            click.echo(f"edgedevices: {file} line {row['line']}: {row['reason']}", err=True)
        return {
            "rows": rows.rows_read,
            "bad_rows": rows.bad_count,
            "first_bad": first_bad,
            "late_rows": source.late_rows,
        }

    _run_one(source, name, mqtt, {"file": str(file)}, row_counts, **how)


def _run_one(
    source: Any, name: str, mqtt: str, head: dict[str, Any], tail: Callable[[], dict[str, Any]] = dict, **how: Any
) -> None:
    from edgedevices.session import DeviceDialect, DeviceIdentity

    _run([(source, DeviceIdentity(name, DeviceDialect(mqtt)))], head, tail, **how)


def _run(
    members: Sequence[tuple[MessageSource, DeviceIdentity]],
    head: dict[str, Any],
    tail: Callable[[], dict[str, Any]] = dict,
    *,
    brokers: tuple[str, ...],
    drain: float,
    as_json: bool,
    journal: Path | None,
    progress: bool | None,
    seed: int = 0,
    dropped_every: float | None = None,
    follow: bool = False,
    **access: Any,
) -> None:
    """Runs *members*, prints the summary, and exits. head, tail: fields of the summary; tail is called at the end."""
    from edgedevices.broker import BrokerAddress, BrokerCredentials
    from edgedevices.fleet import deal_out, live, make_run
    from edgedevices.ledger import MessageLedger
    from edgedevices.progress import progress_for

    with one_line(), journal_file(journal) as file:
        addresses = [BrokerAddress.parse(broker) for broker in brokers]
        credentials = BrokerCredentials.read(**access)
        ledger = MessageLedger(file)
        run = make_run(members, ledger, seed, round(drain * SECOND), microseconds(dropped_every))
        followers: dict[str, ReferenceFollower] | None = {} if follow else None
        live(run, addresses, progress_for(progress), access=credentials, followers=followers)
    devices_by_broker: dict[str, list[str]] = {}
    for name, address in deal_out(run.devices, addresses).items():
        devices_by_broker.setdefault(str(address), []).append(name)
    summary = {
        **head,
        "broker": ", ".join(map(str, addresses)),
        **({"dealt": devices_by_broker} if len(addresses) > 1 else {}),
        "seconds": run.seconds,
        "interrupted": run.interrupted,
        "never_connected": run.never_connected,
        **ledger.summary(),
        **({} if followers is None else {"followed": sum(one.followed for one in followers.values())}),
        **tail(),
    }
    end_run(summary, in_words, as_json, not ledger.failed.total() and not run.never_connected, file)


if __name__ == "__main__":
    main(prog_name="edgedevices")
