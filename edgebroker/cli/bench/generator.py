"""The load generator, a process of its own: one Job in on standard input, one Sample out on standard output.

Started as `python -m edgebroker.cli.bench.generator`. It has its own process so that it can be pinned to another core
than the broker and so that nothing of the benchmark's bookkeeping disturbs it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from . import acknowledged, idle, paced, stream
from .filters import load as filters
from .job import Job, LoadFailed, Sample

LOADS: dict[str, Callable[[Job], Sample]] = {
    "stream": stream.run,
    "acknowledged": acknowledged.run,
    "paced": paced.run,
    "idle": idle.run,
    "readings": filters.run,
}


def main() -> None:
    """Do the job on standard input; its sample, or why there is none, goes to standard output."""
    job = Job.from_json(sys.stdin.read())
    gc.disable()  # the loads make no cycles; a collection in the middle would count as latency
    try:
        sample = LOADS[job.load](job)
    except (LoadFailed, OSError) as failure:
        sample = Sample(failure=str(failure) or type(failure).__name__)
    print(sample.to_json())


if __name__ == "__main__":
    main()
