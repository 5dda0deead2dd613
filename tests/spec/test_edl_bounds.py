"""What a block of a delivery log may hold (docs/edl.md): the most is read, one more is refused before it is built."""

from __future__ import annotations

import cbor2
import pytest

from edgebroker.limits import KIB
from edgebroker.log_schema import ANCHOR, DELIVERY, DIGEST, FILTER, TRAFFIC, ColumnType, Fate, Table, TraceParent
from edgebroker.storage.deliverylog import format as edl
from edgebroker.storage.deliverylog.block_builder import make_block, make_columns
from edgebroker.storage.deliverylog.reader import Block, iter_blocks, read_segment
from edgebroker.storage.deliverylog.writer import BLOCK_ROWS, DeliveryLog

TABLE = edl.TABLE_NUMBERS[DELIVERY.name]
WIDE = "\N{GRINNING FACE}"


def is_read(content: object, rows: int, table: int = TABLE) -> bool:
    """Whether a block around *content* is taken."""
    data = edl.encode_header(edl.LogHeader("n", "b")) + edl.frame(table, 0, rows, cbor2.dumps(content), 0, 0)
    return any(getattr(item, "head", None) is not None for item in iter_blocks(data))


def topics(count: int, rows: int) -> dict[str, object]:
    return {"topic": [[str(number) for number in range(count)], bytes(2 * rows)]}


def texts(columns: int, rows: int) -> dict[str, object]:
    """A block with so many columns of texts that are not constant."""
    names = [column.name for column in DELIVERY.columns if column.type is ColumnType.TEXT]
    return {name: [["a", "b"], bytes(rows - 1) + b"\1"] for name in names[:columns]}


def numbers(columns: int, rows: int) -> dict[str, object]:
    """A block with so many columns of numbers that are not constant; all others are."""
    names = [column.name for column in DELIVERY.columns if column.type is ColumnType.INT and not column.delta]
    deltas = {column.name: [0, 0, b""] for column in DELIVERY.columns if column.delta}
    return deltas | {
        name: [2**63 - 256, bytes(rows - 1) + b"\1" if number < columns - 2 else b""]
        for number, name in enumerate(names)
    }


@pytest.mark.parametrize(
    ("content", "rows", "taken"),
    [
        ({}, edl.ROWS_MAX, True),
        ({}, edl.ROWS_MAX + 1, False),
        (topics(edl.ENTRIES_MAX, edl.ROWS_OURS), edl.ROWS_OURS, True),
        (topics(edl.ENTRIES_MAX + edl.VALUES_MAX, edl.ROWS_OURS), edl.ROWS_OURS, False),
        (topics(4_096, edl.ROWS_MAX), edl.ROWS_MAX, True),
        (topics(4_096 + edl.VALUES_MAX, edl.ROWS_MAX), edl.ROWS_MAX, False),
        (numbers(5, edl.ROWS_MAX), edl.ROWS_MAX, True),
        (numbers(6, edl.ROWS_MAX), edl.ROWS_MAX, False),
        (numbers(10, edl.ROWS_OURS), edl.ROWS_OURS, True),
        (texts(3, edl.ROWS_MAX), edl.ROWS_MAX, True),
        (texts(4, edl.ROWS_MAX), edl.ROWS_MAX, False),
        (texts(6, edl.ROWS_OURS), edl.ROWS_OURS, True),
        ({"x": "x" * edl.TEXT_BYTES_MAX}, 1, True),
        ({"x": "x" * (edl.TEXT_BYTES_MAX + 1)}, 1, False),
        ({"x" * (edl.TEXT_BYTES_MAX + 1): 0}, 1, False),
        ({"x": ["x" * 65_000] * (edl.CHARACTERS_MAX // 65_000)}, 1, True),
        ({"x": ["x" * 65_000] * (edl.CHARACTERS_MAX // 65_000 + 1)}, 1, False),
        ({"x": ["x" * 250] * 3_000}, 1_000, False),
        ({"x": [WIDE * 1_000] * (edl.UNFOLDED_BYTES_MAX // 4_010)}, 1_000, True),
        ({"x": [WIDE * 1_000] * (edl.UNFOLDED_BYTES_MAX // 4_000 + 1)}, 1_000, False),
        ({"x": [0] * 1_000}, 1, True),
        ({"x": [0] * 1_100}, 1, False),
        ({"x": [[]] * 100}, 1, True),
        ({"x": [[]] * 300}, 1, False),
        ({"x": {"tags": cbor2.CBORTag(7, [1.5, None, True])}}, 1, True),
        ({"x": bytes(edl.PLANE_BYTES_MAX)}, 1, True),
        ({"x": bytes(edl.PLANE_BYTES_MAX // 2), "y": bytes(edl.PLANE_BYTES_MAX // 2 + 1)}, 1, False),
    ],
    ids=range(27),
)
def test_the_most_is_read_and_more_is_refused(content: object, rows: int, taken: bool) -> None:
    assert is_read(content, rows) is taken


def test_a_recording_may_unfold_to_any_multiple() -> None:
    head = edl.decode_head(edl.frame(edl.RECORDED, 0, 1, bytes(edl.UNFOLDED_BYTES_MAX + 1), 0, 0), 0)
    assert head is not None


def test_the_writer_stays_below_whatever_it_is_told() -> None:
    """The longest texts with the widest characters, all different, and the widest numbers."""
    log = DeliveryLog("n", "b")
    blocks = []
    wide = 2**62
    for number in range(2 * BLOCK_ROWS):
        name = f"{number:04}" + "\N{GRINNING FACE}" * 60
        fate = Fate.DELIVERED if number % 2 else Fate.DROPPED
        log.fate(
            number, name, f"s{name}", number % 2 * wide, 1, f"t{name}", f"f{name}", 1, fate, 0, number % 2 * wide, 7
        )
        blocks += log.take(0)
    blocks += log.take(0, closing=True)
    heads = [edl.decode_head(block, 0) for block in blocks]
    assert all(head is not None for head in heads)
    assert max(head.raw_bytes for head in heads if head is not None) > 500 * KIB


LOWEST, HIGHEST = -(2**63), 2**63 - 1


def rows_of(block: bytes, known: dict[int, Table]) -> list[tuple[object, ...]]:
    """The rows that are read of a file with that *block* alone."""
    found = list(iter_blocks(edl.encode_header(edl.LogHeader("n", "b")) + block, growing=True, known=known))
    assert [type(item) for item in found] == [Block], [str(item) for item in found]
    return [row for item in found if isinstance(item, Block) for row in zip(*item.columns.values(), strict=True)]


def made(table: Table, rows: list[tuple[object, ...]]) -> bytes:
    making = make_block(table, 0, make_columns(rows))
    while True:
        try:
            next(making)
        except StopIteration as end:
            block: bytes = end.value
            return block


@pytest.mark.parametrize("rows", [1, 2, 3, 255, BLOCK_ROWS, 4_095])
@pytest.mark.parametrize(
    "steps", [(LOWEST, HIGHEST), (HIGHEST, LOWEST), (LOWEST, -1, 0, 1, HIGHEST), (HIGHEST,)], ids=str
)
@pytest.mark.parametrize("table", [DELIVERY, DIGEST, FILTER, ANCHOR], ids=lambda table: table.name)
def test_numbers_of_64_bits_are_written_and_read(table: Table, steps: tuple[int, ...], rows: int) -> None:
    """Times stay where a block's head has room for them."""
    texts = ["", *(f"{number:x}" for number in range(2_047))]
    small = [(7 * number) ** 5 % 2**36 for number in range(rows)]
    told = [
        tuple(
            (small[row] if place == 0 else steps[(row + place) % len(steps)])
            if column.type is ColumnType.INT
            else texts[(row + place) % len(texts)]
            for place, column in enumerate(table.columns)
        )
        for row in range(rows)
    ]
    assert rows_of(made(table, told), edl.LOG_TABLES) == told


@pytest.mark.parametrize("first", [LOWEST, HIGHEST, 2**63, 2**64 - 1, -(2**64)])
@pytest.mark.parametrize("base", [0, 1, -1, LOWEST, HIGHEST, 2**64 - 1, -(2**64)])
@pytest.mark.parametrize("width", range(9))
def test_sums_are_modulo_2_to_the_64(first: int, base: int, width: int) -> None:
    """As docs/edl.md says it, reckoned one by one."""
    distances = [0, 2 ** (8 * width) - 1, 2 ** (8 * width) // 2]
    planes = b"".join(bytes(distance >> 8 * plane & 255 for distance in distances) for plane in range(width))
    added, sums = first, [first]
    for distance in distances:
        added += base + distance
        sums.append(added)
    expected = [(value + 2**63) % 2**64 - 2**63 for value in sums]
    content = {"t_us": [first, base, planes]}
    block = edl.frame(edl.TABLE_NUMBERS["anchor"], 0, 4, cbor2.dumps(content), 0, 0)
    assert [row[0] for row in rows_of(block, edl.LOG_TABLES)] == expected
    expected = [(base + distance + 2**63) % 2**64 - 2**63 for distance in distances]
    block = edl.frame(TABLE, 0, 3, cbor2.dumps({"qos": [base, planes]}), 0, 0)
    assert [row[6] for row in rows_of(block, edl.LOG_TABLES)] == expected


@pytest.mark.parametrize("letter", ["x", WIDE, "x" * 15 + WIDE])
@pytest.mark.parametrize("letters", [1, 5, 16, 64, 300, 16_383])
def test_texts_as_long_as_they_may_be_are_written_and_read(letter: str, letters: int) -> None:
    """All different, as many as the writer lets wait; then a run of the longest that there are, to the brim."""
    log = DeliveryLog("n", "b")
    blocks, told = [], []
    long = letter * (65_500 // len(letter.encode()))
    content = "$filter/" + "%C3%BC" * 4_000 + "/" + long
    for number in range(BLOCK_ROWS - 1):
        text = f"{number:03x}" + letter * (letters if number % 7 or letters > 300 else 1)
        text = text.encode()[:65_535].decode(errors="ignore")
        trace = TraceParent(f"{number:032x}", f"{number:016x}") if letters == 1 else None
        log.fate(number, f"p{text}"[:256], f"s{text}"[:256], HIGHEST - number % 2, 1, text, f"f{text}", 1,
                 Fate.DROPPED, 0, HIGHEST * (number % 2), HIGHEST * (number % 2), trace)  # fmt: skip
        told.append(text)
        if log.due:
            blocks += log.take(0)
        if sum(map(len, told)) > 900_000:
            break
    log.fate(
        0,
        "p" * 256,
        WIDE * 256,
        5,
        BLOCK_ROWS,
        long,
        content,
        1,
        Fate.DROPPED,
        0,
        1,
        2,
        TraceParent("4" * 32, "7" * 16),
    )
    log.selectivity(0, WIDE * 256, content, 1, 1)
    blocks += log.take(0, closing=True)
    segment = read_segment(log.header(0, 0) + b"".join(blocks), growing=True)
    assert segment.damage == []
    assert segment.tables["delivery"]["topic"] == told + [long] * BLOCK_ROWS
    assert segment.tables["filter"]["filter"] == [content]


def test_recordings_as_large_as_they_may_be_are_written_and_read() -> None:
    many = [
        (row, f"c{row}", f"t{row}", 1, 0, f"{row:0240}".encode(), b"\xa0" + bytes([row % 256, row // 256] * 30))
        for row in range(2_048)
    ]
    assert rows_of(made(TRAFFIC, many), edl.RECORDING_TABLES) == many
    one = [(1, "c" * 65_535, "t" * 65_535, 1, 0, bytes(6 * 2**20 - 2 * 65_535), b"")]
    assert rows_of(made(TRAFFIC, one), edl.RECORDING_TABLES) == one
    wide = [(row, "", f"{row}" + WIDE * 16_000, 1, 0, b"", b"") for row in range(32)]
    assert rows_of(made(TRAFFIC, wide), edl.RECORDING_TABLES) == wide
