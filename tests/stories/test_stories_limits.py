"""Negotiated limits: receive maximum, packet size, topic aliases, message expiry, slow readers."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.connection import UNREAD_ANSWERS
from edgebridge.frontend.options import FrontendOptions
from edgebroker.log_schema import Cause
from edgelab.simworld.conditions import whole

PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""


def test_connack_says_what_we_grant(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT
    alice < CONNACK receive-max=1024 alias-max=32 bytes-max=16777216 user.filter=1 user.durability=memory
    """)


# -- receive maximum ---------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-3.3.4-9", "MQTT-3.3.4-10", "MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-4.9.0-3"))
def test_no_more_than_the_receive_maximum_is_on_its_way_to_a_client(play_v5: Any) -> None:
    """[MQTT-3.3.4-9]."""
    play_v5("""
    alice > CONNECT receive-max=2         alice < CONNACK
    alice > SUBSCRIBE t qos=2             alice < SUBACK granted=2
    bob   > CONNECT                       bob   < CONNACK
    bob   > PUBLISH t qos=1 "1"           bob   < PUBACK    alice < PUBLISH t qos=1 id=1 "1"
    bob   > PUBLISH t qos=2 "2"           bob   < PUBREC    alice < PUBLISH t qos=2 id=2 "2"
    bob   > PUBREL                        bob   < PUBCOMP
    bob   > PUBLISH t qos=1 "3"           bob   < PUBACK
    bob   > PUBLISH t qos=1 "4"           bob   < PUBACK
    bob   > PUBLISH t "overtakes"         alice < PUBLISH t "overtakes"
    alice > PUBREC                        alice < PUBREL id=2
    alice > PUBCOMP                       alice < PUBLISH t qos=1 "3"
    alice > PUBACK                        alice < PUBLISH t qos=1 "4"
    alice > PUBACK
    alice > PUBACK
    """)
    assert play_v5.broker.ledger.queued == 0


def test_a_refused_message_makes_room(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT receive-max=1         alice < CONNACK
    alice > SUBSCRIBE t qos=2             alice < SUBACK granted=2
    bob   > CONNECT                       bob   < CONNACK
    bob   > PUBLISH t qos=2 "1"           bob   < PUBREC    alice < PUBLISH t qos=2 "1"
    bob   > PUBLISH t qos=1 "2"           bob   < PUBACK
    bob   > PUBLISH t qos=1 "3"           bob   < PUBACK
    alice > PUBREC reason=0x97            alice < PUBLISH t qos=1 "2"
    alice > PUBACK reason=0x80            alice < PUBLISH t qos=1 "3"
    alice > PUBACK
    """)
    assert play_v5.dropped(Cause.REFUSED) == 2
    assert play_v5.broker.ledger.delivered == 1


@pytest.mark.mqtt(v5=("MQTT-3.3.4-9", "MQTT-4.9.0-1"))
def test_a_resumed_session_keeps_to_the_new_receive_maximum(play_v5: Any) -> None:
    """[MQTT-3.3.4-9] on the new connection too: the rest follows as acknowledgements come."""
    play_v5("""
    alice > CONNECT clean=0 session=60                 alice < CONNACK
    alice > SUBSCRIBE t qos=1                          alice < SUBACK granted=1
    bob   > CONNECT                                    bob   < CONNACK
    bob   > PUBLISH t qos=1 "1"                        bob   < PUBACK    alice < PUBLISH t qos=1 id=1 "1"
    bob   > PUBLISH t qos=1 "2"                        bob   < PUBACK    alice < PUBLISH t qos=1 id=2 "2"
    bob   > PUBLISH t qos=1 "3"                        bob   < PUBACK    alice < PUBLISH t qos=1 id=3 "3"
    alice cut
    alice > CONNECT clean=0 session=60 receive-max=2   alice < CONNACK present=1
                                                       alice < PUBLISH t qos=1 id=1 dup=1 "1"
                                                       alice < PUBLISH t qos=1 id=2 dup=1 "2"
    alice > PUBACK                                     alice < PUBLISH t qos=1 id=3 dup=1 "3"
    alice > PUBACK
    alice > PUBACK
    """)
    assert play_v5.broker.ledger.queued == 0


@pytest.mark.mqtt(v5="MQTT-3.3.4-7")
def test_a_client_that_exceeds_our_receive_maximum_is_closed(play_v5: Any) -> None:
    """[MQTT-3.3.4-7]."""
    play_v5("bob > CONNECT    bob < CONNACK receive-max=2", FrontendOptions(receive_maximum=2))
    play_v5("""
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBREL             bob < PUBCOMP
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBLISH t qos=2    bob < DISCONNECT reason=0x93    bob < CLOSED
    """)


def test_a_client_that_cannot_be_told_is_held_to_it_at_qos_2(play_v311: Any) -> None:
    """The identifiers of what it does not release are remembered, so there is a bound."""
    play_v311("bob > CONNECT    bob < CONNACK", FrontendOptions(receive_maximum=2))
    play_v311("""
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBLISH t qos=1    bob < PUBACK
    bob > PUBREL             bob < PUBCOMP
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBLISH t qos=2    bob < CLOSED
    """)


def test_what_a_client_may_send_begins_anew_with_each_connection(play_v5: Any) -> None:
    """Section 4.9: what the last one left unreleased does not count."""
    again = "bob > CONNECT clean=0 session=60    bob < CONNACK receive-max=2 present="
    play_v5(f"{again}0", FrontendOptions(receive_maximum=2))
    play_v5(f"""
    bob > PUBLISH t qos=2    bob < PUBREC
    bob > PUBLISH t qos=2    bob < PUBREC
    bob cut
    {again}1
    bob > PUBLISH t qos=2 id=11    bob < PUBREC id=11
    bob > PUBREL id=1              bob < PUBCOMP id=1
    bob > PUBLISH t qos=2 id=1     bob < PUBREC id=1
    bob > PUBLISH t qos=2 id=12    bob < DISCONNECT reason=0x93    bob < CLOSED
    """)


# -- packet size -------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-3.1.2-24", "MQTT-3.1.2-25"))
def test_a_packet_too_large_for_its_reader_is_not_sent(play_v5: Any) -> None:
    """[MQTT-3.1.2-24, -25]: as if it had been delivered."""
    play_v5("""
    alice > CONNECT bytes-max=30             alice < CONNACK
    alice > SUBSCRIBE t qos=1                alice < SUBACK granted=1
    bob   > CONNECT                          bob   < CONNACK
    bob   > SUBSCRIBE t                      bob   < SUBACK granted=0
    bob   > PUBLISH t "0123456789012345678901234567890"
                                             bob   < PUBLISH t "0123456789012345678901234567890"
    bob   > PUBLISH t qos=1 "0123456789012345678901234567890"
                                             bob   < PUBLISH t "0123456789012345678901234567890"    bob < PUBACK
    bob   > PUBLISH t "short"                alice < PUBLISH t "short"    bob < PUBLISH t "short"
    """)
    assert play_v5.dropped(Cause.PACKET_TOO_LARGE) == 2
    assert play_v5.broker.ledger.queued == 0


@pytest.mark.mqtt(v5="MQTT-3.2.2-15")
def test_a_client_that_sends_too_much_is_closed(play: Any) -> None:
    play("bob > CONNECT    bob < CONNACK", FrontendOptions(packet_bytes_max=20))
    play("""
    bob > PUBLISH t "0123456789"
    bob > PUBLISH t "0123456789012345678901234567890"    bob < DISCONNECT reason=0x95    bob < CLOSED
    """)


@pytest.mark.mqtt(v5=("MQTT-3.9.2-1", "MQTT-3.14.2-3"))
def test_reasons_are_left_out_where_they_do_not_fit(play_v5: Any) -> None:
    """[MQTT-3.9.2-1, MQTT-3.14.2-3]."""
    play_v5("""
    alice > CONNECT bytes-max=40             alice < CONNACK
    alice > SUBSCRIBE $filter/%3D/t          alice < SUBACK granted=0x8F
    alice > 0xf100                           alice < DISCONNECT reason=0x81    alice < CLOSED
    """)
    assert all(len(octets) <= 40 for octets in play_v5.client("alice").octets)


# -- topic aliases -----------------------------------------------------------------------------------------------


def test_topic_aliases(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE #                         alice < SUBACK granted=0
    bob   > PUBLISH long/topic alias=1 "a"      alice < PUBLISH long/topic "a"
    bob   > PUBLISH "" alias=1 "b"              alice < PUBLISH long/topic "b"
    bob   > PUBLISH other alias=1 "c"           alice < PUBLISH other "c"
    bob   > PUBLISH "" alias=1 qos=1 "d"        alice < PUBLISH other "d"    bob < PUBACK
    """)


@pytest.mark.mqtt(v5="MQTT-3.3.2-7")
def test_aliases_belong_to_one_connection(play_v5: Any) -> None:
    """[MQTT-3.3.2-7]."""
    play_v5("""
    bob > CONNECT clean=0 session=60    bob < CONNACK
    bob > PUBLISH t alias=1
    bob cut
    bob > CONNECT clean=0 session=60    bob < CONNACK present=1
    bob > PUBLISH "" alias=1            bob < DISCONNECT reason=0x82    bob < CLOSED
    """)


@pytest.mark.mqtt(v5=("MQTT-3.3.2-8", "MQTT-3.3.2-9", "MQTT-3.2.2-17"))
def test_an_alias_beyond_what_was_announced(play_v5: Any) -> None:
    """[MQTT-3.3.2-9]."""
    play_v5("""
    bob > CONNECT               bob < CONNACK alias-max=32
    bob > PUBLISH t alias=33    bob < DISCONNECT reason=0x94    bob < CLOSED
    bob > CONNECT               bob < CONNACK
    bob > PUBLISH t alias=0     bob < DISCONNECT reason=0x94    bob < CLOSED
    """)


# -- message expiry ----------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5="MQTT-3.3.2-6")
def test_the_remaining_interval_is_forwarded(play_v5: Any) -> None:
    """[MQTT-3.3.2-6]."""
    play_v5("""
    alice > CONNECT clean=0 session=3600       alice < CONNACK
    alice > SUBSCRIBE t qos=1                  alice < SUBACK granted=1
    bob   > CONNECT                            bob   < CONNACK
    bob   > PUBLISH t expiry=100 "now"         alice < PUBLISH t expiry=100 "now"
    alice cut
    bob   > PUBLISH t qos=1 expiry=100 "x"     bob   < PUBACK
    wait 40s
    alice > CONNECT clean=0 session=3600       alice < CONNACK present=1    alice < PUBLISH t qos=1 expiry=60 "x"
    """)


@pytest.mark.mqtt(v5="MQTT-3.3.2-5")
def test_a_message_expires_in_the_queue(play_v5: Any) -> None:
    """[MQTT-3.3.2-5]."""
    play_v5("""
    alice > CONNECT clean=0 session=3600       alice < CONNACK
    alice > SUBSCRIBE t qos=1                  alice < SUBACK granted=1
    alice cut
    bob   > CONNECT                            bob   < CONNACK
    bob   > PUBLISH t qos=1 expiry=10 "old"    bob   < PUBACK
    bob   > PUBLISH t qos=1 "kept"             bob   < PUBACK
    wait 11s
    alice > CONNECT clean=0 session=3600       alice < CONNACK present=1    alice < PUBLISH t qos=1 "kept"
    alice > PUBACK
    """)
    assert play_v5.broker.ledger.expired == 1
    assert play_v5.broker.ledger.queued == 0


# -- slow readers ------------------------------------------------------------------------------------------------


def test_a_slow_reader_loses_qos_0_and_the_loss_is_counted(play: Any) -> None:
    """P6: nobody else notices."""
    play(PAIR, FrontendOptions(out_bytes_max=300))
    play("""
    alice > SUBSCRIBE t          alice < SUBACK granted=0
    carl  > CONNECT              carl  < CONNACK
    carl  > SUBSCRIBE t          carl  < SUBACK granted=0
    alice stalls
    """)
    for number in range(10):
        play(f'bob > PUBLISH t "{number:060}"    carl < PUBLISH t "{number:060}"')
    lost = play.dropped(Cause.OUT_BUFFER_FULL)
    assert 0 < lost < 10
    play("alice reads    " + "    ".join(f'alice < PUBLISH t "{number:060}"' for number in range(10 - lost)))
    play('bob > PUBLISH t "again"    alice < PUBLISH t "again"    carl < PUBLISH t "again"')
    ledger = play.broker.ledger
    assert ledger.delivered == 10 + (10 - lost) + 2
    assert ledger.queued == 0


def test_an_empty_out_buffer_takes_a_message_of_any_size(play: Any) -> None:
    play(PAIR, FrontendOptions(out_bytes_max=300))
    large = "x" * 400
    play(f"""
    alice > SUBSCRIBE t          alice < SUBACK granted=0
    bob > PUBLISH t "{large}"    alice < PUBLISH t "{large}"
    bob > PUBLISH t "{large}"    alice < PUBLISH t "{large}"
    bob > PUBLISH t retain=1 "{large}"    alice < PUBLISH t "{large}"
    """)
    assert play.broker.ledger.dropped == {}


def test_a_message_larger_than_the_out_buffer_reaches_a_reader_that_reads(play: Any) -> None:
    play(PAIR, FrontendOptions(out_bytes_max=300))
    play(f"""
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    bob   > PUBLISH t "{"x" * 1_000}"       alice < PUBLISH t "{"x" * 1_000}"
    bob   > PUBLISH t qos=1 "{"y" * 1_000}"   bob < PUBACK    alice < PUBLISH t qos=1 "{"y" * 1_000}"
    """)


def test_a_slow_reader_gets_all_of_qos_1(play: Any) -> None:
    play(PAIR, FrontendOptions(out_bytes_max=300))
    play("""
    alice > SUBSCRIBE t qos=1    alice < SUBACK granted=1
    alice stalls
    """)
    for number in range(10):
        play(f'bob > PUBLISH t qos=1 "{number:060}"    bob < PUBACK')
    play("alice reads    " + "    ".join(f'alice < PUBLISH t qos=1 "{number:060}"' for number in range(10)))
    for _ in range(10):
        play("alice > PUBACK")
    assert play.broker.ledger.delivered == 10
    assert play.broker.ledger.queued == 0


def test_a_client_that_asks_and_never_reads_is_cut_off(play: Any) -> None:
    """What piles up for it is bounded even where no message is involved."""
    play("mute > CONNECT    mute < CONNACK", FrontendOptions(out_bytes_max=1_000))
    play("mute stalls")
    connection = next(iter(play.broker.frontend.connections.values()))
    pings = "0x" + "c000" * 4_000
    for _ in range(10):
        if not play.broker.frontend.connections:
            break
        play(f"mute > {pings}")
        assert connection.out_bytes < 4_000_000
    assert not play.broker.frontend.connections
    assert [note.text for note in play.broker.frontend.events.take()[0]][-1] == UNREAD_ANSWERS


@pytest.mark.parametrize("weather", [whole], indirect=True)  # megabytes byte by byte take 20 s
@pytest.mark.parametrize("qos", [0, 1])
def test_who_reads_slowly_is_not_to_blame_for_a_large_message(play: Any, qos: int) -> None:
    """It pings in time, and answers wait behind what is larger than all that may. Who lets too many wait has to go."""
    play(PAIR, FrontendOptions(out_bytes_max=1_000))
    large = "x" * 1_200_000
    play(f"alice > SUBSCRIBE t qos={qos}    alice < SUBACK granted={qos}    alice stalls")
    connection = next(iter(play.broker.frontend.connections.values()))
    for _ in range(2):
        play(f'bob > PUBLISH t qos={qos} "{large}"' + "    bob < PUBACK" * qos)
    assert connection.out_bytes > 1_200_000
    for _ in range(3):
        play("alice > PINGREQ")
    play("alice reads" + f'    alice < PUBLISH t qos={qos} "{large}"' * 2 + "    alice < PINGRESP" * 3)
    play("alice stalls" + f'    bob > PUBLISH t "{large}"' * 2)
    held = connection.out_bytes
    while not connection.closing:
        play("alice > 0x" + "c000" * 4_000)
        assert connection.out_bytes < held + 1_100_000


def test_topics_and_filters_have_so_many_levels(play_v5: Any) -> None:
    deep = "/".join("a" * 9)
    play_v5("bob > CONNECT    bob < CONNACK", FrontendOptions(topic_levels_max=9))
    play_v5(f"""
    bob > SUBSCRIBE {deep} {deep}/a    bob < SUBACK granted=0,0x8F
    bob > PUBLISH {deep} "x"           bob < PUBLISH {deep} "x"
    bob > PUBLISH {deep}/a qos=1       bob < DISCONNECT reason=0x90    bob < CLOSED
    ann > CONNECT will={deep}/a will-payload="x"    ann < CONNACK reason=0x90    ann < CLOSED
    """)


def test_a_copy_that_is_too_large_with_all_identifiers_goes_out_as_several(play_v5: Any) -> None:
    play_v5("bob > CONNECT    bob < CONNACK    ann > CONNECT bytes-max=39    ann < CONNACK")
    many = 200_000_000
    play_v5(f"""
    ann > SUBSCRIBE t/# qos=1 sub={many}        ann < SUBACK granted=1
    ann > SUBSCRIBE t/+ qos=1 sub={many + 1}    ann < SUBACK granted=1
    ann > SUBSCRIBE +/1 sub={many + 2}          ann < SUBACK granted=0
    bob > PUBLISH t/1 qos=1 "abcdefgh"          bob < PUBACK
    ann < PUBLISH t/1 qos=1 "abcdefgh" sub={many},{many + 1},{many + 2}
    bob > PUBLISH t/1 qos=1 "abcdefghijklmno"   bob < PUBACK
    ann < PUBLISH t/1 qos=1 "abcdefghijklmno" sub={many}
    ann < PUBLISH t/1 qos=1 "abcdefghijklmno" sub={many + 1}
    ann < PUBLISH t/1 "abcdefghijklmno" sub={many + 2}
    """)
    ledger = play_v5.broker.ledger
    assert (ledger.matched, play_v5.dropped(Cause.PACKET_TOO_LARGE)) == (4, 0)


WRONG = {
    1: ("PUBREC", "PUBREC reason=0x80", "PUBCOMP"),
    2: ("PUBACK", "PUBACK reason=0x80", "PUBCOMP"),
}
"""QoS of a message -> acknowledgements that do not belong to it."""


@pytest.mark.mqtt(v311="MQTT-4.3.3-1", v5="MQTT-4.3.3-3")
@pytest.mark.parametrize(("qos", "wrong"), [(qos, wrong) for qos, several in WRONG.items() for wrong in several])
def test_an_acknowledgement_of_another_kind_ends_the_connection(play: Any, qos: int, wrong: str) -> None:
    """The message was not delivered by it, and is sent again."""
    if "=" in wrong and not play.dialect.has_reasons:
        return
    kept = "CONNECT clean=0 session=3600"
    play(f"""
    bob > CONNECT    bob < CONNACK    ann > {kept}    ann < CONNACK
    ann > SUBSCRIBE t qos={qos}       ann < SUBACK granted={qos}
    bob > PUBLISH t qos={qos} "x"     ann < PUBLISH t qos={qos} "x"    bob < {"PUBACK" if qos == 1 else "PUBREC"}
    ann > {wrong}                     ann < DISCONNECT reason=0x82    ann < CLOSED
    ann > {kept}                      ann < CONNACK present=1    ann < PUBLISH t qos={qos} dup=1 "x"
    """)
    assert play.broker.ledger.delivered == 0
