"""Requests for files: what a client that knows docs/files.md alone sends, and what it gets."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.file_service import AnswerStatus, ChunkReader, FileRequest, FileService
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import NO_HOST, FrontendOptions
from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import DIALECTS, V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Connect, Packet, PubAck, Publish, PubRec, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.digests import sha256
from edgebroker.files.chunk_store import (
    ChunkNotStored,
    ChunkStore,
    ReadChunk,
    RemoveChunk,
    StoreBusy,
    StoreFull,
    WriteChunk,
)
from edgebroker.limits import CHUNK_BYTES_MAX, CHUNK_CACHE_BYTES, CHUNK_REQUESTS_MAX, KIB
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.chunk_files import ChunkFiles

CHUNK = random.Random(1).randbytes(20 * KIB)
NAME = sha256(CHUNK).hexdigest()


class Desk:
    """A front end with a store in *folder*, and one client."""

    def __init__(self, folder: Path, dialect: Dialect = V5, bytes_max: int = 100 * KIB, **connect: Any) -> None:
        access = connect.pop("access", None)
        self.frontend = Frontend(
            Node(Ledger(None)),
            FrontendOptions(**connect.pop("options", {})),
            lambda: "new",
            **({"access": access} if access else {}),
        )
        self.files = ChunkFiles(folder)
        self.store: ChunkStore[ChunkReader] = ChunkStore(bytes_max)
        self.store.restore(self.files.found)
        self.service = FileService(self.store, self.frontend.events, NO_HOST)
        self.frontend.publish_handler.file_service = self.service
        self.dialect = dialect
        self.connection: Connection = self.frontend.opened("test:1", 0)
        [connack] = self.said(Connect("device", dialect=dialect, keep_alive_s=0, **connect))
        assert isinstance(connack, ConnAck)

    def said(self, packet: Packet) -> list[Packet]:
        self.frontend.feed(self.connection, encode_packet(packet, self.dialect), 0)
        return self.out()

    def out(self) -> list[Packet]:
        framer = Framer(1 << 24)
        framer.feed(b"".join(self.frontend.take_output(self.connection, 0)))
        found = []
        while frame := framer.next_frame():
            found.append(decode_packet(*frame, self.dialect))
        return found

    def disk(self) -> list[Packet]:
        """The disk does what it has to do; the packets that the client gets of it."""
        self.service.work_done(self.files.execute(self.store.take_work()), 0)
        return self.out()

    def ask(self, request: str, payload: bytes = b"", **how: Any) -> list[Publish]:
        found = [*self.said(Publish(f"$file/{request}", payload, **how)), *self.disk()]
        return [packet for packet in found if isinstance(packet, Publish)]

    def put(self, chunk: bytes) -> bytes:
        [answer] = self.ask(f"put/{sha256(chunk).hexdigest()}", chunk)
        return answer.payload


@pytest.fixture(params=DIALECTS, ids=[dialect.version for dialect in DIALECTS])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(tmp_path / "files", request.param)


def test_what_was_put_is_got_in_parts_of_any_length(desk: Desk) -> None:
    [answer] = desk.ask(f"put/{NAME}", CHUNK)
    assert (answer.topic, answer.payload, answer.qos) == (f"$file/answer/put/{NAME}", b"\0", 0)
    [part] = desk.ask(f"{NAME}/5/1000")
    assert (part.topic, part.payload) == (f"$file/answer/{NAME}/5/1000", b"\0" + CHUNK[5:1005])
    [rest] = desk.ask(f"{NAME}/20000/4096")
    assert rest.payload == b"\0" + CHUNK[20_000:]
    assert desk.service.sent_bytes == 1_000 + len(CHUNK) - 20_000
    assert desk.service.received_bytes == len(CHUNK)


def test_a_chunk_is_read_from_the_disk_after_a_restart_once_for_all_who_wait(tmp_path: Path) -> None:
    assert Desk(tmp_path).put(CHUNK) == b"\0"
    (tmp_path / "x.unfinished").touch()
    again = Desk(tmp_path)
    assert not (tmp_path / "x.unfinished").exists()
    for _ in range(3):
        assert again.said(Publish(f"$file/{NAME}/0/10")) == []
    assert again.store.take_work() == [ReadChunk(sha256(CHUNK).digest())]
    assert [again.store.want(sha256(CHUNK).digest(), FileRequest(again.connection, "t", {}))] == [None]
    assert len(again.ask(f"{NAME}/0/10")) == 0, "it is being read, by whoever took the work"


def test_a_response_topic_and_correlation_data_are_those_of_the_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.put(CHUNK)
    properties = {Property.RESPONSE_TOPIC: "dev/7/fw", Property.CORRELATION_DATA: b"\1\2"}
    [answer] = desk.ask(f"{NAME}/0/10", properties=properties)
    assert (answer.topic, answer.payload) == ("dev/7/fw", b"\0" + CHUNK[:10])
    assert answer.properties == {Property.CORRELATION_DATA: b"\1\2"}


@pytest.mark.parametrize("limit", [130, 200, 1_000, 16_500])
def test_no_answer_is_larger_than_the_packet_that_the_client_takes(limit: int, tmp_path: Path) -> None:
    desk = Desk(tmp_path, properties={Property.MAXIMUM_PACKET_SIZE: limit})
    desk.put(CHUNK)
    got, largest = b"", 0
    while len(got) < len(CHUNK):
        [answer] = desk.ask(f"{NAME}/{len(got)}/20480")
        assert answer.payload[0] == AnswerStatus.OK
        largest = max(largest, len(encode_packet(answer, V5)))
        got += answer.payload[1:]
    assert got == CHUNK
    assert limit - 4 < largest <= limit


def test_of_many_chunks_one_question_tells_which_are_there(desk: Desk) -> None:
    desk.put(CHUNK)
    hashes = [bytes(32), sha256(CHUNK).digest(), *[bytes((1,)) * 32] * 7, sha256(CHUNK).digest()]
    [answer] = desk.ask("have", b"".join(hashes))
    assert answer.payload == b"\0" + bytes((0b10, 0b10))
    [figures] = desk.ask("store")
    assert figures.payload == b'\0{"bytes": 20480, "bytes_max": 102400, "chunks": 1}'


@pytest.mark.parametrize(
    ("request_topic", "payload", "status", "why"),
    [
        (f"{'0' * 64}/0/10", b"", AnswerStatus.NOT_STORED, "does not have"),
        (f"{NAME}/20480/10", b"", AnswerStatus.INVALID, "20480 bytes"),
        (f"{NAME}/0/0", b"", AnswerStatus.INVALID, "not 0"),
        (f"{NAME}/-1/10", b"", AnswerStatus.INVALID, "whole numbers"),
        (f"{NAME}/0/{'9' * 13}", b"", AnswerStatus.INVALID, "whole numbers"),
        (f"{NAME}/0/\u0661", b"", AnswerStatus.INVALID, "whole numbers"),
        (f"{NAME.upper()}/0/10", b"", AnswerStatus.INVALID, "no request"),
        (f"{NAME}/0", b"", AnswerStatus.INVALID, "no request"),
        ("", b"", AnswerStatus.INVALID, "no request"),
        ("have", b"x" * 33, AnswerStatus.INVALID, "hashes"),
        ("have", b"", AnswerStatus.INVALID, "hashes"),
        (f"put/{NAME}", b"", AnswerStatus.INVALID, "bytes"),
        (f"put/{NAME}", b"x", AnswerStatus.OK, ""),
        (f"put/{'0' * 64}", b"x" * (CHUNK_BYTES_MAX + 1), AnswerStatus.INVALID, "262144"),
        (f"put/{'0' * 64}", b"x", AnswerStatus.DAMAGED, "hash"),
        (f"put/{sha256(bytes(200 * KIB)).hexdigest()}", bytes(200 * KIB), AnswerStatus.FULL, "no room"),
    ],
    ids=range(16),
)
def test_every_refusal_has_a_status_and_a_reason(
    desk: Desk, request_topic: str, payload: bytes, status: AnswerStatus, why: str
) -> None:
    desk.put(CHUNK)
    desk.store.take_work()
    [answer] = desk.ask(request_topic, payload, qos=1, packet_id=7)
    assert (answer.payload[0], why in answer.payload[1:].decode()) == (status, True), answer.payload
    assert sum(desk.service.refusals.values()) == bool(status)


def test_puback_says_so_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    puback, answer = desk.said(Publish(f"$file/{NAME}/0/10", qos=1, packet_id=9))[::-1]
    assert isinstance(puback, PubAck)
    assert isinstance(answer, Publish)
    assert (puback.packet_id, puback.reason) == (9, ReasonCode.UNSPECIFIED_ERROR)
    assert puback.properties == {Property.REASON_STRING: "this gateway does not have the chunk"}


def test_requests_of_qos_2_and_retained_ones_are_refused(desk: Desk) -> None:
    pubrec, answer = desk.said(Publish(f"$file/{NAME}/0/10", qos=2, packet_id=9))[::-1]
    assert isinstance(pubrec, PubRec)
    assert isinstance(answer, Publish)
    assert answer.payload[0] == AnswerStatus.INVALID
    [answer] = desk.ask("store", retain=True)
    assert answer.payload[0] == AnswerStatus.INVALID
    assert desk.frontend.retained.find("$file/store") is None


def test_a_client_needs_the_right_to_publish_the_request(tmp_path: Path) -> None:
    rules = AclRights(Acl.parse("topic write $file/+/+/+\n"))
    desk = Desk(tmp_path, access=AccessPolicy(rules=rules))
    assert desk.put(CHUNK)[0] == AnswerStatus.NOT_AUTHORIZED
    [answer] = desk.ask(f"{NAME}/0/10")
    assert answer.payload[0] == AnswerStatus.NOT_STORED
    assert desk.service.refusals[AnswerStatus.NOT_AUTHORIZED] == 1


def test_nobody_else_gets_requests_or_answers_and_the_accounts_do_not_know_them(desk: Desk) -> None:
    other = desk.frontend.opened("test:2", 0)
    for packet in (Connect("other", dialect=V311), Subscribe(1, [SubscriptionOption("$file/#", 0)])):
        desk.frontend.feed(other, encode_packet(packet, V311), 0)
    desk.frontend.take_output(other, 0)
    desk.put(CHUNK)
    desk.ask(f"{NAME}/0/10")
    assert desk.frontend.take_output(other, 0) == []
    assert desk.frontend.ledger.published == 0


def test_requests_do_not_fill_the_caches_of_topics(desk: Desk) -> None:
    desk.put(CHUNK)
    for offset in range(50):
        desk.ask(f"{NAME}/{offset}/1")
    assert desk.service.requests == 51
    assert len(desk.frontend.fan_out_cache.cached) == 1
    assert len(desk.frontend.node.routes) == 1


def test_a_client_with_too_many_requests_is_busy(tmp_path: Path) -> None:
    Desk(tmp_path).put(CHUNK)
    desk = Desk(tmp_path)
    for _ in range(CHUNK_REQUESTS_MAX):
        assert desk.said(Publish(f"$file/{NAME}/0/1")) == []
    [refusal] = desk.said(Publish(f"$file/{NAME}/0/1"))
    assert isinstance(refusal, Publish)
    assert refusal.payload[0] == AnswerStatus.BUSY
    assert len(desk.disk()) == CHUNK_REQUESTS_MAX
    assert len(desk.said(Publish(f"$file/{NAME}/0/1"))) == 1


def test_a_client_that_does_not_read_is_busy_and_its_connection_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path, options={"out_bytes_max": 30 * KIB})
    desk.put(CHUNK)
    for _ in range(3):
        desk.frontend.feed(desk.connection, encode_packet(Publish(f"$file/{NAME}/0/20480"), V5), 0)
    answers = [packet.payload[0] for packet in desk.out() if isinstance(packet, Publish)]
    assert answers == [AnswerStatus.OK, AnswerStatus.BUSY, AnswerStatus.BUSY]
    assert desk.connection.is_open


def test_who_is_gone_when_the_disk_answers_gets_nothing(tmp_path: Path) -> None:
    Desk(tmp_path).put(CHUNK)
    desk = Desk(tmp_path)
    desk.said(Publish(f"$file/{NAME}/0/1"))
    desk.frontend.closed(desk.connection, 0)
    assert desk.disk() == []


def test_a_damaged_chunk_is_given_up_and_can_be_put_again(tmp_path: Path) -> None:
    Desk(tmp_path).put(CHUNK)
    desk = Desk(tmp_path)
    (tmp_path / NAME).write_bytes(CHUNK[:-1] + b"x")
    [answer] = desk.ask(f"{NAME}/0/10")
    assert answer.payload[0] == AnswerStatus.NOT_STORED
    assert (desk.store.damaged, len(desk.store), desk.store.held_bytes) == (1, 0, 0)
    desk.disk()
    assert not (tmp_path / NAME).exists()
    assert desk.put(CHUNK) == b"\0"
    assert desk.ask(f"{NAME}/0/10")[0].payload == b"\0" + CHUNK[:10]


def test_a_disk_that_fails_is_told_and_leaves_no_part_behind(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "files")
    (tmp_path / "files").rmdir()
    answer = desk.put(CHUNK)
    assert (answer[0], desk.service.failure) == (AnswerStatus.DAMAGED, "the disk failed: No such file or directory")
    (tmp_path / "files").mkdir()
    assert desk.put(CHUNK) == b"\0"
    assert (desk.service.failure, desk.store.held_bytes) == ("", len(CHUNK))
    assert [path.name for path in (tmp_path / "files").iterdir()] == [NAME]


# -- the store ---------------------------------------------------------------------------------------------------------


def filled(bytes_max: int, *names: bytes, size: int = 10) -> ChunkStore[str]:
    store: ChunkStore[str] = ChunkStore(bytes_max)
    store.restore([(name, size) for name in names])
    assert store.take_work() == []
    return store


def test_what_was_wanted_least_recently_goes_first() -> None:
    store = filled(30, b"a", b"b", b"c")
    assert store.want(b"a", "x") is None
    assert store.read(b"a", b"0123456789") == ["x"]
    assert store.holds(b"b")
    store.take_work()
    assert store.add(b"d", b"0123456789", "y")
    assert store.take_work() == [RemoveChunk(b"c"), WriteChunk(b"d", b"0123456789")]
    assert store.written(b"d", True) == ["y"]
    assert [store.holds(name) for name in (b"a", b"b", b"c", b"d")] == [True, True, False, True]
    assert (store.held_bytes, store.evicted) == (30, 1)


def test_what_is_under_way_stays() -> None:
    store = filled(20, b"a", b"b")
    store.want(b"a", "x")
    store.add(b"c", b"0123456789", "y")
    with pytest.raises(StoreFull):
        store.add(b"d", b"0123456789", "z")
    assert store.holds(b"a")
    assert not store.holds(b"b")
    store.read(b"a", b"0123456789")
    assert store.add(b"d", b"0123456789", "z")


def test_the_store_is_within_its_bound_whatever_was_on_the_disk() -> None:
    store: ChunkStore[str] = ChunkStore(25)
    store.restore([(b"a", 10), (b"b", 10), (b"c", 10)])
    assert store.take_work() == [RemoveChunk(b"a")]
    assert store.held_bytes == 20
    with pytest.raises(StoreFull):
        store.add(b"d", bytes(26), "x")
    assert len(store) == 2, "nothing went for a chunk that has no room anyway"


def test_one_file_is_written_for_two_who_put_it_at_once_and_a_write_that_failed_leaves_nothing() -> None:
    store = filled(100)
    assert store.add(b"a", b"data", "x")
    assert store.add(b"a", b"data", "y")
    assert len(store.take_work()) == 1
    with pytest.raises(ChunkNotStored):
        store.want(b"a", "z")
    assert store.written(b"a", False) == ["x", "y"]
    assert (store.held_bytes, store.holds(b"a")) == (0, False)
    assert not filled(100, b"a").add(b"a", b"0123456789", "x"), "it is there already"


def test_memory_is_bounded_for_what_waits_to_be_written_and_for_what_was_read() -> None:
    store: ChunkStore[int] = ChunkStore(100 * CHUNK_CACHE_BYTES)
    half = bytes(CHUNK_CACHE_BYTES // 2)
    assert store.add(b"a", half, 0)
    assert store.add(b"b", half, 1)
    with pytest.raises(StoreBusy):
        store.add(b"c", b"x", 2)
    store.written(b"a", True)
    store.written(b"b", True)
    assert store.want(b"a", 0) == half
    store.add(b"c", b"x", 2)
    store.written(b"c", True)
    assert store.want(b"a", 0) == half
    assert store.want(b"b", 0) is None, "it gave way to the newer one"
