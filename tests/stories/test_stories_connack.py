"""What the server announces in CONNACK: keep alive, response information, retain, and other servers."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions, ListenerContext, Redirect
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.wire.packets import Disconnect, PubAck
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND

# -- keep alive ------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-3.1.2-21", "MQTT-3.2.2-21"))
@pytest.mark.parametrize("asked", [0, 61, 65_535])
def test_a_keep_alive_that_is_too_long_is_replaced(play_v5: Any, asked: int) -> None:
    """[MQTT-3.1.2-21], [MQTT-3.2.2-21]: and then it is ours that counts."""
    play_v5(
        f"alice > CONNECT keep-alive={asked}    alice < CONNACK server-keep-alive=60",
        FrontendOptions(keep_alive_s_max=60),
    )
    play_v5("""
    wait 89s
    wait 2s    alice < DISCONNECT reason=0x8D    alice < CLOSED
    """)


@pytest.mark.parametrize("asked", [1, 60])
def test_a_keep_alive_within_the_bound_is_not_spoken_of(play_v5: Any, asked: int) -> None:
    play_v5(f"alice > CONNECT keep-alive={asked}    alice < CONNACK", FrontendOptions(keep_alive_s_max=60))
    assert b"\x13\x00" not in b"".join(play_v5.client("alice").octets)


def test_3_1_1_keeps_its_own_keep_alive(play_v311: Any) -> None:
    play_v311(
        """
        alice > CONNECT keep-alive=120    alice < CONNACK
        wait 179s
        wait 2s                           alice < CLOSED
        """,
        FrontendOptions(keep_alive_s_max=60),
    )


# -- responses -------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-3.1.2-28",))
def test_where_to_have_responses_sent_is_said_to_who_asks(play_v5: Any) -> None:
    """[MQTT-3.1.2-28]."""
    play_v5(
        """
        alice > CONNECT responses=1    alice < CONNACK response-information=responses/alice
        bob   > CONNECT                bob   < CONNACK
        carl  > CONNECT responses=0    carl  < CONNACK
        """,
        FrontendOptions(response_prefix="responses/%c"),
    )
    for name in ("bob", "carl"):
        assert b"responses/" not in b"".join(play_v5.client(name).octets)


def test_it_holds_the_identifier_that_was_assigned(play_v5: Any) -> None:
    play_v5(
        'alice > CONNECT id="" responses=1    alice < CONNACK response-information~r/assigned-',
        FrontendOptions(response_prefix="r/%c"),
    )


def test_an_identifier_that_would_be_a_wildcard_gets_none(play_v5: Any) -> None:
    play_v5('alice > CONNECT id="#" responses=1    alice < CONNACK', FrontendOptions(response_prefix="r/%c"))
    assert b"r/#" not in b"".join(play_v5.client("alice").octets)


def test_without_the_setting_nobody_is_told(play_v5: Any) -> None:
    play_v5("alice > CONNECT responses=1    alice < CONNACK")
    assert b"responses" not in b"".join(play_v5.client("alice").octets)


def test_a_request_finds_its_response(play_v5: Any) -> None:
    """Section 4.10: response topic and correlation data are passed on as they are."""
    play_v5("""
    alice > CONNECT responses=1              alice < CONNACK
    bob   > CONNECT                          bob   < CONNACK
    alice > SUBSCRIBE r/alice                alice < SUBACK granted=0
    bob   > SUBSCRIBE ask                    bob   < SUBACK granted=0
    alice > PUBLISH ask response=r/alice correlation=0x0102 "?"
                                             bob   < PUBLISH ask response=r/alice correlation=0x0102 "?"
    bob   > PUBLISH r/alice correlation=0x0102 "!"
                                             alice < PUBLISH r/alice correlation=0x0102 "!"
    """)


# -- identifiers -----------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-3.2.2-16",))
def test_an_assigned_identifier_is_good_for_a_session_to_keep(play_v5: Any) -> None:
    """[MQTT-3.2.2-16]: also without Clean Start."""
    play_v5('alice > CONNECT id="" clean=0 session=60    alice < CONNACK assigned~assigned-')
    (name,) = play_v5.broker.frontend.connect_handler.sessions
    play_v5(f"""
    alice cut
    alice > CONNECT id={name} clean=0 session=60    alice < CONNACK present=1
    """)


# -- formats ---------------------------------------------------------------------------------------------------

CHECKED = FrontendOptions(payload_format_checked=True)


def test_a_payload_that_is_not_what_it_is_said_to_be_is_refused(play_v5: Any) -> None:
    """Section 3.3.2.3.2."""
    play_v5(
        """
        bob   > CONNECT                             bob   < CONNACK
        alice > CONNECT                             alice < CONNACK
        alice > SUBSCRIBE t                         alice < SUBACK granted=0
        bob   > PUBLISH t qos=1 format=1 0xff       bob   < PUBACK reason=0x99 why~UTF-8
        bob   > PUBLISH t qos=2 format=1 0xff       bob   < PUBREC reason=0x99 why~UTF-8
        bob   > PUBLISH t format=1 0xff
        bob   > PUBLISH t format=1 "ü"              alice < PUBLISH t format=1 "ü"
        bob   > PUBLISH t format=0 0xff             alice < PUBLISH t format=0 0xff
        bob   > PUBLISH t qos=1 0xff                bob   < PUBACK    alice < PUBLISH t 0xff
        bob   > PUBLISH t qos=2 id=2 format=1 "x"   bob   < PUBREC id=2    alice < PUBLISH t format=1 "x"
        """.replace("bob   < PUBACK    alice < PUBLISH t 0xff", "alice < PUBLISH t 0xff    bob < PUBACK"),
        CHECKED,
    )
    assert play_v5.broker.frontend.publish_handler.refused == 3


def test_a_will_too(play_v5: Any) -> None:
    play_v5(
        """
        alice > CONNECT will=t will-format=1 will-payload=0xff
                alice < CONNACK reason=0x99 why~will    alice < CLOSED
        """,
        CHECKED,
    )


def test_by_default_nobody_looks(play_v5: Any) -> None:
    play_v5("""
    bob   > CONNECT                          bob   < CONNACK
    bob   > PUBLISH t qos=1 format=1 0xff    bob   < PUBACK
    """)


# -- retaining -------------------------------------------------------------------------------------------------

NOTHING_KEPT = FrontendOptions(retained_messages_max=0)


@pytest.mark.mqtt(v5=("MQTT-3.2.2-13", "MQTT-3.2.2-14"))
def test_if_nothing_is_retained_that_is_said(play_v5: Any) -> None:
    """[MQTT-3.2.2-13], [MQTT-3.2.2-14]."""
    play_v5(
        """
        bob   > CONNECT                      bob   < CONNACK retained=0
        bob   > PUBLISH t retain=1 "x"       bob   < DISCONNECT reason=0x9A    bob < CLOSED
        alice > CONNECT will=t will-retain=1  alice < CONNACK reason=0x9A    alice < CLOSED
        """,
        NOTHING_KEPT,
    )


def test_3_1_1_cannot_be_told_so_its_message_is_delivered_and_not_kept(play_v311: Any) -> None:
    play_v311(
        """
        bob   > CONNECT                      bob   < CONNACK
        alice > CONNECT                      alice < CONNACK
        alice > SUBSCRIBE t                  alice < SUBACK granted=0
        bob   > PUBLISH t retain=1 "x"       alice < PUBLISH t "x"
        carl  > CONNECT                      carl  < CONNACK
        carl  > SUBSCRIBE t                  carl  < SUBACK granted=0
        """,
        NOTHING_KEPT,
    )


# -- words -----------------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v5=("MQTT-3.1.2-29", "MQTT-3.4.2-2"))
def test_refusals_have_words_for_who_wants_them(play_v5: Any) -> None:
    """[MQTT-3.1.2-29]; and only as many as the client takes [MQTT-3.4.2-2]."""
    play_v5("""
    bob   > CONNECT                 bob   < CONNACK
    bob   > PUBLISH $SYS/x qos=1        bob   < PUBACK reason=0x87 why~"broker's own"
    bob   > PUBLISH $SYS/x qos=2        bob   < PUBREC reason=0x87 why~"broker's own"
    carl  > CONNECT problems=0      carl  < CONNACK
    carl  > PUBLISH $SYS/x qos=1        carl  < PUBACK reason=0x87
    dora  > CONNECT bytes-max=40    dora  < CONNACK
    dora  > PUBLISH $SYS/x qos=1        dora  < PUBACK reason=0x87
    """)
    for name in ("carl", "dora"):
        assert b"broker's own" not in b"".join(play_v5.client(name).octets)


def test_an_identifier_nobody_knows_is_answered_in_words(play_v5: Any) -> None:
    play_v5("""
    bob   > CONNECT                 bob   < CONNACK
    bob   > PUBREL id=9             bob   < PUBCOMP id=9 reason=0x92 why~"packet identifier"
    bob   > PUBREC id=9             bob   < PUBREL id=9 reason=0x92 why~"packet identifier"
    carl  > CONNECT problems=0      carl  < CONNACK
    carl  > PUBREL id=9             carl  < PUBCOMP id=9 reason=0x92
    """)
    assert b"identifier" not in b"".join(play_v5.client("carl").octets)


# -- the window ------------------------------------------------------------------------------------------------

WINDOW = FrontendOptions(receive_maximum=3)


@pytest.mark.mqtt(v5=("MQTT-3.3.4-7",))
@pytest.mark.parametrize(("messages", "reasons"), [(3, []), (4, [0x93])])
def test_more_messages_without_an_answer_than_allowed_end_the_connection(
    play_v5: Any, messages: int, reasons: list[int]
) -> None:
    """[MQTT-3.3.4-7]: QoS 1, where answers wait for the disk."""
    play_v5(
        """
        alice > CONNECT clean=0 session=60    alice < CONNACK
        alice > SUBSCRIBE t qos=1             alice < SUBACK granted=1
        alice cut
        bob   > CONNECT                       bob   < CONNACK receive-max=3
        """,
        WINDOW,
        is_stored=True,
    )
    broker, bob = play_v5.broker, play_v5.client("bob")
    broker.store.disk.sync_us = (SECOND, SECOND)
    bob.write(b"".join(b"\x32\x07\x00\x01t\x00%c\x00x" % number for number in range(1, messages + 1)))
    broker.simulation.run_until(broker.simulation.now + 3 * SECOND)
    ended = [packet.reason for packet in bob.receive() if isinstance(packet, Disconnect)]
    assert ended == reasons
    assert bob.is_connected is not bool(reasons)


def test_who_was_told_of_no_maximum_is_not_held_to_it(play_v311: Any) -> None:
    play_v311(
        """
        alice > CONNECT clean=0               alice < CONNACK
        alice > SUBSCRIBE t qos=1             alice < SUBACK granted=1
        alice cut
        bob   > CONNECT                       bob   < CONNACK
        """,
        WINDOW,
        is_stored=True,
    )
    broker, bob = play_v311.broker, play_v311.client("bob")
    broker.store.disk.sync_us = (SECOND, SECOND)
    bob.write(b"".join(b"\x32\x06\x00\x01t\x00%cx" % number for number in range(1, 11)))
    broker.simulation.run_until(broker.simulation.now + 20 * SECOND)
    assert [type(packet) for packet in bob.receive()] == [PubAck] * 10


# -- elsewhere -------------------------------------------------------------------------------------------------

MOVED = Redirect(ReasonCode.SERVER_MOVED, "b.example:1884 c.example")
AWAY = Redirect(ReasonCode.USE_ANOTHER_SERVER, "b.example")


@pytest.mark.mqtt(v5=("MQTT-3.2.2-19",))
def test_who_comes_is_sent_elsewhere(play_v5: Any) -> None:
    """Section 4.11, [MQTT-3.2.2-22]."""
    play_v5("alice > CONNECT    alice < CONNACK")
    connect_handler = play_v5.broker.frontend.connect_handler
    connect_handler.redirect = MOVED
    play_v5("""
    bob  > CONNECT                    bob  < CONNACK reason=0x9D server="b.example:1884 c.example"    bob  < CLOSED
    carl > CONNECT bytes-max=60       carl < CONNACK reason=0x9D server="b.example:1884 c.example"    carl < CLOSED
    dora > CONNECT bytes-max=20       dora < CONNACK reason=0x9D    dora < CLOSED
    old  > CONNECT v=3.1.1            old  < CONNACK reason=0x88    old  < CLOSED
    """)
    connect_handler.redirect = AWAY
    play_v5("bob  > CONNECT    bob  < CONNACK reason=0x9C server=b.example    bob  < CLOSED")


def test_who_is_here_is_sent_too(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT                                   alice < CONNACK
    old   > CONNECT v=3.1.1                           old   < CONNACK
    """)
    frontend = play_v5.broker.frontend
    assert frontend.redirect_clients(AWAY) == 2
    play_v5("""
    carl  > CONNECT    carl < CONNACK reason=0x9C server=b.example    carl < CLOSED
                       alice < DISCONNECT reason=0x9C server=b.example    alice < CLOSED    old < CLOSED
    """)
    assert frontend.redirect_clients(None) == 0
    play_v5("alice > CONNECT    alice < CONNACK")


def test_a_part_of_the_gateway_itself_goes_nowhere_else(play_v5: Any) -> None:
    """What waits for the remote of a bridge is here, wherever clients are sent."""
    play_v5("alice > CONNECT    alice < CONNACK")
    play_v5.broker.entrance = ListenerContext("bridge cloud", -1, verdict=AuthenticationResult())
    play_v5('cloud > CONNECT id="$bridge/cloud"    cloud < CONNACK')
    assert play_v5.broker.frontend.redirect_clients(AWAY) == 1
    play_v5("""
    cloud > PINGREQ    alice < DISCONNECT reason=0x9C server=b.example    alice < CLOSED    cloud < PINGRESP
    """)


@pytest.mark.mqtt(v5=("MQTT-3.1.2-24", "MQTT-3.14.2-3"))
def test_who_is_sent_elsewhere_hears_as_much_as_it_takes(play_v5: Any) -> None:
    """First the words are left out, then where to go."""
    play_v5("""
    carl > CONNECT bytes-max=60    carl < CONNACK
    dora > CONNECT bytes-max=20    dora < CONNACK
    """)
    assert play_v5.broker.frontend.redirect_clients(MOVED) == 2
    play_v5("""
    erik > CONNECT    erik < CONNACK reason=0x9D    erik < CLOSED
                      carl < DISCONNECT reason=0x9D server="b.example:1884 c.example"    carl < CLOSED
                      dora < DISCONNECT reason=0x9D                                      dora < CLOSED
    """)
