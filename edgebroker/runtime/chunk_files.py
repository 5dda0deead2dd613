"""The files of a gateway's chunks: one for each, named by its SHA-256, written and read by a thread of their own.

A chunk is written under another name, synced, and renamed; then the folder is synced, once for all chunks of a batch.
So a file under the name of a hash is whole, and it is checked whenever it is read all the same: cards forget.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from edgebridge.frontend.file_service import ChunkReader, DiskOutcome, FileService
from edgebridge.frontend.frontend import Frontend
from edgebroker.digests import sha256
from edgebroker.errors import StoreUnusable
from edgebroker.files.chunk_store import ChunkStore, ChunkWork, ReadChunk, RemoveChunk, WriteChunk
from edgebroker.limits import CHUNK_BYTES_MAX
from edgebroker.runtime.loop.reactor import Reactor, clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.settings import Settings

FOLDER: Final = "files"
"""In the folder of what is kept, unless files.dir names another."""
HASH_DIGITS: Final = 64
UNFINISHED: Final = ".unfinished"
"""The end of the name of a file that is not whole; after a crash it is removed."""
TOUCH_S: Final = 3_600
"""A file that is read tells so by its time of modification, once an hour: the order of chunks outlives a restart."""


class ChunkFiles:
    """The folder *path*, which is made if it is not there. Every method blocks. Raises StoreUnusable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.found = self._scan()
            """(SHA-256, bytes) of each chunk, the least recently wanted first."""
        except OSError as error:
            raise StoreUnusable(f"{path}: no chunks can be kept there: {error.strerror}; see files.dir") from error

    def _scan(self) -> list[tuple[bytes, int]]:
        found: list[tuple[float, bytes, int]] = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(UNFINISHED):
                    os.unlink(entry.path)
                elif len(entry.name) == HASH_DIGITS and entry.is_file():
                    with suppress(ValueError):
                        status = entry.stat()
                        found.append((status.st_mtime, bytes.fromhex(entry.name), status.st_size))
        return [(name, size) for _, name, size in sorted(found)]

    def execute(self, works: Sequence[ChunkWork]) -> list[DiskOutcome]:
        """Do *works* in their order. What fails is in its outcome, and stops no other."""
        outcomes: list[DiskOutcome] = []
        is_changed = False
        for work in works:
            try:
                match work:
                    case ReadChunk(name):
                        outcomes.append(self._read(work, name))
                    case WriteChunk(name, data):
                        if sha256(data).digest() != name:
                            why = "the bytes are not those that the hash is of"
                            outcomes.append(DiskOutcome(work, failure=why, is_mismatch=True))
                            continue
                        self._write(self.path / name.hex(), data)
                        is_changed = True
                        outcomes.append(DiskOutcome(work))
                    case RemoveChunk(name):
                        (self.path / name.hex()).unlink(missing_ok=True)
                        outcomes.append(DiskOutcome(work))
            except OSError as error:
                outcomes.append(DiskOutcome(work, failure=f"the disk failed: {error.strerror}"))
        if is_changed:
            try:
                self._sync_folder()
            except OSError as error:
                failure = f"the disk failed: {error.strerror}"
                outcomes = [
                    one._replace(failure=one.failure or failure) if isinstance(one.work, WriteChunk) else one
                    for one in outcomes
                ]
        return outcomes

    def _read(self, work: ChunkWork, name: bytes) -> DiskOutcome:
        with (self.path / name.hex()).open("rb", buffering=0) as file:
            data = file.read(CHUNK_BYTES_MAX + 1)
            now_s = time.time()
            if os.fstat(file.fileno()).st_mtime < now_s - TOUCH_S:
                os.utime(file.fileno(), (now_s, now_s))
        if sha256(data).digest() != name:
            return DiskOutcome(work, failure="the file is damaged")
        return DiskOutcome(work, data)

    def _write(self, path: Path, data: bytes) -> None:
        unfinished = path.with_name(path.name + UNFINISHED)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(unfinished, path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)  # or a full disk stays full of parts
            raise

    def _sync_folder(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ChunkWorker:
    """Does what *service* wants done on the disk, in one thread beside the event loop."""

    def __init__(self, files: ChunkFiles, service: FileService, reactor: Reactor, operator_log: OperatorLog) -> None:
        self.service = service
        self._files = files
        self._reactor = reactor
        self._operator_log = operator_log
        self._thread = ThreadPoolExecutor(1, "chunks")
        self._is_working = False
        self._is_closed = False

    def begin(self) -> None:
        """Begin what is due, if nothing is under way; it goes on with what is due when that is done."""
        if self._is_working or self._is_closed or not (works := self.service.store.take_work()):
            return
        self._is_working = True
        loop = asyncio.get_running_loop()

        def notify(future: Future[list[DiskOutcome]]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._done, future)

        self._thread.submit(self._files.execute, works).add_done_callback(notify)

    def join_federation(self, frontend: Frontend) -> None:
        """Exchange chunks with other gateways, if there are any; the federation of *frontend* has started."""
        if frontend.federation is not None:
            from edgebridge.frontend.federation.join import attach_files

            attach_files(frontend, int.from_bytes(os.urandom(4)), clock())

    def close(self) -> None:
        """Finish the work under way, and begin no other."""
        self._is_closed = True
        self._thread.shutdown()

    def _done(self, future: Future[list[DiskOutcome]]) -> None:
        self._is_working = False
        if self._is_closed:
            return
        outcomes = future.result()
        for outcome in outcomes:
            if outcome.failure and not outcome.is_mismatch:
                self._log(outcome)
        self.service.work_done(outcomes, clock())
        self._reactor.schedule_flush()
        self.begin()

    def _log(self, outcome: DiskOutcome) -> None:
        name = outcome.work.sha256.hex()
        if isinstance(outcome.work, ReadChunk):
            text = "a chunk of a file cannot be read, and is given up"
            self._operator_log.log(Level.WARNING, "chunk-damaged", text, chunk=name, reason=outcome.failure)
        else:
            text = "a chunk of a file cannot be written or removed"
            self._operator_log.log(Level.WARNING, "chunk-not-written", text, chunk=name, reason=outcome.failure)


def serve_files(
    settings: Settings, folder: Path | None, frontend: Frontend, reactor: Reactor, operator_log: OperatorLog
) -> ChunkWorker:
    """Let *frontend* answer requests for files. *folder*: where everything else is kept. Raises StoreUnusable."""
    path = settings.files.dir or (None if folder is None else folder / FOLDER)
    if path is None:
        raise StoreUnusable("files.bytes_max wants chunks to be kept, and nothing is kept on a disk: set files.dir")
    files = ChunkFiles(path)
    store: ChunkStore[ChunkReader] = ChunkStore(settings.files.bytes_max)
    store.restore(files.found)
    files.found.clear()
    service = frontend.publish_handler.file_service = FileService(store, frontend.events, frontend.host)
    worker = ChunkWorker(files, service, reactor, operator_log)
    worker.begin()
    return worker
