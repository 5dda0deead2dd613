"""`edgebroker status`: shows the status of a gateway, once."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import click

from edgebroker.cli.http_address import HttpAddress, HttpAddressType
from edgebroker.cli.http_client import gateway_endpoint, get_json, token_file_option
from edgebroker.cli.overview import SORTS, overview, table
from edgebroker.cli.parameters import WordChoice

ROWS = 10
WIDTH_MAX = 120


@click.command("status")
@click.option("--http", type=HttpAddressType(), help="Where the gateway is asked.  [default: 127.0.0.1:9883]")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Or: the gateway's settings.")
@token_file_option
@click.option("--sort", type=WordChoice(list(SORTS)), default="queue", show_default=True, help="Clients by this.")
@click.option("--json", "as_json", is_flag=True, help="For programs: the answer of /status as it is.")
def command(http: HttpAddress | None, config: Path | None, token_file: Path | None, sort: str, as_json: bool) -> None:
    """Show how a running gateway is: totals since its start, and the clients that stand out.

    Exit code 0 if it is well, 1 if it says that it is not, 2 if it does not answer.
    """
    answer = get_json(gateway_endpoint(http, config, token_file), "/status", sort=sort, limit=ROWS)
    if as_json:
        click.echo(json.dumps(answer))
    else:
        width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
        click.echo("\n".join([*overview(answer, None, width), "", *table(answer, width, ROWS, sort)]))
    sys.exit(0 if answer["health"]["status"] == "ok" else 1)
