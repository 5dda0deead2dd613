"""SUBSCRIBE and UNSUBSCRIBE with many filters run as jobs over several turns: only their own client waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edgebridge.frontend.handlers.subscribe import ENTRY_WORK, RETAINED_WORK
from edgebridge.frontend.job import WORK_AT_ONCE
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.frontend.retained_replay import REPLAY_AT_ONCE
from edgebridge.session.subscription_text import encode_subscription
from edgebridge.wire.decode import FILTERS_MAX
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import (
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
    Unsubscribe,
)
from edgebridge.wire.properties import REPEATS_MAX, Property
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import MILLISECOND, MINUTE, SECOND
from edgebroker.names import ClientId
from edgebroker.publication import Publication
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import ENDED
from edgelab.simworld.conditions import LineConditions, anywhere
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer
from tests.stories.conftest import Story

COUNT = 600
TEXTS = [f"t/{number}" for number in range(COUNT)]
AT_ONCE = WORK_AT_ONCE // ENTRY_WORK + 1
"""Filters that are done in one turn at most."""
ROOMY = Quota(filter_tests_max=1_000_000)
COME = "a > CONNECT    a < CONNACK    b > CONNECT    b < CONNACK"
STAY = "a > CONNECT clean=0 session=3600    a < CONNACK    b > CONNECT    b < CONNACK"


def asking(texts: Sequence[str], qos: int = 1, packet_id: int = 1) -> Subscribe:
    return Subscribe(packet_id, [SubscriptionOption(text, qos) for text in texts])


def octets(play: Story, *packets: Any) -> bytes:
    return b"".join(encode_packet(packet, play.dialect) for packet in packets)


def hardest(number: int) -> str:
    """A filter of 64 alternatives."""
    return encode_subscription(" AND ".join(f"(a{n} = {number} OR b{n} = 2)" for n in range(6)), "t")


def kinds(connection: Any) -> list[int]:
    """What waits to be written, by the first byte."""
    return [packet[0] for packet in connection.out]


def asked(play: Story) -> int:
    return len(play.broker.frontend.node.subscriptions.of(ClientId("a")))


def go_on(play: Story, is_done: Callable[[], bool]) -> int:
    """Turn after turn, nothing else; how many it took."""
    frontend, now = play.broker.frontend, play.broker.simulation.now
    for turn in range(1, 1_000):
        frontend.fire(now + turn * MILLISECOND)
        if is_done():
            return turn
    raise AssertionError("it takes no end")


def settle(play: Story, seconds: int = 1) -> list[Any]:
    """Let the world go on; what client a has received."""
    simulation = play.broker.simulation
    if play.client("b").is_connected:  # a turn begins when something comes
        play.client("b").send(PingReq())
    simulation.run_until(simulation.now + seconds * SECOND)
    play.client("b").receive()
    return play.client("a").receive()


@pytest.mark.parametrize("is_over", [False, True], ids=["subscribe", "unsubscribe"])
def test_packets_behind_it_wait_and_others_do_not(play: Any, is_over: bool) -> None:
    play(COME)
    if is_over:
        play.client("a").send(asking(TEXTS))
        assert len(settle(play)) == 1
    frontend, now = play.broker.frontend, play.broker.simulation.now
    one, other = (play.client(name).line.connection for name in "ab")
    before = asked(play)
    packet = Unsubscribe(2, TEXTS) if is_over else asking(TEXTS)
    frontend.feed(one, octets(play, packet, PingReq()), now)
    assert one.is_held
    assert one.out == [], "neither the answer nor, before it, PINGRESP"
    assert 0 < abs(asked(play) - before) <= AT_ONCE
    frontend.feed(other, octets(play, PingReq()), now)
    assert kinds(other) == [0xD0], "somebody else is answered at once"
    frontend.feed(one, octets(play, PingReq()), now)  # a world that reads on all the same
    last = [asked(play)]

    def is_done() -> bool:
        assert abs(asked(play) - last.pop()) <= AT_ONCE
        last.append(asked(play))
        return not one.is_held

    assert go_on(play, is_done) >= COUNT // AT_ONCE
    assert kinds(one) == [0xB0 if is_over else 0x90, 0xD0, 0xD0]
    assert asked(play) == (0 if is_over else COUNT)
    assert one.job is None
    assert one in frontend.readable
    assert not frontend.input_scheduler


def test_each_entry_has_its_answer_in_its_place(play: Any) -> None:
    play(COME)
    client = play.client("a")
    texts = [text if number % 3 else "a/#/b" for number, text in enumerate(TEXTS)]
    client.send(asking(texts))
    (answer,) = settle(play)
    assert answer == SubAck(1, answer.reasons, answer.properties)
    assert [reason >= FAILURE for reason in answer.reasons] == [not number % 3 for number in range(COUNT)]
    if play.dialect is V5:
        assert len(answer.properties[Property.REASON_STRING]) <= 1_024
    client.send(Unsubscribe(2, texts))
    (answer,) = settle(play)
    assert isinstance(answer, UnsubAck)
    if play.dialect is V5:
        gone, none = ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED
        assert answer.reasons == [gone if number % 3 else none for number in range(COUNT)]


def test_a_filter_of_many_alternatives_is_a_turns_work(play: Any) -> None:
    play(COME, quota=ROOMY)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    connection = play.client("a").line.connection
    frontend.feed(connection, octets(play, asking([hardest(number) for number in range(10)])), now)
    assert asked(play) == 1
    assert go_on(play, lambda: not connection.is_held) >= 9
    assert asked(play) == 10


def test_what_was_granted_holds_before_the_answer(play: Any) -> None:
    """A server may send what matches before SUBACK [3.1.1 and 5: MQTT 3.8.4]; each message once."""
    play(COME)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    one, other = (play.client(name).line.connection for name in "ab")
    frontend.feed(one, octets(play, asking(TEXTS)), now)
    first_and_last = [Publish("t/0", b"x", 1, packet_id=1), Publish(TEXTS[-1], b"y", 1, packet_id=2)]
    frontend.feed(other, octets(play, *first_and_last), now)
    assert kinds(one) == [0x32]
    assert kinds(other) == [0x40, 0x40]
    received = settle(play)
    assert [type(packet) for packet in received] == [Publish, SubAck]
    play.client("a").send(PubAck(received[0].packet_id))
    settle(play)
    assert (play.broker.ledger.delivered, play.broker.ledger.queued) == (1, 0)
    assert play.broker.ledger.dropped == {}


@pytest.mark.parametrize("stays", [False, True])
def test_a_client_that_goes_meanwhile(play: Any, stays: bool) -> None:
    """Nothing more is done for it. What a session was granted it has, and asks for again: it was not answered."""
    play(STAY if stays else COME)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    connection = play.client("a").line.connection
    frontend.feed(connection, octets(play, asking(TEXTS), PingReq()), now)
    frontend.fire(now + 1)
    granted = asked(play)
    assert 0 < granted < COUNT
    play.client("a").cut()
    settle(play)
    assert not frontend.input_scheduler
    assert asked(play) == (granted if stays else 0)
    assert len(frontend.node.tree) == asked(play)
    play(f"a > CONNECT clean={1 - stays:d} session={3_600 * stays}    a < CONNACK present={stays:d}")
    play.client("a").send(asking(TEXTS))
    (answer,) = settle(play)
    assert answer.reasons == [1] * COUNT
    assert asked(play) == len(frontend.node.tree) == COUNT


@pytest.mark.parametrize("stays", [False, True])
def test_a_client_that_connects_again_meanwhile(play: Any, stays: bool) -> None:
    play(STAY if stays else COME)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    old = play.client("a").line.connection
    frontend.feed(old, octets(play, asking(TEXTS)), now)
    granted = asked(play)
    new = frontend.opened("again", now)
    new.transport = old.transport
    hello = Connect("a", not stays, dialect=play.dialect)
    frontend.feed(new, octets(play, hello, asking(["other"], packet_id=9)), now)
    assert kinds(new) == [0x20, 0x90]
    assert old.closing
    go_on(play, lambda: not frontend.input_scheduler)
    assert kinds(new) == [0x20, 0x90], "nothing of the old one"
    assert asked(play) == (granted + 1 if stays else 1)
    frontend.closed(old, now)
    assert frontend.connect_handler.sessions[ClientId("a")].connection is new


# -- the disk ------------------------------------------------------------------------------------------------------


def taken_back(play: Story) -> int:
    """How many subscriptions the broker knows after its power failed."""
    play.broker.crash()
    return asked(play)


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 4, 6, 10, 15, 20, 30, 60, 200])
def test_an_answer_means_that_all_of_it_is_stored(play: Any, after_ms: int) -> None:
    """The power fails at any time. Who was answered has everything; who was not asks again."""
    play(STAY, is_stored=True)
    simulation = play.broker.simulation
    play.client("a").send(asking(TEXTS))
    simulation.run_until(simulation.now + after_ms * MILLISECOND)
    is_answered = any(isinstance(packet, SubAck) for packet in play.client("a").receive())
    kept = taken_back(play)
    assert kept == COUNT if is_answered else kept <= COUNT
    assert is_answered or after_ms < 200
    settle(play)
    play("a > CONNECT clean=0 session=3600    a < CONNACK present=1")
    play.client("a").send(asking(TEXTS))
    (answer,) = settle(play)
    assert answer.reasons == [1] * COUNT
    play.client("a").send(Unsubscribe(2, TEXTS))
    assert [type(packet) for packet in settle(play)] == [UnsubAck]
    assert taken_back(play) == 0


def test_a_disk_that_fails_meanwhile_ends_it(play: Any) -> None:
    """What was granted cannot be promised, so the client is sent away without an answer, and comes again."""
    play(STAY, is_stored=True, quota=ROOMY)
    frontend, simulation = play.broker.frontend, play.broker.simulation
    connection = play.client("a").line.connection
    play.broker.store.disk.bytes_max = 0
    play.client("a").send(asking([hardest(number) for number in range(100)]))
    received = settle(play)
    assert connection.closing
    assert not any(isinstance(packet, SubAck) for packet in received)
    if play.dialect is V5:
        assert isinstance(received[0], Disconnect)
        assert received[0].reason == ReasonCode.QUOTA_EXCEEDED
    assert 0 < asked(play) < 100
    assert not frontend.input_scheduler
    play.broker.store.disk.bytes_max = 1 << 40
    simulation.run_until(simulation.now + MINUTE)
    play("a > CONNECT clean=0 session=3600    a < CONNACK present=1")
    play.client("a").send(asking([hardest(number) for number in range(100)]))
    (answer,) = settle(play)
    assert answer.reasons == [1] * 100


# -- retained messages -----------------------------------------------------------------------------------------------


def test_retained_messages_come_behind_the_answer_and_in_turns(play: Any) -> None:
    play(COME)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    for text in TEXTS:
        frontend.retained.retain(Publication("p", text, b"x", 0, True, 0))
    connection = play.client("a").line.connection
    frontend.feed(connection, octets(play, asking(TEXTS), PingReq()), now)
    before = 0
    while connection.is_held:
        now += 1
        frontend.fire(now)
        assert frontend.ledger.published - before <= max(REPLAY_AT_ONCE, WORK_AT_ONCE // RETAINED_WORK)
        before = frontend.ledger.published
    received = settle(play)
    assert [type(packet) for packet in received] == [SubAck, *[Publish] * COUNT, PingResp]
    assert [packet.topic for packet in received[1:-1]] == TEXTS


def test_acknowledgements_are_read_while_retained_messages_wait_for_room(play: Any) -> None:
    """Many subscriptions, in one packet or one by one, whose messages are more than the queue takes."""
    kept = 600
    play(COME, FrontendOptions(queue_messages_max=100))
    frontend = play.broker.frontend
    for number in range(kept):
        frontend.retained.retain(Publication("p", f"k/{number % 30}/{number}", b"x", 1, True, 0))
    client = play.client("a")
    texts = [f"k/{number}/#" for number in range(30)]
    client.send(asking(texts[:15], qos=1))
    for number, text in enumerate(texts[15:], 2):
        client.send(Subscribe(number, [SubscriptionOption(text, 1)]))
    topics = []
    for _ in range(kept):
        play.broker.simulation.run_until(play.broker.simulation.now + 10 * MILLISECOND)
        for packet in client.receive():
            if isinstance(packet, Publish):
                topics.append(packet.topic)
                client.send(PubAck(packet.packet_id))
    assert sorted(topics) == sorted(f"k/{number % 30}/{number}" for number in range(kept))
    assert frontend.ledger.dropped == {}


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_so_many_filters_may_stand_in_one_packet(play: Any) -> None:
    play(COME)
    for packet in (asking(["t"] * FILTERS_MAX), Unsubscribe(2, ["t"] * FILTERS_MAX)):
        play.client("a").send(packet)
        assert [type(answer) for answer in settle(play)] == [SubAck if isinstance(packet, Subscribe) else UnsubAck]
    for packet in (asking(["t"] * (FILTERS_MAX + 1)), Unsubscribe(2, ["t"] * (FILTERS_MAX + 1))):
        play.client("a").send(packet)
        *said, end = settle(play)
        assert end is ENDED
        if play.dialect is V5:
            assert said[0].reason == ReasonCode.QUOTA_EXCEEDED
            assert "more than 4,096 topic filters" in said[0].properties[Property.REASON_STRING]
        play("a > CONNECT    a < CONNACK")


def test_so_many_user_properties_may_a_packet_have(play_v5: Any) -> None:
    user: Any = {Property.USER_PROPERTY: [("k", "v")] * REPEATS_MAX}
    play_v5(COME)
    client = play_v5.client("a")
    client.send(Publish("t", b"x", 1, packet_id=1, properties=user))
    assert [type(packet) for packet in settle(play_v5)] == [PubAck]
    user[Property.USER_PROPERTY].append(("k", "v"))
    for packet in (Publish("t", b"x", 1, packet_id=1, properties=user), Connect("a", properties=user)):
        client.send(packet)
        said, end = settle(play_v5)
        assert end is ENDED
        assert said.reason == ReasonCode.QUOTA_EXCEEDED
        assert "USER_PROPERTY occurs more than 2,048 times" in said.properties[Property.REASON_STRING]


def test_what_waits_behind_a_job_counts_as_memory(play: Any) -> None:
    play(COME, quota=Quota(memory_bytes_max=100_000, filter_tests_max=1_000_000))
    frontend, now = play.broker.frontend, play.broker.simulation.now
    connection = play.client("a").line.connection
    frontend.feed(connection, octets(play, asking([hardest(number) for number in range(100)] + TEXTS)), now)
    assert connection.job_bytes >= 100 * (COUNT + 100)
    frontend.memory_limit.check(now)
    assert connection.closing


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_turns(seed: int) -> None:
    def digest() -> str:
        simulation = Simulation(seed)
        player = TranscriptPlayer(
            SimulatedBroker(simulation, store=SimulatedStore(simulation)), V5, LineConditions(chop=anywhere)
        )
        player.play(STAY)
        player.clients["a"].send(asking(TEXTS))
        player.clients["b"].send(asking(TEXTS))
        simulation.run_until(simulation.now + SECOND)
        return player.broker.digest

    assert digest() == digest()
