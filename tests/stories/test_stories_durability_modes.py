"""Durable messages when memory is short, and when the durability mode changes (P1, P2)."""

from __future__ import annotations

from typing import Any

from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.session.durability import MEMORY
from edgebridge.session.footprint import QUEUED_BYTES, HeldKind
from edgebridge.session.inflight import QueueEntry
from edgebridge.wire.packets import Connect, PubAck, Publish
from edgebridge.wire.properties import Property
from edgebroker.instants import SECOND
from edgebroker.log_schema import Cause
from edgebroker.publication import Publication


def full(play: Any, script: str) -> Any:
    """A front end after *script*, when what waits for a kept session has filled its part of memory."""
    play(script, quota=Quota(memory_bytes_max=60_000), is_stored=True)
    for _ in range(15):
        play(f'p > PUBLISH some qos=1 "{"x" * 3_600}"    p < PUBACK')
    frontend = play.broker.frontend
    frontend.memory_limit.check(play.broker.simulation.now)
    assert frontend.journal.is_full
    return frontend


def test_what_was_acknowledged_is_kept_and_what_comes_is_refused(play_v5: Any) -> None:
    """P2: a kept queue is never shed. Its reader may come and fetch it; then there is room again."""
    frontend = full(
        play_v5,
        """
        away > CONNECT clean=0 session=3600       away < CONNACK
        away > SUBSCRIBE some qos=1               away < SUBACK granted=1
        away cut
        here > CONNECT clean=0 session=3600       here < CONNACK
        here > SUBSCRIBE other qos=1              here < SUBACK granted=1
        p > CONNECT                               p < CONNACK
    """,
    )
    play_v5("""
        p > PUBLISH some qos=1 "refused"    p < PUBACK reason=0x97 why~"memory is full"
        p > PUBLISH some qos=2 "refused"    p < PUBREC reason=0x97
        p > PUBLISH some "nobody there"
        p > PUBLISH other qos=1 "taken"     p < PUBACK    here < PUBLISH other qos=1 "taken"
        here > PUBACK
    """)
    assert Cause.MEMORY_FULL not in play_v5.broker.ledger.dropped
    assert len(frontend.connect_handler.sessions["away"].outbox) == 15
    away = play_v5.client("away")
    away.send(Connect("away", False, properties={Property.SESSION_EXPIRY_INTERVAL: 3_600}))
    for _ in range(30):
        play_v5.broker.simulation.run_until(play_v5.broker.simulation.now + SECOND)
        for packet in away.receive():
            if isinstance(packet, Publish):
                away.send(PubAck(packet.packet_id))
    play_v5("""
        p > PUBLISH some qos=1 "taken"    p < PUBACK    away < PUBLISH some qos=1 "taken"
    """)
    assert not frontend.journal.is_full


def test_a_group_is_refused_only_if_all_of_its_members_are_behind(play_v5: Any) -> None:
    full(
        play_v5,
        """
        away > CONNECT clean=0 session=3600     away < CONNACK
        away > SUBSCRIBE $share/g/job qos=1     away < SUBACK granted=1
        away > SUBSCRIBE some qos=1             away < SUBACK granted=1
        away cut
        here > CONNECT clean=0 session=3600     here < CONNACK
        here > SUBSCRIBE $share/g/job qos=1     here < SUBACK granted=1
        p > CONNECT                             p < CONNACK
    """,
    )
    play_v5("""
        p > PUBLISH job qos=1 "one"    p < PUBACK    here < PUBLISH job qos=1 "one"
        here > PUBACK
        here cut
        p > PUBLISH job qos=1 "two"    p < PUBACK reason=0x97
    """)


def test_a_session_follows_the_mode_that_holds_when_its_client_comes(play_v5: Any) -> None:
    """What it held in memory is on disk before CONNACK says so."""
    play_v5("bob > CONNECT    bob < CONNACK", FrontendOptions(durability=MEMORY), is_stored=True)
    play_v5("""
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=0 user.filter=1 user.durability=memory
    alice > SUBSCRIBE t/# qos=2          alice < SUBACK granted=2
    alice > SUBSCRIBE x qos=1            alice < SUBACK granted=1
    alice > UNSUBSCRIBE x                alice < UNSUBACK
    alice > PUBLISH u qos=2 id=9 "mine"  alice < PUBREC
    bob > PUBLISH t/1 qos=1 "one"        bob < PUBACK    alice < PUBLISH t/1 qos=1 "one" id=1
    alice cut
    bob > PUBLISH t/1 qos=2 "two"        bob < PUBREC
    """)
    broker = play_v5.broker
    assert broker.frontend.journal.storage.lsn == 0
    broker.frontend.connect_handler._options = FrontendOptions()
    play_v5("""
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1 user.filter=1 user.durability=sync
    alice < PUBLISH t/1 qos=1 "one" id=1 dup=1
    alice < PUBLISH t/1 qos=2 "two" id=2
    broker crashes                       alice < CLOSED    bob < CLOSED
    """)
    kept = broker.frontend.connect_handler.sessions["alice"]
    assert list(kept.subscription_records) == ["t/#"]
    assert kept.received == {9}
    assert [(entry.publication.payload, entry.packet_id) for entry in kept.inflight] == [(b"one", 1), (b"two", 2)]


def test_what_a_group_hands_over_keeps_its_place_although_its_member_was_not_kept(play_v5: Any) -> None:
    """[MQTT-4.6.0-1]: "one" was sent behind "two". That it is kept for somebody else does not make it older."""
    play_v5(
        """
    other > CONNECT clean=0 session=3600    other < CONNACK
    other > SUBSCRIBE t qos=1               other < SUBACK granted=1
    brief > CONNECT                         brief < CONNACK
    brief > SUBSCRIBE $share/g/t qos=1      brief < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t qos=1 "one"
    bob < PUBACK    other < PUBLISH t qos=1 "one"    brief < PUBLISH t qos=1 "one"
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE $share/g/t qos=1      alice < SUBACK granted=1
    bob > PUBLISH t qos=1 "two"
    bob < PUBACK    other < PUBLISH t qos=1 "two"    alice < PUBLISH t qos=1 "two"
    brief cut                               alice < PUBLISH t qos=1 "one"
    wait 1s
    broker crashes                          bob < CLOSED    alice < CLOSED    other < CLOSED
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=1
    alice < PUBLISH t qos=1 dup=1 "two"
    alice < PUBLISH t qos=1 dup=1 "one"
    """,
        is_stored=True,
    )


def test_small_messages_weigh_more_than_what_was_read_of_them(play: Any) -> None:
    play(
        """
        away > CONNECT clean=0 session=3600       away < CONNACK
        away > SUBSCRIBE some qos=1               away < SUBACK granted=1
        away leaves
        p > CONNECT                               p < CONNACK
        """,
        quota=Quota(memory_bytes_max=5_000_000),
    )
    memory = play.broker.frontend.memory_limit
    publication = Publication("p", "some", b"", 1, False, 0)
    outbox = play.broker.frontend.connect_handler.sessions["away"].outbox
    for waiting in (1_500, 3_600):
        while len(outbox) < waiting:
            outbox.restore(QueueEntry(publication, 1, False, (), "some"))
        memory.check_if_due(play.broker.simulation.now)
        held = memory.accounts.by_kind[HeldKind.QUEUES]
        assert held == (0 if waiting == 1_500 else 3_600 * (QUEUED_BYTES + len("some")))


def test_a_session_outlives_a_connect_that_is_refused(play_v5: Any) -> None:
    """Who asks for a new one and is told that there can be none has the old one, with all that waits in it."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    """,
        is_stored=True,
    )
    disk = play_v5.broker.store.disk
    disk.sync_fails = 1.0
    play_v5("""
    bob > PUBLISH t qos=1 "refused"         alice < PUBLISH t qos=1 "refused"
    bob < DISCONNECT reason=0x97            bob < CLOSED
    again > CONNECT clean=1 session=3600 id=alice    again < CONNACK reason=0x97    again < CLOSED
    alice > PINGREQ                         alice < PINGRESP
    """)


def test_a_session_that_had_billions_of_copies_goes_on(play_v5: Any) -> None:
    """Their numbers have 32 bits: at a thousand a second they end after 50 days."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t qos=2               alice < SUBACK granted=2
    dave > CONNECT clean=0 session=3600     dave < CONNACK
    dave > SUBSCRIBE t qos=1                dave < SUBACK granted=1
    dave cut
    bob > CONNECT clean=0 session=60        bob < CONNACK
    """,
        is_stored=True,
    )
    frontend = play_v5.broker.frontend
    sessions = frontend.connect_handler.sessions
    for session in sessions.values():
        session.last_copy = (1 << 32) - 20
    play_v5("""
    bob > PUBLISH t qos=2 id=1 "0"          bob < PUBREC    alice < PUBLISH t qos=2 id=1 "0"
    bob > PUBREL id=1                       bob < PUBCOMP
    alice > PUBREC id=1                     alice < PUBREL
    bob > PUBLISH t qos=2 id=1 "1"          bob < PUBREC    alice < PUBLISH t qos=2 id=2 "1"
    """)
    frontend.journal.storage.request_snapshot()
    for number in range(2, 40):
        play_v5(f"""
        bob > PUBLISH t qos=1 "{number}"    bob < PUBACK    alice < PUBLISH t qos=1 "{number}"    alice > PUBACK
        """)
    assert sessions["dave"].last_copy == 40
    play_v5("wait 1s    broker crashes    alice < CLOSED    bob < CLOSED")
    play_v5("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=1
    alice < PUBREL id=1                     alice < PUBLISH t qos=2 id=2 dup=1 "1"
    bob > CONNECT clean=0 session=60        bob < CONNACK present=1
    bob > PUBLISH t qos=2 id=1 dup=1 "1"    bob < PUBREC
    """)
    waiting = "".join(f'    dave < PUBLISH t qos=1 "{number}"' for number in range(40))
    play_v5("dave > CONNECT clean=0 session=3600    dave < CONNACK present=1" + waiting)
