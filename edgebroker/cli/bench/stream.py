"""Closed loop at full speed: publish while the window allows, otherwise receive.

Work per message is kept far below the broker's: writes are prebuilt, reads go into one large buffer and are only
counted. Content is checked byte by byte in a probe before and after the timed part, which also proves that the byte
stream between them is whole: one byte too few or too many would shift everything behind it.

The generator spins when it waits. To wake a sleeping receiver costs the *sender* about 2 us; a broker that writes one
packet at a time, like Mosquitto, would pay that for every message, and in trials it lost up to half of its throughput.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence

from .client import STALL_S, Client
from .job import Job, LoadFailed, Sample
from .processes import CpuClocks
from .shapes import SHAPES

READ_BYTES = 1 << 18
EXCESS_WAIT_S = 0.05  # after the last expected byte: long enough for a doubled message on the loopback interface


class Stream:
    """The connected clients of one streaming run."""

    def __init__(self, job: Job) -> None:
        self.shape = shape = SHAPES[job.shape](job)
        self.subscribers = [Client(job.reading_port, f"bench-sub-{n}", job.is_tls) for n in range(len(shape.filters))]
        self.publishers = [Client(job.port, f"bench-pub-{n}", job.is_tls) for n in range(job.publishers)]
        for client, filters in zip(self.subscribers, shape.filters, strict=True):
            client.subscribe(filters)
        self.writes = [(self.publishers[p].socket.send, b"".join(written)) for p, written in shape.writes]
        self.cycle_bytes = [sum(map(len, expected)) for expected in shape.deliveries]  # that each subscriber gets
        self.window_bytes = job.window * sum(self.cycle_bytes) // shape.messages_per_cycle
        self.received = [0] * len(self.subscribers)  # bytes per subscriber in the current pump
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.ready = select.epoll()
        self.index: dict[int, int] = {}
        for n, client in enumerate(self.subscribers):
            self.ready.register(client.socket, select.EPOLLIN)
            self.index[client.socket.fileno()] = n

    def probe(self) -> None:
        """Publish one cycle and compare every byte that every subscriber receives with what it must be."""
        for send, chunk in self.writes:
            send(chunk)
        for n, client in enumerate(self.subscribers):
            expected = self.shape.deliveries[n]
            got = client.receive_exactly(self.cycle_bytes[n])
            if got != b"".join(expected) and not (len(self.publishers) > 1 and is_interleaving(got, expected)):
                raise LoadFailed(f"subscriber {n} received other messages than were published")

    def pump(self, seconds: float, messages_max: int) -> tuple[int, float]:
        """Publish whole cycles for so many seconds and receive all of it: (deliveries, seconds they took)."""
        self.received = [0] * len(self.subscribers)
        receive = self.receive_one if len(self.subscribers) == 1 else self.receive_many
        window, writes = self.window_bytes, self.writes
        # Once the window is full, wait until half of it has come. To answer every small read with a small write would
        # put both sides to sleep between packets, and the figure would be that of waking up.
        resume = window // 2
        due_per_write = [len(chunk) * self.shape.deliveries_per_message for _, chunk in writes]
        due = came = cycles = 0  # due, came: delivered bytes
        cycles_max = max(1, messages_max // self.shape.messages_per_cycle)
        started = time.perf_counter()
        until = started + seconds
        while cycles < cycles_max and time.perf_counter() < until:
            cycles += 1
            for (send, chunk), causes in zip(writes, due_per_write, strict=True):
                if due + causes - came > window:
                    while due - came > resume:
                        came += receive()
                if send(chunk) != len(chunk):
                    raise LoadFailed(f"the broker read nothing for {STALL_S} s")
                due += causes
        while came < due:
            came += receive()
        elapsed = time.perf_counter() - started
        self.check(cycles)
        return cycles * sum(map(len, self.shape.deliveries)), elapsed

    def receive_one(self) -> int:
        """Wait for the only subscriber; bytes received."""
        receive, give_up = self.subscribers[0].socket.recv_into, time.perf_counter() + STALL_S
        while True:
            try:
                count: int = receive(self.buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if time.perf_counter() > give_up:
                    raise LoadFailed(f"messages lost: nothing came for {STALL_S} s") from None
                continue
            if not count:
                raise LoadFailed("the broker closed a subscriber")
            self.received[0] += count
            return count

    def receive_many(self) -> int:
        """Wait for any subscriber and read all that are ready; bytes received."""
        total = 0
        give_up = time.perf_counter() + STALL_S
        while not (events := self.ready.poll(0)):
            if time.perf_counter() > give_up:
                raise LoadFailed(f"messages lost: nothing came for {STALL_S} s")
        for descriptor, _ in events:
            n = self.index[descriptor]
            count = int(self.subscribers[n].socket.recv_into(self.buffer, 0, socket.MSG_DONTWAIT))
            if not count:
                raise LoadFailed("the broker closed a subscriber")
            self.received[n] += count
            total += count
        return total

    def check(self, cycles: int) -> None:
        """Every subscriber has received exactly its share."""
        for n, received in enumerate(self.received):
            if received != (due := cycles * self.cycle_bytes[n]):
                raise LoadFailed(f"subscriber {n} received {received:,} of {due:,} bytes")

    def close(self) -> None:
        """Nothing may follow the last expected message; then hang up."""
        excess = bool(self.ready.poll(EXCESS_WAIT_S))
        self.ready.close()
        for client in (*self.publishers, *self.subscribers):
            client.close()
        if excess:
            raise LoadFailed("more messages arrived than were published, or the broker hung up")


def is_interleaving(got: bytes, expected: Sequence[bytes]) -> bool:
    """Whether *got* is the expected packets, all of one size, in any order: MQTT orders each publisher by itself."""
    size = len(expected[0])
    return sorted(got[at : at + size] for at in range(0, len(got), size)) == sorted(expected)


def run(job: Job) -> Sample:
    """Deliveries per second, and how busy broker and generator were (1.0 is one core)."""
    stream = Stream(job)
    stream.probe()
    stream.pump(job.warmup_s, job.messages_max)
    return measured(job, lambda: stream.pump(job.seconds, job.messages_max), stream.probe, stream.close)


def measured(job: Job, timed: Callable[[], tuple[int, float]], *afterwards: Callable[[], None]) -> Sample:
    """Run the timed part between two readings of the processor clocks, then the closing checks."""
    clocks = CpuClocks(*job.broker_pids)
    deliveries, elapsed = timed()
    values = {"deliveries_per_s": deliveries / elapsed, **clocks.shares(deliveries)}
    for check in afterwards:
        check()
    return Sample(values)
