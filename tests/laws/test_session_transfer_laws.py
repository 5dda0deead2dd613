"""Laws of sessions that move: their messages and their journal records are read as they were written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgebridge.session.journal.dump import describe
from edgebridge.session.journal.session_records import SESSION, SessionRecordKind
from edgebridge.session.journal.state import JournalState
from edgebridge.session.journal.transfer_records import (
    StoredTransfer,
    TransferFlag,
    copy_event_record,
    departing_name,
    known_events_record,
    last_events_record,
    transfer_record,
)
from edgebridge.wire.fields import write_text
from edgebroker.federation.session_transfer import (
    PieceFlag,
    PieceItem,
    PieceReceipt,
    SessionClaim,
    SessionDenial,
    SessionPiece,
    SessionRelease,
    TransferKey,
    TransferMessage,
    encode_transfer,
    read_transfer,
)

U32 = st.integers(0, 2**32 - 1)
NAMES = st.text(max_size=20)
GATEWAYS = st.integers(0, 0xFFFF)
KEYS = st.builds(TransferKey, GATEWAYS, st.integers(0, 2**64 - 1), NAMES)
EVENTS = st.tuples(U32, U32)
ROWS = st.lists(EVENTS, max_size=4)
ITEMS = st.lists(st.builds(PieceItem, st.binary(max_size=20), EVENTS), max_size=4).map(tuple)
MESSAGES: st.SearchStrategy[TransferMessage] = st.one_of(
    st.builds(SessionClaim, KEYS, GATEWAYS, st.booleans(), NAMES),
    st.builds(SessionDenial, KEYS, GATEWAYS, st.booleans(), st.tuples(st.integers(0, 2**64 - 1), GATEWAYS)),
    st.builds(SessionPiece, KEYS, U32, st.sampled_from(PieceFlag) | st.just(PieceFlag(0)), ITEMS),
    st.builds(PieceReceipt, KEYS, U32),
    st.builds(SessionRelease, KEYS, st.booleans()),
)
MOVES = st.builds(
    StoredTransfer,
    st.sampled_from([TransferFlag(0), TransferFlag.READY, TransferFlag.DEPARTURE, TransferFlag.READY | 4]),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF),
    st.integers(0, 2**64 - 1),
    U32,
    st.just("alice"),
)
ALICE = SESSION.pack(SessionRecordKind.SESSION, 1, 3_600, 0) + write_text("alice") + write_text("anna")


@settings(max_examples=60)
@given(MESSAGES)
def test_messages_are_read_as_they_were_written(message: TransferMessage) -> None:
    assert read_transfer(encode_transfer(message)) == message


@settings(max_examples=40)
@given(MESSAGES, st.data())
def test_of_a_message_that_is_cut_nothing_is_read(message: TransferMessage, data: st.DataObject) -> None:
    """Only a claim may be cut within its last field, the user's name."""
    whole = encode_transfer(message)
    last = len(message.user.encode()) if isinstance(message, SessionClaim) else 0
    cut = data.draw(st.integers(0, len(whole) - last - 1))
    assert read_transfer(whole[:cut]) is None


@settings(max_examples=60)
@given(st.binary(max_size=40))
def test_other_bytes_raise_nothing(octets: bytes) -> None:
    read_transfer(octets)
    assert read_transfer(b"\x09" + octets) is None


@settings(max_examples=40)
@given(MOVES, ROWS, ROWS)
def test_the_journal_knows_a_move(
    move: StoredTransfer, known: list[tuple[int, int]], last: list[tuple[int, int]]
) -> None:
    stored = JournalState()
    records = (
        ALICE,
        transfer_record(1, move),
        copy_event_record(1, 7, (8, 9), True),
        known_events_record(1, known),
        last_events_record(1, last),
    )
    for record in records:
        stored.apply(record)
    kinds = [describe(record)["kind"] for record in records]
    assert kinds == ["session", "transfer", "copy_event", "known_events", "last_events"]
    roaming = stored.sessions[1].roaming
    assert roaming is not None
    assert roaming.transfers == {move.key: move}
    assert roaming.events == {7: ((8, 9), True)}
    assert list(roaming.known) == list(dict.fromkeys(known))
    assert roaming.last == {one: max(number for other, number in last if other == one) for one, _ in last}
    leaves = bool(move.flags & TransferFlag.DEPARTURE)
    assert stored.sessions[1].client_id == (departing_name(move.gateway, move.number, "alice") if leaves else "alice")
    assert describe(records[1])["client"] == "alice"


def test_a_move_that_is_over_is_forgotten_with_what_came_with_it() -> None:
    stored = JournalState()
    flags = (TransferFlag.READY, TransferFlag.OVER)
    moves = [transfer_record(1, StoredTransfer(each, 2, 3, 4, 5, "alice")) for each in flags]
    for record in (ALICE, moves[0], known_events_record(1, [(8, 9)]), last_events_record(1, [(8, 9)]), moves[1]):
        stored.apply(record)
    roaming = stored.sessions[1].roaming
    assert roaming is not None
    assert (roaming.transfers, roaming.known, roaming.last) == ({}, {}, {})


def test_the_same_client_may_begin_a_session_while_its_earlier_one_departs() -> None:
    stored = JournalState()
    stored.apply(ALICE)
    stored.apply(transfer_record(1, StoredTransfer(TransferFlag.DEPARTURE, 2, 2, 4, 1, "alice")))
    stored.apply(SESSION.pack(SessionRecordKind.SESSION, 2, 3_600, 0) + write_text("alice") + write_text("anna"))
    assert {each.client_id for each in stored.sessions.values()} == {departing_name(2, 4, "alice"), "alice"}
