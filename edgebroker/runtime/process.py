"""The gateway's own process: its CPU, memory and descriptors from /proc, its identity, and its garbage collector.

Other brokers know a gateway by its identity, which survives restarts: it is derived from the machine id, the data
folder and the node's name.

A garbage collection looks for cycles of objects, and a gateway makes next to none: an object is freed with its last
reference. A collection over a queue of 300,000 messages took 150 ms each time the queue had grown by a quarter. So
objects that survive one long collection are frozen and not visited again.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from edgebroker.dataclasses import dataclass

_STATM = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """`resident_bytes` and `descriptors` are None where /proc does not report them."""

    cpu_s: float
    resident_bytes: int | None
    descriptors: int | None
    descriptors_max: int

    @classmethod
    def now(cls) -> ProcessUsage:
        """Returns the present usage. Takes 8 us: no folder is listed, so the number of connections does not matter."""
        times = os.times()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(times.user + times.system, _resident(), _descriptors(), max(limit, 0))


def _resident() -> int | None:
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def _descriptors() -> int | None:
    """Returns the number of open descriptors: the size of the folder, since Linux 6.2. To list 10,000 would
    take 5 ms.
    """
    try:
        return _DESCRIPTORS.stat().st_size or None
    except OSError:
        return None


MACHINE_ID_FILE: Final = Path("/etc/machine-id")
IDENTITY_CHARS: Final = 12  # 48 bits: two of 10,000 gateways are the same in one of five million fleets


def identity_of(node: str, folder: Path | None) -> str:
    """Returns an identity derived from the machine, the data folder and the node's name."""
    try:
        machine = MACHINE_ID_FILE.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        machine = ""  # a container has none: the data folder must suffice
    source = "\0".join((machine, str(folder), node)).encode()
    return f"{crc32(source):08x}{crc32(source[::-1]):08x}"[:IDENTITY_CHARS]


LONG_S: Final = 0.002
"""Objects that survive a full collection longer than this are frozen: no later collection visits them."""
UNSEEN_MAX: Final = 200
"""After so many long collections everything is unfrozen once: some 100 objects that were about to become garbage during
each of them would otherwise never be freed, 2 MiB in all."""
THRESHOLDS: Final = (1_000, 10, 3)
"""The arguments of `gc.set_threshold`: a full collection after 30,000 more objects, which takes about 5 ms. Python's
defaults are (700, 10, 10)."""


class GarbageCollector:
    """Python's garbage collector, with these thresholds and freezing from `install` on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = 0.0
        self._unseen = 0

    def install(self) -> None:
        """Freeze all objects that exist, set the thresholds and enable the collector.

        There is no collection first: of 45,000 objects at most 1,000 are garbage, and to find them takes 14 ms.
        """
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self.on_collection)
        gc.enable()

    def on_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        """Freeze the survivors of a long full collection; *phase* and *info* are those of `gc.callbacks`."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._clock() - self._began > LONG_S:
            self._unseen += 1
            if self._unseen > UNSEEN_MAX:
                self._unseen = 0
                gc.unfreeze()
            else:
                gc.freeze()
