"""Many devices in one process: each source feeds its line, all lines share one asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from time import monotonic

from edgebroker.instants import SECOND
from edgedevices.address import Address
from edgedevices.errors import BrokerUnreachable
from edgedevices.identity import Identity
from edgedevices.interrupt import all_or, signals
from edgedevices.ledger import Ledger
from edgedevices.line import Line
from edgedevices.message import Source
from edgedevices.progress import Progress

FIRST_CONNECTION_TIMEOUT_S = 30.0  # a thousand devices connect in two seconds; who needs longer will not come
GOODBYE_TIMEOUT_S = 5.0  # for DISCONNECT and the wiping of 3.1.1 sessions
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Member:
    """A source of messages, who publishes them, and at which broker."""

    source: Source
    identity: Identity
    address: Address


@dataclass(frozen=True, slots=True)
class Terms:
    """How a run behaves. reconnect_every_s: hang up that often per device, on average; None never."""

    seed: int
    drain_s: float = 10.0
    """How long to wait for acknowledgements after the last message."""
    reconnect_every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What is known at the end of a run besides the ledger."""

    seconds: float
    never_connected: int
    interrupted: bool


class Fleet:
    """Runs members until their sources end, `stop` is called or a signal comes."""

    def __init__(self, members: Iterable[Member], ledger: Ledger, terms: Terms) -> None:
        self._ledger = ledger
        self._terms = terms
        self._stop = asyncio.Event()
        self._abort = asyncio.Event()
        self._crew = [(member.source, self._line(member)) for member in members]

    def _line(self, member: Member) -> Line:
        random = Random(f"{self._terms.seed}/line/{member.identity.device}")
        return Line(member.address, member.identity, self._ledger, random)

    def stop(self) -> None:
        """Stop producing, wait for acknowledgements, disconnect. Said twice: stop waiting too."""
        if self._stop.is_set():
            self._abort.set()
        self._stop.set()

    async def run(self, progress: Progress) -> Result:
        """The whole run. Raises BrokerUnreachable if no device ever got a connection."""
        started = monotonic()
        crew = [line for _, line in self._crew]
        lines = [asyncio.create_task(line.run()) for line in crew]
        report = asyncio.create_task(self._report(progress, started))
        unrest = [asyncio.create_task(self._unsettle(line)) for line in crew if self._terms.reconnect_every_s]
        with signals(self.stop):
            try:
                await all_or(self._stop, [self._produce(source, line) for source, line in self._crew])
                interrupted = self._stop.is_set()
                self._stop.set()  # from here on the first signal is the one that aborts
                for task in unrest:
                    task.cancel()
                for line in crew:
                    line.sign_off()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._terms.drain_s):
                        await all_or(self._abort, [line.drained() for line in crew])
                await self._goodbye(lines)
            finally:
                for task in (report, *unrest, *lines):
                    task.cancel()
                await asyncio.gather(report, *unrest, *lines, return_exceptions=True)
                progress.close()
        connected = sum(line.first_up.is_set() for line in crew)
        if crew and not connected and not interrupted:
            raise BrokerUnreachable(f"no connection to {crew[0].address}: {crew[0].last_refusal}")
        return Result(round(monotonic() - started, 3), len(crew) - connected, interrupted)

    async def _produce(self, source: Source, line: Line) -> None:
        """Feed *line* from *source*, whose clock starts with the line's first connection."""
        try:
            async with asyncio.timeout(FIRST_CONNECTION_TIMEOUT_S):
                await line.first_up.wait()
        except TimeoutError:
            return
        started = monotonic()
        while (due_us := source.due_us) is not None:
            await asyncio.sleep(max(0.0, started + due_us / SECOND - monotonic()))
            if source.patient:
                await line.room()
            line.offer(source.emit())

    async def _unsettle(self, line: Line) -> None:
        every_s = self._terms.reconnect_every_s or 0.0
        random = Random(f"{self._terms.seed}/unrest/{line.name}")
        while True:
            await asyncio.sleep(every_s * random.uniform(0.5, 1.5))
            line.hang_up()

    async def _goodbye(self, lines: list[asyncio.Task[None]]) -> None:
        for _, line in self._crew:
            line.give_up("not acknowledged in time")
            line.leave()
        done, _ = await asyncio.wait(lines, timeout=GOODBYE_TIMEOUT_S) if lines else (set(), set())
        for task in done:
            task.result()  # a line that broke by a mistake of ours must not look like a finished one

    async def _report(self, progress: Progress, started: float) -> None:
        while True:
            progress.show(self._ledger, len(self._crew), monotonic() - started)
            await asyncio.sleep(PROGRESS_EVERY_S)
