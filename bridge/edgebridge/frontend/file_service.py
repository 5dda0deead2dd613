"""Files for plain MQTT clients: requests under `$file/` and their answers. docs/files.md specifies them.

A request is a PUBLISH of QoS 0 or 1, and is never routed. Its answer is a PUBLISH of QoS 0 to the client that asked and
to nobody else, under the response topic of the request or under `$file/answer/`: who loses it asks again. The first
byte of the payload is an `AnswerStatus`. No message of these is one of the accounts of docs/fates.md; `requests`,
`sent_bytes` and `refusals` count them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.event_buffer import NOT_PUBLISHED, EventBuffer
from edgebridge.frontend.handlers.ack import send_ack
from edgebridge.frontend.options import FrontendHost
from edgebridge.session.acl import AccessKind
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import PubAck, Publish, PubRec
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.chunk_exchange import ExchangeBusy
from edgebroker.files.chunk_store import (
    NOTHING_READ,
    ChunkNotStored,
    ChunkStore,
    ChunkWork,
    ReadChunk,
    StoreBusy,
    StoreFull,
    WriteChunk,
)
from edgebroker.instants import Instant
from edgebroker.limits import CHUNK_BYTES_MAX, CHUNK_REQUESTS_MAX
from edgebroker.topics import FILE_TREE

ANSWER: Final = FILE_TREE + "answer/"
HASH_BYTES: Final = 32
HAVE_MAX: Final = 2_048
"""Chunks that one request may ask about: 64 KiB of hashes, an answer of 256 bytes, and 0.5 ms."""
_WIDTH: Final = 12
"""Digits of an offset or a length: more are no number of a request."""


class AnswerStatus(IntEnum):
    """The first byte of an answer. All but OK are refusals, of which the rest is a text that says why."""

    OK = 0
    NOT_STORED = 1
    """The gateway does not have the chunk."""
    INVALID = 2
    """The request is not one of docs/files.md, or asks for bytes behind the end of the chunk."""
    NOT_AUTHORIZED = 3
    """The client may not publish under this topic."""
    BUSY = 4
    """Too much is under way: ask again when other answers have come, or in a second."""
    FULL = 5
    """The store has no room for the chunk."""
    DAMAGED = 6
    """What came is not what its hash says, or the disk failed."""


class FileRefusal(EdgebrokerError):
    """A request that is not carried out."""

    def __init__(self, status: AnswerStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class FileRequest(NamedTuple):
    """A request that waits for the disk, and where its answer goes."""

    connection: Connection
    topic: str
    properties: Properties
    offset: int = 0
    length: int = 0


class DiskOutcome(NamedTuple):
    """A work of the disk that is done. `data`: of a ReadChunk, empty if it failed; `failure`: why, empty if it did not.

    `is_mismatch`: the bytes of a WriteChunk have another hash than their name.
    """

    work: ChunkWork
    data: bytes = b""
    failure: str = ""
    is_mismatch: bool = False


class PeerRead(NamedTuple):
    """Another gateway waits for a chunk that is read from the disk."""

    peer: int


class PeerWrite(NamedTuple):
    """A chunk came from another gateway."""


ChunkReader: TypeAlias = FileRequest | PeerRead | PeerWrite


class ChunkNetwork(Protocol):
    """Other gateways that may have chunks (`federation.files`)."""

    def want(self, sha256: bytes, now: Instant) -> None:
        """Get the chunk; `take_chunk` or `chunk_not_found` follows. Raises ExchangeBusy."""

    def stored(self, sha256: bytes, now: Instant) -> None:
        """The chunk is on the disk, whoever sent it."""

    def damaged(self, sha256: bytes, now: Instant) -> None:
        """What another gateway sent has another hash, or the disk failed."""

    def has_no_room(self, sha256: bytes, now: Instant) -> None:
        """What another gateway sent has no room here."""

    def chunk_read(self, peer: int, sha256: bytes, data: bytes, now: Instant) -> None:
        """The chunk for *peer* was read; without *data* it could not be."""

    def fire(self, now: Instant) -> None:
        """The deadline of the network is due."""


class FileService:
    """Answers the requests of clients from a `ChunkStore`, and from other gateways where there are any."""

    def __init__(self, store: ChunkStore[ChunkReader], events: EventBuffer, host: FrontendHost) -> None:
        self.store = store
        self.requests = 0
        """Requests of clients."""
        self.sent_bytes = 0
        """Bytes of chunks in answers."""
        self.received_bytes = 0
        """Bytes of chunks that were stored for clients."""
        self.refusals: Counter[AnswerStatus] = Counter(dict.fromkeys(list(AnswerStatus)[1:], 0))
        """Requests that were refused, by what the client heard."""
        self.unwanted = 0
        """Chunks of other gateways that were dropped: none had been asked for, and too much waited to be written."""
        self.failure = ""
        """Why the last chunk could not be written; empty if it was."""
        self.network: ChunkNetwork | None = None
        """Other gateways; None: this one stands alone."""
        self._waiting: Counter[Connection] = Counter()
        # Chunk -> requests that wait until another gateway sends it; one that is repeated waits once.
        self._remote: dict[bytes, dict[tuple[int, str], FileRequest]] = {}
        self._events = events
        self._host = host

    def on_publish(self, connection: Connection, topic: str, publish: Publish, now: Instant) -> None:
        """A PUBLISH under `$file/`, its topic alias resolved: acknowledge it, and answer it now or later."""
        self.requests += 1
        properties: Properties = {name: publish.properties[name] for name in _KEPT if name in publish.properties}
        answer_topic = properties.pop(Property.RESPONSE_TOPIC, None)
        answer_topic = answer_topic if isinstance(answer_topic, str) else ANSWER + topic.removeprefix(FILE_TREE)
        request = FileRequest(connection, answer_topic, properties)
        refusal = None
        try:
            self._carry_out(request, topic, publish, now)
        except FileRefusal as error:
            refusal = error
            self._refuse(request, error)
            if error.status not in _ORDINARY:
                self._events.add_often(NOT_PUBLISHED, connection, _REASONS[error.status], f"{topic[:100]}: {error}")
        reason = ReasonCode.SUCCESS if refusal is None else _REASONS[refusal.status]
        if publish.qos == 1:
            send_ack(connection, PubAck(publish.packet_id, reason), "" if refusal is None else str(refusal))
        elif publish.qos == 2:
            send_ack(connection, PubRec(publish.packet_id, reason), "" if refusal is None else str(refusal))
        self._host.file_work_due()

    def work_done(self, outcomes: Iterable[DiskOutcome], now: Instant) -> None:
        """The disk has done what `store.take_work` returned: who waited for it is answered."""
        for outcome in outcomes:
            match outcome.work:
                case ReadChunk(sha256):
                    for reader in self.store.read(sha256, outcome.data):
                        if isinstance(reader, FileRequest):
                            self._waiting[reader.connection] -= 1
                            self._finish_read(reader, outcome.data)
                        elif isinstance(reader, PeerRead) and self.network is not None:
                            self.network.chunk_read(reader.peer, sha256, outcome.data, now)
                case WriteChunk(sha256, data):
                    self._finish_write(outcome, sha256, data, now)
        self._waiting = +self._waiting

    def fire(self, now: Instant) -> None:
        """The deadline of the network is due. Requests of clients that have left wait no longer."""
        for sha256 in list(self._remote):
            self._forget_departed(sha256)
        if self.network is not None:
            self.network.fire(now)

    # -- other gateways -------------------------------------------------------------------------------------------

    def read_for_peer(self, peer: int, sha256: bytes, now: Instant) -> None:
        """Another gateway wants the chunk: `chunk_read` of the network follows, at once if it is in memory."""
        assert self.network is not None
        try:
            data = self.store.want(sha256, PeerRead(peer))
        except ChunkNotStored:
            data = NOTHING_READ
        if data is not None:
            self.network.chunk_read(peer, sha256, data, now)
        self._host.file_work_due()

    def take_chunk(self, sha256: bytes, data: bytes, is_wanted: bool, now: Instant) -> None:
        """Another gateway sent the chunk: it is stored, and goes to who waits for it. One that is not wanted any more
        is stored too, since it has crossed the uplink, unless too much waits to be written: then it is dropped.
        """
        assert self.network is not None
        try:
            if not self.store.add(sha256, data, PeerWrite(), is_bounded=not is_wanted):
                self.network.stored(sha256, now)
        except StoreBusy:
            self.unwanted += 1
        except StoreFull:
            self.network.has_no_room(sha256, now)
        self._host.file_work_due()

    def chunk_not_found(self, sha256: bytes) -> None:
        """No other gateway has the chunk, or there is no room for it here."""
        for request in self._remote.pop(sha256, {}).values():
            self._waiting[request.connection] -= 1
            self._refuse(request, FileRefusal(AnswerStatus.NOT_STORED, "no gateway has the chunk, or room for it"))
        self._waiting = +self._waiting

    def _await_chunk(self, request: FileRequest, sha256: bytes, waiting: int, now: Instant) -> None:
        """Let *request* wait until another gateway sends the chunk. Raises FileRefusal."""
        assert self.network is not None
        key = request.connection.number, request.topic
        if key not in self._remote.get(sha256, {}):  # a device that connects again and again asks each time
            self._forget_departed(sha256)
        requests = self._remote.setdefault(sha256, {})
        if key not in requests:
            self._waiting[request.connection] = waiting + 1
        requests[key] = request
        try:
            self.network.want(sha256, now)  # which may give up at once
        except ExchangeBusy as error:
            del self._remote[sha256]  # nobody waited for it before, or it would be wanted
            self._waiting[request.connection] -= 1
            raise FileRefusal(AnswerStatus.BUSY, str(error)) from None

    def _forget_departed(self, sha256: bytes) -> None:
        """Requests for the chunk whose connection has ended are not answered."""
        requests = self._remote.get(sha256, {})
        for key in [key for key, request in requests.items() if not request.connection.is_open]:
            self._waiting[requests.pop(key).connection] -= 1
        if not requests:
            self._remote.pop(sha256, None)
        self._waiting = +self._waiting

    @property
    def awaited(self) -> int:
        """Requests that wait for chunks of other gateways."""
        return sum(map(len, self._remote.values()))

    def _finish_write(self, outcome: DiskOutcome, sha256: bytes, data: bytes, now: Instant) -> None:
        self.failure = "" if outcome.is_mismatch else outcome.failure
        is_stored = not outcome.failure
        for writer in self.store.written(sha256, is_stored):
            if isinstance(writer, FileRequest):
                self._waiting[writer.connection] -= 1
                if is_stored:
                    self.received_bytes += len(data)
                    self._send(writer, b"")
                else:
                    self._refuse(writer, FileRefusal(AnswerStatus.DAMAGED, outcome.failure))
            elif isinstance(writer, PeerWrite) and self.network is not None and not is_stored:
                self.network.damaged(sha256, now)
        if is_stored:
            for request in self._remote.pop(sha256, {}).values():
                self._waiting[request.connection] -= 1
                self._finish_read(request, data)
            if self.network is not None:
                self.network.stored(sha256, now)

    # -- requests -------------------------------------------------------------------------------------------------

    def _carry_out(self, request: FileRequest, topic: str, publish: Publish, now: Instant) -> None:
        """Raises FileRefusal."""
        session = request.connection.session
        assert session is not None
        if session.rights is not None and not session.rights.decide(topic, AccessKind.WRITE).is_always:
            raise FileRefusal(AnswerStatus.NOT_AUTHORIZED, "you may not publish under this topic")
        if publish.qos == 2 or publish.retain:
            raise FileRefusal(AnswerStatus.INVALID, "a request is a message of QoS 0 or 1 that is not retained")
        match topic.split("/")[1:]:
            case [name, offset, length] if (sha256 := _hash(name)) is not None:
                self._read(request, sha256, _number(offset), _number(length), now)
            case ["put", name] if (sha256 := _hash(name)) is not None:
                self._write(request, sha256, publish.payload)
            case ["have"]:
                self._tell_which(request, publish.payload)
            case ["store"]:
                store = self.store
                figures = {"bytes": store.held_bytes, "bytes_max": store.bytes_max, "chunks": len(store)}
                self._send(request, json.dumps(figures).encode())
            case _:
                raise FileRefusal(AnswerStatus.INVALID, "no request: $file/HASH/OFFSET/LENGTH, put/HASH, have or store")

    def _read(self, request: FileRequest, sha256: bytes, offset: int, length: int, now: Instant) -> None:
        if offset < 0 or length < 1:
            raise FileRefusal(AnswerStatus.INVALID, "offset and length are whole numbers, and the length is not 0")
        waiting = self._may_wait(request)
        request = request._replace(offset=offset, length=length)
        try:
            data = self.store.want(sha256, request)
        except ChunkNotStored as error:
            if self.network is None:
                raise FileRefusal(AnswerStatus.NOT_STORED, str(error)) from None
            self._await_chunk(request, sha256, waiting, now)
            return
        if data is not None:
            self._send_part(request, data)
        else:
            self._waiting[request.connection] = waiting + 1

    def _write(self, request: FileRequest, sha256: bytes, data: bytes) -> None:
        if not 1 <= len(data) <= CHUNK_BYTES_MAX:
            raise FileRefusal(AnswerStatus.INVALID, f"a chunk has 1 to {CHUNK_BYTES_MAX} bytes, not {len(data)}")
        waiting = self._may_wait(request)
        try:
            is_waiting = self.store.add(sha256, data, request)
        except StoreBusy as error:
            raise FileRefusal(AnswerStatus.BUSY, str(error)) from None
        except StoreFull as error:
            raise FileRefusal(AnswerStatus.FULL, str(error)) from None
        if is_waiting:
            self._waiting[request.connection] = waiting + 1
        else:
            self._send(request, b"")

    def _tell_which(self, request: FileRequest, hashes: bytes) -> None:
        count, rest = divmod(len(hashes), HASH_BYTES)
        if rest or not 1 <= count <= HAVE_MAX:
            raise FileRefusal(AnswerStatus.INVALID, f"the payload is 1 to {HAVE_MAX} hashes of {HASH_BYTES} bytes")
        held = bytearray((count + 7) // 8)
        for number in range(count):
            if self.store.holds(hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES]):
                held[number >> 3] |= 1 << (number & 7)
        self._send(request, bytes(held))

    def _may_wait(self, request: FileRequest) -> int:
        """How many requests of the client wait already. Raises FileRefusal if these are too many."""
        waiting = self._waiting[request.connection]
        if waiting >= CHUNK_REQUESTS_MAX:
            raise FileRefusal(AnswerStatus.BUSY, f"{waiting} of your requests wait for the disk")
        return waiting

    # -- answers --------------------------------------------------------------------------------------------------

    def _finish_read(self, request: FileRequest, data: bytes) -> None:
        try:
            if not data:
                raise FileRefusal(AnswerStatus.NOT_STORED, "the chunk was damaged on the disk, and is gone")
            self._send_part(request, data)
        except FileRefusal as refusal:
            self._refuse(request, refusal)

    def _send_part(self, request: FileRequest, chunk: bytes) -> None:
        """Send what *request* asks for of *chunk*, as much as a packet for the client may hold. Raises FileRefusal."""
        connection = request.connection
        if request.offset >= len(chunk):
            raise FileRefusal(AnswerStatus.INVALID, f"the chunk has {len(chunk)} bytes")
        length = request.length
        if connection.packet_bytes_max:
            # The remaining length is a number of up to three bytes more where there is a payload.
            length = min(length, connection.packet_bytes_max - len(_packet(request, b"")) - 3)
            if length < 1:
                raise FileRefusal(AnswerStatus.INVALID, "your maximum packet size leaves no room for an answer")
        data = chunk[request.offset : request.offset + length]
        if not connection.has_room_for(len(data)):
            raise FileRefusal(AnswerStatus.BUSY, "answers to you wait to be sent")
        self.sent_bytes += len(data)
        self._send(request, data)

    def _refuse(self, request: FileRequest, refusal: FileRefusal) -> None:
        self.refusals[refusal.status] += 1
        self._send(request, str(refusal).encode(), refusal.status)

    def _send(self, request: FileRequest, rest: bytes, status: AnswerStatus = AnswerStatus.OK) -> None:
        """Send an answer. A refusal that is larger than the client takes goes without its text."""
        connection = request.connection
        if not connection.is_open:
            return
        packet = _packet(request, rest, status)
        if not connection.fits(packet) and status is not AnswerStatus.OK:
            packet = _packet(request, b"", status)
        if connection.fits(packet):
            connection.send(packet)


_ORDINARY: Final = (AnswerStatus.NOT_STORED, AnswerStatus.BUSY)
"""Refusals that are no reason to tell the operator."""
_KEPT: Final = (Property.RESPONSE_TOPIC, Property.CORRELATION_DATA)
_REASONS: Final = {
    AnswerStatus.NOT_STORED: ReasonCode.UNSPECIFIED_ERROR,
    AnswerStatus.INVALID: ReasonCode.TOPIC_NAME_INVALID,
    AnswerStatus.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    AnswerStatus.BUSY: ReasonCode.QUOTA_EXCEEDED,
    AnswerStatus.FULL: ReasonCode.QUOTA_EXCEEDED,
}
"""What a version 5 client reads in PUBACK of a request that is refused at once."""


def _packet(request: FileRequest, rest: bytes, status: AnswerStatus = AnswerStatus.OK) -> bytes:
    payload = bytes((status,)) + rest
    answer = Publish(request.topic, payload, 0, False, properties=request.properties)
    return encode_packet(answer, request.connection.dialect)


def _hash(name: str) -> bytes | None:
    """The hash that *name*, 64 hexadecimal digits in lower case, stands for; None if it is no hash."""
    try:
        found = bytes.fromhex(name)
    except ValueError:
        return None
    return found if len(found) == HASH_BYTES and found.hex() == name else None


def _number(text: str) -> int:
    """The number that *text* is in decimal digits; -1 if it is none."""
    return int(text) if len(text) <= _WIDTH and text.isascii() and text.isdecimal() else -1
