"""Delivery logs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from random import Random

import cbor2

from edgebroker.errors import LogDamaged
from edgebroker.records import DELIVERY, ColumnType, Fate, Trace
from edgebroker.storage.deliverylog import format as edl
from edgebroker.storage.deliverylog.reader import Damage, iter_blocks, read_header, read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

TRACES = (None, Trace("4" * 32, "7" * 16), None, None)


def log_file() -> bytes:
    """A closed file with blocks of one row, one of them with a trace."""
    log = DeliveryLog("n", "b", block_rows=1)
    for number in range(4):
        log.fate(number, f"p{number}", "s", 10 + number, 1, "t", "t", 1, Fate.DELIVERED, 0, 5, 6, TRACES[number])
    header = edl.Header("n", "b", 1, 0, 0)
    data, index = edl.encode_header(header), []
    for block in [block for block in log.take(0) if block[4] == 0]:
        head = edl.decode_head(block, 0)
        assert head is not None
        index.append((len(data), head))
        data += block
    return data + edl.encode_footer(header, index, len(data))


def read_log(data: bytes) -> None:
    """Rows, and what is wrong. A file that is still being written has no more rows, and never the last word."""
    segment = read_segment(data)
    growing = read_segment(data, growing=True)
    assert not growing.final
    for name, columns in segment.tables.items():
        assert len({len(values) for values in columns.values()}) == 1
        assert growing.rows(name) <= segment.rows(name)
    assert all(str(damage) for damage in segment.damage)


def blocks_of(data: bytes) -> Iterator[None]:
    """Block by block, as commands and the analytics read: each holds one at a time."""
    yield
    read_header(data)
    for item in iter_blocks(data):
        if isinstance(item, Damage):
            str(item)
        del item
        yield


def sealed_log(data: bytes) -> bytes:
    """*data* with the checksums of all blocks as they should be; a body that is no stream becomes one."""
    found = bytearray(data)
    at = found.find(edl.BLOCK_MARK)
    while 0 <= at <= len(found) - edl.BLOCK_HEAD_BYTES:
        fields = list(edl.BLOCK_HEAD.unpack_from(found, at))
        size = min(fields[7], len(found) - at - edl.BLOCK_HEAD_BYTES)
        start = at + edl.BLOCK_HEAD_BYTES
        content = bytes(found[start : start + size])
        try:
            raw = zlib.decompressobj().decompress(content, 1 << 20)
        except zlib.error:
            raw = content
        body = zlib.compress(raw, 1)
        fields[6], fields[7], fields[10] = len(raw), len(body), zlib.crc32(body)
        head = edl.BLOCK_HEAD.pack(*fields)
        found[at : start + size] = head + edl.CRC.pack(zlib.crc32(head)) + body
        at = found.find(edl.BLOCK_MARK, start + len(body))
    return bytes(found)


def make_log(chance: Random) -> bytes:
    """Blocks whose checksums are right, with columns of anything."""

    def column() -> object:
        first = chance.choice((0, -5, 2**63, 1.5, "x", ["a", "b"], None, {}))
        planes = chance.randbytes(chance.choice((0, 1, 2, 3, 4, 8, 16, 24)))
        return chance.choice(
            ([first, planes], [first, 0, planes], [first, chance.randrange(-300, 300), planes], first, [])
        )

    names = (
        "t_us",
        "unix_us",
        "publisher",
        "subscriber",
        "message",
        "fate",
        "count",
        "sum",
        "xor",
        "minute",
        "topic",
        "trace_id",
    )
    data = edl.encode_header(edl.Header("n", "b"))
    for sequence in range(chance.randrange(1, 4)):
        content = cbor2.dumps({chance.choice(names): column() for _ in range(chance.randrange(5))})
        data += edl.frame(chance.choice((0, 1, 2, 3, 4, 255)), sequence, chance.choice((1, 2, 3, 8_192)), content, 0, 9)
    return data


def bomb_log(content: bytes, rows: int = 1, table: int = 3) -> bytes:
    """A file of one block."""
    return edl.encode_header(edl.Header("n", "b")) + edl.frame(table, 0, rows, content, 0, 0)


def full_rows(rows: int, texts: int) -> bytes:
    """The body of a block of deliveries whose numbers are as wide as can be, with so many texts in each dictionary."""
    columns: dict[str, object] = {}
    for column in DELIVERY.columns:
        if column.type is not ColumnType.INT:
            columns[column.name] = [[str(number) for number in range(texts)], bytes(2 * rows)]
        elif column.delta:
            columns[column.name] = [1, 1, bytes(8 * (rows - 1))]
        else:
            columns[column.name] = [1, bytes(8 * rows)]
    return cbor2.dumps(columns)


def with_footer(content: bytes) -> bytes:
    """A file of any footer and nothing else."""
    header = edl.encode_header(edl.Header("n", "b"))
    where = len(header).to_bytes(8, "little")
    trailer = edl.TRAILER.pack(len(header), zlib.crc32(where), edl.END_MARK)
    return header + edl.frame(edl.FOOTER, 0, 1, content, 0, 0) + trailer


LOG_BOMBS = {
    "marks": lambda: filled(edl.BLOCK_MARK, log_file()[:100]),
    "marks of heads that may be": lambda: filled(edl.BLOCK_MARK + bytes(20), log_file()[:100]),
    "marks with one row": lambda: filled(edl.BLOCK_MARK + bytes(8) + b"\1" + bytes(11), log_file()[:100]),
    "heads that promise blocks": lambda: (
        edl.encode_header(edl.Header("n", "b"))
        + filled(edl.frame(3, 0, 1, b"\xa0", 0, 0)[: edl.BLOCK_HEAD_BYTES], size=BOMB_BYTES - 100)
    ),
    "blocks of one row": lambda: filled(edl.frame(3, 0, 1, b"\xa0", 0, 0), edl.encode_header(edl.Header("n", "b"))),
    "defaults of 8,192 rows": lambda: bomb_log(b"\xa0", edl.ROWS_MAX, 0),
    "blocks of 8,192 rows": lambda: (
        edl.encode_header(edl.Header("n", "b"))
        + b"".join(edl.frame(0, n, edl.ROWS_MAX, b"\xa0", 0, 0) for n in range(40))
    ),
    "an array of 8 MiB": lambda: bomb_log(b"\x9f" + b"\x01" * (8 * 2**20 - 2) + b"\xff"),
    "arrays in arrays": lambda: bomb_log(b"\x81" * 65_000 + b"\x01"),
    "a map with many names": lambda: bomb_log(b"\xbf" + b"".join(b"\x64%04x\0" % n for n in range(65_000)) + b"\xff"),
    "shared references": lambda: bomb_log(filled(b"\xd8\x1c\x80\xd8\x1d\x00", b"\x9f", b"\xff")),
    "zeroes": lambda: bomb_log(bytes(8 * 2**20)),
    "an array of 3 MiB": lambda: bomb_log(b"\x9a" + (3 << 20).to_bytes(4) + b"\x01" * (3 << 20)),
    "zeroes of 3 MiB": lambda: bomb_log(b"\xa1\x61x\x5a" + (3 << 20).to_bytes(4) + bytes(3 << 20)),
    "wide numbers in 8,192 rows": lambda: bomb_log(full_rows(edl.ROWS_MAX, 1), edl.ROWS_MAX, 0),
    "texts in 8,192 rows": lambda: bomb_log(full_rows(edl.ROWS_MAX, 4_000), edl.ROWS_MAX, 0),
    "lists as many as there may be": lambda: bomb_log(
        cbor2.dumps({"x": [[]] * (edl.ENTRIES_MAX + 1_000)}), edl.ROWS_MAX, 0
    ),
    "a footer of small numbers": lambda: with_footer(cbor2.dumps({"blocks": [[0] * 6] * 400_000})),
}


TARGETS = (
    Target(
        "delivery-log",
        read_log,
        (log_file(),),
        (LogDamaged,),
        (edl.BLOCK_MARK, edl.END_MARK, edl.MAGIC, b"\x64t_us", b"\x80", b"\xa0"),
        make_log,
        sealed_log,
        bombs=LOG_BOMBS,
        steps=blocks_of,
    ),
)
