"""Payloads as trees of plain values: JSON, CBOR, or a bare text. Nothing a payload holds may raise or blow up.

orjson reads JSON where it is installed; whatever it refuses, and whole numbers beyond its 64 bits, are decided by the
standard library, so that both readings are one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from edgebroker.limits import PAYLOAD_COMPOSITES_MAX, PAYLOAD_DEPTH_MAX, PAYLOAD_PARSE_BYTES_MAX
from edgebroker.predicate import COMPOSITE, Composite, Value

_fast_loads: Callable[[bytes], Any] | None
try:
    from orjson import loads as _fast_loads
except ImportError:  # optional: no wheels for every gateway
    _fast_loads = None

NOTHING: Final = object()
"""The payload cannot be read: it has no attributes."""

SPARKPLUG: Final = "spBv1.0/"
"""Topics that begin so may have payloads of another kind: Sparkplug B, which `edgebroker.filters.sparkplug` reads."""

INTEGER_DIGITS_MAX: Final = 2_048
"""Decimal digits of a whole number; a longer one is composite. No filter could name it, and reading it is quadratic."""

EXACT_FLOAT_MAX: Final = 2.0**63
"""A float at least this large may be a whole number that a fast reading has rounded."""

_INFINITE: Final = (float("inf"), float("-inf"))
_INTEGER_MAX: Final = 10**INTEGER_DIGITS_MAX

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(code for code in range(256) if code not in b"[]{}")
_ESCAPES: Final = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_NOT_A_TEXT: Final = ("{", "[", '"')
_BLANKS: Final = " \t\r\n"

_CBOR_MAP: Final = range(0xA0, 0xC0)
_BINARY: Final = frozenset((*range(0x20), *range(0x7F, 0xA0), 0xC0, 0xC1, *range(0xF5, 0x100))) - frozenset(b"\t\n\r")
"""What neither JSON nor a text without control characters begins with: to try both would take 5 us."""


def payload_tree(payload: bytes, content_type: str | None = None, *, exact: bool = False) -> Any:
    """What *payload* holds: dict, list, str, int, float, bool, None, COMPOSITE, or other objects that count as such.

    *content_type* decides between JSON and CBOR if it names one of them; else the first byte does. NOTHING: empty, too
    large, too deep, too much in it, broken, or neither a JSON value, a CBOR map, nor a text without control characters.
    Unless *exact*, whole numbers beyond 64 bits may come as the nearest float.
    """
    if not payload or len(payload) > PAYLOAD_PARSE_BYTES_MAX:
        return NOTHING
    if content_type is not None:
        form = named_form(content_type)
        if form == "cbor":
            return _cbor(payload)
        if form == "json":
            return json_tree(payload, exact=exact)
    if payload[0] in _CBOR_MAP:
        return _cbor(payload)
    if payload[0] in _BINARY:
        return NOTHING
    tree = json_tree(payload, exact=exact)
    return _bare_text(payload) if tree is NOTHING else tree


def named_form(content_type: str) -> str:
    """What a payload is by its content type: "cbor", "json", or "" if it says neither."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith(("/cbor", "+cbor")):
        return "cbor"
    return "json" if media_type.endswith(("/json", "+json")) else ""


def json_tree(payload: bytes, *, exact: bool = False) -> Any:
    """The JSON value that *payload* is, or NOTHING. Of equal keys the last one counts."""
    if payload.count(b"{") + payload.count(b"[") > PAYLOAD_DEPTH_MAX and _holds_too_much(payload):
        return NOTHING
    if _fast_loads is not None and not exact:
        try:
            return _fast_loads(payload)
        except ValueError:
            pass  # broken, or beyond what orjson reads: the standard library decides
    try:
        text = payload.decode()
        tree = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return NOTHING
    if "\\u" in text and any(_ESCAPES.findall(text)):
        return NOTHING  # a lone surrogate is no character
    return tree


def value_of(item: Any) -> Value:
    """The value that a filter sees of *item*, a part of a tree."""
    kind = type(item)
    if kind is str or kind is bool:
        return item  # type: ignore[no-any-return]
    if kind is int:
        return item if -_INTEGER_MAX < item < _INTEGER_MAX else COMPOSITE
    if kind is float:
        return item if item == item else COMPOSITE
    return None if item is None else COMPOSITE


def _whole(digits: str) -> int | Composite:
    return int(digits) if len(digits.lstrip("-")) <= INTEGER_DIGITS_MAX else COMPOSITE


def _fraction(digits: str) -> float | Composite:
    number = float(digits)
    return COMPOSITE if number in _INFINITE else number


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_fraction, parse_constant=_refuse)


def _holds_too_much(payload: bytes) -> bool:
    """Whether brackets are more than PAYLOAD_COMPOSITES_MAX pairs, nest deeper than PAYLOAD_DEPTH_MAX, or do not pair.

    Linear: innermost pairs go, 32 times.
    """
    brackets = _STRINGS.sub(b"", payload).translate(_TO_SQUARE, _NOT_BRACKETS)
    if len(brackets) > 2 * PAYLOAD_COMPOSITES_MAX:
        return True
    for _ in range(PAYLOAD_DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _bare_text(payload: bytes) -> Any:
    """A word such as `ON`: UTF-8, no control characters, and not the beginning of a broken JSON value."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return NOTHING
    return NOTHING if text.lstrip(_BLANKS).startswith(_NOT_A_TEXT) or _CONTROL.search(text) else text


def _cbor(payload: bytes) -> Any:
    from edgebroker.filters.cbor import read_cbor  # for who is sent CBOR

    try:
        return read_cbor(payload)
    except ValueError:
        return NOTHING
