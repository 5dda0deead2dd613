"""Sparkplug B payloads (Sparkplug 3.0, section 6.4): the metrics of a message as attributes, by their names.

The payload is protobuf. Only what filters can ask for is read, by hand: name, alias, type and value of each metric; all
else is passed over. In its birth a device gives every metric a name and may give it a number, the alias; later messages
then carry the number alone. `Births` remembers which name it stands for, until the device's death.
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
"""Kinds of messages whose payload is protobuf, in the third level of the topic; that of STATE is JSON."""

NODES_MAX: Final = 1_000  # edge nodes whose births are remembered; a plant has tens
METRICS_MAX: Final = 20_000  # their metrics in all, 250 bytes each: 5 MiB. Then who was born first is forgotten
NAME_CHARACTERS_MAX: Final = 256  # of a metric; of a node and its device together
STRANGERS_MAX: Final = 100  # nodes to be asked for another birth at one time
FIELDS_MAX: Final = 8_192
"""Of one payload: a birth of a thousand metrics has 6,000. A field takes 0.4 us to read, in plain Python 0.5 to 1."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types (protobuf encoding, "Message structure")
_METRICS: Final = 2  # the one field of a payload that is read
_NAME, _ALIAS, _TYPE, _IS_NULL = 1, 2, 4, 7  # fields of a metric
_SESSION: Final = "bdSeq"
"""The metric by which a node's birth and the death that belongs to it know each other (section 6.4.9)."""
_INT, _LONG, _FLOAT, _DOUBLE, _BOOLEAN, _STRING = 10, 11, 12, 13, 14, 15
_SIGNED: Final = {1: 8, 2: 16, 3: 32, 4: 64}
"""Types whose whole numbers have a sign, Int8 to Int64 -> bits."""
_WIRE: Final = {_FLOAT: _FIXED32, _DOUBLE: _FIXED64, _STRING: _BYTES, _INT: _VARINT, _LONG: _VARINT, _BOOLEAN: _VARINT}


Field: TypeAlias = tuple[int, int, int, int]


class PayloadBroken(ValueError):
    """The bytes are no Sparkplug payload."""


class Metric(NamedTuple):
    """One metric. name: "" if the message has its alias alone. type: 0 if the message does not say it."""

    name: str
    alias: int | None
    type: int
    value: Any
    """As it stands on the wire; None if it is null or missing."""

    def of_type(self, known: int) -> Any:
        """The value, where the type is *known* if the message does not say it."""
        bits = _SIGNED.get(self.type or known)
        if bits is None or type(self.value) is not int:
            return self.value
        number = self.value & (1 << bits) - 1
        return number - (1 << bits) if number >> bits - 1 else number


def metrics_of(payload: bytes) -> list[Metric]:
    """The metrics of *payload*, in their order. Raises PayloadBroken, also for one that would take long to read."""
    if len(payload) > PAYLOAD_PARSE_BYTES_MAX:
        raise PayloadBroken("too large")
    found, read = [], 0
    for number, wire, start, end in _fields(payload, 0, len(payload)):
        read += 1
        if number == _METRICS and wire == _BYTES:
            fields = list(islice(_fields(payload, start, end), FIELDS_MAX + 1 - read))
            read += len(fields) + 1  # what is made of them takes as long as reading another
            found.append(_metric(payload, fields))
        if read > FIELDS_MAX:
            raise PayloadBroken("too many fields")
    return found


def is_sparkplug(topic: str) -> bool:
    """Whether the payload under *topic* is a Sparkplug payload."""
    return topic.startswith(SPARKPLUG) and len(levels := topic.split("/", 4)) > 3 and levels[2] in MESSAGES


def tells(topic: str) -> bool:
    """Whether a message under *topic*, one of Sparkplug's, says who is born or has died."""
    return topic.split("/", 3)[2] in ("NBIRTH", "NDEATH", "DBIRTH", "DDEATH")


def sparkplug_tree(payload: bytes) -> Any:
    """Metric name -> value, of the metrics that the payload names; NOTHING if it is no Sparkplug payload."""
    try:
        return {metric.name: metric.of_type(0) for metric in metrics_of(payload) if metric.name}
    except PayloadBroken:
        return NOTHING


class Births:
    """What the devices of a broker said when they were born."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, dict[int | str, tuple[str, int]]]] = {}
        """group/node -> device, "" for the node itself -> alias or name -> (name, type)"""
        self._sessions: dict[str, int] = {}
        """group/node -> bdSeq of its last birth, of NODES_MAX nodes"""
        self._strangers: dict[str, None] = {}
        self._metrics = 0
        self.forgotten = 0
        """Nodes whose births were given up, because there were too many."""
        self.unknown = 0
        """Metrics without a name whose alias nothing stood for: no filter could ask for them."""
        self.outlived = 0
        """Deaths of an earlier connection that came when the node was born again: they wipe nothing."""

    def __len__(self) -> int:
        return self._metrics

    def tree(self, topic: str, payload: bytes) -> Any:
        """As `sparkplug_tree`, and metrics by their alias where it is known. Births and deaths are noted."""
        levels = topic.split("/")
        node, kind, device = f"{levels[1]}/{levels[3]}", levels[2], "/".join(levels[4:])
        try:
            metrics = metrics_of(payload)
        except PayloadBroken:
            # Born or dead it is all the same: an alias no longer stands for what the birth before said.
            if kind in ("NBIRTH", "NDEATH"):
                self._forget(node)
            elif kind in ("DBIRTH", "DDEATH"):
                self._forget_device(node, device)
            return NOTHING
        if kind == "NBIRTH":
            self._forget(node)
            self._strangers.pop(node, None)
        if kind in ("NBIRTH", "DBIRTH"):
            self._learn(node, device, metrics)
        born = self._nodes.get(node, {})
        before = self.unknown
        found = dict(self._named(born, device, metrics))
        if self.unknown > before and kind in ("NDATA", "DDATA") and len(self._strangers) < STRANGERS_MAX:
            self._strangers[node] = None
        if kind == "NDEATH":
            self._bury(node, metrics)
        elif kind == "DDEATH":
            self._forget_device(node, device)
        return found

    def take_strangers(self) -> list[str]:
        """The nodes, as group/node, that used aliases nobody knows since the last call, and were not born again."""
        found, self._strangers = list(self._strangers), {}
        return found

    def _bury(self, node: str, metrics: list[Metric]) -> None:
        """Forget *node*, unless its will is that of a connection before the one in which it was born last."""
        said, known = _session_of(metrics), self._sessions.get(node)
        if said is not None and known is not None and said != known:
            self.outlived += 1
        else:
            self._forget(node)

    def _named(
        self, born: dict[str, dict[int | str, tuple[str, int]]], device: str, metrics: list[Metric]
    ) -> Iterator[tuple[str, Any]]:
        own = born.get(device, {})
        whole: dict[int | str, tuple[str, int]] | None = None  # what the node's devices said; METRICS_MAX at most
        for metric in metrics:
            key: int | str | None = metric.name or metric.alias
            if key is None:
                continue
            known = own.get(key)
            if known is None and not metric.name:  # an alias is one of the whole node (section 6.4.6)
                if whole is None:  # once for a message: it may have thousands of aliases, the node as many devices
                    whole = {}
                    for said in reversed(born.values()):  # who was born first has the last word
                        whole.update(said)
                known = whole.get(key)
            name, kind = known or (metric.name, 0)
            if name:
                yield name, metric.of_type(kind)
            else:
                self.unknown += 1

    def _learn(self, node: str, device: str, metrics: list[Metric]) -> None:
        said: dict[int | str, tuple[str, int]] = {}
        for metric in metrics:
            if not metric.name or len(metric.name) > NAME_CHARACTERS_MAX:
                continue
            if metric.alias is not None:
                said[metric.alias] = (metric.name, metric.type)
            if metric.type in _SIGNED:
                said[metric.name] = (metric.name, metric.type)
        self._forget_device(node, device)
        session = None if device else _session_of(metrics)
        if session is not None and len(node) <= NAME_CHARACTERS_MAX:
            self._sessions[node] = session
            if len(self._sessions) > NODES_MAX:
                del self._sessions[next(iter(self._sessions))]
        if not said or len(node) + len(device) > NAME_CHARACTERS_MAX:
            return  # METRICS_MAX does not bound devices without metrics, nor how long names are
        self._nodes.setdefault(node, {})[device] = said
        self._metrics += len(said)
        while self._metrics > METRICS_MAX or len(self._nodes) > NODES_MAX:
            self._forget(next(one for one in self._nodes if one != node or len(self._nodes) == 1))
            self.forgotten += 1

    def _forget_device(self, node: str, device: str) -> None:
        self._metrics -= len(self._nodes.get(node, {}).pop(device, {}))

    def _forget(self, node: str) -> None:
        self._metrics -= sum(map(len, self._nodes.pop(node, {}).values()))
        self._sessions.pop(node, None)


def _session_of(metrics: list[Metric]) -> int | None:
    """What a birth or a death of a node says of its connection; None if it says nothing."""
    return next((metric.value for metric in metrics if metric.name == _SESSION and type(metric.value) is int), None)


def rebirth(node: str, unix_ms: int) -> tuple[str, bytes]:
    """Topic and payload of the request to *node* (group/node) to be born again."""
    group, _, edge = node.partition("/")
    head = b"\x08" + _octets(unix_ms)  # timestamp
    return f"spBv1.0/{group}/NCMD/{edge}", head + b"\x12" + bytes([len(_REBIRTH)]) + _REBIRTH


_REBIRTH: Final = b"\x0a\x14Node Control/Rebirth\x20\x0b\x70\x01"  # name, type Boolean, boolean_value true


def _octets(number: int) -> bytes:
    """*number* as a varint."""
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
    """(number, wire type, content) of each field from *at* to *end*; content is a number twice, or where it stands."""
    while at < end:
        tag = payload[at]
        at += 1
        if tag >= 0x80:  # most numbers take one byte, and no call
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
    """A number of at most 64 bits, and where it ends. Compiled, its type has so many and the mask does nothing."""
    whole = shift = 0
    while at < end and shift < 70:
        octet = payload[at]
        at += 1
        whole |= (octet & 0x7F) << shift
        if octet < 0x80:
            return whole & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise PayloadBroken("a number without an end")
