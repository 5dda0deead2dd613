"""Who may use a client identifier: sessions belong to a user, also after a restart (`access.client_ids`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgebridge.frontend.admin import end_session
from edgebridge.frontend.event_buffer import REFUSED, SESSION_ENDED, ClientEvent
from edgebridge.frontend.options import CLIENT_ID_REFUSED, ClientCertificate, ListenerContext
from edgebridge.session.access import AccessPolicy, CertificateUser, ClientIdRule
from edgebridge.session.credentials import ANONYMOUS
from edgebridge.session.token import JsonWebToken, TokenKeys, key_line
from edgebridge.wire.reasons import ReasonCode
from edgebroker.names import ClientId

from .test_stories_authentication import ACCESS

KEYS = TokenKeys.parse(key_line("fleet", bytes(32)))
OWNED = replace(ACCESS, tokens=KEYS)
PREFIX = replace(OWNED, client_ids=ClientIdRule.USER_PREFIX)
FREE = replace(OWNED, client_ids=ClientIdRule.FREE)
ANNA, BERT = 'username="anna" password="apple"', 'username="bert" password="birch"'
NOBODY = ""
KEPT = "clean=0 session=3600"
HELD = f"""
    a > CONNECT {KEPT} {ANNA}              a < CONNACK present=0
    a > SUBSCRIBE t qos=1                  a < SUBACK granted=1
    a leaves
    b > CONNECT {BERT}                     b < CONNACK
    b > PUBLISH t qos=1 "for anna"         b < PUBACK
    b > PUBLISH t qos=1 "and this"         b < PUBACK
"""
"""The session of anna waits, with two messages that were acknowledged."""
COLLECTED = f"""
    a > CONNECT {KEPT} {ANNA}              a < CONNACK present=1
    a < PUBLISH t qos=1 "for anna"         a < PUBLISH t qos=1 "and this"
"""
AGAIN = 'x < PUBLISH t qos=1 dup=1 "for anna"    x < PUBLISH t qos=1 dup=1 "and this"'
GONE = "{0} < DISCONNECT reason=0x8E    {0} < CLOSED"
REFUSAL = "x < CONNACK reason=0x85    x < CLOSED"


def events(play: Any, code: str) -> list[ClientEvent]:
    """What the operator's log gets of *code*, since the last call."""
    return [event for event in play.broker.frontend.events.take()[0] if event.code == code]


def owner(play: Any, client: str = "a") -> str:
    return str(play.broker.frontend.connect_handler.sessions[ClientId(client)].user)


# -- owned ------------------------------------------------------------------------------------------------------


def test_the_default_is_owned() -> None:
    assert AccessPolicy().client_ids is ClientIdRule.OWNED
    assert AccessPolicy(client_ids=ClientIdRule.FREE) == AccessPolicy(), "it asks nobody who he is"


@pytest.mark.parametrize("other", [BERT, NOBODY], ids=["user", "anonymous"])
@pytest.mark.parametrize("session", ["clean=1", KEPT, "clean=0"])
def test_the_session_of_a_user_who_is_away_is_neither_ended_nor_taken_over(play: Any, other: str, session: str) -> None:
    play(HELD, access=OWNED)
    play(f"x > CONNECT id=a {session} {other}    {REFUSAL}")
    play(COLLECTED)
    assert play.broker.frontend.connect_handler.counters.refused == {ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 1}


@pytest.mark.parametrize("other", [BERT, NOBODY], ids=["user", "anonymous"])
@pytest.mark.parametrize("session", ["clean=1", KEPT])
def test_a_user_who_is_connected_stays(play: Any, other: str, session: str) -> None:
    """Also if its session ends with the connection."""
    play(f"a > CONNECT {ANNA}    a < CONNACK", access=OWNED)
    play(f"x > CONNECT id=a {session} {other}    {REFUSAL}    a > PINGREQ    a < PINGRESP")


def test_the_owner_takes_over_resumes_and_replaces(play: Any) -> None:
    play(HELD, access=OWNED)
    play(COLLECTED)
    play(f"x > CONNECT id=a {KEPT} {ANNA}    x < CONNACK present=1    {GONE.format('a')}    {AGAIN}    x leaves")
    play(f"a > CONNECT clean=1 {ANNA}       a < CONNACK present=0")


@pytest.mark.parametrize("other", [BERT, NOBODY], ids=["user", "anonymous"])
def test_a_session_has_its_owner_after_a_restart(play: Any, other: str) -> None:
    play(HELD, access=OWNED, is_stored=True)
    play("broker crashes    b < CLOSED")
    play(f"x > CONNECT id=a clean=1 {other}    {REFUSAL}")
    play(COLLECTED)


def test_an_anonymous_client_keeps_no_user_out(play: Any) -> None:
    """Connected or away; what the user has then is his, also after a restart."""
    play(f"x > CONNECT id=a {KEPT}    x < CONNACK", access=OWNED, is_stored=True)
    play(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK present=1    {GONE.format('x')}")
    assert owner(play) == "anna"
    play(f"a leaves    wait 1s    x > CONNECT id=a    {REFUSAL}    broker crashes    x > CONNECT id=a    {REFUSAL}")
    assert owner(play) == "anna"
    play(f"y > CONNECT id=c {KEPT}    y < CONNACK    y leaves    c > CONNECT {KEPT} {ANNA}    c < CONNACK present=1")


def test_what_an_anonymous_client_left_is_anybody_s(play: Any) -> None:
    """After a restart too: the record of the session has no user, as those of gateways before passwords were set."""
    play(f"a > CONNECT {KEPT}    a < CONNACK    a leaves", access=OWNED, is_stored=True)
    play(f"broker crashes    x > CONNECT id=a {KEPT}    x < CONNACK present=1    x leaves")
    assert owner(play) == ""
    play(f"x > CONNECT id=a {KEPT} {BERT}    x < CONNACK present=1    x leaves")
    assert owner(play) == "bert"
    play(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK reason=0x85    a < CLOSED")


def test_where_no_user_is_known_sessions_are_everybody_s(play: Any) -> None:
    """A name that was not checked owns nothing."""
    play(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK    a leaves    a > CONNECT {KEPT} {BERT}    a < CONNACK present=1")


def test_an_identifier_is_free_when_its_session_has_ended(play: Any) -> None:
    play(f"a > CONNECT {ANNA}    a < CONNACK    a leaves    wait 1s    x > CONNECT id=a    x < CONNACK", access=OWNED)


def test_a_session_that_expired_belongs_to_nobody(play_v5: Any) -> None:
    play_v5(HELD, access=OWNED)
    play_v5("wait 3601s    x > CONNECT id=a    x < CONNACK present=0")
    assert not events(play_v5, SESSION_ENDED), "it ended by itself"


def test_an_operator_ends_any_session(play: Any) -> None:
    play(HELD, access=OWNED)
    sessions = play.broker.frontend.connect_handler.sessions
    play.broker.operate(lambda frontend: end_session(frontend, sessions[ClientId("a")], play.broker.simulation.now))
    play("x > CONNECT id=a    x < CONNACK present=0")
    assert not events(play, SESSION_ENDED), "whoever gave the order has it in the log"


def test_a_certificate_a_token_and_a_password_prove_the_same_user(play: Any) -> None:
    access = replace(OWNED, certificate_user=CertificateUser.COMMON_NAME)
    play(HELD, access=access)
    token = KEYS.make(JsonWebToken("anna", play.broker.unix_s + 600, key_id="fleet"))
    play("x opens")
    play.client("x").line.connection.certificate = ClientCertificate("bert")
    play(f"x > CONNECT id=a {ANNA}    {REFUSAL}    x opens")
    play.client("x").line.connection.certificate = ClientCertificate("anna")
    play(f"x > CONNECT id=a {KEPT} {BERT}    x < CONNACK present=1    {AGAIN.replace('dup=1 ', '')}    x leaves")
    play(f'x > CONNECT id=a {KEPT} username="anna" password="{token}"    x < CONNACK present=1    {AGAIN}')
    assert owner(play) == "anna"


def test_a_part_of_the_gateway_is_the_same_under_any_user(play: Any) -> None:
    play(HELD, access=OWNED)
    play.broker.replace_access(PREFIX)
    play.broker.entrance = ListenerContext("bridge", verdict=ANONYMOUS)
    play(f"x > CONNECT id=a {KEPT}    x < CONNACK present=1    {AGAIN.replace('dup=1 ', '')}")


def test_a_refusal_tells_the_client_nothing_and_the_operator_why(play_v5: Any) -> None:
    """Whether the owner is connected or away; the check comes after that of the password."""
    play_v5("w opens", access=OWNED)
    for place, present in ("a leaves    wait 1s", 0), ("", 1):
        play_v5(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK present={present}    {place}")
        play_v5(f'x > CONNECT id=a    x < CONNACK reason=0x85 why="{CLIENT_ID_REFUSED}"    x < CLOSED')
        play_v5('x > CONNECT id=a username="bert" password="no"    x < CONNACK reason=0x86    x < CLOSED')
        told = [event.text for event in events(play_v5, REFUSED)]
        assert told == [f"{CLIENT_ID_REFUSED}: its session belongs to the user 'anna'", "wrong user name or password"]


# -- user-prefix ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anna", "anna:", "anna:app", "anna:a:b"])
def test_an_identifier_is_the_user_name_or_begins_with_it(play: Any, name: str) -> None:
    play(f"a > CONNECT id={name} {ANNA}    a < CONNACK", access=PREFIX)


@pytest.mark.parametrize("name", ["a", "ann", "anna-2", "anna.x", "anna/x", "annax", "bert", "bert:anna", "Anna"])
def test_other_identifiers_are_refused(play: Any, name: str) -> None:
    play(f"a > CONNECT id={name} {ANNA}    a < CONNACK reason=0x85    a < CLOSED", access=PREFIX)
    assert not play.broker.frontend.connect_handler.sessions
    assert [event.text.partition(": ")[0] for event in events(play, REFUSED)] == [CLIENT_ID_REFUSED]


def test_with_a_prefix_sessions_are_owned_too(play: Any) -> None:
    """An anonymous client may use any identifier until its user comes."""
    play(f"a > CONNECT id=anna:1 {KEPT} {ANNA}    a < CONNACK    a leaves", access=PREFIX)
    play("x > CONNECT id=anna:1    x < CONNACK reason=0x85    x < CLOSED    x > CONNECT id=anna:2    x < CONNACK")
    play(f"b > CONNECT id=anna:2 {BERT}    b < CONNACK reason=0x85    b < CLOSED")
    play(f"a > CONNECT id=anna:2 {ANNA}    a < CONNACK    {GONE.format('x')}")


def test_an_identifier_that_the_server_assigned_stays_its_user_s(play_v5: Any) -> None:
    play_v5(f'a > CONNECT id="" clean=1 session=3600 {ANNA}    a < CONNACK', access=PREFIX)
    [assigned] = play_v5.broker.frontend.connect_handler.sessions
    play_v5(f"a leaves    b > CONNECT id={assigned} {BERT}    b < CONNACK reason=0x85    b < CLOSED")
    play_v5(f"a > CONNECT id={assigned} {KEPT} {ANNA}    a < CONNACK present=1")


def test_a_reload_changes_the_rule_for_those_who_connect(play: Any) -> None:
    """Sessions of before stay, and their owners resume them."""
    play(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK", access=OWNED)
    assert play.broker.replace_access(PREFIX) == 0
    play("a > PINGREQ    a < PINGRESP    a leaves")
    play(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK present=1    a leaves")
    play(f"c > CONNECT id=c {ANNA}    c < CONNACK reason=0x85    c < CLOSED")
    play(f"x > CONNECT id=a    {REFUSAL}")
    assert play.broker.replace_access(FREE) == 0
    play("x > CONNECT id=a    x < CONNACK present=0")


# -- free -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [BERT, NOBODY], ids=["user", "anonymous"])
def test_where_identifiers_are_free_a_session_is_replaced_and_not_handed_over(play: Any, other: str) -> None:
    play(HELD, access=FREE)
    play(f"x > CONNECT id=a {KEPT} {other}    x < CONNACK present=0")
    [event] = events(play, SESSION_ENDED)
    user = "bert" if other else ""
    assert event[:1] + event[3:] == (SESSION_ENDED, 0, "a client of another user ended a session", user, 2)


def test_where_identifiers_are_free_a_client_that_is_connected_stays(play: Any) -> None:
    play(f"a > CONNECT {ANNA}    a < CONNACK    x > CONNECT id=a {BERT}    {REFUSAL}", access=FREE)


# -- the operator's log -----------------------------------------------------------------------------------------


def test_a_clean_start_that_drops_messages_is_in_the_log(play: Any) -> None:
    play(HELD, access=OWNED)
    play.broker.frontend.events.take()
    play(f"a > CONNECT clean=1 {ANNA}    a < CONNACK present=0")
    peer = play.client("a").line.peer
    text = "a clean start ended a session"
    assert events(play, SESSION_ENDED) == [ClientEvent(SESSION_ENDED, "a", peer, 0, text, "anna", 2)]
    play(f"a leaves    a > CONNECT clean=1 {ANNA}    a < CONNACK    a leaves    a > CONNECT {KEPT}    a < CONNACK")
    assert not events(play, SESSION_ENDED), "nothing was dropped"


@pytest.mark.parametrize(
    "resumed", [f"{KEPT} {ANNA}    a < CONNACK present=1", f"clean=0 {ANNA}    a < CONNACK present=1"]
)
def test_a_client_that_ends_its_session_with_its_connection_is_in_the_log(play_v5: Any, resumed: str) -> None:
    """By the expiry of DISCONNECT, or of a CONNECT that resumed it. An expiry of another length ends nothing."""
    play_v5(HELD, access=OWNED, is_stored=True)
    play_v5(f"a > CONNECT {resumed}    a < PUBLISH t qos=1 'for anna'    a < PUBLISH t qos=1 'and this'    a > PUBACK")
    play_v5("a > DISCONNECT session=0")
    [event] = events(play_v5, SESSION_ENDED)
    assert (event.client, event.user, event.dropped, event.text) == ("a", "anna", 1, "a client ended its session")
    play_v5(f"a > CONNECT {KEPT} {ANNA}    a < CONNACK present=0")


def test_a_session_that_was_never_to_outlive_its_connection_is_not_in_the_log(play: Any) -> None:
    play(f"a > CONNECT {ANNA}    a < CONNACK    a > SUBSCRIBE t qos=1    a < SUBACK granted=1", access=OWNED)
    play('a > PUBLISH t qos=1 "x"    a < PUBLISH t qos=1 "x"    a < PUBACK    a leaves    wait 1s')
    assert not play.broker.frontend.connect_handler.sessions
    assert not events(play, SESSION_ENDED)
