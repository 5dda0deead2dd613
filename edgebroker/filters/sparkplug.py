"""Sparkplug B payloads (Sparkplug 3.0, section 6.4): the metrics of a message as attributes, by their names.

The payload is protobuf. Only the fields that filters can use are decoded, by hand: name, alias, type and value of each
metric; all others are skipped. In its birth certificate a device gives every metric a name and may give it a number,
the alias; later messages then contain only the number. `Births` stores the names until the device's death certificate.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from edgebroker.filters.payloads import NOTHING, SPARKPLUG
from edgebroker.limits import PAYLOAD_PARSE_BYTES_MAX
from edgebroker.predicate import COMPOSITE

MESSAGES: Final = frozenset(("NBIRTH", "NDEATH", "DBIRTH", "DDEATH", "NDATA", "DDATA", "NCMD", "DCMD"))
"""Message types with a protobuf payload, in the third level of the topic; that of STATE is JSON."""

NODES_MAX: Final = 1_000  # edge nodes with stored births; a plant has tens
METRICS_MAX: Final = 20_000  # their metrics in all, 250 bytes each: 5 MiB. Beyond it the oldest births are removed
NAME_CHARACTERS_MAX: Final = 256  # of a metric; of a node and its device together
STRANGERS_MAX: Final = 100  # nodes that are asked for a rebirth at one time
FIELDS_MAX: Final = 8_192
"""Fields of one payload: a birth of a thousand metrics has 6,000. A field takes 0.4 us to decode, in plain Python 0.5
to 1.
"""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types (protobuf encoding, "Message structure")
_METRICS, _UUID, _BODY = 2, 4, 5  # fields of a payload; the others are not decoded
_COMPRESSED: Final = b"SPBV1.0_COMPRESSED"
"""The uuid of a payload whose body is another payload, deflated. Eclipse Tahu and Ignition make such payloads."""
_ALGORITHM: Final = "algorithm"
"""The metric of such a payload that names its compression."""
_ALGORITHMS: Final = ("DEFLATE", "GZIP")
_ZLIB_OR_GZIP: Final = 47
"""The `wbits` of zlib with which it recognises both formats (RFC 1950, RFC 1952) by their first bytes."""
_NAME, _ALIAS, _TYPE, _IS_NULL = 1, 2, 4, 7  # fields of a metric
_SESSION: Final = "bdSeq"
"""The metric that links a node's birth with the death certificate of the same connection (section 6.4.9)."""
_INT, _LONG, _FLOAT, _DOUBLE, _BOOLEAN, _STRING = 10, 11, 12, 13, 14, 15
_SIGNED: Final = {1: 8, 2: 16, 3: 32, 4: 64}
"""Types of signed whole numbers, Int8 to Int64 -> bits."""
_WIRE: Final = {_FLOAT: _FIXED32, _DOUBLE: _FIXED64, _STRING: _BYTES, _INT: _VARINT, _LONG: _VARINT, _BOOLEAN: _VARINT}


Field: TypeAlias = tuple[int, int, int, int]


class PayloadBroken(ValueError):
    """The bytes are not a Sparkplug payload."""


class Metric(NamedTuple):
    """One metric. name: "" if the message has only its alias. type: 0 if the message does not contain it."""

    name: str
    alias: int | None
    type: int
    value: Any
    """The encoded value; None if it is null or missing."""

    def of_type(self, known: int) -> Any:
        """Return the value, decoded as type *known* if the message does not contain the type."""
        bits = _SIGNED.get(self.type or known)
        if bits is None or type(self.value) is not int:
            return self.value
        number = self.value & (1 << bits) - 1
        return number - (1 << bits) if number >> bits - 1 else number


def metrics_of(payload: bytes) -> list[Metric]:
    """Return the metrics of *payload*, in order; of a compressed one those in its body. Raises PayloadBroken, also for
    a payload that would take long to decode.
    """
    metrics, body = _decoded(payload)
    if body is None:
        return metrics
    return _decoded(_decompressed(body, metrics))[0]  # a compressed payload inside of another is not opened


def _decompressed(body: bytes, metrics: list[Metric]) -> bytes:
    """Return the payload in the *body* of a compressed one with these *metrics*. Raises PayloadBroken if it is not
    whole. At most one byte more than PAYLOAD_PARSE_BYTES_MAX is decompressed.
    """
    import zlib  # loaded with the first compressed payload

    algorithm = next((metric.value for metric in metrics if metric.name == _ALGORITHM), _ALGORITHMS[0])
    if str(algorithm).upper() not in _ALGORITHMS:
        raise PayloadBroken("an unknown compression")
    reader = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        payload = reader.decompress(body, PAYLOAD_PARSE_BYTES_MAX + 1)
    except zlib.error as error:
        raise PayloadBroken(str(error)) from error
    if not reader.eof or reader.unused_data:
        raise PayloadBroken("a body that is too large, cut off, or has bytes after its end")
    return payload


def _decoded(payload: bytes) -> tuple[list[Metric], bytes | None]:
    """Return the metrics of *payload*, and the body if it is compressed. Raises PayloadBroken."""
    if len(payload) > PAYLOAD_PARSE_BYTES_MAX:
        raise PayloadBroken("too large")
    found, read = [], 0
    is_compressed, body = False, b""
    for number, wire, start, end in _fields(payload, 0, len(payload)):
        read += 1
        if number == _METRICS and wire == _BYTES:
            fields = list(islice(_fields(payload, start, end), FIELDS_MAX + 1 - read))
            read += len(fields) + 1  # creating the metric takes as long as decoding another field
            found.append(_metric(payload, fields))
        elif number == _UUID and wire == _BYTES:
            is_compressed = payload[start:end] == _COMPRESSED
        elif number == _BODY and wire == _BYTES:
            body = payload[start:end]
        if read > FIELDS_MAX:
            raise PayloadBroken("too many fields")
    return found, body if is_compressed else None


def is_sparkplug(topic: str) -> bool:
    """Return whether *topic* has Sparkplug payloads."""
    return topic.startswith(SPARKPLUG) and len(levels := topic.split("/", 4)) > 3 and levels[2] in MESSAGES


def tells(topic: str) -> bool:
    """Return whether a message under *topic*, a Sparkplug topic, is a birth or death certificate."""
    return topic.split("/", 3)[2] in ("NBIRTH", "NDEATH", "DBIRTH", "DDEATH")


def sparkplug_tree(payload: bytes) -> Any:
    """Return metric name -> value, of the metrics that the payload names; NOTHING if it is not a Sparkplug payload."""
    try:
        return {metric.name: metric.of_type(0) for metric in metrics_of(payload) if metric.name}
    except PayloadBroken:
        return NOTHING


class Births:
    """The birth certificates of the devices of a broker."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, dict[int | str, tuple[str, int]]]] = {}
        """group/node -> device, "" for the node itself -> alias or name -> (name, type)"""
        self._sessions: dict[str, int] = {}
        """group/node -> bdSeq of its last birth, of NODES_MAX nodes"""
        self._unborn: dict[str, None] = {}
        self._metrics = 0
        self.forgotten = 0
        """Nodes whose births were removed because there were too many."""
        self.unknown = 0
        """Metrics with only an unknown alias: no filter can name them."""
        self.outlived = 0
        """Death certificates of an earlier connection that arrived after the node was born again: they are ignored."""

    def __len__(self) -> int:
        return self._metrics

    def tree(self, topic: str, payload: bytes) -> Any:
        """As `sparkplug_tree`, with metrics by alias where it is known. Birth and death certificates are stored."""
        levels = topic.split("/")
        node, kind, device = f"{levels[1]}/{levels[3]}", levels[2], "/".join(levels[4:])
        try:
            metrics = metrics_of(payload)
        except PayloadBroken:
            # A malformed birth or death certificate: in either case the aliases of the previous birth are invalid.
            if kind in ("NBIRTH", "NDEATH"):
                self._forget(node)
            elif kind in ("DBIRTH", "DDEATH"):
                self._forget_device(node, device)
            return NOTHING
        if kind == "NBIRTH":
            self._forget(node)
            self._unborn.pop(node, None)
        if kind in ("NBIRTH", "DBIRTH"):
            self._store(node, device, metrics)
        born = self._nodes.get(node, {})
        before = self.unknown
        found = dict(self._named(born, device, metrics))
        if self.unknown > before and kind in ("NDATA", "DDATA") and len(self._unborn) < STRANGERS_MAX:
            self._unborn[node] = None
        if kind == "NDEATH":
            self._end(node, metrics)
        elif kind == "DDEATH":
            self._forget_device(node, device)
        return found

    def take_strangers(self) -> list[str]:
        """Return the nodes, as group/node, that used unknown aliases since the last call and were not born again."""
        found, self._unborn = list(self._unborn), {}
        return found

    def _end(self, node: str, metrics: list[Metric]) -> None:
        """Remove *node*, unless its death certificate belongs to a connection before that of its last birth."""
        session, known = _session_of(metrics), self._sessions.get(node)
        if session is not None and known is not None and session != known:
            self.outlived += 1
        else:
            self._forget(node)

    def _named(
        self, born: dict[str, dict[int | str, tuple[str, int]]], device: str, metrics: list[Metric]
    ) -> Iterator[tuple[str, Any]]:
        own = born.get(device, {})
        whole: dict[int | str, tuple[str, int]] | None = None  # the births of all devices; METRICS_MAX at most
        for metric in metrics:
            key: int | str | None = metric.name or metric.alias
            if key is None:
                continue
            known = own.get(key)
            if known is None and not metric.name:  # an alias is unique in the whole node (section 6.4.6)
                if whole is None:  # once per message, which may have thousands of aliases, and the node as many devices
                    whole = {}
                    for aliases in reversed(born.values()):  # the first device's aliases take precedence
                        whole.update(aliases)
                known = whole.get(key)
            name, kind = known or (metric.name, 0)
            if name:
                yield name, metric.of_type(kind)
            else:
                self.unknown += 1

    def _store(self, node: str, device: str, metrics: list[Metric]) -> None:
        aliases: dict[int | str, tuple[str, int]] = {}
        for metric in metrics:
            if not metric.name or len(metric.name) > NAME_CHARACTERS_MAX:
                continue
            if metric.alias is not None:
                aliases[metric.alias] = (metric.name, metric.type)
            if metric.type in _SIGNED:
                aliases[metric.name] = (metric.name, metric.type)
        self._forget_device(node, device)
        session = None if device else _session_of(metrics)
        if session is not None and len(node) <= NAME_CHARACTERS_MAX:
            self._sessions[node] = session
            if len(self._sessions) > NODES_MAX:
                del self._sessions[next(iter(self._sessions))]
        if not aliases or len(node) + len(device) > NAME_CHARACTERS_MAX:
            return  # METRICS_MAX bounds neither devices without metrics nor the length of names
        self._nodes.setdefault(node, {})[device] = aliases
        self._metrics += len(aliases)
        while self._metrics > METRICS_MAX or len(self._nodes) > NODES_MAX:
            self._forget(next(one for one in self._nodes if one != node or len(self._nodes) == 1))
            self.forgotten += 1

    def _forget_device(self, node: str, device: str) -> None:
        self._metrics -= len(self._nodes.get(node, {}).pop(device, {}))

    def _forget(self, node: str) -> None:
        self._metrics -= sum(map(len, self._nodes.pop(node, {}).values()))
        self._sessions.pop(node, None)


def _session_of(metrics: list[Metric]) -> int | None:
    """Return the connection number (bdSeq) of a node's birth or death certificate; None if it has none."""
    return next((metric.value for metric in metrics if metric.name == _SESSION and type(metric.value) is int), None)


def rebirth(node: str, unix_ms: int) -> tuple[str, bytes]:
    """Return topic and payload of the rebirth request to *node* (group/node)."""
    group, _, edge = node.partition("/")
    head = b"\x08" + _octets(unix_ms)  # timestamp
    return f"spBv1.0/{group}/NCMD/{edge}", head + b"\x12" + bytes([len(_REBIRTH)]) + _REBIRTH


_REBIRTH: Final = b"\x0a\x14Node Control/Rebirth\x20\x0b\x70\x01"  # name, type Boolean, boolean_value true


def _octets(number: int) -> bytes:
    """Return *number* as a varint."""
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def _metric(payload: bytes, fields: list[Field]) -> Metric:
    name, kind, is_null = "", 0, False
    alias: int | None = None
    value: Any = None
    for number, wire, start, end in fields:
        if wire == _VARINT:
            if number == _ALIAS:
                alias = start
            elif number == _TYPE:
                kind = start
            elif number == _IS_NULL:
                is_null = bool(start)
            elif number in (_INT, _LONG):
                value = start
            elif number == _BOOLEAN:
                value = bool(start)
        elif number == _NAME and wire == _BYTES:
            name = _text(payload, start, end)
        elif number == _STRING and wire == _BYTES:
            value = _text(payload, start, end)
        elif _WIRE.get(number) == wire:
            value = struct.unpack_from("<f" if wire == _FIXED32 else "<d", payload, start)[0]
        elif number > _STRING:
            value = COMPOSITE  # bytes, a data set, a template, an extension
    return Metric(name, alias, kind, None if is_null else value)


def _text(payload: bytes, start: int, end: int) -> str:
    try:
        return payload[start:end].decode()
    except UnicodeDecodeError as error:
        raise PayloadBroken("a text that is not UTF-8") from error


def _fields(payload: bytes, at: int, end: int) -> Iterator[Field]:
    """Iterate over (number, wire type, content) of the fields from *at* to *end*; content is a number twice, or start
    and end.
    """
    while at < end:
        tag = payload[at]
        at += 1
        if tag >= 0x80:  # most numbers take one byte and need no call
            tag, at = _varint(payload, at - 1, end)
        wire = tag & 7
        if wire in (_VARINT, _BYTES):
            if at >= end:
                raise PayloadBroken("a field without content")
            size = payload[at]
            at += 1
            if size >= 0x80:
                size, at = _varint(payload, at - 1, end)
            if wire == _VARINT:
                yield tag >> 3, wire, size, size
                continue
        elif wire == _FIXED64:
            size = 8
        elif wire == _FIXED32:
            size = 4
        else:
            raise PayloadBroken(f"wire type {wire}")
        if size > end - at or tag < 8:
            raise PayloadBroken("a field that overruns its message, or has no number")
        yield tag >> 3, wire, at, at + size
        at += size


def _varint(payload: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and the offset behind it. Compiled, its type has 64 bits and the mask has no
    effect.
    """
    whole = shift = 0
    while at < end and shift < 70:
        octet = payload[at]
        at += 1
        whole |= (octet & 0x7F) << shift
        if octet < 0x80:
            return whole & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise PayloadBroken("a number without an end")
