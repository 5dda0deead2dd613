"""Connected and silent: what the broker's process holds in memory."""

from __future__ import annotations

import time

from .client import Client
from .job import Job, LoadFailed, Sample
from .processes import memory_bytes

MIB = 1024 * 1024


def run(job: Job) -> Sample:
    """Resident and proportional set size in MiB after *seconds* of silence with *subscribers* connected clients."""
    clients = [Client(job.port, f"bench-idle-{n}", job.is_tls) for n in range(job.subscribers)]
    for n, client in enumerate(clients):
        client.subscribe([f"bench/idle/{n}"])
    time.sleep(job.seconds)
    memory = memory_bytes(job.broker_pid)
    for n in (0, -1) if clients else ():
        if clients[n].has_more(within_s=0.01):
            raise LoadFailed("the broker spoke to an idle client or hung up")
    for client in clients:
        client.close()
    return Sample({f"{kind}_mib": count / MIB for kind, count in memory.items()})
