"""A gateway without a clock: what it stored in 1970 is not half a century old when it learns the time (P2)."""

from __future__ import annotations

import pytest

from edgebridge.wire.packets import Connect, Publish
from edgebroker.instants import MINUTE, SECOND
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import WALL, SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer

STORED = """
    alice > CONNECT clean=0 session=100     alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t qos=1 expiry=60 "one"               bob < PUBACK
    bob > PUBLISH kept qos=1 retain=1 expiry=60 "two"   bob < PUBACK
    wait 10s
    bob > PUBLISH kept/too qos=1 retain=1 "three"       bob < PUBACK
"""


def publish_enough_for_a_snapshot(play: TranscriptPlayer) -> None:
    bob = play.clients["bob"]
    bob.send(Connect("bob"))
    for packet_id in range(1, 20):
        bob.send(Publish("kept/too", b"x" * 4_000, 1, True, packet_id=packet_id))
    pass_time(play, 5 * SECOND)
    bob.receive()


def pass_time(play: TranscriptPlayer, length: int) -> None:
    play.broker.simulation.run_until(play.broker.simulation.now + length)


def crash(play: TranscriptPlayer) -> None:
    play.broker.crash()
    pass_time(play, 5 * SECOND)
    for client in play.clients.values():
        client.receive()


@pytest.mark.parametrize("is_said_again", [False, True], ids=["records", "snapshot"])
def test_what_was_stored_without_a_clock_ages_from_the_end_of_that_run(is_said_again: bool) -> None:
    simulation = Simulation()
    simulation.run_until(MINUTE)
    store = SimulatedStore(simulation)
    store.wall = 0
    play = TranscriptPlayer(SimulatedBroker(simulation, store=store))
    play.play(STORED)
    crash(play)
    assert play.broker.frontend.journal.clock_offset == 0
    store.wall = WALL
    for _ in range(3):  # the time is learned once
        crash(play)
        assert play.broker.frontend.journal.clock_offset == WALL
        if is_said_again:
            publish_enough_for_a_snapshot(play)
            journal = play.broker.frontend.journal.storage
            assert journal is not None
            assert journal.replay_from > 1, "there is no snapshot"
    left = 20 if is_said_again else 35
    play.play(f"""
        alice > CONNECT clean=0 session=100
        alice < CONNACK present=1    alice < PUBLISH t qos=1 expiry={left} "one"
        carl > CONNECT               carl < CONNACK
        carl > SUBSCRIBE kept        carl < SUBACK granted=0
        carl < PUBLISH kept retain=1 expiry={left} "two"
    """)
