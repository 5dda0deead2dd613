"""Any bytes in place of WebSocket frames or of a PROXY header are read or refused, with no other effect.

Frames are held against wsproto: what both take means the same, and what it refuses is refused here.
EDGEBROKER_FUZZ_INPUTS=200000 makes it 200,000 inputs.
"""

from __future__ import annotations

import os
from random import Random

from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed

from edgebroker.runtime.listeners.proxy import HEADER_BYTES_MAX, SIGNATURE, ProxyHeaderError, parse_proxy_header
from edgebroker.runtime.listeners.tls import CertificateMalformed, validity_of
from edgebroker.runtime.listeners.websocket import CloseCode, WebSocketDecoder, WebSocketFrameError

INPUTS = int(os.environ.get("EDGEBROKER_FUZZ_INPUTS", "6000"))
OPCODES = [2, 2, 2, 2, 0, 0, 0, 9, 10, 8, 1, 3, 15]


def some_frame(chance: Random) -> bytes:
    size = chance.choice([0, 1, 2, 5, 125, 126, 127, 300, 70_000 if chance.random() < 0.01 else 9])
    first = chance.choice(OPCODES) | (0x80 if chance.random() < 0.7 else 0) | (chance.random() < 0.02 and 0x40)
    mask = 0x80 if chance.random() < 0.98 else 0
    form = 0 if size < 126 else 2 if size < 65_536 else 8
    form = chance.choice([2, 8]) if chance.random() < 0.03 else form
    length = bytes([mask | (size if not form else 126 if form == 2 else 127)])
    length += size.to_bytes(form) if form and (form == 8 or size < 65_536) else b""
    return bytes([first]) + length + chance.randbytes(4 if mask else 0) + chance.randbytes(size)


def some_bytes(chance: Random) -> bytes:
    said = b"".join(some_frame(chance) for _ in range(chance.randrange(1, 8)))
    if chance.random() < 0.3:
        spoilt = bytearray(said)
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
        return bytes(spoilt)
    return said


def cut(said: bytes, chance: Random) -> list[bytes]:
    places = sorted(chance.randrange(len(said) + 1) for _ in range(chance.randrange(4)))
    return [said[start:stop] for start, stop in zip([0, *places], [*places, len(said)], strict=True)]


def ours(pieces: list[bytes]) -> tuple[bytes, int | None, CloseCode | None]:
    """(payload, close code, code of the refusal)."""
    frames, heard = WebSocketDecoder(), b""
    try:
        for piece in pieces:
            heard += frames.feed(piece)
    except WebSocketFrameError as error:
        return heard, frames.close_code, error.code
    return heard, frames.close_code, None


def theirs(said: bytes) -> tuple[bytes, int | None, bool]:
    """(payload up to the first text frame or close, close code, whether it was refused)."""
    protocol, heard = FrameProtocol(client=False, extensions=[]), b""
    protocol.receive_bytes(said)
    try:
        for frame in protocol.received_frames():
            if frame.opcode is Opcode.TEXT:
                return heard, None, True
            if frame.opcode is Opcode.CLOSE:
                return heard, int(frame.payload[0]), False
            if frame.opcode is Opcode.BINARY:
                assert isinstance(frame.payload, bytes | bytearray)
                heard += frame.payload
    except ParseFailed:
        return heard, None, True
    return heard, None, False


def test_frames_mean_what_they_mean_to_wsproto(chance: Random) -> None:
    refused = taken = closed = 0
    for _ in range(INPUTS):
        said = some_bytes(chance)
        payload, code, refusal = ours([said])
        expected, expected_code, expected_refusal = theirs(said)
        bad_close = expected_refusal and code is not None  # codes and reasons of a close are nothing to us
        if refusal not in (CloseCode.TOO_BIG, CloseCode.UNSUPPORTED_DATA) and not bad_close:
            if (refusal is not None) == expected_refusal:
                assert code == expected_code
            else:  # it looks at a header when it is complete; we as soon as we see what is wrong
                assert (refusal is not None, expected_code) == (True, None), said.hex()
            if refusal is None:
                assert payload == expected, said.hex()
        again = ours(cut(said, chance))
        assert again[1:] == (code, refusal), said.hex()
        if refusal is None:
            assert again[0] == payload, said.hex()
        refused, taken, closed = refused + (refusal is not None), taken + len(payload), closed + (code is not None)
    assert refused > INPUTS // 10
    assert taken > INPUTS
    assert closed > INPUTS // 100


def test_a_proxy_header_is_read_or_refused(chance: Random) -> None:
    read = refused = 0
    for _ in range(INPUTS):
        body = chance.randbytes(chance.choice([0, 12, 36, 216])) + b"".join(
            bytes([chance.choice([4, 0x20, 0x22])]) + size.to_bytes(2) + chance.randbytes(size)
            for size in (chance.randrange(20) for _ in range(chance.randrange(4)))
        )
        said = bytearray(SIGNATURE + bytes([chance.choice([0x20, 0x21]), chance.choice([0, 0x11, 0x21, 0x31, 0x12])]))
        said += len(body).to_bytes(2) + body
        if chance.random() < 0.3:
            said[chance.randrange(len(said))] ^= 1 << chance.randrange(8)
        try:
            header = parse_proxy_header(bytes(said))
        except ProxyHeaderError:
            refused += 1
            continue
        if header is not None:
            assert header.size <= min(len(said), HEADER_BYTES_MAX)
            assert parse_proxy_header(bytes(said) + b"more") == header
            read += 1
    assert read > INPUTS // 10
    assert refused > INPUTS // 10


def test_a_spoilt_certificate_is_refused_or_read(chance: Random) -> None:
    time = b"\x17\x0d261121191652Z"
    body = b"\xa0\x03\x02\x01\x02" + b"\x02\x01\x07" + b"\x30\x00" * 2 + bytes([0x30, 2 * len(time)]) + time * 2
    inner = bytes([0x30, len(body)]) + body
    whole = bytes([0x30, len(inner)]) + inner
    assert validity_of(whole).end.year == 2026
    for _ in range(INPUTS):
        spoilt = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        try:
            validity_of(bytes(spoilt[: chance.randrange(len(spoilt) + 1)]))
        except CertificateMalformed:
            continue
