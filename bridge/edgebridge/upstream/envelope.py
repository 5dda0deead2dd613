"""Messages of many topics as one payload, in CBOR or in JSON.

    sealed(Form.CBOR, wall, [reading(Form.CBOR, 0, "a/b", b"21.5"), reading(Form.CBOR, 13, "", b"21.6")])
    opened(payload)

docs/bridging.md, "Many messages as one", has the layout.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edgebridge.upstream.forms import Form, base64url, cbor_text, json_of
from edgebridge.upstream.shape import BATCH_BYTES, BATCH_MESSAGES
from edgebroker.filters.payloads import NOTHING, json_tree
from edgebroker.limits import KIB
from edgebroker.overlay.link.broken import FrameBroken
from edgebroker.overlay.link.cbor import ARRAY, BYTES, UNSIGNED, CborReader, head

VERSION: Final = 1
HEAD_BYTES_MAX: Final = 32
"""What an envelope has beside its readings: 13 bytes in CBOR, 19 in JSON and a comma for each reading."""
BYTES_MAX: Final = BATCH_BYTES[-1] + KIB
"""What is larger is not opened: nobody seals it."""
READINGS_MAX: Final = BATCH_MESSAGES[-1]
_BLANKS: Final = b" \t\r\n"
_HEAD: Final = re.compile(rf"\s*\[\s*{VERSION}\s*,\s*([0-9]{{1,16}})\s*")
_READING: Final = re.compile(r',\s*\[\s*([0-9]{1,12})\s*,\s*("(?:[^"\\]++|\\.)*+")\s*,\s*')
_END: Final = re.compile(r'\s*(?:,\s*"(text|base64)"\s*)?\]\s*')
_TAIL: Final = re.compile(r"\]\s*\Z")


class EnvelopeBroken(ValueError):
    """A payload that is no envelope, and why."""


class Reading(NamedTuple):
    """One message of an envelope."""

    ms: int
    """Milliseconds after the first."""
    topic: str
    payload: bytes


class Envelope(NamedTuple):
    """`wall_ms`: when the first message was put in, in milliseconds since 1970, as far as the sender knew."""

    wall_ms: int
    readings: list[Reading]


def reading(form: Form, ms: int, topic: str, payload: bytes) -> bytes:
    """One message. An empty *topic* is that of the one before."""
    if form is Form.CBOR:
        return b"".join((b"\x83", head(UNSIGNED, ms), cbor_text(topic), head(BYTES, len(payload)), payload))
    if json_tree(payload, exact=True) is not NOTHING:
        return b"[%d,%s,%s]" % (ms, json_of(topic), payload.strip(_BLANKS))
    try:
        text, kind = payload.decode(), b"text"
    except UnicodeDecodeError:
        text, kind = base64url(payload), b"base64"
    return b'[%d,%s,%s,"%s"]' % (ms, json_of(topic), json_of(text), kind)


def sealed(form: Form, wall_ms: int, readings: Sequence[bytes]) -> bytes:
    """The envelope of what `reading` gave."""
    if form is Form.CBOR:
        beginning = head(ARRAY, 2 + len(readings)), head(UNSIGNED, VERSION), head(UNSIGNED, wall_ms)
        return b"".join((*beginning, *readings))
    return b"[" + b",".join((b"%d" % VERSION, b"%d" % wall_ms, *readings)) + b"]"


def opened(payload: bytes) -> Envelope:
    """What is in *payload*, in either form. Raises EnvelopeBroken."""
    if not 0 < len(payload) <= BYTES_MAX:
        raise EnvelopeBroken(f"{len(payload):,} bytes, of which 1 to {BYTES_MAX:,} are opened")
    try:
        return _opened_cbor(payload) if payload[0] >> 5 == ARRAY else _opened_json(payload)
    except (FrameBroken, ValueError, RecursionError) as error:
        raise EnvelopeBroken(str(error)) from None


def _opened_cbor(payload: bytes) -> Envelope:
    reader = CborReader(payload)
    size = reader.array()
    if size < 2 or reader.unsigned() != VERSION:
        raise EnvelopeBroken(f"no envelope of version {VERSION}")
    envelope = Envelope(reader.unsigned(), [])
    for _ in range(size - 2):
        if reader.array() != 3:
            raise EnvelopeBroken(f"no reading before byte {reader.at}")
        ms, topic = reader.unsigned(), reader.item()
        _add(envelope, ms, topic, reader.octets())
    if reader.at != len(payload):
        raise EnvelopeBroken("bytes after the end")
    return envelope


def _opened_json(payload: bytes) -> Envelope:
    """Payloads that are JSON are taken out as they were put in, byte by byte."""
    text = payload.decode()
    found = _HEAD.match(text)
    if found is None:
        raise EnvelopeBroken(f"no envelope of version {VERSION}")
    envelope = Envelope(int(found[1]), [])
    at = found.end()
    while (found := _READING.match(text, at)) is not None:
        ms, topic = int(found[1]), json.loads(found[2])
        _, at = _EXTENT.raw_decode(text, start := found.end())
        raw, found = text[start:at], _END.match(text, at)
        if found is None or (found[1] and not raw.startswith('"')):
            raise EnvelopeBroken(f"no reading at character {start}")
        at = found.end()
        _add(envelope, ms, topic, raw.encode() if not found[1] else _unquoted(raw, found[1]))
    if _TAIL.match(text, at) is None:
        raise EnvelopeBroken(f"no reading at character {at}")
    return envelope


def _refuse(constant: str) -> object:
    raise EnvelopeBroken(f"{constant} is no JSON")


_EXTENT: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
"""Reads a value only to know where it ends: numbers of any size cost nothing."""


def _unquoted(raw: str, kind: str) -> bytes:
    text: str = json.loads(raw)
    if kind == "text":
        return text.encode()
    return a2b_base64(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), strict_mode=True)


def _add(envelope: Envelope, ms: int, topic: Any, payload: bytes) -> None:
    readings = envelope.readings
    if len(readings) == READINGS_MAX:
        raise EnvelopeBroken(f"more than {READINGS_MAX:,} readings")
    if not isinstance(topic, str) or not (topic or readings):
        raise EnvelopeBroken("a reading without a topic")
    topic.encode()  # JSON may hold half a character
    readings.append(Reading(ms, topic or readings[-1].topic, payload))
