"""Messages from publisher to subscriber: QoS, topic filters, what each reader gets and how often."""

from __future__ import annotations

from typing import Any

import pytest

from edgebroker.topics import TopicFilter

PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""


@pytest.mark.mqtt("MQTT-3.3.4-1", "MQTT-4.3.1-1", "MQTT-3.3.1-2", "MQTT-3.3.2-3")
def test_qos_0(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t/#            alice < SUBACK granted=0
    bob   > PUBLISH t/1 "one"        alice < PUBLISH t/1 "one"
    bob   > PUBLISH t/1 ""           alice < PUBLISH t/1
    bob   > PUBLISH u/1 "elsewhere"
    """)
    assert play.broker.ledger.published == 3
    assert play.broker.ledger.delivered == 2
    assert play.broker.ledger.filtered == 1


@pytest.mark.mqtt(
    "MQTT-3.3.4-1",
    v311=("MQTT-2.3.1-6", "MQTT-4.3.2-1"),
    v5=("MQTT-2.2.1-5", "MQTT-4.3.2-2", "MQTT-4.3.2-3", "MQTT-4.3.2-4"),
)
def test_qos_1(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t/# qos=1           alice < SUBACK granted=1
    bob   > PUBLISH t/1 qos=1 id=7 "one"  bob   < PUBACK id=7    alice < PUBLISH t/1 qos=1 "one"
    """)
    assert play.broker.ledger.queued == 1
    play("alice > PUBACK")
    assert play.broker.ledger.queued == 0
    assert play.broker.ledger.delivered == 1


@pytest.mark.mqtt(
    "MQTT-3.3.4-1",
    v311="MQTT-2.3.1-6",
    v5=("MQTT-2.2.1-5", "MQTT-4.3.3-2", "MQTT-4.3.3-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11"),
)
def test_qos_2_in_both_directions(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t/# qos=2           alice < SUBACK granted=2
    bob   > PUBLISH t/1 qos=2 id=7 "one"  bob   < PUBREC id=7    alice < PUBLISH t/1 qos=2 id=1 "one"
    bob   > PUBREL id=7                   bob   < PUBCOMP id=7
    alice > PUBREC id=1                   alice < PUBREL id=1
    alice > PUBCOMP id=1
    """)
    assert play.broker.ledger.delivered == 1
    assert play.broker.ledger.queued == 0


@pytest.mark.mqtt(v311="MQTT-4.3.3-2", v5=("MQTT-4.3.3-10", "MQTT-4.3.3-12"))
def test_a_qos_2_message_sent_again_is_taken_once(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t/#                       alice < SUBACK granted=0
    bob   > PUBLISH t/1 qos=2 id=7 "one"        bob   < PUBREC id=7    alice < PUBLISH t/1 "one"
    bob   > PUBLISH t/1 qos=2 id=7 dup=1 "one"  bob   < PUBREC id=7
    bob   > PUBREL id=7                         bob   < PUBCOMP id=7
    bob   > PUBLISH t/1 qos=2 id=7 "two"        bob   < PUBREC id=7    alice < PUBLISH t/1 "two"
    bob   > PUBREL id=7                         bob   < PUBCOMP id=7
    """)


@pytest.mark.mqtt(v311="MQTT-4.3.3-2", v5=("MQTT-4.3.3-11", "MQTT-3.7.2-1"))
def test_a_release_of_nothing_is_answered(play: Any) -> None:
    play(PAIR)
    play("bob > PUBREL id=9    bob < PUBCOMP id=9 reason=0x92")


@pytest.mark.mqtt(
    "MQTT-3.9.3-1",
    v311=("MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.8.4-6"),
    v5=("MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.8.4-7", "MQTT-3.8.4-8"),
)
def test_the_lower_qos_wins(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE zero one qos=1 two qos=2   alice < SUBACK granted=0,1,2
    bob   > PUBLISH zero qos=2                   bob   < PUBREC    alice < PUBLISH zero
    bob   > PUBREL                               bob   < PUBCOMP
    bob   > PUBLISH one qos=2                    bob   < PUBREC    alice < PUBLISH one qos=1
    bob   > PUBREL                               bob   < PUBCOMP
    alice > PUBACK
    bob   > PUBLISH two qos=1                    bob   < PUBACK    alice < PUBLISH two qos=1
    alice > PUBACK
    bob   > PUBLISH two                          alice < PUBLISH two
    """)


@pytest.mark.mqtt(
    "MQTT-4.6.0-5", "MQTT-4.6.0-6", v311=("MQTT-2.3.1-4", "MQTT-4.3.2-1"), v5=("MQTT-2.2.1-4", "MQTT-4.3.2-1")
)
def test_order_is_kept_over_many_messages(play: Any) -> None:
    play(PAIR)
    play("alice > SUBSCRIBE t qos=1    alice < SUBACK granted=1")
    for number in range(20):
        play(f'bob > PUBLISH t qos=1 "{number}"    bob < PUBACK    alice < PUBLISH t qos=1 id={number + 1} "{number}"')
    for _ in range(20):
        play("alice > PUBACK")
    assert play.broker.ledger.queued == 0


@pytest.mark.mqtt("MQTT-3.3.2-3")
def test_wildcards(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE +/kitchen/# /leading  alice < SUBACK granted=0,0
    bob   > PUBLISH home/kitchen            alice < PUBLISH home/kitchen
    bob   > PUBLISH home/kitchen/a/b        alice < PUBLISH home/kitchen/a/b
    bob   > PUBLISH /kitchen/x              alice < PUBLISH /kitchen/x
    bob   > PUBLISH home/hall
    bob   > PUBLISH home//kitchen
    bob   > PUBLISH /leading                alice < PUBLISH /leading
    bob   > PUBLISH leading
    """)


@pytest.mark.mqtt("MQTT-4.7.2-1", v311="MQTT-3.3.5-2", v5="MQTT-3.4.2-1")
def test_topics_of_the_broker_are_apart(play: Any) -> None:
    """[MQTT-4.7.2-1]: wildcards in the first level do not see them, and clients do not publish there."""
    play(PAIR)
    play("""
    alice > SUBSCRIBE # +/broker/#             alice < SUBACK granted=0,0
    bob   > PUBLISH $SYS/broker/x qos=1        bob   < PUBACK reason=0x87
    alice > SUBSCRIBE $SYS/broker/features/#   alice < SUBACK granted=0
                                               alice < PUBLISH $SYS/broker/features/filter retain=1 "1"
    """)


@pytest.mark.parametrize("topic", ["$aws/things/pump/shadow", "$iothub/twin", "$queue/a", "$SYSTEM/x"])
def test_other_trees_with_a_dollar_sign_are_ordinary(play: Any, topic: str) -> None:
    """Wildcards in the first level do not see them either."""
    first = topic.partition("/")[0]
    play(PAIR)
    play(f"""
    alice > SUBSCRIBE # +/# {first}/#    alice < SUBACK granted=0,0,0
    bob   > PUBLISH {topic} qos=1 retain=1 "x"    bob < PUBACK reason=0    alice < PUBLISH {topic} "x"
    """)
    assert [one.topic for one in play.broker.frontend.retained.walk(TopicFilter.parse(f"{first}/#")) if one] == [topic]


@pytest.mark.parametrize("tree", ["$SYS", "$share", "$filter", "$file"])
def test_the_trees_of_the_broker_are_reserved(play_v5: Any, tree: str) -> None:
    play_v5(PAIR)
    for topic in (tree, f"{tree}/x"):
        play_v5(f"bob > PUBLISH {topic} qos=1    bob < PUBACK reason=0x87")


@pytest.mark.mqtt(
    "MQTT-3.10.4-2", "MQTT-3.10.4-5", "MQTT-3.10.4-6", v5=("MQTT-3.10.4-4", "MQTT-3.11.3-1", "MQTT-3.11.3-2")
)
def test_unsubscribing(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE a b              alice < SUBACK granted=0,0
    alice > UNSUBSCRIBE a nonsense     alice < UNSUBACK reasons=0,0x11
    bob   > PUBLISH a
    bob   > PUBLISH b                  alice < PUBLISH b
    alice > UNSUBSCRIBE b              alice < UNSUBACK reasons=0
    bob   > PUBLISH b
    """)


@pytest.mark.mqtt("MQTT-3.8.4-3")
def test_subscribing_again_replaces(play: Any) -> None:
    """[MQTT-3.8.4-3]."""
    play(PAIR)
    play("""
    alice > SUBSCRIBE t qos=2     alice < SUBACK granted=2
    alice > SUBSCRIBE t           alice < SUBACK granted=0
    bob   > PUBLISH t qos=1       bob   < PUBACK    alice < PUBLISH t
    alice > UNSUBSCRIBE t         alice < UNSUBACK
    bob   > PUBLISH t
    """)


@pytest.mark.mqtt(v311="MQTT-3.3.5-1", v5="MQTT-3.3.4-2")
def test_overlapping_subscriptions_make_one_copy(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t/# t/+ qos=1 t/1   alice < SUBACK granted=0,1,0
    bob   > PUBLISH t/1 qos=2             bob   < PUBREC    alice < PUBLISH t/1 qos=1
    alice > PUBACK
    bob   > PUBREL                        bob   < PUBCOMP
    """)
    assert play.broker.ledger.matched == 1


@pytest.mark.mqtt(v5=("MQTT-3.3.4-3", "MQTT-3.3.4-4"))
def test_overlapping_subscriptions_name_all_their_identifiers(play_v5: Any) -> None:
    """[MQTT-3.3.4-3]."""
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE t/# sub=1        alice < SUBACK granted=0
    alice > SUBSCRIBE t/+ sub=268435455  alice < SUBACK granted=0
    alice > SUBSCRIBE t/1              alice < SUBACK granted=0
    bob   > PUBLISH t/1 "x"            alice < PUBLISH t/1 sub=1,268435455 "x"
    bob   > PUBLISH t/2/3              alice < PUBLISH t/2/3 sub=1
    alice > SUBSCRIBE t/# sub=5        alice < SUBACK granted=0
    bob   > PUBLISH t/2/3              alice < PUBLISH t/2/3 sub=5
    alice > SUBSCRIBE t/#              alice < SUBACK granted=0
    bob   > PUBLISH t/2/3              alice < PUBLISH t/2/3
    """)


@pytest.mark.mqtt(v5="MQTT-3.8.3-3")
def test_no_local(play_v5: Any) -> None:
    """[MQTT-3.8.3-3]."""
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE t/# no-local=1 u    alice < SUBACK granted=0,0
    alice > PUBLISH t/1
    bob   > PUBLISH t/1                   alice < PUBLISH t/1
    alice > PUBLISH u                     alice < PUBLISH u
    alice > SUBSCRIBE t/1                 alice < SUBACK granted=0
    alice > PUBLISH t/1                   alice < PUBLISH t/1
    """)


def test_a_publisher_reads_its_own_messages(play: Any) -> None:
    play("""
    alice > CONNECT             alice < CONNACK
    alice > SUBSCRIBE t qos=1   alice < SUBACK granted=1
    alice > PUBLISH t qos=1     alice < PUBLISH t qos=1    alice < PUBACK
    alice > PUBACK
    """)


def test_the_dialects_understand_each_other(play_v5: Any) -> None:
    play_v5("""
    old > CONNECT v=3.1.1       old < CONNACK
    new > CONNECT               new < CONNACK
    old > SUBSCRIBE t/# qos=2   old < SUBACK granted=2
    new > SUBSCRIBE t/# qos=2   new < SUBACK granted=2
    new > PUBLISH t/1 type=text/plain user.a=b "x"
                                old < PUBLISH t/1 "x"    new < PUBLISH t/1 type=text/plain user.a=b "x"
    old > PUBLISH t/2 "plain"   old < PUBLISH t/2 "plain"    new < PUBLISH t/2 "plain"
    old > PUBLISH t/2 qos=1     old < PUBLISH t/2 qos=1    old < PUBACK    new < PUBLISH t/2 qos=1
    """)


@pytest.mark.mqtt(
    v5=("MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20")
)
def test_properties_reach_the_reader_unaltered(play_v5: Any) -> None:
    """[MQTT-3.3.2-4, -15 to -20]."""
    play_v5(PAIR)
    properties = "format=1 type=text/plain response=re/ply correlation=0x00ff user.k=v user.k=w"
    play_v5(f"""
    alice > SUBSCRIBE t                 alice < SUBACK granted=0
    bob   > PUBLISH t {properties} "x"  alice < PUBLISH t {properties} "x"
    """)
