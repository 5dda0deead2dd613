"""Payloads as trees of plain values: JSON, CBOR, or a bare text. No payload can raise an exception or use unbounded
time.

orjson parses JSON where it is installed; the standard library decides about everything that orjson refuses, and about
whole numbers beyond 64 bits, so that the result is the same.
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
except ImportError:  # optional: there are no wheels for some gateways
    _fast_loads = None

NOTHING: Final = object()
"""The payload cannot be read: it has no attributes. An empty payload is read, as a tree without members."""

SPARKPLUG: Final = "spBv1.0/"
"""The prefix of topics that may have Sparkplug B payloads, which `edgebroker.filters.sparkplug` decodes."""

INTEGER_DIGITS_MAX: Final = 2_048
"""Decimal digits of a whole number; a longer one is composite. No filter can name it, and parsing it takes quadratic
time.
"""

EXACT_FLOAT_MAX: Final = 2.0**63
"""A float at least this large may be a whole number that a fast parser has rounded."""

_INFINITE: Final = (float("inf"), float("-inf"))
_INTEGER_MAX: Final = 10**INTEGER_DIGITS_MAX

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(code for code in range(256) if code not in b"[]{}")
_ESCAPES: Final = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_NOT_A_TEXT: Final = ("{", "[", '"')
_BLANKS: Final = " \t\r\n"

_PADDING: Final = b"\0 \t\r\n"
"""Bytes behind JSON or a text that belong to the device's buffer: the end of a C string, of a line, of a field."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_AROUND: Final = frozenset(_PADDING + _BYTE_ORDER_MARK[:1])
"""A payload neither begins nor ends with one of these unless something around it is left out. A look at two bytes costs
ordinary payloads less than 0.1 us.
"""

_COMPOSITE_STARTS: Final = frozenset(b"{[")
_NO_NUMBER: Final = re.compile(r"-?\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
"""Not-a-number and infinity, as printf of C and the JSON encoders of Python and JavaScript libraries write them."""
_STRINGS_BETWEEN: Final = re.compile(r'("(?:[^"\\]++|\\.)*+"?)', re.DOTALL)
_SEPARATOR: Final = "\x01"
"""A character that no JSON contains outside of strings."""

_CBOR_MAP: Final = range(0xA0, 0xC0)
_BINARY: Final = frozenset((*range(0x20), *range(0x7F, 0xA0), 0xC0, 0xC1, *range(0xF5, 0x100))) - frozenset(b"\t\n\r")
"""First bytes of neither JSON nor a text without control characters: trying both would take 5 us."""


def payload_tree(payload: bytes, content_type: str | None = None, *, exact: bool = False) -> Any:
    """Parse *payload* into dict, list, str, int, float, bool, None, COMPOSITE, or other objects that are treated as
    composite.

    *content_type* selects JSON or CBOR if it names one of them; otherwise the first byte does. White space, a byte
    order mark and trailing NULs around JSON and text are left out; a payload of nothing else is `{}`, as an empty one
    is. In a JSON value, NaN and infinity are COMPOSITE. NOTHING: too large, too deep, too many items, malformed, or
    neither a JSON value, a CBOR map, nor a text without control characters. Unless *exact*, whole numbers beyond 64
    bits may be rounded to floats.
    """
    if not payload:
        return {}
    if len(payload) > PAYLOAD_PARSE_BYTES_MAX:
        return NOTHING
    form = "" if content_type is None else named_form(content_type)
    if form == "cbor" or (not form and payload[0] in _CBOR_MAP):
        return _cbor(payload)
    if payload[-1] in _AROUND or payload[0] in _AROUND:
        payload = payload.removeprefix(_BYTE_ORDER_MARK).lstrip(_PADDING[1:]).rstrip(_PADDING)
        if not payload:
            return {}
    if not form and payload[0] in _BINARY:
        return NOTHING
    tree = json_tree(payload, exact=exact)
    if tree is not NOTHING:
        return tree
    if form or payload[0] in _COMPOSITE_STARTS:
        return _unstrict_tree(payload)
    return _bare_text(payload)


def named_form(content_type: str) -> str:
    """Return the format that the content type names: "cbor", "json", or "" if neither."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith(("/cbor", "+cbor")):
        return "cbor"
    return "json" if media_type.endswith(("/json", "+json")) else ""


def json_tree(payload: bytes, *, exact: bool = False) -> Any:
    """Parse *payload* as a JSON value; NOTHING if it is none. Of equal keys the last one counts."""
    if _exceeds_bounds(payload):
        return NOTHING
    if _fast_loads is not None and not exact:
        try:
            return _fast_loads(payload)
        except ValueError:
            pass  # broken, or beyond what orjson reads: the standard library decides
    try:
        return _decoded(_DECODER, payload.decode())
    except (ValueError, RecursionError):
        return NOTHING


def _unstrict_tree(payload: bytes) -> Any:
    """Parse *payload*, which is no JSON, as JSON in which NaN and infinity are COMPOSITE; NOTHING if it is not that
    either.
    """
    if _exceeds_bounds(payload):
        return NOTHING
    try:
        text = payload.decode()
        parts = _STRINGS_BETWEEN.split(text)  # in turn what is outside of strings, and a string
        outside = _NO_NUMBER.sub("NaN", _SEPARATOR.join(parts[::2])).split(_SEPARATOR)
        if len(outside) != len(parts) // 2 + 1:
            return NOTHING
        parts[::2] = outside
        return _decoded(_UNSTRICT_DECODER, "".join(parts))
    except (ValueError, RecursionError):
        return NOTHING


def _decoded(decoder: json.JSONDecoder, text: str) -> Any:
    """Return what *decoder* reads. Raises ValueError, also for a lone surrogate, which is not a character, and
    RecursionError.
    """
    tree = decoder.decode(text)
    if "\\u" in text and any(_ESCAPES.findall(text)):
        raise ValueError("a lone surrogate")
    return tree


def value_of(item: Any) -> Value:
    """Return *item*, a part of a tree, as a filter's value."""
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
_UNSTRICT_DECODER: Final = json.JSONDecoder(
    parse_int=_whole, parse_float=_fraction, parse_constant=lambda _constant: COMPOSITE
)


def _exceeds_bounds(payload: bytes) -> bool:
    """Return whether brackets are more than PAYLOAD_COMPOSITES_MAX pairs, nest deeper than PAYLOAD_DEPTH_MAX, or do not
    match.

    Time is linear: the innermost pairs are removed 32 times. Few brackets need only to be counted.
    """
    if payload.count(b"{") + payload.count(b"[") <= PAYLOAD_DEPTH_MAX:
        return False
    brackets = _STRINGS.sub(b"", payload).translate(_TO_SQUARE, _NOT_BRACKETS)
    if len(brackets) > 2 * PAYLOAD_COMPOSITES_MAX:
        return True
    for _ in range(PAYLOAD_DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _bare_text(payload: bytes) -> Any:
    """Return a word such as `ON`: UTF-8, no control characters, and not the beginning of a malformed JSON value."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return NOTHING
    return NOTHING if text.lstrip(_BLANKS).startswith(_NOT_A_TEXT) or _CONTROL.search(text) else text


def _cbor(payload: bytes) -> Any:
    from edgebroker.cbor import read_cbor  # loaded with the first CBOR payload

    try:
        return read_cbor(payload)
    except ValueError:
        return NOTHING
