"""WebSocket frames (RFC 6455 section 5): decoding, answers, and close codes of refusals."""

from __future__ import annotations

import random

import pytest
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection

from edgebroker.runtime.listeners.websocket import (
    CloseCode,
    WebSocketDecoder,
    WebSocketFrameError,
    close_frame,
    encode_message,
)

KEY = b"\x37\xfa\x21\x3d"  # of the examples in RFC 6455 section 5.7


def frame(payload: bytes = b"", opcode: int = 2, final: bool = True, key: bytes = KEY, form: int = 0) -> bytes:
    """A frame as a client sends it. *form* forces a length of 2 or 8 bytes."""
    size = len(payload)
    first = bytes([opcode | (0x80 if final else 0)])
    if form == 8 or (not form and size > 0xFFFF):
        head = first + b"\xff" + size.to_bytes(8)
    elif form == 2 or (not form and size > 125):
        head = first + b"\xfe" + size.to_bytes(2)
    else:
        head = first + bytes([0x80 | size])
    return head + key + bytes(octet ^ key[at % 4] for at, octet in enumerate(payload))


def test_the_example_of_the_standard() -> None:
    ping = bytes.fromhex("8985 37fa213d 7f9f4d5158")  # section 5.7: a masked Ping that says "Hello"
    frames = WebSocketDecoder()
    assert frames.feed(ping) == b""
    assert frames.take_replies() == b"\x8a\x05Hello"
    assert frames.take_replies() == b""


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
def test_every_length_comes_through_in_both_directions(size: int) -> None:
    payload = random.Random(size).randbytes(size)
    assert WebSocketDecoder().feed(frame(payload)) == payload
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(encode_message(payload))
    heard = b"".join(bytes(event.data) for event in client.events() if isinstance(event, BytesMessage))
    assert heard == payload


def test_frames_may_be_cut_anywhere() -> None:
    said = (
        frame(b"abc", final=False)
        + frame(b"ping", opcode=9)
        + frame(b"", opcode=0, final=False)
        + frame(b"d" * 130, opcode=0)
        + frame(b"last", opcode=2)
    )
    for step in range(1, 40):
        frames = WebSocketDecoder()
        heard = b"".join(frames.feed(said[at : at + step]) for at in range(0, len(said), step))
        assert heard == b"abc" + b"d" * 130 + b"last"
        assert frames.take_replies() == b"\x8a\x04ping"


def test_only_the_latest_ping_is_answered() -> None:
    frames = WebSocketDecoder()
    frames.feed(frame(b"1", opcode=9) + frame(b"2", opcode=9))
    assert frames.take_replies() == b"\x8a\x012"


def test_a_ping_before_a_close_is_answered_first() -> None:
    frames = WebSocketDecoder()
    frames.feed(frame(b"1", opcode=9) + frame(b"", opcode=8))
    assert frames.take_replies() == b"\x8a\x011" + bytes.fromhex("8802 03e8")
    assert frames.take_replies() == b""


def test_each_frame_has_its_own_mask() -> None:
    """Also where one is cut within its mask, and another is of no bytes."""
    keys = [bytes(range(at, at + 4)) for at in range(1, 60)]
    said = b"".join(frame(b"x" * (number % 9), key=key) for number, key in enumerate(keys))
    for step in (1, 2, 3, 5, 7, 11, len(said)):
        frames = WebSocketDecoder()
        heard = b"".join(frames.feed(said[at : at + step]) for at in range(0, len(said), step))
        assert heard == b"x" * sum(number % 9 for number in range(len(keys)))


@pytest.mark.parametrize(("payload", "code"), [(b"", 1005), (b"\x03\xe8", 1000), (b"\x03\xe9bye", 1001)])
def test_a_close_is_answered_and_ends_everything(payload: bytes, code: int) -> None:
    frames = WebSocketDecoder()
    assert frames.feed(frame(b"a") + frame(payload, opcode=8) + frame(b"b")) == b"a"
    assert frames.close_code == code
    assert frames.take_replies() == bytes.fromhex("8802 03e8")
    assert frames.feed(frame(b"c")) == b""


REFUSED = {
    "text": (frame(b"x", opcode=1), CloseCode.UNSUPPORTED_DATA),
    "not masked": (b"\x82\x01x", CloseCode.PROTOCOL_ERROR),
    "a reserved bit": (b"\xc2" + frame(b"x")[1:], CloseCode.PROTOCOL_ERROR),
    "an unknown opcode": (frame(b"x", opcode=3), CloseCode.PROTOCOL_ERROR),
    "an unknown control opcode": (frame(b"x", opcode=11), CloseCode.PROTOCOL_ERROR),
    "goes on where nothing began": (frame(b"x", opcode=0), CloseCode.PROTOCOL_ERROR),
    "begins within another": (frame(b"x", final=False) + frame(b"x"), CloseCode.PROTOCOL_ERROR),
    "text within a message": (frame(b"x", final=False) + frame(b"x", opcode=1), CloseCode.PROTOCOL_ERROR),
    "a long ping": (frame(b"x" * 126, opcode=9), CloseCode.PROTOCOL_ERROR),
    "a ping in parts": (frame(b"x", opcode=9, final=False), CloseCode.PROTOCOL_ERROR),
    "half a close code": (frame(b"x", opcode=8), CloseCode.PROTOCOL_ERROR),
    "a length of 2 bytes for 125": (frame(b"x" * 125, form=2), CloseCode.PROTOCOL_ERROR),
    "a length of 8 bytes for 65,535": (frame(b"x" * 65_535, form=8), CloseCode.PROTOCOL_ERROR),
    "more than any packet": (b"\x82\xff" + (1 << 30).to_bytes(8) + KEY, CloseCode.TOO_BIG),
}


@pytest.mark.parametrize(("said", "code"), REFUSED.values(), ids=REFUSED)
def test_what_breaks_the_protocol_is_refused_with_its_code(said: bytes, code: CloseCode) -> None:
    with pytest.raises(WebSocketFrameError) as refused:
        WebSocketDecoder().feed(said)
    assert refused.value.code is code


def test_a_client_understands_our_close() -> None:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(close_frame(CloseCode.TOO_BIG, "ü" * 100))
    [event] = client.events()
    assert isinstance(event, CloseConnection)
    assert (event.code, event.reason) == (1009, "ü" * 61)
    assert client.state is ConnectionState.REMOTE_CLOSING
