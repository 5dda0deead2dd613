"""A queue that is full: what is dropped is what the operator chose, and every drop has its cause."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.dialect import V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Publish
from edgebroker.log_schema import Cause


@pytest.fixture
def keep(play: Any) -> Any:
    """Plays in both dialects, with a broker that has a disk."""
    return partial(play, is_stored=True)


@pytest.fixture
def keep_v5(play_v5: Any) -> Any:
    return partial(play_v5, is_stored=True)


FULL = """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK
    bob > PUBLISH t/1 qos=1 "three"         bob < PUBACK
    broker crashes                          bob < CLOSED
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
"""


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (OverflowPolicy.DROP_NEWEST, ['t/1 qos=1 "one"', 't/2 qos=1 "two"']),
        (OverflowPolicy.DROP_OLDEST, ['t/2 qos=1 "two"', 't/1 qos=1 "three"']),
        (OverflowPolicy.KEEP_LAST, ['t/2 qos=1 "two"', 't/1 qos=1 "three"']),
        (OverflowPolicy.DOWN_SAMPLE, ['t/2 qos=1 "two"', 't/1 qos=1 "three"']),
    ],
)
def test_a_full_queue_drops_what_the_operator_chose(keep: Any, policy: OverflowPolicy, left: list[str]) -> None:
    received = "\n".join(f"    alice < PUBLISH {one}" for one in left)
    keep(FULL + received, FrontendOptions(queue_messages_max=2, queue_full=policy))


def test_of_each_topic_the_last_is_kept_even_if_there_is_room(play: Any) -> None:
    received = """
    alice < PUBLISH t/2 qos=1 "two"
    alice < PUBLISH t/1 qos=1 "three"
    """
    play(
        FULL.replace("    broker crashes                          bob < CLOSED\n", "") + received,
        FrontendOptions(queue_full=OverflowPolicy.KEEP_LAST),
    )
    assert play.dropped(Cause.SUPERSEDED) == 1


def test_a_full_queue_may_refuse_the_publisher(keep_v5: Any, play_v5: Any) -> None:
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    carol > CONNECT                         carol < CONNACK
    carol > SUBSCRIBE t/#                   carol < SUBACK granted=0
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK                carol < PUBLISH t/1 "one"
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK reason=0x97 why~"a reader's queue is full"
    bob > PUBLISH t/3 qos=2 "more"          bob < PUBREC reason=0x97 why~"a reader's queue is full"
    bob > PUBLISH u/2 qos=1 "three"         bob < PUBACK
    """,
        FrontendOptions(queue_messages_max=1, queue_full=OverflowPolicy.REFUSE),
    )
    assert play_v5.broker.ledger.dropped == {}


def test_what_a_refusing_queue_can_never_hold_is_refused_for_good(keep_v5: Any, play_v5: Any) -> None:
    """Who hears 0x97 tries again. A bridge would, with every connection, and nothing behind that message would come."""
    keep_v5(
        f"""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    carol > CONNECT                         carol < CONNACK
    carol > SUBSCRIBE t/#                   carol < SUBACK granted=0
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "{"x" * 62}"   bob < PUBACK reason=0x83
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK                carol < PUBLISH t/2 "two"
    bob > PUBLISH t/3 qos=1 "{"x" * 60}"   bob < PUBACK reason=0x97
    """,
        FrontendOptions(queue_bytes_max=64, queue_full=OverflowPolicy.REFUSE),
    )
    assert play_v5.broker.frontend.publish_handler.refusals == {Refusal.TOO_LARGE: 1, Refusal.QUEUE_FULL: 1}


@pytest.mark.parametrize(("payload", "why"), [(b"two", Refusal.QUEUE_FULL), (b"x" * 70, Refusal.TOO_LARGE)])
def test_what_a_client_says_right_behind_a_message_that_is_refused_is_not_lost_unseen(
    play_v311: Any, payload: bytes, why: Refusal
) -> None:
    """Version 3.1.1 has no word for a refusal, so the client is sent away, and what came in one piece goes unread."""
    play_v311(
        """
    alice > CONNECT clean=0                 alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK
    """,
        FrontendOptions(queue_messages_max=1, queue_bytes_max=64, queue_full=OverflowPolicy.REFUSE),
    )
    said = [Publish("t/2", payload, 1, packet_id=7), *[Publish("u", b"x", 0)] * 2, Publish("u", b"x", 1, packet_id=8)]
    frontend, bob = play_v311.broker.frontend, play_v311.client("bob").line.connection
    frontend.feed(bob, b"".join(encode_packet(one, V311) for one in said), play_v311.broker.simulation.now)
    assert bob.closing
    frontend.feed(bob, encode_packet(Publish("u", b"late", 0), V311), play_v311.broker.simulation.now)
    frontend.closed(bob, play_v311.broker.simulation.now)
    assert frontend.publish_handler.refusals == {why: 1, Refusal.UNREAD: 3}


def test_all_queues_together_are_bounded(play: Any) -> None:
    play(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice cut
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=0
    carol > SUBSCRIBE t/# qos=1             carol < SUBACK granted=1
    carol cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK
    """,
        FrontendOptions(queued_messages_max=3),
    )
    assert play.dropped(Cause.QUEUE_FULL) == 1


@pytest.mark.parametrize("bound", [{"queued_messages_max": 3}, {"queued_bytes_max": 18}])
def test_there_is_room_for_all_copies_of_a_message_or_its_publisher_is_refused(
    keep_v5: Any, play_v5: Any, bound: dict[str, int]
) -> None:
    """Each of two queues has room for one more, and both together do not: nothing that was taken may be dropped."""
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=0
    carol > SUBSCRIBE t/# qos=1             carol < SUBACK granted=1
    alice cut    carol cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK reason=0x97
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=1
    carol < PUBLISH t/1 qos=1 "one"         carol > PUBACK
    bob > PUBLISH t/3 qos=1 "three"         bob < PUBACK
    carol < PUBLISH t/3 qos=1 "three"
    """,
        FrontendOptions(queue_full=OverflowPolicy.REFUSE, **bound),
    )
    assert play_v5.broker.ledger.dropped == {}


def test_who_reads_at_once_needs_no_room(keep_v5: Any, play_v5: Any) -> None:
    """Those that are away fill all queues together, and the others go on as if they had never been there."""
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    alice cut
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=0
    carol > SUBSCRIBE u qos=1               carol < SUBACK granted=1
    carol > SUBSCRIBE $share/g/v qos=1      carol < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t qos=1 "one"             bob < PUBACK
    bob > PUBLISH t qos=1 "two"             bob < PUBACK reason=0x97
    bob > PUBLISH u qos=1 "three"           bob < PUBACK    carol < PUBLISH u qos=1 "three"    carol > PUBACK
    bob > PUBLISH v qos=1 "four"            bob < PUBACK    carol < PUBLISH v qos=1 "four"
    bob > PUBLISH u qos=1 "five"            bob < PUBACK reason=0x97
    """,
        FrontendOptions(queued_messages_max=1, inflight_max=1, queue_full=OverflowPolicy.REFUSE),
    )
    assert play_v5.broker.ledger.dropped == {}


@pytest.mark.parametrize(
    "bound", [{"queue_bytes_max": 10}, {"queue_messages_max": 1}, {"queued_messages_max": 1}, {"queued_bytes_max": 10}]
)
def test_what_never_has_room_for_all_its_copies_is_refused_for_good(keep_v5: Any, bound: dict[str, int]) -> None:
    """Else its publisher would say it again and again, and nothing else."""
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE $share/g/t qos=1      alice < SUBACK granted=1
    alice > SUBSCRIBE $share/h/t qos=1      alice < SUBACK granted=1
    alice > SUBSCRIBE $share/g/u qos=1      alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t qos=1 "sizes"           bob < PUBACK reason=0x83
    bob > PUBLISH u qos=1 "sizes"           bob < PUBACK
    bob > PUBLISH u qos=1 "sizes"           bob < PUBACK reason=0x97
    """,
        FrontendOptions(queue_full=OverflowPolicy.REFUSE, **bound),
    )


@pytest.mark.parametrize("sharing", ["fair", "sticky"])
def test_there_is_room_for_every_copy_that_one_client_gets(keep_v5: Any, play_v5: Any, sharing: str) -> None:
    """Of its own subscription and of its groups'; what a group has for another member needs no room here."""
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    alice > SUBSCRIBE $share/g/t qos=1      alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t qos=1 "one"             bob < PUBACK
    bob > PUBLISH t qos=1 "two"             bob < PUBACK reason=0x97
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=0
    carol > SUBSCRIBE $share/g/t qos=1      carol < SUBACK granted=1    carol < PUBLISH t qos=1 "one"
    bob > PUBLISH t qos=1 "three"           bob < PUBACK                carol < PUBLISH t qos=1 "three"
    """,
        FrontendOptions(queue_messages_max=3, queue_full=OverflowPolicy.REFUSE, sharing=sharing),
    )
    assert play_v5.dropped(Cause.QUEUE_FULL) == 0


@pytest.mark.parametrize("policy", [OverflowPolicy.DROP_NEWEST, OverflowPolicy.DROP_OLDEST, OverflowPolicy.KEEP_LAST])
@pytest.mark.mqtt(v5="MQTT-3.3.2-5")
def test_what_has_expired_has_no_place_any_more(keep_v5: Any, play_v5: Any, policy: OverflowPolicy) -> None:
    """Nor in what all queues may hold together, nor after a crash."""
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=0
    carol > SUBSCRIBE u qos=1               carol < SUBACK granted=1
    alice cut    carol cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 expiry=1 "one"  bob < PUBACK
    bob > PUBLISH t/2 qos=1 expiry=3 "two"  bob < PUBACK
    wait 2s
    bob > PUBLISH t/3 qos=1 "three"         bob < PUBACK
    broker crashes                          bob < CLOSED
    wait 2s
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH u qos=1 "four"            bob < PUBACK
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=1    carol < PUBLISH u qos=1 "four"
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=1    alice < PUBLISH t/3 qos=1 "three"
    """,
        FrontendOptions(queue_messages_max=2, queued_messages_max=2, queue_full=policy),
    )
    assert play_v5.dropped(Cause.QUEUE_FULL) == 0


@pytest.mark.mqtt(v5="MQTT-3.3.2-5")
def test_nobody_is_refused_for_what_has_expired(keep_v5: Any) -> None:
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 expiry=1 "one"  bob < PUBACK
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK reason=0x97
    wait 2s
    bob > PUBLISH t/3 qos=1 "three"         bob < PUBACK
    """,
        FrontendOptions(queue_messages_max=1, queue_full=OverflowPolicy.REFUSE),
    )


@pytest.mark.parametrize("policy", [OverflowPolicy.DROP_OLDEST, OverflowPolicy.KEEP_LAST, OverflowPolicy.DOWN_SAMPLE])
def test_nothing_makes_room_for_what_cannot_wait_anyway(play: Any, policy: OverflowPolicy) -> None:
    """It is larger than the queue, or others have taken all there is."""
    play(
        f"""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    carol > CONNECT clean=0 session=3600    carol < CONNACK present=0
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    carol > SUBSCRIBE u qos=1               carol < SUBACK granted=1
    alice cut    carol cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t qos=1 "one"             bob < PUBACK
    bob > PUBLISH t qos=1 "{"x" * 64}"     bob < PUBACK
    bob > PUBLISH u qos=1 "{"x" * 60}"     bob < PUBACK
    bob > PUBLISH t qos=1 "{"y" * 60}"     bob < PUBACK
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=1    alice < PUBLISH t qos=1 "one"
    """,
        FrontendOptions(queue_bytes_max=64, queued_bytes_max=70, queue_full=policy),
    )
    assert play.dropped(Cause.QUEUE_FULL) == 2
    assert play.dropped(Cause.SUPERSEDED) == 0
