"""The $SYS tree: retained, said again only when it changes, hidden from `#`, and apart from the accounts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import edgebroker
from edgebridge.frontend.event_buffer import CONNECTED
from edgebridge.frontend.options import FrontendOptions
from edgebridge.frontend.presence import ESCAPES
from edgebridge.frontend.sys_topics import LoadAverage
from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.wire.dialect import V5
from edgebroker.instants import MINUTE, SECOND
from edgebroker.log_schema import Cause
from edgebroker.topics import TopicFilter

MONTH = 2_592_000
TOLD = FrontendOptions(sys_interval_s=10)
SYS = "$SYS/broker"


def value(play: Any, name: str) -> str:
    """What $SYS says now."""
    kept = play.broker.frontend.retained.find(f"{SYS}/{name}")
    assert kept is not None, name
    return str(kept.payload.decode())


def test_the_version_is_there_from_the_start(play: Any) -> None:
    play(
        f"""
        alice > CONNECT                     alice < CONNACK
        alice > SUBSCRIBE {SYS}/version     alice < SUBACK granted=0
            alice < PUBLISH {SYS}/version retain=1 "edgebroker version {edgebroker.__version__}"
        """,
        TOLD,
    )


def test_what_changes_is_said_and_what_does_not_is_not(play: Any) -> None:
    play("x > CONNECT    x < CONNACK", TOLD)
    play(f"""
    alice > CONNECT                              alice < CONNACK
    alice > SUBSCRIBE {SYS}/clients/+ {SYS}/uptime   alice < SUBACK granted=0,0
        alice < PUBLISH {SYS}/clients/expired retain=1 "0"
        alice < PUBLISH {SYS}/clients/total retain=1 "0"
        alice < PUBLISH {SYS}/clients/connected retain=1 "0"
        alice < PUBLISH {SYS}/clients/active retain=1 "0"
        alice < PUBLISH {SYS}/clients/disconnected retain=1 "0"
        alice < PUBLISH {SYS}/clients/inactive retain=1 "0"
        alice < PUBLISH {SYS}/clients/maximum retain=1 "0"
        alice < PUBLISH {SYS}/uptime retain=1 "0 seconds"
    wait 10s
        alice < PUBLISH {SYS}/clients/total "2"
        alice < PUBLISH {SYS}/clients/connected "2"
        alice < PUBLISH {SYS}/clients/active "2"
        alice < PUBLISH {SYS}/clients/maximum "2"
        alice < PUBLISH {SYS}/uptime "10 seconds"
    x > DISCONNECT
    wait 10s
        alice < PUBLISH {SYS}/clients/total "1"
        alice < PUBLISH {SYS}/clients/connected "1"
        alice < PUBLISH {SYS}/clients/active "1"
        alice < PUBLISH {SYS}/uptime "20 seconds"
    wait 10s
        alice < PUBLISH {SYS}/uptime "30 seconds"
    """)


def test_nobody_who_asks_for_everything_gets_it(play: Any) -> None:
    """[MQTT-4.7.2-1]; and what nobody reads is no message."""
    play(
        """
        alice > CONNECT                 alice < CONNACK
        alice > SUBSCRIBE # +/broker/#  alice < SUBACK granted=0,0
        wait 60s
        alice > PINGREQ                 alice < PINGRESP
        """,
        TOLD,
    )
    assert play.broker.ledger.published == 0
    assert value(play, "uptime") == "60 seconds"


def test_clients_cannot_write_there(play: Any) -> None:
    play("alice > CONNECT    alice < CONNACK", TOLD)
    play(f"alice > PUBLISH {SYS}/version retain=1 'mine'")
    assert value(play, "version").startswith("edgebroker")


def test_what_is_read_is_in_the_accounts_as_a_message_of_the_broker(play: Any) -> None:
    play(
        f"""
        alice > CONNECT                  alice < CONNACK
        alice > SUBSCRIBE {SYS}/uptime   alice < SUBACK granted=0   alice < PUBLISH {SYS}/uptime retain=1 "0 seconds"
        wait 10s                         alice < PUBLISH {SYS}/uptime "10 seconds"
        """,
        TOLD,
    )
    ledger = play.broker.ledger
    assert (ledger.published, ledger.matched, ledger.delivered) == (2, 2, 2)


def test_packets_and_messages_are_counted(play: Any) -> None:
    """However chunks were cut: CONNECT, SUBSCRIBE, five QoS 0 in a run, QoS 1 and QoS 2 with their answers, PINGREQ."""
    play(
        """
        alice > CONNECT                 alice < CONNACK
        alice > SUBSCRIBE t qos=1       alice < SUBACK granted=1
        bob   > CONNECT                 bob   < CONNACK
        """,
        TOLD,
    )
    run = b"\x30\x05\x00\x01t12" if not play.dialect.has_properties else b"\x30\x06\x00\x01t\x0012"
    play.client("bob").write(5 * run)
    play("bob > PINGREQ    bob < PINGRESP    " + "    ".join(['alice < PUBLISH t "12"'] * 5))
    play("""
    bob   > PUBLISH t qos=1 "x"     alice < PUBLISH t qos=1 "x"   bob   < PUBACK
    alice > PUBACK
    bob   > PUBLISH u qos=2 "x"     bob   < PUBREC
    bob   > PUBREL                  bob   < PUBCOMP
    wait 10s
    """)
    assert value(play, "messages/received") == "13"
    assert value(play, "messages/sent") == "13"
    assert value(play, "publish/messages/received") == "7"
    assert value(play, "publish/messages/sent") == "6"
    assert value(play, "fates/filtered") == "1"
    assert value(play, "fates/queued") == "0"


def test_drops_are_told_by_cause(play: Any) -> None:
    play(
        """
        alice > CONNECT clean=0 session=60   alice < CONNACK
        alice > SUBSCRIBE t $share/g/u       alice < SUBACK granted=0,0
        alice cut
        bob   > CONNECT                      bob   < CONNACK
        bob   > PUBLISH t retain=1 "x"
        wait 10s
        """,
        TOLD,
    )
    assert play.dropped(Cause.OFFLINE) == 1
    assert value(play, "fates/dropped/offline") == "1"
    assert value(play, "publish/messages/dropped") == "1"
    assert value(play, "subscriptions/count") == "1"
    assert value(play, "shared_subscriptions/count") == "1"
    assert value(play, "clients/disconnected") == "1"
    assert value(play, "clients/maximum") == "1"
    retained = play.broker.frontend.retained
    assert int(value(play, "retained messages/count")) <= len(retained)


def test_queues_and_the_journal_are_told(play: Any) -> None:
    play(
        """
        alice > CONNECT clean=0 session=60   alice < CONNACK
        alice > SUBSCRIBE t qos=1            alice < SUBACK granted=1
        alice cut
        bob   > CONNECT                      bob   < CONNACK
        bob   > PUBLISH t qos=1 "12345"      bob   < PUBACK
        wait 10s
        """,
        TOLD,
        is_stored=True,
    )
    assert value(play, "queue/messages") == "1"
    assert int(value(play, "queue/bytes")) > 5
    assert int(value(play, "journal/records")) == int(value(play, "journal/synced")) > 2
    assert value(play, "journal/refusing") == "0"


def test_expired_sessions_are_counted(play_v5: Any) -> None:
    play_v5(
        """
        alice > CONNECT clean=0 session=5   alice < CONNACK
        alice cut
        wait 20s
        """,
        TOLD,
    )
    assert value(play_v5, "clients/expired") == "1"
    assert value(play_v5, "clients/total") == "0"


def test_what_a_world_knows_is_told_with_the_rest(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    play("alice > CONNECT    alice < CONNACK", TOLD)
    monkeypatch.setattr(play.broker.frontend.host, "facts", lambda: {"bytes/received": 600, "heap/current": 7})
    play("wait 10s")
    assert value(play, "heap/current") == "7"
    assert value(play, "bytes/received") == "600"
    assert value(play, "load/bytes/received/1min") == "552.67"  # 3,600 a minute, of which 1 - e^(-1/6)


def test_without_an_interval_there_is_no_tree(play: Any) -> None:
    play("""
    alice > CONNECT                 alice < CONNACK
    alice > SUBSCRIBE $SYS/broker/uptime   alice < SUBACK granted=0
    wait 60s
    """)


def test_the_documentation_lists_every_topic(play_v5: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play_v5("alice > CONNECT    alice < CONNACK", TOLD, is_stored=True)
    frontend = play_v5.broker.frontend
    facts = ("bytes/received", "bytes/sent", "heap/current", "heap/maximum")
    monkeypatch.setattr(frontend.host, "facts", lambda: dict.fromkeys(facts, 0))
    play_v5("wait 10s")
    named = (root / "docs" / "mqtt.md").read_text(encoding="utf-8")
    topics = frontend.retained.matching(TopicFilter.parse(f"{SYS}/#"), 0)
    assert len(topics) > 50
    for publication in topics:
        name = re.sub(r"/\d+min$", "", publication.topic.removeprefix(f"{SYS}/"))
        assert f"`{name}`" in named, name


def test_a_load_approaches_the_rate_and_forgets_it() -> None:
    load, count = LoadAverage(), 0
    for _ in range(60):
        count += 100
        load.update(count, 10 * SECOND)
    assert dict(load)["1min"] == "599.97"  # 600 a minute for ten minutes
    assert 515 < float(dict(load)["5min"]) < 520
    assert 290 < float(dict(load)["15min"]) < 300
    load.update(count, MINUTE)
    assert dict(load)["1min"] == "220.72"  # a minute of silence: 600 / e


def heard(client: str, what: str, **told: Any) -> str:
    """What alice is told of *client*."""
    about = {"client": client, "user": "", "address": client, "listener": "local", **told, "unix_ms": 0}
    return f"alice < PUBLISH {SYS}/clients/{client}/{what} '{json.dumps(about, separators=(',', ':'))}'"


def test_who_comes_and_who_goes_is_told_if_it_is_wanted(play: Any) -> None:
    play(
        f"""
    alice > CONNECT                                 alice < CONNACK
    alice > SUBSCRIBE {SYS}/clients/+/+ #           alice < SUBACK granted=0,0
    """,
        FrontendOptions(presence=True),
    )
    published = play.broker.ledger.published
    came = {"version": play.dialect.version, "session_present": False, "expiry_s": 60 if play.dialect is V5 else MONTH}
    said = {"reason": "normal_disconnection", "why": "the client said so"}
    play(f"""
    b > CONNECT clean=0 session=60      b < CONNACK present=0       {heard("b", "connected", **came)}
    b > DISCONNECT
    wait 1ms                            {heard("b", "disconnected", **said)}
    b > CONNECT clean=0 session=60      b < CONNACK present=1
    {heard("b", "connected", **came | {"session_present": True})}
    b cut
    wait 1ms                            {heard("b", "disconnected", reason="connection_lost", why="")}
    """)
    assert play.broker.ledger.published == published + 4, "messages like any other, if somebody reads them"
    assert "b/#%+".translate(ESCAPES) == "b%2F%23%25%2B"


def test_rules_hold_for_who_comes_and_who_goes(play: Any) -> None:
    rules = AclRights(Acl.parse(f"topic read {SYS}/clients/+/disconnected"))
    play(
        f"""
    alice > CONNECT                                 alice < CONNACK
    alice > SUBSCRIBE {SYS}/clients/#               alice < SUBACK granted=0
    b > CONNECT                                     b < CONNACK
    b > DISCONNECT
    wait 1ms
    {heard("b", "disconnected", reason="normal_disconnection", why="the client said so")}
    """,
        FrontendOptions(presence=True),
        access=AccessPolicy(rules=rules),
    )


def test_so_many_come_and_go_that_not_all_can_be_told(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebridge.frontend.presence.WAITING_MAX", 3)
    monkeypatch.setattr("edgebridge.frontend.presence.PUBLISHED_AT_ONCE", 2)
    play("alice > CONNECT    alice < CONNACK", FrontendOptions(presence=True))
    play(f"alice > SUBSCRIBE {SYS}/clients/+/+    alice < SUBACK")
    presence = play.broker.frontend.sys_topics.presence
    connection, now = play.client("alice").line.connection, play.broker.simulation.now
    for _ in range(5):
        play.broker.operate(lambda frontend: frontend.events.add(CONNECTED, connection, 0, "", now=now))
    assert presence.missed == 2
    told = heard("alice", "connected", version=play.dialect.version, session_present=False, expiry_s=0)
    play("\n".join(["wait 1ms", *[told] * 3]))
