"""A journal's folder on a real disk: reads it for recovery, executes the journal's writes, and locks the folder.

Every method blocks; `JournalWorker` calls them in a thread. Writes bypass the page cache where the file system allows
it (O_DIRECT): frames begin and end with a sector. Through the cache each commit writes whole pages of 4 KiB: with 64
bytes 1,000 times a second and commits of 5 ms that is 8.9 bytes for each byte of a record, and 1.9 without. `SyncTimes`
is a histogram of the durations of syncs, in microseconds.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from edgebroker.errors import JournalInUse
from edgebroker.instants import Duration
from edgebroker.limits import JOURNAL_SEGMENT_BYTES_MAX, KIB
from edgebroker.storage.journal.format import CONTROL_FILE, FRAMES_AT, PAGE_BYTES
from edgebroker.storage.journal.page_files import page_number
from edgebroker.storage.journal.segments import SUFFIX
from edgebroker.storage.journal.work import (
    QUARANTINE,
    Create,
    DiskWork,
    Fill,
    Operation,
    Read,
    Remove,
    SetAside,
    Sync,
    SyncControl,
    SyncFolder,
    WorkPurpose,
    Write,
    WriteControl,
)

STEPS = 4  # buckets per doubling: a quantile is right to 19 %
OCTAVES = 30  # up to 18 minutes


class SyncTimes:
    """Counts durations in buckets that grow by 2^(1/4). Takes 1 KiB, however many there are."""

    def __init__(self) -> None:
        self.count = 0
        self.total_us: Duration = 0
        self.longest_us: Duration = 0
        self._buckets = [0] * (STEPS * OCTAVES)

    def add(self, duration_us: Duration) -> None:
        """Counts one sync."""
        self.count += 1
        self.total_us += duration_us
        self.longest_us = max(self.longest_us, duration_us)
        self._buckets[_bucket_of(duration_us)] += 1

    def quantile(self, share: float) -> Duration:
        """Returns the duration that *share* of all syncs did not exceed, rounded up to its bucket's end; 0 if there was
        none.
        """
        rank, cumulative = share * self.count, 0
        for number, count in enumerate(self._buckets):
            cumulative += count
            if count and cumulative >= rank:
                return min(_end_of(number), self.longest_us)
        return self.longest_us

    def buckets(self) -> Iterator[tuple[Duration, int]]:
        """Yields (upper bound in microseconds, syncs up to it) for each doubling, cumulative as in OpenMetrics."""
        cumulative = 0
        for number, count in enumerate(self._buckets):
            cumulative += count
            if number % STEPS == STEPS - 1:
                yield _end_of(number), cumulative


def _bucket_of(duration_us: Duration) -> int:
    octave = max(duration_us, 1).bit_length() - 1
    step = (max(duration_us, 1) - (1 << octave)) * STEPS >> octave
    return min(octave * STEPS + step, STEPS * OCTAVES - 1)


def _end_of(bucket: int) -> Duration:
    octave, step = divmod(bucket, STEPS)
    return (1 << octave) + ((step + 1 << octave) + STEPS - 1) // STEPS


LOCK = "lock"
FOLDER_GONE: Final = "its folder was taken away or exchanged"  # without its path: the reason is sent to clients
LOCK_GONE: Final = "its lock was taken away or exchanged"
LOCKS = Path("/proc/locks")
ZEROS = bytes(128 * KIB)
BUFFER_BYTES = 256 * KIB


class JournalFiles:
    """The folder *path*. It is neither made nor changed before `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sync_us = SyncTimes()
        """The duration of each sync."""
        self.bytes_written = 0
        """Bytes passed to the operating system."""
        self.free_bytes: int | None = None
        """Free bytes of the disk after the last work; None if it does not report them."""
        self.card_bytes_written = 0
        """Bytes written to the card: through the page cache these are whole pages of 4 KiB."""
        self._direct = getattr(os, "O_DIRECT", 0)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # page-aligned, as O_DIRECT requires
        self._descriptors: dict[str, int] = {}
        self._lock: int | None = None
        self._folder: int | None = None
        self.has_lost_segment = False
        """A segment that was written and synced has been deleted or replaced. Its records must be written again."""
        self.control_failure = ""
        """Why the control file is not up to date; "" if it is."""
        self._is_control_new = False

    # -- the lock ----------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Makes the folder and locks it for this process, until `close` or the end of the process.

        Raises JournalInUse if another process has locked it, OSError if the folder cannot be used.
        """
        _make_folder(self.path)
        self._lock = self._take_lock()
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    def _take_lock(self) -> int:
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 256, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            raise JournalInUse(
                f"{self.path} is in use by {owner or 'another process'}; "
                "stop it, or give this gateway a data folder of its own"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} ({Path(sys.argv[0]).name})\n".encode(), 0)
        return descriptor

    def close(self) -> None:
        """Closes all files and releases the lock."""
        descriptors = [
            *self._descriptors.values(),
            *(descriptor for descriptor in (self._lock, self._folder) if descriptor is not None),
        ]
        self._descriptors.clear()
        self._lock = self._folder = None
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)

    def misplaced(self) -> str:
        """Returns which of the folder and its lock has been deleted or replaced, as text; "" if neither has.

        Writes to deleted files succeed, but are lost.
        """
        if self._folder is not None and not _is_named(self._folder, self.path):
            return FOLDER_GONE
        return LOCK_GONE if self._lock is not None and not _is_named(self._lock, self.path / LOCK) else ""

    def owner(self) -> str | None:
        """Returns the process that has locked the folder, as text; None if none has, or the system does not say.

        Trying the lock would also tell, but could make a gateway fail that starts at the same moment.
        """
        try:
            inode = (self.path / LOCK).stat().st_ino
            locks = [line.split() for line in LOCKS.read_text(encoding="ascii").splitlines()]
            if any(lock[1] == "FLOCK" and lock[5].rpartition(":")[2] == str(inode) for lock in locks):
                return (self.path / LOCK).read_text(encoding="utf-8").strip() or "another process"
        except (OSError, ValueError, IndexError):
            pass
        return None

    # -- reads of recovery --------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Returns the names of the segments. Raises OSError."""
        return sorted(entry.name for entry in self.path.iterdir() if entry.name.endswith(SUFFIX) and entry.is_file())

    def page_sizes(self) -> dict[int, int]:
        """Returns the number of each page file, and its size. Raises OSError."""
        numbers = {entry: page_number(entry.name) for entry in self.path.iterdir()}
        return {number: entry.stat().st_size for entry, number in numbers.items() if number is not None}

    def head(self, name: str) -> bytes:
        """Returns the first bytes of a segment. Raises OSError."""
        with (self.path / name).open("rb") as file:
            return file.read(FRAMES_AT)

    def read(self, name: str) -> bytes:
        """Returns the bytes of a segment. Raises OSError."""
        with (self.path / name).open("rb", buffering=0) as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, JOURNAL_SEGMENT_BYTES_MAX))
            _drop_page_cache(file.fileno())
            return data

    def control(self) -> bytes:
        """Returns the first bytes of the control file; empty if there is none, its error if it cannot be read."""
        path = self.path / CONTROL_FILE
        try:
            if not path.is_file():  # to open a FIFO would wait for its writer
                return b"no regular file" if path.exists() else b""
            with path.open("rb") as file:
                return file.read(FRAMES_AT)
        except OSError as error:  # recovery reports it as damaged; the segments may be whole
            return str(error).encode()

    def quarantined(self) -> list[str]:
        """Returns the names of the files that were set aside, in this run or an earlier one. Raises OSError."""
        folder = self.path / QUARANTINE
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    # -- work of the journal --------------------------------------------------------------------------------------

    def execute(self, work: DiskWork) -> str:
        """Performs the operations of *work* in order. Returns "" or, at the first that fails, the reason.

        It also fails if the folder or the segment has been deleted or replaced: the writes would succeed, and be lost.
        """
        reason = self._check_place()
        if not reason:
            for operation in work.operations:
                try:
                    if isinstance(operation, Read):
                        work.read_data.append(self.read(operation.name))
                    else:
                        self._perform(operation)
                except OSError as error:
                    reason = error.strerror or type(error).__name__
                    break
        reason = reason or self._check_place() or self._lost_segment(work)
        if work.purpose is WorkPurpose.PAGE:  # thousands of files may be pages, and each is written once
            for operation in work.operations:
                if isinstance(operation, Create):
                    self._close_file(operation.name)
        self.measure_free_space()
        return reason

    def _check_place(self) -> str:
        """As `misplaced`, but takes a deleted lock again, unless another process has it by now."""
        missing = self.misplaced()
        if missing == LOCK_GONE and self._lock is not None:
            try:
                descriptor = self._take_lock()  # it was deleted: another process may have taken the folder meanwhile
            except (JournalInUse, OSError) as error:
                return f"{missing}, and cannot be had again: {error}"
            os.close(self._lock)
            self._lock, missing = descriptor, ""
        return missing

    def _lost_segment(self, work: DiskWork) -> str:
        """Returns which file that *work* synced has been deleted or replaced, as text; "" if none has."""
        for operation in work.operations:
            if not isinstance(operation, Sync):
                continue
            name = operation.name
            if not _is_named(self._descriptors[name], self.path / name):
                if work.purpose is WorkPurpose.BATCH:  # files of other works have no records yet
                    self.has_lost_segment = True
                return f"{name} was taken away"
        return ""

    def measure_free_space(self) -> None:
        """Sets `free_bytes`."""
        try:
            disk = os.statvfs(self.path)
            # a file system without a size reports no free blocks
            self.free_bytes = disk.f_bavail * disk.f_frsize if disk.f_blocks else None
        except OSError:
            self.free_bytes = None

    def _perform(self, operation: Operation) -> None:
        match operation:
            case Write(name, offset, data):
                self._write(name, offset, data)
            case Sync(name):
                started = time.perf_counter_ns()
                os.fdatasync(self._open(name))
                self.sync_us.add((time.perf_counter_ns() - started) // 1_000)
            case Create(name):
                self._close_file(name)
                _create(self.path / name)
            case Fill(name, offset, size):
                for position in range(offset, offset + size, len(ZEROS)):
                    self._write(name, position, ZEROS[: offset + size - position])
            case SyncFolder():
                _sync_folder(self.path)
            case SetAside(name, target):
                self._close_file(name)
                folder = self.path / QUARANTINE
                folder.mkdir(mode=0o700, exist_ok=True)
                with suppress(FileNotFoundError):  # done in an earlier attempt, of which a later operation failed
                    (self.path / name).rename(folder / target)
                _sync_folder(folder)
            case Remove(name):
                self._close_file(name)
                (self.path / name).unlink(missing_ok=True)
            case WriteControl(data):
                try:
                    self.control_failure = ""
                    self._write_control(data)
                except OSError as error:
                    self.control_failure = error.strerror or type(error).__name__
            case SyncControl():
                try:
                    self._sync_control()
                except OSError as error:
                    self.control_failure = error.strerror or type(error).__name__

    def _write_control(self, data: bytes) -> None:
        path = self.path / CONTROL_FILE
        opened = self._descriptors.get(CONTROL_FILE)
        if opened is not None and not _is_named(opened, path):
            self._close_file(CONTROL_FILE)
        if not path.exists():
            _create(path)
            self._is_control_new = True
        self._write(CONTROL_FILE, 0, data)

    def _sync_control(self) -> None:
        os.fdatasync(self._open(CONTROL_FILE))
        if self._is_control_new:
            _sync_folder(self.path)
            self._is_control_new = False

    def _write(self, name: str, offset: int, data: bytes) -> None:
        if self._direct:
            try:
                self._write_past_cache(self._open(name), offset, data)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._direct = 0  # the file system or the card wants larger blocks, or does not support it
            for opened in list(self._descriptors):
                self._close_file(opened)
        rest, position, descriptor = memoryview(data), offset, self._open(name)
        while rest:
            count = os.pwrite(descriptor, rest, position)
            rest, position = rest[count:], position + count
        self.bytes_written += len(data)
        self.card_bytes_written += ((position + PAGE_BYTES - 1) // PAGE_BYTES - offset // PAGE_BYTES) * PAGE_BYTES

    def _write_past_cache(self, descriptor: int, offset: int, data: bytes) -> None:
        done = 0
        while done < len(data):
            size = min(BUFFER_BYTES, len(data) - done)
            self._buffer[:size] = data[done : done + size]
            with memoryview(self._buffer) as view:
                count = os.pwrite(descriptor, view[:size], offset + done)
            done += count
            self.bytes_written += count
            self.card_bytes_written += count

    def _open(self, name: str) -> int:
        if name not in self._descriptors:
            flags = os.O_RDWR | os.O_CLOEXEC
            try:
                self._descriptors[name] = os.open(self.path / name, flags | self._direct)
            except OSError as error:
                if not self._direct or error.errno != errno.EINVAL:
                    raise
                self._direct = 0
                self._descriptors[name] = os.open(self.path / name, flags)
        return self._descriptors[name]

    def _close_file(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(path: Path) -> None:
    """Creates *path* and its parents, and syncs the folder that each new one is in: otherwise a power cut may take the
    new folder away, with all that was synced in it. Raises OSError.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in made:
        with suppress(PermissionError):  # a parent that may be entered and not read cannot be synced
            _sync_folder(folder.parent)


def _create(path: Path) -> None:
    """Creates an empty file. Raises OSError, also if the path is not a regular file: to open a FIFO would block."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EEXIST, f"{path} is no regular file; take it away")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether *path* is the file that is open as *descriptor*."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _drop_page_cache(descriptor: int) -> None:
    """Drops the clean pages of a file from the page cache: 8 MiB are much on a small gateway.

    Also, a file that was read in one go is cached in large folios, and a later cached write of 512 bytes is accounted
    as a whole folio in /proc/PID/io: 250 times too much on Linux 6.18.
    """
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
