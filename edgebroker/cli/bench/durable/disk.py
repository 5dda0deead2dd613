"""What a process wrote to the disk, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def written_by(pid: int) -> int:
    """Bytes that *pid* caused to be sent to the storage layer (proc_pid_io(5), write_bytes)."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise AssertionError("the kernel counts no bytes")


def is_in_memory(folder: Path) -> bool:
    """Whether *folder* lies in a file system that never reaches a disk."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, where, found, *_ = line.split()
        if (folder.is_relative_to(where)) and len(where) >= len(best):
            best, kind = where, found
    return kind in ("tmpfs", "ramfs")
