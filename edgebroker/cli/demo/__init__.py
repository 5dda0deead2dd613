"""`edgebroker demo`: a gateway, devices and subscribers on this machine, and two audits of what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.connection import run
from edgebroker.cli.demo.play import Plan, Play, clear
from edgebroker.cli.demo.view import view_for
from edgebroker.cli.demo.wishes import WISHES
from edgebroker.errors import EdgebrokerError

__all__ = ["command"]

EXIT_FAILED: Final = 1
NEEDED: Final = {"paho": "sim", "psutil": "sim", "pyspark": "analytics", "pyarrow": "analytics"}
"""Package -> the extra that brings it. Only the processes we start import them."""


@click.command("demo", short_help="A gateway, devices, subscribers and a report, in one go.")
@click.option(
    "--seconds", type=click.FloatRange(1, 3_600), default=20.0, show_default=True, help="How long to publish."
)
@click.option("--devices", type=click.IntRange(1, 1_000), default=40, show_default=True, help="Simulated devices.")
@click.option(
    "--rate", type=click.FloatRange(0.1, 100), default=5.0, show_default=True, help="Messages per second and device."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Same seed, same messages of the devices.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Where logs, journals and the report go; an earlier demo's files in it are replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object at the end.")
def command(seconds: float, devices: int, rate: float, seed: int, folder: Path, as_json: bool) -> None:
    """Run a gateway with devices and five subscribers, stop them, and account for every message.

    Two audits must agree: one compares what the devices noted with what the subscribers received and asks the broker
    nothing; the other is the Spark report on the broker's delivery log.

    Exit code: 0 if both find no loss, duplicate or wrong delivery; 1 otherwise; 2 if the demo cannot run here.
    """
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        extras = ",".join(sorted({NEEDED[package] for package in missing}))
        raise Refused(f"the demo needs {', '.join(missing)}: pip install 'edgebroker[{extras}]'")
    try:
        clear(folder)
    except OSError as error:
        raise Refused(f"--dir: cannot write in {folder}: {error.strerror}") from None
    run(_play(Plan(seconds, devices, rate, seed, folder), as_json))


async def _play(plan: Plan, as_json: bool) -> int:
    # A closed terminal ends us as SIGTERM does; our processes have left the terminal and would go on for ever.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM)
    view = view_for(WISHES)
    try:
        outcome = await Play(plan, view).run()
    except EdgebrokerError as error:
        view.close()
        if as_json:
            click.echo(json.dumps({"ok": False, "problems": [str(error)]}, ensure_ascii=False))
        click.echo(f"edgebroker: the demo failed: {error}", err=True)
        return EXIT_FAILED
    finally:
        view.close()
    if as_json:
        click.echo(json.dumps(outcome.as_object(), ensure_ascii=False))
    else:
        click.echo("\n".join(outcome.lines()))
    return EXIT_FAILED if outcome.problems() else 0
