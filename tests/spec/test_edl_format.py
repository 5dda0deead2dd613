"""docs/edl.md: its test vectors, decoded by a decoder of its own that shares no code with the product."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import cbor2
import pytest

from edgebroker.log_schema import TABLES, Cause, Column, ColumnType, Fate, TraceParent
from edgebroker.log_schema import MessageOrigin as Origin
from edgebroker.storage.deliverylog import columns
from edgebroker.storage.deliverylog.format import (
    FOOTER,
    LogHeader,
    decode_footer,
    decode_head,
    encode_footer,
    encode_header,
    frame,
)
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog

DOC = (Path(__file__).parents[2] / "docs" / "edl.md").read_text(encoding="utf-8")
VECTORS = {name: bytes.fromhex(text) for name, text in re.findall(r"```hex (\w+)\n(.*?)```", DOC, re.DOTALL)}
COLUMNS = re.findall(r"^\| ([\w-]+) \| (INT|INT delta|TEXT) \| `(.*?)` \| `([0-9a-f]+)` \|$", DOC, re.MULTILINE)
TRACE = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
EVENT = (3 << 22 | 1, 41)
HEADER = LogHeader("gw", "b1", 10, 5_000_000, 1_700_000_000_000_000, "edgebroker 0.1.0")


def distances(planes: bytes, count: int) -> list[int]:
    """The numbers in *planes*, as docs/edl.md says it."""
    width = len(planes) // count if count else 0
    return [sum(planes[plane * count + row] << 8 * plane for plane in range(width)) for row in range(count)]


def plain_column(encoded: list[Any], rows: int) -> list[Any]:
    """One column, decoded the slow way."""
    if isinstance(encoded[0], list):
        return [encoded[0][number] for number in distances(encoded[1], rows)]
    if len(encoded) == 2:
        return [encoded[0] + distance for distance in distances(encoded[1], rows)]
    values = [encoded[0]]
    for distance in distances(encoded[2], rows - 1):
        values.append(values[-1] + encoded[1] + distance)
    return values


def plain_file(data: bytes) -> tuple[dict[str, Any], list[tuple[int, int, dict[str, Any]]]]:
    """Header map and (table, offset, column name -> column or footer's map) of every block; asserts each checksum."""
    assert data[:12] == b"\x89EDL\r\n\x1a\n\x01\x00\x00\x00"
    (length,) = struct.unpack_from("<I", data, 12)
    header = cbor2.loads(data[16 : 16 + length])
    assert struct.unpack_from("<I", data, 16 + length) == (zlib.crc32(data[: 16 + length]),)
    offset, blocks = 16 + length + 4, []
    while True:
        mark, table, zeros, _, rows, raw, size, _, _, body_crc, head_crc = struct.unpack_from(
            "<4sB3sIIIIqqII", data, offset
        )
        body = data[offset + 48 : offset + 48 + size]
        assert (mark, zeros) == (b"EDLB", bytes(3))
        assert (body_crc, head_crc) == (zlib.crc32(body), zlib.crc32(data[offset : offset + 44]))
        unfolded = zlib.decompress(body)
        assert len(unfolded) == raw
        content = cbor2.loads(unfolded)
        if table == 255:
            blocks.append((table, offset, content))
            break
        blocks.append((table, offset, {name: plain_column(column, rows) for name, column in content.items()}))
        offset += 48 + size
    assert data[offset + 48 + size :] == struct.pack("<QI4s", offset, zlib.crc32(struct.pack("<Q", offset)), b"EDL$")
    return header, blocks


def written() -> bytes:
    """The file of the last vector, written by the product."""
    log = DeliveryLog("gw", "b1", sample_qos0=10)
    log.anchor(5_000_000, 1_700_000_000_000_000)
    log.published(5_000_100, "probe", 300, 2, "a/b", 1, 31, 1, origin=Origin.WILL)
    log.matched(5_000_100, "probe", "view", 300, 2, 1, Origin.WILL)
    log.fate(
        5_001_400,
        "probe",
        "view",
        300,
        1,
        "a/b",
        "a/#",
        1,
        Fate.DELIVERED,
        Cause.NONE,
        1_300,
        31,
        origin=Origin.WILL,
    )
    log.fate(
        5_002_000,
        "probe",
        "view",
        301,
        1,
        "a/b",
        "a/#",
        1,
        Fate.DROPPED,
        Cause.REFUSED,
        1_900,
        31,
        origin=Origin.WILL,
    )
    log.filtered(5_002_500, "probe", 302, 1, "c", 0, Cause.NO_SUBSCRIBER, 8)
    log.published(5_003_000, "probe", 303, 1, "a/b", 0, 31, 1, TRACE, event=EVENT)
    log.matched(5_003_000, "probe", "view", 303, 1, 0)
    log.fate(5_003_200, "probe", "view", 303, 1, "a/b", "a/#", 0, Fate.DELIVERED, Cause.NONE, 200, 31, TRACE)
    log.selectivity(5_000_100, "view", "a/#", 3, 3)
    data, index = encode_header(HEADER), []
    for block in log.take(5_100_000, closing=True):
        head = decode_head(block, 0)
        assert head is not None
        index.append((len(data), head))
        data += block
    return data + encode_footer(HEADER, index, len(data), final=True)


def test_the_page_has_all_vectors() -> None:
    assert set(VECTORS) == {"header", "delivery", "footer", "file"}
    assert len(COLUMNS) == 7


@pytest.mark.parametrize(("name", "kind", "values", "encoded"), COLUMNS)
def test_columns_are_written_and_read_as_on_the_page(name: str, kind: str, values: str, encoded: str) -> None:
    expected = json.loads(values)
    column = Column(name, ColumnType.TEXT if kind == "TEXT" else ColumnType.INT, delta=kind.endswith("delta"))
    assert cbor2.dumps(columns.encode(column, expected)).hex() == encoded
    assert columns.decode(column, cbor2.loads(bytes.fromhex(encoded)), len(expected)) == expected
    assert plain_column(cbor2.loads(bytes.fromhex(encoded)), len(expected)) == expected


def test_the_file_header_is_byte_exact() -> None:
    assert encode_header(HEADER) == VECTORS["header"]
    assert VECTORS["file"].startswith(VECTORS["header"])


def test_the_file_on_the_page_reads_as_told() -> None:
    header, blocks = plain_file(VECTORS["file"])
    assert header == {
        "node": "gw",
        "boot": "b1",
        "sample_qos0": 10,
        "t_us": 5_000_000,
        "unix_us": 1_700_000_000_000_000,
        "product": "edgebroker 0.1.0",
    }
    assert [table for table, _, _ in blocks] == [3, 0, 1, 2, 255]
    segment = read_segment(VECTORS["file"])
    assert segment.damage == []
    assert segment.header == HEADER
    assert segment.final
    for table, _, content in blocks[:-1]:
        assert segment.tables[TABLES[table].name] == content
    assert segment.tables["delivery"] == {
        "t_us": [5_000_100, 5_000_100, 5_003_000, 5_001_400, 5_002_000, 5_003_200],
        "message": [300, 301, 303, 300, 301, 303],
        "publisher": ["probe"] * 6,
        "subscriber": ["", "", "", "view", "view", "view"],
        "topic": ["a/b"] * 6,
        "filter": ["", "", "", "a/#", "a/#", "a/#"],
        "qos": [1, 1, 0, 1, 1, 0],
        "fate": [Fate.PUBLISHED] * 3 + [Fate.DELIVERED, Fate.DROPPED, Fate.DELIVERED],
        "cause": [0, 0, 0, 0, Cause.REFUSED, 0],
        "wait_us": [0, 0, 0, 1_300, 1_900, 200],
        "payload_bytes": [31] * 6,
        "copies": [1, 1, 1, 0, 0, 0],
        "trace_id": ["", "", TRACE.trace_id] * 2,
        "parent_id": ["", "", TRACE.parent_id] * 2,
        "event_publisher": [0, 0, EVENT[0], 0, 0, 0],
        "event_sequence": [0, 0, EVENT[1], 0, 0, 0],
        "origin": [Origin.WILL, Origin.WILL, 0] * 2,
    }


def test_a_file_from_before_there_were_traces_and_events_reads_as_one_without() -> None:
    _, blocks = plain_file(written())
    table, offset, _ = blocks[1]
    data = written()
    head = decode_head(data, offset)
    assert head is not None
    body = cbor2.loads(zlib.decompress(data[offset + 48 : offset + 48 + head.body_bytes]))
    for name in ("trace_id", "parent_id", "event_publisher", "event_sequence", "origin"):
        del body[name]
    older = frame(table, head.sequence, head.rows, cbor2.dumps(body), head.t_first_us, head.t_last_us)
    segment = read_segment(encode_header(HEADER) + older, growing=True)
    assert segment.damage == []
    none, zero = [""] * head.rows, [0] * head.rows
    whole = read_segment(data).tables["delivery"]
    without = {"trace_id": none, "parent_id": none, "event_publisher": zero, "event_sequence": zero}
    without["origin"] = zero
    assert segment.tables["delivery"] == {**whole, **without}


def test_the_product_writes_that_file_up_to_the_choices_of_zlib() -> None:
    ours, theirs = plain_file(written()), plain_file(VECTORS["file"])
    assert ours[0] == theirs[0]
    assert [(table, content) for table, _, content in ours[1][:-1]] == [
        (table, content) for table, _, content in theirs[1][:-1]
    ]


def test_the_delivery_body_is_byte_exact_when_unfolded() -> None:
    _, blocks = plain_file(written())
    offset = blocks[1][1]
    data = written()
    (size,) = struct.unpack_from("<I", data, offset + 20)
    assert zlib.decompress(data[offset + 48 : offset + 48 + size]) == VECTORS["delivery"]


def test_the_footer_names_every_block_and_repeats_the_header() -> None:
    _, blocks = plain_file(VECTORS["file"])
    footer = decode_footer(VECTORS["file"])
    assert footer is not None
    assert footer.header == HEADER
    assert [(entry[0], entry[1]) for entry in footer.blocks] == [(offset, table) for table, offset, _ in blocks[:-1]]
    assert [list(entry) for entry in footer.blocks] == blocks[-1][2]["blocks"]
    assert footer.final
    assert cbor2.loads(VECTORS["footer"]) == blocks[-1][2]
    assert blocks[-1][2]["final"] is True


def test_only_the_word_true_makes_a_file_final() -> None:
    _, blocks = plain_file(VECTORS["file"])
    offset, content = blocks[-1][1:]
    trailer = VECTORS["file"][-16:]
    for word, final in ((True, True), (False, False), (1, False), ("true", False)):
        raw = cbor2.dumps(content | {"final": word})
        segment = read_segment(VECTORS["file"][:offset] + frame(FOOTER, 0, 4, raw, 0, 0) + trailer)
        assert (segment.final, segment.damage) == (final, [])
    assert (
        "final" not in plain_file(encode_header(HEADER) + encode_footer(HEADER, [], len(VECTORS["header"])))[1][-1][2]
    )
    assert not read_segment(VECTORS["file"], growing=True).final
    assert not read_segment(VECTORS["file"][:-1]).final
