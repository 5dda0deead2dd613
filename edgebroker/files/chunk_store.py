"""The chunks that a gateway has: which are on the disk, who waits for one, and which go when room is needed.

The store decides and does no I/O: `take_work` returns operations for the disk, and `read` and `written` say how they
ended. The least recently wanted chunk goes first; one that is being read or written stays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Generic, TypeAlias, TypeVar

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.limits import CHUNK_CACHE_BYTES, CHUNK_WRITE_BYTES_MAX

NOTHING_READ: Final = b""
"""As the data of a chunk, which has at least one byte: it could not be read."""
Reader = TypeVar("Reader")
"""Whoever waits for a chunk; the store hands it back and knows nothing of it."""


class ChunkNotStored(EdgebrokerError):
    """The gateway does not have the chunk."""


class StoreBusy(EdgebrokerError):
    """So much waits to be written that no more is taken now."""


class StoreFull(EdgebrokerError):
    """There is no room for a chunk: it is larger than the store, or all others are under way."""


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Read the file of the chunk, and check its SHA-256."""

    sha256: bytes


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Check the SHA-256 of *data*, write it, and sync it under the name of its hash."""

    sha256: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class RemoveChunk:
    """Remove the file of the chunk; a missing one is ignored."""

    sha256: bytes


ChunkWork: TypeAlias = ReadChunk | WriteChunk | RemoveChunk


class ChunkStore(Generic[Reader]):
    """At most *bytes_max* bytes of chunks, and CHUNK_CACHE_BYTES of them in memory too."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        """Bytes of all chunks on the disk, and of those that are being written."""
        self.evicted = 0
        """Chunks that went because others needed the room."""
        self.damaged = 0
        """Chunks whose file was not what its name says, or could not be read."""
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # the least recently wanted first
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._reading: dict[bytes, list[Reader]] = {}
        self._writing: dict[bytes, tuple[bytes, list[Reader]]] = {}
        self._unwritten_bytes = 0
        self._work: list[ChunkWork] = []

    def __len__(self) -> int:
        """How many chunks are on the disk."""
        return len(self._sizes)

    def restore(self, found: Iterable[tuple[bytes, int]]) -> None:
        """The disk has these chunks (SHA-256, bytes), the least recently wanted first. Too many of them are removed."""
        for sha256, size in found:
            self._sizes[sha256] = size
            self.held_bytes += size
        self._make_room(0)

    def holds(self, sha256: bytes) -> bool:
        """Whether the chunk is on the disk. To ask is to want it: it does not go before others."""
        if sha256 not in self._sizes:
            return False
        self._sizes.move_to_end(sha256)
        return True

    def want(self, sha256: bytes, reader: Reader) -> bytes | None:
        """The chunk if it is in memory; None if it is read from the disk, and `read` returns *reader* with it.

        Raises ChunkNotStored.
        """
        if not self.holds(sha256):
            raise ChunkNotStored("this gateway does not have the chunk")
        data = self._cache.get(sha256)
        if data is not None:
            self._cache.move_to_end(sha256)
            return data
        if sha256 not in self._reading:
            self._reading[sha256] = []
            self._work.append(ReadChunk(sha256))
        self._reading[sha256].append(reader)
        return None

    def add(self, sha256: bytes, data: bytes, writer: Reader, is_bounded: bool = True) -> bool:
        """Write a chunk. False if the disk has it already; otherwise `written` returns *writer*.

        *is_bounded*: chunks that wait to be written may be too many. Raises StoreBusy, StoreFull.
        """
        if self.holds(sha256):
            return False
        if sha256 in self._writing:
            self._writing[sha256][1].append(writer)
            return True
        if is_bounded and self._unwritten_bytes and self._unwritten_bytes + len(data) > CHUNK_WRITE_BYTES_MAX:
            raise StoreBusy("too many chunks wait to be written")
        if not self._make_room(len(data)):
            raise StoreFull("the store has no room for the chunk")
        self._writing[sha256] = data, [writer]
        self._unwritten_bytes += len(data)
        self.held_bytes += len(data)
        self._work.append(WriteChunk(sha256, data))
        return True

    def take_work(self) -> list[ChunkWork]:
        """What is to be done on the disk since the last call, in this order."""
        taken, self._work = self._work, []
        return taken

    def read(self, sha256: bytes, data: bytes) -> list[Reader]:
        """A ReadChunk is done. NOTHING_READ: the file is damaged or gone, and the chunk with it. Returns who waited."""
        if data:
            self._remember(sha256, data)
        elif sha256 in self._sizes:
            self.damaged += 1
            self._forget(sha256)
        return self._reading.pop(sha256, [])

    def written(self, sha256: bytes, is_stored: bool) -> list[Reader]:
        """A WriteChunk is done: the chunk is on the disk, or was not what its name says. Returns who waited."""
        data, writers = self._writing.pop(sha256)
        self._unwritten_bytes -= len(data)
        if is_stored:
            self._sizes[sha256] = len(data)
            self._remember(sha256, data)  # who hands on a new file wants it at once
        else:
            self.held_bytes -= len(data)
        return writers

    def _make_room(self, size: int) -> bool:
        """Let chunks go until there is room for *size* more bytes. False, and nothing goes, if there cannot be."""
        wanted = self.held_bytes + size - self.bytes_max
        going: list[bytes] = []
        for sha256, held in self._sizes.items():
            if wanted <= 0:
                break
            if sha256 not in self._reading:
                going.append(sha256)
                wanted -= held
        if wanted > 0:
            return False
        for sha256 in going:
            self._forget(sha256)
            self.evicted += 1
        return True

    def _forget(self, sha256: bytes) -> None:
        self.held_bytes -= self._sizes.pop(sha256)
        self._cached_bytes -= len(self._cache.pop(sha256, b""))
        self._work.append(RemoveChunk(sha256))

    def _remember(self, sha256: bytes, data: bytes) -> None:
        """Keep the chunk in memory, in the place of those that were not wanted for longest."""
        if sha256 in self._cache:
            return
        self._cache[sha256] = data
        self._cached_bytes += len(data)
        while self._cached_bytes > CHUNK_CACHE_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= len(oldest)
