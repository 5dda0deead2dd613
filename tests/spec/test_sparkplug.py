"""Sparkplug B: metrics as attributes by their names, from births to deaths. The writer of payloads here is its own."""

from __future__ import annotations

import gzip
import json
import struct
import sys
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebroker.filters import Extractor, Filter
from edgebroker.filters.payloads import NOTHING
from edgebroker.filters.sparkplug import (
    METRICS_MAX,
    NAME_CHARACTERS_MAX,
    NODES_MAX,
    Births,
    PayloadBroken,
    is_sparkplug,
    metrics_of,
    rebirth,
    sparkplug_tree,
    tells,
)
from edgebroker.limits import PAYLOAD_PARSE_BYTES_MAX
from edgebroker.predicate import COMPOSITE

INT8, INT32, INT64, UINT32, FLOAT, DOUBLE, BOOLEAN, STRING, DATASET = 1, 3, 4, 7, 9, 10, 11, 12, 16


def varint(number: int) -> bytes:
    octets = bytearray()
    while True:
        number, septet = number >> 7, number & 0x7F
        octets.append(septet | 0x80 * bool(number))
        if not number:
            return bytes(octets)


def field(number: int, content: int | bytes | float, wire: int | None = None) -> bytes:
    if isinstance(content, float):
        return varint(number << 3 | (wire or 1)) + struct.pack("<f" if wire == 5 else "<d", content)
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def metric(name: str = "", kind: int = 0, value: Any = None, alias: int | None = None, is_null: bool = False) -> bytes:
    parts = [field(1, name.encode())] if name else []
    parts += [field(2, alias)] if alias is not None else []
    parts += [field(3, 1_700_000_000_000), field(4, kind)] if kind else []
    parts += [field(7, 1)] if is_null else []
    if isinstance(value, bool):
        parts.append(field(14, int(value)))
    elif isinstance(value, int):
        parts.append(field(11, value & 2**64 - 1) if kind == INT64 else field(10, value & 2**32 - 1))
    elif isinstance(value, float):
        parts.append(field(12, value, 5) if kind == FLOAT else field(13, value))
    elif isinstance(value, str):
        parts.append(field(15, value.encode()))
    elif isinstance(value, bytes):
        parts.append(field(17, value))
    return field(2, b"".join(parts))


def payload(*metrics: bytes) -> bytes:
    return field(1, 1_700_000_000_000) + b"".join(metrics) + field(3, 7) + field(4, b"uuid")


BIRTH = payload(
    metric("temp", DOUBLE, 20.5, 1),
    metric("Outputs/level", INT32, -5, 2),
    metric("on", BOOLEAN, True, 3),
    metric("site", STRING, "north", 4),
)
DATA = payload(metric(alias=1, value=31.5), metric(alias=2, value=-7))
NBIRTH, NDATA, NDEATH = (f"spBv1.0/plant/{kind}/edge" for kind in ("NBIRTH", "NDATA", "NDEATH"))
DBIRTH, DDATA, DDEATH = (f"spBv1.0/plant/{kind}/edge/press" for kind in ("DBIRTH", "DDATA", "DDEATH"))


def test_metrics_with_names_need_no_birth() -> None:
    tree = sparkplug_tree(
        payload(
            metric("temp", DOUBLE, 31.5),
            metric("half", FLOAT, 0.5),
            metric("small", INT8, -1),
            metric("large", INT64, -(2**40)),
            metric("count", UINT32, 2**32 - 1),
            metric("on", BOOLEAN, False),
            metric("gone", DOUBLE, is_null=True),
            metric("site", STRING, "no\u00ebl"),
            metric("table", DATASET, b"\x08\x01"),
        )
    )
    assert tree == {
        "temp": 31.5,
        "half": 0.5,
        "small": -1,
        "large": -(2**40),
        "count": 2**32 - 1,
        "on": False,
        "gone": None,
        "site": "no\u00ebl",
        "table": COMPOSITE,
    }


def compressed(inner: bytes, algorithm: str | None = "DEFLATE", packed: bytes | None = None) -> bytes:
    """As Eclipse Tahu makes it: the payload in the body of another, whose only metric names the algorithm."""
    if packed is None:
        packed = gzip.compress(inner) if algorithm == "GZIP" else zlib.compress(inner)
    named = [] if algorithm is None else [metric("algorithm", STRING, algorithm)]
    return b"".join([field(1, 1_700_000_000_000), *named, field(4, b"SPBV1.0_COMPRESSED"), field(5, packed)])


@pytest.mark.parametrize("algorithm", ["DEFLATE", "GZIP", "gzip", None])
def test_a_compressed_payload_is_the_one_in_its_body(algorithm: str | None) -> None:
    assert metrics_of(compressed(BIRTH, algorithm)) == metrics_of(BIRTH)
    births = Births()
    assert births.tree(NBIRTH, compressed(BIRTH, algorithm)) == births.tree(NBIRTH, BIRTH)
    assert births.tree(NDATA, compressed(DATA, algorithm)) == {"temp": 31.5, "Outputs/level": -7}
    births.tree(NDEATH, compressed(payload(), algorithm))
    assert not len(births)


def test_what_a_body_holds_is_bounded_and_whole() -> None:
    packed = zlib.compress(BIRTH)
    room = PAYLOAD_PARSE_BYTES_MAX - len(payload()) - 4
    largest = payload(field(9, bytes(room)))
    assert len(largest) == PAYLOAD_PARSE_BYTES_MAX
    assert metrics_of(compressed(largest)) == []
    for broken in (
        compressed(payload(field(9, bytes(room + 1)))),
        compressed(bytes(10**8)),
        compressed(BIRTH, "LZ4", packed),
        compressed(BIRTH, packed=packed[:-1]),
        compressed(BIRTH, packed=packed + b"x"),
        compressed(BIRTH, packed=b"x" + packed),
        compressed(BIRTH, packed=b""),
        compressed(b"\x12\x7f"),
        field(4, b"SPBV1.0_COMPRESSED"),
    ):
        with pytest.raises(PayloadBroken):
            metrics_of(broken)
        assert sparkplug_tree(broken) is NOTHING
    inner = compressed(BIRTH)
    assert sparkplug_tree(compressed(inner)) == {"algorithm": "DEFLATE"}, "one is opened, and none in it"
    assert sparkplug_tree(payload(metric("temp", DOUBLE, 1.5)) + field(5, packed)) == {"temp": 1.5}


def test_aliases_have_the_names_and_types_of_their_birth_until_death() -> None:
    births = Births()
    assert births.tree(NDATA, DATA) == {}
    assert births.tree(NBIRTH, BIRTH)["Outputs/level"] == -5
    assert births.tree(NDATA, DATA) == {"temp": 31.5, "Outputs/level": -7}
    assert births.tree(NDATA.replace("edge", "other"), DATA) == {}
    births.tree(NDEATH, payload(metric("bdSeq", UINT32, 0)))
    assert births.tree(NDATA, DATA) == {}
    assert len(births) == 0


def test_a_late_death_of_an_earlier_connection_wipes_no_later_birth() -> None:
    births = Births()
    session = [metric("bdSeq", INT64, number) for number in range(2)]
    births.tree(NBIRTH, payload(session[0]))
    births.tree(NBIRTH, payload(session[1]))
    births.tree(DBIRTH, BIRTH)
    births.tree(NDEATH, payload(session[0]))
    assert births.tree(DDATA, DATA) == {"temp": 31.5, "Outputs/level": -7}
    assert (births.outlived, births.unknown) == (1, 0)
    births.tree(NDEATH, payload(session[1]))
    assert births.tree(DDATA, DATA) == {}
    assert (births.outlived, births.unknown, births._sessions) == (1, 2, {})


def test_a_node_whose_alias_is_not_known_can_be_asked_for_another_birth() -> None:
    births = Births()
    births.tree(DDATA, DATA)
    births.tree(NDATA.replace("edge", "other"), DATA)
    births.tree("spBv1.0/plant/NCMD/third", DATA)
    births.tree(NBIRTH, BIRTH)
    assert births.take_strangers() == ["plant/other"]
    assert births.take_strangers() == []
    topic, content = rebirth("plant/other", 1_700_000_000_000)
    assert topic == "spBv1.0/plant/NCMD/other"
    assert metrics_of(content) == [("Node Control/Rebirth", None, BOOLEAN, True)]
    assert content.startswith(field(1, 1_700_000_000_000))


def test_devices_of_a_node_are_born_and_die_by_themselves_and_with_it() -> None:
    births = Births()
    births.tree(NBIRTH, payload(metric("rpm", UINT32, 5, 9)))
    births.tree(DBIRTH, BIRTH)
    assert births.tree(DDATA, DATA) == {"temp": 31.5, "Outputs/level": -7}
    assert births.tree(DDATA, payload(metric(alias=9, value=6))) == {"rpm": 6}, "an alias is one of the whole node"
    births.tree(DDEATH, payload())
    assert births.tree(DDATA, DATA) == {}
    births.tree(DBIRTH, BIRTH)
    births.tree(NBIRTH, payload(metric("rpm", UINT32, 5, 9)))
    assert births.tree(DDATA, DATA) == {}, "a node that is born again says anew what its devices have"


def test_a_filter_names_metrics_whatever_the_payload_calls_them() -> None:
    condition = Filter.parse("temp > 30 AND \"Outputs/level\" < 0 AND $level3 = 'NDATA'")
    extractor = Extractor(condition.attributes, Births())

    def accepts(topic: str, content: bytes) -> bool:
        found = extractor.extract(content, topic=topic, qos=0, retain=False, client="edge")
        return condition.accepts(found)

    assert not accepts(NDATA, DATA)
    assert not accepts(NBIRTH, BIRTH)
    assert accepts(NDATA, DATA)
    assert not accepts(NDATA, b"\xff" + DATA)


def test_without_births_names_are_read_and_aliases_are_not() -> None:
    extractor = Extractor(["temp"])
    common = {"qos": 0, "retain": False, "client": "edge"}
    named = payload(metric("temp", DOUBLE, 31.5))
    assert extractor.extract(named, topic=NDATA, **common) == {"temp": 31.5}  # type: ignore[arg-type]
    assert extractor.extract(DATA, topic=NDATA, **common) == {}  # type: ignore[arg-type]
    assert extractor.extract(named, topic="plant/edge", **common) == {}  # type: ignore[arg-type]
    state = json.dumps({"temp": 1}).encode()
    assert extractor.extract(state, topic="spBv1.0/STATE/host", **common) == {"temp": 1}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic", "protobuf"),
    [
        (NDATA, True),
        (DDATA, True),
        ("spBv1.0/plant/NCMD/edge", True),
        ("spBv1.0/STATE/host", False),
        ("spBv1.0/plant/STATE/host", False),
        ("spBv1.0/plant/NDATA", False),
        ("spAv1.0/plant/NDATA/edge", False),
    ],
)
def test_topics(topic: str, protobuf: bool) -> None:
    assert is_sparkplug(topic) is protobuf
    assert not protobuf or tells(topic) is (topic in (NBIRTH, NDEATH, DBIRTH, DDEATH))


def test_what_is_remembered_is_bounded() -> None:
    births = Births()
    for number in range(NODES_MAX + 5):
        births.tree(f"spBv1.0/plant/NBIRTH/edge-{number}", BIRTH)
    assert births.forgotten == 5
    assert births.tree("spBv1.0/plant/NDATA/edge-4", DATA) == {}
    assert births.tree(f"spBv1.0/plant/NDATA/edge-{NODES_MAX}", DATA)["temp"] == 31.5
    many = Births()
    each = [metric(f"m{number}", DOUBLE, 0.0, number) for number in range(1_000)]
    for number in range(METRICS_MAX // 1_000 + 1):
        many.tree(f"spBv1.0/plant/NBIRTH/edge-{number}", payload(*each))
    assert len(many) <= METRICS_MAX
    assert many.forgotten == 1


def test_births_without_metrics_and_with_endless_names_are_not_remembered() -> None:
    births = Births()
    births.tree(NBIRTH, payload(metric("rpm", UINT32, 5, 9)))
    before = sys.getsizeof(births._nodes["plant/edge"])
    for number in range(200):
        births.tree(f"{DBIRTH}-{number}", payload())
        births.tree(f"{DBIRTH}-{number}-{'x' * NAME_CHARACTERS_MAX}", BIRTH)
    assert len(births) == 1
    assert sys.getsizeof(births._nodes["plant/edge"]) == before
    births.tree(DBIRTH, BIRTH)
    births.tree(DBIRTH, payload())
    assert births.tree(DDATA, DATA) == {}, "born again it has no metrics"


def test_no_device_is_asked_for_each_alias_of_a_message() -> None:
    asked = 0

    class Said(dict[int | str, tuple[str, int]]):
        def __contains__(self, key: object) -> bool:
            nonlocal asked
            asked += 1
            return super().__contains__(key)

    births = Births()
    births._nodes["plant/edge"] = {f"press-{number}": Said({number: (f"m{number}", UINT32)}) for number in range(20)}
    births._nodes["plant/edge"]["late"] = Said({3: ("later", UINT32)})
    many = payload(*(metric(alias=number, value=number) for number in range(3, 100)))
    assert births.tree(NDATA, many) == {f"m{number}": number for number in range(3, 20)}
    assert asked == 0


@pytest.mark.parametrize("broken", [b"\x12", bytes(300_000)], ids=["broken", "too large"])
@pytest.mark.parametrize(
    ("topic", "node_stays"), [(NBIRTH, False), (NDEATH, False), (DBIRTH, True), (DDEATH, True), (DDATA, None)]
)
def test_births_and_deaths_that_cannot_be_read_leave_nothing_of_before(
    topic: str, node_stays: bool | None, broken: bytes
) -> None:
    births = Births()
    births.tree(NBIRTH, payload(metric("rpm", UINT32, 5, 9)))
    births.tree(DBIRTH, BIRTH)
    assert births.tree(topic, broken) is NOTHING
    assert births.tree(DDATA, DATA) == ({"temp": 31.5, "Outputs/level": -7} if node_stays is None else {})
    assert births.tree(NDATA, payload(metric(alias=9, value=6))) == ({} if node_stays is False else {"rpm": 6})


@pytest.mark.parametrize(
    "broken",
    [
        b"\x12",
        b"\x12\x05\x0a",
        b"\x0b",
        b"\x12\x03\x0a\x01\xff",
        b"\xff" * 11,
        b"\x02\x01\x00",
        b"\x12\x02\x0a\x7f",
        b'{"temp": 1}',
        bytes(300_000),
    ],
)
def test_what_is_no_payload_has_no_attributes(broken: bytes) -> None:
    with pytest.raises(PayloadBroken):
        metrics_of(broken)
    assert Births().tree(NBIRTH, broken) is NOTHING


@settings(max_examples=200)
@given(st.binary(max_size=60) | st.lists(st.sampled_from([BIRTH, DATA, b"\x12", b"\x00", b"\x80"])).map(b"".join))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    births = Births()
    for topic in (NBIRTH, DDATA, NDATA, DDEATH, NDEATH):
        found = births.tree(topic, data)
        assert found is NOTHING or all(type(name) is str for name in found)
    assert len(births) == 0
