"""CONNECT, CONNACK, DISCONNECT: the statements of sections 3.1, 3.2 and 3.14 that other stories do not show."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import Dialect
from edgebridge.wire.fields import write_binary, write_text
from edgebridge.wire.packets import ConnAck
from edgebridge.wire.properties import Property

KEPT = "CONNECT clean=0 session=3600"
READER = """
    alice > CONNECT               alice < CONNACK
    alice > SUBSCRIBE w/# qos=2   alice < SUBACK granted=2
"""


def connect(dialect: Dialect, flags: int, *fields: bytes, properties: bytes = b"\0") -> str:
    """A CONNECT with these *flags* and payload *fields*, however wrong they are together."""
    head = b"\x00\x04MQTT" + bytes((dialect.level, flags)) + b"\x00\x00"
    body = head + (properties if dialect.has_properties else b"") + b"".join(fields)
    return "0x" + (b"\x10" + bytes((len(body),)) + body).hex()


def refused(play: Any, octets: str) -> None:
    """The CONNECT in *octets* closes the connection; version 5 says that it is malformed."""
    answer = "mallory < CONNACK reason=0x81" if play.dialect.has_reasons else ""
    play(f"""
    mallory opens
    mallory > {octets}    {answer}    mallory < CLOSED
    """)


# -- the will's flags --------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311=("MQTT-3.1.2-11", "MQTT-3.1.2-13"), v5="MQTT-3.1.2-11")
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A])
def test_will_qos_without_a_will(play: Any, flags: int) -> None:
    refused(play, connect(play.dialect, flags, write_text("m")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-15", v5="MQTT-3.1.2-13")
def test_will_retain_without_a_will(play: Any) -> None:
    refused(play, connect(play.dialect, 0x22, write_text("m")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-14", v5="MQTT-3.1.2-12")
def test_a_will_of_qos_3(play: Any) -> None:
    will = (b"\0" if play.dialect.has_properties else b"") + write_text("w") + write_binary(b"x")
    refused(play, connect(play.dialect, 0x1E, write_text("m"), will))


@pytest.mark.mqtt("MQTT-3.1.2-9")
def test_a_will_that_is_not_there(play: Any) -> None:
    refused(play, connect(play.dialect, 0x06, write_text("m")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-11")
def test_a_will_without_its_flag(play: Any) -> None:
    will = (b"\0" if play.dialect.has_properties else b"") + write_text("w") + write_binary(b"x")
    refused(play, connect(play.dialect, 0x02, write_text("m"), will))


# -- user name and password --------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311="MQTT-3.1.2-18", v5="MQTT-3.1.2-16")
def test_a_user_name_without_its_flag(play: Any) -> None:
    refused(play, connect(play.dialect, 0x02, write_text("m"), write_text("user")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-19", v5="MQTT-3.1.2-17")
def test_a_user_name_that_is_not_there(play: Any) -> None:
    refused(play, connect(play.dialect, 0x82, write_text("m")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-20", v5="MQTT-3.1.2-18")
def test_a_password_without_its_flag(play: Any) -> None:
    refused(play, connect(play.dialect, 0x82, write_text("m"), write_text("user"), write_binary(b"secret")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-21", v5="MQTT-3.1.2-19")
def test_a_password_that_is_not_there(play: Any) -> None:
    refused(play, connect(play.dialect, 0xC2, write_text("m"), write_text("user")))


@pytest.mark.mqtt(v311="MQTT-3.1.2-22")
def test_a_password_without_a_user_name(play_v311: Any) -> None:
    refused(play_v311, connect(play_v311.dialect, 0x42, write_text("m"), write_binary(b"secret")))


# -- strings -----------------------------------------------------------------------------------------------------

NO_UTF8 = b"\x00\x02\xc3\x28"


@pytest.mark.mqtt("MQTT-3.1.3-4")
def test_a_client_identifier_that_is_no_utf8(play: Any) -> None:
    refused(play, connect(play.dialect, 0x02, NO_UTF8))


@pytest.mark.mqtt(v311="MQTT-3.1.3-10", v5="MQTT-3.1.3-11")
def test_a_will_topic_that_is_no_utf8(play: Any) -> None:
    will = (b"\0" if play.dialect.has_properties else b"") + NO_UTF8 + write_binary(b"x")
    refused(play, connect(play.dialect, 0x06, write_text("m"), will))


@pytest.mark.mqtt(v311="MQTT-3.1.3-11", v5="MQTT-3.1.3-12")
def test_a_user_name_that_is_no_utf8(play: Any) -> None:
    refused(play, connect(play.dialect, 0x82, write_text("m"), NO_UTF8))


@pytest.mark.mqtt("MQTT-3.1.3-3")
def test_a_connect_without_a_client_identifier(play: Any) -> None:
    refused(play, connect(play.dialect, 0x02))


# -- client identifiers ------------------------------------------------------------------------------------------


@pytest.mark.mqtt("MQTT-3.1.3-5")
@pytest.mark.parametrize(
    "client_id",
    ["0", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"],
)
def test_identifiers_every_server_takes(play: Any, client_id: str) -> None:
    play(f"alice > CONNECT id={client_id}    alice < CONNACK reason=0")


@pytest.mark.mqtt("MQTT-3.1.3-2")
def test_sessions_go_by_the_client_identifier_alone(play: Any) -> None:
    """Not by the case of its letters, nor by the connection."""
    play(f"""
    alice > {KEPT} id=one    alice < CONNACK present=0
    alice cut
    bob   > {KEPT} id=ONE    bob   < CONNACK present=0
    bob cut
    carl  > {KEPT} id=one    carl  < CONNACK present=1
    """)


@pytest.mark.mqtt(v311=("MQTT-3.1.3-9", "MQTT-3.2.2-5"), v5=("MQTT-3.1.3-8", "MQTT-3.2.2-7"))
def test_an_identifier_beyond_the_bounds_is_refused(play: Any) -> None:
    play(
        "alice > CONNECT id=12345    alice < CONNACK reason=0x85    alice < CLOSED",
        FrontendOptions(client_id_bytes_max=4),
    )


@pytest.mark.mqtt(v311="MQTT-3.1.3-6")
def test_clients_without_identifier_do_not_meet(play_v311: Any) -> None:
    play_v311("""
    alice > CONNECT id=""    alice < CONNACK
    bob   > CONNECT id=""    bob   < CONNACK
    alice > PINGREQ          alice < PINGRESP
    """)
    assert len(play_v311.broker.frontend.connect_handler.sessions) == 2


@pytest.mark.mqtt(v5=("MQTT-3.1.3-7", "MQTT-3.2.2-16"))
def test_an_assigned_identifier_is_nobody_elses_and_holds(play_v5: Any) -> None:
    play_v5("alice > CONNECT    alice < CONNACK")
    names = iter(("alice", "alice", "fresh"))
    play_v5.broker.frontend.connect_handler._new_client_id = lambda: next(names)
    play_v5("""
    bob   > CONNECT id="" clean=0 session=60     bob   < CONNACK assigned=fresh
    alice > PINGREQ                              alice < PINGRESP
    bob cut
    carl  > CONNECT id=fresh clean=0 session=60  carl  < CONNACK present=1
    """)


# -- CONNACK -----------------------------------------------------------------------------------------------------


@pytest.mark.mqtt("MQTT-3.2.0-1", v311="MQTT-3.1.4-4", v5=("MQTT-3.1.4-5", "MQTT-3.2.0-2"))
def test_connack_comes_first_and_once(play: Any) -> None:
    """Even if a message is waiting for the client."""
    play(f"""
    alice > {KEPT}                alice < CONNACK reason=0
    alice > SUBSCRIBE t qos=1     alice < SUBACK granted=1
    alice > SUBSCRIBE t qos=1     alice < SUBACK granted=1
    alice cut
    bob   > CONNECT               bob   < CONNACK reason=0
    bob   > PUBLISH t qos=1       bob   < PUBACK
    alice > {KEPT}                alice < CONNACK reason=0 present=1    alice < PUBLISH t qos=1
    """)


@pytest.mark.mqtt(v311="MQTT-3.2.2-4", v5="MQTT-3.2.2-6")
def test_a_refusal_knows_no_session(play: Any) -> None:
    """There is one, and the CONNECT is refused for its identifier, or for the number of sessions."""
    script = f"""
    alice > {KEPT}                   alice < CONNACK
    alice > SUBSCRIBE t qos=1        alice < SUBACK granted=1
    alice > PUBLISH t qos=1 "x"      alice < PUBLISH t qos=1 "x"    alice < PUBACK    alice cut
    """
    play(script, FrontendOptions(client_id_bytes_max=5), quota=Quota(sessions_max=1))
    play("""
    alice > CONNECT id=another clean=0    alice < CONNACK present=0 reason=0x85    alice < CLOSED
    bob   > CONNECT clean=0               bob   < CONNACK present=0 reason=0x97    bob   < CLOSED
    """)


@pytest.mark.mqtt(v311="MQTT-3.1.4-5", v5=("MQTT-3.1.4-6", "MQTT-3.1.4-2", "MQTT-3.2.2-7"))
def test_nothing_behind_a_refused_connect_is_processed(play: Any) -> None:
    publish = "300400017478" if not play.dialect.has_reasons else "30050001740078"
    long = connect(play.dialect, 0x02, write_text("toolong")).removeprefix("0x")
    play("alice > CONNECT    alice < CONNACK", FrontendOptions(client_id_bytes_max=6))
    play(f"""
    alice > SUBSCRIBE #             alice < SUBACK granted=0
    mallory opens
    mallory > 0x{long}{publish}     mallory < CONNACK reason=0x85    mallory < CLOSED
    """)


@pytest.mark.mqtt(v5=("MQTT-3.1.2-28", "MQTT-4.12.0-6"))
@pytest.mark.parametrize("asked", ["", "responses=0"])
def test_connack_tells_nothing_that_was_not_asked_for(play_v5: Any, asked: str) -> None:
    """Neither response information nor an authentication method."""
    play_v5(f"alice > CONNECT {asked}    alice < CONNACK")
    octets = b"".join(play_v5.client("alice").octets)
    connack = decode_packet(octets[0], octets[2:], play_v5.dialect)
    assert isinstance(connack, ConnAck)
    assert not {Property.RESPONSE_INFORMATION, Property.AUTHENTICATION_METHOD} & connack.properties.keys()


@pytest.mark.mqtt(v5=("MQTT-3.2.2-19", "MQTT-4.13.2-1"))
def test_a_refusal_fits_the_client(play_v5: Any) -> None:
    play_v5("alice > CONNECT id=12345 bytes-max=5    alice < CONNACK reason=0x85    alice < CLOSED", TINY)
    assert b"".join(play_v5.client("alice").octets) == b"\x20\x03\x00\x85\x00"


@pytest.mark.mqtt(v5=("MQTT-3.2.2-20", "MQTT-3.1.2-24"))
def test_user_properties_of_connack_are_left_out_where_they_do_not_fit(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT bytes-max=30    alice < CONNACK reason=0
    bob   > CONNECT                 bob   < CONNACK user.filter=1 user.durability=memory
    """)
    assert all(len(octets) <= 30 for octets in play_v5.client("alice").octets)


@pytest.mark.mqtt(v5="MQTT-3.1.2-24")
def test_a_client_that_takes_no_connack_was_never_here(play_v5: Any) -> None:
    """Nor is its will published."""
    play_v5(READER)
    play_v5("""
    bob > CONNECT bytes-max=8 will=w/bob will-payload="gone"    bob < CLOSED
    wait 1h
    """)


TINY = FrontendOptions(client_id_bytes_max=4)


# -- DISCONNECT --------------------------------------------------------------------------------------------------


@pytest.mark.mqtt("MQTT-3.14.1-1")
def test_the_flags_of_disconnect_are_checked(play: Any) -> None:
    """What cannot be read is no good-bye: the will is published."""
    play(READER)
    play("""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob > 0xe100    bob < DISCONNECT reason=0x81    bob < CLOSED    alice < PUBLISH w/bob "gone"
    """)


@pytest.mark.mqtt(v5=("MQTT-3.1.2-8", "MQTT-3.14.4-3"))
@pytest.mark.parametrize("reason", ["0x80", "0x81", "0x93", "0x98"])
def test_only_a_normal_good_bye_discards_the_will(play_v5: Any, reason: str) -> None:
    play_v5(READER)
    play_v5(f"""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob > DISCONNECT reason={reason}               alice < PUBLISH w/bob "gone"
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob > DISCONNECT reason=0
    """)


@pytest.mark.mqtt(v5="MQTT-3.14.2-2")
def test_our_disconnect_has_no_session_expiry(play_v5: Any) -> None:
    """What the transcript says of a DISCONNECT would allow more, so the bytes are looked at."""
    play_v5(f"alice > {KEPT}    alice < CONNACK    alice > 0xf100    alice < DISCONNECT reason=0x81    alice < CLOSED")
    last = b"".join(play_v5.client("alice").octets)
    packet = last[last.index(b"\xe0") :]
    assert packet[2] == 0x81
    assert packet[4] == 0x1F, "a reason string"
    assert len(packet) == 7 + packet[6], "and nothing else"


@pytest.mark.mqtt(v311="MQTT-4.1.0-2", v5="MQTT-4.1.0-1")
def test_a_session_lasts_as_long_as_its_connection(play: Any) -> None:
    play("""
    alice > CONNECT                alice < CONNACK
    alice > SUBSCRIBE t            alice < SUBACK granted=0
    bob   > CONNECT                bob   < CONNACK
    wait 48h
    bob   > PUBLISH t "still"      alice < PUBLISH t "still"
    """)


# -- wills -------------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311="MQTT-3.1.2-12")
def test_without_a_will_nothing_is_published(play_v311: Any) -> None:
    """Not even the will of an earlier connection of the same session."""
    play_v311("""
    alice > CONNECT                                        alice < CONNACK
    alice > SUBSCRIBE #                                    alice < SUBACK granted=0
    bob   > CONNECT clean=0 will=w/bob will-payload="1"    bob   < CONNACK
    bob   > DISCONNECT
    bob   > CONNECT clean=0                                bob   < CONNACK present=1
    bob cut
    """)


@pytest.mark.mqtt(v311="MQTT-3.1.2-16", v5="MQTT-3.1.2-14")
def test_a_will_is_not_retained_unless_it_says_so(play: Any) -> None:
    play("""
    bob   > CONNECT will=w/bob will-payload="1" will-retain=1   bob < CONNACK
    bob cut
    bob   > CONNECT will=w/bob will-payload="2"                 bob < CONNACK
    bob cut
    alice > CONNECT            alice < CONNACK
    alice > SUBSCRIBE w/#      alice < SUBACK granted=0    alice < PUBLISH w/bob retain=1 "1"
    """)


@pytest.mark.mqtt(v5="MQTT-3.1.3-10")
def test_user_properties_of_a_will_keep_their_order(play_v5: Any) -> None:
    play_v5(READER)
    play_v5("""
    bob > CONNECT will=w/bob will-user.b=2 will-user.a=1 will-user.b=1    bob < CONNACK
    bob cut    alice < PUBLISH w/bob user.b=2 user.a=1 user.b=1
    """)


@pytest.mark.mqtt("MQTT-3.1.2-10")
def test_a_will_is_published_once(play: Any) -> None:
    play(READER)
    play(f"""
    bob > {KEPT} will=w/bob will-payload="gone"   bob < CONNACK
    bob cut                                       alice < PUBLISH w/bob "gone"
    bob > {KEPT}                                  bob < CONNACK present=1
    bob cut
    wait 2h
    """)


# -- keep alive --------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311="MQTT-3.1.2-24", v5="MQTT-3.1.2-22")
def test_half_a_packet_is_no_sign_of_life(play: Any) -> None:
    """A byte now and then of a packet that is never finished holds nothing open."""
    play("""
    alice > CONNECT keep-alive=60   alice < CONNACK
    wait 50s
    alice > 0x3020
    wait 39s
    alice > 0x0001
    wait 2s                         alice < DISCONNECT reason=0x8D    alice < CLOSED
    """)


def test_a_large_packet_under_way_is_a_sign_of_life(play: Any) -> None:
    """A message of a megabyte may take minutes on a thin uplink."""
    play("""
    alice > CONNECT keep-alive=60   alice < CONNACK
    alice > 0x30ffff3f
    wait 80s
    alice > 0x000174
    wait 80s
    alice > 0x0001
    wait 80s
    alice > 0x0001
    wait 91s                        alice < DISCONNECT reason=0x8D    alice < CLOSED
    """)


@pytest.mark.mqtt("MQTT-3.12.4-1")
def test_every_ping_is_answered(play: Any) -> None:
    play("""
    alice > CONNECT     alice < CONNACK
    alice > 0xc000c000c000    alice < PINGRESP    alice < PINGRESP    alice < PINGRESP
    """)
