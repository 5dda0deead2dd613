"""The access-control file: at publish, at subscribe, at delivery, for wills and for retained messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.session.passwordfile import PasswordFile
from edgebroker.log_schema import Cause
from tests.stories.test_stories_authentication import quick

USERS = PasswordFile.parse("\n".join(quick(name, name) for name in ("anna", "bert", "carl")))


def access(rules: str) -> AccessPolicy:
    return AccessPolicy(USERS, rules=AclRights(Acl.parse(rules)))


def comes(name: str, user: str, more: str = "") -> str:
    return f'{name} > CONNECT username="{user}" password="{user}" {more}    {name} < CONNACK\n'


EVERYTHING = "topic #\nuser anna\ntopic #\n"
ANNA = comes("anna", "anna")
BERT = comes("bert", "bert")


@pytest.mark.parametrize(
    ("qos", "answer"), [(0, ""), (1, "bert < PUBACK reason=0x87"), (2, "bert < PUBREC reason=0x87")]
)
def test_publishing(play: Any, qos: int, answer: str) -> None:
    """Version 5 hears 0x87 [MQTT-3.3.5-2]; 3.1.1 gets its acknowledgement, and the message goes nowhere."""
    rules = EVERYTHING + "user bert\ntopic write ok/#\n"
    play(ANNA + BERT + "anna > SUBSCRIBE #    anna < SUBACK granted=0", access=access(rules))
    play(f'bert > PUBLISH ok/1 "x"    anna < PUBLISH ok/1 "x"    bert > PUBLISH no/1 qos={qos} "x"\n{answer}')
    if qos == 2 and not play.dialect.has_reasons:
        play("bert > PUBREL id=1    bert < PUBCOMP")
    assert play.broker.frontend.publish_handler.forbidden == 1
    assert play.broker.ledger.published == 1


def test_publishing_by_content(play: Any) -> None:
    rules = EVERYTHING + "user bert\ntopic write t/# where $size < 4\ntopic write t/loud where urgent = true\n"
    play(ANNA + BERT + "anna > SUBSCRIBE #    anna < SUBACK granted=0", access=access(rules))
    play("""
    bert > PUBLISH t/1 "abc"                    anna < PUBLISH t/1 "abc"
    bert > PUBLISH t/1 "abcd"
    bert > PUBLISH t/1 qos=1 "abc"              bert < PUBACK    anna < PUBLISH t/1 "abc"
    bert > PUBLISH t/1 qos=1 "abcd"             bert < PUBACK reason=0x87
    bert > PUBLISH t/loud '{"urgent": true}'    anna < PUBLISH t/loud '{"urgent": true}'
    bert > PUBLISH t/loud '{"urgent": 1}'
    """)


@pytest.mark.parametrize("asked", ["no/#", "no", "$share/g/no/#", "$filter/a%3E1/no/1", "$share/g/$filter/a%3E1/no"])
def test_subscribing_to_what_is_nowhere_readable(play: Any, asked: str) -> None:
    play(BERT + f"bert > SUBSCRIBE {asked}    bert < SUBACK granted=0x87", access=access("user bert\ntopic read ok/#"))


def test_subscribing_wider_than_reading(play: Any) -> None:
    """The subscription is granted; what may not be read does not come, whoever else gets it."""
    rules = "user anna\ntopic #\nuser bert\ntopic read ok/+\ntopic deny ok/not\n"
    play(
        ANNA
        + BERT
        + """
        bert > SUBSCRIBE # qos=1      bert < SUBACK granted=1
        anna > SUBSCRIBE all/#        anna < SUBACK granted=0
        anna > PUBLISH ok/1 "x"       bert < PUBLISH ok/1 "x"
        anna > PUBLISH ok/not "x"
        anna > PUBLISH all/1 qos=1 "x"      anna < PUBLISH all/1 "x"    anna < PUBACK
        """,
        access=access(rules),
    )
    ledger = play.broker.ledger
    assert (ledger.published, ledger.filtered, ledger.delivered, ledger.dropped) == (3, 1, 2, {})


def test_subscribing_where_rules_say_so(play: Any) -> None:
    """With a rule that says `subscribe`, only what such a rule covers may be asked for."""
    rules = "user bert\ntopic subscribe ok/#\ntopic read #\ntopic deny ok/not/#\n"
    play(
        BERT
        + """
        bert > SUBSCRIBE ok/1       bert < SUBACK granted=0
        bert > SUBSCRIBE ok/+/x     bert < SUBACK granted=0
        bert > SUBSCRIBE #          bert < SUBACK granted=0x87
        bert > SUBSCRIBE other      bert < SUBACK granted=0x87
        bert > SUBSCRIBE ok/not/+   bert < SUBACK granted=0x87
        """,
        access=access(rules),
    )


def test_reading_by_content(play: Any) -> None:
    """A condition narrows plain subscriptions and filtered ones, and no other reader."""
    rules = "user anna\ntopic #\nuser bert\ntopic read t where temp > 30\n"
    play(ANNA + BERT, access=access(rules))
    play("""
    anna > SUBSCRIBE t                      anna < SUBACK granted=0
    bert > SUBSCRIBE t                      bert < SUBACK granted=0
    bert > SUBSCRIBE $filter/site='n'/t qos=1    bert < SUBACK granted=1
    """)
    for reading, is_hot in (('{"temp": 29}', False), ('{"temp": 31}', True)):
        play(
            f"anna > PUBLISH t '{reading}'    anna < PUBLISH t '{reading}'"
            + f"    bert < PUBLISH t '{reading}'" * is_hot
        )
    for reading, is_hot in (('{"temp": 29, "site": "n"}', False), ('{"temp": 31, "site": "n"}', True)):
        play(f"""
        anna > PUBLISH t qos=1 '{reading}'
        anna < PUBLISH t '{reading}'
        anna < PUBACK
        {f"bert < PUBLISH t qos=1 '{reading}'" if is_hot else ""}
        {"bert > PUBACK" if is_hot else ""}
        """)
    assert play.broker.ledger.queued == 0


def test_a_message_that_nobody_may_read(play: Any) -> None:
    play(
        ANNA + BERT + "bert > SUBSCRIBE #    bert < SUBACK granted=0",
        access=access("user anna\ntopic #\nuser bert\ntopic read ok"),
    )
    play('anna > PUBLISH no "x"    anna > PUBLISH ok "x"    bert < PUBLISH ok "x"')
    assert play.broker.ledger.filtered == 1
    route = play.broker.frontend.node.routes.route("no")
    assert route.nobody == Cause.NOT_ALLOWED


def test_retained_messages_are_checked_when_they_are_read(play: Any) -> None:
    rules = "user anna\ntopic #\nuser bert\ntopic read ok/#\ntopic read t/# where temp > 30\n"
    play(
        ANNA
        + """
        anna > PUBLISH ok/1 retain=1 "x"
        anna > PUBLISH no/1 retain=1 "x"
        anna > PUBLISH t/1 retain=1 '{"temp": 29}'
        anna > PUBLISH t/2 retain=1 '{"temp": 31}'
        """
        + BERT
        + """
        bert > SUBSCRIBE #    bert < SUBACK granted=0
        bert < PUBLISH ok/1 retain=1 "x"
        bert < PUBLISH t/2 retain=1 '{"temp": 31}'
        """,
        access=access(rules),
    )


def test_wills_are_checked_when_they_are_published(play: Any) -> None:
    rules = "user anna\ntopic #\nuser bert\ntopic write ok/#\n"
    play(ANNA + "anna > SUBSCRIBE #    anna < SUBACK granted=0", access=access(rules))
    play(comes("b1", "bert", 'will=ok/1 will-payload="gone"') + 'b1 cut    anna < PUBLISH ok/1 "gone"')
    play(comes("b2", "bert", 'will=no/1 will-payload="gone"') + "b2 cut")
    assert play.broker.frontend.publish_handler.forbidden == 1


def test_patterns(play: Any) -> None:
    rules = "pattern write from/%c/%u\npattern read to/%c/#\n"
    play(
        comes("a1", "anna")
        + comes("b1", "bert")
        + """
        b1 > SUBSCRIBE to/b1/#             b1 < SUBACK granted=0
        b1 > SUBSCRIBE to/a1/#             b1 < SUBACK granted=0x87
        a1 > PUBLISH from/a1/anna qos=1 "x"    a1 < PUBACK
        a1 > PUBLISH from/a1/bert qos=1 "x"    a1 < PUBACK reason=0x87
        a1 > PUBLISH from/b1/anna qos=1 "x"    a1 < PUBACK reason=0x87
        """,
        access=access(rules),
    )


@pytest.mark.parametrize("name", ["b+1", "b#1", "b/1"])
def test_a_client_identifier_that_would_mean_other_topics(play: Any, name: str) -> None:
    rules = "pattern read to/%c\npattern read open\n"
    play(
        f"""
        x > CONNECT id="{name}"    x < CONNACK
        x > SUBSCRIBE to/+         x < SUBACK granted=0x87
        x > SUBSCRIBE to/{name.replace("+", "_").replace("#", "_")}    x < SUBACK granted=0x87
        x > SUBSCRIBE open         x < SUBACK granted=0
        """,
        access=access(rules),
    )
    closed = access("pattern deny to/%c\npattern read open\n")
    play.broker.replace_access(closed)
    play("x > SUBSCRIBE open    x < SUBACK granted=0x87")


def test_a_reload_holds_for_everybody_at_once(play: Any) -> None:
    before, after = "topic #\n", "topic write #\ntopic read a\n"
    play("p > CONNECT    p < CONNACK    s > CONNECT    s < CONNACK", access=access(before))
    play('s > SUBSCRIBE # qos=1    s < SUBACK granted=1    p > PUBLISH b "x"    s < PUBLISH b "x"')
    play.broker.replace_access(access(after))
    play('p > PUBLISH b "x"    p > PUBLISH a "x"    s < PUBLISH a "x"')
    play.broker.replace_access(access(before))
    play('p > PUBLISH b "x"    s < PUBLISH b "x"')
    play.broker.replace_access(AccessPolicy(USERS))
    play('p > PUBLISH b "x"    s < PUBLISH b "x"')


def test_what_waits_is_checked_again_when_it_is_sent(play: Any) -> None:
    """In the queue of a client that is away, and what it had been sent and did not acknowledge."""
    play(
        """
        s > CONNECT clean=0 session=3600       s < CONNACK
        s > SUBSCRIBE # qos=2                  s < SUBACK granted=2
        p > CONNECT                            p < CONNACK
        p > PUBLISH a qos=1 "1"                p < PUBACK    s < PUBLISH a qos=1 "1"
        p > PUBLISH b qos=1 "2"                p < PUBACK    s < PUBLISH b qos=1 "2"
        s cut
        p > PUBLISH b qos=1 "3"                p < PUBACK
        p > PUBLISH a qos=1 "4"                p < PUBACK
        """,
        access=access("topic #\n"),
    )
    play.broker.replace_access(access("topic write #\ntopic read a\n"))
    play("""
    p > PUBLISH b qos=1 "5"                p < PUBACK
    s > CONNECT clean=0 session=3600       s < CONNACK present=1
    s < PUBLISH a qos=1 dup=1 "1"          s < PUBLISH a qos=1 "4"
    s > PUBACK
    s > PUBACK
    """)
    ledger = play.broker.ledger
    assert ledger.dropped == {Cause.NOT_ALLOWED: 2}
    assert (ledger.filtered, ledger.queued, ledger.delivered) == (1, 0, 2)


def test_the_quick_path_stays_quick(play: Any) -> None:
    """Rules about topics alone are settled when a route is planned; only conditions look at each publication."""
    rules = "topic #\nuser anna\ntopic #\nuser bert\ntopic read # where a > 1\n"
    play("w > CONNECT    w < CONNACK    w > SUBSCRIBE t    w < SUBACK granted=0", access=access(rules))
    assert play.broker.frontend.fan_out_cache.fan_out(b"t").is_uniform
    play(BERT + "bert > SUBSCRIBE u    bert < SUBACK granted=0")
    assert play.broker.frontend.fan_out_cache.fan_out(b"t").is_uniform
    assert not play.broker.frontend.fan_out_cache.fan_out(b"u").is_uniform


def test_groups_choose_among_those_who_may_read(play: Any) -> None:
    rules = "user anna\ntopic #\nuser bert\ntopic read t/2\nuser carl\ntopic read t/# where a > 1\n"
    play(ANNA + BERT + comes("carl", "carl"), access=access(rules))
    play("""
    bert > SUBSCRIBE $share/g/t/+    bert < SUBACK granted=0
    carl > SUBSCRIBE $share/g/t/+    carl < SUBACK granted=0
    anna > PUBLISH t/1 '{"a": 2}'    carl < PUBLISH t/1 '{"a": 2}'
    anna > PUBLISH t/1 '{"a": 2}'    carl < PUBLISH t/1 '{"a": 2}'
    anna > PUBLISH t/1 '{"a": 1}'
    anna > PUBLISH t/2 '{"a": 1}'    bert < PUBLISH t/2 '{"a": 1}'
    anna > PUBLISH t/2 '{"a": 1}'    bert < PUBLISH t/2 '{"a": 1}'
    """)
    assert play.broker.ledger.filtered == 1


def test_rules_hold_for_sessions_that_come_back_from_the_disk(play: Any) -> None:
    """After a power cut a session is its user's again, with that user's rights, before the client is there."""
    rules = "user anna\ntopic #\nuser bert\ntopic read ok/#\n"
    play(
        comes("b", "bert", "clean=0 session=3600")
        + """
        b > SUBSCRIBE # qos=1             b < SUBACK granted=1
        b leaves
        """
        + ANNA
        + 'anna > PUBLISH ok/1 qos=1 "before"    anna < PUBACK    anna > PUBLISH no/1 qos=1 "before"    anna < PUBACK',
        access=access(rules),
        is_stored=True,
    )
    play.broker.crash()
    play("wait 1s    anna < CLOSED")
    play(
        ANNA
        + 'anna > PUBLISH ok/2 qos=1 "after"    anna < PUBACK    anna > PUBLISH no/2 qos=1 "after"    anna < PUBACK'
    )
    assert play.broker.ledger.filtered == 1
    play(
        """
        x > CONNECT id=b clean=0 username="anna" password="anna"                 x < CONNACK reason=0x85    x < CLOSED
        b > CONNECT clean=0 session=3600 username="bert" password="bert"         b < CONNACK present=1
        b < PUBLISH ok/1 qos=1 "before"                                          b < PUBLISH ok/2 qos=1 "after"
        """
    )


def test_a_session_from_the_disk_gets_only_what_it_may(play: Any) -> None:
    rules = "user anna\ntopic #\nuser bert\ntopic read ok/#\n"
    come = 'clean=0 session=3600 username="bert" password="bert"'
    play(
        f"b > CONNECT {come}    b < CONNACK    b > SUBSCRIBE # qos=1    b < SUBACK granted=1    b leaves",
        access=access(rules),
        is_stored=True,
    )
    play.broker.crash()
    play(
        ANNA
        + 'anna > PUBLISH ok/2 qos=1 "after"    anna < PUBACK    anna > PUBLISH no/2 qos=1 "after"    anna < PUBACK'
    )
    play(f'b > CONNECT {come}    b < CONNACK present=1    b < PUBLISH ok/2 qos=1 "after"    b > PUBACK')
    assert play.broker.ledger.filtered == 1


def test_a_client_that_comes_back_changes_no_routes(play: Any) -> None:
    """Its rights are what they were: what is known of topics stays known, for a whole fleet that reconnects."""
    rules = "user anna\ntopic #\nuser bert\ntopic read ok/#\n"
    come = 'b > CONNECT clean=0 session=3600 username="bert" password="bert"'
    play(ANNA + f"{come}    b < CONNACK    b > SUBSCRIBE # qos=1    b < SUBACK granted=1", access=access(rules))
    rights = play.client("b").line.connection.session.rights
    epoch = play.broker.frontend.node.routes.epoch
    play(f"b leaves    {come}    b < CONNACK present=1")
    assert play.client("b").line.connection.session.rights is rights
    assert play.broker.frontend.node.routes.epoch == epoch
    play.broker.replace_access(access(rules))
    assert play.client("b").line.connection.session.rights is not rights
    assert play.broker.frontend.node.routes.epoch > epoch


@pytest.mark.parametrize("name", ["$SYS", "$share", "a/b", "+", "#"])
def test_a_client_that_is_called_like_other_topics_gets_nothing_by_it(name: str) -> None:
    rights = access("pattern read %c/#\npattern read u/%u/#").rights("anna", name)
    assert rights is not None
    assert rights.read(f"{name}/broker/uptime").is_never
    assert rights.read("u/anna/1").is_never
    usual = access("pattern read %c/#").rights("anna", "pump-3$")
    assert usual is not None
    assert usual.read("pump-3$/1").is_always


WRITES = "topic #\nuser anna\ntopic #\nuser bert\ntopic #\n"
LOST = "topic #\nuser anna\ntopic #\nuser bert\ntopic read #\n"


def test_what_is_retained_of_whom_may_not_publish_it_any_more_is_kept_back(play: Any) -> None:
    """As by Mosquitto's `check_retain_source`: for a user, and for an anonymous client by its identifier."""
    play(ANNA + BERT + "x > CONNECT    x < CONNACK", access=access(WRITES))
    play("""
    bert > PUBLISH t/1 retain=1 "1"    x > PUBLISH t/2 retain=1 "2"
    """)
    play.broker.replace_access(access(LOST))
    play('anna > SUBSCRIBE t/#    anna < SUBACK granted=0    anna < PUBLISH t/2 retain=1 "2"')
    play.broker.replace_access(access(LOST.replace("topic #", "topic read #", 1)))
    play("anna > SUBSCRIBE t/+    anna < SUBACK granted=0")
    play.broker.replace_access(replace(access(LOST), check_retain_source=False))
    play('anna > SUBSCRIBE t/1    anna < SUBACK granted=0    anna < PUBLISH t/1 retain=1 "1"')
    play.broker.replace_access(access(WRITES))
    play('anna > SUBSCRIBE +/1    anna < SUBACK granted=0    anna < PUBLISH t/1 retain=1 "1"')


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_published_what_is_retained_is_known_after_a_restart(play: Any, qos: int) -> None:
    """Its session ended with its connection; a snapshot says it again."""
    play(BERT, access=access(WRITES), is_stored=True)
    play(f'bert > PUBLISH t/1 retain=1 qos={qos} "1"' + {0: "", 1: "    bert < PUBACK", 2: "    bert < PUBREC"}[qos])
    play("bert cut    wait 1s")
    for _ in range(2):
        play("broker crashes" + "\n" + ANNA)
        play('anna > SUBSCRIBE #    anna < SUBACK granted=0    anna < PUBLISH t/1 retain=1 "1"    anna cut')
        play.broker.frontend.journal.storage.request_snapshot()
        play("wait 1s")
    play.broker.replace_access(access(LOST))
    play("broker crashes" + "\n" + ANNA + "anna > SUBSCRIBE #    anna < SUBACK granted=0")
