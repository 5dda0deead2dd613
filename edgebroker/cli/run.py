"""`edgebroker run`: a gateway, until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.httpaddress import HttpAddress, HttpAddressType
from edgebroker.errors import SettingsInvalid
from edgebroker.world.gateway import Gateway
from edgebroker.world.loop import run
from edgebroker.world.operatorlog import Level, OperatorLog, as_journal, as_text
from edgebroker.world.operatorlog import as_json as as_json_lines
from edgebroker.world.outlet import Outlet, is_journal
from edgebroker.world.reload import rejected
from edgebroker.world.settings import Settings
from edgebroker.world.systemd import Systemd

STOPPING = (signal.SIGTERM, signal.SIGINT)


@click.command("run")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings (TOML); see `check`.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.  [default: 1883]")
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
    name: str | None,
    http: HttpAddress | None,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
) -> None:
    """Run a gateway: an MQTT 3.1.1 and 5 broker that filters by content.

    Options on the command line come before those in the settings file. SIGTERM and SIGINT say good-bye to all clients,
    finish the delivery log and print what became of every message. Exit code 0 after that, 2 if it could not start.
    SIGHUP reads settings and the files they name again, and prints what holds now, what needs a restart, or why nothing
    has changed.
    """

    def read() -> Settings:
        settings = Settings.load(config) if config else Settings.defaults()
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
        )

    settings = read()
    for directory in (settings.log.dir, settings.data.dir):
        if directory is not None:
            _must_be_usable(directory)
    run(_serve(settings, read, as_json))


async def _serve(settings: Settings, read: Callable[[], Settings], as_json: bool) -> None:
    outlet = Outlet()
    form = as_json_lines if settings.notices.format == "json" else as_journal if is_journal() else as_text
    log = OperatorLog(outlet.write, Level[settings.notices.level.upper()], form)
    gateway = Gateway(settings, tell=log.line, notices=log)
    gateway.pulse.each_beat(outlet.flush)
    systemd = Systemd()
    if systemd.is_there:
        gateway.pulse.each_beat(systemd.alive)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: log.unexpected(context))
    for name in STOPPING:
        loop.add_signal_handler(name, stopping.set)
    hung_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)
    listeners = await gateway.start()
    # What was imported and built until now stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    if as_json:
        described = [listener.described() for listener in listeners]
        said = {"event": "listening", **described[0], "pid": os.getpid(), "listeners": described}
        if gateway.store is not None:
            said["data"] = str(gateway.store.folder)
        if gateway.peering is not None:
            said["overlay"] = gateway.peering.described()
        if gateway.http_address is not None:
            said["http"] = HttpAddress(*gateway.http_address)._asdict()
        _say(json.dumps(said))
    else:
        for listener in listeners:
            _say(f"edgebroker listens on {listener}")
        if gateway.peering is not None:
            _say(f"gateway {gateway.peering}")
        if gateway.http_address is not None:
            _say(f"metrics, health and status: http://{HttpAddress(*gateway.http_address)}")
        if hint := next((listener.hint for listener in listeners if listener.hint), ""):
            _say(f"try: mosquitto_sub {hint} -t '$filter/temp%3E30/sensors/#' -v")
        if gateway.store is not None:
            _say(f"sessions that are to last, and what they were promised, are kept in {gateway.store.folder}")
    status = f"listens on {', '.join(map(str, listeners))}"
    systemd.ready(status)

    async def reload_and_say() -> None:
        systemd.reloading()
        try:
            await _reload(gateway, read, as_json)
        finally:
            systemd.ready(status)

    reloading = asyncio.create_task(_whenever(hung_up, reload_and_say))
    await stopping.wait()
    systemd.stopping()
    reloading.cancel()
    await gateway.stop()
    await outlet.drain()
    accounts = gateway.accounts()
    for name in STOPPING:  # all is done: another signal shall not spoil the exit code while the interpreter ends
        loop.remove_signal_handler(name)
        signal.signal(name, signal.SIG_IGN)
    if as_json:
        _say(json.dumps({"event": "stopped", **accounts}))
    else:
        _say("stopped: " + ", ".join(f"{name} {count}" for name, count in accounts.items() if count))


async def _whenever(told: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
    """Do *work* each time it is *told*, one after the other."""
    while True:
        await told.wait()
        told.clear()
        await work()


async def _reload(gateway: Gateway, read: Callable[[], Settings], as_json: bool) -> None:
    """Read the settings again, and say what became of it."""
    try:
        outcome = await gateway.reload(read())
    except SettingsInvalid as error:
        outcome = rejected(error)
    except Exception as error:  # the gateway goes on, and so does whoever asks again
        message = "edgebroker: a reload is given up"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        return
    for line in [json.dumps(outcome.as_json())] if as_json else outcome.lines():
        _say(line)


def _say(line: str) -> None:
    """Print *line*. Whoever read us may have gone (`edgebroker run | head -1`); that is no reason to stop serving."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _must_be_usable(directory: Path) -> None:
    """Make *directory* if need be. Raises Refused if it cannot be made, read and written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise Refused(f"cannot use the directory {directory}: it is a file") from error
    except OSError as error:
        raise Refused(f"cannot make the directory {directory}: {error.strerror}") from error
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise Refused(f"cannot use the directory {directory}: permission denied")
