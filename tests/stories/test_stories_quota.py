"""How much one client may ask: nobody's input holds the others up, and what is too much is slowed down or refused."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.input_scheduler import QUIET_INTERVAL, REST_INTERVAL
from edgebridge.frontend.job import WORK_AT_ONCE
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.frontend.retained_replay import REPLAY_AT_ONCE
from edgebridge.session.subscription_text import encode_subscription
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PingReq, PubAck, Publish, Subscribe, SubscriptionOption, Unsubscribe
from edgebridge.wire.reasons import ReasonCode
from edgebroker.filters import Filter
from edgebroker.instants import SECOND
from edgebroker.log_schema import Cause
from edgebroker.publication import Publication

KEPT = 5 * REPLAY_AT_ONCE
COME = "a > CONNECT    a < CONNACK"


def keep(play: Any, count: int = KEPT, qos: int = 0) -> None:
    """Retained messages under k/, as if published long ago."""
    for number in range(count):
        play.broker.frontend.retained.retain(Publication("p", f"k/{number}", b"%d" % number, qos, True, 0))


def published(play: Any, name: str) -> list[str]:
    return [packet.topic for packet in play.client(name).receive() if isinstance(packet, Publish)]


# -- retained messages in slices -------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_many_retained_messages_come_all_the_same(play: Any, qos: int) -> None:
    """In slices, none twice, none lost: a queue of 1,000 would have been too short for them all at once."""
    play("a > CONNECT receive-max=65535    a < CONNACK", FrontendOptions(queue_messages_max=100))
    keep(play, qos=qos)
    client = play.client("a")
    client.send(Subscribe(1, [SubscriptionOption("k/#", qos)]))
    topics: list[str] = []
    for _ in range(200):
        play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
        for packet in client.receive():
            if isinstance(packet, Publish):
                topics.append(packet.topic)
                if qos:
                    client.send(PubAck(packet.packet_id))
    assert topics == [f"k/{number}" for number in range(KEPT)]
    assert play.broker.ledger.dropped == {}
    assert play.broker.ledger.queued == 0


def test_one_turn_of_them_is_bounded(play: Any) -> None:
    """However many subscriptions ask for however many retained messages: others come in between."""
    play(COME)
    keep(play)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    connection = play.client("a").line.connection
    before = play.broker.ledger.published
    asked = b"".join(encode_packet(Subscribe(1, [SubscriptionOption("#")]), play.dialect) for _ in range(1_000))
    frontend.feed(connection, asked, now)
    assert connection.is_held
    assert connection.session.replays
    assert play.broker.ledger.published - before <= REPLAY_AT_ONCE
    frontend.fire(now + 1)
    assert play.broker.ledger.published - before <= 2 * REPLAY_AT_ONCE
    assert len(connection.session.replays) == 1  # the same one, again and again


def test_who_does_not_read_gets_no_more(play: Any) -> None:
    """What does not fit waits in the store, not in memory, and nothing is dropped."""
    play(COME, FrontendOptions(out_bytes_max=16_384))
    keep(play)
    play.client("a").line.stall()
    play.client("a").send(Subscribe(1, [SubscriptionOption("k/#")]))
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    connection = play.client("a").line.connection
    assert 0 < connection.out_bytes < 16_384
    assert play.broker.ledger.published < KEPT
    play.client("a").line.resume()
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    assert published(play, "a") == [f"k/{number}" for number in range(KEPT)]
    assert play.broker.ledger.dropped == {}


def test_the_rest_comes_after_a_reconnect(play: Any) -> None:
    play("a > CONNECT clean=0 session=3600    a < CONNACK", FrontendOptions(out_bytes_max=16_384))
    keep(play)
    play.client("a").line.stall()
    play.client("a").send(Subscribe(1, [SubscriptionOption("k/#")]))
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    sent = play.broker.ledger.published
    play.client("a").cut()
    client = play.client("a")
    client.receive()
    client.open()
    connect = Connect("a", False, 0, dialect=play.dialect)
    client.send(connect)
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    assert published(play, "a") == [f"k/{number}" for number in range(sent, KEPT)]


def test_an_unsubscribed_filter_gets_no_more(play: Any) -> None:
    play(COME, FrontendOptions(out_bytes_max=16_384))
    keep(play)
    play.client("a").line.stall()
    play.client("a").send(Subscribe(1, [SubscriptionOption("k/#")]))
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    sent = play.broker.ledger.published
    play.client("a").send(Unsubscribe(2, ["k/#"]))
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    play.client("a").line.resume()
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    assert len(published(play, "a")) == sent
    assert not play.client("a").line.connection.session.replays


def test_the_store_may_change_meanwhile(play: Any) -> None:
    """What is cleared does not come any more, and what is new comes once, as it is published."""
    play(COME + "    b > CONNECT    b < CONNACK", FrontendOptions(out_bytes_max=16_384))
    keep(play)
    play.client("a").line.stall()
    play.client("a").send(Subscribe(1, [SubscriptionOption("k/#", 1)]))
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    retained = play.broker.frontend.retained
    for number in range(KEPT - 100, KEPT):
        retained.clear(f"k/{number}")
    retained.retain(Publication("p", "k/new", b"x", 0, True, 0))
    play.client("a").line.resume()
    play.broker.simulation.run_until(play.broker.simulation.now + SECOND)
    assert published(play, "a") == [f"k/{number}" for number in range(KEPT - 100)]


# -- packets in turns ------------------------------------------------------------------------------------------


def test_a_flood_of_packets_takes_turns(play: Any) -> None:
    """Two who flood and one who asks once: nobody waits for the whole of a flood, and all are answered in order."""
    play("a > CONNECT    a < CONNACK    b > CONNECT    b < CONNACK    c > CONNECT    c < CONNACK")
    frontend, now = play.broker.frontend, play.broker.simulation.now
    ping = encode_packet(PingReq(), play.dialect)
    one, two, three = (play.client(name).line.connection for name in "abc")
    frontend.feed(one, ping * 1_000, now)
    frontend.feed(two, ping * 300, now)
    frontend.feed(three, ping, now)
    assert (len(one.out), len(two.out), len(three.out)) == (128, 128, 1)
    frontend.fire(now + 1)
    frontend.fire(now + 2)
    assert (len(one.out), len(two.out)) == (256, 256)
    frontend.feed(one, ping, now + 2)  # a world that reads on all the same: it waits its turn
    for step in range(3, 30):
        frontend.fire(now + step)
    assert (len(one.out), len(two.out)) == (1_001, 300)
    assert not one.is_held
    assert not len(frontend.input_scheduler)


def test_who_floods_waits_for_those_who_do_not(play: Any) -> None:
    """Cut short, it goes on when nobody else has said anything for a moment, and after ten turns' time anyway."""
    play("a > CONNECT    a < CONNACK    b > CONNECT    b < CONNACK")
    frontend, now = play.broker.frontend, play.broker.simulation.now
    ping = encode_packet(PingReq(), play.dialect)
    flood, other = (play.client(name).line.connection for name in "ab")
    frontend.feed(flood, ping * 1_000, now)
    frontend.fire(now + 1)
    assert len(flood.out) == 256, "nobody else is here: in the next turn"
    busy = now + 1
    while len(flood.out) == 256:
        frontend.feed(other, ping, busy)
        busy += QUIET_INTERVAL
        frontend.fire(busy)
    assert busy - now >= REST_INTERVAL, "somebody was, all the time"
    frontend.feed(other, ping, busy)
    frontend.fire(busy + QUIET_INTERVAL)
    assert len(flood.out) == 384
    frontend.fire(busy + 2 * QUIET_INTERVAL)
    assert len(flood.out) == 512, "nobody said anything for a moment"


def test_who_takes_more_than_its_turn_waits_longer(play: Any) -> None:
    """A content filter is read in one go: this one is three turns' work, so who brings it waits three times as long."""
    play("a > CONNECT    a < CONNACK    b > CONNECT    b < CONNACK")
    frontend, now = play.broker.frontend, play.broker.simulation.now
    text = " OR ".join(f"a{n} > {n}" for n in range(48))
    bomb = encode_packet(Subscribe(1, [SubscriptionOption(encode_subscription(text, "t"))]), play.dialect)
    ping = encode_packet(PingReq(), play.dialect)
    flood, other = (play.client(name).line.connection for name in "ab")
    frontend.feed(flood, bomb * 2, now)
    assert len(flood.out) == 1
    parts = Filter.parse(text).work / WORK_AT_ONCE
    assert 2 < parts < 4
    busy = now
    while len(flood.out) == 1:
        frontend.feed(other, ping, busy)
        busy += QUIET_INTERVAL
        frontend.fire(busy)
    assert busy - now >= REST_INTERVAL * parts


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_with_many_copies_or_new_topics_count_too(play: Any, qos: int) -> None:
    """A flood of short packets can be as much work as one of long ones."""
    play("a > CONNECT    a < CONNACK")
    frontend, now = play.broker.frontend, play.broker.simulation.now
    for number in range(20 * qos):
        play(f"r{number} > CONNECT    r{number} < CONNACK")
        play(f"r{number} > SUBSCRIBE t/1 qos=1    r{number} < SUBACK granted=1")
    flood = play.client("a").line.connection
    before = frontend.ledger.published
    topics = (f"t/{1 if qos else number}" for number in range(2_000))
    packets = [Publish(topic, b"x", qos, packet_id=qos) for topic in topics]
    frontend.feed(flood, b"".join(encode_packet(packet, play.dialect) for packet in packets), now)
    assert flood.is_held
    assert frontend.ledger.published - before < 130


def test_keep_alive_does_not_run_while_we_do_not_listen(play: Any) -> None:
    play("a > CONNECT keep-alive=10    a < CONNACK", quota=Quota(publish_bytes_per_s=10))
    play(f'a > PUBLISH t "{"x" * 400}"')
    assert play.client("a").line.connection.is_held
    play("wait 30s")
    play("a > PINGREQ")
    play("wait 20s    a < PINGRESP")


@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_an_oversized_subscribe_is_refused(play: Any, first: int) -> None:
    play(COME)
    play(f"a > 0x{first:02x}80800c    a < DISCONNECT reason=0x95 why~'the limit is 131072'    a < CLOSED")


# -- rates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_who_publishes_too_fast_is_read_more_slowly(play: Any, qos: int) -> None:
    """10 a second: 10 at once, the rest at that rate, and none is lost."""
    play(
        COME + "    s > CONNECT    s < CONNACK    s > SUBSCRIBE t    s < SUBACK granted=0",
        quota=Quota(publish_messages_per_s=10),
    )
    client, simulation = play.client("a"), play.broker.simulation
    for number in range(60):
        client.send(Publish("t", b"%d" % number, qos, packet_id=number + 1 if qos else 0))
        simulation.run_until(simulation.now + SECOND // 1_000)
    assert 10 <= len(published(play, "s")) <= 13
    assert client.line.connection.is_held
    simulation.run_until(simulation.now + SECOND)
    assert len(published(play, "s")) >= 47  # what had come meanwhile, in one go; it is paid for by a longer pause
    client.send(Publish("t", b"last", qos, packet_id=61 if qos else 0))
    simulation.run_until(simulation.now + 3 * SECOND)
    assert published(play, "s") == []
    simulation.run_until(simulation.now + 3 * SECOND)
    assert published(play, "s") == ["t"]
    assert play.broker.frontend.input_scheduler.slowed
    assert play.broker.ledger.dropped == {}


def test_bytes_a_second(play: Any) -> None:
    play(COME, quota=Quota(publish_bytes_per_s=1_000))
    play(f'a > PUBLISH t "{"x" * 4_000}"')
    connection = play.client("a").line.connection
    assert connection.is_held
    play("a > PINGREQ    wait 2s")
    assert connection.is_held
    play("wait 2s    a < PINGRESP")


# -- before CONNECT --------------------------------------------------------------------------------------------


def test_a_connect_is_small(play: Any) -> None:
    play("a opens    a > 0x10ffff7f    a < CLOSED", quota=Quota(connect_bytes_max=1_000))
    play(f'b > CONNECT will=t will-payload="{"x" * 1_000}"    b < CLOSED')
    play(f'c > CONNECT will=t will-payload="{"x" * 900}"    c < CONNACK')


def test_a_storm_is_turned_away(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", quota=Quota(connects_per_s=3, connects_per_address_per_s=2))
    frontend, now = play.broker.frontend, play.broker.simulation.now
    one = [frontend.opened(f"192.0.2.1:{port}", now).closing for port in range(25)]
    assert one == [False] * 20 + [True] * 5
    other = [frontend.opened(f"192.0.2.2:{port}", now).closing for port in range(15)]
    assert other == [False] * 9 + [True] * 6  # what all have together: 30, one of them was w
    assert frontend.connection_rate.rejected == frontend.disconnector.counts[ReasonCode.CONNECTION_RATE_EXCEEDED] == 11
    later = [frontend.opened(f"192.0.2.1:{port}", now + SECOND).closing for port in range(3)]
    assert later == [False, False, True]


# -- memory ----------------------------------------------------------------------------------------------------


def test_the_largest_holder_goes_first(play: Any) -> None:
    """One who does not read holds most of it and is cut off; queues go next, and the others stay."""
    play(
        """
        slow > CONNECT                            slow < CONNACK
        slow > SUBSCRIBE big                      slow < SUBACK granted=0
        away > CONNECT clean=0 session=3600       away < CONNACK
        away > SUBSCRIBE some qos=1               away < SUBACK granted=1
        away leaves
        p > CONNECT                               p < CONNACK
        """,
        quota=Quota(memory_bytes_max=100_000),
    )
    frontend = play.broker.frontend
    play.client("slow").line.stall()
    play(f'p > PUBLISH some qos=1 "{"x" * 5_000}"    p < PUBACK')
    for _ in range(12):  # the first goes to the transport, which takes no more then
        play(f'p > PUBLISH big "{"x" * 6_000}"')
    frontend.memory_limit.check(play.broker.simulation.now)
    assert 75_000 < frontend.memory_limit.held_bytes < 85_000
    assert frontend.memory_limit.relieved == 0
    for _ in range(5):
        play(f'p > PUBLISH big "{"x" * 6_000}"')
    frontend.memory_limit.check(play.broker.simulation.now)
    play("p > PINGREQ    p < PINGRESP    wait 1s")
    assert frontend.memory_limit.relieved == 1
    assert frontend.memory_limit.held_bytes < 20_000
    assert [connection.session.client_id for connection in frontend.connections.values()] == ["p"]
    frontend.memory_limit.accounts.set_bound(4_000)
    frontend.memory_limit.check(play.broker.simulation.now)
    assert play.broker.ledger.dropped[Cause.MEMORY_FULL] == 1
    assert not frontend.connect_handler.sessions["away"].outbox


def test_nobody_new_comes_while_memory_is_tight(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", quota=Quota(memory_bytes_max=100_000))
    frontend = play.broker.frontend
    frontend.retained.memory_bytes_max = 100_000
    frontend.retained.retain(Publication("p", "k", bytes(92_000), 0, True, 0))
    frontend.memory_limit.check(play.broker.simulation.now)
    assert frontend.opened("x:1", play.broker.simulation.now).closing
    frontend.retained.clear("k")
    play("wait 1s")
    assert not frontend.opened("x:2", play.broker.simulation.now).closing


def test_it_is_measured_as_bytes_come(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebridge.frontend.memory_limit.STEP_BYTES", 100)
    play(COME, quota=Quota(memory_bytes_max=160_000))
    memory = play.broker.frontend.memory_limit
    assert memory.due == 20_000
    for _ in range(5):
        play(f'a > PUBLISH k retain=1 "{"x" * 5_000}"')
    assert 8_000 < memory.held_bytes < 15_000  # with what has come of the next message
    assert memory.unmeasured < memory.due < 20_000
