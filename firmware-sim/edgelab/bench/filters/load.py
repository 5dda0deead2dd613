"""Open loop with many readers: every delivery of a sensor reading is checked against the expected readers.

The expected readers are computed value by value, without the matching engine.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from edgelab.bench import packets
from edgelab.bench.client import STALL_S, BenchClient
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.paced import percentile
from edgelab.bench.stream import EXCESS_WAIT_S, READ_BYTES
from edgelab.processes import CpuClocks

FIELDS = ("temperature", "humidity", "pressure", "co2", "noise", "voltage", "level")  # and `seq`: eight in all
LOWEST, HIGHEST = 100, 999  # of every field: all readings have the same length as text
SEQ_FIRST = 1_000_000_000  # so have the numbers of the messages
DEVICES = 500  # different readings; each has a topic of its own
SELECTIVITY = 0.001  # the share of the readings that a filter accepts
PER_CLIENT = 100  # subscriptions
READINGS = "sensors/+/reading"
"""The topic filter under which all content filters stand."""


@dataclass(frozen=True, slots=True)
class RangeFilter:
    """A conjunction of ranges: (place of the field, lowest, highest)."""

    ranges: tuple[tuple[int, int, int], ...]

    @property
    def text(self) -> str:
        """The subscription as MQTT carries it."""
        where = " AND ".join(f"{FIELDS[field]} BETWEEN {low} AND {high}" for field, low, high in self.ranges)
        return f"$filter/{where}/{READINGS}"

    def accepts(self, reading: Sequence[int]) -> bool:
        """Whether every range holds its value."""
        return all(low <= reading[field] <= high for field, low, high in self.ranges)


def topic_of(device: int) -> str:
    """Where the device publishes."""
    return f"sensors/{device:04d}/reading"


def payload_of(reading: Sequence[int], number: int) -> bytes:
    """The reading as a JSON object with eight fields; message *number* shows in `seq`, which comes first."""
    values = ",".join(f'"{field}":{value}' for field, value in zip(FIELDS, reading, strict=True))
    return f'{{"seq":{SEQ_FIRST + number},{values}}}'.encode()


class Readings:
    """What the devices say, what the clients ask for, and which clients must get what."""

    def __init__(self, subscriptions: int, seed: int = 1) -> None:
        chance = Random(seed)
        self.by_device = [tuple(chance.randint(LOWEST, HIGHEST) for _ in FIELDS) for _ in range(DEVICES)]
        self.asks = [_ask(chance) for _ in range(subscriptions)]
        self.clients = -(-subscriptions // PER_CLIENT)
        self.matches = 0
        """Subscriptions that accept the reading of a device, over all devices."""
        self.audiences: list[frozenset[int]] = []
        """Per device, the clients that want its reading."""
        for reading in self.by_device:
            accepting = [number for number, ask in enumerate(self.asks) if ask.accepts(reading)]
            self.matches += len(accepting)
            self.audiences.append(frozenset(number // PER_CLIENT for number in accepting))

    def by_content(self, client: int) -> list[str]:
        """The subscriptions of *client*: one for each of its filters."""
        return [ask.text for ask in self.asks[client * PER_CLIENT : (client + 1) * PER_CLIENT]]

    def by_topic(self, client: int) -> list[str]:
        """Subscriptions without content filter that bring *client* the same messages.

        They name the devices whose readings it wants. Others, that match nothing, make up the number.
        """
        wanted = [topic_of(device) for device, audience in enumerate(self.audiences) if client in audience]
        idle = [f"sensors/{client:04d}/command/{n}" for n in range(len(self.by_content(client)) - len(wanted))]
        return wanted + idle


def _ask(chance: Random) -> RangeFilter:
    """Two to four of the fields, each within a range; together they leave SELECTIVITY of all readings."""
    count = chance.randint(2, 4)
    width = round((HIGHEST - LOWEST + 1) * SELECTIVITY ** (1 / count))
    ranges = []
    for field in sorted(chance.sample(range(len(FIELDS)), count)):
        low = chance.randint(LOWEST, HIGHEST - width + 1)
        ranges.append((field, low, low + width - 1))
    return RangeFilter(tuple(ranges))


BY_CONTENT, BY_TOPIC = "by content", "by topic"
"""The shapes of this load: what the subscriptions look at."""

SEQ_DIGITS = len(str(SEQ_FIRST))


class FilterReader:
    """One subscribing client and the bytes it has received of an unfinished packet."""

    def __init__(self, client: BenchClient) -> None:
        self.client = client
        self.kept = b""

    def read(self, buffer: memoryview, size: int) -> bytes:
        """What has arrived, in whole packets of *size* bytes."""
        came = self.client.socket.recv_into(buffer, 0, socket.MSG_DONTWAIT)
        if not came:
            raise LoadFailed("the broker closed a subscriber")
        have = self.kept + bytes(buffer[:came])
        whole = len(have) - len(have) % size
        self.kept = have[whole:]
        return have[:whole]


class FilterExchange:
    """The connected clients of one run."""

    def __init__(self, job: LoadJob) -> None:
        self.job = job
        self.readings = Readings(job.subscriptions)
        self.readers = [FilterReader(BenchClient(job.port, f"bench-sub-{n}")) for n in range(self.readings.clients)]
        self.publishers = [BenchClient(job.port, f"bench-pub-{n}") for n in range(job.publishers)]
        packet = self.packet(0)
        self.size = len(packet)
        self.seq_at = packet.index(b":") + 1
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.ready = select.epoll()
        self.index: dict[int, int] = {}
        for n, reader in enumerate(self.readers):
            self.ready.register(reader.client.socket, select.EPOLLIN)
            self.index[reader.client.socket.fileno()] = n
        self.sent: list[bytes] = []
        self.sent_ns: list[int] = []
        self.missing: list[set[int]] = []
        """Per message sent, the clients that have not got it yet."""
        self.latencies_ns: list[tuple[int, int]] = []
        """Of each delivery: the number of the message, and how long it took."""

    def packet(self, number: int) -> bytes:
        """Message *number*: the devices take turns."""
        device = number % DEVICES
        return packets.publish(topic_of(device), payload_of(self.readings.by_device[device], number))

    def subscribe(self) -> dict[str, float]:
        """Install all subscriptions, a client's in one packet: the broker's CPU time for each, in us."""
        ask = self.readings.by_content if self.job.shape == BY_CONTENT else self.readings.by_topic
        wanted = [ask(n) for n in range(len(self.readers))]
        clocks = CpuClocks(self.job.broker_pid)
        for reader, texts in zip(self.readers, wanted, strict=True):
            reader.client.subscribe(texts)
        return {"subscribe_us": clocks.shares(sum(map(len, wanted)))["cpu_us"]}

    def offer(self, total: int, warm: int) -> dict[str, float]:
        """Publish *total* messages on schedule and receive all of them: the use of the cores after *warm* messages."""
        interval_ns = 1_000_000_000 // self.job.rate
        sends = [publisher.socket.send for publisher in self.publishers]
        clock, late_ns = time.perf_counter_ns, [0] * total
        clocks = CpuClocks(self.job.broker_pid)
        expected = sum(len(self.readings.audiences[number % DEVICES]) for number in range(total))
        due = clock() + interval_ns
        give_up = due + total * interval_ns + STALL_S * 1_000_000_000
        while len(self.sent_ns) < total or len(self.latencies_ns) < expected:
            now = clock()
            number = len(self.sent_ns)
            if number < total and now >= due:
                packet = self.packet(number)
                if number == warm:
                    clocks = CpuClocks(self.job.broker_pid)
                self.missing.append(set(self.readings.audiences[number % DEVICES]))
                now = clock()
                late_ns[number] = now - due
                self.sent_ns.append(now)
                self.sent.append(packet)
                sends[number % len(sends)](packet)
                due += interval_ns
            elif now > give_up:
                missing = expected - len(self.latencies_ns)
                raise LoadFailed(f"{missing:,} of {expected:,} deliveries are lost, or more than {STALL_S} s late")
            else:
                for descriptor, _ in self.ready.poll(0):
                    self.receive(self.index[descriptor])
        values = clocks.shares(total - warm)
        values["generator_late_p99_us"] = percentile(sorted(late_ns[warm:]), 0.99) / 1e3
        return values

    def receive(self, client: int) -> None:
        """Read what has come for *client*. Raises LoadFailed if it was not published, or is not for this client."""
        came = self.readers[client].read(self.buffer, self.size)
        now = time.perf_counter_ns()
        for at in range(0, len(came), self.size):
            seq = came[at + self.seq_at : at + self.seq_at + SEQ_DIGITS]
            number = int(seq) - SEQ_FIRST if seq.isdigit() else -1
            if not 0 <= number < len(self.sent) or came[at : at + self.size] != self.sent[number]:
                raise LoadFailed(f"subscriber {client} received something else than was published")
            if client not in self.missing[number]:
                raise LoadFailed(f"subscriber {client} received message {number:,} twice, or did not ask for it")
            self.missing[number].remove(client)
            self.latencies_ns.append((number, now - self.sent_ns[number]))

    def close(self) -> None:
        """Nothing may follow; then hang up."""
        excess = bool(self.ready.poll(EXCESS_WAIT_S))
        self.ready.close()
        for client in (*self.publishers, *(reader.client for reader in self.readers)):
            client.close()
        if excess:
            raise LoadFailed("more messages arrived than somebody asked for, or the broker hung up")


def run(job: LoadJob) -> LoadSample:
    """CPU time per message and per subscription, and the latency of the deliveries (us)."""
    exchange = FilterExchange(job)
    values = exchange.subscribe()
    warm, total = int(job.rate * job.warmup_s), int(job.rate * (job.warmup_s + job.seconds))
    values |= exchange.offer(total, warm)
    exchange.close()
    timed = sorted(latency for number, latency in exchange.latencies_ns if number >= warm)
    if not timed:
        raise LoadFailed("nobody wanted any of the messages: more subscriptions or more seconds are needed")
    values["deliveries"] = len(timed)
    values["messages"] = total - warm
    values["p50_us"] = percentile(timed, 0.50) / 1e3
    values["p99_us"] = percentile(timed, 0.99) / 1e3
    values["longest_us"] = timed[-1] / 1e3
    return LoadSample(values)
