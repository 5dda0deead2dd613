"""One file of the delivery log while it is written, and what becomes of it after a crash."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from edgebroker.digests import sha256
from edgebroker.errors import LogDamaged
from edgebroker.storage.deliverylog.format import (
    BLOCKS_MAX,
    BlockHead,
    Header,
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
        self.header: Header = found[0]
        self.blocks: list[tuple[int, BlockHead]] = []
        self.size = len(header)
        self.broken = False
        """The file holds part of a block and cannot be written to any more."""
        self.path = unused(folder, f"current-{plain(self.header.boot)}", suffix)
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
                header = Header(boot=part.name.removeprefix("current-").removesuffix(".edl.part"), product="")
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


def segment_name(header: Header, sha256: str) -> str:
    """The name of a finished segment."""
    start = datetime.fromtimestamp(min(max(header.unix_us // 1_000_000, 0), UNIX_S_MAX), UTC)
    return f"{plain(header.node)}-{start:%Y%m%dT%H%M%SZ}-{sha256[:16]}.edl"


def plain(name: str) -> str:
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
