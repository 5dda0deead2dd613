"""A simulated disk that fails on demand: it loses unsynced writes, tears writes, flips bits, fills up, and fails.

A program reads from the *cache*; after a power cut the *platter* remains. A write reaches the cache at once. Each of
its 512-byte sectors reaches the platter whole or not at all: certainly with the next successful sync, by chance before
that, in any order. A failed sync leaves some of them unwritten for good, and the next one does not try them again, as
on Linux. Names behave in the same way, and are made durable by a sync of the folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from edgebroker.instants import Duration
from edgebroker.storage.journal.format import CONTROL_FILE, FRAMES_AT, SECTOR_BYTES
from edgebroker.storage.journal.page_files import page_number
from edgebroker.storage.journal.work import (
    Create,
    Fill,
    Operation,
    Read,
    Remove,
    SetAside,
    Sync,
    SyncControl,
    SyncFolder,
    Write,
    WriteControl,
)

NO_ROOM = "No space left on device"
BAD = "Input/output error"
_SYNCS: Final = (Sync, SyncFolder, SyncControl)


Watch: TypeAlias = Callable[[bytes], None]
"""Called with the bytes that a sync has written to the platter, and a little around them."""
AROUND: Final = 2 * SECTOR_BYTES


class DiskFailed(Exception):
    """An operation failed; the text is that of the operating system."""


@dataclass(slots=True)
class DiskFile:
    """One file: in the cache, on the platter, and its dirty sectors, oldest first."""

    cache: bytearray = field(default_factory=bytearray)
    platter: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        """Write *data* to the cache; its sectors become dirty."""
        end = offset + len(data)
        if end > len(self.cache):
            self.cache.extend(bytes(end - len(self.cache)))
        self.cache[offset:end] = data
        for at in range(offset - offset % SECTOR_BYTES, end, SECTOR_BYTES):
            self.dirty.append((at, bytes(self.cache[at : at + SECTOR_BYTES])))

    def settle(self, random: Random | None = None) -> None:
        """Write the dirty sectors to the platter: all of them, or with *random* a random part."""
        if random is None:
            for at, sector in self.dirty:
                self._put(at, sector)
        elif self.dirty:
            share = random.random()  # few, half or most of them: every kind of torn write occurs
            for at, sector in self.dirty:
                if random.random() < share:
                    self._put(at, sector)
        self.dirty.clear()

    def _put(self, at: int, sector: bytes) -> None:
        end = at + len(sector)
        if end > len(self.platter):
            self.platter.extend(bytes(end - len(self.platter)))
        self.platter[at:end] = sector

    def copy(self) -> DiskFile:
        """Return a copy."""
        return DiskFile(bytearray(self.cache), bytearray(self.platter), list(self.dirty))


class Disk:
    """A folder of files on a disk of *bytes_max* bytes. All random decisions use *random*."""

    def __init__(self, random: Random, bytes_max: int = 1 << 40) -> None:
        self.random = random
        self.bytes_max = bytes_max
        self.write_fails = 0.0
        """The probability that a write fails; then a part of it is written."""
        self.sync_fails = 0.0
        """The probability that a sync fails."""
        self.sync_us: tuple[Duration, Duration] = (500, 3_000)
        """The shortest and the longest duration of a sync."""
        self.files: dict[str, DiskFile] = {}
        self.aside: dict[str, DiskFile] = {}
        self.is_control_stale = False
        """Whether the last write or sync of the control file failed."""
        self.bytes_written = 0
        self.syncs = 0
        self.watch: Watch | None = None
        self._durable_files: dict[str, DiskFile] = {}  # the names on the platter

    # -- operations of a journal -----------------------------------------------------------------------------------

    def time_for(self, operation: Operation) -> Duration:
        """Return the duration of *operation*: syncs take time, all others only change the cache."""
        return self.random.randint(*self.sync_us) if isinstance(operation, _SYNCS) else 0

    def do(self, operation: Operation, read_data: list[bytes] | None = None) -> None:
        """Execute one operation; what it reads is appended to *read_data*. Raises DiskFailed."""
        match operation:
            case Read(name):
                if read_data is not None:
                    read_data.append(bytes(self._file(name).cache))
            case Create(name):
                self.files[name] = DiskFile()
            case Fill(name, offset, size):
                self._write(name, offset, bytes(size))
            case Write(name, offset, data):
                self._write(name, offset, data)
            case Sync(name):
                self._sync(name)
            case SyncFolder():
                self.syncs += 1
                self._durable_files = dict(self.files)
            case SetAside(name, to):
                if name in self.files:
                    self.aside[to] = self.files.pop(name)
            case Remove(name):
                self.files.pop(name, None)
            case WriteControl(data):
                self._do_control(lambda: self._write_control(data))
            case SyncControl():
                self._do_control(self._sync_control)

    def _do_control(self, step: Callable[[], None]) -> None:
        """Execute *step*, whose failure fails nothing else."""
        try:
            step()
        except DiskFailed:
            self.is_control_stale = True

    def _write_control(self, data: bytes) -> None:
        self.is_control_stale = False
        self.files.setdefault(CONTROL_FILE, DiskFile())
        self._write(CONTROL_FILE, 0, data)

    def _sync_control(self) -> None:
        self._sync(CONTROL_FILE)
        self._durable_files[CONTROL_FILE] = self.files[CONTROL_FILE]

    def _write(self, name: str, offset: int, data: bytes) -> None:
        file = self._file(name)
        more = max(0, offset + len(data) - len(file.cache))
        if self.bytes_used + more > self.bytes_max:
            raise DiskFailed(NO_ROOM)
        if self.random.random() < self.write_fails:
            done = self.random.randrange(len(data) // SECTOR_BYTES + 1) * SECTOR_BYTES
            file.write(offset, data[:done])
            raise DiskFailed(BAD)
        file.write(offset, data)
        self.bytes_written += len(data)

    def _sync(self, name: str) -> None:
        self.syncs += 1
        file = self._file(name)
        if self.random.random() < self.sync_fails:
            file.settle(self.random)
            raise DiskFailed(BAD)
        places = [at for at, _ in file.dirty]
        file.settle()
        if self.watch is not None and places:
            self.watch(bytes(file.platter[max(0, min(places) - AROUND) : max(places) + AROUND]))

    def _file(self, name: str) -> DiskFile:
        if name not in self.files:
            raise DiskFailed("No such file or directory")
        return self.files[name]

    @property
    def bytes_used(self) -> int:
        """Return the size of all files."""
        return sum(len(file.cache) for file in (*self.files.values(), *self.aside.values()))

    @property
    def bytes_left(self) -> int:
        """Return the free space."""
        return max(0, self.bytes_max - self.bytes_used)

    # -- reads of recovery -------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of the segments."""
        return sorted(name for name in self.files if name != CONTROL_FILE and page_number(name) is None)

    def page_sizes(self) -> dict[int, int]:
        """Return the number of each page file, and its size."""
        numbers = {name: page_number(name) for name in self.files}
        return {number: len(self.files[name].cache) for name, number in numbers.items() if number is not None}

    def head(self, name: str) -> bytes:
        """Return the first bytes of a file."""
        return bytes(self.files[name].cache[:FRAMES_AT])

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return bytes(self.files[name].cache)

    def control(self) -> bytes:
        """Return the content of the control file; empty if there is none."""
        return bytes(self.files[CONTROL_FILE].cache[:FRAMES_AT]) if CONTROL_FILE in self.files else b""

    # -- faults ------------------------------------------------------------------------------------------------------

    def killed(self) -> Disk:
        """Return the disk after the process was killed: the cache survives, and nothing was synced by it."""
        image = self._empty()
        copies = {id(file): file.copy() for file in (*self.files.values(), *self._durable_files.values())}
        image.files = {name: copies[id(file)] for name, file in self.files.items()}
        image._durable_files = {name: copies[id(file)] for name, file in self._durable_files.items()}
        return image

    def crash(self) -> Disk:
        """Return one possible disk after a power cut now. This disk is unchanged."""
        image = self._empty()
        for name in sorted({*self.files, *self._durable_files}):
            old, new = self._durable_files.get(name), self.files.get(name)
            file = new if old is new or self.random.random() < 0.5 else old
            if file is not None:
                left = DiskFile(bytearray(), bytearray(file.platter), list(file.dirty))
                left.settle(self.random)
                left.cache = bytearray(left.platter)
                image.files[name] = left
        image._durable_files = dict(image.files)
        return image

    def flip(self, name: str, bit: int) -> None:
        """Flip one bit of a file: on the platter, in the cache, and in the dirty sectors."""
        file = self.files[name]
        at = bit >> 3
        for data in (file.cache, file.platter):
            if at < len(data):
                data[at] ^= 1 << (bit & 7)
        for index, (start, sector) in enumerate(file.dirty):
            if start <= at < start + len(sector):
                turned = bytearray(sector)
                turned[at - start] ^= 1 << (bit & 7)
                file.dirty[index] = start, bytes(turned)

    def _empty(self) -> Disk:
        image = Disk(self.random, self.bytes_max)
        image.sync_us = self.sync_us
        image.watch = self.watch
        image.aside = dict(self.aside)
        return image
