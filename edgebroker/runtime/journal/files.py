"""A journal's folder on a real disk: reads it for recovery, executes the journal's writes, and locks the folder.

Every method blocks; `JournalWorker` calls them in a thread. Writes bypass the page cache where the file system allows
it (O_DIRECT): frames begin and end with a sector. Through the cache each commit writes whole pages of 4 KiB: with 64
bytes 1,000 times a second and commits of 5 ms that is 8.9 bytes for each byte of a record, and 1.9 without.
`SyncTimes` is a histogram of the durations of syncs, in microseconds.
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
from edgebroker.storage.journal.format import FRAMES_AT, PAGE_BYTES
from edgebroker.storage.journal.segments import SUFFIX
from edgebroker.storage.journal.work import (
    QUARANTINE,
    Create,
    DiskWork,
    Fill,
    Operation,
    Remove,
    SetAside,
    Sync,
    SyncFolder,
    WorkPurpose,
    Write,
)

STEPS = 4  # buckets per doubling: a quantile is right to 19 %
OCTAVES = 30  # up to 18 minutes


class SyncTimes:
    """Counts of durations in buckets that grow by 2^(1/4). Takes 1 KiB however many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.total_us: Duration = 0
        self.longest_us: Duration = 0
        self._buckets = [0] * (STEPS * OCTAVES)

    def add(self, took_us: Duration) -> None:
        """One more sync."""
        self.count += 1
        self.total_us += took_us
        self.longest_us = max(self.longest_us, took_us)
        self._buckets[_bucket_of(took_us)] += 1

    def quantile(self, share: float) -> Duration:
        """The duration that *share* of all syncs did not exceed, rounded up to the end of its bucket; 0 if none was."""
        rank, seen = share * self.count, 0
        for number, count in enumerate(self._buckets):
            seen += count
            if count and seen >= rank:
                return min(_end_of(number), self.longest_us)
        return self.longest_us

    def buckets(self) -> Iterator[tuple[Duration, int]]:
        """(upper bound in microseconds, syncs up to it), one for each doubling, as OpenMetrics counts."""
        seen = 0
        for number, count in enumerate(self._buckets):
            seen += count
            if number % STEPS == STEPS - 1:
                yield _end_of(number), seen


def _bucket_of(took_us: Duration) -> int:
    octave = max(took_us, 1).bit_length() - 1
    step = (max(took_us, 1) - (1 << octave)) * STEPS >> octave
    return min(octave * STEPS + step, STEPS * OCTAVES - 1)


def _end_of(bucket: int) -> Duration:
    octave, step = divmod(bucket, STEPS)
    return (1 << octave) + ((step + 1 << octave) + STEPS - 1) // STEPS


LOCK = "lock"
FOLDER_GONE: Final = "its folder was taken away or exchanged"  # without its name: clients are told the reason
LOCK_GONE: Final = "its lock was taken away or exchanged"
LOCKS = Path("/proc/locks")
ZEROS = bytes(128 * KIB)
BUFFER_BYTES = 256 * KIB


class JournalFiles:
    """The folder *path*. It is not made, and nothing in it is changed, before `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sync_us = SyncTimes()
        """How long each sync took."""
        self.bytes_written = 0
        """What was handed to the operating system."""
        self.free_bytes: int | None = None
        """What the disk had for us after the last work; None if it does not say."""
        self.card_bytes_written = 0
        """What went to the card: where the page cache is in between, whole pages of 4 KiB."""
        self._direct = getattr(os, "O_DIRECT", 0)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # begins a page, as writing past the cache demands
        self._descriptors: dict[str, int] = {}
        self._lock: int | None = None
        self._folder: int | None = None
        self.has_lost_segment = False
        """What was written and synced is not there any more under its name. Whoever knows all that is kept may say it
        again."""

    # -- for one process alone --------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Make the folder and take it for this process, until `close` or the process's end.

        Raises JournalInUse if another process has it, OSError if the folder cannot be used.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._locked()
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    def _locked(self) -> int:
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
        """Close all files and let others have the folder."""
        descriptors = [*self._descriptors.values(), *(each for each in (self._lock, self._folder) if each is not None)]
        self._descriptors.clear()
        self._lock = self._folder = None
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)

    def misplaced(self) -> str:
        """What has lost its name, in words: the folder that was locked, or the lock in it; "" if neither has. Files
        without a name take everything.
        """
        if self._folder is not None and not _is_named(self._folder, self.path):
            return FOLDER_GONE
        return LOCK_GONE if self._lock is not None and not _is_named(self._lock, self.path / LOCK) else ""

    def owner(self) -> str | None:
        """The process that has the folder, in words; None if none has, or the machine does not say.

        Asking for the lock would tell too, and refuse a gateway that starts in that moment.
        """
        try:
            inode = (self.path / LOCK).stat().st_ino
            locks = [line.split() for line in LOCKS.read_text(encoding="ascii").splitlines()]
            if any(lock[1] == "FLOCK" and lock[5].rpartition(":")[2] == str(inode) for lock in locks):
                return (self.path / LOCK).read_text(encoding="utf-8").strip() or "another process"
        except (OSError, ValueError, IndexError):
            pass
        return None

    # -- what recovery reads ------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The segments. Raises OSError."""
        return sorted(entry.name for entry in self.path.iterdir() if entry.name.endswith(SUFFIX) and entry.is_file())

    def head(self, name: str) -> bytes:
        """The first bytes of a segment. Raises OSError."""
        with (self.path / name).open("rb") as file:
            return file.read(FRAMES_AT)

    def read(self, name: str) -> bytes:
        """A segment. Raises OSError."""
        with (self.path / name).open("rb", buffering=0) as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, JOURNAL_SEGMENT_BYTES_MAX))
            _forget_pages(file.fileno())
            return data

    def quarantined(self) -> list[str]:
        """The files that were set aside, in this run or an earlier one. Raises OSError."""
        folder = self.path / QUARANTINE
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    # -- what the journal wants -------------------------------------------------------------------------------------

    def execute(self, work: DiskWork) -> str:
        """Do the operations of *work* in order. Returns "" or, at the first that fails, the reason.

        It fails too if the folder or the segment has lost its name: files without one take everything, and the next run
        finds none of it.
        """
        reason = self._out_of_place()
        if not reason:
            for operation in work.operations:
                try:
                    self._do(operation)
                except OSError as error:
                    reason = error.strerror or type(error).__name__
                    break
        reason = reason or self._out_of_place() or self._lost_by(work)
        self.measure_free_space()
        return reason

    def _out_of_place(self) -> str:
        """As `misplaced`; but a lock that was tidied away is had again, if nobody else has taken it."""
        missing = self.misplaced()
        if missing == LOCK_GONE and self._lock is not None:
            try:
                found = self._locked()  # somebody tidied up: another process could have taken the folder meanwhile
            except (JournalInUse, OSError) as error:
                return f"{missing}, and cannot be had again: {error}"
            os.close(self._lock)
            self._lock, missing = found, ""
        return missing

    def _lost_by(self, work: DiskWork) -> str:
        """Which file that *work* synced has lost its name, in words; "" if none has."""
        for each in work.operations:
            if isinstance(each, Sync) and not _is_named(self._descriptors[each.name], self.path / each.name):
                self.has_lost_segment = (
                    self.has_lost_segment or work.purpose is WorkPurpose.BATCH
                )  # in others there is nothing yet
                return f"{each.name} was taken away"
        return ""

    def measure_free_space(self) -> None:
        """See what room the disk has."""
        try:
            disk = os.statvfs(self.path)
            self.free_bytes = disk.f_bavail * disk.f_frsize if disk.f_blocks else None  # no size: it knows of no end
        except OSError:
            self.free_bytes = None

    def _do(self, operation: Operation) -> None:
        match operation:
            case Write(name, offset, data):
                self._write(name, offset, data)
            case Sync(name):
                began = time.perf_counter_ns()
                os.fdatasync(self._open(name))
                self.sync_us.add((time.perf_counter_ns() - began) // 1_000)
            case Create(name):
                self._forget(name)
                _create(self.path / name)
            case Fill(name, offset, size):
                for at in range(offset, offset + size, len(ZEROS)):
                    self._write(name, at, ZEROS[: offset + size - at])
            case SyncFolder():
                self._sync_folder(self.path)
            case SetAside(name, to):
                self._forget(name)
                folder = self.path / QUARANTINE
                folder.mkdir(mode=0o700, exist_ok=True)
                with suppress(FileNotFoundError):  # it was done before what stands behind it failed
                    (self.path / name).rename(folder / to)
                self._sync_folder(folder)
            case Remove(name):
                self._forget(name)
                (self.path / name).unlink(missing_ok=True)

    def _write(self, name: str, offset: int, data: bytes) -> None:
        if self._direct:
            try:
                self._write_past_cache(self._open(name), offset, data)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._direct = 0  # this file system or card wants larger pieces, or cannot do it
            for opened in list(self._descriptors):
                self._forget(opened)
        rest, at, descriptor = memoryview(data), offset, self._open(name)
        while rest:
            done = os.pwrite(descriptor, rest, at)
            rest, at = rest[done:], at + done
        self.bytes_written += len(data)
        self.card_bytes_written += ((at + PAGE_BYTES - 1) // PAGE_BYTES - offset // PAGE_BYTES) * PAGE_BYTES

    def _write_past_cache(self, descriptor: int, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            size = min(BUFFER_BYTES, len(data) - at)
            self._buffer[:size] = data[at : at + size]
            with memoryview(self._buffer) as view:
                done = os.pwrite(descriptor, view[:size], offset + at)
            at += done
            self.bytes_written += done
            self.card_bytes_written += done

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

    def _forget(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _create(path: Path) -> None:
    """Make the file, empty. Raises OSError, also where no regular file has its name: to open a FIFO never ends."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EEXIST, f"{path} is no regular file; take it away")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether what is open as *descriptor* is what is found at *path*."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _forget_pages(descriptor: int) -> None:
    """Let the kernel forget what is clean of a file: 8 MiB are much on a small gateway.

    And what was read in one go lies in memory as large folios, and who then writes 512 bytes through the cache is
    charged for a whole one in /proc/PID/io: 250 times too much on Linux 6.18.
    """
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
