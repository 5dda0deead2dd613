"""paho-mqtt, both versions, against one gateway: what its users rely on, end to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import MQTTProtocolVersion

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
EVERY_QOS = pytest.mark.parametrize("qos", [0, 1, 2])
READINGS = (b'{"temp":29}', b'{"temp":31}', b'{"temp":"31"}', b"not json", b'{"site":"b"}')


def seen(message: MQTTMessage) -> tuple[str, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


# -- both versions ---------------------------------------------------------------------------------------------


@pytest.mark.mqtt(v311=("MQTT-7.0.0-2", "MQTT-7.1.1-1"), v5="MQTT-4.2.0-1")
@VERSIONS
@EVERY_QOS
def test_messages_arrive_once_in_order_with_their_qos(guest: Callable[..., Any], version: int, qos: int) -> None:
    reader, writer = guest(), guest()
    assert reader.subscribe("order/#", 2)[0] == [2]
    for number in range(50):
        writer.publish("order/a", b"%d" % number, qos)
    assert [seen(message) for message in reader.all_from(writer)] == [
        ("order/a", b"%d" % number, qos, False) for number in range(50)
    ]


@VERSIONS
@EVERY_QOS
def test_the_lower_qos_counts(guest: Callable[..., Any], version: int, qos: int) -> None:
    reader, writer = guest(), guest()
    assert reader.subscribe("lower", qos)[0] == [qos]
    for published in (0, 1, 2):
        writer.publish("lower", b"%d" % published, published)
    assert [message.qos for message in reader.all_from(writer)] == [min(qos, published) for published in range(3)]


@VERSIONS
@EVERY_QOS
def test_retained_messages_are_kept_and_cleared(guest: Callable[..., Any], version: int, qos: int) -> None:
    writer = guest()
    writer.publish("kept/a", b"old", qos, retain=True)
    writer.publish("kept/a", b"new", qos, retain=True)
    assert writer.all_from(writer) == []  # and the gateway has read what went before
    late = guest()
    late.subscribe("kept/+", 2)
    assert seen(late.next()) == ("kept/a", b"new", qos, True)
    writer.publish("kept/a", b"", qos, retain=True)
    assert seen(late.next()) == ("kept/a", b"", qos, False)
    later = guest()
    later.subscribe("kept/#", 2)
    assert later.all_from(writer) == []


@VERSIONS
@EVERY_QOS
def test_a_will_tells_of_an_abnormal_end_only(guest: Callable[..., Any], version: Any, qos: int) -> None:
    reader, other = guest(), guest()
    reader.subscribe("status/#", 2)
    for name, end in (("polite", "leave"), ("broken", "vanish")):
        device = guest(connected=False)
        device.client.will_set(f"status/{name}", b"offline", qos)
        device.connect()
        getattr(device, end)()
    assert seen(reader.next()) == ("status/broken", b"offline", qos, False)
    assert reader.all_from(other) == []


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_kept_session_is_resumed(guest: Callable[..., Any], version: int, qos: int) -> None:
    writer = guest()
    keeper = guest(keep=True)
    keeper.subscribe("resume/#", 2)
    for end in ("leave", "vanish"):
        getattr(keeper, end)()
        expected = [(f"resume/{end}", number) for number in range(20)]
        for topic, number in expected:
            writer.publish(topic, b"%d" % number, qos)
        assert keeper.connect(), "the session is present"
        received = keeper.all_from(writer)
        assert {message.qos for message in received} <= {qos, 2}
        fresh = [(message.topic, int(message.payload)) for message in received if message.topic == topic]
        # QoS 1 is at least once: what was under way when the line broke may come twice.
        assert (list(dict.fromkeys(fresh)) if qos == 1 else fresh) == expected


@VERSIONS
def test_a_clean_session_forgets(guest: Callable[..., Any], version: int) -> None:
    writer = guest()
    keeper = guest("forgetful", keep=True)
    keeper.subscribe("forget/#", 1)
    keeper.leave()
    writer.publish("forget/a", b"meanwhile")
    clean = guest("forgetful", connected=False)
    assert not clean.connect()
    writer.publish("forget/a", b"later")
    assert clean.all_from(writer) == []
    clean.leave()


@VERSIONS
def test_wildcards_and_unsubscribing(guest: Callable[..., Any], version: int) -> None:
    reader, writer = guest(), guest()
    assert reader.subscribe([("w/+/temp", 0), ("w/north/#", 1)])[0] == [0, 1]
    topics = ["w/north/temp", "w/south/temp", "w/north", "w/north/a/b", "w/south/a", "w/south/temp/x", "$w/north"]
    for topic in topics:
        writer.publish(topic, b"")
    expected = ["w/north/temp", "w/south/temp", "w/north", "w/north/a/b"]
    assert [message.topic for message in reader.all_from(writer)] == expected
    reader.unsubscribe("w/north/#")
    for topic in topics:
        writer.publish(topic, b"")
    assert [message.topic for message in reader.all_from(writer)] == expected[:2]


@VERSIONS
@EVERY_QOS
@pytest.mark.parametrize("mebibytes", [1, 5])
def test_large_payloads(guest: Callable[..., Any], version: int, qos: int, mebibytes: int) -> None:
    """Also one that is larger than any out-buffer."""
    payload = bytes(range(256)) * 4096 * mebibytes
    reader, writer = guest(), guest()
    reader.subscribe("large", qos)
    writer.publish("large", payload, qos)
    assert reader.next().payload == payload


@VERSIONS
def test_three_clients_at_once(guest: Callable[..., Any], version: int) -> None:
    """Each publishes 200 messages while it receives those of all; nobody's order is disturbed."""
    guests = [guest() for _ in range(3)]
    for one in guests:
        one.subscribe("crowd/+", 1)

    def chatter(number: int) -> None:
        for count in range(200):
            guests[number].client.publish(f"crowd/{number}", b"%d" % count, 1)

    threads = [threading.Thread(target=chatter, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for one in guests:
        received = [one.next() for _ in range(600)]
        for number in range(3):
            own = [int(message.payload) for message in received if message.topic == f"crowd/{number}"]
            assert own == list(range(200))
    for thread in threads:
        thread.join(PATIENCE_S)


@VERSIONS
def test_both_versions_meet(guest: Callable[..., Any], version: Any) -> None:
    reader, writer = guest(version=version), guest(version=V5 if version == V311 else V311)
    reader.subscribe("meet", 2)
    for qos in (0, 1, 2):
        writer.publish("meet", b"x" * qos, qos)
    assert [seen(message) for message in reader.all_from(writer)] == [
        ("meet", b"x" * qos, qos, False) for qos in range(3)
    ]


# -- content filters -------------------------------------------------------------------------------------------


@VERSIONS
def test_a_filter_in_the_topic(guest: Callable[..., Any], version: int) -> None:
    reader, writer = guest(), guest()
    writer.publish("sensors/kept", b'{"temp":40}', retain=True)
    writer.publish("sensors/cool", b'{"temp":20}', retain=True)
    assert reader.subscribe("$filter/temp%3E30/sensors/#", 1)[0] == [1]
    for payload in READINGS:
        writer.publish("sensors/a", payload)
    received = [(message.topic, message.payload) for message in reader.all_from(writer)]
    assert received == [("sensors/kept", b'{"temp":40}'), ("sensors/a", b'{"temp":31}')]
    for topic in ("sensors/kept", "sensors/cool"):
        writer.publish(topic, b"", retain=True)


@VERSIONS
def test_a_bad_filter_is_refused(guest: Callable[..., Any], version: int) -> None:
    reader, writer = guest(), guest()
    reasons, answered = reader.subscribe([("$filter/temp%3E%3E30/sensors/#", 1), ("fine", 1)])
    assert reasons == ([0x8F, 1] if version == V5 else [0x80, 1])
    if version == V5:
        assert answered is not None
        assert "column 6" in answered.ReasonString
        assert "$filter/temp%3E%3E30/sensors/#" in answered.ReasonString
    writer.publish("sensors/a", b'{"temp":31}')
    writer.publish("fine", b"")
    assert [message.topic for message in reader.all_from(writer)] == ["fine"]


@VERSIONS
def test_a_shared_subscription_gives_each_member_its_part(guest: Callable[..., Any], version: int) -> None:
    members, writer = [guest(version=version), guest(version=version)], guest(version=version)
    for member in members:
        assert member.subscribe("$share/g/$filter/temp%3E30/sensors/#", 0)[0] == [0]  # at QoS 1 acknowledgements count
    for temperature in (31, 20, 32, 33, 34):
        writer.publish("sensors/a", b'{"temp":%d}' % temperature, 1)
    heard = [[member.next().payload for _ in range(2)] for member in members]
    assert sorted(heard[0] + heard[1]) == [b'{"temp":%d}' % temperature for temperature in range(31, 35)]
