"""The gateway's own process: its CPU, memory and descriptors from /proc, and an identity that survives restarts.

Other brokers know a gateway by this identity. It is derived from the machine id, the data folder and the node's name.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final
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
