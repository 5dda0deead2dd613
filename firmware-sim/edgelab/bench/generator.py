"""The load generator, a process of its own: it reads one job from standard input and writes one sample.

It is started as `python -m edgelab.bench.generator`, so that it can be pinned to another core than the broker,
and so that the bookkeeping of the benchmark disturbs neither.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from edgelab.bench import acknowledged, generator, paced, stream
from edgelab.bench.client import BenchClient
from edgelab.bench.filters import load as filters
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.processes import memory_bytes

MIB = 1024 * 1024


def measure_idle(job: LoadJob) -> LoadSample:
    """Resident and proportional set size in MiB after *seconds* of silence with *subscribers* connected clients."""
    clients = [BenchClient(job.port, f"bench-idle-{n}", job.is_tls) for n in range(job.subscribers)]
    for n, client in enumerate(clients):
        client.subscribe([f"bench/idle/{n}"])
    time.sleep(job.seconds)
    memory = memory_bytes(job.broker_pid)
    for n in (0, -1) if clients else ():
        if clients[n].has_more(within_s=0.01):
            raise LoadFailed("the broker spoke to an idle client or hung up")
    for client in clients:
        client.close()
    return LoadSample({f"{kind}_mib": count / MIB for kind, count in memory.items()})


LOADS: dict[str, Callable[[LoadJob], LoadSample]] = {
    "stream": stream.run,
    "acknowledged": acknowledged.run,
    "paced": paced.run,
    "idle": generator.measure_idle,
    "readings": filters.run,
}


def main() -> None:
    """Do the job on standard input; its sample, or why there is none, goes to standard output."""
    job = LoadJob.from_json(sys.stdin.read())
    gc.disable()  # the loads make no cycles; a collection in the middle would count as latency
    try:
        sample = LOADS[job.load](job)
    except (LoadFailed, OSError) as failure:
        sample = LoadSample(failure=str(failure) or type(failure).__name__)
    print(sample.to_json())


if __name__ == "__main__":
    main()
