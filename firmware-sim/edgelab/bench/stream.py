"""Closed loop at full speed: publish while the window allows, otherwise receive.

The shape of the traffic says which client publishes what, and what must be delivered.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgelab.bench import packets
from edgelab.bench.client import STALL_S, BenchClient
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.processes import CpuClocks

CYCLE_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class TrafficShape:
    """One cycle of writes, repeated for as long as the run lasts.

    writes: (publisher, packets that go out in one `send`), in order.  filters: per subscriber.  deliveries: per
    subscriber, the packets that one cycle must bring it, in the order of publishing.  With several publishers all
    packets have one size, since they arrive interleaved; every message goes to equally many subscribers.
    """

    writes: tuple[tuple[int, tuple[bytes, ...]], ...]
    filters: tuple[tuple[str, ...], ...]
    deliveries: tuple[tuple[bytes, ...], ...]

    @property
    def messages_per_cycle(self) -> int:
        return sum(len(written) for _, written in self.writes)

    @property
    def deliveries_per_message(self) -> int:
        return sum(map(len, self.deliveries)) // self.messages_per_cycle


def one_topic(job: LoadJob) -> TrafficShape:
    """All publishers to one topic in turn, all subscribers on it: 1:1, fan-out and fan-in.

    A cycle has at least 100 messages, so that what the generator does once per cycle does not count.
    """
    per_write = job.packets_per_write
    turns = max(1, CYCLE_MESSAGES // (job.publishers * per_write))
    count = turns * job.publishers * per_write
    every = [packets.publish("bench/one", packets.numbered_payload(n)) for n in range(count)]
    writes = tuple(
        (at // per_write % job.publishers, tuple(every[at : at + per_write])) for at in range(0, len(every), per_write)
    )
    return TrafficShape(writes, (("bench/one",),) * job.subscribers, (tuple(every),) * job.subscribers)


def mixed(job: LoadJob) -> TrafficShape:
    """One publisher, one subscriber of everything; no packet has the topic or the length of the one before.

    100 topics take turns and payloads have 24 to 123 bytes, 73.5 on average, as on a gateway's uplink. What a broker
    gains from neighbours that look alike, it does not gain here.
    """
    every = tuple(
        packets.publish(f"plant/line-{n % 100:02d}/temperature", packets.numbered_payload(n, 24 + n * 37 % 100))
        for n in range(job.packets_per_write)
    )
    return TrafficShape(((0, every),), (("plant/#",),), (every,))


def wildcards(job: LoadJob) -> TrafficShape:
    """100 topics under 10,000 wildcard filters, 100 filters per subscriber; each topic matches exactly one filter.

    Per subscriber: one filter matches one topic, 49 share the topic's first level and lead two levels down before
    they fail, 50 sit behind a `+` and fail on the third level or the fourth.
    """
    lines = range(100)
    filters = tuple(
        (
            f"plant/+/line-{s:02d}/temperature",
            *(f"plant/{n:02d}/+/sensor-{s:02d}/#" for n in range(1, 50)),
            *(f"plant/+/line-{s:02d}/sensor-{n:02d}/#" for n in range(50, 100)),
        )
        for s in range(job.subscribers)
    )
    topics = [f"plant/{n * 7 % 100:02d}/line-{n:02d}/temperature" for n in lines]
    every = tuple(packets.publish(topics[n], packets.numbered_payload(n)) for n in lines)
    deliveries = tuple((every[s],) for s in range(job.subscribers))
    return TrafficShape(((0, every),), filters, deliveries)


SHAPES: dict[str, Callable[[LoadJob], TrafficShape]] = {"one": one_topic, "mixed": mixed, "wildcards": wildcards}


READ_BYTES = 1 << 18
EXCESS_WAIT_S = 0.05  # after the last expected byte: long enough for a doubled message on the loopback interface


class StreamLoad:
    """The connected clients of one streaming run."""

    def __init__(self, job: LoadJob) -> None:
        self.shape = shape = SHAPES[job.shape](job)
        self.subscribers = [
            BenchClient(job.reading_port, f"bench-sub-{n}", job.is_tls) for n in range(len(shape.filters))
        ]
        self.publishers = [BenchClient(job.port, f"bench-pub-{n}", job.is_tls) for n in range(job.publishers)]
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


def run(job: LoadJob) -> LoadSample:
    """Deliveries per second, and how busy broker and generator were (1.0 is one core)."""
    stream = StreamLoad(job)
    stream.probe()
    stream.pump(job.warmup_s, job.messages_max)
    return measured(job, lambda: stream.pump(job.seconds, job.messages_max), stream.probe, stream.close)


def measured(job: LoadJob, timed: Callable[[], tuple[int, float]], *afterwards: Callable[[], None]) -> LoadSample:
    """Run the timed part between two readings of the processor clocks, then the closing checks."""
    clocks = CpuClocks(*job.broker_pids)
    deliveries, elapsed = timed()
    values = {"deliveries_per_s": deliveries / elapsed, **clocks.shares(deliveries)}
    for check in afterwards:
        check()
    return LoadSample(values)
