"""Two pairs of well-behaved clients, in a process of their own: one at a fixed rate, one as fast as the gateway goes.

Started as `python -m edgebroker.cli.bench.abuse.wellbehaved PORT`. A number of seconds a line on standard input; each
is answered by one JSON object on standard output when they are over and all that was sent has come, or 5 s after.

It sleeps while it waits, because it shares its core with the attacker. So its figures are good for ratios only.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from typing import Final

from .. import packets
from ..client import STALL_S, Client
from ..paced import percentile
from ..processes import CpuClock
from ..stream import READ_BYTES

RATE_PER_S: Final = 500
BATCH, WINDOW = 100, 2_000  # of the fast pair: messages in a write, and on their way; 170 KiB, no reason to drop any
STAMP: Final = struct.Struct("<QQ")  # sent at, ns of the monotonic clock; number
STEADY, FAST = "calm/steady", "calm/fast"


class Steady:
    """A publisher at a fixed rate and its subscriber; every message carries when it was sent."""

    def __init__(self, port: int) -> None:
        self.reader, self.writer = Client(port, "calm-steady-sub"), Client(port, "calm-steady-pub")
        self.reader.subscribe([STEADY])
        self.packet = bytearray(packets.publish(STEADY, bytes(packets.PAYLOAD_BYTES)))
        self.stamp_at = len(self.packet) - packets.PAYLOAD_BYTES
        self.kept = b""
        self.began_with = self.sent = 0
        self.latencies_ns: list[int] = []

    def begin(self) -> None:
        """Count anew."""
        self.began_with, self.latencies_ns = self.sent, []

    def send(self) -> None:
        """One message."""
        STAMP.pack_into(self.packet, self.stamp_at, time.monotonic_ns(), self.sent)
        self.writer.socket.sendall(self.packet)
        self.sent += 1

    def receive(self) -> None:
        """Whatever has come. Raises ConnectionError."""
        came = self.reader.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        now = time.monotonic_ns()
        if not came:
            raise ConnectionError("the gateway closed the steady reader")
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


class Fast:
    """A publisher that sends as long as fewer than WINDOW messages are on their way."""

    def __init__(self, port: int) -> None:
        self.reader, self.writer = Client(port, "calm-fast-sub"), Client(port, "calm-fast-pub")
        self.reader.subscribe([FAST])
        one = packets.publish(FAST, packets.numbered_payload(0))
        self.size, self.chunk = len(one), one * BATCH
        self.sent = self.came_bytes = 0

    def begin(self) -> None:
        """Count anew."""
        self.sent = self.came_bytes = 0

    def fill(self) -> None:
        """Send while there is room. Once the window is full, half of it must have come: no tiny writes."""
        if self.missing > WINDOW // 2:
            return
        while self.missing <= WINDOW - BATCH:
            self.writer.socket.sendall(self.chunk)
            self.sent += BATCH

    def receive(self) -> None:
        """Whatever has come. Raises ConnectionError."""
        came = len(self.reader.socket.recv(READ_BYTES, socket.MSG_DONTWAIT))
        if not came:
            raise ConnectionError("the gateway closed the fast reader")
        self.came_bytes += came

    @property
    def missing(self) -> int:
        return self.sent - self.came_bytes // self.size


class Pairs:
    """Both, driven by one loop."""

    def __init__(self, port: int) -> None:
        self.steady, self.fast = Steady(port), Fast(port)
        self.ready = select.epoll()
        self.handlers = {pair.reader.socket.fileno(): pair.receive for pair in (self.steady, self.fast)}
        for descriptor in self.handlers:
            self.ready.register(descriptor, select.EPOLLIN)

    def measure(self, seconds: float) -> dict[str, float]:
        """Both pairs for so long; what came, how late, and what did not come at all."""
        self.steady.begin()
        self.fast.begin()
        clock = CpuClock.read(os.getpid())
        began = due = time.monotonic()
        until = began + seconds
        while (now := time.monotonic()) < until:
            while due <= now:
                self.steady.send()
                due += 1 / RATE_PER_S
            self.fast.fill()
            self.wait(max(0.0, min(due, until) - now))
        fast_per_s = (self.fast.sent - self.fast.missing) / (time.monotonic() - began)
        spent = CpuClock.read(os.getpid()) - clock
        give_up = time.monotonic() + STALL_S
        while (self.steady.missing or self.fast.missing) and time.monotonic() < give_up:
            self.wait(0.1)
        latencies = sorted(self.steady.latencies_ns) or [0]
        return {
            "fast_per_s": fast_per_s,
            "p50_ms": percentile(latencies, 0.5) / 1e6,
            "p99_ms": percentile(latencies, 0.99) / 1e6,
            "max_ms": latencies[-1] / 1e6,
            "lost": self.steady.missing + self.fast.missing,
            "sent": self.steady.sent - self.steady.began_with + self.fast.sent,
            "waited": spent.waited_s / seconds,
        }

    def wait(self, seconds: float) -> None:
        """Until something comes, or for so long."""
        for descriptor, _ in self.ready.poll(seconds):
            self.handlers[descriptor]()


def main(port: int) -> None:
    """Measure as told until standard input ends. What ends the clients ends the answer: `failure`."""
    pairs = Pairs(port)
    print("{}", flush=True)
    for line in iter(sys.stdin.readline, ""):
        try:
            print(json.dumps(pairs.measure(float(line))), flush=True)
        except OSError as error:
            print(json.dumps({"failure": str(error) or type(error).__name__}), flush=True)
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
