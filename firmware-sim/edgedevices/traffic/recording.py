"""A recording on disk: messages with their MQTT 5 properties, written and read block by block."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Final, cast
from uuid import uuid4

from edgebridge.wire.properties import PROPERTIES_BYTES_MAX, REPEATS_MAX, Properties, Property
from edgebroker.cbor import encode_cbor, read_cbor
from edgebroker.errors import LogDamaged
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.log_schema import ANCHOR, TRAFFIC, Table
from edgebroker.storage.deliverylog.block_builder import make_block, make_columns
from edgebroker.storage.deliverylog.format import (
    BLOCKS_MAX,
    MAGIC,
    RECORDING_TABLES,
    BlockHead,
    LogHeader,
    decode_head,
    encode_footer,
    encode_header,
)
from edgebroker.storage.deliverylog.reader import LogCorruption, iter_blocks, read_header
from edgedevices import InputInvalid
from edgedevices.message import is_publishable

KEPT: Final = {
    Property.USER_PROPERTY: "user",
    Property.CONTENT_TYPE: "content_type",
    Property.RESPONSE_TOPIC: "response_topic",
    Property.CORRELATION_DATA: "correlation",
    Property.PAYLOAD_FORMAT_INDICATOR: "format",
    Property.MESSAGE_EXPIRY_INTERVAL: "expiry",
}
"""Properties of PUBLISH that belong to the message -> their keys in a recording.

Topic aliases and subscription identifiers belong to the connection that received the message.
"""
KINDS: Final = {
    "user": list, "content_type": str, "response_topic": str, "correlation": bytes, "format": int, "expiry": int
}  # fmt: skip
WHOLE_MAX: Final = {"format": 1, "expiry": 2**32 - 1}


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A recorded message. t_us: by the recorder's monotonic clock. client: "" if not known."""

    t_us: Instant
    client: str
    topic: str
    qos: int
    retain: bool
    payload: bytes
    properties: bytes = b""
    """As `encode_properties` made them."""


def encode_properties(properties: Properties) -> bytes:
    """Returns those of *properties* that are recorded as a CBOR map; empty if there are none."""
    kept = {key: properties[name] for name, key in KEPT.items() if name in properties}
    return encode_cbor(kept) if kept else b""


def decode_properties(properties: bytes) -> Properties:
    """Returns the properties that `encode_properties` wrote, without invalid ones: files may have any content."""
    if not properties or len(properties) > PROPERTIES_BYTES_MAX:
        return {}
    try:
        kept = read_cbor(properties)
    except ValueError:
        return {}
    if not isinstance(kept, dict):
        return {}
    return {name: kept[key] for name, key in KEPT.items() if key in kept and _is_sendable(key, kept[key])}


def _is_sendable(key: str, value: object) -> bool:
    if type(value) is not KINDS[key]:
        return False
    if isinstance(value, list):
        return len(value) <= REPEATS_MAX and all(map(_is_pair, value))
    if isinstance(value, int):
        return 0 <= value <= WHOLE_MAX[key]
    if isinstance(value, bytes):
        return len(value) < 65_536
    return is_text(value) and (key != "response_topic" or is_publishable(str(value)))  # MQTT-3.3.2-14


def _is_pair(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_text, value))


def is_text(value: object) -> bool:
    """Whether MQTT can carry *value* as a string: MQTT 5.0, section 1.5.4."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return len(value.encode()) < 65_536
    except UnicodeEncodeError:
        return False


BLOCK_MESSAGES: Final = 2_048
BLOCK_BYTES: Final = 512 * KIB  # encoded at once, in 10 to 30 ms in which received messages wait in the socket
BLOCK_AGE_US: Final = 10 * SECOND  # a crash of the recorder loses no more than that
MESSAGE_BYTES_MAX: Final = 6 * MIB
"""Payload, topic and properties of one message: a block of it unfolds to less than the 8 MiB that readers allow."""
FILE_BLOCKS_MAX: Final = BLOCKS_MAX - 2  # a footer names at most BLOCKS_MAX; two are reserved for the clock anchors


def is_recording(path: Path) -> bool:
    """Whether the file begins like an `.edl` file. Raises InputInvalid if it cannot be read, or only once."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise InputInvalid(f"{path} is a pipe, and the file is read twice: save it first")
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror}") from error


class RecordWriter:
    """Appends messages to a new file; `close` completes it. A file without `close` is readable up to its end.

    node: the origin of the messages. Raises InputInvalid if the file exists already or cannot be written.
    """

    def __init__(self, path: Path, node: str) -> None:
        self.path = path
        self._header = LogHeader(node, uuid4().hex[:16], 1, now_us(), time_ns() // 1_000)
        try:
            self._file = path.open("xb")
        except FileExistsError:
            raise InputInvalid(f"{path} exists; a recording is never written over: give another name") from None
        except OSError as error:
            raise InputInvalid(f"cannot write {path}: {error.strerror}") from error
        self.bytes = 0
        """Bytes written."""
        self._index: list[tuple[int, BlockHead]] = []
        self._pending: list[RecordedMessage] = []
        self._pending_bytes = 0
        self._write(encode_header(self._header))
        self._anchor()

    @property
    def is_full(self) -> bool:
        """Whether the index is full, so that another file is needed."""
        return len(self._index) >= FILE_BLOCKS_MAX

    def add(self, message: RecordedMessage) -> bool:
        """Adds *message*. Returns False if it is larger than any block. Raises OSError."""
        size = len(message.payload) + len(message.topic) + len(message.properties) + len(message.client)
        if size > MESSAGE_BYTES_MAX:
            return False
        if self._pending and self._pending_bytes + size > BLOCK_BYTES:
            self.flush()
        self._pending.append(message)
        self._pending_bytes += size
        if len(self._pending) >= BLOCK_MESSAGES or message.t_us - self._pending[0].t_us > BLOCK_AGE_US:
            self.flush()
        return True

    def flush(self) -> None:
        """Writes pending messages. Raises OSError."""
        if self._pending:
            rows = [(m.t_us, m.client, m.topic, m.qos, int(m.retain), m.payload, m.properties) for m in self._pending]
            self._pending, self._pending_bytes = [], 0
            self._block(TRAFFIC, rows)

    def close(self) -> None:
        """Writes pending messages, the last clock anchor and the index, and closes the file. Raises OSError."""
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
        steps = make_block(table, len(self._index), make_columns(rows))
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                block: bytes = stop.value
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


class RecordFile:
    """A recorded file, mapped into memory. Raises InputInvalid if it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise InputInvalid(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        # The reader only slices and searches; a mapping supports both.
        self._data = cast(bytes, mapped)
        try:
            self.header, _ = read_header(self._data)
        except LogDamaged as error:
            raise InputInvalid(f"{path}: {error}") from error
        self.messages = 0
        """The number of readable messages."""
        self.damage: list[str] = []
        """What is damaged in the file, one text each."""
        self._scan()

    def _scan(self) -> None:
        first: Instant | None = None
        last = 0
        for item in iter_blocks(self._data, tables=(), known=RECORDING_TABLES):
            if isinstance(item, LogCorruption):
                self.damage.append(str(item))
                continue
            if item.table == TRAFFIC.name:
                self.messages += item.head.rows
                first = item.head.t_first_us if first is None else first
            last = max(last, item.head.t_last_us)
        if first is None:
            raise InputInvalid(f"{self.path} has no recorded messages; `edgedevices record` makes files that have")
        self.first_us: Instant = first
        """When its first message was received."""
        self.length_us: Duration = max(last - first, 0)
        """From the first message to the end of the recording."""

    def messages_in_order(self) -> Iterator[RecordedMessage]:
        """Yields every message in the order of recording. One block of at most 8 MiB is in memory at a time."""
        for item in iter_blocks(self._data, tables={TRAFFIC.name}, known=RECORDING_TABLES):
            if not isinstance(item, LogCorruption) and item.table == TRAFFIC.name:
                for t_us, client, topic, qos, retain, payload, properties in zip(*item.columns.values(), strict=True):
                    yield RecordedMessage(t_us, client, topic, qos, bool(retain), payload, properties)


def now_us() -> Instant:
    """Returns microseconds of this machine's monotonic clock."""
    return monotonic_ns() // 1_000
