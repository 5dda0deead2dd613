"""A gateway with a bridge, its remote, the line between them, devices on both sides, and everything that goes wrong.

Devices count what was acknowledged to them and what they heard. At the end each message must be where it belongs.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from edgebridge.wire.dialect import V5, V311
from edgelab.processes import free_ports

from ..storms.killing import Device, Victim
from .mosquitto import MOSQUITTO
from .tap import IN, OUT, Tap

PATIENCE_S: Final = 30.0
RETRY_S: Final = 0.02
BURST: Final = (4, 12)
"""Messages of each publisher before a fault, between these."""
TWO_AT_ONCE: Final = 0.25
AT_REST: Final = 0.3
"""How often two faults come at once, and how often all is to have arrived before the next."""
STREAMS: Final = (("out/1", 1), ("out/2", 2), ("both/1", 1), ("both/2", 2))
"""Topics here; there they begin with "in" and "both"."""


class Mosquitto:
    """Started and ended as a `Victim` is. A good end keeps messages and sessions, a bad one nothing."""

    def __init__(self, folder: Path, port: int) -> None:
        self._port = port
        self._config = folder / "mosquitto.conf"
        # 2.0.11 forgets what is queued for a client of version 5 beyond its window of 20, now and then.
        bounds = "max_inflight_messages 0\nmax_queued_messages 0\n"
        kept = f"persistence true\npersistence_location {folder}/\nuser {getpass.getuser()}\n"
        self._config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{bounds}{kept}")
        self._database = folder / "mosquitto.db"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._config.with_suffix(".log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(MOSQUITTO), "-c", str(self._config), stdout=log, stderr=log
            )

    async def is_listening(self) -> None:
        """Raises AssertionError if it does not come up."""
        deadline = time.monotonic() + PATIENCE_S
        assert self._process is not None
        while time.monotonic() < deadline and self._process.returncode is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                return
            await asyncio.sleep(RETRY_S)
        raise AssertionError(self._config.with_suffix(".log").read_text())

    async def kill(self) -> None:
        """As a crash does it. What an earlier good end left is no use then: it would be an old truth."""
        await self._end(signal.SIGKILL)
        self._database.unlink(missing_ok=True)

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.wait()


class World:
    """One of each. *remote*: "gateway", "Mosquitto", or "Mosquitto killed", which loses its memory with its life."""

    def __init__(self, folder: Path, remote: str, spoken: str, chance: Random) -> None:
        folder.mkdir(parents=True)
        self._folder, self._chance = folder, chance
        self.remote, self.spoken = remote, spoken
        self.faults: Counter[str] = Counter()
        self.runs = 0
        here, there = free_ports(2)
        self.tap = Tap(there)
        self._here_port = here
        (folder / "far").mkdir()
        self._far: Victim | Mosquitto = (
            Victim(folder / "far", there) if remote == "gateway" else Mosquitto(folder / "far", there)
        )
        self.here = [*self._publishers("n", "out", here), Device("here", V5, here, "", 2, wants=("in/#", "both/#"))]
        self.there = [*self._publishers("f", "in", there), Device("there", V5, there, "", 2, wants=("out/#", "both/#"))]
        self.everybody = [*self.here, *self.there]
        for one in self.everybody:
            one.retry_s, one.allowance = RETRY_S, 0
        self.excused: set[bytes] = set()
        """Messages that were under way when a remote forgot everything: they may come twice."""
        self.entrusted: set[bytes] = set()
        """Messages that a Mosquitto had to carry over its end, for the bridge: 2.0.11 forgets some now and then."""
        self.unsettled: list[str] = []
        """Who waits for an answer when all is over."""
        self._tasks: list[asyncio.Task[None]] = []

    @staticmethod
    def _publishers(side: str, word: str, port: int) -> Iterator[Device]:
        for number, (topic, qos) in enumerate(STREAMS):
            name = f"{topic.replace('out', word)}/{side}"
            yield Device(f"@{side}{number}", (V5, V311)[number % 2], port, name, qos)

    async def play(self, runs: int) -> None:
        """So many runs, and the time to come to rest after them. Raises AssertionError if that never comes."""
        await self.tap.begin()
        config = self._folder / "gateway.toml"
        config.write_text(
            f'[[bridge]]\nname = "up"\naddresses = ["127.0.0.1:{self.tap.port}"]\nversion = "{self.spoken}"\n'
            'topic = ["out/# out 2", "in/# in 2", "both/# both 2"]\nretry_s_max = 1\nkeep_alive_s = 3\n'
        )
        (self._folder / "near").mkdir()
        self._near = Victim(self._folder / "near", self._here_port, "--config", str(config))
        try:
            for one in (self._far, self._near):
                await one.start()
                await one.is_listening()
            self._tasks = [asyncio.create_task(one.live()) for one in self.everybody]
            await self._until(lambda: self.tap.granted >= 2 and all(one.is_ready for one in self.everybody))
            with contextlib.suppress(TimeoutError):  # what is missing then, `complaints` tells
                for _ in range(runs):
                    await self._run()
                await self._until(lambda: all(one.is_settled for one in self.everybody) and not self._missing())
            await asyncio.sleep(0.2)  # for whatever should not come
            self.unsettled = [one.name for one in self.everybody if not one.is_settled]
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._near.kill()
            await self._far.kill()
            await self.tap.end()

    # -- what goes wrong ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        chance = self._chance
        for one in self.everybody:
            if one.topic:
                one.allow(chance.randint(*BURST))
        await asyncio.sleep(chance.uniform(0, 0.04))
        names = chance.choices(list(self._possible), self._weights, k=1 + (chance.random() < TWO_AT_ONCE))
        greeted = self.tap.greeted
        await asyncio.gather(*(self._strike(name) for name in dict.fromkeys(names)))
        self.faults.update(dict.fromkeys(names, 1))
        self.runs += 1
        try:
            await self._until(lambda: self.tap.greeted > greeted)
        except TimeoutError:
            raise AssertionError(f"after {names} the bridge does not come back: {self._folder}") from None
        if chance.random() < AT_REST:
            await self._until(lambda: not self._missing())
        await asyncio.sleep(chance.uniform(0, 0.05))

    @property
    def _possible(self) -> dict[str, tuple[int, Callable[[], Awaitable[None]]]]:
        """By name: how often, and what."""
        found: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "gateway killed": (5, self._kill_here),
            "line cut": (2, self._cut),
            "line cut in a packet": (5, self._cut_inside),
            "line silent, then cut": (3, self._silence),
            "line down for a while": (2, self._part),
            "remote not told": (2, self._hang_there),
            "gateway not told": (1, self._hang_here),
        }
        if self.remote == "Mosquitto":
            found["remote stopped"] = (4, self._stop_there)
        else:
            found["remote killed"] = (4, self._kill_there)
        return found

    @property
    def _weights(self) -> list[int]:
        return [often for often, _ in self._possible.values()]

    async def _strike(self, name: str) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        self.tap.tell(name)
        await self._possible[name][1]()
        self.tap.tell(f"{name}: done")

    async def _kill_here(self) -> None:
        await self._near.kill()
        await self._near.start()
        if self._chance.random() < 0.1:  # in the middle of coming up
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            await self._kill_here()
        else:
            await self._near.is_listening()

    async def _kill_there(self) -> None:
        self._excuse()
        await self._far.kill()
        self._excuse()
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        await self._far.start()
        await self._far.is_listening()

    async def _stop_there(self) -> None:
        assert isinstance(self._far, Mosquitto)
        self._excuse()
        await self._far.stop()
        self._excuse()
        for one in self.there:
            self.entrusted.update(one.acknowledged, one.unfinished)
        self.entrusted -= self.tap.settled[IN]
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        await self._far.start()
        await self._far.is_listening()

    def _excuse(self) -> None:
        """Mosquitto forgets how far it was with messages of QoS 2, even when it ends well: those may come twice."""
        if self.remote != "gateway":
            self.excused.update(*(one.unfinished for one in self.there), *self.tap.unfinished)

    async def _cut(self) -> None:
        self.tap.cut()

    async def _cut_inside(self) -> None:
        self.tap.quota[self._chance.choice((OUT, IN))] = self._chance.randrange(1, 1_200)
        for one in self.everybody:
            if one.topic:
                one.allow(3)
        await asyncio.sleep(0.2)
        if any(left is not None for left in self.tap.quota):
            self.tap.cut()

    async def _silence(self) -> None:
        way = self._chance.choice((OUT, IN, None))
        self.tap.swallows = [way in (OUT, None), way in (IN, None)]
        await asyncio.sleep(self._chance.uniform(0.01, 0.2))
        self.tap.cut()

    async def _part(self) -> None:
        self.tap.is_up = False
        self.tap.cut()
        await asyncio.sleep(self._chance.uniform(0.1, 0.8))
        self.tap.is_up = True

    async def _hang_there(self) -> None:
        self.tap.hang(OUT)

    async def _hang_here(self) -> None:
        self.tap.hang(IN)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for task in self._tasks:
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(0.02)

    # -- what must be -------------------------------------------------------------------------------------------

    def _wanted(self) -> Iterator[tuple[Device, Device]]:
        """Readers, and publishers that they must hear."""
        for reader in (self.here[-1], self.there[-1]):
            for publisher in self.everybody:
                if publisher.topic and publisher.topic.split("/")[0] in {one.split("/")[0] for one in reader.wants}:
                    yield reader, publisher

    def _has_arrived(self, reader: Device) -> set[bytes]:
        """What *reader* has. For a remote that forgets, what it took over the line: its readers forget with it."""
        if self.remote == "Mosquitto killed" and reader is self.there[-1]:
            return self.tap.settled[OUT]
        return set(reader.heard)

    def _owed(self, reader: Device, publisher: Device) -> list[bytes]:
        """What must arrive. Of what a remote may forget, that which the bridge answered over the line."""
        if self.remote == "Mosquitto killed" and publisher in self.there:
            return [one for one in publisher.acknowledged if one in self.tap.settled[IN]]
        if reader in self.here and publisher in self.there:
            return [one for one in publisher.acknowledged if one in self.tap.settled[IN] or one not in self.entrusted]
        return publisher.acknowledged

    @property
    def forgotten(self) -> int:
        """Messages that a Mosquitto that ended well had acknowledged, and never sent over the line again."""
        acknowledged = {one for device in self.there for one in device.acknowledged}
        return len((self.entrusted & acknowledged) - self.tap.settled[IN] - set(self.here[-1].heard))

    def _missing(self) -> list[tuple[Device, Device, bytes]]:
        found = []
        for reader, publisher in self._wanted():
            if self.remote == "Mosquitto killed" and reader in self.there and publisher in self.there:
                continue  # both at a broker that forgets
            has = self._has_arrived(reader)
            found += [(reader, publisher, one) for one in self._owed(reader, publisher) if one not in has]
        return found

    def complaints(self) -> list[str]:
        """Every promise that was not kept."""
        found = [f"{self.unsettled} were never answered"] if self.unsettled else []
        for pair, lost in self._by_pair(self._missing()).items():
            found.append(f"{pair[0]} never heard {len(lost)} of {pair[1]}, as {self._story(lost[0])}")
        for publisher in self.here[:-1]:
            order = [
                int(one.split()[2]) for one in self.tap.sent[OUT] if one.startswith(publisher.name.encode() + b" ")
            ]
            if order != sorted(order):
                found.append(f"{publisher.name} crossed the line out of order")
        for reader, publisher in self._wanted():
            counts = Counter(one for one in reader.heard if one.startswith(publisher.name.encode() + b" "))
            twice = [one for one, count in counts.items() if count > 1 and one not in self.excused]
            if publisher.qos == 2 and twice:
                found.append(f"{reader.name} heard {len(twice)} of {publisher.name} twice, as {self._story(twice[0])}")
            order = [int(one.split()[2]) for one in counts if one not in self.excused]
            if order != sorted(order) and self._promises_order(reader, publisher):
                found.append(f"{reader.name} heard {publisher.name} out of order")
        if self.tap.begun_anew:
            found.append("the bridge threw its session at the remote away")
        for way, side in ((OUT, b"@f"), (IN, b"@n")):
            came_back = [one for one in self.tap.sent[way] if one.startswith(side)]
            if came_back:
                found.append(f"{len(came_back)} came back to where they began, as {came_back[0]!r}")
        if self.remote != "Mosquitto killed":
            found += [f"{one.name} lost its session" for one in self.everybody if one.sessions_lost]
        return [f"{self.remote}, {self.spoken}, {self._folder}: {one}" for one in found]

    @staticmethod
    def _by_pair(missing: list[tuple[Device, Device, bytes]]) -> dict[tuple[str, str], list[bytes]]:
        found: dict[tuple[str, str], list[bytes]] = {}
        for reader, publisher, payload in missing:
            found.setdefault((reader.name, publisher.name), []).append(payload)
        return found

    def _story(self, payload: bytes) -> str:
        """What happened to a message, and around it."""
        history = self.tap.history[payload]
        if not history:
            return f"{payload!r}, which did not cross the line: {'; '.join(self.tap.events)}"
        first, last = (int(history[at].split()[0]) for at in (0, -1))
        around = [one for one in self.tap.events if first - 500 < int(one.split()[0]) < last + 500]
        story = sorted([*history, *around], key=lambda one: int(one.split()[0]))
        return f"{payload!r}: " + "; ".join(story)

    def _promises_order(self, reader: Device, publisher: Device) -> bool:
        """Mosquitto 2.0.11 sends again behind what is new."""
        return self.remote == "gateway" or (reader in self.here and publisher in self.here)
