"""PUBLISH and its acknowledgements: statements of sections 3.3 to 3.7 and 4.3 to 4.6 that other stories do not show."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions

KEPT = "CONNECT clean=0 session=3600"
PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""

# -- fixed headers -----------------------------------------------------------------------------------------------


@pytest.mark.mqtt("MQTT-3.6.1-1", v311=("MQTT-2.2.2-1", "MQTT-2.2.2-2"), v5="MQTT-2.1.3-1")
@pytest.mark.parametrize(
    "octets",
    ["41020001", "52020001", "60020001", "63020001", "72020001", "c200", "e200"],
    ids=["PUBACK", "PUBREC", "PUBREL 0000", "PUBREL 0011", "PUBCOMP", "PINGREQ", "DISCONNECT"],
)
def test_reserved_flags_close_the_connection(play: Any, octets: str) -> None:
    play(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x{octets}    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


# -- properties --------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-1.5.7-1", "MQTT-3.3.2-13", "MQTT-3.3.2-19"))
@pytest.mark.parametrize(
    "properties",
    ["080002c328", "030002c328", "260002c328000176", "260001760002c328"],
    ids=["response topic", "content type", "name of a user property", "value of a user property"],
)
def test_properties_that_are_no_utf8(play_v5: Any, properties: str) -> None:
    length = len(properties) // 2
    play_v5(f"""
    bob > CONNECT    bob < CONNACK
    bob > 0x30{length + 4:02x}000174{length:02x}{properties}    bob < DISCONNECT reason=0x81    bob < CLOSED
    """)


@pytest.mark.mqtt(v5=("MQTT-3.3.2-14", "MQTT-4.7.3-1"))
@pytest.mark.parametrize("topic", ["a/#", "+", "a/+/b", '""'])
def test_a_response_topic_that_is_no_topic_name(play_v5: Any, topic: str) -> None:
    play_v5(f"""
    bob > CONNECT                   bob < CONNACK
    bob > PUBLISH t response={topic}    bob < DISCONNECT reason=0x81    bob < CLOSED
    ann > CONNECT will=w will-response={topic} will-payload="x"    ann < CONNACK reason=0x81    ann < CLOSED
    """)


@pytest.mark.mqtt(v5="MQTT-3.3.2-12")
def test_every_announced_alias_is_taken(play_v5: Any) -> None:
    play_v5(PAIR, FrontendOptions(topic_alias_maximum=5))
    play_v5("alice > SUBSCRIBE #    alice < SUBACK granted=0")
    for alias in range(1, 6):
        play_v5(f"bob > PUBLISH t/{alias} alias={alias}    alice < PUBLISH t/{alias}")
    for alias in range(1, 6):
        play_v5(f'bob > PUBLISH "" alias={alias} "again"    alice < PUBLISH t/{alias} "again"')


@pytest.mark.mqtt(v5=("MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-11"))
@pytest.mark.parametrize("maximum", ["", "alias-max=0", "alias-max=1"])
def test_no_alias_is_sent_beyond_what_the_client_takes(play_v5: Any, maximum: str) -> None:
    """The client of the transcript would see any property."""
    play_v5(f"""
    alice > CONNECT {maximum}    alice < CONNACK
    bob   > CONNECT              bob   < CONNACK
    alice > SUBSCRIBE #          alice < SUBACK granted=0
    bob   > PUBLISH t/1 alias=7 "1"    alice < PUBLISH t/1 "1"
    bob   > PUBLISH "" alias=7 "2"     alice < PUBLISH t/1 "2"
    bob   > PUBLISH t/2 alias=8 "3"    alice < PUBLISH t/2 "3"
    """)


# -- DUP ---------------------------------------------------------------------------------------------------------


@pytest.mark.mqtt("MQTT-3.3.1-3")
def test_a_publishers_dup_is_not_passed_on(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t qos=2               alice < SUBACK granted=2
    bob   > PUBLISH t qos=1 id=3 dup=1 "1"  bob   < PUBACK id=3    alice < PUBLISH t qos=1 dup=0 "1"
    bob   > PUBLISH t qos=2 id=4 dup=1 "2"  bob   < PUBREC id=4    alice < PUBLISH t qos=2 dup=0 "2"
    """)


@pytest.mark.mqtt(v311="MQTT-4.3.2-2", v5="MQTT-4.3.2-5")
def test_after_puback_the_identifier_is_a_new_message(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE t                        alice < SUBACK granted=0
    bob   > PUBLISH t qos=1 id=3 "one"         bob   < PUBACK id=3    alice < PUBLISH t "one"
    bob   > PUBLISH t qos=1 id=3 "two"         bob   < PUBACK id=3    alice < PUBLISH t "two"
    bob   > PUBLISH t qos=1 id=3 dup=1 "two"   bob   < PUBACK id=3    alice < PUBLISH t "two"
    """)


# -- the window --------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311="MQTT-2.3.1-4", v5=("MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1"))
def test_identifiers_in_use_are_passed_over(play: Any) -> None:
    """All 65,535 were used once; message 1 is still on its way."""
    play(PAIR)
    play("""
    alice > SUBSCRIBE t qos=2               alice < SUBACK granted=2
    bob   > PUBLISH t qos=2 "1"             bob   < PUBREC    alice < PUBLISH t qos=2 id=1 "1"
    """)
    (inflight,) = [
        session.inflight for session in play.broker.frontend.connect_handler.sessions.values() if session.inflight
    ]
    inflight.last_id = 65_534
    play("""
    bob   > PUBLISH t qos=2 "2"             bob   < PUBREC    alice < PUBLISH t qos=2 id=65535 "2"
    bob   > PUBLISH t qos=1 "3"             bob   < PUBACK    alice < PUBLISH t qos=1 id=2 "3"
    """)


@pytest.mark.mqtt(v311=("MQTT-4.6.0-2", "MQTT-4.6.0-3", "MQTT-4.6.0-4"), v5="MQTT-2.2.1-5")
def test_acknowledgements_come_in_the_order_of_what_they_answer(play: Any) -> None:
    """The packets of each client arrive in one piece."""
    v5 = play.dialect.has_properties
    end = "0078" if v5 else "78"
    publishes = "".join(
        f"{first:02x}{5 + len(end) // 2:02x}000174{packet_id:04x}{end}"
        for first, packet_id in ((0x32, 9), (0x34, 8), (0x32, 7), (0x34, 6))
    )
    play(PAIR)
    play(f"""
    bob > 0x{publishes}            bob < PUBACK id=9    bob < PUBREC id=8    bob < PUBACK id=7    bob < PUBREC id=6
    alice > SUBSCRIBE t qos=2      alice < SUBACK granted=2
    bob > PUBLISH t qos=2 id=5     bob < PUBREC id=5    alice < PUBLISH t qos=2 id=1
    bob > PUBLISH t qos=2 id=4     bob < PUBREC id=4    alice < PUBLISH t qos=2 id=2
    bob > PUBLISH t qos=2 id=3     bob < PUBREC id=3    alice < PUBLISH t qos=2 id=3
    alice > 0x500200025002000350020001    alice < PUBREL id=2    alice < PUBREL id=3    alice < PUBREL id=1
    """)


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-4.3.3-9", "MQTT-3.5.2-1"))
def test_after_a_refusing_pubrec_the_identifier_is_a_new_message(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE #                        alice < SUBACK granted=0
    bob   > PUBLISH $SYS/x qos=2 id=3 "one"    bob   < PUBREC id=3 reason=0x87
    bob   > PUBLISH t qos=2 id=3 "two"         bob   < PUBREC id=3    alice < PUBLISH t "two"
    bob   > PUBREL id=3                        bob   < PUBCOMP id=3 reason=0
    """)


@pytest.mark.mqtt(v5="MQTT-4.4.0-2")
def test_what_a_reader_refused_is_not_sent_again(play_v5: Any) -> None:
    play_v5(f"""
    alice > {KEPT}                    alice < CONNACK
    alice > SUBSCRIBE t qos=2         alice < SUBACK granted=2
    bob   > CONNECT                   bob   < CONNACK
    bob   > PUBLISH t qos=1 "1"       bob   < PUBACK    alice < PUBLISH t qos=1 "1"
    bob   > PUBLISH t qos=2 "2"       bob   < PUBREC    alice < PUBLISH t qos=2 "2"
    alice > PUBACK reason=0x97
    alice > PUBREC reason=0x99
    alice cut
    alice > {KEPT}                    alice < CONNACK present=1
    """)


@pytest.mark.mqtt(v5="MQTT-3.6.2-1")
def test_a_pubrec_for_nothing_is_answered(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT                   alice < CONNACK
    alice > PUBREC id=9               alice < PUBREL id=9 reason=0x92
    """)


@pytest.mark.mqtt(v311="MQTT-3.3.5-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_not_permitted_is_acknowledged_all_the_same(play_v311: Any, qos: int) -> None:
    play_v311(PAIR)
    play_v311(f"""
    alice > SUBSCRIBE $SYS/x              alice < SUBACK granted=0
    bob   > PUBLISH $SYS/x qos={qos} id=3    bob < {"PUBACK" if qos == 1 else "PUBREC"} id=3
    """)


# -- expiry ------------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-4.3.3-7", "MQTT-4.3.3-13"))
def test_a_qos_2_message_on_its_way_does_not_expire(play_v5: Any) -> None:
    """Neither one that a reader has not answered nor one that the publisher has not released."""
    play_v5(f"""
    alice > {KEPT}                           alice < CONNACK
    alice > SUBSCRIBE t qos=2                alice < SUBACK granted=2
    bob   > CONNECT                          bob   < CONNACK
    bob   > PUBLISH t qos=2 id=7 expiry=10 "x"    bob < PUBREC id=7    alice < PUBLISH t qos=2 id=1 expiry=10 "x"
    alice cut
    wait 50m
    alice > {KEPT}                           alice < CONNACK present=1
                                             alice < PUBLISH t qos=2 id=1 dup=1 expiry=0 "x"
    alice > PUBREC id=1                      alice < PUBREL id=1
    alice > PUBCOMP id=1
    bob   > PUBREL id=7                      bob   < PUBCOMP id=7
    """)
    assert play_v5.broker.ledger.expired == 0
    assert play_v5.broker.ledger.delivered == 1


# -- a client's maximum packet size and its wish for no words ----------------------------------------------------


@pytest.mark.mqtt(
    v5=(
        "MQTT-3.4.2-2",
        "MQTT-3.4.2-3",
        "MQTT-3.5.2-2",
        "MQTT-3.5.2-3",
        "MQTT-3.6.2-2",
        "MQTT-3.6.2-3",
        "MQTT-3.7.2-2",
        "MQTT-3.7.2-3",
        "MQTT-3.9.2-1",
        "MQTT-3.9.2-2",
        "MQTT-3.11.2-1",
        "MQTT-3.11.2-2",
        "MQTT-3.14.2-3",
        "MQTT-3.14.2-4",
        "MQTT-3.1.2-24",
    )
)
def test_every_answer_fits_the_client(play_v5: Any) -> None:
    """The smallest maximum that CONNACK leaves: all answers, refusals among them, keep to it."""
    limit = 18
    play_v5(f"""
    alice > CONNECT bytes-max={limit}           alice < CONNACK
    alice > PUBLISH $SYS/x qos=1                alice < PUBACK reason=0x87
    alice > PUBLISH $SYS/x qos=2 id=2           alice < PUBREC reason=0x87
    alice > PUBREL id=9                         alice < PUBCOMP reason=0x92
    alice > PUBREC id=9                         alice < PUBREL reason=0x92
    alice > SUBSCRIBE $filter/%3D/t $filter/%3D/u    alice < SUBACK granted=0x8F,0x8F
    alice > UNSUBSCRIBE a b                     alice < UNSUBACK reasons=0x11,0x11
    alice > 0xf100                              alice < DISCONNECT reason=0x81    alice < CLOSED
    """)
    assert all(len(octets) <= limit for octets in play_v5.client("alice").octets)


@pytest.mark.mqtt(v5="MQTT-3.1.2-29")
def test_who_wants_no_problem_information_hears_reasons_only(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT problems=0                  alice < CONNACK
    alice > PUBLISH $SYS/x qos=1                alice < PUBACK reason=0x87
    alice > PUBLISH $SYS/x qos=2 id=2           alice < PUBREC reason=0x87
    alice > PUBREL id=9                         alice < PUBCOMP reason=0x92
    alice > PUBREC id=9                         alice < PUBREL reason=0x92
    alice > SUBSCRIBE $filter/%3D/t             alice < SUBACK granted=0x8F
    alice > UNSUBSCRIBE a                       alice < UNSUBACK reasons=0x11
    """)
    octets = b"".join(play_v5.client("alice").octets)
    after_connack = octets[2 + octets[1] :]
    assert after_connack.hex(" ") == (
        "40 03 00 01 87 50 03 00 02 87 70 03 00 09 92 62 03 00 09 92 90 04 00 02 00 8f b0 04 00 03 00 11"
    )
