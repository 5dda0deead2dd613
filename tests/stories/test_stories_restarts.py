"""What was promised or granted before a restart holds after it, whatever the settings say by then (P1)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.durability import MEMORY, batched
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
    broker.options = FrontendOptions(durability=batched(60_000))
    play_v5("""
    broker crashes
    bob > CONNECT                        bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"        bob < PUBACK
    broker crashes                       bob < CLOSED
    """)
    assert str(broker.frontend.connect_handler.sessions["alice"].durability) == "sync"
    play_v5("""
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1 user.filter=1 user.durability=batched:60000
    alice < PUBLISH t/1 qos=1 "one"
    alice > PUBACK
    alice cut
    wait 61s
    broker crashes
    """)
    assert str(broker.frontend.connect_handler.sessions["alice"].durability) == "batched:60000"


@pytest.mark.parametrize("chars", [1, 300])
def test_subscriptions_survive_a_quota_that_grants_fewer(
    play: Any, chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were granted. Two there may be by then, of 512 characters together: one too many, or 88 of these."""
    asked = [letter * chars for letter in ("ab" if chars > 1 else "abc")]
    play("alice > CONNECT clean=0 session=3600    alice < CONNACK present=0", is_stored=True)
    for text in asked:
        play(f"alice > SUBSCRIBE {text} qos=1     alice < SUBACK granted=1")
    monkeypatch.setattr("edgelab.simworld.broker.Node", partial(Node, subscriptions_per_client_max=2))
    monkeypatch.setattr("edgebroker.node.node.TOPIC_BYTES_MAX", 0)
    play("broker crashes    alice < CLOSED")
    play("alice > CONNECT clean=0 session=3600    alice < CONNACK present=1")
    for text in asked:
        play(f'alice > PUBLISH {text} "x"         alice < PUBLISH {text} "x"')
        play(f"alice > SUBSCRIBE {text} qos=1     alice < SUBACK granted=1")
    play("alice > SUBSCRIBE another qos=1    alice < SUBACK granted=0x97")


@pytest.mark.parametrize("session", ["clean=1", "clean=0 session=3600"])
@pytest.mark.parametrize("publish", ["qos=1", "qos=1 id=9 dup=1", "qos=2"])
def test_what_a_publisher_was_promised_holds_where_readers_were_promised_less(
    play_v5: Any, session: str, publish: str
) -> None:
    """Its acknowledgement waits for the disk, though for nothing that the reader is told."""
    play_v5(
        f"""
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=0 user.filter=1 user.durability=batched:90
    alice > SUBSCRIBE t/# qos=2          alice < SUBACK granted=2
    alice cut
    wait 1s
    bob > CONNECT {session}
    bob < CONNACK present=0 user.filter=1 user.durability=sync
    bob > PUBLISH t/1 {publish} "one"    bob < {"PUBREC" if "qos=2" in publish else "PUBACK"}
    broker crashes                       bob < CLOSED
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/1 {publish[:5]} "one"
    """,
        FrontendOptions(durability_by_client=(("alice", batched(90)),)),
        is_stored=True,
    )


def test_nobody_waits_where_all_were_promised_less(play_v5: Any) -> None:
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK    alice < PUBLISH t/1 qos=1 "one"
    carol > CONNECT                         carol < CONNACK
    """,
        FrontendOptions(durability=batched(90), durability_by_client=(("carol", MEMORY),)),
        is_stored=True,
    )
    play_v5("""carol > PUBLISH t/1 qos=1 "two"    carol < PUBACK    alice < PUBLISH t/1 qos=1 "two" """)
    assert play_v5.broker.frontend.journal.synced == 0
