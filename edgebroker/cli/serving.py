"""A gateway as a process: its lines on standard output, and the signals that it handles."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
from collections.abc import Awaitable, Callable

from edgebroker.cli.http_address import HttpAddress
from edgebroker.errors import SettingsInvalid
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.listeners.listeners import Listeners
from edgebroker.runtime.loop.gc import GarbageCollector
from edgebroker.runtime.loop.loop import run
from edgebroker.runtime.nonblocking_writer import NonblockingWriter, is_journal
from edgebroker.runtime.operator_log import Level, OperatorLog, as_journal, as_text
from edgebroker.runtime.operator_log import as_json as as_json_lines
from edgebroker.runtime.reload import ReloadOutcome, rejected_outcome
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.systemd import Systemd


class StdoutWriter:
    """Says lines. Whatever becomes of standard output, it neither fails nor waits.

    A disk that is full, or a device that takes nothing, is told in the log, with what was to be said. That nobody reads
    us (`edgebroker run | head -1`) is somebody's wish, and told to nobody.
    """

    def __init__(self, log: OperatorLog) -> None:
        self._log = log
        self._outlet = NonblockingWriter(1, self._unsaid)

    def say(self, line: str) -> None:
        """Print *line*, now or as soon as it is taken."""
        self._outlet.write(line.encode("utf-8", "replace") + b"\n")

    def flush(self) -> None:
        """Print what waits, as far as it is taken."""
        self._outlet.flush()

    async def drain(self) -> None:
        """At the end, give whoever reads us a while to take what waits."""
        await self._outlet.drain()

    def _unsaid(self, line: bytes, error: OSError | None) -> None:
        if error is not None:
            said = line.decode("utf-8", "replace").rstrip("\n")
            self._log.log(Level.WARNING, "unsaid", f"standard output cannot be written ({error.strerror}): {said}")


STOPPING = (signal.SIGTERM, signal.SIGINT)


def serve(settings: Settings, read: Callable[[], Settings], as_json: bool) -> None:
    """Run a gateway until it is told to stop. *read* reads its settings again."""
    _hold_standard_descriptors()
    run(_serve(settings, read, as_json))


def _hold_standard_descriptors() -> None:
    """The number of one that is closed (`2>&-`) would be given to a file or a client, who then gets what we say."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one


async def _serve(settings: Settings, read: Callable[[], Settings], as_json: bool) -> None:
    faulthandler.enable(2)  # a watchdog ends a loop that hangs with SIGABRT: the journal shows where it hung
    outlet = NonblockingWriter()
    form = as_json_lines if settings.notices.format == "json" else as_journal if is_journal() else as_text
    log = OperatorLog(outlet.write, Level[settings.notices.level.upper()], form)
    voice = StdoutWriter(log)
    hung_up, loop = asyncio.Event(), asyncio.get_running_loop()
    # Before the journal is read, which may take minutes: SIGHUP ends who does not listen; for systemd that is clean.
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)
    gateway = Gateway(settings, tell=log.log_line, notices=log)
    gateway.lag_monitor.on_each_beat(outlet.flush)
    gateway.lag_monitor.on_each_beat(voice.flush)
    systemd = Systemd()
    if systemd.is_there:
        gateway.lag_monitor.on_each_beat(systemd.alive)
    stopping = asyncio.Event()
    loop.set_exception_handler(lambda _, context: log.log_unexpected(context))
    for name in STOPPING:
        loop.add_signal_handler(name, stopping.set)
    listeners = await gateway.start()
    GarbageCollector().install()
    if as_json:
        described = [listener.described() for listener in listeners]
        said = {"event": "listening", **described[0], "pid": os.getpid(), "listeners": described}
        if gateway.store is not None:
            said["data"] = str(gateway.store.folder)
        if gateway.peer_manager is not None:
            said["overlay"] = gateway.peer_manager.described()
        if gateway.http_address is not None:
            said["http"] = HttpAddress(*gateway.http_address)._asdict()
        voice.say(json.dumps(said))
    else:
        for listener in listeners:
            voice.say(f"edgebroker listens on {listener}")
        if gateway.peer_manager is not None:
            voice.say(f"gateway {gateway.peer_manager}")
        if gateway.http_address is not None:
            voice.say(f"metrics, health and status: http://{HttpAddress(*gateway.http_address)}")
        if hint := next((listener.hint for listener in listeners if listener.hint), ""):
            voice.say(f"try: mosquitto_sub {hint} -t '$filter/temp%3E30/sensors/#' -v")
        if gateway.store is not None:
            voice.say(f"sessions that are to last, and what they were promised, are kept in {gateway.store.folder}")
    systemd.ready(_status(listeners))

    one_at_a_time = asyncio.Lock()

    async def reload_and_say() -> ReloadOutcome | None:
        async with one_at_a_time:
            systemd.reloading()
            taken = False
            try:
                outcome = await _reload(gateway, read, voice.say, as_json)
                taken = outcome is not None and not outcome.problems and not outcome.rejected
                return outcome
            finally:
                systemd.ready(f"{'' if taken else 'the last reload was rejected; '}{_status(listeners)}")

    if gateway.http_address is not None:
        gateway.view.reload = reload_and_say
    reloading = asyncio.create_task(_whenever(hung_up, reload_and_say))
    await stopping.wait()
    systemd.stopping()
    reloading.cancel()
    await gateway.stop()
    accounts = gateway.accounts()
    for name in STOPPING:  # all is done: another signal shall not spoil the exit code while the interpreter ends
        loop.remove_signal_handler(name)
        signal.signal(name, signal.SIG_IGN)
    if as_json:
        voice.say(json.dumps({"event": "stopped", **accounts}))
    else:
        counted = [f"{name} {count}" for name, count in accounts.items() if count]
        voice.say(f"stopped: {', '.join(counted) or 'nothing was published'}")
    await voice.drain()
    log.flush()
    await outlet.drain()


def _status(listeners: Listeners) -> str:
    """What `systemctl status` shows: a reload may have opened other listeners."""
    return f"listens on {', '.join(map(str, listeners))}"


async def _whenever(told: asyncio.Event, work: Callable[[], Awaitable[object]]) -> None:
    """Do *work* each time it is *told*, one after the other."""
    while True:
        await told.wait()
        told.clear()
        await work()


async def _reload(
    gateway: Gateway, read: Callable[[], Settings], say: Callable[[str], None], as_json: bool
) -> ReloadOutcome | None:
    """Read the settings again, and *say* what became of it. None if that is our fault, which is told."""
    try:
        outcome = await gateway.reload(await asyncio.to_thread(read))  # the clients have their turns meanwhile
    except SettingsInvalid as error:
        outcome = rejected_outcome(error)
    except Exception as error:  # the gateway goes on, and so does whoever asks again
        message = "edgebroker: a reload is given up"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        return None
    if as_json:
        say(json.dumps(outcome.as_json()))
    else:
        prefix = "<4>" if (outcome.problems or outcome.rejected) and is_journal(1) else ""  # a warning for journald
        for line in outcome.lines():
            say(prefix + line)
    return outcome
