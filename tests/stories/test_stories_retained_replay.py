"""The replay of retained messages to a subscription continues after a crash."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.journal.session_records import is_owed
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Connect, PubAck, Publish, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Properties, Property
from edgebroker.instants import MILLISECOND, SECOND

KEPT_FOR_AN_HOUR: tuple[Properties, Properties] = ({}, {Property.SESSION_EXPIRY_INTERVAL: 3600})
"""For version 3.1.1, and for 5."""


@pytest.mark.parametrize("texts", [["k/#"], ["k/0/#", "k/1/#", "other"]])
def test_what_is_retained_and_was_on_its_way_goes_on(play: Any, texts: list[str]) -> None:
    """All that a new subscription is owed comes, also if the gateway dies while its client has no room for more."""
    kept = 2_200
    come = "alice > CONNECT clean=0 session=3600    alice < CONNACK"
    play(f"{come}    bob > CONNECT    bob < CONNACK", FrontendOptions(queue_messages_max=100), is_stored=True)
    broker, simulation = play.broker, play.broker.simulation
    bob, alice = play.client("bob"), play.client("alice")
    for number in range(kept):
        bob.send(Publish(f"k/{number % 2}/{number}", b"x", 1, True, packet_id=number + 1))
        simulation.run_until(simulation.now + MILLISECOND)
    simulation.run_until(simulation.now + SECOND)
    assert len(broker.frontend.retained) > kept
    alice.send(Subscribe(1, [SubscriptionOption(text, 1) for text in texts]))
    simulation.run_until(simulation.now + SECOND)
    assert sum(isinstance(packet, Publish) for packet in alice.receive()) < kept // 2  # none of which is acknowledged
    broker.crash()
    simulation.run_until(simulation.now + SECOND)
    alice.receive()
    alice.send(Connect("alice", False, 0, dialect=alice.dialect, properties=KEPT_FOR_AN_HOUR[alice.dialect is V5]))
    topics = set()
    for _ in range(kept):
        simulation.run_until(simulation.now + 20 * MILLISECOND)
        for packet in alice.receive():
            if isinstance(packet, Publish):
                topics.add(packet.topic)
                alice.send(PubAck(packet.packet_id))
    assert len(topics) == kept
    session = broker.frontend.connect_handler.sessions["alice"]
    assert not any(map(is_owed, session.subscription_records.values())), "it would come again after the next crash"


@pytest.mark.parametrize("handling", [0, 1, 2])
@pytest.mark.mqtt(v5="MQTT-3.8.4-4")
def test_what_is_retained_and_on_its_way_goes_on_for_a_subscription_that_replaces_another(
    play_v5: Any, handling: int
) -> None:
    """Whatever that one wants of what is retained itself."""
    kept = 1_200
    play_v5("alice > CONNECT    alice < CONNACK    bob > CONNECT    bob < CONNACK")
    simulation, bob, alice = play_v5.broker.simulation, play_v5.client("bob"), play_v5.client("alice")
    for number in range(kept):
        bob.send(Publish(f"k/{number}", b"x", 0, True))
    simulation.run_until(simulation.now + SECOND)
    alice.send(Subscribe(1, [SubscriptionOption("k/#", 0)]))
    alice.send(Subscribe(2, [SubscriptionOption("k/#", 0, retain_handling=handling)]))
    simulation.run_until(simulation.now + 10 * SECOND)
    topics = [packet.topic for packet in alice.receive() if isinstance(packet, Publish)]
    assert len(set(topics)) == kept
    assert len(topics) == kept or not handling
