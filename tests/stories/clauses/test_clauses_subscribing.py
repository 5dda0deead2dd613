"""SUBSCRIBE, UNSUBSCRIBE, topics: the statements of sections 3.8 to 3.11 and 4.7 that other stories do not show."""

from __future__ import annotations

from typing import Any

import pytest

PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""


@pytest.mark.mqtt("MQTT-3.8.4-1", "MQTT-3.8.4-2", v311="MQTT-2.3.1-7", v5="MQTT-2.2.1-6")
def test_suback_carries_the_identifier(play: Any) -> None:
    play("""
    alice > CONNECT                      alice < CONNACK
    alice > SUBSCRIBE a id=7             alice < SUBACK id=7 granted=0
    alice > SUBSCRIBE a id=65535         alice < SUBACK id=65535 granted=0
    alice > SUBSCRIBE a b c qos=1 id=7   alice < SUBACK id=7 granted=0,0,1
    """)


@pytest.mark.mqtt("MQTT-3.10.4-4", "MQTT-3.10.4-5", v311="MQTT-2.3.1-7", v5="MQTT-2.2.1-6")
def test_unsuback_carries_the_identifier(play: Any) -> None:
    play("""
    alice > CONNECT                      alice < CONNACK
    alice > SUBSCRIBE a                  alice < SUBACK granted=0
    alice > UNSUBSCRIBE a id=7           alice < UNSUBACK id=7 reasons=0
    alice > UNSUBSCRIBE a b id=65535     alice < UNSUBACK id=65535 reasons=0x11,0x11
    """)


@pytest.mark.mqtt("MQTT-3.9.3-2", v311="MQTT-3.8.4-5", v5=("MQTT-3.8.4-6", "MQTT-3.8.4-7"))
def test_each_filter_has_a_code_that_exists(play: Any) -> None:
    play("""
    alice > CONNECT                                    alice < CONNACK
    alice > SUBSCRIBE a qos=2 b# c qos=1 $filter/%3D/d   alice < SUBACK granted=2,0x8F,1,0x8F
    """)
    if not play.dialect.has_reasons:
        suback = b"".join(play.client("alice").octets)[4:]
        assert suback.hex(" ") == "90 06 00 01 02 80 01 80"


@pytest.mark.mqtt("MQTT-3.10.4-1")
def test_unsubscribing_compares_texts(play: Any) -> None:
    """A filter that matches the same topics is another filter."""
    play(PAIR)
    play("""
    alice > SUBSCRIBE a/+ qos=1            alice < SUBACK granted=1
    alice > UNSUBSCRIBE a/# a/b A/+ a/+/   alice < UNSUBACK reasons=0x11,0x11,0x11,0x11
    bob   > PUBLISH a/b                    alice < PUBLISH a/b
    alice > UNSUBSCRIBE a/+                alice < UNSUBACK reasons=0
    bob   > PUBLISH a/b
    """)


@pytest.mark.mqtt("MQTT-3.10.4-3")
def test_what_is_on_its_way_is_finished_after_unsubscribing(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t qos=2              alice < SUBACK granted=2
    bob   > PUBLISH t qos=2 "1"            bob   < PUBREC    alice < PUBLISH t qos=2 id=1 "1"
    bob   > PUBLISH t qos=1 "2"            bob   < PUBACK    alice < PUBLISH t qos=1 id=2 "2"
    alice > UNSUBSCRIBE t                  alice < UNSUBACK
    bob   > PUBLISH t qos=1 "3"            bob   < PUBACK
    alice > PUBREC id=1                    alice < PUBREL id=1
    alice > PUBCOMP id=1
    alice > PUBACK id=2
    """)
    assert play.broker.ledger.delivered == 2
    assert play.broker.ledger.queued == 0


@pytest.mark.mqtt("MQTT-3.10.4-3", "MQTT-4.4.0-1")
def test_also_over_a_reconnect(play: Any) -> None:
    play("""
    alice > CONNECT clean=0 session=60     alice < CONNACK
    bob   > CONNECT                        bob   < CONNACK
    alice > SUBSCRIBE t qos=1              alice < SUBACK granted=1
    bob   > PUBLISH t qos=1 "1"            bob   < PUBACK    alice < PUBLISH t qos=1 id=1 "1"
    alice > UNSUBSCRIBE t                  alice < UNSUBACK
    alice cut
    alice > CONNECT clean=0 session=60     alice < CONNACK present=1    alice < PUBLISH t qos=1 id=1 dup=1 "1"
    """)


@pytest.mark.mqtt(v5=("MQTT-3.1.2-24", "MQTT-4.13.1-1"))
@pytest.mark.parametrize("kind", ["SUBSCRIBE", "UNSUBSCRIBE"])
def test_what_cannot_be_answered_is_not_done(play_v5: Any, kind: str) -> None:
    """One reason code for each of 60 filters, for a client that takes 60 bytes."""
    play_v5(PAIR.replace("CONNECT ", "CONNECT bytes-max=60", 1))
    play_v5(f"""
    alice > SUBSCRIBE a1                            alice < SUBACK granted=0
    alice > {kind} {" ".join(f"a{number}" for number in range(60))}    alice < DISCONNECT reason=0x95    alice < CLOSED
    """)
    assert all(len(octets) <= 60 for octets in play_v5.client("alice").octets)


@pytest.mark.mqtt(v5=("MQTT-3.8.3-3", "MQTT-3.8.4-5"))
def test_the_same_filter_twice_is_owed_nothing_that_neither_asks_for(play_v5: Any) -> None:
    """The first wants none of its own messages, the second none that are retained."""
    play_v5("""
    alice > CONNECT                                     alice < CONNACK
    alice > PUBLISH t retain=1 "own"
    alice > SUBSCRIBE t no-local=1 t handling=2         alice < SUBACK granted=0,0
    alice > SUBSCRIBE t no-local=1 t handling=0         alice < SUBACK granted=0,0    alice < PUBLISH t retain=1 "own"
    """)


@pytest.mark.mqtt(v311="MQTT-3.8.4-4", v5=("MQTT-3.8.4-5", "MQTT-3.3.1-9"))
def test_the_same_filter_twice_gets_what_the_first_is_owed(play: Any) -> None:
    """Once, at the QoS of the second, which replaces the first."""
    never = "handling=2" if play.dialect.has_properties else ""
    play(PAIR)
    play(f"""
    bob   > PUBLISH t retain=1 qos=2 "x"        bob   < PUBREC
    alice > SUBSCRIBE t qos=2 t qos=1 {never}   alice < SUBACK granted=2,1    alice < PUBLISH t qos=1 retain=1 "x"
    """)


NO_UTF8 = "0002c328"


@pytest.mark.mqtt("MQTT-3.8.3-1")
def test_a_filter_to_subscribe_to_that_is_no_utf8(play: Any) -> None:
    none = "00" if play.dialect.has_properties else ""
    length = 7 + len(none) // 2
    play(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x82{length:02x}0001{none}{NO_UTF8}00    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


@pytest.mark.mqtt("MQTT-3.10.3-1")
def test_a_filter_to_unsubscribe_that_is_no_utf8(play: Any) -> None:
    none = "00" if play.dialect.has_properties else ""
    length = 6 + len(none) // 2
    play(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0xa2{length:02x}0001{none}{NO_UTF8}    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


@pytest.mark.mqtt("MQTT-3.10.3-2")
def test_unsubscribing_from_nothing(play: Any) -> None:
    none = "00" if play.dialect.has_properties else ""
    length = 2 + len(none) // 2
    play(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0xa2{length:02x}0001{none}    bob < DISCONNECT reason=0x82    bob < CLOSED
    """)


@pytest.mark.mqtt("MQTT-3.10.1-1", "MQTT-3.8.1-1", v311="MQTT-2.2.2-2", v5="MQTT-2.1.3-1")
@pytest.mark.parametrize("first", ["80", "83", "8a", "a0", "a3", "aa"])
def test_the_flags_of_subscribe_and_unsubscribe(play: Any, first: str) -> None:
    none = "00" if play.dialect.has_properties else ""
    end = "00" if first[0] == "8" else ""
    length = 5 + len(none + end) // 2
    play(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x{first}{length:02x}0001{none}000174{end}    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


@pytest.mark.mqtt(v5="MQTT-3.8.3-5")
@pytest.mark.parametrize("options", ["40", "80", "c0", "41"])
def test_reserved_options(play_v5: Any, options: str) -> None:
    play_v5(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x8207000100000174{options}    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


@pytest.mark.mqtt(v311="MQTT-3.8.3-4")
@pytest.mark.parametrize("options", ["03", "04", "08", "10", "20", "40", "80", "81"])
def test_options_that_3_1_1_does_not_have(play_v311: Any, options: str) -> None:
    play_v311(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x82060001000174{options}    bob < CLOSED
    """)


@pytest.mark.mqtt(v5="MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription(play_v5: Any) -> None:
    play_v5("""
    bob > CONNECT                             bob < CONNACK
    bob > SUBSCRIBE $share/g/t no-local=1     bob < DISCONNECT reason=0x82    bob < CLOSED
    """)


# -- topics and filters ------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311=("MQTT-4.7.1-2", "MQTT-4.7.1-3"), v5=("MQTT-4.7.1-1", "MQTT-4.7.1-2"))
@pytest.mark.parametrize("text", ["a#", "a/#/b", "a/b#", "#/a", "##", "a+", "a/+b/c", "++", "+#"])
def test_wildcards_where_none_may_stand(play: Any, text: str) -> None:
    """The entry is refused; the one beside it is granted."""
    play(PAIR)
    play(f"""
    alice > SUBSCRIBE {text} other    alice < SUBACK granted=0x8F,0
    bob   > PUBLISH a/b
    bob   > PUBLISH other             alice < PUBLISH other
    """)


@pytest.mark.mqtt(v311=("MQTT-4.7.1-2", "MQTT-4.7.1-3"), v5=("MQTT-4.7.1-1", "MQTT-4.7.1-2"))
@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("#", ["a", "a/b", "/", "/a/"], []),
        ("a/#", ["a", "a/", "a/b", "a/b/c"], ["b", "ab", "/a"]),
        ("+", ["a", "b"], ["a/b", "/a", "/"]),
        ("+/+", ["a/b", "/a", "a/", "/"], ["a", "a/b/c", "/a/b"]),
        ("/+", ["/a", "/"], ["a", "a/b"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c", "a/b"]),
        ("+/b/#", ["a/b", "/b", "a/b/c/d"], ["b", "a/c/b"]),
    ],
)
def test_wildcards(play: Any, text: str, matching: list[str], others: list[str]) -> None:
    play(PAIR)
    play(f"alice > SUBSCRIBE {text}    alice < SUBACK granted=0")
    for topic in matching:
        play(f"bob > PUBLISH {topic}    alice < PUBLISH {topic}")
    for topic in others:
        play(f"bob > PUBLISH {topic}")


@pytest.mark.mqtt("MQTT-4.7.3-4", "MQTT-3.3.2-3", v311="MQTT-1.5.3-3", v5="MQTT-1.5.4-3")
def test_nothing_is_normalised(play: Any) -> None:
    """Case, slashes, spaces, composed letters and byte order marks make different topics."""
    composed, decomposed, marked = "caf\u00e9", "cafe\u0301", "\ufeffcaf\u00e9"
    play(PAIR)
    play(f"""
    alice > SUBSCRIBE {composed} T a//b "x y"    alice < SUBACK granted=0,0,0,0
    bob   > PUBLISH {decomposed}
    bob   > PUBLISH {marked}
    bob   > PUBLISH t
    bob   > PUBLISH a/b
    bob   > PUBLISH "x  y"
    bob   > PUBLISH {composed}                   alice < PUBLISH {composed}
    bob   > PUBLISH T                            alice < PUBLISH T
    bob   > PUBLISH a//b                         alice < PUBLISH a//b
    bob   > PUBLISH "x y"                        alice < PUBLISH "x y"
    alice > SUBSCRIBE {marked}                   alice < SUBACK granted=0
    bob   > PUBLISH {marked}                     alice < PUBLISH {marked}
    """)


@pytest.mark.mqtt("MQTT-4.7.3-3")
def test_topics_and_filters_of_the_longest_kind(play: Any) -> None:
    """More than 65,535 bytes cannot be written; that many can."""
    topic = "a/" + "x" * 65_533
    play(PAIR)
    play(f"""
    alice > SUBSCRIBE {topic}     alice < SUBACK granted=0
    bob   > PUBLISH {topic} "1"   alice < PUBLISH {topic} "1"
    """)


@pytest.mark.mqtt("MQTT-4.7.3-1")
def test_an_empty_filter_is_refused(play: Any) -> None:
    play("""
    alice > CONNECT            alice < CONNACK
    alice > SUBSCRIBE "" a     alice < SUBACK granted=0x8F,0
    """)


@pytest.mark.mqtt("MQTT-4.7.3-2")
def test_a_filter_with_u_0000(play: Any) -> None:
    none = "00" if play.dialect.has_properties else ""
    length = 7 + len(none) // 2
    play(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x82{length:02x}0001{none}0002610000    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


@pytest.mark.mqtt("MQTT-4.7.2-1")
def test_topics_that_begin_with_a_dollar_sign(play: Any) -> None:
    """Retained ones are hidden from wildcards in the first level, and only there."""
    play("""
    alice > CONNECT                            alice < CONNACK
    alice > SUBSCRIBE # +/broker/features/filter    alice < SUBACK granted=0,0
    alice > SUBSCRIBE $SYS/+/features/#        alice < SUBACK granted=0
                                               alice < PUBLISH $SYS/broker/features/filter retain=1 "1"
    """)
