"""Requests for files to a gateway, over an MQTT connection: what chunks it has, chunks for it, and manifests of it.

docs/files.md specifies the requests. A publisher that loses its connection connects again, asks which chunks arrived,
and goes on with those that did not.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from edgebridge.wire.packets import Publish, SubscriptionOption
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import FAILURE
from edgebroker.cli.client_options import ClientOptions
from edgebroker.cli.file.source import FileSource
from edgebroker.cli.mqtt_client import BrokerRefusal, ConnectionLost, MqttClient, connect
from edgebroker.errors import BrokerNoAnswer, EdgebrokerError
from edgebroker.files.manifest import ChunkEntry, FileManifest, ManifestInvalid, read_table
from edgebroker.topics import FILE_TREE

ANSWER: Final = FILE_TREE + "answer/"
ANSWER_S: Final = 30
"""Seconds until an answer is given up: a slow card takes one for a chunk, and some may wait before it."""
UNDER_WAY: Final = 8
"""Chunks that are sent and not answered: half a MiB, which hides the round trip of an uplink of 10 Mbit/s."""
ASKED_AT_ONCE: Final = 1_000
REDIAL_S: Final = 1.0
QUIET_S: Final = 1.0
"""So long no retained message must come until all are taken for there."""
OK, BUSY = 0, 4


class FileAnswerRefusal(EdgebrokerError):
    """The gateway refused a request; `status` is that of docs/files.md."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"the gateway refuses: {why}")
        self.status = status


class FilesNotTaken(EdgebrokerError):
    """The broker knows no requests for files."""


class FileClient:
    """Requests over one connection."""

    def __init__(self, client: MqttClient) -> None:
        self._client = client
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._manifests: asyncio.Queue[Publish] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Take no more answers."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def ask(self, request: str, payload: bytes = b"") -> bytes:
        """The answer to *request*, without its status. Raises FileAnswerRefusal, BrokerRefusal, ConnectionLost."""
        answer = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        try:
            try:
                await self._client.publish(FILE_TREE + request, payload, qos=1)
            except BrokerRefusal:
                if not answer.done():
                    raise FilesNotTaken(
                        "the broker takes no files: it is no gateway, or files.bytes_max is 0"
                    ) from None
            async with asyncio.timeout(ANSWER_S):
                data: bytes = await answer
        except TimeoutError:
            raise ConnectionLost(f"no answer in {ANSWER_S} s: does the gateway take files (files.bytes_max)?") from None
        finally:
            del self._answers[request]
        if data[:1] != b"\0":
            raise FileAnswerRefusal(data[0] if data else -1, data[1:].decode(errors="replace"))
        return data[1:]

    async def figures(self) -> dict[str, Any]:
        """The store of the gateway: bytes, bytes_max, chunks."""
        found: dict[str, Any] = json.loads(await self.ask("store"))
        return found

    async def missing(self, names: Sequence[bytes]) -> list[bytes]:
        """Those chunks of *names* that the gateway does not have."""
        found: list[bytes] = []
        for at in range(0, len(names), ASKED_AT_ONCE):
            part = names[at : at + ASKED_AT_ONCE]
            held = await self.ask("have", b"".join(part))
            found += [name for number, name in enumerate(part) if not held[number >> 3] >> (number & 7) & 1]
        return found

    async def chunk(self, entry: ChunkEntry) -> bytes:
        """A whole chunk, in as many parts as the gateway makes of it."""
        data = b""
        while len(data) < entry.size:
            data += await self.ask(f"{entry.sha256.hex()}/{len(data)}/{entry.size - len(data)}")
        return data

    async def entries(self, manifest: FileManifest) -> list[ChunkEntry]:
        """All chunks of a file; its tables are read from the gateway. Raises ManifestInvalid."""
        if not manifest.depth:
            return list(manifest.chunks)
        return [entry for table in manifest.chunks for entry in read_table(await self.chunk(table))]

    async def publish(self, topic: str, payload: bytes, expiry_s: int | None = None) -> None:
        """Retain a manifest, or clear one with an empty *payload*."""
        properties: Properties = {} if expiry_s is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry_s}
        await self._client.publish(topic, payload, qos=1, retain=True, properties=properties)

    async def manifests(self, topic_filter: str) -> AsyncIterator[tuple[str, FileManifest | None]]:
        """The retained messages that match: topic and manifest, or None for what is none. Raises BrokerRefusal."""
        suback = await self._client.subscribe([SubscriptionOption(topic_filter, 1)])
        if suback.reasons[0] >= FAILURE:
            raise BrokerRefusal(f"{topic_filter} is refused", suback.reasons[0], suback.properties)
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    message = await self._manifests.get()
            except TimeoutError:
                return
            if message.payload:
                try:
                    yield message.topic, FileManifest.decode(message.payload)
                except ManifestInvalid:
                    yield message.topic, None

    async def _read(self) -> None:
        try:
            async for message in self._client.messages():
                if not message.topic.startswith(ANSWER):
                    self._manifests.put_nowait(message)
                elif (answer := self._answers.get(message.topic.removeprefix(ANSWER))) and not answer.done():
                    answer.set_result(message.payload)
        except EdgebrokerError as error:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(error)


@asynccontextmanager
async def file_client(peer: ClientOptions) -> AsyncIterator[FileClient]:
    """Connects for requests; disconnects at the end. Raises BrokerNoAnswer, BrokerRefusal."""
    async with connect(peer.transport, peer.connect_packet()) as client:
        files = FileClient(client)
        try:
            yield files
        finally:
            await files.close()


class Upload:
    """Brings the chunks of a file to a gateway, those that it does not have; then the manifest."""

    def __init__(self, source: FileSource, progress: Callable[[int, int], None]) -> None:
        """*progress* is told how many bytes of how many are there."""
        self.sent_chunks = 0
        self.sent_bytes = 0
        self._was_connected = False
        self._source = source
        self._progress = progress
        self._last_progress = time.monotonic()

    async def run(self, peer: ClientOptions, patience_s: float, say: Callable[[str], None]) -> None:
        """Send all chunks, over as many connections as it takes. Raises EdgebrokerError after *patience_s* seconds in
        which nothing arrived, or at once for what will not change.
        """
        told = ""
        while True:
            try:
                async with file_client(peer) as files:
                    self._was_connected = True
                    await self._send_missing(files)
                    return
            except (ConnectionLost, BrokerNoAnswer) as error:
                # Who never was connected has another address in mind.
                if not self._was_connected or time.monotonic() - self._last_progress + REDIAL_S > patience_s:
                    raise
                if str(error) != told:
                    told = str(error)
                    say(f"{error}; trying again")
                await asyncio.sleep(REDIAL_S)

    async def _send_missing(self, files: FileClient) -> None:
        pieces = self._source.pieces
        total = sum(piece.size for piece in pieces.values())
        room = (await files.figures())["bytes_max"]
        if total > room:
            raise SourceTooLarge(f"the file has {total:,} bytes of chunks, and the gateway has room for {room:,}")
        missing = await files.missing(list(pieces))
        done = total - sum(pieces[name].size for name in missing)
        self._progress(done, total)
        for names in _groups(missing):
            pending = [asyncio.create_task(self._put(files, name)) for name in names]
            try:
                for task in asyncio.as_completed(pending):
                    done += await task
                    self._last_progress = time.monotonic()
                    self._progress(done, total)
            finally:
                for one in pending:
                    one.cancel()
                await asyncio.gather(*pending, return_exceptions=True)

    async def _put(self, files: FileClient, name: bytes) -> int:
        data = self._source.read(name)
        while True:
            try:
                await files.ask(f"put/{name.hex()}", data)
                break
            except FileAnswerRefusal as refusal:
                if refusal.status != BUSY:
                    raise
            await asyncio.sleep(REDIAL_S)
        self.sent_chunks += 1
        self.sent_bytes += len(data)
        return len(data)


class SourceTooLarge(EdgebrokerError):
    """A file has more bytes than the store of the gateway may have."""


def _groups(names: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    for at in range(0, len(names), UNDER_WAY):
        yield names[at : at + UNDER_WAY]
