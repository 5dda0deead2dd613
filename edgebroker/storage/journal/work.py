"""What the journal wants done on the disk, as plain values. A world carries them out in order and decides nothing."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from edgebroker.dataclasses import dataclass

QUARANTINE = "quarantine"
"""The folder, inside the journal's, of files that were set aside."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make the empty file *name*; if there is one, it becomes empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Fill:
    """Write *bytes* zeros at *offset*, so that the disk has the room before it is needed."""

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
class SyncFolder:
    """Wait until the names in the folder are on the disk."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move the file *name* into the folder QUARANTINE, made if need be, as *to*; it is well if there is none."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the file *name*; it is well if there is none."""

    name: str


Operation: TypeAlias = Create | Fill | Write | Sync | SyncFolder | SetAside | Remove


class WorkPurpose(Enum):
    """What a work is for."""

    BATCH = "batch"
    """Records: when it is done they are on disk."""
    ROOM = "room"
    """A part of the next segment, made before it is needed."""
    TIDY = "tidy"
    """Files that are not needed any more."""


@dataclass(frozen=True, slots=True, eq=False)
class DiskWork:
    """Operations to be carried out in this order. The first that fails ends it: the journal is told with `failed`."""

    purpose: WorkPurpose
    operations: tuple[Operation, ...]
    upto: int = 0
    """BATCH: the last LSN that is on disk when all is done."""
