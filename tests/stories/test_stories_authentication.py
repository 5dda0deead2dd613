"""Who may come in: passwords, anonymous clients and certificates."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Any

import pytest

from edgebridge.frontend.options import ClientCertificate, ListenerContext, Quota, Redirect
from edgebridge.session.access import AccessPolicy, CertificateUser
from edgebridge.session.password_cache import PasswordCache
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND
from edgebroker.limits import VERIFICATIONS_MAX, VERIFICATIONS_PER_ADDRESS_MAX


def quick(user: str, password: str) -> str:
    """A line whose check takes no time: the stories are about what happens around it."""
    salt = b"salt"
    digest = hashlib.sha512(password.encode() + salt).digest()
    return f"{user}:$6${b64encode(salt).decode()}${b64encode(digest).decode()}"


USERS = "\n".join((quick("anna", "apple"), quick("bert", "birch")))
ACCESS = AccessPolicy(PasswordFile.parse(USERS))
CLOSED = ListenerContext("closed", is_anonymous=False)


def test_the_right_password(play: Any) -> None:
    play(
        """
        a > CONNECT username="anna" password="apple"    a < CONNACK
        a > SUBSCRIBE t                                 a < SUBACK granted=0
        b > CONNECT username="bert" password="birch"    b < CONNACK
        b > PUBLISH t "x"                               a < PUBLISH t "x"
        """,
        access=ACCESS,
        listener_context=CLOSED,
    )


@pytest.mark.parametrize(
    "given",
    [
        'username="anna" password="birch"',
        'username="dora" password="apple"',
        'username="anna" password=""',
        'username="anna"',
        'username="" password="apple"',
    ],
)
def test_the_wrong_password(play: Any, given: str) -> None:
    play(f"a > CONNECT {given}    a < CONNACK reason=0x86    a < CLOSED", access=ACCESS)
    assert play.broker.frontend.connect_handler.counters.refused == {ReasonCode.BAD_USER_NAME_OR_PASSWORD: 1}


def test_nobody_in_particular(play: Any) -> None:
    """[MQTT-4.13.2-1]; 3.1.1 says 5, not authorized."""
    play("a > CONNECT    a < CONNACK reason=0x87    a < CLOSED", access=ACCESS, listener_context=CLOSED)


def test_an_empty_user_name_with_an_empty_password_is_nobody(play: Any) -> None:
    play('a > CONNECT username="" password=""    a < CONNACK    b > CONNECT username=""    b < CONNACK', access=ACCESS)
    assert play.client("a").line.connection.verdict.user == ""


def test_an_empty_user_name_lets_nobody_into_a_closed_listener(play: Any) -> None:
    play(
        'a > CONNECT username="" password=""    a < CONNACK reason=0x87    a < CLOSED',
        access=ACCESS,
        listener_context=CLOSED,
    )


def test_nobody_in_particular_where_that_is_enough(play: Any) -> None:
    play(
        'a > CONNECT    a < CONNACK    b > CONNECT username="x" password="y"    b < CONNACK reason=0x86    b < CLOSED',
        access=ACCESS,
    )


def test_without_a_password_file_a_name_proves_nothing(play: Any) -> None:
    play('a > CONNECT username="root" password="x"    a < CONNACK')
    assert play.client("a").line.connection.verdict.user == ""


def test_without_a_password_file_a_listener_for_known_users_stays_closed(play: Any) -> None:
    play('a > CONNECT username="root" password="x"    a < CONNACK reason=0x86    a < CLOSED', listener_context=CLOSED)


def test_a_certificate_names_the_user(play: Any) -> None:
    access = AccessPolicy(ACCESS.passwords, CertificateUser.COMMON_NAME)
    play("a opens", access=access, listener_context=CLOSED)
    play.client("a").line.connection.certificate = ClientCertificate("pump-3")
    play("a > CONNECT    a < CONNACK")
    assert play.client("a").line.connection.session.user == "pump-3"


def test_what_a_certificate_can_say() -> None:
    names = ("DNS:pump-3.example", "URI:urn:dev:1")
    named = {kind: AccessPolicy(None, kind).certificate_user_name("pump-3", names) for kind in CertificateUser}
    assert list(named.values()) == ["", "pump-3", "pump-3.example"]


def test_what_comes_before_the_answer_waits_for_it(play: Any) -> None:
    """[MQTT-3.1.4-5]: a client need not wait for CONNACK; what it sent is done then, or never."""
    play("w > CONNECT    w < CONNACK    w > SUBSCRIBE #    w < SUBACK granted=0", access=ACCESS)
    play.broker.verification_takes = 2 * SECOND
    play("""
    a > CONNECT username="anna" password="apple"
    a > PUBLISH t/1 "early"
    a > PINGREQ
    b > CONNECT username="anna" password="wrong"
    b > PUBLISH t/1 "in vain"
    wait 1s
    """)
    assert play.client("a").line.connection.is_held
    play("wait 5s    w < PUBLISH t/1 'early'    a < CONNACK    a < PINGRESP    b < CONNACK reason=0x86    b < CLOSED")


def test_a_client_that_is_gone_when_its_answer_comes(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", access=ACCESS)
    play.broker.verification_takes = 2 * SECOND
    play('a > CONNECT username="anna" password="apple"    a leaves    wait 1s')
    assert len(play.broker.frontend.authenticator) == 0
    play("wait 5s")
    assert list(play.broker.frontend.connect_handler.sessions) == ["w"]


def test_who_was_right_lately_is_not_asked_again(play: Any) -> None:
    come = 'a > CONNECT username="anna" password="apple"    a < CONNACK    a leaves'
    wrong = 'a > CONNECT username="anna" password="wrong"    a < CONNACK reason=0x86    a < CLOSED'
    play(come, access=ACCESS)
    play(come)
    assert play.broker.verifications == 1
    play(wrong)
    play(wrong)
    assert play.broker.verifications == 3
    play("wait 11m")
    play(come)
    assert play.broker.verifications == 4
    assert play.broker.replace_access(AccessPolicy(PasswordFile.parse(quick("anna", "apple")))) == 0
    play(come)
    assert play.broker.verifications == 5


def test_too_many_at_once_are_told_so(play: Any) -> None:
    play("w opens", access=ACCESS)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    body = bytes.fromhex("00044d515454") + (b"\x05\xc2\0\0\0" if play.dialect.has_properties else b"\x04\xc2\0\0")
    for number in range(VERIFICATIONS_MAX + 3):
        name = f"c{number:03}".encode()
        packet = body + b"\0\4" + name + b"\0\4anna\0\5apple"
        connection = frontend.opened(f"192.0.2.{number}:1", now)
        connection.transport = None
        frontend.feed(connection, bytes([0x10, len(packet)]) + packet, now)
    assert len(frontend.verifications()) == len(frontend.authenticator) == VERIFICATIONS_MAX
    assert frontend.connect_handler.counters.refused == {ReasonCode.SERVER_BUSY: 3}


def test_one_address_does_not_keep_the_others_out(play: Any) -> None:
    play("w opens", access=ACCESS)
    frontend, now = play.broker.frontend, play.broker.simulation.now
    body = bytes.fromhex("00044d515454 04c20000")
    for number in range(VERIFICATIONS_PER_ADDRESS_MAX + 2):
        packet = body + b"\0\4" + f"c{number:03}".encode() + b"\0\4anna\0\5apple"
        connection = frontend.opened(f"192.0.2.1:{number}", now)
        frontend.feed(connection, bytes([0x10, len(packet)]) + packet, now)
    assert frontend.connect_handler.counters.refused == {ReasonCode.SERVER_BUSY: 2}
    packet = body + b"\0\4last\0\4anna\0\5apple"
    other = frontend.opened("192.0.2.2:1", now)
    frontend.feed(other, bytes([0x10, len(packet)]) + packet, now)
    assert len(frontend.authenticator) == VERIFICATIONS_PER_ADDRESS_MAX + 1
    for connection in list(frontend.connections.values()):
        frontend.closed(connection, now)
    assert len(frontend.authenticator) == 0


def test_who_is_being_asked_when_everybody_is_sent_elsewhere_is_sent_too(play: Any) -> None:
    play("w opens", access=ACCESS)
    play.broker.verification_takes = 2 * SECOND
    play('a > CONNECT username="anna" password="apple"')
    play.broker.frontend.redirect_clients(Redirect(ReasonCode.SERVER_MOVED, "b.example"))
    play("wait 2s    a < CONNACK reason=" + ("0x9D" if play.dialect.has_reasons else "0x88") + "    a < CLOSED")
    assert not play.broker.frontend.connect_handler.sessions


def test_a_reload_while_the_answer_is_on_its_way(play: Any) -> None:
    """The password was right when it was asked for, and is not any more."""
    play("w > CONNECT    w < CONNACK", access=ACCESS)
    play.broker.verification_takes = 2 * SECOND
    play('a > CONNECT username="anna" password="apple"')
    play('b > CONNECT username="bert" password="birch"')
    assert play.broker.replace_access(AccessPolicy(PasswordFile.parse(quick("bert", "birch")))) == 0
    play("wait 3s    a < CONNACK reason=0x86    a < CLOSED    b < CONNACK")


def test_a_reload_holds_for_those_who_are_here(play: Any) -> None:
    play(
        """
        a > CONNECT username="anna" password="apple"    a < CONNACK
        b > CONNECT username="bert" password="birch"    b < CONNACK
        c > CONNECT                                     c < CONNACK
        """,
        access=ACCESS,
    )
    changed = PasswordFile.parse("\n".join((quick("anna", "apple"), quick("bert", "better"))))
    assert play.broker.replace_access(AccessPolicy(changed)) == 1
    play("wait 1s    b < DISCONNECT reason=0x87    b < CLOSED")
    play("a > PINGREQ    a < PINGRESP    c > PINGREQ    c < PINGRESP")


def test_proofs_are_bounded_and_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebridge.session.password_cache.ENTRIES_MAX", 3)
    proofs = PasswordCache(b"secret")
    for number in range(5):
        proofs.add(f"u{number}", b"p", "mark", 0)
    assert len(proofs) == 3
    assert [proofs.contains(f"u{number}", b"p", "mark", 1) for number in range(5)] == [False, False, True, True, True]
    proofs.add("ab", b"c", "", 0)
    assert not proofs.contains("a", b"bc", "", 0)
    assert not proofs.contains("ab", b"", "c", 0)
    nothing = PasswordCache(b"")
    nothing.add("a", b"b", "", 0)
    assert len(nothing) == 0


def test_every_refusal_is_counted_once(play_v5: Any) -> None:
    play_v5(
        r"""
        a > CONNECT username="anna" password="wrong"    a < CONNACK reason=0x86    a < CLOSED
        b > CONNECT id=$bridge/b                        b < CONNACK reason=0x85    b < CLOSED
        c > CONNECT                                     c < CONNACK
        d > CONNECT                                     d < CONNACK reason=0x97    d < CLOSED
        e > CONNECT will="w/\u0001" will-payload="x"    e < CONNACK reason=0x90    e < CLOSED
        f opens
        f > 0x100600044d515454                          f < CLOSED
        c > 0xf100                                      c < DISCONNECT reason=0x81    c < CLOSED
        """,
        access=ACCESS,
        quota=Quota(sessions_max=1),
    )
    assert play_v5.broker.frontend.disconnector.refusals == {
        ReasonCode.MALFORMED_PACKET: 2,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 1,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD: 1,
        ReasonCode.TOPIC_NAME_INVALID: 1,
        ReasonCode.QUOTA_EXCEEDED: 1,
    }
