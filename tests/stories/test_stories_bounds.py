"""P6 and P7 at their edges: what one client can make the broker hold, and accounts that stay right when it does."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect
from edgebroker.log_schema import Cause

PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""


def test_a_client_cannot_widen_its_window_beyond_ours(play_v5: Any) -> None:
    """Who announces 65,535 and acknowledges nothing would make the broker hold as many messages."""
    play_v5(
        """
        alice > CONNECT receive-max=65535    alice < CONNACK
        bob   > CONNECT                         bob   < CONNACK
        alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
        """,
        FrontendOptions(inflight_max=2),
    )
    play_v5("""
    bob > PUBLISH t qos=1 id=1 "1"    bob < PUBACK id=1    alice < PUBLISH t qos=1 id=1 "1"
    bob > PUBLISH t qos=1 id=2 "2"    bob < PUBACK id=2    alice < PUBLISH t qos=1 id=2 "2"
    bob > PUBLISH t qos=1 id=3 "3"    bob < PUBACK id=3
    alice > PUBACK id=1               alice < PUBLISH t qos=1 id=3 "3"
    """)


def test_what_a_reader_leaves_unacknowledged_is_bounded_in_bytes(play: Any) -> None:
    play(PAIR, FrontendOptions(queue_bytes_max=1_000))
    play("alice > SUBSCRIBE t qos=1    alice < SUBACK granted=1")
    large = "x" * 600
    for number in (1, 2):  # the window is closed by what passes the bound, so one message of any size gets through
        play(f'bob > PUBLISH t qos=1 "{large}"    bob < PUBACK    alice < PUBLISH t qos=1 id={number} "{large}"')
    play(f'bob > PUBLISH t qos=1 "{large}"    bob < PUBACK')
    play(f'bob > PUBLISH t qos=1 "{large}"    bob < PUBACK')
    assert play.dropped(Cause.QUEUE_FULL) == 1
    play(f'alice > PUBACK id=1    alice < PUBLISH t qos=1 id=3 "{large}"')
    play("alice > PUBACK id=2    alice > PUBACK id=3")
    assert (play.broker.ledger.delivered, play.broker.ledger.queued) == (3, 0)


def test_topics_and_properties_count_in_the_queue(play_v5: Any) -> None:
    """Without payload, a message may still hold 64 KiB of topic and megabytes of properties."""
    play_v5(
        """
        alice > CONNECT clean=0 session=60    alice < CONNACK
        bob   > CONNECT                                       bob   < CONNACK
        """,
        FrontendOptions(queue_bytes_max=1_000),
    )
    play_v5(f"""
    alice > SUBSCRIBE # qos=1                             alice < SUBACK granted=1
    alice > DISCONNECT
    bob   > PUBLISH t/{"x" * 600} qos=1                   bob   < PUBACK
    bob   > PUBLISH t qos=1 type={"y" * 600}      bob   < PUBACK
    """)
    assert play_v5.dropped(Cause.QUEUE_FULL) == 1


def test_topics_and_properties_count_in_the_store_of_retained_messages(play_v5: Any) -> None:
    play_v5(PAIR, FrontendOptions(retained_bytes_max=1_000))
    play_v5(f"""
    bob > PUBLISH t/{"x" * 600} qos=1 retain=1 "1"                   bob < PUBACK
    bob > PUBLISH t qos=1 retain=1 type={"y" * 600} "2"      bob < PUBACK reason=0x97
    """)


@pytest.mark.parametrize("kind", ["82", "a2"], ids=["SUBSCRIBE", "UNSUBSCRIBE"])
def test_only_a_publish_may_be_large(play: Any, kind: str) -> None:
    """A SUBSCRIBE of 16 MiB would become four million objects. It is refused by its length, before it arrives."""
    play(PAIR)
    good_bye = "alice < DISCONNECT reason=0x95" if play.dialect.has_reasons else ""
    play(f"alice > 0x{kind}80802000    {good_bye}    alice < CLOSED")


def test_own_messages_held_back_are_filtered_for_that_reason(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("alice > SUBSCRIBE t no-local=1    alice < SUBACK granted=0")
    asked: list[Cause] = []
    ledger = play_v5.broker.ledger
    ledger.set_log(Eavesdropper(asked))
    play_v5('alice > PUBLISH t "own"')
    ledger.set_log(None)
    assert asked == [Cause.OWN_MESSAGE]


class Eavesdropper:
    """A delivery log that notes why messages were filtered."""

    sample_qos0 = 1

    def __init__(self, causes: list[Cause]) -> None:
        self._causes = causes

    def published(self, *_: object) -> None:
        pass

    def filtered(self, *fact: Any) -> None:
        self._causes.append(fact[6])


def test_a_reader_taken_over_while_it_stalls_did_not_get_what_waited(play: Any) -> None:
    """P7: the world does not write to who does not read, so its QoS 0 messages are lost, not delivered."""
    play(PAIR)
    play('alice > SUBSCRIBE t    alice < SUBACK granted=0    alice stalls    bob > PUBLISH t "1"')
    play('bob > PUBLISH t "2"    bob > PUBLISH t "3"')
    before = play.broker.ledger.delivered
    waiting = sum(connection.out_messages for connection in play.broker.frontend.connections.values())
    assert waiting
    connection = next(iter(play.broker.frontend.connections.values()))
    assert connection.paused
    again = encode_packet(Connect(connection.session.client_id, dialect=connection.dialect), connection.dialect)
    now = play.broker.simulation.now
    play.broker.frontend.feed(play.broker.frontend.opened("elsewhere", now), again, now)
    assert play.broker.ledger.delivered == before
    assert play.dropped(Cause.CONNECTION_LOST) == waiting
