"""A gateway that is killed (SIGKILL) over and over while clients are at work; then everything is counted.

    .venv/bin/python tests/storms/killing.py --cycles 2000 --seed 1

Publishers and subscribers keep their sessions and speak real MQTT over real sockets. Whatever the moment of a kill:
what was acknowledged must be heard (P2), what was said at QoS 2 must be heard once (P3), in order (P4), and no session
that was granted may be forgotten.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscriptionOption,
)
from edgebridge.wire.properties import Property
from edgelab.processes import free_ports

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
WINDOW = 10
PATIENCE_S = 60.0


@dataclass(slots=True)
class Unfinished:
    """A message on its way to the gateway. `released`: PUBREC came, so the gateway has promised to have it."""

    publish: Publish
    released: bool = False


@dataclass
class Device:
    """A client that keeps its session, and reconnects until it is told to stop."""

    name: str
    dialect: Dialect
    port: int
    topic: str = ""
    qos: int = 0
    """What it publishes, at which QoS; or at which QoS it subscribes to `wants`, if `topic` is empty."""
    wants: tuple[str, ...] = ("t/#",)
    retry_s: float = 0.005
    allowance: float = float("inf")
    """So many messages it may still begin to publish."""
    acknowledged: list[bytes] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    sessions_lost: int = 0
    is_publishing: bool = False
    _unfinished: dict[int, Unfinished] = field(default_factory=dict)
    _received: dict[int, bytes] = field(default_factory=dict)
    _released: deque[bytes] = field(default_factory=lambda: deque(maxlen=2 * WINDOW))
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _writer: asyncio.StreamWriter | None = None
    _is_known: bool = False
    _has_asked: bool = False
    is_ready: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether it is connected and waits for nothing."""
        return self.is_ready and not self._unfinished

    async def live(self) -> None:
        """Connect, work, and connect again."""
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(self.retry_s)
                continue
            framer = Framer(1 << 20)
            try:
                self._connect()
                while chunk := await reader.read(65_536):
                    framer.feed(chunk)
                    while (frame := framer.next_frame()) is not None:
                        self._on_packet(decode_packet(frame[0], frame[1], self.dialect))
                    self._publish()
            except OSError:
                pass
            finally:
                self.is_ready = False
                self._writer.close()

    def _connect(self) -> None:
        properties = {Property.SESSION_EXPIRY_INTERVAL: 86_400} if self.dialect.has_properties else {}
        self._send(Connect(self.name, False, properties=properties, dialect=self.dialect))

    def _send(self, packet: Packet) -> None:
        assert self._writer is not None
        self._writer.write(encode_packet(packet, self.dialect))

    @property
    def unfinished(self) -> list[bytes]:
        """Payloads of messages whose handshake is under way, whoever sends them, or may be for the gateway."""
        said = [one.publish.payload for one in self._unfinished.values()]
        return [*said, *self._received.values(), *self._released]

    def allow(self, count: int) -> None:
        """Publish *count* more messages."""
        self.is_publishing = True
        self.allowance += count
        self._publish()

    def _publish(self) -> None:
        while self.is_publishing and self.is_ready and self.topic and len(self._unfinished) < WINDOW:
            if self.allowance < 1:
                break
            self.allowance -= 1
            payload = f"{self.name} {self.qos} {next(self._numbers)}".encode()
            packet_id = next(self._ids) % 65_535 + 1
            publish = Publish(self.topic, payload, self.qos, packet_id=packet_id)
            self._unfinished[packet_id] = Unfinished(publish)
            self._send(publish)

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case ConnAck():
                self._on_connack(packet)
            case SubAck():
                self._has_asked = self.is_ready = True
            case Publish():
                self._on_publish(packet)
            case PubAck(packet_id):
                if unfinished := self._unfinished.pop(packet_id, None):
                    self.acknowledged.append(unfinished.publish.payload)
            case PubRec(packet_id):
                if (unfinished := self._unfinished.get(packet_id)) and not unfinished.released:
                    unfinished.released = True
                    self.acknowledged.append(unfinished.publish.payload)
                self._send(PubRel(packet_id))
            case PubComp(packet_id):
                self._unfinished.pop(packet_id, None)
            case PubRel(packet_id):
                self._released.append(self._received.pop(packet_id, b""))
                self._send(PubComp(packet_id))

    def _on_connack(self, connack: ConnAck) -> None:
        assert not connack.reason, f"{self.name}: {connack}"
        if not connack.session_present:
            self.sessions_lost += self._is_known
            self._received.clear()
        self._is_known = True
        for packet_id, unfinished in self._unfinished.items():
            self._send(PubRel(packet_id) if unfinished.released else replace(unfinished.publish, dup=True))
        if self.topic or (self._has_asked and connack.session_present):
            self.is_ready = True
        else:
            self._send(Subscribe(1, [SubscriptionOption(one, self.qos) for one in self.wants]))

    def _on_publish(self, publish: Publish) -> None:
        packet_id = publish.packet_id
        if publish.qos < 2 or packet_id not in self._received:
            self.heard.append(publish.payload)
        if publish.qos == 1:
            self._send(PubAck(packet_id))
        elif publish.qos == 2:
            self._received[packet_id] = publish.payload
            self._send(PubRec(packet_id))


class Victim:
    """`edgebroker run` on one data directory and one port, started and killed."""

    def __init__(self, data: Path, port: int, *options: str) -> None:
        self._data = data
        self._port = port
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with (self._data / "told.txt").open("ab") as told:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "edgebroker", "run", "--json", "--port", str(self._port), "--data", str(self._data)),
                *self._options,
                stdout=asyncio.subprocess.PIPE,
                stderr=told,
                env=ENVIRONMENT,
            )

    async def is_listening(self) -> None:
        """Wait until it listens. Raises AssertionError if it does not come up."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
        assert line, f"the gateway did not come up: exit code {await self._process.wait()}"
        assert json.loads(line)["event"] == "listening"

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


def devices(port: int) -> list[Device]:
    """Publishers and subscribers of both versions and both QoS that promise something."""
    return [
        Device("steady-1", V5, port, "t/1", 1),
        Device("exact-5", V5, port, "t/5", 2),
        Device("exact-3", V311, port, "t/3", 2),
        Device("reads-2", V5, port, "", 2),
        Device("reads-old", V311, port, "", 2),
        Device("reads-1", V5, port, "", 1),
    ]


def broken(everybody: list[Device]) -> list[str]:
    """Every promise that was not kept, in words; empty if all were."""
    found = [f"{one.name} lost its session {one.sessions_lost} times" for one in everybody if one.sessions_lost]
    publishers = [one for one in everybody if one.topic]
    for reader in (one for one in everybody if not one.topic):
        counts: dict[bytes, int] = {}
        for payload in reader.heard:
            counts[payload] = counts.get(payload, 0) + 1
        for publisher in publishers:
            lost = [payload for payload in publisher.acknowledged if payload not in counts]
            if lost:
                found.append(f"{reader.name} never heard {len(lost)} of {publisher.name}, the first {lost[0]!r}")
            if publisher.qos == reader.qos == 2:
                twice = [payload for payload in publisher.acknowledged if counts.get(payload, 0) > 1]
                if twice:
                    found.append(f"{reader.name} heard {len(twice)} of {publisher.name} twice, first {twice[0]!r}")
            name = publisher.name.encode()
            order = [int(one.split()[2]) for one in dict.fromkeys(reader.heard) if one.startswith(name)]
            if order != sorted(order):
                found.append(f"{reader.name} heard {publisher.name} out of order")
    return found


async def run(cycles: int, seed: int, data: Path, progress: bool = False) -> tuple[list[str], dict[str, int]]:
    """Kill *cycles* times; what was broken, and what was counted."""
    chance = random.Random(seed)
    [port] = free_ports(1)
    victim = Victim(data, port)
    everybody = devices(port)
    await victim.start()
    await victim.is_listening()
    tasks = [asyncio.create_task(one.live()) for one in everybody]
    began = time.monotonic()
    try:
        await _until(lambda: all(one.is_ready for one in everybody), tasks)
        for one in everybody:
            one.is_publishing = True
            one._publish()
        for cycle in range(cycles):
            await victim.kill()
            await victim.start()
            if chance.random() < 0.1:  # in the middle of coming up
                await asyncio.sleep(chance.uniform(0.0, 0.3))
                continue
            await victim.is_listening()
            await asyncio.sleep(chance.expovariate(1 / 0.1))
            _raise_first(tasks)
            if progress and cycle % 20 == 19:
                heard = sum(len(one.heard) for one in everybody)
                rate = (time.monotonic() - began) / (cycle + 1)
                print(f"{cycle + 1:,} of {cycles:,} kills, {heard:,} messages heard, {rate:.2f} s each", flush=True)
        await victim.kill()
        await victim.start()
        await victim.is_listening()
        for one in everybody:
            one.is_publishing = False
        await _until(lambda: all(one.is_settled for one in everybody), tasks)
        wanted = [payload for one in everybody for payload in one.acknowledged]
        readers = [one for one in everybody if not one.topic]
        await _until(lambda: all(set(wanted) <= set(one.heard) for one in readers), tasks, gives_up=True)
        await asyncio.sleep(0.2)  # for whatever should not come
        _raise_first(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await victim.kill()
    counts = {"kills": cycles + 1, "acknowledged": len(wanted), "heard": sum(len(one.heard) for one in readers)}
    return broken(everybody), counts


async def _until(condition: object, tasks: list[asyncio.Task[None]], gives_up: bool = False) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        _raise_first(tasks)
        if time.monotonic() > deadline:
            if gives_up:
                return
            raise AssertionError("the devices do not come to rest")
        await asyncio.sleep(0.01)


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        try:
            found, counts = asyncio.run(run(asked.cycles, asked.seed, Path(data), progress=True))
        finally:
            print((Path(data) / "told.txt").read_text()[-4_000:], file=sys.stderr)
    print(json.dumps({"seed": asked.seed, **counts, "broken": found}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
