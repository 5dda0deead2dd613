"""What a block of a delivery log may hold (docs/edl.md): the most is read, one more is refused before it is built."""

from __future__ import annotations

import cbor2
import pytest

from edgebroker.limits import KIB
from edgebroker.records import DELIVERY, Fate
from edgebroker.storage.deliverylog import format as edl
from edgebroker.storage.deliverylog.reader import iter_blocks
from edgebroker.storage.deliverylog.writer import BLOCK_ROWS, DeliveryLog

TABLE = edl.TABLE_NUMBERS[DELIVERY.name]


def is_read(content: object, rows: int, table: int = TABLE) -> bool:
    """Whether a block around *content* is taken."""
    data = edl.encode_header(edl.Header("n", "b")) + edl.frame(table, 0, rows, cbor2.dumps(content), 0, 0)
    return any(getattr(item, "head", None) is not None for item in iter_blocks(data))


def topics(count: int, rows: int) -> dict[str, object]:
    return {"topic": [[str(number) for number in range(count)], bytes(2 * rows)]}


@pytest.mark.parametrize(
    ("content", "rows", "taken"),
    [
        ({}, edl.ROWS_MAX, True),
        ({}, edl.ROWS_MAX + 1, False),
        (topics(edl.ENTRIES_MAX, edl.ROWS_MAX), edl.ROWS_MAX, True),
        (topics(edl.ENTRIES_MAX + edl.VALUES_MAX, edl.ROWS_MAX), edl.ROWS_MAX, False),
        ({"x": [0] * 1_000}, 1, True),
        ({"x": [0] * 1_100}, 1, False),
        ({"x": [[]] * 100}, 1, True),
        ({"x": [[]] * 300}, 1, False),
        ({"x": {"tags": cbor2.CBORTag(7, [1.5, None, True])}}, 1, True),
        ({"x": bytes(edl.UNFOLDED_BYTES_MAX - 100)}, 1, True),
        ({"x": bytes(edl.UNFOLDED_BYTES_MAX + 100)}, 1, False),
    ],
    ids=range(11),
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
