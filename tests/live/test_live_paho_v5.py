"""paho-mqtt against one gateway: what only version 5 has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
EVERY_QOS = pytest.mark.parametrize("qos", [0, 1, 2])
WHERE = "temp > 30 OR site IN ('a', 'b')"
READINGS = (b'{"temp":29}', b'{"temp":31}', b'{"temp":"31"}', b"not json", b'{"site":"b"}')


def properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def seen(message: MQTTMessage) -> tuple[str, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


def test_a_filter_as_user_property(guest: Callable[..., Any]) -> None:
    reader, writer = guest(), guest()
    where = properties(PacketTypes.SUBSCRIBE, UserProperty=("$where", WHERE))
    assert reader.subscribe("sensors/#", 1, properties=where)[0] == [1]
    for payload in READINGS:
        writer.publish("sensors/a", payload)
    assert [message.payload for message in reader.all_from(writer)] == [b'{"temp":31}', b'{"site":"b"}']


def test_a_bad_user_property_is_refused_with_reason_and_column(guest: Callable[..., Any]) -> None:
    where = properties(PacketTypes.SUBSCRIBE, UserProperty=("$where", "temp > AND site = 'a'"))
    reasons, answered = guest().subscribe("sensors/#", 1, properties=where)
    assert reasons == [0x8F]
    assert answered is not None
    assert "AND" in answered.ReasonString
    assert "column 8" in answered.ReasonString


@EVERY_QOS
def test_properties_travel(guest: Callable[..., Any], qos: int) -> None:
    reader, writer = guest(), guest()
    reader.subscribe("props", 2)
    told = {
        "UserProperty": [("site", "north"), ("site", "é"), ("", "")],
        "ContentType": "application/json",
        "ResponseTopic": "answers/here",
        "CorrelationData": b"\x00\xff",
        "PayloadFormatIndicator": 1,
    }
    writer.publish("props", b"{}", qos, properties=properties(PacketTypes.PUBLISH, **told))
    heard = reader.next().properties
    assert heard is not None
    assert {name: getattr(heard, name) for name in told} == told


@EVERY_QOS
def test_a_topic_alias_stands_for_its_topic(guest: Callable[..., Any], qos: int) -> None:
    reader, writer = guest(), guest()
    assert writer.terms.TopicAliasMaximum > 0
    reader.subscribe("alias/#", 2)
    for topic in ("alias/one", "", "alias/two", ""):
        writer.publish(topic, b"", qos, properties=properties(PacketTypes.PUBLISH, TopicAlias=1))
    topics = [message.topic for message in reader.all_from(writer)]
    assert topics == ["alias/one", "alias/one", "alias/two", "alias/two"]


def test_message_expiry_is_forwarded_as_what_is_left(guest: Callable[..., Any]) -> None:
    reader, writer = guest(keep=True), guest()
    reader.subscribe("expiry", 1)
    reader.leave()
    for interval in (0, 1_000):
        lasting = properties(PacketTypes.PUBLISH, MessageExpiryInterval=interval)
        writer.publish("expiry", b"%d" % interval, 1, properties=lasting)
    assert reader.connect()
    message = reader.next()
    assert message.payload == b"1000"
    assert message.properties is not None
    assert 1_000 - 2 * PATIENCE_S < message.properties.MessageExpiryInterval <= 1_000


def test_subscription_identifiers_come_back(guest: Callable[..., Any]) -> None:
    reader, writer = guest(), guest()
    for number, topic in ((7, "ident/+"), (268_435_455, "$filter/temp > 30/ident/#")):
        reader.subscribe(topic, properties=properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=number))
    for payload in (b'{"temp":29}', b'{"temp":31}'):
        writer.publish("ident/a", payload)
    found = [message.properties.SubscriptionIdentifier for message in reader.all_from(writer)]  # type: ignore[union-attr]
    assert [sorted(identifiers) for identifiers in found] == [[7], [7, 268_435_455]]


def test_a_will_has_properties_and_may_be_delayed(guest: Callable[..., Any]) -> None:
    reader = guest()
    reader.subscribe("status/#", 1)
    for name, delay_s in (("late", 1), ("never", 600)):
        device = guest(keep=True, connected=False)
        told = properties(PacketTypes.WILLMESSAGE, WillDelayInterval=delay_s, UserProperty=("site", name))
        device.client.will_set(f"status/{name}", b"offline", 1, properties=told)
        device.connect()
        device.vanish()
    message = reader.next()
    assert message.topic == "status/late"
    assert message.properties is not None
    assert message.properties.UserProperty == [("site", "late")]
    assert device.connect(), "back before the delay is over: no will"
    device.leave()
    assert reader.all_from(reader) == []


def test_a_client_that_comes_twice_takes_over(guest: Callable[..., Any]) -> None:
    reader = guest()
    first = guest("twice", keep=True)
    first.subscribe("twice/#", 1)
    second = guest("twice", keep=True, connected=False)
    assert second.connect(), "with the first one's session"
    assert first.is_gone()
    reader.publish("twice/a", b"x")
    assert second.next().payload == b"x"
    second.leave()


def test_no_local_and_retain_as_published(guest: Callable[..., Any]) -> None:
    reader, writer = guest(), guest()
    reader.subscribe([("own/#", SubscribeOptions(1, noLocal=True, retainAsPublished=True))])
    reader.publish("own/a", b"mine")
    writer.publish("own/a", b"theirs", retain=True)
    assert [seen(message) for message in reader.all_from(writer)] == [("own/a", b"theirs", 1, True)]
    writer.publish("own/a", b"", retain=True)


def test_filters_are_announced(guest: Callable[..., Any]) -> None:
    reader = guest()
    assert ("filter", "1") in reader.terms.UserProperty
    reader.subscribe("$SYS/broker/features/filter")
    assert seen(reader.next()) == ("$SYS/broker/features/filter", b"1", 0, True)
