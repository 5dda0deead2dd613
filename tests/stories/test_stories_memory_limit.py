"""Events about the memory that clients hold, and their end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgebridge.frontend.connection_rate import HANDSHAKE_BYTES, TLS_BYTES
from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebridge.frontend.memory_accounts import GRANTED_SHARE, MemoryAccounts, account_of, account_title
from edgebridge.frontend.options import Quota
from edgebridge.session.footprint import CONNECTION_BYTES, SESSION_BYTES, HeldKind
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MINUTE, SECOND
from edgebroker.publication import Publication


def test_what_is_held_no_more_is_told_no_more(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", quota=Quota(memory_bytes_max=100_000))
    frontend, now = play.broker.frontend, play.broker.simulation.now
    memory = frontend.memory_limit
    frontend.retained.retain(Publication("p", "k", bytes(45_000), 0, True, 0))
    memory.check(now)
    assert memory.held_bytes > 45_000
    frontend.retained.clear("k")
    memory.check_if_due(now + MINUTE - 1)
    assert memory.held_bytes > 45_000, "to measure costs something"
    memory.check_if_due(now + MINUTE)
    assert memory.held_bytes < 10_000


def test_tls_is_measured_before_it_is_too_much_although_little_was_read(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", quota=Quota(memory_bytes_max=16 << 20))
    frontend, now = play.broker.frontend, play.broker.simulation.now
    for number in range(60):
        connection = frontend.opened(f"10.0.0.1:{number}", now)
        frontend.connect_handler.connecting.begin_handshake(connection)
    frontend.memory_limit.check_if_due(now)
    assert frontend.memory_limit.held_bytes > 60 * HANDSHAKE_BYTES
    for number in range(200):
        frontend.opened(f"10.0.0.2:{number}", now).transport_bytes = TLS_BYTES
    frontend.memory_limit.check_if_due(now)
    assert frontend.memory_limit.held_bytes > 60 * HANDSHAKE_BYTES + 200 * TLS_BYTES


# -- accounts --------------------------------------------------------------------------------------------------

TWO = """
a > CONNECT    a < CONNACK
b > CONNECT    b < CONNACK
"""
"""Two clients, each from an address of its own."""
NEWCOMERS_COME = """
b > SUBSCRIBE mine             b < SUBACK granted=0
b > PUBLISH k qos=1 retain=1 "x"    b < PUBACK
c > CONNECT                    c < CONNACK
"""
OVER = 'why~"too much memory is held by all clients"'


def measured(play: Any) -> MemoryAccounts:
    """What is held, as it is counted now."""
    accounts: MemoryAccounts = play.broker.frontend.memory_limit.accounts
    accounts.measure(play.broker.simulation.now)
    return accounts


def answers(play: Any, name: str) -> list[Any]:
    """What client *name* has received when nothing more comes."""
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    received: list[Any] = play.client(name).receive()
    return received


def is_half(accounts: MemoryAccounts) -> bool:
    """Whether client a alone holds about half of what may be granted."""
    return 0.4 < accounts.by_account["address a"] / (GRANTED_SHARE * accounts.bytes_max) < 0.51


def test_an_address_gets_subscriptions_until_it_holds_as_much_as_is_free(play_v5: Any) -> None:
    play_v5(TWO, quota=Quota(memory_bytes_max=100_000))
    frontend = play_v5.broker.frontend
    a = play_v5.client("a")
    for number in range(40):
        a.send(Subscribe(1, [SubscriptionOption(f"{number}/{'x' * 3_000}", 0)]))
    granted = [packet.reasons for packet in answers(play_v5, "a") if isinstance(packet, SubAck)]
    refused = frontend.subscribe_handler.refused["memory"]
    assert granted == [[0]] * (40 - refused) + [[ReasonCode.QUOTA_EXCEEDED]] * refused
    assert is_half(measured(play_v5))
    play_v5(f"a > SUBSCRIBE {'y' * 2_000}   a < SUBACK granted=0x97 {OVER}" + NEWCOMERS_COME)
    texts = [f"{number}/{'x' * 3_000}" for number in range(10)]
    a.send(Unsubscribe(2, texts))
    assert isinstance(answers(play_v5, "a")[0], UnsubAck)
    play_v5(f"a > SUBSCRIBE {'y' * 2_000}   a < SUBACK granted=0")
    assert frontend.memory_limit.accounts.refused[HeldKind.SUBSCRIPTIONS] == refused + 1


def test_a_subscription_that_is_refused_for_another_reason_holds_nothing(play_v5: Any) -> None:
    play_v5("a > CONNECT    a < CONNACK", quota=Quota(memory_bytes_max=100_000))
    accounts = play_v5.broker.frontend.memory_limit.accounts
    play_v5.broker.frontend.node.subscriptions_per_client_max = 1
    play_v5("a > SUBSCRIBE b    a < SUBACK granted=0")
    held = accounts.held_bytes
    for number in range(20):
        play_v5(f"a > SUBSCRIBE b/{number}    a < SUBACK granted=0x97")
    assert accounts.held_bytes == held


def test_an_address_gets_wills_and_sessions_until_it_holds_as_much_as_is_free(play_v5: Any) -> None:
    play_v5(TWO, quota=Quota(memory_bytes_max=100_000))
    will = Will("w", bytes(30_000), properties={Property.WILL_DELAY_INTERVAL: 60})
    connect = Connect("one", will=will, properties={Property.SESSION_EXPIRY_INTERVAL: 60})
    a = play_v5.client("a")
    for name, reason in (("one", 0), ("two", ReasonCode.QUOTA_EXCEEDED), ("one", 0)):  # again is no more
        a.open()
        a.send(replace(connect, client_id=name))
        [answer] = [packet for packet in answers(play_v5, "a") if isinstance(packet, ConnAck)]
        assert answer.reason == reason, name
    assert measured(play_v5).by_kind[HeldKind.WILLS] > 30_000
    play_v5(NEWCOMERS_COME)


def test_retained_messages_take_half_of_the_memory_at_most(play_v5: Any) -> None:
    play_v5(TWO, quota=Quota(memory_bytes_max=100_000))
    memory = "x" * 10_000
    for number in range(3):
        play_v5(f'a > PUBLISH {number} qos=1 retain=1 "{memory}"    a < PUBACK')
    play_v5(f"""
    a > PUBLISH 0 qos=1 retain=1 "{memory}"    a < PUBACK
    a > PUBLISH 3 qos=1 retain=1 "{memory}"    a < PUBACK reason=0x97 {OVER}
    b > PUBLISH 4 qos=1 retain=1 "{memory}"    b < PUBACK
    c > CONNECT                                c < CONNACK
    c > PUBLISH 6 qos=1 retain=1 "{memory}"    c < PUBACK reason=0x97 why~"no room for another retained message"
    """)
    frontend = play_v5.broker.frontend
    assert frontend.publish_handler.refusals == {Refusal.MEMORY_SHARE: 1, Refusal.RETAINED_FULL: 1}
    assert 40_000 < measured(play_v5).by_kind[HeldKind.RETAINED] <= 50_000
    before = measured(play_v5).by_account["address a"]
    play_v5("b > PUBLISH 0 qos=1 retain=1    b < PUBACK    d > CONNECT    d < CONNACK")
    assert measured(play_v5).by_account["address a"] < before - 10_000


def alias(number: int, topic: str) -> Publish:
    return Publish(topic, b"", properties={Property.TOPIC_ALIAS: number})


def test_topic_aliases_take_72_kib_of_a_client_at_most(play_v5: Any) -> None:
    play_v5(TWO)
    a = play_v5.client("a")
    for number, topic in ((1, "x" * 65_000), (1, "x" * 65_000), (2, "y" * 5_000), (2, "z" * 6_000)):
        a.send(alias(number, topic))
    assert answers(play_v5, "a") == []
    assert 71_000 < measured(play_v5).by_kind[HeldKind.TOPIC_ALIASES] < 72_000
    a.send(alias(3, "x" * 3_000))
    assert answers(play_v5, "a")[0].reason == ReasonCode.QUOTA_EXCEEDED
    assert measured(play_v5).by_kind[HeldKind.TOPIC_ALIASES] == 0


def test_topic_aliases_count_for_their_address(play_v5: Any) -> None:
    play_v5(TWO, quota=Quota(memory_bytes_max=100_000))
    play_v5.client("a").send(alias(1, "x" * 60_000))
    assert answers(play_v5, "a")[0].reason == ReasonCode.QUOTA_EXCEEDED
    play_v5(NEWCOMERS_COME)


def test_topic_aliases_towards_a_client_are_counted_and_bounded(play_v5: Any) -> None:
    play_v5(TWO + "a > DISCONNECT")
    a = play_v5.client("a")
    a.send(Connect("a", properties={Property.TOPIC_ALIAS_MAXIMUM: 32}))
    a.send(Subscribe(1, [SubscriptionOption("#", 1)]))
    for number in range(10):
        play_v5.client("b").send(Publish(f"{number}/{'x' * 10_000}", b"", 1, packet_id=1 + number))
    assert len(answers(play_v5, "a")) > 10
    assert 60_000 < measured(play_v5).by_kind[HeldKind.TOPIC_ALIASES] < 72 * 1_024


def test_who_holds_more_than_half_is_cut_off_so_that_others_can_come(play_v5: Any) -> None:
    play_v5(TWO + "a > SUBSCRIBE big    a < SUBACK granted=0", quota=Quota(memory_bytes_max=100_000))
    frontend = play_v5.broker.frontend
    play_v5.client("a").line.stall()
    for _ in range(9):
        play_v5(f'b > PUBLISH big "{"x" * 10_000}"')
    assert 0.85 * 100_000 < measured(play_v5).held_bytes < 100_000
    frontend.memory_limit.check(play_v5.broker.simulation.now)
    assert frontend.memory_limit.relieved == 1
    play_v5(NEWCOMERS_COME)


def test_queues_leave_what_stays_half_of_what_is_free(play_v5: Any) -> None:
    play_v5(
        TWO
        + """
    q > CONNECT clean=0 session=60    q < CONNACK
    q > SUBSCRIBE some qos=1    q < SUBACK granted=1
    q > DISCONNECT
    """,
        quota=Quota(memory_bytes_max=100_000),
    )
    connect_handler = play_v5.broker.frontend.connect_handler
    for session in connect_handler.sessions.values():
        connect_handler.session_quota.charge(session, "user ulla")
    for _ in range(5):
        play_v5(f'b > PUBLISH some qos=1 "{"x" * 10_000}"    b < PUBACK')
    accounts = measured(play_v5)
    assert accounts.by_account["user ulla"] > 0.5 * 100_000
    now = play_v5.broker.simulation.now
    assert accounts.admits("user ulla", 5_000, HeldKind.WILLS, now)
    assert not accounts.admits("user ulla", 10_000, HeldKind.WILLS, now)
    assert accounts.admits("another", 9_000, HeldKind.WILLS, now)


def test_clients_of_one_user_have_one_account(play_v5: Any) -> None:
    play_v5(TWO)
    connect_handler = play_v5.broker.frontend.connect_handler
    connection = connect_handler.sessions["a"].connection
    assert (account_of(connection, ""), account_of(connection, "ulla")) == ("address a", "user ulla")
    for session in connect_handler.sessions.values():
        connect_handler.session_quota.charge(session, "user ulla")
    accounts = measured(play_v5)
    assert accounts.by_account["user ulla"] == 2 * (SESSION_BYTES + CONNECTION_BYTES)
    assert accounts.largest() == ("user ulla", accounts.by_account["user ulla"])
    assert (account_title("user ulla"), account_title("")) == ("user ulla", "the gateway itself")
    assert accounts.largest_kind("user ulla") is HeldKind.SESSIONS


def test_what_a_journal_has_beyond_the_memory_is_refused_and_said(play_v5: Any) -> None:
    play_v5(
        """
    a > CONNECT clean=0 session=3600    a < CONNACK present=0
    a > SUBSCRIBE kept qos=1            a < SUBACK granted=1
    b > CONNECT                         b < CONNACK
    b > PUBLISH small qos=1 retain=1 "x"    b < PUBACK
    """,
        is_stored=True,
    )
    for number in range(20):
        play_v5(f"""
        a > SUBSCRIBE {number}/{"s" * 5_000}                    a < SUBACK granted=0
        b > PUBLISH r/{number} qos=1 retain=1 "{"p" * 5_000}"   b < PUBACK
        """)
    play_v5.broker.quota = Quota(memory_bytes_max=100_000)
    play_v5("broker crashes    a < CLOSED    b < CLOSED")
    frontend = play_v5.broker.frontend
    accounts, problems = measured(play_v5), frontend.recovery.problems
    assert 0.7 * 100_000 < accounts.held_bytes < 100_000
    assert accounts.not_restored[HeldKind.RETAINED] > 10
    assert accounts.not_restored[HeldKind.SUBSCRIPTIONS] > 10
    assert len(problems) == accounts.not_restored.total()
    assert frontend.retained.find("small") is not None
    play_v5("""
    a > CONNECT clean=0 session=3600    a < CONNACK present=1
    b > CONNECT                         b < CONNACK
    b > PUBLISH kept qos=1 "still"      b < PUBACK    a < PUBLISH kept qos=1 "still"
    """)
