"""`edgebroker reload`: makes a running gateway read its settings again, and shows the outcome."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from edgebroker.cli.http_client import GatewayOptions, gateway_options, post_json
from edgebroker.cli.parameters import examples
from edgebroker.runtime.reload import rejected_outcome
from edgebroker.runtime.settings import Settings, SettingsRefused


@click.command("reload", epilog=examples("edgebroker reload --config gateway.toml"))
@gateway_options()
def command(gateway: GatewayOptions, as_json: bool) -> None:
    """Have a running gateway read its settings again, and the files they name, as SIGHUP does, and show the outcome.

    What needs a restart is said, and what is wrong: then the settings of before still hold.

    Exit code 0 if all was taken, 1 if the settings, or a bridge among them, were rejected, 2 if the gateway does not
    answer.
    """
    answer = _rejected_settings(gateway.config) if gateway.config is not None and gateway.config.is_file() else {}
    answer = answer or post_json(gateway.endpoint(), "/reload")
    click.echo(json.dumps(answer) if as_json else "\n".join(answer["lines"]))
    sys.exit(0 if answer["taken"] and not answer["rejected"] else 1)


def _rejected_settings(config: Path) -> dict[str, Any]:
    """Returns the gateway's answer to invalid settings, which may not even name its address; empty if they are
    valid.
    """
    try:
        Settings.load(config, apart=True)
    except SettingsRefused as refused:
        outcome = rejected_outcome(refused)
        return outcome.as_json() | {"lines": list(outcome.lines())}
    return {}
