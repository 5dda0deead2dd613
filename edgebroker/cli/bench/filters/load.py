"""Open loop, like `paced`, but with many readers: every delivery is checked against what must be delivered.

Each message must reach every client that wants it once, and nobody else. Both ways to subscribe bring the same messages
to the same clients, so the generator does the same work for both.
"""

from __future__ import annotations

import select
import socket
import time

from .. import packets
from ..client import STALL_S, Client
from ..job import Job, LoadFailed, Sample
from ..paced import percentile
from ..processes import CpuClocks
from ..stream import EXCESS_WAIT_S, READ_BYTES
from .readings import DEVICES, SEQ_FIRST, Readings, payload_of, topic_of

BY_CONTENT, BY_TOPIC = "by content", "by topic"
"""The shapes of this load: what the subscriptions look at."""

SEQ_DIGITS = len(str(SEQ_FIRST))


class Reader:
    """One subscribing client and the bytes it has received of an unfinished packet."""

    def __init__(self, client: Client) -> None:
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


class Exchange:
    """The connected clients of one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.readings = Readings(job.subscriptions)
        self.readers = [Reader(Client(job.port, f"bench-sub-{n}")) for n in range(self.readings.clients)]
        self.publishers = [Client(job.port, f"bench-pub-{n}") for n in range(job.publishers)]
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


def run(job: Job) -> Sample:
    """CPU time per message and per subscription, and the latency of the deliveries (us)."""
    exchange = Exchange(job)
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
    return Sample(values)
