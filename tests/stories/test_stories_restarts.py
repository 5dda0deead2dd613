"""What was promised or granted before a restart holds after it, whatever the settings say by then (P1)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from edgebridge.frontend.terms import Terms
from edgebridge.session.durability import batched
from edgebroker.node.node import Node


def test_what_was_promised_holds_after_a_restart_too(play_v5: Any) -> None:
    """Until the client comes again: whatever holds by then for those who come, and by whichever door it came."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=0 user.filter=1 user.durability=sync
    alice > SUBSCRIBE t/# qos=1          alice < SUBACK granted=1
    alice cut
    """,
        is_stored=True,
    )
    broker = play_v5.broker
    broker._terms = Terms(durability=batched(60_000))
    play_v5("""
    broker crashes
    bob > CONNECT                        bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"        bob < PUBACK
    broker crashes                       bob < CLOSED
    """)
    assert str(broker.frontend.connecting.sessions["alice"].durability) == "sync"
    play_v5("""
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1 user.filter=1 user.durability=batched:60000
    alice < PUBLISH t/1 qos=1 "one"
    alice > PUBACK
    alice cut
    wait 61s
    broker crashes
    """)
    assert str(broker.frontend.connecting.sessions["alice"].durability) == "batched:60000"


@pytest.mark.parametrize("chars", [1, 300])
def test_subscriptions_survive_a_quota_that_grants_fewer(
    play: Any, chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were granted. Two there may be by then, of 512 characters together: one too many, or 88 of these."""
    asked = [letter * chars for letter in ("ab" if chars > 1 else "abc")]
    play("alice > CONNECT clean=0 session=3600    alice < CONNACK present=0", is_stored=True)
    for text in asked:
        play(f"alice > SUBSCRIBE {text} qos=1     alice < SUBACK granted=1")
    monkeypatch.setattr("edgebroker.simworld.network.Node", partial(Node, subscriptions_per_client_max=2))
    monkeypatch.setattr("edgebroker.node.node.TOPIC_BYTES_MAX", 0)
    play("broker crashes    alice < CLOSED")
    play("alice > CONNECT clean=0 session=3600    alice < CONNACK present=1")
    for text in asked:
        play(f'alice > PUBLISH {text} "x"         alice < PUBLISH {text} "x"')
        play(f"alice > SUBSCRIBE {text} qos=1     alice < SUBACK granted=1")
    play("alice > SUBSCRIBE another qos=1    alice < SUBACK granted=0x97")
