"""`edgedevices record`, and `edgedevices replay` of a recording. Exit codes as in `edgedevices`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from edgedevices import InputInvalid
from edgedevices.options import access_options, duration, end_run, in_words, journal_file, one_line, print_line

CSV_ALONE: Final = {
    "time_column": "--time-column",
    "topic": "--topic",
    "columns": "--columns",
    "qos": "--qos",
    "payload": "--payload",
    "retain": "--retain",
}
"""Options of `replay` whose values a recording has: parameter -> option name."""
RECORDING_ALONE: Final = {"loops": "--loop", "prefix": "--prefix"}


@click.command(epilog="\b\nExample:\n  edgedevices record traffic.edl --topic 'sensors/#' --seconds 60")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--topic", "topics", multiple=True, default=("#",), show_default=True, help="What to record; repeatable.")
@click.option("--seconds", type=duration, help="Stop after that long [default: when interrupted].")
@click.option("--messages", type=click.IntRange(1), help="Stop after that many messages.")
@click.option("--qos", type=click.IntRange(0, 2), default=2, show_default=True, help="Ask for at most this QoS.")
@click.option("--client-level", type=click.IntRange(1), help="The topic level, from 1, that names the publisher.")
@click.option("--client-property", help="The MQTT 5 user property that names the publisher.")
@click.option("--no-retained", is_flag=True, help="Leave out what the broker had stored before.")
@click.option(
    "-V", "--protocol-version", "--mqtt", "mqtt", type=click.Choice(["3.1.1", "5"]), default="5", show_default=True
)
@access_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@click.option("--broker", default="127.0.0.1:1883", show_default=True, metavar="HOST:PORT")
def record(
    file: Path, topics: tuple[str, ...], seconds: float | None, messages: int | None, qos: int,
    client_level: int | None, client_property: str | None, no_retained: bool, mqtt: str, as_json: bool, broker: str,
    **access: Any,
) -> None:  # fmt: skip
    """Record the traffic of a broker in FILE (.edl): topics, payloads, QoS, RETAIN flags, times, MQTT 5 properties."""
    from edgedevices.broker import BrokerAddress, BrokerCredentials
    from edgedevices.session import DeviceDialect
    from edgedevices.traffic.recorder import Recorder, RecordOptions

    with one_line():
        if client_level is not None and client_property is not None:
            raise InputInvalid("--client-level and --client-property both name the publisher; give one")
        if client_property is not None and DeviceDialect(mqtt) is DeviceDialect.V311:
            raise InputInvalid(
                "--client-property needs --mqtt 5: 3.1.1 has no user properties; --client-level names a topic level"
            )
        address = BrokerAddress.parse(broker)
        allowed = BrokerCredentials.read(**access)
        address.check_reachable()
        wanted = RecordOptions(topics, qos, client_level, client_property, no_retained, seconds, messages)

        try:
            summary = Recorder(address, DeviceDialect(mqtt), allowed, wanted, file, print_line).live()
        except OSError as error:
            raise InputInvalid(f"cannot write {file}: {error.strerror or error}") from error
    end_run(summary, _summary_text, as_json, not summary["too_large"] and not summary["losses"])


def _summary_text(summary: dict[str, Any]) -> str:
    from edgedevices.traffic.recorder import gap_text

    per_qos = ", ".join(f"{number:,} of QoS {qos}" for qos, number in summary["qos"].items())
    lines = [
        f"{summary['messages']:,} messages recorded in {summary['seconds']:.1f} s"
        + (f": {per_qos}" if per_qos else "")
        + f"; {summary['payload_bytes']:,} bytes of payload in {summary['file_bytes']:,} bytes of file"
    ]
    lines += [f"  line lost, {reason}: {number:,}" for reason, number in summary["losses"].items()]
    lines += [
        f"  deaf for {gap['seconds']:.1f} s, {gap['at_s']:.1f} s after the start: {gap_text(gap['session_kept'])}"
        for gap in summary["gaps"]
    ]
    if summary["too_large"]:
        lines.append(f"  messages too large to record: {summary['too_large']:,}")
    return "\n".join(lines)


def replay_recording(
    file: Path,
    *,
    speed: float | None,
    limit: int | None,
    device: str | None,
    mqtt: str,
    loops: bool,
    prefix: str,
    brokers: tuple[str, ...],
    as_json: bool,
    journal: Path | None,
    progress: bool | None,
    drain: float,
    **access: Any,
) -> None:
    """Plays a recording to one broker, prints the summary, and exits. Raises DeviceError."""
    from edgedevices.broker import BrokerAddress, BrokerCredentials
    from edgedevices.ledger import MessageLedger
    from edgedevices.progress import progress_for
    from edgedevices.session import DeviceDialect
    from edgedevices.traffic.playback import Playback, PlaybackOptions
    from edgedevices.traffic.recording import RecordFile

    if len(brokers) > 1:
        raise InputInvalid("a recording goes to one broker; give --broker once")
    address = BrokerAddress.parse(brokers[0])
    allowed = BrokerCredentials.read(**access)
    recording = RecordFile(file)
    for damage in recording.damage:
        click.echo(f"edgedevices: {file}: {damage}", err=True)
    address.check_reachable()
    manner = PlaybackOptions(speed, loops, limit, prefix, device or f"replay-{file.stem}", DeviceDialect(mqtt), drain)
    with journal_file(journal) as written:
        ledger = MessageLedger(written)
        result = Playback(recording, ledger, manner, allowed, print_line).live(address, progress_for(progress))
    summary = {
        "file": str(file),
        "recorded": recording.messages,
        "recorded_s": round(recording.length_us / 1e6, 3),
        "damage": len(recording.damage),
        "broker": str(address),
        **result,
        **ledger.summary(),
    }
    failed = ledger.failed.total() or result["never_connected"] or result["not_publishable"] or recording.damage
    end_run(summary, in_words, as_json, not failed, written)
