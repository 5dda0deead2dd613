"""Extended authentication (MQTT 5.0 section 4.12) with SCRAM-SHA-256, from CONNECT and anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import ClientCertificate, FrontendOptions, ListenerContext
from edgebridge.session.access import AccessPolicy, CertificateUser
from edgebridge.session.passwordfile import PasswordFile, User
from edgebridge.session.scram import ScramSecret
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Auth, ConnAck, Connect, Disconnect, Packet
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import ReasonCode as R
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node

from ..spec.test_scram import finished
from .test_stories_authentication import USERS

METHOD = "SCRAM-SHA-256"
PLAIN = PasswordFile.parse(USERS)
ACCESS = AccessPolicy(
    replace(
        PLAIN,
        users={
            name: replace(user, scram=ScramSecret.make(password, b"salt", 4_096))
            for (name, user), password in zip(PLAIN.users.items(), ("apple", "birch"), strict=True)
        },
    )
)
CLOSED = ListenerContext("closed", is_anonymous=False)
FIRST = "n,,n=anna,r=abc"
HELLO = f"CONNECT method={METHOD} data={FIRST}"


class Exchange:
    """A client of a story that computes what it says."""

    def __init__(self, play: Any, name: str = "a") -> None:
        if not play.clients:
            play("x > CONNECT    x < CONNACK", access=ACCESS)
        self._play, self._name = play, name

    def say(self, packet: Packet) -> Any:
        """Send *packet*; the last thing that comes back, or None."""
        play = self._play
        if self._name not in play.clients:
            play(f"{self._name} opens")
        client = play.client(self._name)
        client.send(packet)
        play.broker.simulation.run_while(lambda: play.broker.is_busy)
        received = client.receive()
        return received[0] if received else None

    def connect(self, first: str = FIRST, **more: Any) -> Any:
        return self.say(Connect(self._name, properties=properties(first.encode()), **more))

    def auth(self, data: bytes, reason: R = R.CONTINUE_AUTHENTICATION) -> Any:
        return self.say(Auth(reason, properties(data)))


def properties(data: bytes) -> Properties:
    return {Property.AUTHENTICATION_METHOD: METHOD, Property.AUTHENTICATION_DATA: data}


def data_of(packet: Any) -> bytes:
    assert packet.properties[Property.AUTHENTICATION_METHOD] == METHOD  # [MQTT-4.12.0-5]
    data: bytes = packet.properties[Property.AUTHENTICATION_DATA]
    return data


@pytest.mark.mqtt(v5=("MQTT-4.12.0-2", "MQTT-4.12.0-3", "MQTT-4.12.0-5"))
def test_who_knows_the_password_is_let_in_and_told_that_we_know_it_too(play_v5: Any) -> None:
    """[MQTT-4.12.0-2], [MQTT-4.12.0-3]."""
    a = Exchange(play_v5)
    challenge = a.connect()
    assert isinstance(challenge, Auth)
    assert challenge.reason == R.CONTINUE_AUTHENTICATION
    connack = a.auth(finished(data_of(challenge), "apple", FIRST.encode()))
    assert isinstance(connack, ConnAck)
    assert connack.reason == R.SUCCESS
    assert data_of(connack).startswith(b"v=")
    assert play_v5.broker.frontend.connect_handler.sessions["a"].user == "anna"
    play_v5("""
    a > SUBSCRIBE t    a < SUBACK granted=0
    x > PUBLISH t "1"  a < PUBLISH t "1"
    """)


@pytest.mark.mqtt(v5=("MQTT-4.12.0-4",))
@pytest.mark.parametrize(("first", "password"), [(FIRST, "pear"), ("n,,n=nobody,r=abc", "apple")])
def test_who_does_not_is_refused(play_v5: Any, first: str, password: str) -> None:
    """[MQTT-4.12.0-4]."""
    a = Exchange(play_v5)
    refusal = a.auth(finished(data_of(a.connect(first)), password, first.encode()))
    assert isinstance(refusal, ConnAck)
    assert refusal.reason == R.BAD_USER_NAME_OR_PASSWORD
    assert play_v5.broker.frontend.connect_handler.counters.refused == {R.BAD_USER_NAME_OR_PASSWORD: 1}
    assert not play_v5.client("a").is_connected


def test_who_is_somebody_else_in_another_place_is_refused(play_v5: Any) -> None:
    for a, more in ((Exchange(play_v5, "a"), {"username": "bert"}), (Exchange(play_v5, "b"), {})):
        challenge = a.connect(**more)
        if not more:
            access = replace(ACCESS, certificate_user=CertificateUser.COMMON_NAME)
            play_v5.broker.frontend.replace_access(access, 0)
            for connection in play_v5.broker.frontend.connections.values():
                connection.certificate = ClientCertificate("bert", ())
        refusal = a.auth(finished(data_of(challenge), "apple", FIRST.encode()))
        assert refusal.reason == R.BAD_USER_NAME_OR_PASSWORD


def test_the_user_name_of_connect_may_say_the_same(play_v5: Any) -> None:
    a = Exchange(play_v5)
    connack = a.auth(finished(data_of(a.connect(username="anna")), "apple", FIRST.encode()))
    assert connack.reason == R.SUCCESS


@pytest.mark.mqtt(v5=("MQTT-4.12.0-1",))
def test_another_method_is_refused(play_v5: Any) -> None:
    """[MQTT-4.12.0-1]."""
    play_v5(
        """
        a > CONNECT method=PLAIN data=x    a < CONNACK reason=0x8C why~"only SCRAM-SHA-256"    a < CLOSED
        """,
        access=ACCESS,
    )


def test_without_a_password_file_there_is_no_method(play_v5: Any) -> None:
    play_v5(f"a > {HELLO}    a < CONNACK reason=0x8C why~'no method'    a < CLOSED")


@pytest.mark.mqtt(v5=("MQTT-4.12.0-6", "MQTT-4.12.0-7"))
def test_who_names_no_method_hears_of_none(play_v5: Any) -> None:
    """[MQTT-4.12.0-6], [MQTT-4.12.0-7]."""
    play_v5(
        f"""
        a > CONNECT username="anna" password="apple"       a < CONNACK
        a > AUTH reason=0x19 method={METHOD} data={FIRST}  a < DISCONNECT reason=0x82    a < CLOSED
        """,
        access=ACCESS,
        listener_context=CLOSED,
    )


@pytest.mark.mqtt(v5=("MQTT-3.1.2-30", "MQTT-3.15.2-1"))
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("PUBLISH t", "CONNACK reason=0x82"),
        ("PINGREQ", "CONNACK reason=0x82"),
        ("SUBSCRIBE t", "CONNACK reason=0x82"),
        (HELLO, "CONNACK reason=0x82"),
        ("AUTH reason=0x18", "CONNACK reason=0x82"),
        ("AUTH reason=0x18 method=PLAIN data=x", "CONNACK reason=0x82"),
        (f"AUTH reason=0x19 method={METHOD} data={FIRST}", "CONNACK reason=0x82"),
        (f"AUTH method={METHOD}", "CONNACK reason=0x82"),
        (f"AUTH reason=0x18 method={METHOD} data=nonsense", "CONNACK reason=0x87"),
    ],
)
def test_in_between_only_the_next_step_is_allowed(play_v5: Any, said: str, answer: str) -> None:
    """[MQTT-3.1.2-30]."""
    a = Exchange(play_v5)
    assert isinstance(a.connect(), Auth)
    play_v5(f"a > {said}    a < {answer}    a < CLOSED")


def test_in_between_a_client_may_leave(play_v5: Any) -> None:
    a = Exchange(play_v5)
    a.connect()
    play_v5("a > DISCONNECT")
    assert "a" not in play_v5.broker.frontend.connect_handler.sessions


def test_who_never_answers_is_closed(play_v5: Any) -> None:
    a = Exchange(play_v5)
    a.connect()
    play_v5("""
    wait 9s
    wait 2s    a < CLOSED
    """)


def test_what_is_no_scram_is_refused_with_what_is_wrong(play_v5: Any) -> None:
    play_v5(
        f'a > CONNECT method={METHOD} data="hello"    a < CONNACK reason=0x87 why~"n,,n=user"    a < CLOSED',
        access=ACCESS,
    )


def let_in(play: Any) -> Exchange:
    a = Exchange(play)
    assert a.auth(finished(data_of(a.connect()), "apple", FIRST.encode())).reason == R.SUCCESS
    return a


def test_a_client_proves_itself_anew_while_all_goes_on(play_v5: Any) -> None:
    """Section 4.12.1."""
    a = let_in(play_v5)
    challenge = a.auth(FIRST.encode(), R.RE_AUTHENTICATE)
    assert challenge.reason == R.CONTINUE_AUTHENTICATION
    play_v5("a > PUBLISH t qos=1    a < PUBACK")
    done = a.auth(finished(data_of(challenge), "apple", FIRST.encode()))
    assert isinstance(done, Auth)
    assert done.reason == R.SUCCESS
    assert data_of(done).startswith(b"v=")
    play_v5("a > PINGREQ    a < PINGRESP")


@pytest.mark.mqtt(v5=("MQTT-4.12.1-2",))
@pytest.mark.parametrize(("first", "password"), [(FIRST, "pear"), ("n,,n=bert,r=abc", "birch"), ("nonsense", "")])
def test_who_fails_to_prove_itself_anew_has_to_go(play_v5: Any, first: str, password: str) -> None:
    """[MQTT-4.12.1-2]. Another user would take over the session of the first."""
    a = let_in(play_v5)
    answer = a.auth(first.encode(), R.RE_AUTHENTICATE)
    if isinstance(answer, Auth):
        answer = a.auth(finished(data_of(answer), password, first.encode()))
    assert isinstance(answer, Disconnect)
    assert answer.reason == R.NOT_AUTHORIZED


@pytest.mark.mqtt(v5=("MQTT-4.12.1-1",))
@pytest.mark.parametrize("said", [f"AUTH reason=0x18 method={METHOD}", "AUTH reason=0x19 method=PLAIN", "AUTH"])
def test_steps_out_of_turn_end_the_connection(play_v5: Any, said: str) -> None:
    """[MQTT-4.12.1-1]: the method stays what it was."""
    let_in(play_v5)
    play_v5(f"a > {said}    a < DISCONNECT reason=0x82    a < CLOSED")


def test_a_new_password_file_ends_what_it_does_not_know(play_v5: Any) -> None:
    let_in(play_v5)
    frontend = play_v5.broker.frontend
    assert frontend.replace_access(ACCESS, 0) == 0
    passwords = ACCESS.passwords
    assert passwords is not None
    users = {name: User(name, user.hash) for name, user in passwords.users.items()}
    assert frontend.replace_access(replace(ACCESS, passwords=replace(passwords, users=users)), 0) == 1


def test_a_restart_does_not_tell_who_exists() -> None:
    """The salt of somebody who exists is the same after it; so is that of somebody who does not."""

    def salts(secret: bytes) -> list[str]:
        found = []
        for name in ("anna", "nobody"):
            frontend = Frontend(Node(Ledger()), FrontendOptions(), str, ACCESS, secret)
            connection = frontend.opened("p", 0)
            connect = Connect("c", dialect=V5, properties=properties(f"n,,n={name},r=abc".encode()))
            frontend.feed(connection, encode_packet(connect, V5), 0)
            challenge = decode_packet(connection.out[0][0], connection.out[0][2:], V5)
            data = challenge.properties[Property.AUTHENTICATION_DATA]
            found.append(data.decode().split(",")[1])
        return found

    before, after = salts(b"1" * 32), salts(b"2" * 32)
    assert before == after
    assert len(set(before)) == 2
    assert AccessPolicy().scram_decoy == b""
