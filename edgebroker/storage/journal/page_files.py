"""The page files of a journal: parts of long queues, written once, outside the segments and the snapshots.

A page is what its owner took out of memory: a part of a session's queue, or of the outbox of a link to another gateway.
Its file is written and synced before any record of the journal names it, and it is removed only after the record that
no longer needs it is on the disk. So a crash leaves files that nothing names, which the next run removes, and never a
name without a file. docs/journal.md describes the bytes of a page file.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from enum import IntEnum
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import JournalDamaged
from edgebroker.instants import SECOND, Duration
from edgebroker.limits import JOURNAL_QUARANTINE_FILES_MAX
from edgebroker.storage.journal.format import SECTOR_BYTES
from edgebroker.storage.journal.work import (
    Create,
    DiskWork,
    Operation,
    Read,
    Remove,
    SetAside,
    Sync,
    SyncFolder,
    WorkPurpose,
    Write,
)

PAGE_SUFFIX: Final = ".ebq"
PAGE_MAGIC: Final = b"\x89EBQ\r\n\x1a\n"
PAGE_HEADER: Final = struct.Struct("<8s16sQII")  # magic, store, number, bytes of the content, its CRC
PAGE_MISSING: Final = "the file is missing or too short"
TAIL_PAGES: Final = 2
"""Pages' worth of messages that stay in memory at the end of a queue whose reader is away..."""
TAIL_PAGES_CONNECTED: Final = 8
"""...and of one whose reader is connected: 4,096 messages, so that a short burst never takes the way over the disk."""
PAGE_RETRY: Final[Duration] = 10 * SECOND
"""The pause after a page could not be written."""
REMOVED_AT_ONCE: Final = 64
"""Files that one work removes: a slow card takes 1 ms for each."""


def page_name(number: int) -> str:
    """Return the file name of page *number*."""
    return f"page-{number:08x}{PAGE_SUFFIX}"


def page_number(name: str) -> int | None:
    """Return the number of the page in the file *name*; None if it is not the name of a page file."""
    stem = name.removeprefix("page-").removesuffix(PAGE_SUFFIX)
    try:
        number = int(stem, 16)
    except ValueError:
        return None
    return number if page_name(number) == name else None


def page_damage(number: int, what: str, count: int) -> str:
    """Return words for the operator about page *number* with *count* messages, which cannot be read."""
    return f"{page_name(number)}: {what}; lost are {count} messages of a queue"


def encode_page(store: bytes, number: int, content: bytes) -> bytes:
    """Return the bytes of a page file. They fill whole sectors."""
    data = PAGE_HEADER.pack(PAGE_MAGIC, store, number, len(content), zlib.crc32(content)) + content
    return data + bytes(-len(data) % SECTOR_BYTES)


def decode_page(store: bytes, number: int, data: bytes) -> bytes:
    """Return the content of a page file. Raises JournalDamaged if it is not exactly what was written."""
    if len(data) < PAGE_HEADER.size:
        raise JournalDamaged(f"a page of {len(data)} bytes, shorter than its header")
    magic, of, as_number, size, checksum = PAGE_HEADER.unpack_from(data)
    if (magic, of, as_number) != (PAGE_MAGIC, store, number):
        raise JournalDamaged("its header is not that of this page of this journal")
    content = data[PAGE_HEADER.size : PAGE_HEADER.size + size]
    if len(content) != size or zlib.crc32(content) != checksum:
        raise JournalDamaged("its content has another checksum than its header says")
    return content


class PageOwner(IntEnum):
    """Whose queue a page is a part of."""

    SESSION = 0
    LINK = 1


@dataclass(frozen=True, slots=True)
class PageOutcome:
    """The end of a write or a read of a page."""

    number: int
    is_read: bool
    size: int = 0
    """The bytes of the file, if it was written."""
    content: bytes | None = None
    """What was read; None if it was a write, or failed."""
    failure: str = ""
    """Why it failed; "" if it did not."""


class PageFiles:
    """Orders the reads, writes and removals of page files; one work is in progress at a time."""

    def __init__(self, store: bytes) -> None:
        self.found: dict[int, int] = {}
        """Page number -> bytes of its file, as the runtime found them before the first work of this run."""
        self.bytes = 0
        """The size of all page files that are named, or will be."""
        self.last_number = 0
        """The number of the last page of all owners."""
        self.damage: list[str] = []
        """Damaged pages, in words for the operator. The runtime takes them."""
        self._store = store
        self._outcomes: dict[PageOwner, list[PageOutcome]] = {owner: [] for owner in PageOwner}
        self._reads: deque[tuple[PageOwner, int]] = deque()
        self._writes: deque[tuple[PageOwner, int, bytes]] = deque()
        self._removals: deque[tuple[int, Operation]] = deque()  # the LSN that must be durable before, and what to do
        self._reading: tuple[PageOwner, int] | None = None
        self._writing: tuple[PageOwner, int, bytes] | None = None
        self._removing: list[tuple[int, Operation]] = []
        self._set_aside = 0

    @property
    def waiting_writes(self) -> int:
        """The number of pages that wait to be written."""
        return len(self._writes)

    def next_number(self) -> int:
        """Return the number for a new page."""
        self.last_number += 1
        return self.last_number

    def write(self, number: int, content: bytes, owner: PageOwner = PageOwner.SESSION) -> int:
        """Write a page; returns the size of its file. An outcome for *owner* follows."""
        data = encode_page(self._store, number, content)
        self._writes.append((owner, number, data))
        self.bytes += len(data)
        return len(data)

    def read(self, number: int, owner: PageOwner = PageOwner.SESSION) -> None:
        """Read a page. An outcome for *owner* follows."""
        self._reads.append((owner, number))

    def take_outcomes(self, owner: PageOwner = PageOwner.SESSION) -> list[PageOutcome]:
        """Return the reads and writes for *owner* that have ended since the last call."""
        outcomes, self._outcomes[owner] = self._outcomes[owner], []
        return outcomes

    def remove(self, number: int, size: int, after: int = 0) -> None:
        """Remove the file of a page, of *size* bytes, as soon as record *after* is durable."""
        self.bytes -= size
        self._removals.append((after, Remove(page_name(number))))

    def set_aside(self, number: int, size: int, what: str, count: int) -> None:
        """Report that a page with *count* messages is damaged, and move its file to quarantine; it may be missing."""
        name = page_name(number)
        self.bytes -= size
        self.damage.append(page_damage(number, what, count))
        self._set_aside += 1
        keeps = self._set_aside <= JOURNAL_QUARANTINE_FILES_MAX
        self._removals.append((0, SetAside(name, name) if keeps else Remove(name)))

    def is_due(self, durable_lsn: int) -> bool:
        """Return whether there is something to do."""
        return bool(self._reads or self._writes) or bool(self._removals and self._removals[0][0] <= durable_lsn)

    def next_work(self, durable_lsn: int) -> DiskWork | None:
        """Return the next work: readers wait for reads, memory for writes, and only the disk's space for removals."""
        if self._reads:
            self._reading = self._reads.popleft()
            return DiskWork(WorkPurpose.PAGE, (Read(page_name(self._reading[1])),))
        if self._writes:
            _, number, data = self._writing = self._writes.popleft()
            name = page_name(number)
            return DiskWork(WorkPurpose.PAGE, (Create(name), Write(name, 0, data), Sync(name), SyncFolder()))
        while self._removals and self._removals[0][0] <= durable_lsn and len(self._removing) < REMOVED_AT_ONCE:
            self._removing.append(self._removals.popleft())
        if not self._removing:
            return None
        return DiskWork(WorkPurpose.PAGE, tuple(operation for _, operation in self._removing))

    def done(self, work: DiskWork) -> None:
        """Record that *work* was carried out."""
        if self._reading is not None:
            (owner, number), self._reading = self._reading, None
            content, failure = None, ""
            try:
                content = decode_page(self._store, number, work.read_data[0])
            except JournalDamaged as error:
                failure = str(error)
            self._outcomes[owner].append(PageOutcome(number, True, content=content, failure=failure))
        elif self._writing is not None:
            owner, number, data = self._writing
            self._outcomes[owner].append(PageOutcome(number, False, len(data)))
            self._writing = None
        self._removing = []

    def failed(self, reason: str, lsn: int) -> None:
        """Record that the work in progress failed. Removals are tried again when a record behind *lsn* is durable."""
        if self._reading is not None:
            owner, number = self._reading
            self._outcomes[owner].append(PageOutcome(number, True, failure=reason))
            self._reading = None
        elif self._writing is not None:
            owner, number, data = self._writing
            self._outcomes[owner].append(PageOutcome(number, False, failure=reason))
            self.remove(number, len(data))
            self._writing = None
        else:
            self._removals.extend((lsn + 1, operation) for _, operation in self._removing)
        self._removing = []

    def close(self) -> None:
        """Give up what has not begun: all of it is still in memory, in segments, or in the files as they are."""
        self._reads.clear()
        self._writes.clear()
        self._removals.clear()
