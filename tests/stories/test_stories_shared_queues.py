"""Shared subscriptions with bounded queues: a member with room is preferred to one without."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker.log_schema import Cause

KEPT = "CONNECT clean=0 session=3600"
TEAM = f"""
    alice > {KEPT}                    alice < CONNACK
    carl  > {KEPT}                    carl  < CONNACK
    alice > SUBSCRIBE $share/g/t qos=1    alice < SUBACK granted=1
    carl  > SUBSCRIBE $share/g/t qos=1    carl  < SUBACK granted=1
    bob   > CONNECT                   bob   < CONNACK
"""


@pytest.fixture
def keep(play: Any) -> Any:
    return partial(play, is_stored=True)


def says(first: int, last: int, reason: str = "") -> str:
    return "\n".join(f'    bob > PUBLISH t qos=1 "{n}"    bob < PUBACK{reason}' for n in range(first, last))


@pytest.mark.parametrize("policy", [OverflowPolicy.DROP_NEWEST, OverflowPolicy.KEEP_LAST, OverflowPolicy.REFUSE])
@pytest.mark.parametrize("is_crashed", [False, True])
def test_what_waits_for_the_absent_goes_over_as_far_as_there_is_room(
    keep: Any, policy: OverflowPolicy, is_crashed: bool
) -> None:
    """Two queues of three messages, and a member that comes: the rest follows when it has read what it got."""
    keep(TEAM.replace("/g/t ", "/g/t/# "), FrontendOptions(queue_messages_max=3, inflight_max=1, queue_full=policy))
    keep("alice cut    carl cut")
    for number in range(6):
        keep(f'bob > PUBLISH t/{number} qos=1 "{number}"    bob < PUBACK')
    keep(f'alice > {KEPT}    alice < CONNACK present=1    alice < PUBLISH t/0 qos=1 "0"')
    if is_crashed:
        keep("broker crashes    bob < CLOSED    alice < CLOSED")
        keep(f'alice > {KEPT}    alice < CONNACK present=1    alice < PUBLISH t/0 qos=1 dup=1 "0"')
    for number in (2, 4, 1):
        keep(f'alice > PUBACK    alice < PUBLISH t/{number} qos=1 "{number}"')
    keep('alice > PUBACK    wait 1s    alice < PUBLISH t/3 qos=1 "3"')
    keep('alice > PUBACK    alice < PUBLISH t/5 qos=1 "5"    alice > PUBACK')


@pytest.mark.parametrize("policy", list(OverflowPolicy))
def test_who_reads_at_once_gets_what_waits_although_all_queues_together_are_full(
    play: Any, policy: OverflowPolicy
) -> None:
    """It fills them itself: nobody would ever make room."""
    play(TEAM.replace("/g/t ", "/g/t/# "), FrontendOptions(queued_messages_max=3, inflight_max=2, queue_full=policy))
    play("alice cut    carl cut")
    for number in range(3):
        play(f'bob > PUBLISH t/{number} qos=1 "{number}"    bob < PUBACK')
    play(f"""
    alice > {KEPT}    alice < CONNACK present=1
    alice < PUBLISH t/0 qos=1 "0"    alice < PUBLISH t/2 qos=1 "2"
    alice > PUBACK    alice < PUBLISH t/1 qos=1 "1"
    alice > PUBACK    alice > PUBACK
    """)
    assert play.dropped(Cause.QUEUE_FULL) == 0


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("end", ["", "alice > CONNECT clean=1    alice < CONNACK    alice cut"], ids=["waits", "ends"])
def test_what_is_handed_over_does_not_take_the_place_of_what_is_later(keep: Any, is_crashed: bool, end: str) -> None:
    """Only the last of each topic is to wait, and that is not the one that came to the heir last."""
    keep(TEAM.replace("/g/t ", "/g/t/# "), FrontendOptions(inflight_max=1, queue_full=OverflowPolicy.KEEP_LAST))
    keep(f"""
    carl > SUBSCRIBE x qos=1    carl < SUBACK granted=1
    alice cut    carl cut
    bob > PUBLISH x qos=1 "x"      bob < PUBACK
    bob > PUBLISH t/1 qos=1 "old"  bob < PUBACK
    bob > PUBLISH x qos=1 "y"      bob < PUBACK
    bob > PUBLISH t/1 qos=1 "new"  bob < PUBACK
    {"broker crashes    bob < CLOSED" if is_crashed else ""}
    {end}
    carl > {KEPT}    carl < CONNACK present=1    carl < PUBLISH x qos=1 "y"
    wait 1s    carl > PUBACK    carl < PUBLISH t/1 qos=1 "new"    carl > PUBACK
    """)


def test_who_has_room_comes_before_who_is_there(play: Any) -> None:
    """A full queue drops what a member that is away could have kept."""
    play(TEAM, FrontendOptions(queue_messages_max=2, inflight_max=1))
    play("carl cut")
    play('bob > PUBLISH t qos=1 "0"    bob < PUBACK    alice < PUBLISH t qos=1 "0"')
    play(says(1, 5))
    sessions = play.broker.frontend.connect_handler.sessions
    assert [len(sessions[name].outbox) for name in ("alice", "carl")] == [2, 2]
    play(says(5, 6))
    assert play.dropped(Cause.QUEUE_FULL) == 1


def test_a_group_refuses_what_no_member_has_room_for(play_v5: Any) -> None:
    play = play_v5
    play(TEAM, FrontendOptions(queue_messages_max=2, inflight_max=1, queue_full=OverflowPolicy.REFUSE))
    play("carl cut")
    play('bob > PUBLISH t qos=1 "0"    bob < PUBACK    alice < PUBLISH t qos=1 "0"')
    play(says(1, 5))
    play(says(5, 6, " reason=0x97"))
    assert play.broker.ledger.dropped == {}


def test_a_sticky_group_refuses_what_its_member_has_no_room_for(play_v5: Any) -> None:
    """Another has: but then the order would be lost."""
    play = play_v5
    play(
        TEAM, FrontendOptions(queue_messages_max=2, inflight_max=1, queue_full=OverflowPolicy.REFUSE, sharing="sticky")
    )
    play('bob > PUBLISH t qos=1 "0"    bob < PUBACK    alice < PUBLISH t qos=1 "0"')
    play(says(1, 3))
    play(says(3, 4, " reason=0x97"))
    assert play.broker.ledger.dropped == {}


def test_a_sticky_member_that_subscribes_again_goes_on(play: Any) -> None:
    play(TEAM, FrontendOptions(sharing="sticky"))
    play("""
    bob > PUBLISH t qos=1 "0"             bob < PUBACK    alice < PUBLISH t qos=1 "0"
    alice > SUBSCRIBE $share/g/t qos=1    alice < SUBACK granted=1
    bob > PUBLISH t qos=1 "1"             bob < PUBACK    alice < PUBLISH t qos=1 "1"
    alice > UNSUBSCRIBE $share/g/t        alice < UNSUBACK
    bob > PUBLISH t qos=1 "2"             bob < PUBACK    carl < PUBLISH t qos=1 "2"
    """)


@pytest.mark.parametrize(
    ("policy", "waiting", "dropped"), [(OverflowPolicy.DROP_NEWEST, 2, 2), (OverflowPolicy.REFUSE, 4, 0)]
)
def test_what_an_ended_session_leaves_is_given_up_only_if_full_queues_drop(
    play: Any, policy: OverflowPolicy, waiting: int, dropped: int
) -> None:
    """Where they refuse, nothing that was taken is dropped: it waits beyond the bounds, for nobody else keeps it."""
    play(TEAM, FrontendOptions(queue_messages_max=2, inflight_max=1, queue_full=policy))
    play("alice cut    carl cut")
    play(says(0, 4))
    play("alice > CONNECT clean=1    alice < CONNACK present=0")
    assert len(play.broker.frontend.connect_handler.sessions["carl"].outbox) == waiting
    assert play.dropped(Cause.QUEUE_FULL) == dropped
