"""Disk operations of the journal, as plain values. The runtime carries them out in order and decides nothing."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from edgebroker.dataclasses import dataclass

QUARANTINE = "quarantine"
"""The folder inside the journal's for damaged files."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the empty file *name*; truncate it if it exists."""

    name: str


@dataclass(frozen=True, slots=True)
class Fill:
    """Write *bytes* zeros at *offset* to allocate the disk space before it is needed."""

    name: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write *data* at *offset* of the file *name*, which exists and is long enough."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait until everything written to *name* is on the disk, as fdatasync does."""

    name: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read the file *name* whole, and append its bytes to `DiskWork.read_data`. A missing file is a failure."""

    name: str


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """Wait until the entries of the folder are on the disk."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move the file *name* into the folder QUARANTINE, created if necessary, as *to*; a missing file is ignored."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the file *name*; a missing file is ignored."""

    name: str


@dataclass(frozen=True, slots=True)
class WriteControl:
    """Write *data* to the control file from its begin; create it if necessary. A failure does not fail the work: what
    was promised is in the segments, and an older control file never reports damage that is not there.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class SyncControl:
    """Wait until the control file is on the disk, its name too. A failure does not fail the work."""


Operation: TypeAlias = Create | Fill | Write | Sync | Read | SyncFolder | SetAside | Remove | WriteControl | SyncControl


class WorkPurpose(Enum):
    """The purpose of a work."""

    BATCH = "batch"
    """Records: they are on disk when it is done."""
    ROOM = "room"
    """Allocates a part of the next segment, before it is needed."""
    TIDY = "tidy"
    """Removes or moves files that are not needed any more."""
    PAGE = "page"
    """Writes, reads or removes page files. It concerns no record."""


@dataclass(frozen=True, slots=True, eq=False)
class DiskWork:
    """Operations to carry out in this order. After the first failure the rest is skipped and `Journal.failed` is
    called.
    """

    purpose: WorkPurpose
    operations: tuple[Operation, ...]
    upto: int = 0
    """BATCH: the last LSN that is on disk when it is done."""
    read_data: list[bytes] = field(default_factory=list)
    """What its `Read` operations have read, in their order; whoever carries it out appends it."""
