"""Open loop: publishers take turns at a fixed total rate; every message carries the time it was sent.

They send evenly, as devices do that measure every so often, or at any time, as independent events do: then the
intervals are exponentially distributed, and nobody can know when the next message comes.

The generator spins on its own core instead of sleeping: its own wake-up (30 to 60 us) would otherwise be part of
every latency, of both brokers alike, and hide the difference between them.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable

from edgelab.bench import packets
from edgelab.bench.client import STALL_S, BenchClient
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.stream import READ_BYTES
from edgelab.processes import CpuClocks

TOPIC = "bench/paced"
SEED = 1  # the same intervals in every run
STAMP = struct.Struct("<QQ")  # sent at, in ns of perf_counter; number of the message


def run(job: LoadJob) -> LoadSample:
    """Median and 99th percentile latency, broker CPU per message, and how late the generator itself was (us)."""
    subscriber = BenchClient(job.port, "bench-sub", job.is_tls)
    subscriber.subscribe([TOPIC])
    publishers = [BenchClient(job.port, f"bench-pub-{n}", job.is_tls) for n in range(job.publishers)]
    warm, total = int(job.rate * job.warmup_s), min(int(job.rate * (job.warmup_s + job.seconds)), job.messages_max)
    latencies_ns = [-1] * total
    shares, late_ns = offer(job, [p.socket.send for p in publishers], subscriber.socket, latencies_ns, warm)
    if (lost := latencies_ns.count(-1)) > 0:
        raise LoadFailed(f"{lost:,} of {total:,} messages lost")
    for client in (*publishers, subscriber):
        client.close()
    timed = sorted(latencies_ns[warm:])
    return LoadSample(
        {
            "p50_us": percentile(timed, 0.50) / 1e3,
            "p99_us": percentile(timed, 0.99) / 1e3,
            "generator_late_p99_us": percentile(sorted(late_ns[warm:]), 0.99) / 1e3,
            **shares,
        }
    )


def offer(
    job: LoadJob, sends: list[Callable[[bytearray], int]], reader: socket.socket, latencies_ns: list[int], warm: int
) -> tuple[dict[str, float], list[int]]:
    """Publish on schedule, fill *latencies_ns* by message number: (use of the cores after *warm*, lateness in ns)."""
    packet = bytearray(packets.publish(TOPIC, bytes(packets.PAYLOAD_BYTES)))
    size, stamp_at = len(packet), len(packet) - packets.PAYLOAD_BYTES
    buffer, kept, sent, received, total = bytearray(READ_BYTES), 0, 0, 0, len(latencies_ns)
    view = memoryview(buffer)
    late_ns = [0] * total
    interval_ns = 1_000_000_000 // job.rate
    chance = random.Random(SEED)
    clocks = CpuClocks(job.broker_pid)
    clock = time.perf_counter_ns
    due = clock() + interval_ns
    give_up = due + total * interval_ns + STALL_S * 1_000_000_000
    while received < total:
        now = clock()
        if now >= due and sent < total:
            if sent == warm:
                clocks = CpuClocks(job.broker_pid)
                now = clock()
            late_ns[sent] = now - due
            STAMP.pack_into(packet, stamp_at, now, sent)
            sends[sent % len(sends)](packet)
            sent += 1
            due += round(chance.expovariate(1 / interval_ns)) if job.is_irregular else interval_ns
            continue
        if now > give_up:
            break
        try:
            came = reader.recv_into(view[kept:], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        now = clock()
        if not came:
            raise LoadFailed("the broker closed the subscriber")
        kept += came
        whole = kept - kept % size
        for at in range(stamp_at, whole, size):
            sent_at, number = STAMP.unpack_from(buffer, at)
            if number >= sent or latencies_ns[number] != -1:
                raise LoadFailed(f"message {number:,} was received twice or is damaged")
            latencies_ns[number] = now - sent_at
        received += whole // size
        buffer[: kept - whole] = buffer[whole:kept]
        kept -= whole
    return clocks.shares(total - warm), late_ns


def percentile(ascending: list[int], share: float) -> int:
    """The smallest value that at least *share* of the values do not exceed (nearest rank)."""
    return ascending[max(0, -int(-len(ascending) * share // 1) - 1)]
