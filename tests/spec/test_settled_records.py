"""SETTLED records that name missing copies: the copies that exist are removed, and no others."""

from __future__ import annotations

from random import Random

import pytest

from edgebridge.session.journal.deliveries import MISSES_MAX, PAGE, HeldNumbers
from edgebridge.session.journal.session_records import MESSAGE, ONE, ONE_COPY, ROW, SESSION, SessionRecordKind
from edgebridge.session.journal.state import JournalState
from edgebridge.wire.fields import write_text

COPIES = 3_000


def begun(session: int) -> bytes:
    return SESSION.pack(SessionRecordKind.SESSION, session, 3_600, 0) + write_text(str(session)) + write_text("")


def message(session: int, copies: list[int]) -> bytes:
    head = MESSAGE.pack(SessionRecordKind.MESSAGE, 1, 1, len(copies))
    said = b"".join(ONE_COPY.pack(session, copy, 1) for copy in copies)
    return head + said + write_text("publisher") + write_text("t") + b"warm"


def settled(*rows: tuple[int, int, int]) -> bytes:
    return bytes((SessionRecordKind.SETTLED,)) + b"".join(ROW.pack(*row) for row in rows)


def test_numbers_are_taken_by_ranges_in_their_order(chance: Random) -> None:
    held = chance.sample(range(5 * PAGE), 2_000)
    numbers, left = HeldNumbers(held[:1_000]), set(held[:1_000])
    for number in held[1_000:]:
        numbers.add(number)
        left.add(number)
        first, count = chance.randrange(5 * PAGE), chance.choice((0, 1, 2, 255, 2 * PAGE))
        taken = numbers.remove_range(first, count)
        assert taken == sorted(number for number in left if first <= number < first + count)
        left.difference_update(taken)
    assert numbers.remove_range(0, 5 * PAGE) == sorted(left)
    assert numbers.remove_range(0, 5 * PAGE) == []


@pytest.mark.parametrize("misses", [0, MISSES_MAX])
def test_what_is_settled_goes_however_many_were_missed_before(misses: int, chance: Random) -> None:
    """Also copies that are said, that move and that end with their session in between."""
    stored = JournalState()
    stored.apply_row(1, [begun(1), begun(2), message(1, [9]), settled(*[(1, 5_000, 255)] * (misses // 255 + 1))])
    left: dict[int, set[int]] = {1: {9}, 2: set()}
    for lsn in range(10, 400):
        session = chance.choice((1, 2))
        copies = chance.sample(range(COPIES), chance.randrange(8))
        rows = [(chance.choice((1, 2)), chance.randrange(COPIES), chance.choice((1, 3, 255))) for _ in range(2)]
        stored.apply_row(lsn, [message(session, copies), settled(*rows)])
        left[session].update(copies)
        for of, first, count in rows:
            left[of].difference_update(range(first, first + count))
        if lsn == 200:
            stored.apply_row(lsn, [ONE.pack(SessionRecordKind.ENDED, 2), begun(2)])
            left[2].clear()
    stored.finish()
    assert {number: set(session.copies) for number, session in stored.sessions.items()} == left
    assert stored.invalid == 0


def test_half_a_message_does_not_spoil_what_is_said_of_it_again() -> None:
    """Its copies were of a session that was said later."""
    whole = MESSAGE.pack(SessionRecordKind.MESSAGE, 1 | 0x08, 1, 1) + (7).to_bytes(8) + message(1, [4])[MESSAGE.size :]
    stored = JournalState()
    stored.apply_row(1, [whole[: MESSAGE.size + 8 + ONE_COPY.size - 1], begun(1), whole])
    stored.finish()
    assert [copy.message.publication.payload for copy in stored.sessions[1].copies.values()] == [b"warm"]
    assert stored.invalid == 1
