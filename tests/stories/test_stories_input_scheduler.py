"""The work for a packet counts against its client's share of a turn, on every path and after waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgebridge.frontend.job import WORK_AT_ONCE
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
)
from edgebridge.wire.properties import Property
from edgebroker.instants import MILLISECOND, SECOND
from tests.stories.conftest import Story

COME = "a > CONNECT    a < CONNACK    b > CONNECT    b < CONNACK"
ROOMY = Quota(filter_tests_max=1_000_000, shared_groups_max=500)
ASKED = {
    "groups": [f"$share/{number}/t" for number in range(500)],
    "content filters": [f"$filter/x%3E-{number}/t" for number in range(500)],
}


def settle(play: Story, seconds: int = 2) -> list[Any]:
    """Let the world go on; what client a has received."""
    simulation = play.broker.simulation
    play.client("b").send(PingReq())  # a turn begins when something comes
    simulation.run_until(simulation.now + seconds * SECOND)
    return play.client("a").receive()


@pytest.mark.parametrize("first", [0x30, 0x31, 0x32], ids=["plain", "retained", "QoS 1"])
@pytest.mark.parametrize("asked", ASKED)
def test_messages_for_many_have_several_turns(play: Any, asked: str, first: int) -> None:
    play(COME, quota=ROOMY)
    play.client("b").send(Subscribe(1, [SubscriptionOption(text, 0) for text in ASKED[asked]]))
    settle(play)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    one = play.client("a").line.connection
    said = (
        Publish("t", b'{"x": 1}', first >> 1 & 3, bool(first & 1), packet_id=n * (first >> 1 & 1))
        for n in range(1, 101)
    )
    before = frontend.ledger.published
    frontend.feed(one, b"".join(encode_packet(packet, play.dialect) for packet in said), now)
    assert one.is_held
    at_once = frontend.ledger.published - before
    assert 1 <= at_once <= 2 * WORK_AT_ONCE // len(ASKED[asked]) + 1
    settle(play)
    assert frontend.ledger.published - before == 100
    assert not one.is_held


def heavy(count: int) -> Iterator[Publish]:
    for number in range(1, count + 1):
        properties: Any = {Property.USER_PROPERTY: [("", "")] * 600}
        yield Publish("t", b"%d" % number, 1, packet_id=number, properties=properties)


@pytest.mark.parametrize("is_again", [False, True], ids=["waited", "sent before"])
def test_long_properties_of_what_waited_have_several_turns(play_v5: Any, is_again: bool) -> None:
    play = play_v5
    play("a > CONNECT clean=0 session=3600    a < CONNACK    b > CONNECT    b < CONNACK")
    a, b = play.client("a"), play.client("b")
    a.send(Subscribe(1, [SubscriptionOption("t", 1)]))
    assert isinstance(settle(play)[-1], SubAck)
    if not is_again:
        a.send(Disconnect())
        settle(play)
    for packet in heavy(30):  # each holds 113 KB, and a queue 4 MiB
        b.send(packet)
    got = settle(play)
    if is_again:
        assert [packet.payload for packet in got] == [b"%d" % number for number in range(1, 31)]
        a.send(Disconnect())
        settle(play)
    frontend = play.broker.frontend
    line = a.open()
    expiry: Any = {Property.SESSION_EXPIRY_INTERVAL: 3_600}
    now = play.broker.simulation.now
    frontend.feed(line.connection, encode_packet(Connect("a", clean_start=False, properties=expiry), V5), now)
    assert line.connection.is_deferred
    at_once = sum(packet[0] >> 4 == 3 for packet in line.connection.out)
    assert 1 <= at_once <= WORK_AT_ONCE // (600 * 5 // 8) + 1, "not all 30"
    frontend.feed(line.connection, encode_packet(PingReq(), V5), now + MILLISECOND)
    got = settle(play)
    assert isinstance(got[0], ConnAck)
    assert got.index(PingResp()) <= 1 + 3 * at_once, "what it asks is answered in between"
    said = [packet for packet in got if isinstance(packet, Publish)]
    assert [packet.payload for packet in said] == [b"%d" % number for number in range(1, 31)]
    assert {packet.dup for packet in said} == {is_again}
    for packet in reversed(said):
        a.send(PubAck(packet.packet_id))
    settle(play)
    assert frontend.ledger.queued == 0


def test_messages_that_many_patterns_are_asked_about_have_several_turns(play: Any) -> None:
    """500 patterns take about 2 ms for a text of 4,000 characters; of a longer one none is asked."""
    play(COME, quota=Quota(filter_patterns_max=1_000))
    texts = [f"$filter/x%20LIKE%20'%25_{number}%25'/t" for number in range(500)]
    play.client("b").send(Subscribe(1, [SubscriptionOption(text, 0) for text in texts]))
    settle(play)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    one = play.client("a").line.connection
    said = (Publish("t", b'{"x": "%s"}' % (b"a" * chars), 0) for chars in [5_000] * 3 + [4_000] * 10)
    before = frontend.ledger.published
    frontend.feed(one, b"".join(encode_packet(packet, play.dialect) for packet in said), now)
    assert one.is_held
    assert 3 < frontend.ledger.published - before <= 5
    assert frontend.node.routes.tree.too_long == 3 * 500
    settle(play)
    assert frontend.ledger.published - before == 13


def test_a_content_filter_counts_a_message_once(play: Any) -> None:
    """Where full queues refuse publishers, its readers are asked for before it is accepted."""
    play(COME.replace("CONNECT ", "CONNECT clean=0 ", 1), terms=FrontendOptions(queue_full=OverflowPolicy.REFUSE))
    play("""
    a > SUBSCRIBE $filter/value%3E1/t qos=1    a < SUBACK granted=1
    b > PUBLISH t qos=1 "2"    b < PUBACK    a < PUBLISH t qos=1 "2"
    b > PUBLISH t qos=1 "1"    b < PUBACK
    """)
    (asked,) = play.broker.frontend.node.subscriptions.by_number.values()
    assert asked.matched == 1
