"""Journal records of one transaction count all together or not at all."""

from __future__ import annotations

from edgebridge.frontend.journal.transactions import PendingTransactions
from edgebridge.session.journal.session_records import SessionRecordKind
from edgebridge.session.journal.state import TransactionBuffer

TOGETHER, WHOLE, UNDONE = (
    bytes((SessionRecordKind.TOGETHER,)),
    bytes((SessionRecordKind.WHOLE,)),
    bytes((SessionRecordKind.UNDONE,)),
)


def read(*records: tuple[int, bytes]) -> tuple[list[int], bool]:
    """The numbers of those that count, and whether the last group is open."""
    taken: list[int] = []
    grouped = TransactionBuffer(lambda lsn, record: taken.append(lsn))
    for lsn, record in records:
        grouped.append(lsn, record)
    return taken, grouped.is_open


def test_a_whole_group_counts() -> None:
    assert read((1, b"a"), (2, TOGETHER), (3, b"b"), (4, b"c"), (5, WHOLE), (6, b"d")) == ([1, 3, 4, 6], False)


def test_a_group_without_end_does_not_count() -> None:
    assert read((1, b"a"), (2, TOGETHER), (3, b"b")) == ([1], True)


def test_what_follows_an_undone_group_counts() -> None:
    assert read((1, TOGETHER), (2, b"a"), (3, UNDONE), (4, b"b")) == ([4], False)


def test_a_group_whose_end_is_damaged_counts_with_what_is_left() -> None:
    assert read((1, TOGETHER), (2, b"a"), (4, b"b")) == ([2, 4], False)


def test_an_empty_record_is_one_like_others() -> None:
    assert read((1, b""), (2, TOGETHER), (3, b""), (4, WHOLE)) == ([1, 3], False)


def test_what_is_on_disk_does_not_reach_into_a_group() -> None:
    groups = PendingTransactions()
    groups.begin(3)
    groups.commit(6)
    groups.begin(8)
    groups.commit(9)
    assert [groups.durable_lsn(synced) for synced in (2, 3, 5, 6, 7, 8, 9, 12)] == [2, 2, 2, 6, 7, 7, 9, 12]
