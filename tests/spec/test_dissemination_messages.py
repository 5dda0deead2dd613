"""Messages of dissemination groups: every one comes back as it was sent, and what is not exactly one is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from edgebroker.cbor import encode_cbor
from edgebroker.dissemination.group_view import group_view, view_member
from edgebroker.dissemination.messages import (
    DoneReport,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupMessage,
    MessageBroken,
    SliceRepair,
    StreamCredit,
    StreamDone,
    StreamResume,
    StreamSlice,
    StreamStart,
    ViewQuery,
    ViewUpdate,
    encode_message,
    read_message,
    signed_fields,
)
from edgebroker.dissemination.slice_hashes import SliceHashes, is_proven, slice_hash

VIEW = group_view("g", 7, [view_member("a", "10.0.0.1"), view_member("b", capacity=0, segment="hall")], 2)
START = StreamStart(1 << 63, "a", "g", VIEW.view_id, 100, 64, bytes(32), b"meta", b"signature")
EVERY: list[GroupMessage] = [
    GroupHeartbeat("a", (("g", 1), ("h", 2))),
    GroupJoin("g", view_member("a", "10.0.0.1", 3, "hall")),
    GroupLeave("g", "a"),
    ViewUpdate(VIEW),
    ViewQuery("g", VIEW.view_id),
    START,
    replace(START, size=3, content=b"abc"),
    StreamSlice(1, 2, 3, bytes(64), b"content"),
    StreamResume(1, 0),
    SliceRepair(1, 2, 9, "liar"),
    StreamCredit(1, 8),
    StreamDone(1, (DoneReport("a", 100, 5), DoneReport("b", 100, 6))),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was_sent(message: GroupMessage) -> None:
    data = encode_message(message)
    assert read_message(data) == message
    for end in range(len(data)):
        with pytest.raises(MessageBroken):
            read_message(data[:end])
    with pytest.raises(MessageBroken):
        read_message(data + b"\0")


def test_any_bytes_are_a_message_or_refused() -> None:
    chance, taken = Random("messages"), 0
    for _ in range(1_500):
        data = bytearray(encode_message(chance.choice(EVERY)))
        for _ in range(chance.randrange(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(MessageBroken):
            message = read_message(bytes(data))
            assert read_message(encode_message(message)) == message
            taken += 1
    assert 0 < taken < 1_500


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [99],
        [True, "g", 1],
        [5, "g"],
        [5, "g", -1],
        [5, "g", 1 << 64],
        [5, "", 1],
        [5, "g" * 2_000, 1],
        [8, 1, "2"],
        [8, 1, (1 << 24) + 1],
        [9, 1, 5, 5, ""],
        [4, "g", 1, 2, [["a", "", 1, ""], ["a", "", 1, ""]]],
        [4, "g", 0, 2, []],
        [4, "g", 1, 2, [["a", "", 256, ""]]],
        [6, 1, "a", "g", 2, 100, 64, bytes(31), b"", b"", b""],
        [6, 1, "a", "g", 2, 100, 0, bytes(32), b"", b"", b""],
        [6, 1, "a", "g", 2, 1 << 40, 1, bytes(32), b"", b"", b""],
        [6, 1, "a", "g", 2, 3, 64, bytes(32), b"", b"", b"ab"],
        [6, 1, "a", "g", 2, 100, 64, bytes(32), b"", b"", bytes(100)],
        {"kind": 8},
    ],
)
def test_what_is_no_message_is_refused(fields: object) -> None:
    with pytest.raises(MessageBroken):
        read_message(encode_cbor(fields))


def test_a_signature_covers_all_but_itself_and_the_content() -> None:
    assert signed_fields(START) == signed_fields(replace(START, signature=b"other", content=b"x"))
    others = [replace(START, stream=2), replace(START, source="b"), replace(START, meta=b""), replace(START, size=99)]
    assert len({signed_fields(each) for each in (START, *others)}) == 5


@pytest.mark.parametrize("count", range(1, 18))
def test_each_slice_is_proven_by_its_siblings_and_no_other_is(count: int) -> None:
    slices = [bytes([number]) * 3 for number in range(count)]
    hashes = SliceHashes([slice_hash(content) for content in slices])
    for number, content in enumerate(slices):
        proof = hashes.proof(number)
        assert is_proven(content, proof, number, count, hashes.root)
        assert not is_proven(b"wrong", proof, number, count, hashes.root)
        assert not is_proven(content, proof + bytes(32), number, count, hashes.root)
        if count > 1:
            assert not is_proven(content, proof, (number + 1) % count, count, hashes.root)
            assert not is_proven(content, proof[:-1], number, count, hashes.root)
