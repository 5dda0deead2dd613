"""A crash between two records of one transaction: both take effect after recovery, or neither (P2, P3)."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.packets import Connect, PubComp, Publish, PubRec
from edgebridge.wire.properties import Property
from edgebroker.instants import MILLISECOND, SECOND
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer

KEPT = "CONNECT clean=0 session=3600"
CRASHES = 20
TEAM = f"""
    bob   > CONNECT                       bob   < CONNACK
    alice > {KEPT}                        alice < CONNACK
    carl  > {KEPT}                        carl  < CONNACK
    alice > SUBSCRIBE $share/g/t qos=2    alice < SUBACK granted=2
    carl  > SUBSCRIBE $share/g/t qos=2    carl  < SUBACK granted=2
"""


def stored(seed: int, terms: FrontendOptions | None = None) -> TranscriptPlayer:
    simulation = Simulation(seed)
    return TranscriptPlayer(SimulatedBroker(simulation, terms, store=SimulatedStore(simulation)))


def crash_while_syncing(play: TranscriptPlayer, after_us: int) -> None:
    """The power fails while the next sync, a slow one, is under way."""
    assert play.broker.store is not None
    disk = play.broker.store.disk
    usual, disk.sync_us = disk.sync_us, (SECOND, SECOND)
    play.broker.simulation.run_until(play.broker.simulation.now + after_us)
    play.broker.crash()
    play.broker.store.disk.sync_us = usual


def come_back(play: TranscriptPlayer, *names: str) -> None:
    """What is on its way arrives, then *names* come again to their sessions."""
    pass_time(play, SECOND)
    for name in names:
        play.clients[name].cut()
        pass_time(play, SECOND)
        play.clients[name].send(Connect(name, False, properties={Property.SESSION_EXPIRY_INTERVAL: 3_600}))
    pass_time(play, SECOND)


def pass_time(play: TranscriptPlayer, length: int) -> None:
    play.broker.simulation.run_until(play.broker.simulation.now + length)


def heard(play: TranscriptPlayer, name: str) -> list[bytes]:
    return [packet.payload for packet in play.clients[name].receive() if isinstance(packet, Publish)]


@pytest.mark.parametrize("number", range(CRASHES))
def test_what_a_group_hands_over_comes_once_wherever_the_power_fails(seed: int, number: int) -> None:
    """At QoS 2 the heir has it only when it is on disk that it is the heir's."""
    play = stored(seed + number, FrontendOptions(inflight_max=1))
    play.play(TEAM)
    play.play(f"""
    bob   > PUBLISH t qos=2 id=1 "one"    alice < PUBLISH t qos=2 "one"    bob < PUBREC
    bob   > PUBLISH t qos=2 id=2 "two"    carl  < PUBLISH t qos=2 "two"    bob < PUBREC
    bob   > PUBLISH t qos=2 id=3 "{"x" * 600}"  bob   < PUBREC
    carl  > PUBREC                        carl  < PUBREL
    carl  > PUBCOMP
    wait 1s
    """)
    assert [len(play.broker.frontend.connect_handler.sessions[name].outbox) for name in ("alice", "carl")] == [1, 0]
    play.clients["alice"].cut()
    crash_while_syncing(play, 500 * MILLISECOND)
    assert heard(play, "carl") == [], "what is not on disk was said"
    come_back(play, "carl", "alice")
    assert (heard(play, "alice") + heard(play, "carl")).count(b"x" * 600) == 1


@pytest.mark.parametrize("number", range(CRASHES))
def test_a_will_at_qos_2_comes_once_wherever_the_power_fails(seed: int, number: int) -> None:
    play = stored(seed + number)
    play.play(f"""
    watch > {KEPT}                  watch < CONNACK
    watch > SUBSCRIBE will qos=1    watch < SUBACK granted=1
    alice > {KEPT} will=will will-qos=2 will-payload="{"x" * 600}"    alice < CONNACK
    """)
    play.clients["alice"].cut()
    crash_while_syncing(play, 500 * MILLISECOND)
    assert heard(play, "watch") == [], "what is not on disk was said"
    come_back(play, "watch")
    assert heard(play, "watch") == [b"x" * 600]


@pytest.mark.parametrize("number", range(CRASHES))
@pytest.mark.parametrize("policy", [OverflowPolicy.KEEP_LAST, OverflowPolicy.DROP_OLDEST, OverflowPolicy.DOWN_SAMPLE])
def test_nothing_leaves_a_queue_before_what_takes_its_place_is_there(
    seed: int, number: int, policy: OverflowPolicy
) -> None:
    play = stored(seed + number, FrontendOptions(queue_full=policy, queue_messages_max=1))
    play.play(f"""
    bob   > CONNECT               bob   < CONNACK
    alice > {KEPT}                alice < CONNACK
    alice > SUBSCRIBE t qos=1     alice < SUBACK granted=1
    alice cut
    bob   > PUBLISH t qos=1 "{"x" * 600}"    bob < PUBACK
    wait 1s
    """)
    play.clients["bob"].send(Publish("t", b"y" * 600, 1, packet_id=2))
    crash_while_syncing(play, 500 * MILLISECOND)
    come_back(play, "alice")
    assert heard(play, "alice"), "what was acknowledged is lost"


def test_a_session_expires_although_the_gateway_is_hardly_ever_on(play_v5: Any) -> None:
    """Whose client was there when the power failed is gone since then, and not since every later start again."""
    play_v5(
        """
    alice > CONNECT clean=0 session=10    alice < CONNACK present=0
    broker crashes                        alice < CLOSED
    wait 6s
    broker crashes
    wait 6s
    alice > CONNECT clean=0 session=10    alice < CONNACK present=0
    """,
        is_stored=True,
    )


def test_a_will_is_published_although_the_gateway_is_hardly_ever_on(play_v5: Any) -> None:
    play_v5(
        f"""
    watch > {KEPT}                  watch < CONNACK
    watch > SUBSCRIBE will qos=1    watch < SUBACK granted=1
    alice > {KEPT} will=will will-qos=1 will-delay=10 will-payload="died"    alice < CONNACK
    broker crashes                  watch < CLOSED    alice < CLOSED
    wait 6s
    broker crashes
    wait 6s
    watch > {KEPT}
    watch < CONNACK present=1
    watch < PUBLISH will qos=1 "died"
    """,
        is_stored=True,
    )


def test_who_waits_for_its_window_does_not_get_what_is_not_on_disk(seed: int) -> None:
    """Else a power cut would make it a message that was never taken, and its second coming a duplicate."""
    play = stored(seed)
    play.play(f"""
    alice > CONNECT clean=1 receive-max=1          alice < CONNACK
    alice > SUBSCRIBE t qos=2                      alice < SUBACK granted=2
    bob   > {KEPT}                                 bob   < CONNACK
    bob   > PUBLISH t qos=2 id=1 "one"             alice < PUBLISH t qos=2 "one"    bob < PUBREC id=1
    """)
    alice, bob, broker = play.clients["alice"], play.clients["bob"], play.broker
    assert broker.store is not None
    broker.store.disk.sync_us = (SECOND, SECOND)
    bob.send(Publish("t", b"two", 2, packet_id=2))
    pass_time(play, 10 * MILLISECOND)
    alice.send(PubRec(1))
    pass_time(play, 10 * MILLISECOND)
    alice.send(PubComp(1))
    pass_time(play, 900 * MILLISECOND)
    assert heard(play, "alice") == []
    pass_time(play, 2 * SECOND)
    assert heard(play, "alice") == [b"two"]
