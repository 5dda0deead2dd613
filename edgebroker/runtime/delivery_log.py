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
    decode_head,
    decode_header,
    encode_footer,
    encode_header,
)
from edgebroker.storage.deliverylog.reader import Block, iter_blocks, read_header

DAMAGED = ".damaged"
"""Behind the name of what a crash left and could not be saved whole. Readers pass it over."""
SAVING = ".edl.saving"
"""The end of the name of a file that takes over what a crash left, until all of it is there. Readers pass it over."""
UNIX_S_MAX = 253_402_300_799  # the last second of the year 9999, the last that a date can show


class OpenSegment:
    """A segment that is being written. Its file is locked, so that no other broker takes it for a crash's."""

    def __init__(self, folder: Path, header: bytes, suffix: str = ".edl.part") -> None:
        """Begin a file with the bytes *header*, whose name ends with *suffix*. Raises OSError."""
        found = decode_header(header)
        if found is None:
            raise ValueError("these bytes are no file header")
        self.folder = folder
        self.header: LogHeader = found[0]
        self.blocks: list[tuple[int, BlockHead]] = []
        self.size = len(header)
        self.broken = False
        """The file holds part of a block and cannot be written to any more."""
        self.path = unused(folder, f"current-{file_name_of(self.header.boot)}", suffix)
        self._hash = sha256(header)
        self._file: BinaryIO = self.path.open("xb", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_all(self._file, header)
        except OSError:
            self._file.close()
            self.path.unlink(missing_ok=True)
            raise

    @property
    def full(self) -> bool:
        """True if the footer can name no more blocks."""
        return len(self.blocks) >= BLOCKS_MAX

    def append(self, block: bytes) -> None:
        """Write one block, or nothing of it: the file ends with the last whole block. Raises OSError.

        If the file cannot even be cut back, it is `broken`.
        """
        head = decode_head(block, 0)
        if head is None:
            raise ValueError("these bytes are no block")
        try:
            write_all(self._file, block)
        except OSError:
            try:
                self._file.truncate(self.size)
                self._file.seek(self.size)
            except OSError:
                self.broken = True
            raise
        self.blocks.append((self.size, head))
        self.size += len(block)
        self._hash.update(block)

    def abandon(self) -> None:
        """Leave the file to the next start, or remove it if no block is in it."""
        with contextlib.suppress(OSError):
            self._file.close()
            if not self.blocks:
                self.path.unlink()

    def discard(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._file.close()
            self.path.unlink(missing_ok=True)

    def finish(self, *, final: bool = False) -> Path:
        """Write the footer, sync, and give the file its lasting name, which is returned. Raises OSError.

        final: the footer says that the run ended cleanly with this file.
        """
        footer = encode_footer(self.header, self.blocks, self.size, final=final)
        with self._file:
            write_all(self._file, footer)
            os.fsync(self._file.fileno())
            self._hash.update(footer)
            # The lock is held until the new name stands: a broker that starts now leaves the file alone.
            finished = self.folder / segment_name(self.header, self._hash.hexdigest())
            self.path.rename(finished)
        sync_folder(self.folder)
        return finished


def salvage(part: Path) -> str:
    """Finish the segment *part* that a crash left; returns a line about it, "" if another broker is writing it.

    Its intact blocks become a finished segment, which is not final: what the run did not come to write, nobody knows.
    If more than an unfinished last block is lost, the original stays as
    `<name>.damaged`. Raises OSError.
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
            part.rename(part.with_name(part.name + DAMAGED))
            return f"delivery log: {part.name} from an earlier run is set aside as .damaged: {error}"
        items = list(iter_blocks(data, tables=(), growing=True))
        blocks = [item for item in items if isinstance(item, Block)]
        damage += [item for item in items if not isinstance(item, Block)]
        line = f"delivery log: {part.name} from an earlier run: "
        if blocks:
            if not header.boot:
                header = LogHeader(boot=part.name.removeprefix("current-").removesuffix(".edl.part"), product="")
            name = _saved(part.parent, encode_header(header), [data[block.offset : block.end] for block in blocks])
            line += f"{sum(block.head.rows for block in blocks)} records kept in {name}"
        else:
            line += "no records in it"
        if damage:
            part.rename(part.with_name(part.name + DAMAGED))
            return f"{line}; the damaged original is kept as {part.name}.damaged ({damage[0]})"
        part.unlink()
        return line


def _saved(folder: Path, header: bytes, blocks: list[bytes]) -> str:
    """The name of a finished segment of *blocks*. Raises OSError; then there is none, nor anything else."""
    segment = OpenSegment(folder, header, SAVING)
    try:
        for block in blocks:
            segment.append(block)
        return segment.finish().name
    except OSError:
        segment.discard()
        raise


def clear_saving(folder: Path) -> None:
    """Remove what a crash in the middle of `salvage` left: its original is still there. Raises OSError."""
    for saving in folder.glob(f"current-*{SAVING}"):
        with saving.open("rb") as file, contextlib.suppress(BlockingIOError):  # another broker saves something
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            saving.unlink(missing_ok=True)


def segment_name(header: LogHeader, sha256: str) -> str:
    """The name of a finished segment."""
    start = datetime.fromtimestamp(min(max(header.unix_us // 1_000_000, 0), UNIX_S_MAX), UTC)
    return f"{file_name_of(header.node)}-{start:%Y%m%dT%H%M%SZ}-{sha256[:16]}.edl"


def file_name_of(name: str) -> str:
    """*name* with everything that a file name should not have replaced by `_`; never empty, at most 64 characters."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:64].lstrip(".") or "unnamed"


def unused(folder: Path, stem: str, suffix: str) -> Path:
    """A path in *folder* that is free: one segment may still be finishing while the next begins."""
    path, number = folder / f"{stem}{suffix}", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}.{number}{suffix}"
    return path


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write *data* to an unbuffered file, which may take it in parts. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def sync_folder(folder: Path) -> None:
    """Make a new name in *folder* survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


DAMAGED_MAX: Final = 16
"""Damaged files of earlier runs that stay for somebody to look at: 64 MiB with segments of 4 MiB."""
TICK_NS: Final = 2_000_000_000
"""The coarsest times of files that a card keeps: those of FAT are even seconds."""


def segment_files(path: Path, trouble: Callable[[OSError], None] | None = None) -> list[Path]:
    """The segments of *path*, by name: the file itself, or every `.edl` and `.edl.part` in the directory and below.

    Linked directories are read too, each once. trouble: is told of a directory that cannot be listed; without it the
    OSError is raised. What nobody looked into would pass for a log without losses.
    """
    if not path.is_dir():
        return [path]

    def told(error: OSError) -> None:
        if Path(error.filename or "").name == "lost+found":  # the file system's own, and root's, on every card
            return
        if trouble is None:
            raise error
        trouble(error)

    found, seen = [], set()
    for folder, below, names in os.walk(path, onerror=told, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        found += [Path(folder, name) for name in names if name.endswith((".edl", ".edl.part"))]
    return sorted(file for file in found if _is_file(file, told))


def _is_file(path: Path, told: Callable[[OSError], None]) -> bool:
    """Whether it is one, as far as anybody may look."""
    try:
        return path.is_file()
    except OSError as error:  # a directory that may be listed, but not searched
        told(error)
        return False


class DeliveryLogDirectory:
    """The log directory of one broker. Create it, `start`, `append` what `DeliveryLog.take` returns, `close`.

    header: makes the first bytes of a segment, given the monotonic and the wall clock (`DeliveryLog.header`).
    tell: takes one line of text about trouble; called when trouble starts and when it ends, not for every block.
    bytes_max: what the finished segments of the node may have together, but for the last one; 0: anything.
    background: runs a function that takes long (a sync of 4 MiB takes up to a second on an SD card); by default at
    once. It may run it in another thread.
    """

    def __init__(
        self,
        path: Path,
        header: Callable[[Instant, int], bytes],
        tell: Callable[[str], None],
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
        """Blocks that could not be written. The numbering of blocks shows the gap to every reader."""
        self.segments_finished = 0
        self.segments_deleted = 0
        """Finished segments, of this run and of others, that had to go because of `bytes_max`."""
        self._header = header
        self._tell = tell
        self._background = background
        self._segment: OpenSegment | None = None
        self._begun = False  # a run that wrote nothing leaves no file
        self._troubled = False

    def start(self) -> None:
        """Make the directory and finish what a crash left. Trouble is told, never raised."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            clear_saving(self.path)
            left = sorted(self.path.glob("current-*.edl.part"))
        except OSError as error:
            self._trouble(error)
            return
        before = self._own() if left else {}
        for part in left:
            try:
                line = salvage(part)
            except OSError as error:
                line = f"delivery log: {part} cannot be finished: {error.strerror}"
            if line:
                self._tell(line)
        self._clear_damaged()
        if left:  # a gateway whose power is cut every day may finish segments in no other way
            self._background(lambda: self._make_room(self._own().keys() - before.keys()))

    def _clear_damaged(self) -> None:
        """Delete the oldest of what crashes damaged: a gateway whose power is cut every day shall not fill its card."""
        try:
            ages = {file: file.stat().st_mtime_ns for file in self.path.glob(f"current-*.edl.part{DAMAGED}")}
            oldest = sorted(ages, key=lambda file: (ages[file], file))[:-DAMAGED_MAX]
            for file in oldest:
                file.unlink(missing_ok=True)
        except OSError as error:
            self._trouble(error)
            return
        if oldest:
            told = f"the oldest {len(oldest)} damaged files are deleted: at most {DAMAGED_MAX} are kept"
            self._tell(f"delivery log: {told} in {self.path}")

    def append(self, blocks: Iterable[bytes], now_us: Instant, unix_us: int) -> None:
        """Write *blocks* and begin a new segment if it is time. What cannot be written is counted and gone."""
        self._write(blocks, now_us, unix_us)
        segment = self._segment
        if segment is None or not segment.blocks:
            return
        age_us = now_us - segment.header.t_us
        if segment.size >= self.segment_bytes_max or age_us >= self.segment_age_us_max or segment.full:
            self._segment = None
            self._background(lambda: self._finish(segment))

    def close(self, blocks: Iterable[bytes], now_us: Instant, unix_us: int) -> None:
        """Write *blocks*, the last ones, and finish the growing segment, now, as the final one of the run.

        If the last of them could not be written, no segment is final: no gap in the numbering would show the loss.
        """
        self._write(blocks, now_us, unix_us)
        segment, self._segment = self._segment, None
        if segment is None and self._begun and not self._troubled:
            try:  # everything is in finished segments, so the mark needs one without blocks
                segment = OpenSegment(self.path, self._header(now_us, unix_us))
            except OSError as error:
                self._trouble(error)
        if segment is None:
            return
        if segment.blocks or not self._troubled:
            self._finish(segment, final=not self._troubled)
        else:
            segment.abandon()

    def _write(self, blocks: Iterable[bytes], now_us: Instant, unix_us: int) -> None:
        for block in blocks:
            try:
                if self._segment is None:
                    self._segment = OpenSegment(self.path, self._header(now_us, unix_us))
                self._segment.append(block)
            except OSError as error:
                self.blocks_lost += 1
                self._trouble(error)
                if self._segment is not None and self._segment.broken:
                    self._segment.abandon()
                    self._segment = None
            else:
                self._begun = True
                self._well()

    def _finish(self, segment: OpenSegment, *, final: bool = False) -> None:
        finished = set()
        try:
            finished.add(segment.finish(final=final).name)
            self.segments_finished += 1
        except OSError as error:
            self._trouble(error)
        self._make_room(finished)

    def _own(self) -> dict[str, os.stat_result]:
        """The finished segments of the node, by name. Others' may lie beside them."""
        found: dict[str, os.stat_result] = {}
        header = decode_header(self._header(0, 0))
        if not self.bytes_max or header is None:
            return found
        own = re.compile(re.escape(file_name_of(header[0].node)) + r"-\d{8}T\d{6}Z-[0-9a-f]{16}\.edl")
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # whoever takes them away was quicker
                        if own.fullmatch(entry.name):
                            found[entry.name] = entry.stat()
        except OSError as error:
            self._trouble(error)
        return found

    def _make_room(self, finished: Set[str]) -> None:
        """Delete the oldest segments while there are too many bytes of them. *finished*: those finished just now.

        The oldest is the one that was finished first: in its name stands when it began, by a clock that may have been
        wrong then, for a machine without a battery learns the time after it has started. The time of the file may be
        as wrong, so what is finished now gets a later one than all that are there, or it would go at once.
        """
        files = self._own()
        ages = {name: state.st_mtime_ns for name, state in files.items()}
        latest = max((age for name, age in ages.items() if name not in finished), default=0)
        held = sum(state.st_size for state in files.values())
        try:
            for name in sorted(finished & ages.keys(), key=lambda name: (ages[name], name)):
                if ages[name] < latest:
                    ages[name] = latest + TICK_NS
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(self.path / name, ns=(ages[name], ages[name]))
                latest = ages[name]
            for name in sorted(files, key=lambda name: (ages[name], name))[:-1]:
                if held <= self.bytes_max:
                    break
                (self.path / name).unlink(missing_ok=True)
                held -= files[name].st_size
                self.segments_deleted += 1
        except OSError as error:
            self._trouble(error)

    def _trouble(self, error: OSError) -> None:
        if not self._troubled:
            self._troubled = True
            self._tell(f"delivery log: cannot write in {self.path}: {error.strerror}; the broker goes on without")

    def _well(self) -> None:
        if self._troubled:
            self._troubled = False
            self._tell(f"delivery log: writing in {self.path} again; {self.blocks_lost} blocks are lost so far")
