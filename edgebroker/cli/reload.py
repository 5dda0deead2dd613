"""`edgebroker reload`: have a running gateway read its settings again, and see what became of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from edgebroker.cli.http_address import HttpAddress
from edgebroker.cli.http_client import gateway_endpoint, gateway_options, post_json
from edgebroker.runtime.reload import rejected_outcome
from edgebroker.runtime.settings import Settings, SettingsRefused


@click.command("reload")
@gateway_options
def command(http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Have a running gateway read its settings again, and the files they name, as SIGHUP does, and show the outcome.

    What needs a restart is said, and what is wrong: then the settings of before still hold.

    Exit code 0 if all was taken, 1 if the settings, or a bridge among them, were rejected, 2 if the gateway does not
    answer.
    """
    found = _refused(config) if config is not None and config.is_file() else {}
    found = found or post_json(gateway_endpoint(http, config, token_file), "/reload")
    click.echo(json.dumps(found) if as_json else "\n".join(found["lines"]))
    sys.exit(0 if found["taken"] and not found["rejected"] else 1)


def _refused(config: Path) -> dict[str, Any]:
    """What a gateway would answer to settings by which it cannot even be found; empty if they are in order."""
    try:
        Settings.load(config, apart=True)
    except SettingsRefused as refused:
        outcome = rejected_outcome(refused)
        return outcome.as_json() | {"lines": list(outcome.lines())}
    return {}
