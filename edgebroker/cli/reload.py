"""`edgebroker reload`: have a running gateway read its settings again, and see what became of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from edgebroker.cli.httpaddress import HttpAddress
from edgebroker.cli.inquiry import gateway_options, inquiree, order


@click.command("reload")
@gateway_options
def command(http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Have a running gateway read its settings again, and the files they name, as SIGHUP does, and show the outcome.

    What needs a restart is said, and what is wrong: then the settings of before still hold.

    Exit code 0 if all was taken, 1 if the settings, or a bridge among them, were rejected, 2 if the gateway does not
    answer.
    """
    found = order(inquiree(http, config, token_file), "/reload")
    click.echo(json.dumps(found) if as_json else "\n".join(found["lines"]))
    sys.exit(0 if found["taken"] and not found["rejected"] else 1)
