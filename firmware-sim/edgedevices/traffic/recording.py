"""A recording on the disk: written block by block, read block by block, never in memory as a whole.

The format is that of delivery logs with a table of its own, `edgebroker.records.TRAFFIC`: docs/edl.md, "Recordings".
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Final, cast
from uuid import uuid4

from edgebroker.errors import LogDamaged
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.records import ANCHOR, TRAFFIC, Table
from edgebroker.storage.deliverylog.format import (
    BLOCKS_MAX,
    MAGIC,
    RECORDING_TABLES,
    BlockHead,
    Header,
    decode_head,
    encode_footer,
    encode_header,
)
from edgebroker.storage.deliverylog.making import make_block, make_columns
from edgebroker.storage.deliverylog.reader import Damage, iter_blocks, read_header
from edgedevices.errors import InputInvalid

from .heard import Heard

BLOCK_MESSAGES: Final = 2_048
BLOCK_BYTES: Final = 512 * KIB  # made at once, in 10 to 30 ms in which the broker's messages wait in the socket
BLOCK_AGE_US: Final = 10 * SECOND  # what a crash of the recorder costs at most
MESSAGE_BYTES_MAX: Final = 6 * MIB
"""Payload, topic and properties of one message: a block of it unfolds to less than the 8 MiB that readers allow."""
FILE_BLOCKS_MAX: Final = BLOCKS_MAX - 2  # a footer names at most BLOCKS_MAX; two stay for the clock anchors


def is_recording(path: Path) -> bool:
    """Whether the file begins as `.edl` files do. Raises InputInvalid if it cannot be read, or only once."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise InputInvalid(f"{path} is a pipe, and the file is read twice: save it first")
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror}") from error


class RecordingWriter:
    """Appends messages to a new file; `close` makes it whole. A file that was not closed is readable up to its end.

    node: where the messages came from. Raises InputInvalid if the file exists already or cannot be written.
    """

    def __init__(self, path: Path, node: str) -> None:
        self.path = path
        self._header = Header(node, uuid4().hex[:16], 1, now_us(), time_ns() // 1_000)
        try:
            self._file = path.open("xb")
        except FileExistsError:
            raise InputInvalid(f"{path} exists; a recording is never written over: give another name") from None
        except OSError as error:
            raise InputInvalid(f"cannot write {path}: {error.strerror}") from error
        self.bytes = 0
        """Written so far."""
        self._index: list[tuple[int, BlockHead]] = []
        self._waiting: list[Heard] = []
        self._waiting_bytes = 0
        self._write(encode_header(self._header))
        self._anchor()

    @property
    def is_full(self) -> bool:
        """Whether the index at the end can take no more: another file has to go on."""
        return len(self._index) >= FILE_BLOCKS_MAX

    def add(self, heard: Heard) -> bool:
        """Keep *heard*; False if it is larger than any block. Raises OSError when the disk refuses."""
        size = len(heard.payload) + len(heard.topic) + len(heard.properties) + len(heard.client)
        if size > MESSAGE_BYTES_MAX:
            return False
        if self._waiting and self._waiting_bytes + size > BLOCK_BYTES:
            self.flush()
        self._waiting.append(heard)
        self._waiting_bytes += size
        if len(self._waiting) >= BLOCK_MESSAGES or heard.t_us - self._waiting[0].t_us > BLOCK_AGE_US:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what waits. Raises OSError."""
        if self._waiting:
            rows = [(h.t_us, h.client, h.topic, h.qos, int(h.retain), h.payload, h.properties) for h in self._waiting]
            self._waiting, self._waiting_bytes = [], 0
            self._block(TRAFFIC, rows)

    def close(self) -> None:
        """Write what waits, the last clock anchor and the index, and close the file. Raises OSError."""
        try:
            self.flush()
            self._anchor()
            self._write(encode_footer(self._header, self._index, self.bytes, final=True))
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def _anchor(self) -> None:
        self._block(ANCHOR, [(now_us(), time_ns() // 1_000)])

    def _block(self, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
        making = make_block(table, len(self._index), make_columns(rows))
        while True:
            try:
                next(making)
            except StopIteration as made:
                block: bytes = made.value
                break
        head = decode_head(block, 0)
        if head is None:
            raise struct.error(f"a block of {len(rows)} messages is larger than the format allows")
        self._index.append((self.bytes, head))
        self._write(block)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self.bytes += len(data)


class Recording:
    """A recorded file. The system pages it in as it is read. Raises InputInvalid if it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise InputInvalid(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        # The reader slices and searches, no more; a mapping does both.
        self._data = cast(bytes, mapped)
        try:
            self.header, _ = read_header(self._data)
        except LogDamaged as error:
            raise InputInvalid(f"{path}: {error}") from error
        self.messages = 0
        """How many can be read."""
        self.damage: list[str] = []
        """What is wrong with the file, one text each."""
        self._survey()

    def _survey(self) -> None:
        first: Instant | None = None
        last = 0
        for item in iter_blocks(self._data, tables=(), known=RECORDING_TABLES):
            if isinstance(item, Damage):
                self.damage.append(str(item))
                continue
            if item.table == TRAFFIC.name:
                self.messages += item.head.rows
                first = item.head.t_first_us if first is None else first
            last = max(last, item.head.t_last_us)
        if first is None:
            raise InputInvalid(f"{self.path} has no recorded messages; `edgedevices record` makes files that have")
        self.first_us: Instant = first
        """When its first message was heard."""
        self.length_us: Duration = max(last - first, 0)
        """From the first message to the end of the recording."""

    def messages_in_order(self) -> Iterator[Heard]:
        """Every message, as it was heard. One block of at most 8 MiB is in memory at a time."""
        for item in iter_blocks(self._data, tables={TRAFFIC.name}, known=RECORDING_TABLES):
            if not isinstance(item, Damage) and item.table == TRAFFIC.name:
                for t_us, client, topic, qos, retain, payload, properties in zip(*item.columns.values(), strict=True):
                    yield Heard(t_us, client, topic, qos, bool(retain), payload, properties)


def now_us() -> Instant:
    """Microseconds by this machine's monotonic clock."""
    return monotonic_ns() // 1_000
