"""`edgebroker run`: runs a gateway until a signal stops it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import HttpAddress, HttpAddressType, examples
from edgebroker.runtime.loop.asyncio_without_ssl import import_asyncio
from edgebroker.runtime.settings import Settings, SettingsRefused
from edgebroker.runtime.settings.settings import COMMAND_LINE


class SettingsFileInvalid(Refused):
    """The settings file is invalid: to start again does not help until somebody edits it."""

    exit_code = os.EX_CONFIG  # 78; the units of deploy/ and of `init` do not restart after it


@click.command(
    "run",
    epilog=examples(
        "edgebroker run",
        "edgebroker run --config site/gateway.toml --log-level info",
        "edgebroker run --topology plant.toml --name gw-north --http 9883",
    ),
)
@click.option("--config", "-c", type=click.Path(path_type=Path), metavar="FILE", help="Settings (TOML); see `check`.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", "-p", type=int, help="Port to listen on; 0 takes a free one.  [default: 1883]")
@click.option("--log-dir", type=click.Path(path_type=Path), help="Write the delivery log into this directory.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep sessions, queues and retained messages there.  [default: a folder of this user's state]",
)
@click.option("--memory", is_flag=True, help="Keep nothing between runs.")
@click.option(
    "--topology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Be a gateway of the federation in this file; see `topology`.",
)
@click.option("--insecure-peers", is_flag=True, help="Believe peers beyond this machine without TLS.")
@click.option("--name", help="What this gateway is called, in the topology too.  [default: gateway]")
@click.option("--http", type=HttpAddressType(), help="Answer /metrics, /health and /status there; 0: a free port.")
@click.option(
    "--log-level", metavar="LEVEL", help="Tell this and worse: error, warning, info, debug.  [default: warning]"
)
@click.option("--log-format", metavar="FORM", help="How it is told on standard error: text, json.  [default: text]")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object a line.")
def command(
    config: Path | None,
    host: str | None,
    port: int | None,
    log_dir: Path | None,
    data: Path | None,
    memory: bool,
    topology: Path | None,
    insecure_peers: bool,
    name: str | None,
    http: HttpAddress | None,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
) -> None:
    """Run a gateway: an MQTT 3.1.1 and 5 broker that filters by content.

    Options on the command line come before those in the settings file. SIGTERM and SIGINT say good-bye to all clients,
    finish the delivery log and print what became of every message. Exit code 0 after that, 2 if it could not start, 78
    if the settings file is wrong, so that it could not start at another time either.

    SIGHUP reads settings and the files they name again, and prints what holds now, what needs a restart, or why nothing
    has changed.
    """

    def read() -> Settings:
        settings = Settings.load(config, apart=True) if config else Settings.defaults()
        return settings.overridden(
            host=host,
            port=port,
            log_dir=log_dir,
            data=data,
            durability="memory" if memory else None,
            http=http,
            log_level=log_level,
            log_format=log_format,
            name=name,
            topology=topology,
            insecure=True if insecure_peers else None,
        )

    settings = _read_first(read)
    for directory in (settings.log.dir, settings.data.dir):
        if directory is not None:
            _check_usable(directory)
    # Imported modules stay. To search them for garbage took a tenth of the time until the gateway listens.
    gc.disable()
    import_asyncio()
    from edgebroker.cli.serving import serve

    serve(settings, read, as_json)


def _read_first(read: Callable[[], Settings]) -> Settings:
    """Returns the result of *read*. Raises SettingsFileInvalid; SettingsRefused if the next start may succeed."""
    try:
        return read()
    except SettingsRefused as refused:
        is_read = not isinstance(refused.__cause__, OSError)  # otherwise it may be on a disk that is not mounted yet
        if is_read and all(problem.file != COMMAND_LINE for problem in refused.problems):
            raise SettingsFileInvalid(str(refused)) from refused
        raise


def _check_usable(directory: Path) -> None:
    """Creates *directory* if it does not exist. Raises Refused if it cannot be created, read and written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise Refused(f"cannot use the directory {directory}: it is a file") from error
    except OSError as error:
        raise Refused(f"cannot make the directory {directory}: {error.strerror}") from error
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise Refused(f"cannot use the directory {directory}: permission denied")
