"""Says again what was recorded: same order, same pace, same QoS and RETAIN, and from the same clients where known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any, Final

from edgebroker.instants import SECOND, Duration
from edgedevices.access import ANYONE, Access
from edgedevices.address import Address
from edgedevices.errors import BrokerUnreachable
from edgedevices.identity import Dialect, Identity
from edgedevices.interrupt import all_or, signals
from edgedevices.ledger import Ledger
from edgedevices.line import Line
from edgedevices.message import Form, Message
from edgedevices.progress import Progress
from edgedevices.topictext import is_publishable

from .heard import Heard, readable
from .recording import Recording

FIRST_CONNECTION_TIMEOUT_S: Final = 30.0
GOODBYE_TIMEOUT_S: Final = 5.0
PROGRESS_EVERY_S: Final = 0.5
CLIENTS_MAX: Final = 1_000
"""Connections of one playback: many systems allow 1,024 files. Who comes later speaks through that of the unknown."""
ROUND_MIN_US: Final = SECOND
"""A recording of a single instant, repeated, still takes a second a round."""


@dataclass(frozen=True, slots=True)
class Recorded(Message):
    """A message with the payload (`raw`) and the properties that it had."""

    kept: bytes = b""
    """See Heard.properties."""

    def properties(self) -> Mapping[str, Any]:
        """See Message."""
        return readable(self.kept)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a recording is played. speed: recorded seconds per second, None is as fast as the broker acknowledges."""

    speed: float | None = 1.0
    loops: bool = False
    """Begin again at the end, until stopped; the pause between two rounds is that at the end of the recording."""
    count: int | None = None
    """Stop after that many messages."""
    prefix: str = ""
    """Put in front of every topic."""
    unknown: str = "replay"
    """The MQTT client identifier for messages whose client is not known."""
    dialect: Dialect = Dialect.V5
    drain_s: float = 10.0


class Playback:
    """Plays *recording* to a broker. Messages of one client keep their order, and so do those of the unknown."""

    def __init__(
        self, recording: Recording, address: Address, ledger: Ledger, manner: Manner, access: Access = ANYONE
    ) -> None:
        self._recording, self._address, self._ledger = recording, address, ledger
        self._manner, self._access = manner, access
        self._lines: dict[str, Line] = {}
        self._running: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._abort = asyncio.Event()
        self._offered = 0
        self.rounds = 0
        """Rounds begun."""
        self.late_us: Duration = 0
        """How late the latest message was offered, behind its time: the broker's or this machine's slowness."""
        self.not_publishable = 0
        """Recorded messages whose topic nobody may publish to, or of no QoS; only damaged or made-up files have any."""

    def stop(self) -> None:
        """Stop producing, wait for acknowledgements, disconnect. Said twice: stop waiting too."""
        if self._stop.is_set():
            self._abort.set()
        self._stop.set()

    async def run(self, progress: Progress) -> dict[str, Any]:
        """The whole playback; what is known at its end besides the ledger. Raises BrokerUnreachable."""
        started = monotonic()
        report = asyncio.create_task(self._report(progress, started))
        with signals(self.stop):
            try:
                await all_or(self._stop, [self._produce()])
                interrupted = self._stop.is_set()
                self._stop.set()  # from here on the first signal is the one that aborts
                lines = list(self._lines.values())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._manner.drain_s):
                        await all_or(self._abort, [line.drained() for line in lines])
                await self._goodbye()
            finally:
                for task in (report, *self._running):
                    task.cancel()
                await asyncio.gather(report, *self._running, return_exceptions=True)
                progress.close()
        return {
            "seconds": round(monotonic() - started, 3),
            "interrupted": interrupted,
            "clients": len(self._lines),
            "never_connected": sum(not line.first_up.is_set() for line in self._lines.values()),
            "rounds": self.rounds,
            "late_s": round(self.late_us / SECOND, 3),
            "not_publishable": self.not_publishable,
        }

    async def _produce(self) -> None:
        speed = self._manner.speed
        started: float | None = None
        for due_us, heard in self._score():
            line = await self._line(heard.client)
            if started is None:
                started = monotonic()  # the clock starts when the broker has let the first client in
            late_s = 0.0 if speed is None else monotonic() - started - due_us / SECOND / speed
            await asyncio.sleep(max(0.0, -late_s))  # also 0: signals and acknowledgements want their turn
            self.late_us = max(self.late_us, round(late_s * SECOND))
            topic = self._manner.prefix + heard.topic
            if heard.qos > 2 or not is_publishable(topic):
                self.not_publishable += 1
                continue
            if line.first_up.is_set():  # who never got in is not waited for: its messages fail, and are counted
                await line.room()
            self._offered += 1
            line.offer(
                Recorded(
                    device=line.name,
                    seq=self._offered,
                    topic=topic,
                    body={},
                    form=Form.JSON,
                    qos=heard.qos,
                    retain=heard.retain,
                    raw=heard.payload,
                    kept=heard.properties,
                )
            )
            if self._offered == self._manner.count:
                return

    def _score(self) -> Iterator[tuple[Duration, Heard]]:
        """Every message and when it is due, in recorded microseconds from the start; for ever if it loops."""
        round_us = max(self._recording.length_us, ROUND_MIN_US)
        while True:
            began_us = self.rounds * round_us - self._recording.first_us
            self.rounds += 1
            for heard in self._recording.messages_in_order():
                yield began_us + heard.t_us, heard
            if not self._manner.loops:
                return

    async def _line(self, client: str) -> Line:
        """The connection of *client*, made when it is needed first."""
        if client not in self._lines and len(self._lines) >= CLIENTS_MAX:
            client = ""
        line = self._lines.get(client)
        if line is None:
            name = client or self._manner.unknown
            identity = Identity(name, self._manner.dialect)
            line = Line(self._address, identity, self._ledger, Random(f"replay/{name}"), self._access)
            self._lines[client] = line
            self._running.append(asyncio.create_task(line.run()))
            try:
                async with asyncio.timeout(FIRST_CONNECTION_TIMEOUT_S):
                    await line.first_up.wait()
            except TimeoutError:
                if len(self._lines) == 1:
                    raise BrokerUnreachable(f"no connection to {self._address}: {line.last_refusal}") from None
        return line

    async def _goodbye(self) -> None:
        for line in self._lines.values():
            line.give_up("not acknowledged in time")
            line.leave()
        done, _ = await asyncio.wait(self._running, timeout=GOODBYE_TIMEOUT_S) if self._running else (set(), set())
        for task in done:
            task.result()  # a line that broke by a mistake of ours must not look like a finished one

    async def _report(self, progress: Progress, started: float) -> None:
        while True:
            progress.show(self._ledger, max(1, len(self._lines)), monotonic() - started)
            await asyncio.sleep(PROGRESS_EVERY_S)
