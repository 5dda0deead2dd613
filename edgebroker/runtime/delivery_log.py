"""The delivery log on disk: a directory with one growing segment and any number of finished, immutable segments.

The growing segment is `current-<boot>.edl.part`. When it is large or old enough it gets its footer, is synced and
renamed to `<node>-<UTC start>-<16 hex digits of its SHA-256>.edl`. A crash leaves a `.part`; the next start turns its
intact blocks into a finished segment. Only a clean end marks the last segment as final, so a reader can tell it from
both. A disk error is reported once, counted, and never stops the broker. When the finished segments of the node have
more bytes than `bytes_max`, the oldest are deleted: a log that fills the card would stop the journal beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterable, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from edgebroker.digests import sha256
from edgebroker.errors import LogDamaged
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import LOG_BYTES_MAX, LOG_SEGMENT_AGE_S_MAX, LOG_SEGMENT_BYTES_MAX
from edgebroker.storage.deliverylog.format import (
    BLOCKS_MAX,
    BlockHead,
    LogHeader,
    as_full,
    decode_head,
    decode_header,
    encode_footer,
    encode_header,
    is_provisional,
    number_of,
)
from edgebroker.storage.deliverylog.reader import Block, iter_blocks, read_header

DAMAGED_SUFFIX = ".damaged"
"""Suffix of a file that a crash left and that could not be saved completely. Readers ignore it."""
SALVAGE_SUFFIX = ".edl.saving"
"""Suffix of a file that receives the blocks of a crash's file, until it is complete. Readers ignore it."""
FILE_MODE: Final = 0o640
"""The owner writes, the group may read. Topics and client identifiers are nobody else's business."""
UNIX_S_MAX = 253_402_300_799  # the last second of the year 9999, the last that a date can show


class OpenSegment:
    """A segment that is being written. Its file is locked, so that no other broker takes it for one that a
    crash left.
    """

    def __init__(self, folder: Path, header: bytes, suffix: str = ".edl.part") -> None:
        """Creates a file that begins with *header* and whose name ends with *suffix*. Raises OSError."""
        decoded = decode_header(header)
        if decoded is None:
            raise ValueError("these bytes are no file header")
        self.folder = folder
        self.header: LogHeader = decoded[0]
        self.blocks: list[tuple[int, BlockHead]] = []
        self.size = len(header)
        self.tail: list[bytes] = []
        """Provisional blocks, which lie behind `size` bytes until others of their numbers replace them."""
        self.broken = False
        """Whether the file ends with a part of a block, so that nothing can be appended."""
        self.path = unused(folder, f"current-{file_name_of(self.header.boot)}", suffix)
        self._hash = sha256(header)
        self._file: BinaryIO = open(self.path, "xb", buffering=0, opener=_open_unshared)  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_all(self._file, header)
        except OSError:
            self._file.close()
            self.path.unlink(missing_ok=True)
            raise

    @property
    def full(self) -> bool:
        """Whether the footer can name no more blocks."""
        return len(self.blocks) >= BLOCKS_MAX

    def append(self, block: bytes) -> None:
        """Appends one block, or nothing: after an error the file ends with the last whole block. Raises OSError.

        If the file cannot be truncated either, it is `broken`. A provisional block becomes part of `tail`; any block
        takes the place of the provisional one with its number.
        """
        head = decode_head(block, 0)
        if head is None:
            raise ValueError("these bytes are no block")
        behind = [one for one in self.tail if number_of(one) > head.sequence]
        if head.is_provisional:
            self.write_tail([*(one for one in self.tail if number_of(one) < head.sequence), block, *behind])
            return
        self.write_tail(behind, block)
        self.blocks.append((self.size, head))
        self.size += len(block)
        self._hash.update(block)

    def write_tail(self, tail: list[bytes], block: bytes = b"") -> None:
        """Replaces the provisional blocks at the end by *tail*, behind a full *block*. Raises OSError, as `append`.

        It is one write, so that a process that is killed leaves the old blocks or the new ones.
        """
        old_bytes, self.tail = sum(map(len, self.tail)), tail
        data = block + b"".join(tail)
        try:
            if old_bytes:
                self._file.seek(self.size)
            write_all(self._file, data)
            if old_bytes > len(data):
                self._file.truncate(self.size + len(data))
            if tail:
                self._file.seek(self.size + len(block))
        except OSError:
            self.tail = []
            try:
                self._file.truncate(self.size)
                self._file.seek(self.size)
            except OSError:
                self.broken = True
            raise

    def abandon(self) -> None:
        """Leaves the file to the next start, or deletes it if it has no blocks."""
        with contextlib.suppress(OSError):
            self._file.close()
            if not self.blocks and not self.tail:
                self.path.unlink()

    def discard(self) -> None:
        """Deletes the file."""
        with contextlib.suppress(OSError):
            self._file.close()
            self.path.unlink(missing_ok=True)

    def finish(self, *, final: bool = False, blocks_end: int = 0, died: bool = False) -> Path:
        """Writes the footer, syncs, and renames the file. Returns its final path. Raises OSError.

        final: the footer marks the clean end of the run, of *blocks_end* blocks. died: it marks that the run died.
        """
        footer = encode_footer(
            self.header, self.blocks, self.size, final=final, blocks_end=blocks_end if final else 0, died=died
        )
        with self._file:
            if self.tail:
                self._file.truncate(self.size)
                self._file.seek(self.size)
            write_all(self._file, footer)
            os.fsync(self._file.fileno())
            self._hash.update(footer)
            # The lock is held until the file is renamed, so that a broker that starts now ignores it.
            path = self.folder / segment_name(self.header, self._hash.hexdigest())
            self.path.rename(path)
        sync_folder(self.folder)
        return path


def salvage(part: Path) -> str:
    """Finishes the segment *part* that a crash left. Returns a line about it, "" if another broker is writing it.

    Its intact blocks become a finished segment that is not final, because what the run did not write is unknown; its
    footer says that the run died. If
    more than an incomplete last block is lost, the original stays as `<name>.damaged`. Raises OSError.
    """
    with part.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        data = file.read()
        if not data:
            part.unlink()
            return f"delivery log: {part.name} from an earlier run was empty"
        try:
            header, damage = read_header(data)
        except LogDamaged as error:
            part.rename(part.with_name(part.name + DAMAGED_SUFFIX))
            return f"delivery log: {part.name} from an earlier run is set aside as .damaged: {error}"
        items = list(iter_blocks(data, tables=(), growing=True))
        blocks = [item for item in items if isinstance(item, Block)]
        damage += [item for item in items if not isinstance(item, Block)]
        line = f"delivery log: {part.name} from an earlier run: "
        if blocks:
            if not header.boot:
                header = LogHeader(boot=part.name.removeprefix("current-").removesuffix(".edl.part"), product="")
            name = _save_blocks(
                part.parent, encode_header(header), [data[block.offset : block.end] for block in blocks]
            )
            line += f"{sum(block.head.rows for block in blocks)} records kept in {name}"
        else:
            line += "no records in it"
        if damage:
            part.rename(part.with_name(part.name + DAMAGED_SUFFIX))
            return f"{line}; the damaged original is kept as {part.name}.damaged ({damage[0]})"
        part.unlink()
        return line


def _save_blocks(folder: Path, header: bytes, blocks: list[bytes]) -> str:
    """Writes *blocks* as a finished segment and returns its name. Raises OSError; then no file is left."""
    segment = OpenSegment(folder, header, SALVAGE_SUFFIX)
    try:
        for block in blocks:
            segment.append(as_full(block))
        return segment.finish(died=True).name
    except OSError:
        segment.discard()
        raise


def clear_saving(folder: Path) -> None:
    """Deletes the files of an interrupted `salvage`; their originals still exist. Raises OSError."""
    for path in folder.glob(f"current-*{SALVAGE_SUFFIX}"):
        with path.open("rb") as file, contextlib.suppress(BlockingIOError):  # another broker is writing it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)


def segment_name(header: LogHeader, sha256: str) -> str:
    """Returns the name of a finished segment."""
    start = datetime.fromtimestamp(min(max(header.unix_us // 1_000_000, 0), UNIX_S_MAX), UTC)
    return f"{file_name_of(header.node)}-{start:%Y%m%dT%H%M%SZ}-{sha256[:16]}.edl"


def file_name_of(name: str) -> str:
    """Returns *name* with all other characters than letters, digits, `.`, `_` and `-` replaced by `_`; 1 to 64
    characters.
    """
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:64].lstrip(".") or "unnamed"


def unused(folder: Path, stem: str, suffix: str) -> Path:
    """Returns a path in *folder* that does not exist: one segment may still be finishing while the next begins."""
    path, number = folder / f"{stem}{suffix}", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}.{number}{suffix}"
    return path


def _open_unshared(path: str, flags: int) -> int:
    """Opens a file that other users cannot read, if it is created now. Raises OSError."""
    return os.open(path, flags, FILE_MODE)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Writes *data* to an unbuffered file, which may accept it in parts. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def sync_folder(folder: Path) -> None:
    """Syncs *folder*, so that a new name in it survives a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


DAMAGED_MAX: Final = 16
"""Damaged files of earlier runs that are kept: 64 MiB with segments of 4 MiB."""
TICK_NS: Final = 2_000_000_000
"""The coarsest resolution of file times: FAT has even seconds."""


def segment_files(path: Path, on_error: Callable[[OSError], None] | None = None) -> list[Path]:
    """Returns the segments of *path*, by name: the file itself, or each `.edl` and `.edl.part` in the directory and
    below.

    Symbolic links to directories are followed, each directory once. on_error: called with the error of a directory that
    cannot be listed; without it the OSError is raised, because an unread directory would look like a log without
    losses.
    """
    if not path.is_dir():
        return [path]

    def report(error: OSError) -> None:
        if Path(error.filename or "").name == "lost+found":  # made by the file system, and readable by root only
            return
        if on_error is None:
            raise error
        on_error(error)

    found, visited = [], set()
    for folder, below, names in os.walk(path, onerror=report, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            below.clear()
            continue
        visited.add(real)
        found += [Path(folder, name) for name in names if name.endswith((".edl", ".edl.part"))]
    return sorted(file for file in found if _is_file(file, report))


def _is_file(path: Path, report: Callable[[OSError], None]) -> bool:
    """Whether *path* is a file; an error is reported."""
    try:
        return path.is_file()
    except OSError as error:  # a directory that may be listed, but not searched
        report(error)
        return False


class DeliveryLogDirectory:
    """The log directory of one broker. Create it, `start`, `append` what `DeliveryLog.take` returns, `close`.

    header: returns the first bytes of a segment, given the monotonic and the wall clock (`DeliveryLog.header`). warn:
    called with a line of text when errors begin and when they end, not for every block. bytes_max: limit of all
    finished segments of the node, except the last one; 0: no limit. background: runs a function that takes long (a sync
    of 4 MiB takes up to a second on an SD card), possibly in another thread; by default at once.
    """

    def __init__(
        self,
        path: Path,
        header: Callable[[Instant, int], bytes],
        warn: Callable[[str], None],
        *,
        segment_bytes_max: int = LOG_SEGMENT_BYTES_MAX,
        segment_age_us_max: int = LOG_SEGMENT_AGE_S_MAX * SECOND,
        bytes_max: int = LOG_BYTES_MAX,
        background: Callable[[Callable[[], None]], object] = lambda work: work(),
    ) -> None:
        self.path = path
        self.segment_bytes_max = segment_bytes_max
        self.segment_age_us_max = segment_age_us_max
        self.bytes_max = bytes_max
        self.blocks_lost = 0
        """Blocks that could not be written. Readers see the gap in the numbers of the blocks."""
        self.segments_finished = 0
        self.segments_deleted = 0
        """Finished segments, of this run and of earlier ones, that were deleted because of `bytes_max`."""
        self._header = header
        self._warn = warn
        self._background = background
        self._segment: OpenSegment | None = None
        self._blocks_end = 0  # one more than the number of the last block; a run without blocks leaves no file
        self._is_failing = False

    def start(self) -> None:
        """Creates the directory and finishes what a crash left. Errors are reported, not raised."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            clear_saving(self.path)
            unfinished = sorted(self.path.glob("current-*.edl.part"))
        except OSError as error:
            self._report_error(error)
            return
        before = self._own_segments() if unfinished else {}
        for part in unfinished:
            try:
                line = salvage(part)
            except OSError as error:
                line = f"delivery log: {part} cannot be finished: {error.strerror}"
            if line:
                self._warn(line)
        self._clear_damaged()
        if unfinished:  # a gateway whose power is cut every day may finish no segments otherwise
            self._background(lambda: self._delete_oldest(self._own_segments().keys() - before.keys()))

    def _clear_damaged(self) -> None:
        """Deletes the oldest damaged files: they must not fill the card of a gateway whose power is cut every day."""
        try:
            ages = {file: file.stat().st_mtime_ns for file in self.path.glob(f"current-*.edl.part{DAMAGED_SUFFIX}")}
            oldest = sorted(ages, key=lambda file: (ages[file], file))[:-DAMAGED_MAX]
            for file in oldest:
                file.unlink(missing_ok=True)
        except OSError as error:
            self._report_error(error)
            return
        if oldest:
            text = f"the oldest {len(oldest)} damaged files are deleted: at most {DAMAGED_MAX} are kept"
            self._warn(f"delivery log: {text} in {self.path}")

    def append(self, blocks: Iterable[bytes], now_us: Instant, unix_us: int) -> None:
        """Writes *blocks*, and begins a new segment if it is time. Blocks that cannot be written are counted and
        dropped.
        """
        self._write(blocks, now_us, unix_us)
        segment = self._segment
        if segment is not None and segment.blocks and not segment.tail and self._is_time(segment, now_us):
            self._segment = None
            self._background(lambda: self._finish(segment))

    def wants_full_blocks(self, now_us: Instant) -> bool:
        """Whether it is time for a new segment, but provisional blocks wait in this one for full ones."""
        segment = self._segment
        return segment is not None and bool(segment.tail) and self._is_time(segment, now_us)

    def _is_time(self, segment: OpenSegment, now_us: Instant) -> bool:
        age_us = now_us - segment.header.t_us
        return segment.size >= self.segment_bytes_max or age_us >= self.segment_age_us_max or segment.full

    def close(self, blocks: Iterable[bytes], now_us: Instant, unix_us: int) -> None:
        """Writes the last *blocks*, and finishes the growing segment at once, as the final one of the run.

        If one of them could not be written, no segment is final: no gap in the numbers would show the loss.
        """
        self._write(blocks, now_us, unix_us)
        segment, self._segment = self._segment, None
        if segment is None and self._blocks_end and not self._is_failing:
            try:  # all blocks are in finished segments, so the mark needs a segment without blocks
                segment = OpenSegment(self.path, self._header(now_us, unix_us))
            except OSError as error:
                self._report_error(error)
        if segment is None:
            return
        if segment.blocks or not self._is_failing:
            self._finish(segment, final=not self._is_failing)
        else:
            segment.abandon()

    def _write(self, blocks: Iterable[bytes], now_us: Instant, unix_us: int) -> None:
        for block in blocks:
            try:
                if self._segment is None:
                    self._segment = OpenSegment(self.path, self._header(now_us, unix_us))
                self._segment.append(block)
            except OSError as error:
                self.blocks_lost += not is_provisional(block)  # its rows are still in memory
                self._report_error(error)
                if self._segment is not None and self._segment.broken:
                    self._segment.abandon()
                    self._segment = None
            else:
                if not is_provisional(block):
                    self._blocks_end = number_of(block) + 1
                self._report_recovery()

    def _finish(self, segment: OpenSegment, *, final: bool = False) -> None:
        finished = set()
        try:
            finished.add(segment.finish(final=final, blocks_end=self._blocks_end).name)
            self.segments_finished += 1
        except OSError as error:
            self._report_error(error)
        self._delete_oldest(finished)

    def _own_segments(self) -> dict[str, os.stat_result]:
        """Returns the finished segments of this node, by name. The directory may have those of others, too."""
        segments: dict[str, os.stat_result] = {}
        header = decode_header(self._header(0, 0))
        if not self.bytes_max or header is None:
            return segments
        own = re.compile(re.escape(file_name_of(header[0].node)) + r"-\d{8}T\d{6}Z-[0-9a-f]{16}\.edl")
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile by whoever collects them
                        if own.fullmatch(entry.name):
                            segments[entry.name] = entry.stat()
        except OSError as error:
            self._report_error(error)
        return segments

    def _delete_oldest(self, finished: Set[str]) -> None:
        """Deletes the oldest segments while all of them exceed `bytes_max`. *finished*: the names of those finished
        just now.

        The oldest is the one that was finished first. Its name has the time when it began, by a clock that may have
        been wrong: a machine without a battery gets the time after its start. The file's time may be as wrong, so a
        segment that is finished now gets a later time than all others, or it would be deleted at once.
        """
        files = self._own_segments()
        ages = {name: state.st_mtime_ns for name, state in files.items()}
        latest = max((age for name, age in ages.items() if name not in finished), default=0)
        total_bytes = sum(state.st_size for state in files.values())
        try:
            for name in sorted(finished & ages.keys(), key=lambda name: (ages[name], name)):
                if ages[name] < latest:
                    ages[name] = latest + TICK_NS
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(self.path / name, ns=(ages[name], ages[name]))
                latest = ages[name]
            for name in sorted(files, key=lambda name: (ages[name], name))[:-1]:
                if total_bytes <= self.bytes_max:
                    break
                (self.path / name).unlink(missing_ok=True)
                total_bytes -= files[name].st_size
                self.segments_deleted += 1
        except OSError as error:
            self._report_error(error)

    def _report_error(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._warn(f"delivery log: cannot write in {self.path}: {error.strerror}; the broker goes on without")

    def _report_recovery(self) -> None:
        if self._is_failing:
            self._is_failing = False
            self._warn(f"delivery log: writing in {self.path} again; {self.blocks_lost} blocks are lost so far")
