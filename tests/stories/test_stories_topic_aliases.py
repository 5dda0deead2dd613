"""Topic aliases from the broker to a client that accepts them (MQTT 5.0 section 3.3.2.3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.encoding import PublishEncoder
from edgebridge.frontend.topic_alias import OutboundTopicAliases
from edgebroker.limits import OUT_ALIASES_MAX
from edgebroker.log_schema import Cause
from edgebroker.publication import Publication

PAIR = """
    bob   > CONNECT                        bob   < CONNACK
    alice > CONNECT alias-max=2            alice < CONNACK
    alice > SUBSCRIBE sensors/# qos=2 s/# qos=2  alice < SUBACK granted=2,2
"""


@pytest.mark.mqtt(v5=("MQTT-3.1.2-26", "MQTT-3.1.2-27"))
def test_a_topic_is_sent_once_and_then_its_alias(play_v5: Any) -> None:
    """[MQTT-3.1.2-26]: never more aliases than the client takes; short topics and later ones are sent as they are."""
    play_v5(PAIR)
    play_v5("""
    bob   > PUBLISH sensors/a qos=1 "1"   alice < PUBLISH sensors/a qos=1 alias=1 "1"   bob < PUBACK
    bob   > PUBLISH sensors/a qos=1 "2"   alice < PUBLISH "" qos=1 alias=1 "2"          bob < PUBACK
    bob   > PUBLISH s/a qos=1 "3"         alice < PUBLISH s/a qos=1 "3"                 bob < PUBACK
    bob   > PUBLISH sensors/b qos=2 "4"   alice < PUBLISH sensors/b qos=2 alias=2 "4"   bob < PUBREC
    bob   > PUBREL                        bob   < PUBCOMP
    bob   > PUBLISH sensors/c qos=1 "5"   alice < PUBLISH sensors/c qos=1 "5"           bob < PUBACK
    bob   > PUBLISH sensors/b qos=1 "6" user.a=b   alice < PUBLISH "" qos=1 alias=2 user.a=b "6"   bob < PUBACK
    carl  > CONNECT                       carl  < CONNACK
    carl  > SUBSCRIBE sensors/# qos=1     carl  < SUBACK granted=1
    bob   > PUBLISH sensors/a qos=1 "7"   alice < PUBLISH "" qos=1 alias=1 "7"
                                          carl  < PUBLISH sensors/a qos=1 "7"           bob < PUBACK
    """)


def test_a_retained_message_and_a_filtered_one_have_aliases_too(play_v5: Any) -> None:
    play_v5("""
    bob   > CONNECT                       bob   < CONNACK
    bob   > PUBLISH sensors/a retain=1 "1"
    alice > CONNECT alias-max=9           alice < CONNACK
    alice > SUBSCRIBE sensors/#           alice < SUBACK granted=0    alice < PUBLISH sensors/a retain=1 alias=1 "1"
    alice > SUBSCRIBE $filter/a%3D1/sensors/#   alice < SUBACK granted=0
    bob   > PUBLISH sensors/a '{"a":1}'   alice < PUBLISH "" alias=1 '{"a":1}'
    """)


def test_whole_batches_keep_their_topics(play_v5: Any) -> None:
    """The quick path copies bytes: an alias would make them different for each reader."""
    play_v5(PAIR)
    play_v5("""
    bob   > PUBLISH sensors/a "1"         alice < PUBLISH sensors/a "1"
    bob   > PUBLISH sensors/a "2"         alice < PUBLISH sensors/a "2"
    """)


@pytest.mark.mqtt(v5="MQTT-3.3.2-7")
def test_aliases_end_with_the_connection(play_v5: Any) -> None:
    """[MQTT-3.3.2-7]. What is sent again bears its topic."""
    play_v5("""
    bob   > CONNECT                                      bob   < CONNACK
    alice > CONNECT clean=0 session=60 alias-max=2       alice < CONNACK
    alice > SUBSCRIBE sensors/# qos=1                    alice < SUBACK granted=1
    bob   > PUBLISH sensors/a qos=1 "1"   alice < PUBLISH sensors/a qos=1 alias=1 "1"   bob < PUBACK
    bob   > PUBLISH sensors/a qos=1 "2"   alice < PUBLISH "" qos=1 alias=1 "2"          bob < PUBACK
    alice cut
    bob   > PUBLISH sensors/a qos=1 "3"   bob   < PUBACK
    alice > CONNECT clean=0 session=60 alias-max=2       alice < CONNACK present=1
        alice < PUBLISH sensors/a qos=1 dup=1 "1"
        alice < PUBLISH sensors/a qos=1 dup=1 "2"
        alice < PUBLISH sensors/a qos=1 alias=1 "3"
    alice cut
    alice > CONNECT clean=0 session=60                   alice < CONNACK present=1
        alice < PUBLISH sensors/a qos=1 dup=1 "1"
        alice < PUBLISH sensors/a qos=1 dup=1 "2"
        alice < PUBLISH sensors/a qos=1 dup=1 "3"
    """)


def test_an_alias_that_was_not_sent_is_not_known(play_v5: Any) -> None:
    """The first message is larger than the client takes."""
    play_v5(f"""
    bob   > CONNECT                            bob   < CONNACK
    alice > CONNECT alias-max=2 bytes-max=40   alice < CONNACK
    alice > SUBSCRIBE sensors/# qos=1          alice < SUBACK granted=1
    bob   > PUBLISH sensors/a qos=1 "{40 * "x"}"   bob < PUBACK
    bob   > PUBLISH sensors/a qos=1 "1"   alice < PUBLISH sensors/a qos=1 alias=1 "1"   bob < PUBACK
    """)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.mqtt(v5="MQTT-3.1.2-25")
def test_what_fits_only_without_an_alias_comes_without_one(play_v5: Any, qos: int) -> None:
    """A topic, and three bytes for its alias: too much for a client that takes no more than the topic."""
    topic = "sensors/a/temperature"
    play_v5(f"""
    bob   > CONNECT                                bob   < CONNACK
    alice > CONNECT alias-max=9 bytes-max={4 + len(topic) + 2 + 2 * qos}   alice < CONNACK
    alice > SUBSCRIBE sensors/# qos=1              alice < SUBACK granted=1
    """)
    for payload in "12":
        ends = "    bob < PUBACK" * qos
        play_v5(f'bob > PUBLISH {topic} qos={qos} "{payload}"    alice < PUBLISH {topic} qos={qos} "{payload}"{ends}')
    assert play_v5.dropped(Cause.PACKET_TOO_LARGE) == 0


def test_we_set_so_many_whatever_the_client_takes(play_v5: Any) -> None:
    play_v5("alice > CONNECT alias-max=65535    alice < CONNACK")
    aliases = play_v5.broker.frontend.connect_handler.sessions["alice"].connection.out_aliases
    assert aliases.maximum == OUT_ALIASES_MAX


def test_what_an_alias_saves() -> None:
    """A reading of 16 bytes under a topic of 29: 26 bytes instead of 52, and 55 the first time."""
    publication = Publication("p", "site/north/hall/3/temperature", 16 * b"x", 0, False, 0)
    aliases = OutboundTopicAliases(1)
    sizes = []
    for _ in range(2):
        sizes.append(len(aliases.encode(publication, PublishEncoder(publication), 1, 7, 0, False, ())))
        aliases.sent(publication.topic)
    assert sizes == [55, 26]
