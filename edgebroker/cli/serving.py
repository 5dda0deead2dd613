"""A gateway as a process: its lines on standard output, and the signals that it handles."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from edgebroker import PURE_COSTS
from edgebroker.cli.parameters import HttpAddress
from edgebroker.errors import SettingsInvalid
from edgebroker.matching.kernel import IS_COMPILED
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.listeners.listeners import HOW_TO_LET_IN, Listeners, has_way_in, no_way_in
from edgebroker.runtime.loop.loop import run
from edgebroker.runtime.nonblocking_writer import NonblockingWriter, is_journal
from edgebroker.runtime.operator_log import Level, OperatorLog, as_journal, as_text
from edgebroker.runtime.operator_log import as_json as as_json_lines
from edgebroker.runtime.process import GarbageCollector
from edgebroker.runtime.reload import ReloadOutcome, rejected_outcome
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.sections import AccessSettings
from edgebroker.runtime.systemd import Systemd


class StdoutWriter:
    """Writes lines to standard output; it neither fails nor blocks.

    If a disk is full or a device fails, the line goes into the operator's log. That nobody reads the output
    (`edgebroker run | head -1`) is intended by the user, and not logged.
    """

    def __init__(self, operator_log: OperatorLog) -> None:
        self._operator_log = operator_log
        self._writer = NonblockingWriter(1, self._log_loss)

    def say(self, line: str) -> None:
        """Prints *line*, now or as soon as standard output accepts it."""
        self._writer.write(line.encode("utf-8", "replace") + b"\n")

    def flush(self) -> None:
        """Prints what waits, as far as standard output accepts it."""
        self._writer.flush()

    async def drain(self) -> None:
        """Tries for a while to print what waits, at the end of the process."""
        await self._writer.drain()

    def _log_loss(self, line: bytes, error: OSError | None) -> None:
        if error is not None:
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._operator_log.log(
                Level.WARNING, "unsaid", f"standard output cannot be written ({error.strerror}): {text}"
            )


STOPPING = (signal.SIGTERM, signal.SIGINT)
IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
"""Mosquitto does something at these; a script that is left over from it must not end a gateway."""


def serve(settings: Settings, read: Callable[[], Settings], as_json: bool) -> None:
    """Runs a gateway until a signal stops it. *read* reads its settings again."""
    _open_standard_descriptors()
    run(_serve(settings, read, as_json))


def _open_standard_descriptors() -> None:
    """Opens standard descriptors that are closed (`2>&-`): a file or a client would get their numbers, and our
    output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one


async def _serve(settings: Settings, read: Callable[[], Settings], as_json: bool) -> None:
    faulthandler.enable(2)  # the watchdog aborts a loop that hangs with SIGABRT: the journal shows where
    stderr = NonblockingWriter()
    line_format = as_json_lines if settings.notices.format == "json" else as_journal if is_journal() else as_text
    operator_log = OperatorLog(stderr.write, Level[settings.notices.level.upper()], line_format)
    stdout = StdoutWriter(operator_log)
    sighup, loop = asyncio.Event(), asyncio.get_running_loop()
    # Before the journal is read, which may take minutes: SIGHUP would end the process.
    loop.add_signal_handler(signal.SIGHUP, sighup.set)
    for name in IGNORED:
        signal.signal(name, signal.SIG_IGN)
    gateway = Gateway(settings, tell=operator_log.log_line, notices=operator_log)
    gateway.lag_monitor.on_each_beat(stderr.flush)
    gateway.lag_monitor.on_each_beat(stdout.flush)
    systemd = Systemd()
    if systemd.is_there:
        gateway.lag_monitor.on_each_beat(systemd.alive)
    stopping = asyncio.Event()
    loop.set_exception_handler(lambda _, context: operator_log.log_unexpected(context))
    for name in STOPPING:
        loop.add_signal_handler(name, stopping.set)
    listeners = await gateway.start()
    GarbageCollector().install()
    if as_json:
        stdout.say(json.dumps(_start_object(gateway, listeners)))
    else:
        for line in _start_lines(gateway, listeners, settings.access):
            stdout.say(line)
    systemd.ready(_status(listeners))

    reload_lock = asyncio.Lock()

    async def reload_and_say() -> ReloadOutcome | None:
        async with reload_lock:
            systemd.reloading()
            is_taken = False
            try:
                outcome = await _reload(gateway, read, stdout.say, as_json)
                is_taken = outcome is not None and not outcome.problems and not outcome.rejected
                return outcome
            finally:
                systemd.ready(f"{'' if is_taken else 'the last reload was rejected; '}{_status(listeners)}")

    if gateway.http_address is not None:
        gateway.view.reload = reload_and_say
    reload_task = asyncio.create_task(_run_on_event(sighup, reload_and_say))
    await stopping.wait()
    systemd.stopping()
    reload_task.cancel()
    await gateway.stop()
    accounts = gateway.accounts()
    for name in STOPPING:  # another signal must not change the exit code while the interpreter ends
        loop.remove_signal_handler(name)
        signal.signal(name, signal.SIG_IGN)
    if as_json:
        stdout.say(json.dumps({"event": "stopped", **accounts}))
    else:
        counted = [f"{name} {count}" for name, count in accounts.items() if count]
        stdout.say(f"stopped: {', '.join(counted) or 'nothing was published'}")
    await stdout.drain()
    operator_log.flush()
    await stderr.drain()


def _start_object(gateway: Gateway, listeners: Listeners) -> dict[str, Any]:
    """Returns the addresses and the data folder of a gateway that has started, for programs."""
    described = [listener.described() for listener in listeners]
    start = {"event": "listening", **described[0], "pid": os.getpid(), "listeners": described, "compiled": IS_COMPILED}
    if gateway.store is not None:
        start["data"] = str(gateway.store.folder)
    if gateway.peer_manager is not None:
        start["overlay"] = gateway.peer_manager.described()
    if gateway.http_address is not None:
        start["http"] = HttpAddress(*gateway.http_address)._asdict()
    return start


def _start_lines(gateway: Gateway, listeners: Listeners, access: AccessSettings) -> Iterator[str]:
    """Yields the addresses and the data folder of a gateway that has started, for people."""
    for listener in listeners:
        yield f"edgebroker listens on {listener}"
    if closed := [
        listener.label
        for listener in listeners
        if not has_way_in(listener.settings, listener.context.is_anonymous, access)
    ]:
        where = ", ".join(closed)
        yield no_way_in(where)
        yield from HOW_TO_LET_IN
    if gateway.peer_manager is not None:
        yield f"gateway {gateway.peer_manager}"
    if gateway.http_address is not None:
        yield f"metrics, health and status: http://{HttpAddress(*gateway.http_address)}"
    if hint := next((listener.hint for listener in listeners if listener.hint), ""):
        yield f"try: mosquitto_sub {hint} -t '$filter/temp%3E30/sensors/#' -v"
    if gateway.store is not None:
        yield f"sessions that are to last, and what they were promised, are kept in {gateway.store.folder}"
    if not IS_COMPILED:
        yield f"pure Python: {PURE_COSTS}"


def _status(listeners: Listeners) -> str:
    """Returns what `systemctl status` shows; a reload may have changed the listeners."""
    return f"listens on {', '.join(map(str, listeners))}"


async def _run_on_event(event: asyncio.Event, action: Callable[[], Awaitable[object]]) -> None:
    """Runs *action* each time *event* is set, one after the other."""
    while True:
        await event.wait()
        event.clear()
        await action()


async def _reload(
    gateway: Gateway, read: Callable[[], Settings], say: Callable[[str], None], as_json: bool
) -> ReloadOutcome | None:
    """Reads the settings again, and prints the outcome. Returns None after an unexpected error, which is logged."""
    try:
        outcome = await gateway.reload(await asyncio.to_thread(read))  # in a thread: clients are served meanwhile
    except SettingsInvalid as error:
        outcome = rejected_outcome(error)
    except Exception as error:  # the gateway continues, and the reload may be tried again
        message = "edgebroker: a reload is given up"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        return None
    if as_json:
        say(json.dumps(outcome.as_json()))
    else:
        prefix = "<4>" if (outcome.problems or outcome.rejected) and is_journal(1) else ""  # a warning, for journald
        for line in outcome.lines():
            say(prefix + line)
    return outcome
