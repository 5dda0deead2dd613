"""Signed tokens as passwords."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.session.token import JsonWebToken, TokenKeys, key_line
from tests.stories.test_stories_authentication import ACCESS, CLOSED

UNIX_S = 1_800_000_000  # what the clock of the simulation says
KEYS = TokenKeys.parse(key_line("fleet", bytes(32)))


def token(user: str, lasts_s: int = 100, *rules: str) -> str:
    return KEYS.make(JsonWebToken(user, UNIX_S + lasts_s, key_id="fleet"), list(rules) or None)


TOKENS = AccessPolicy(ACCESS.passwords, tokens=KEYS)


def test_a_token_lets_in_until_it_expires(play: Any) -> None:
    play(
        f'a > CONNECT username="pump" password="{token("pump")}"    a < CONNACK', access=TOKENS, listener_context=CLOSED
    )
    assert play.client("a").line.connection.session.user == "pump"
    play("wait 90s    wait 11s    a < DISCONNECT reason=0xA0    a < CLOSED")


def test_a_token_alone(play_v5: Any) -> None:
    """Version 5 allows a password without a user name (section 3.1.2.9)."""
    play_v5(f'a > CONNECT password="{token("pump")}"    a < CONNACK', access=TOKENS, listener_context=CLOSED)
    assert play_v5.client("a").line.connection.session.user == "pump"


@pytest.mark.parametrize(
    ("user", "given"), [("other", token("pump")), ("pump", token("pump", 0)), ("pump", token("pump")[:-3] + "AAA")]
)
def test_a_token_that_does_not_hold(play: Any, user: str, given: str) -> None:
    play(f'a > CONNECT username="{user}" password="{given}"    a < CONNACK reason=0x86    a < CLOSED', access=TOKENS)


def test_passwords_still_hold(play: Any) -> None:
    play('a > CONNECT username="anna" password="apple"    a < CONNACK', access=TOKENS)


def test_a_gateway_that_does_not_know_the_time(play: Any) -> None:
    play("w > CONNECT    w < CONNACK", access=TOKENS)
    play.broker.unix_s = 1_000
    play(f'a > CONNECT username="pump" password="{token("pump")}"    a < CONNACK reason=0x88    a < CLOSED')


@pytest.mark.parametrize("has_rules", [False, True])
def test_what_a_token_allows_at_most(play: Any, has_rules: bool) -> None:
    rules = AclRights(Acl.parse("topic #\nuser pump\ntopic write p/#\ntopic read q/#\n")) if has_rules else None
    given = token("pump", 100, "write p/1/# where a > 1", "read q/%c")
    play(
        "w > CONNECT    w < CONNACK    w > SUBSCRIBE #    w < SUBACK granted=0",
        access=AccessPolicy(rules=rules, tokens=KEYS),
    )
    play(f"""
    a > CONNECT username="pump" password="{given}"    a < CONNACK
    a > PUBLISH p/1/x '{{"a": 2}}'           w < PUBLISH p/1/x '{{"a": 2}}'
    a > PUBLISH p/1/x qos=1 '{{"a": 1}}'     a < PUBACK reason=0x87
    a > PUBLISH p/2 qos=1 '{{"a": 2}}'       a < PUBACK reason=0x87
    a > SUBSCRIBE q/b                        a < SUBACK granted=0x87
    a > SUBSCRIBE q/a                        a < SUBACK granted=0
    w > PUBLISH q/a "x"                      w < PUBLISH q/a "x"    a < PUBLISH q/a "x"
    """)


def test_a_key_that_is_taken_away(play: Any) -> None:
    play(f'a > CONNECT username="pump" password="{token("pump")}"    a < CONNACK', access=TOKENS)
    more = AccessPolicy(
        ACCESS.passwords, tokens=TokenKeys.parse("\n".join((key_line("fleet", bytes(32)), key_line("b", bytes(32)))))
    )
    assert play.broker.replace_access(more) == 0
    assert play.broker.replace_access(AccessPolicy(tokens=TokenKeys.parse(key_line("fleet", bytes(33))))) == 1
    play("wait 1s    a < DISCONNECT reason=0x87    a < CLOSED")
