"""`edgebroker why`: shows where a message is, who received it, and why others did not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import ExistingPath, examples
from edgebroker.cli.why.account import LOG_DELAY, as_object, lines, move_line
from edgebroker.cli.why.trail import LogSet, MessageQuery
from edgebroker.runtime.settings import Settings


@click.command("why", epilog=examples("edgebroker why --client pump-3 --last 5 --log delivery-log"))
@click.argument("message", required=False)
@click.option("--client", metavar="ID", help="Messages of this publisher.")
@click.option("--topic", help="Messages to this topic.")
@click.option("--last", type=click.IntRange(1, 1_000), default=1, show_default=True, help="So many, the last ones.")
@click.option(
    "--log-dir",
    "--log",
    "folders",
    multiple=True,
    type=ExistingPath(),
    metavar="DIR",
    help="A delivery log; may be repeated, or hold those of several gateways in folders.",
)
@click.option("-c", "--config", type=click.Path(path_type=Path), metavar="FILE", help="Or: the gateway's settings.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object a line.")
def command(
    message: str | None,
    client: str | None,
    topic: str | None,
    last: int,
    folders: tuple[Path, ...],
    config: Path | None,
    as_json: bool,
) -> None:
    """Follow MESSAGE through delivery logs: who published it, who got it when, where it waits, why it was dropped.

    MESSAGE is an event of a federation, PUBLISHER-SEQUENCE; or a message of one run of a gateway, BOOT/NUMBER; or a
    trace id, or a whole traceparent. Without it --client and --topic say which, and the last such message is shown.
    Then follow the moves of its publisher to other gateways by plans (`edgebroker place`).

    Exit code 0 if everybody who was to get it has it, 1 if somebody has not or nothing is known of it, 2 if no log can
    be read.
    """
    query = MessageQuery.parse(message, client, topic)
    logs = LogSet(folders or (_log_of(config),))
    trails = logs.trails(query, last)
    moves = logs.moves({stop.publisher for trail in trails for stop in trail.stops} | ({client} if client else set()))
    for trail in trails:
        if as_json:
            own = [row for row in moves if row["publisher"] == trail.stops[0].publisher]
            click.echo(json.dumps(as_object(trail) | {"moves": own}, ensure_ascii=False))
        else:
            click.echo("\n".join(lines(trail, logs.nodes())))
    if not as_json:
        for row in moves:
            click.echo(move_line(row))
    if not trails:
        nodes = ", ".join(sorted(logs.nodes())) or "nobody"
        click.echo(f"no such message in the logs of {nodes}; {LOG_DELAY}, and QoS 0 may be sampled", err=True)
    sys.exit(2 if logs.log_reader.unreadable else 0 if trails and all(trail.has_arrived for trail in trails) else 1)


def _log_of(config: Path | None) -> Path:
    """Returns the delivery log that the settings in *config* name. Raises Refused."""
    if config is None:
        raise click.UsageError("which log? Give --log DIR, or --config FILE")
    folder = Settings.load(config, apart=True).log.dir
    if folder is None:
        raise Refused(f"{config}: a gateway with these settings writes no delivery log; set dir in [log]")
    return folder
