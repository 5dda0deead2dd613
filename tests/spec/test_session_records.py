"""What the journal holds of sessions and messages: records there and back, and what replaying them leads to."""

from __future__ import annotations

import random

import pytest

from edgebridge.session.acl import Acl, read_rule
from edgebridge.session.inflight import Inflight, QueueEntry
from edgebridge.session.journal.dump import describe
from edgebridge.session.journal.session_records import (
    COPY,
    MESSAGE,
    ONE,
    PACKET,
    SENT,
    SessionRecordKind,
    cleared_record,
    copy_record,
    gone_record,
    message_record,
    retained_record,
    session_record,
    settled_record,
    subscription_record,
    unsubscription_record,
)
from edgebridge.session.journal.state import JournalState, RecordInvalid
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import BridgeSyncState, Session
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Property
from edgebroker.names import ClientId
from edgebroker.publication import Publication

CLOCK = 1_700_000_000_000_000


def session(number: int, client: str = "alice") -> Session:
    made = Session(ClientId(client), Inflight(10), SessionOutbox(10, 10_000))
    made.number = number
    made.expiry_s = 3_600
    return made


def publication(stored: int, topic: str = "t/1", payload: bytes = b"warm", qos: int = 1) -> Publication:
    made = Publication("bob", topic, payload, qos, False, 5)
    made.stored = stored
    return made


def entry(of: Publication, number: int, qos: int = 1, packet_id: int = 0) -> QueueEntry:
    made = QueueEntry(of, qos, False, (7, 268_435_455), "t/#")
    made.number = number
    made.packet_id = packet_id
    return made


def replayed(*records: bytes) -> JournalState:
    stored = JournalState()
    for record in records:
        stored.apply(record)
    stored.finish()
    return stored


def test_a_session_comes_back_with_its_options_and_its_will() -> None:
    alice = session(3)
    alice.user = "alice@site"
    alice.will = Will("status/alice", b"gone", 2, True, {Property.WILL_DELAY_INTERVAL: 30})
    kept = replayed(session_record(alice)).sessions[3]
    assert (kept.client_id, kept.user, kept.expiry_s, kept.will, kept.disconnected_at) == (
        "alice",
        "alice@site",
        3_600,
        alice.will,
        0,
    )


def test_what_a_token_allowed_at_most_comes_back() -> None:
    alice = session(3)  # else it would be given, while its client is away, what its token never allowed
    rules = ("read sensors/#", "write cmd/%c where temp > 3", "deny sensors/secret", "readwrite +/x", "subscribe a b")
    alice.claims = Acl({}, tuple(map(read_rule, rules)))
    alice.will = Will("status/alice", b"gone")
    kept = replayed(session_record(alice)).sessions[3]
    assert kept.claims == rules
    assert kept.will is not None
    alice.claims = Acl({}, ())
    assert replayed(session_record(alice)).sessions[3].claims == ()
    alice.claims = Acl({}, (read_rule("read #"),) * 65)
    with pytest.raises(RecordInvalid):  # no token has more than 64
        replayed(session_record(alice))


def test_a_will_that_was_settled_does_not_come_back() -> None:
    alice = session(3)
    alice.will = Will("status/alice", b"gone")
    before = session_record(alice)
    alice.will = None
    kept = replayed(before, gone_record(alice, CLOCK)).sessions[3]
    assert kept.will is None
    assert kept.disconnected_at == CLOCK


def test_a_subscription_comes_back_as_it_was_asked_for() -> None:
    record = subscription_record(3, "$share/g/t/#", "temp > 30", 2, False, True, 268_435_455)
    kept = replayed(session_record(session(3)), record).sessions[3].subscriptions["$share/g/t/#"]
    assert (kept.where, kept.qos, kept.no_local, kept.as_published, kept.identifier) == (
        "temp > 30",
        2,
        False,
        True,
        268_435_455,
    )
    gone = replayed(session_record(session(3)), record, unsubscription_record(3, "$share/g/t/#"))
    assert not gone.sessions[3].subscriptions


def test_a_message_comes_back_with_everything_a_reader_gets() -> None:
    sent = Publication(
        "bob",
        "t/1",
        b"\0\1payload",
        2,
        True,
        5,
        properties={Property.CONTENT_TYPE: "text/plain", Property.USER_PROPERTY: [("a", "1"), ("a", "2")]},
        expires_at=60,
        user=[("a", "1"), ("a", "2")],
    )
    sent.stored = 9
    alice = session(3)
    kept = replayed(session_record(alice), message_record(sent, CLOCK, [(alice, entry(sent, 1, 2, 77))])).sessions[3]
    copy = kept.copies[1]
    back = copy.message.publication
    assert (back.publisher, back.topic, back.payload, back.qos, back.retain) == ("bob", "t/1", b"\0\1payload", 2, True)
    assert (back.accepted_at, back.expires_at, back.stored) == (CLOCK + 5, CLOCK + 60, 9)
    assert back.properties == sent.properties
    assert (back.user, back.content_type) == ([("a", "1"), ("a", "2")], "text/plain")
    sent.properties_bytes = back.properties_bytes
    assert back.held_bytes() == sent.held_bytes() > len(b"\0\1payload") + len("t/1") + back.properties_bytes
    assert (copy.qos, copy.packet_id, copy.identifiers, copy.text) == (2, 77, (7, 268_435_455), "t/#")


@pytest.mark.parametrize("text", ["t/1", "t/+", "+/1", "#", "t/#", "+/+", "$share/g/t/+", "$filter/x%3E1/t/#", "t/1/#"])
def test_what_a_copy_is_for_comes_back(text: str) -> None:
    alice, sent = session(3), publication(9)
    copy = QueueEntry(sent, 1, False, (), text)
    copy.number = 1
    kept = replayed(session_record(alice), message_record(sent, CLOCK, [(alice, copy)])).sessions[3]
    assert kept.copies[1].text == text


def test_a_message_is_numbered_by_its_record_unless_it_was_said_before() -> None:
    alice, sent = session(3), publication(2)
    sent.stated = 2
    record = message_record(sent, CLOCK, [(alice, entry(sent, 1))])
    assert describe(record, 2)["message"] == 2
    sent.stated = 7
    again = message_record(sent, CLOCK, [(alice, entry(sent, 1))])
    assert (describe(again, 7)["message"], len(again)) == (2, len(record) + 8)


def test_copies_that_are_settled_together_are_one_record() -> None:
    alice, bob, sent = session(3), session(4, "bob"), publication(9)
    records = [message_record(sent, CLOCK, [(alice, entry(sent, n)), (bob, entry(sent, n))]) for n in range(1, 400)]
    settled = settled_record([(3, n) for n in range(2, 399)] + [(4, 9), (4, 7)])
    assert len(settled) < 50
    stored = replayed(session_record(alice), session_record(bob), *records, settled, settled)
    assert sorted(stored.sessions[3].copies) == [1, 399]
    assert sorted(stored.sessions[4].copies) == [n for n in range(1, 400) if n not in (7, 9)]
    assert describe(settled)["copies"][-1] == {"session": 4, "first": 9, "count": 1}


def test_a_copy_moves_to_another_session_in_one_step() -> None:
    alice, bob, sent = session(3), session(4, "bob"), publication(9)
    said = message_record(sent, CLOCK, [(alice, entry(sent, 5))])
    moved = message_record(sent, CLOCK, [(bob, entry(sent, 1))], instead_of=(3, 5))
    stored = replayed(session_record(alice), session_record(bob), said, moved)
    assert not stored.sessions[3].copies
    assert stored.sessions[4].copies[1].message.publication.payload == b"warm"
    assert describe(moved)["instead_of"] == {"session": 3, "copy": 5}


def test_a_will_and_what_came_of_it_are_one_step() -> None:
    alice, bob = session(3), session(4, "bob")
    alice.will = Will("status/alice", b"gone", 2)
    sent = publication(9)
    said = message_record(sent, CLOCK, [(bob, entry(sent, 1))], (alice.number, 0))
    stored = replayed(session_record(alice), session_record(bob), said)
    assert (stored.sessions[3].will, stored.sessions[3].received) == (None, set())


def test_a_session_that_is_said_again_is_still_away() -> None:
    alice = session(3)
    records = [session_record(alice), gone_record(alice, CLOCK), session_record(alice, is_away=True)]
    assert replayed(*records).sessions[3].disconnected_at == CLOCK
    assert replayed(*records, session_record(alice)).sessions[3].disconnected_at == 0


@pytest.mark.parametrize("state", BridgeSyncState)
def test_the_state_of_a_bridge_is_a_field_of_its_records(state: BridgeSyncState) -> None:
    bridge = session(3, "$bridge/x")
    bridge.bridge_sync, bridge.expiry_s = state, 0xFFFF_FFFF
    begun, gone = session_record(bridge), gone_record(bridge, CLOCK)
    assert describe(begun)["bridge_sync"] == describe(gone)["bridge_sync"] == state.name.lower()
    kept = replayed(begun).sessions[3]
    assert (kept.bridge_sync, kept.expiry_s) == (state, 0xFFFF_FFFF)
    bridge.bridge_sync = BridgeSyncState.SYNCHRONISED
    kept = replayed(session_record(bridge), gone).sessions[3]
    assert (kept.bridge_sync, kept.expiry_s, kept.disconnected_at) == (state, 0xFFFF_FFFF, CLOCK)


@pytest.mark.parametrize(
    ("expiry", "state"),
    [
        ("ffffffff", BridgeSyncState.SYNCHRONISED),
        ("fffffffe", BridgeSyncState.NOT_CONNECTED),
        ("fffffffd", BridgeSyncState.RETAINED_PENDING),
        ("fffffffc", BridgeSyncState.IN_DOUBT),
        ("00000e10", None),
    ],
)
def test_older_gateways_wrote_the_state_of_a_bridge_as_its_expiry(expiry: str, state: BridgeSyncState | None) -> None:
    begun = bytes.fromhex(f"01 00000003 {expiry} 00 0009 246272696467652f78 0000")
    gone = bytes.fromhex(f"03 00000003 {expiry} 00 00060a24181e4000")
    kept = replayed(begun).sessions[3]
    ends = 0xFFFF_FFFF if state else 3_600
    assert (kept.client_id, kept.bridge_sync, kept.expiry_s) == ("$bridge/x", state, ends)
    synchronised = bytes.fromhex("01 00000003 ffffffff 00 0009 246272696467652f78 0000")
    kept = replayed(synchronised, gone).sessions[3]
    assert (kept.bridge_sync, kept.expiry_s, kept.disconnected_at) == (state, ends, 1_700_000_000_000_000)


def test_the_steps_of_a_copy() -> None:
    alice, sent = session(3), publication(9, qos=2)
    records = [
        session_record(alice),
        message_record(sent, CLOCK, [(alice, entry(sent, 1, 2))]),
        SENT.pack(SessionRecordKind.SENT, 3, 1, 500),
        COPY.pack(SessionRecordKind.RELEASED, 3, 1),
        settled_record([(3, 1)]),
    ]
    seen = []
    for count in range(2, 6):
        copies = replayed(*records[:count]).sessions[3].copies
        seen.append([(copy.packet_id, copy.released) for copy in copies.values()])
    assert seen == [[(0, False)], [(500, False)], [(500, True)], []]


def test_an_identifier_of_the_publisher_is_on_disk_with_its_message_or_alone() -> None:
    bob, alice, sent = session(2, "bob"), session(3), publication(9, qos=2)
    both = message_record(sent, CLOCK, [(alice, entry(sent, 1, 2))], (bob.number, 12))
    stored = replayed(session_record(bob), session_record(alice), both, PACKET.pack(SessionRecordKind.RECEIVED, 2, 13))
    assert stored.sessions[2].received == {12, 13}
    stored.apply(PACKET.pack(SessionRecordKind.FORGOTTEN, 2, 12))
    assert stored.sessions[2].received == {13}


def test_retained_messages_come_and_go() -> None:
    record = retained_record(publication(0, "status/a"), CLOCK)
    stored = replayed(record)
    assert stored.retained["status/a"].payload == b"warm"
    assert stored.retained["status/a"].retain
    assert not replayed(record, cleared_record("status/a")).retained


def test_a_session_that_ended_takes_everything_with_it() -> None:
    alice, sent = session(3), publication(9)
    stored = replayed(
        session_record(alice),
        message_record(sent, CLOCK, [(alice, entry(sent, 1))]),
        ONE.pack(SessionRecordKind.ENDED, 3),
    )
    assert not stored.sessions
    assert stored.last_session == 3, "its number is never used again"


def test_what_concerns_a_session_nobody_knows_is_passed_over() -> None:
    alice, sent = session(3), publication(9)
    stored = replayed(
        message_record(sent, CLOCK, [(alice, entry(sent, 1))], (alice.number, 4)),
        SENT.pack(SessionRecordKind.SENT, 3, 1, 5),
        COPY.pack(SessionRecordKind.RELEASED, 3, 1),
        settled_record([(3, 1)]),
        PACKET.pack(SessionRecordKind.RECEIVED, 3, 9),
        subscription_record(3, "t", "", 0, False, False, 0),
        gone_record(alice, CLOCK),
    )
    assert not stored.sessions


def test_a_snapshot_names_a_message_that_was_said_before_its_reader_was() -> None:
    alice, carol, sent = session(3), session(4, "carol"), publication(9)
    mine, hers = entry(sent, 1), entry(sent, 6)
    stored = JournalState()
    stored.apply_row(100, [message_record(sent, CLOCK, [(alice, mine), (carol, hers)])])  # before its readers
    stored.apply(session_record(alice))
    stored.apply(copy_record(sent, alice, mine))
    stored.apply(settled_record([(3, 1)]))
    stored.apply(session_record(carol))
    stored.apply(copy_record(sent, carol, hers))
    stored.apply(bytes((SessionRecordKind.STATED,)))
    stored.finish()
    assert not stored.sessions[3].copies
    assert stored.sessions[4].copies[6].message.publication.payload == b"warm"


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_record_cut_short_is_no_record(cut: int) -> None:
    alice, sent = session(3), publication(9)
    record = message_record(sent, CLOCK, [(alice, entry(sent, 1))])
    with pytest.raises(RecordInvalid):
        replayed(record[: min(cut, len(record) - len(b"warm") - 1)])


@pytest.mark.parametrize("missing", range(len(b"warm") + 1, 12))
def test_a_message_that_is_cut_short_is_dropped_in_the_end(missing: int) -> None:
    """What a message says is read late, since most are settled by then; what cannot be read is not served."""
    alice, sent, whole = session(3), publication(9), publication(10)
    stored = JournalState()
    stored.apply_row(1, [session_record(alice)])
    stored.apply_row(2, [message_record(sent, CLOCK, [(alice, entry(sent, 1))])[:-missing]])
    stored.apply_row(3, [message_record(whole, CLOCK, [(alice, entry(whole, 2))])])
    stored.finish()
    assert stored.invalid == 1
    assert list(stored.sessions[3].copies) == [2]


def test_bytes_that_are_no_records_are_refused_and_described(chance: random.Random) -> None:
    """Whatever the bytes are: a RecordInvalid or a record, and words for it, never another error."""
    alice, sent = session(3), publication(9)
    good = [
        session_record(alice),
        message_record(sent, CLOCK, [(alice, entry(sent, 1))]),
        subscription_record(3, "t/#", "temp > 3", 1, False, False, 0),
        retained_record(sent, CLOCK),
        gone_record(alice, CLOCK),
    ]
    refused = 0
    for _ in range(5_000):
        record = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 4)):
            record[chance.randrange(len(record))] = chance.randrange(256)
        del record[chance.randrange(1, len(record) + 1) :]
        stored = JournalState()
        stored.apply(good[0])
        try:
            stored.apply(bytes(record))
        except RecordInvalid:
            refused += 1
        assert describe(bytes(record))["kind"]
    assert 0 < refused < 5_000


def test_describing_names_what_a_record_names() -> None:
    alice, sent = session(3), publication(9)
    assert describe(session_record(alice)) == {
        "kind": "session",
        "session": 3,
        "client": "alice",
        "expiry_s": 3_600,
        "has_will": False,
        "is_batched": True,
    }
    said = describe(message_record(sent, CLOCK, [(alice, entry(sent, 1, packet_id=8))]))
    assert (said["topic"], said["copies"]) == ("t/1", [{"session": 3, "copy": 1, "qos": 1, "packet_id": 8}])
    assert describe(b"\xff\x00") == {"kind": "unknown", "hex": "ff00"}


# -- what damage leaves ----------------------------------------------------------------------------------------------


def test_a_later_session_of_a_client_takes_the_place_of_one_whose_end_is_lost() -> None:
    """A client has one session; two would be counted, and one of them never be found again."""
    stored = JournalState()
    for number in (1, 2):
        stored.apply(session_record(session(number)))
    stored.finish()
    assert list(stored.sessions) == [2]
    stored.apply(session_record(session(2, "bob")))  # and a number means the client that had it last
    assert [one.client_id for one in stored.sessions.values()] == ["bob"]


@pytest.mark.parametrize("number", [1 << 62, 1 << 63, (1 << 64) - 1])
def test_a_message_beyond_all_numbers_is_none(number: int) -> None:
    """Compiled code counts with 63 bits, and the next message would be numbered from there."""
    of = publication(1)
    record = message_record(of, CLOCK, [(session(1), entry(of, 1))])
    spoilt = record[: MESSAGE.size] + number.to_bytes(8) + record[MESSAGE.size + 8 :]
    stored = JournalState()
    stored.apply(session_record(session(1)))
    stored.apply_row(2, [spoilt])
    stored.finish()
    assert stored.invalid == 1
    assert describe(spoilt)["kind"] in ("message", "unknown")


def test_a_copy_that_is_said_of_another_message_is_one_of_that() -> None:
    of, other = publication(1), publication(2)
    records = [message_record(one, CLOCK, [(session(1), entry(one, 1))]) for one in (of, other)]
    stored = replayed(session_record(session(1)), *records)
    (kept,) = stored.sessions[1].copies.values()
    assert (kept.message.number, kept.message.copies) == (2, 1)


def test_a_subscription_identifier_that_no_packet_can_carry_is_none() -> None:
    """Compiled code has 31 bits for it."""
    stored = replayed(session_record(session(1)))
    stored.apply_row(2, [subscription_record(1, "t/#", "", 1, False, False, 268_435_456)])
    assert (stored.invalid, stored.sessions[1].subscriptions) == (1, {})


def test_half_a_message_leaves_no_copy_without_a_message() -> None:
    of = publication(9)
    whole = message_record(of, CLOCK, [(session(1), entry(of, 1)), (session(2, "bob"), entry(of, 1))])
    stored = JournalState()
    for number, client in ((1, "alice"), (2, "bob")):
        stored.apply(session_record(session(number, client)))
    stored.apply_row(1, [whole[:-20]])
    assert stored.invalid >= 1
    stored.finish()
    assert not any(one.copies for one in stored.sessions.values())


def test_an_identifier_of_two_copies_is_that_of_the_later_one() -> None:
    """It was free when it was given again, so the earlier copy was settled, and the record of that is lost."""
    alice = session(1)
    stored = JournalState()
    stored.apply(session_record(alice))
    for number in (1, 2):
        of = publication(number)
        stored.apply(message_record(of, CLOCK, [(alice, entry(of, number))]))
        stored.apply(SENT.pack(SessionRecordKind.SENT, 1, number, 7))
    stored.finish()
    assert [(one.number, one.packet_id) for one in stored.sessions[1].copies.values()] == [(2, 7)]
