"""Well-behaved clients, in a process of their own: ten publishers, each with a reader of its own, QoS 0.

Started as `python -m edgelab.bench.abuse.wellbehaved PORT [ADDRESS]`; they come from that address of this machine. One
line on standard input asks for one measurement; each is answered by one JSON object on standard output when all that
was sent has come, or 5 s after the end.

    fixed RATE SECONDS   so many messages a second in all, whatever the gateway does: devices in the field
    full SECONDS         as many as the gateway carries, with 10 of each publisher on their way

Every message is a write of its own and carries when it was sent, or at a fixed rate when it should have been.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Final

from edgelab.bench import packets
from edgelab.bench.client import HOST, STALL_S, BenchClient
from edgelab.bench.paced import percentile
from edgelab.bench.stream import READ_BYTES
from edgelab.processes import CpuClock

PAIRS: Final = 10
WINDOW: Final = 10
"""Messages of one publisher on their way when it sends as many as the gateway carries: 100 in all."""
GRACE_S: Final = 0.1
"""A message that came so long after the end of a measurement was carried in time: it may have been sent at the end."""
REST_MIN_S: Final = 200e-6
"""At a fixed rate: it sleeps, or there would be nothing left of its core for the attacker."""
RATE_MAX: Final = PAIRS / (2 * REST_MIN_S)
"""So a publisher sends one message at a time: of two in one write the second costs the gateway next to nothing."""
STAMP: Final = struct.Struct("<QQ")  # sent at, ns of the monotonic clock; number
NANO: Final = 1_000_000_000


class ClientPair:
    """A publisher and its reader."""

    def __init__(self, port: int, number: int, source: str) -> None:
        topic = f"calm/{number}"
        self.reader = BenchClient(port, f"calm-sub-{number}", source=source)
        self.writer = BenchClient(port, f"calm-pub-{number}", source=source)
        self.reader.subscribe([topic])
        self.packet = bytearray(packets.publish(topic, bytes(packets.PAYLOAD_BYTES)))
        self.stamp_at = len(self.packet) - packets.PAYLOAD_BYTES
        self.kept = b""
        self.began_with = self.sent = 0
        self.latencies_ns: list[int] = []

    def begin(self) -> None:
        """Count anew."""
        self.began_with, self.latencies_ns = self.sent, []

    def send(self, stamp_ns: int) -> bool:
        """One message; False if the gateway has not read enough of what it was sent to take it."""
        STAMP.pack_into(self.packet, self.stamp_at, stamp_ns, self.sent)
        try:
            written = self.writer.socket.send(self.packet, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if written < len(self.packet):
            self.writer.socket.sendall(self.packet[written:])
        self.sent += 1
        return True

    def receive(self) -> None:
        """Whatever has come. Raises ConnectionError."""
        came = self.reader.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        now = time.monotonic_ns()
        if not came:
            raise ConnectionError("the gateway closed a well-behaved reader")
        data = self.kept + came
        size = len(self.packet)
        whole = len(data) - len(data) % size
        for at in range(self.stamp_at, whole, size):
            sent_at, number = STAMP.unpack_from(data, at)
            if number >= self.began_with:  # what came late for the count before is lost to this one
                self.latencies_ns.append(now - sent_at)
        self.kept = data[whole:]

    @property
    def missing(self) -> int:
        return self.sent - self.began_with - len(self.latencies_ns)


class ClientPairs:
    """All of them, driven by one loop."""

    def __init__(self, port: int, source: str) -> None:
        self.pairs = [ClientPair(port, number, source) for number in range(PAIRS)]
        self.ready = select.epoll()
        self.by_descriptor = {pair.reader.socket.fileno(): pair for pair in self.pairs}
        for descriptor in self.by_descriptor:
            self.ready.register(descriptor, select.EPOLLIN)

    def fixed(self, rate: float, seconds: float) -> dict[str, float]:
        """Offer *rate* messages a second for so long. What there is no room for yet is sent as soon as there is."""
        total, step_ns = int(rate * seconds), int(NANO / rate)
        began = time.monotonic_ns()
        offered = 0

        def offer() -> None:
            nonlocal offered
            now = time.monotonic_ns()
            while offered < total and (due := began + offered * step_ns) <= now:
                if not self.pairs[offered % PAIRS].send(due):
                    break
                offered += 1

        def rest() -> None:
            self._wait(0)
            time.sleep(max(REST_MIN_S, (began + offered * step_ns - time.monotonic_ns()) / NANO))

        sample = self._measured(seconds, offer, rest, offer)
        return {
            **sample,
            "offered": total,
            "share": sample["carried"] / total,
            "lost": sample["lost"] + total - offered,
        }

    def full(self, seconds: float) -> dict[str, float]:
        """As many as the gateway carries."""

        def offer() -> None:
            now = time.monotonic_ns()
            for pair in self.pairs:
                while pair.missing < WINDOW and pair.send(now):
                    pass

        sample = self._measured(seconds, offer, lambda: self._wait(GRACE_S / 100), lambda: None)
        return {**sample, "per_s": sample["carried"] / seconds}

    def _measured(
        self, seconds: float, offer: Callable[[], None], rest: Callable[[], None], finish: Callable[[], None]
    ) -> dict[str, float]:
        for pair in self.pairs:
            pair.begin()
        clock = CpuClock.read(os.getpid())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            offer()
            rest()
        spent = CpuClock.read(os.getpid()) - clock
        finish()
        while self.missing and time.monotonic() < until + GRACE_S:
            self._wait(GRACE_S / 10)
            finish()
        carried = sum(len(pair.latencies_ns) for pair in self.pairs)
        while self.missing and time.monotonic() < until + STALL_S:
            self._wait(GRACE_S)
            finish()
        latencies = sorted(latency for pair in self.pairs for latency in pair.latencies_ns) or [0]
        return {
            "carried": carried,
            "p50_ms": percentile(latencies, 0.5) / 1e6,
            "p99_ms": percentile(latencies, 0.99) / 1e6,
            "max_ms": latencies[-1] / 1e6,
            "lost": self.missing,
            "generator_s": spent.used_s,
            "generator_busy": spent.used_s / seconds,
            "generator_waited": spent.waited_s / seconds,
        }

    @property
    def missing(self) -> int:
        return sum(pair.missing for pair in self.pairs)

    def _wait(self, seconds: float) -> None:
        for descriptor, _ in self.ready.poll(seconds):
            self.by_descriptor[descriptor].receive()


def main(port: int, source: str = HOST) -> None:
    """Measure as told until standard input ends. What ends the clients ends the answer: `failure`."""
    pairs = ClientPairs(port, source)
    print("{}", flush=True)
    for line in iter(sys.stdin.readline, ""):
        load, *numbers = line.split()
        try:
            sample = pairs.full(float(numbers[0])) if load == "full" else pairs.fixed(*map(float, numbers))
            print(json.dumps(sample), flush=True)
        except OSError as error:
            print(json.dumps({"failure": str(error) or type(error).__name__}), flush=True)
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3])
