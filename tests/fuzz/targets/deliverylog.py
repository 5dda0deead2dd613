"""Delivery logs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from random import Random

import cbor2

from edgebroker.errors import LogDamaged
from edgebroker.log_schema import DELIVERY, ColumnType, Fate, TraceParent
from edgebroker.storage.deliverylog import format as edl
from edgebroker.storage.deliverylog.reader import LogCorruption, iter_blocks, read_header, read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

TRACES = (None, TraceParent("4" * 32, "7" * 16), None, None)


def log_file() -> bytes:
    """A closed file with blocks of one row, one of them with a trace."""
    log = DeliveryLog("n", "b", block_rows=1)
    for number in range(4):
        log.fate(number, f"p{number}", "s", 10 + number, 1, "t", "t", 1, Fate.DELIVERED, 0, 5, 6, TRACES[number])
    header = edl.LogHeader("n", "b", 1, 0, 0)
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
        if isinstance(item, LogCorruption):
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
    data = edl.encode_header(edl.LogHeader("n", "b"))
    for sequence in range(chance.randrange(1, 4)):
        content = cbor2.dumps({chance.choice(names): column() for _ in range(chance.randrange(5))})
        data += edl.frame(chance.choice((0, 1, 2, 3, 4, 255)), sequence, chance.choice((1, 2, 3, 8_192)), content, 0, 9)
    return data


def bomb_log(content: bytes, rows: int = 1, table: int = 3) -> bytes:
    """A file of one block."""
    return edl.encode_header(edl.LogHeader("n", "b")) + edl.frame(table, 0, rows, content, 0, 0)


def full_rows(
    rows: int, texts: int, base: int = 1, planes: bytes = b"", more: bytes = b"", fits: bool = True, end: str = ""
) -> bytes:
    """The body of a block of deliveries with so many texts in each dictionary, and its columns filled while it *fits*.

    planes: those of each number; zeroes if there are none. more: `new_columns`. end: what each text ends with.
    """
    columns: dict[str, object] = {}
    numbers, names = (edl.NUMBERS_MAX // rows, edl.TEXTS_MAX // rows) if fits else (16, 16)
    for column in sorted(DELIVERY.columns, key=lambda column: not column.delta):
        if column.type is not ColumnType.INT:
            columns[column.name] = [
                [f"{number:03}{end}" for number in range(texts)],
                bytes(2 * rows) if names > 0 else b"",
            ]
            names -= 1
            continue
        if column.delta:
            columns[column.name] = [base, base, (planes or bytes(8 * rows))[: 8 * (rows - 1)]]
        else:
            columns[column.name] = [base, (planes or bytes(8 * rows)) if numbers > 0 else b""]
        numbers -= 1
    content = cbor2.dumps(columns)
    return bytes([content[0] + more.count(b"\x64new")]) + content[1:] + more


def high(rows: int) -> bytes:
    """Planes of numbers of 64 bits, which leave them when anything is added."""
    return bytes(7 * rows) + b"\xff" * rows


def wide_text(size: int) -> bytes:
    """A text that takes four bytes for each of its bytes but three, because of its last character."""
    return b"\x7a" + size.to_bytes(4) + b"a" * (size - 4) + "\N{GRINNING FACE}".encode()


def new_columns(*contents: bytes) -> bytes:
    """Columns that nobody knows."""
    return b"".join(b"\x64new%d" % number + content for number, content in enumerate(contents))


def listed(pieces: int, piece: bytes) -> bytes:
    """A list of *pieces*."""
    return b"\x99" + pieces.to_bytes(2) + piece * pieces


def with_footer(content: bytes, size: int = 0) -> bytes:
    """A file of any footer behind bytes that are no block, of about *size* bytes in all."""
    header = edl.encode_header(edl.LogHeader("n", "b"))
    header += bytes(max(0, size - len(header) - len(zlib.compress(content)) - edl.BLOCK_HEAD_BYTES - edl.TRAILER.size))
    where = len(header).to_bytes(8, "little")
    trailer = edl.TRAILER.pack(len(header), zlib.crc32(where), edl.END_MARK)
    return header + edl.frame(edl.FOOTER, 0, 1, content, 0, 0) + trailer


MOST = edl.UNFOLDED_BYTES_MAX - 100
WIDEST = 2**64 - 1
TEXTS, TEXTS_LESS = 2_048, 680  # in each dictionary: as many as 4,096 rows may have, and 8,192

LOG_BOMBS = {
    "marks": lambda: filled(edl.BLOCK_MARK, log_file()[:100]),
    "marks of heads that may be": lambda: filled(edl.BLOCK_MARK + bytes(20), log_file()[:100]),
    "marks with one row": lambda: filled(edl.BLOCK_MARK + bytes(8) + b"\1" + bytes(11), log_file()[:100]),
    "heads that promise blocks": lambda: (
        edl.encode_header(edl.LogHeader("n", "b"))
        + filled(edl.frame(3, 0, 1, b"\xa0", 0, 0)[: edl.BLOCK_HEAD_BYTES], size=BOMB_BYTES - 100)
    ),
    "blocks of one row": lambda: filled(edl.frame(3, 0, 1, b"\xa0", 0, 0), edl.encode_header(edl.LogHeader("n", "b"))),
    "defaults of 8,192 rows": lambda: bomb_log(b"\xa0", edl.ROWS_MAX, 0),
    "blocks of 8,192 rows": lambda: (
        edl.encode_header(edl.LogHeader("n", "b"))
        + b"".join(edl.frame(0, n, edl.ROWS_MAX, b"\xa0", 0, 0) for n in range(40))
    ),
    "an array of 8 MiB": lambda: bomb_log(b"\x9f" + b"\x01" * (8 * 2**20 - 2) + b"\xff"),
    "arrays in arrays": lambda: bomb_log(b"\x81" * 65_000 + b"\x01"),
    "a map with many names": lambda: bomb_log(b"\xbf" + b"".join(b"\x64%04x\0" % n for n in range(65_000)) + b"\xff"),
    "shared references": lambda: bomb_log(filled(b"\xd8\x1c\x80\xd8\x1d\x00", b"\x9f", b"\xff")),
    "zeroes": lambda: bomb_log(bytes(8 * 2**20)),
    "an array as long as there may be": lambda: bomb_log(b"\x9a" + MOST.to_bytes(4) + b"\x01" * MOST),
    "zeroes as many as there may be": lambda: bomb_log(b"\xa1\x61x\x5a" + MOST.to_bytes(4) + bytes(MOST)),
    "wide numbers in 8,192 rows": lambda: bomb_log(full_rows(8_192, 1), 8_192, 0),
    "more of them than may be": lambda: bomb_log(full_rows(8_192, 600, WIDEST, high(8_192), fits=False), 8_192, 0),
    "numbers beyond 64 bits in 8,192 rows": lambda: bomb_log(
        full_rows(8_192, TEXTS_LESS, WIDEST, high(8_192)), 8_192, 0
    ),
    "numbers beyond 64 bits in 4,096 rows": lambda: bomb_log(full_rows(4_096, TEXTS, WIDEST, high(4_096)), 4_096, 0),
    "negative numbers beyond 64 bits": lambda: bomb_log(full_rows(8_192, TEXTS_LESS, -WIDEST, high(8_192)), 8_192, 0),
    "texts in 8,192 rows": lambda: bomb_log(full_rows(8_192, TEXTS_LESS), 8_192, 0),
    "a wide text of 3.4 MiB": lambda: bomb_log(b"\xa1\x61x" + wide_text(3_565_158)),
    "a wide text of 2.1 MiB": lambda: bomb_log(b"\xa1\x61x" + wide_text(MOST)),
    "a wide key": lambda: bomb_log(b"\xa1" + wide_text(MOST) + b"\0"),
    "a wide text in the footer": lambda: with_footer(b"\xa1\x61x" + wide_text(MOST)),
    "wide texts in lists": lambda: bomb_log(b"\xa1\x61x" + listed(5, wide_text(edl.TEXT_BYTES_MAX)) + b""),
    "wide texts of 65,535 bytes": lambda: bomb_log(b"\xa1\x61x" + listed(33, b"\x79" + wide_text(65_535)[3:])),
    "wide texts of 255 bytes": lambda: bomb_log(b"\xa1\x61x" + listed(8_000, b"\x78" + wide_text(255)[4:]), 4_096),
    "wide texts in the footer": lambda: with_footer(b"\xa1\x61x" + listed(20, wide_text(edl.TEXT_BYTES_MAX))),
    "wide texts, zeroes and numbers": lambda: bomb_log(
        full_rows(
            8_192,
            500,
            WIDEST,
            high(8_192),
            new_columns(listed(4, wide_text(120_000)), b"\x5a" + (100_000).to_bytes(4) + bytes(100_000)),
        ),
        8_192,
        0,
    ),
    "wide texts, and zeroes to the brim": lambda: bomb_log(
        b"\xa3"
        + new_columns(
            listed(4, wide_text(100_000)),
            listed(12_000, b"\x74" + b"a" * 16 + "\N{GRINNING FACE}".encode()),
            b"\x5a" + (420_000).to_bytes(4) + bytes(420_000),
        ),
        4_096,
    ),
    "numbers beyond 64 bits, zeroes and wide texts": lambda: bomb_log(
        full_rows(
            4_096,
            TEXTS,
            WIDEST,
            high(4_096),
            new_columns(listed(4, wide_text(120_000)), b"\x5a" + (120_000).to_bytes(4) + bytes(120_000)),
        ),
        4_096,
        0,
    ),
    "numbers beyond 64 bits, and wide texts to the brim": lambda: bomb_log(
        full_rows(4_096, TEXTS, WIDEST, high(4_096), end="\N{GRINNING FACE}" * 34), 4_096, 0
    ),
    "a footer of as many numbers as there may be": lambda: with_footer(
        b"\xa1\x66blocks" + listed(20_000, b"\x01"), BOMB_BYTES
    ),
    "texts of 24 letters": lambda: bomb_log(b"\xa1\x61x" + listed(13_200, b"\x78\x18" + b"a" * 24), 4_096),
    "texts with lengths in eight bytes": lambda: bomb_log(b"\xa1\x61x" + listed(6_600, b"\x7b" + bytes(8)), 4_096),
    "numbers of eight bytes": lambda: bomb_log(b"\xa1\x61x" + listed(6_600, b"\x1b" + b"\xff" * 8), 4_096),
    "floats": lambda: bomb_log(b"\xa1\x61x" + listed(6_600, b"\xfb" + b"\x3f" * 8), 4_096),
    "byte strings of no bytes": lambda: bomb_log(b"\xa1\x61x" + listed(6_600, b"\x5b" + bytes(8)), 4_096),
    "a map of small texts": lambda: bomb_log(
        b"\xb9"
        + (3_300).to_bytes(2)
        + b"".join(b"\x7b" + (4).to_bytes(8) + b"%04d\x7b" % n + bytes(8) for n in range(3_300)),
        4_096,
    ),
    "a footer of wide numbers": lambda: with_footer(
        b"\xa1\x66blocks" + listed(1_160, b"\x86" + (b"\x1b" + b"\xff" * 8) * 6), BOMB_BYTES
    ),
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
