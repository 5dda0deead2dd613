"""What rules of bridges make of payloads, and envelopes of many messages."""

from __future__ import annotations

import cbor2

from edgebridge.bridge.batching import EnvelopeInvalid, decode_envelope, encode_entry, encode_envelope
from edgebridge.bridge.json_cbor import PayloadFormat
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.transform import PayloadUnfit, Transform
from tests.fuzz.frame.target import Target

from .payloads import CBOR_BOMBS, JSON_BOMBS, VALUES, make_cbor

MESSAGES = [(0, "a/b", b'{"temp":21.5}'), (9, "", b"on"), (10, "\u00fc", b"\xff\x00")]


def transform(words: str) -> Transform:
    shape = parse_rule(f"t out 1 {words}").shape
    assert shape is not None
    return Transform(shape)


CUT, AS_JSON, AS_CBOR = map(transform, ("select=temp,pos.lat,tags[1] rename=pos.lat:y", "convert=json", "convert=cbor"))


def cut(data: bytes) -> None:
    try:
        CUT.payload(data, "")
    except PayloadUnfit:
        return


def shape(data: bytes) -> None:
    """What is JSON by one way is JSON by all: there and back nothing changes any more."""
    cut(data)
    text = AS_JSON.payload(data, "").payload
    again = AS_CBOR.payload(text, "application/json").payload
    settled = AS_JSON.payload(again, "application/cbor").payload
    assert AS_CBOR.payload(settled, "application/json").payload == again


def one_turn(data: bytes) -> None:
    """Nothing is written anew of CBOR that is cut; JSON is written as CBOR."""
    (CUT if data[:1] >= b"\x80" else AS_CBOR).payload(data, "")


def open_and_seal(data: bytes) -> None:
    """What is taken out can be put in again."""
    wall, messages = decode_envelope(data)
    for form in PayloadFormat if len(data) < 1_000 else ():
        found = decode_envelope(encode_envelope(form, wall, [encode_entry(form, *one) for one in messages]))
        assert [one[:2] for one in found.entries] == [one[:2] for one in messages]


SEEDS = tuple(transform("convert=cbor").payload(payload, "").payload for payload in (b'{"a":[1,"x"]}', b"[2.5,null]"))
TARGETS = (
    Target(
        "bridge-payloads",
        shape,
        (*map(cbor2.dumps, VALUES[:2]), b'{"temp":31.5,"pos":{"lat":1},"tags":["a","b"]}', *SEEDS),
        (PayloadUnfit,),
        (b"\xbf", b"\xff", b"\x9f", b"\xf7", b"\xf9\x7e\x00", b"\xc2\x41\xff", b'"pos":{', b"1e400", b"\\ud800"),
        make=make_cbor,
        bombs={
            **CBOR_BOMBS,
            **{f"JSON: {name}": bomb for name, bomb in JSON_BOMBS.items()},
            "tagged maps without a length": lambda: b"\xa1\x64tags\x9f" + b"\xc6\xbf\xff" * 8_180 + b"\xff",
            "as many tagged maps as are read": lambda: b"\xa1\x64tags\x9f" + b"\xc6\xbf\xff" * 2_999 + b"\xff",
            "large fractions": lambda: b"[" + b"1e305," * 8_100 + b"0]",
            "as many fractions as are written": lambda: b"[" + b"0.1," * 5_998 + b"0]",
        },
        plain=one_turn,
    ),
    Target(
        "bridge-envelopes",
        open_and_seal,
        tuple(
            encode_envelope(form, 1_763_827_200_123, [encode_entry(form, *one) for one in MESSAGES])
            for form in PayloadFormat
        ),
        (EnvelopeInvalid,),
        (b"\x83", b"\x01", b'"text"', b'"base64"', b'[0,"t",', b"]", b",", b"\\ud800"),
        bombs={name: lambda bomb=bomb: b'[1,0,[0,"t",' + bomb()[:-16] + b"]]" for name, bomb in JSON_BOMBS.items()},
    ),
)
