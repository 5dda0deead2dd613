"""paho-mqtt, both versions, against one gateway: what its users rely on, end to end."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
EVERY_QOS = pytest.mark.parametrize("qos", [0, 1, 2])
WHERE = "temp > 30 OR site IN ('a', 'b')"
READINGS = (b'{"temp":29}', b'{"temp":31}', b'{"temp":"31"}', b"not json", b'{"site":"b"}')


def properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Guest:
    """One client on paho's own thread. Each method returns when the gateway has answered."""

    _markers = itertools.count()

    def __init__(self, port: int, version: MQTTProtocolVersion, name: str, *, keep: bool = False) -> None:
        self._port = port
        self._keep = keep
        self._is_v5 = version == V5
        clean = None if self._is_v5 else not keep
        self.client = Client(
            CallbackAPIVersion.VERSION2, name, clean_session=clean, protocol=version, reconnect_on_failure=False
        )
        self.messages: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._gone = threading.Event()
        self.client.on_message = lambda client, userdata, message: self.messages.put(message)
        self.client.on_connect = lambda client, userdata, *answer: self._answers.put(answer)
        self.client.on_subscribe = lambda client, userdata, mid, *answer: self._answers.put(answer)
        self.client.on_unsubscribe = lambda client, userdata, mid, *answer: self._answers.put(answer)
        self.client.on_disconnect = lambda *_: self._gone.set()

    def connect(self) -> bool:
        """Whether there was a session."""
        self._gone.clear()
        if self._is_v5:
            lasting = properties(PacketTypes.CONNECT, SessionExpiryInterval=300 if self._keep else 0)
            self.client.connect("127.0.0.1", self._port, clean_start=not self._keep, properties=lasting)
        else:
            self.client.connect("127.0.0.1", self._port)
        self.client.loop_start()
        flags, reason, self.terms = self._answers.get(timeout=PATIENCE_S)
        assert not reason.is_failure, reason
        return bool(flags.session_present)

    def subscribe(self, topic: Any, qos: int = 0, **more: Any) -> tuple[list[int], Properties | None]:
        self.client.subscribe(topic, qos, **more)
        reasons, answered = self._answers.get(timeout=PATIENCE_S)
        return [reason.value for reason in reasons], answered

    def unsubscribe(self, topic: str) -> None:
        self.client.unsubscribe(topic)
        self._answers.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int = 1, **more: Any) -> None:
        self.client.publish(topic, payload, qos, **more).wait_for_publish(PATIENCE_S)

    def next(self) -> MQTTMessage:
        return self.messages.get(timeout=PATIENCE_S)

    def all_from(self, writer: Guest) -> list[MQTTMessage]:
        """Everything that *writer* has published so far: what comes before a last message, published by it now.

        That is of QoS 2: one of less would overtake QoS 2 messages whose PUBREL is still on its way.
        """
        marker = f"end/{next(self._markers)}"
        self.subscribe(marker, 2)
        writer.publish(marker, b"", 2)
        found = []
        while (message := self.next()).topic != marker:
            found.append(message)
        return found

    def is_gone(self) -> bool:
        """Whether the gateway ends the connection, now or soon."""
        return self._gone.wait(PATIENCE_S)

    def leave(self) -> None:
        self.client.disconnect()
        self._end()

    def vanish(self) -> None:
        """Lose the connection without DISCONNECT."""
        line = self.client.socket()
        assert line is not None
        line.shutdown(socket.SHUT_RDWR)
        self._end()

    def _end(self) -> None:
        assert self._gone.wait(PATIENCE_S)
        self.client.loop_stop()


@pytest.fixture
def guest(gateway: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Guest]]:
    """A connected client in the version of the test."""
    guests: list[Guest] = []
    numbers = itertools.count()
    version = request.node.callspec.params.get("version", V5) if hasattr(request.node, "callspec") else V5

    def come(name: str = "", version: MQTTProtocolVersion = version, **how: Any) -> Guest:
        guests.append(Guest(gateway.port, version, name or f"{request.node.name}-{next(numbers)}", **how))
        guests[-1].connect()
        return guests[-1]

    yield come
    for one in guests:
        if one.client.is_connected():
            one.leave()


def seen(message: MQTTMessage) -> tuple[str, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


# -- both versions ---------------------------------------------------------------------------------------------


@VERSIONS
@EVERY_QOS
def test_messages_arrive_once_in_order_with_their_qos(guest: Callable[..., Guest], version: int, qos: int) -> None:
    reader, writer = guest(), guest()
    assert reader.subscribe("order/#", 2)[0] == [2]
    for number in range(50):
        writer.publish("order/a", b"%d" % number, qos)
    assert [seen(message) for message in reader.all_from(writer)] == [
        ("order/a", b"%d" % number, qos, False) for number in range(50)
    ]


@VERSIONS
@EVERY_QOS
def test_the_lower_qos_counts(guest: Callable[..., Guest], version: int, qos: int) -> None:
    reader, writer = guest(), guest()
    assert reader.subscribe("lower", qos)[0] == [qos]
    for published in (0, 1, 2):
        writer.publish("lower", b"%d" % published, published)
    assert [message.qos for message in reader.all_from(writer)] == [min(qos, published) for published in range(3)]


@VERSIONS
@EVERY_QOS
def test_retained_messages_are_kept_and_cleared(guest: Callable[..., Guest], version: int, qos: int) -> None:
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
def test_a_will_tells_of_an_abnormal_end_only(
    guest: Callable[..., Guest], gateway: Any, version: Any, qos: int
) -> None:
    reader, other = guest(), guest()
    reader.subscribe("status/#", 2)
    for name, end in (("polite", Guest.leave), ("broken", Guest.vanish)):
        device = Guest(gateway.port, version, f"{name}-{version}-{qos}")
        device.client.will_set(f"status/{name}", b"offline", qos)
        device.connect()
        end(device)
    assert seen(reader.next()) == ("status/broken", b"offline", qos, False)
    assert reader.all_from(other) == []


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_kept_session_is_resumed(guest: Callable[..., Guest], version: int, qos: int) -> None:
    writer = guest()
    keeper = guest(keep=True)
    keeper.subscribe("resume/#", 2)
    for end in (Guest.leave, Guest.vanish):
        end(keeper)
        expected = [(end.__name__, number) for number in range(20)]
        for name, number in expected:
            writer.publish(f"resume/{name}", b"%d" % number, qos)
        assert keeper.connect(), "the session is present"
        received = keeper.all_from(writer)
        assert {message.qos for message in received} <= {qos, 2}
        fresh = [(message.topic, int(message.payload)) for message in received if message.topic == f"resume/{name}"]
        # QoS 1 is at least once: what was under way when the line broke may come twice.
        assert (list(dict.fromkeys(fresh)) if qos == 1 else fresh) == [(f"resume/{n}", k) for n, k in expected]


@VERSIONS
def test_a_clean_session_forgets(guest: Callable[..., Guest], version: int) -> None:
    writer = guest()
    keeper = guest("forgetful", keep=True)
    keeper.subscribe("forget/#", 1)
    keeper.leave()
    writer.publish("forget/a", b"meanwhile")
    clean = Guest(keeper._port, version, "forgetful")  # type: ignore[arg-type]
    assert not clean.connect()
    writer.publish("forget/a", b"later")
    assert clean.all_from(writer) == []
    clean.leave()


@VERSIONS
def test_wildcards_and_unsubscribing(guest: Callable[..., Guest], version: int) -> None:
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
def test_large_payloads(guest: Callable[..., Guest], version: int, qos: int, mebibytes: int) -> None:
    """Also one that is larger than any out-buffer."""
    payload = bytes(range(256)) * 4096 * mebibytes
    reader, writer = guest(), guest()
    reader.subscribe("large", qos)
    writer.publish("large", payload, qos)
    assert reader.next().payload == payload


@VERSIONS
def test_three_clients_at_once(guest: Callable[..., Guest], version: int) -> None:
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
def test_both_versions_meet(guest: Callable[..., Guest], version: Any) -> None:
    reader, writer = guest(version=version), guest(version=V5 if version == V311 else V311)
    reader.subscribe("meet", 2)
    for qos in (0, 1, 2):
        writer.publish("meet", b"x" * qos, qos)
    assert [seen(message) for message in reader.all_from(writer)] == [
        ("meet", b"x" * qos, qos, False) for qos in range(3)
    ]


# -- content filters -------------------------------------------------------------------------------------------


@VERSIONS
def test_a_filter_in_the_topic(guest: Callable[..., Guest], version: int) -> None:
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


def test_a_filter_as_user_property(guest: Callable[..., Guest]) -> None:
    reader, writer = guest(), guest()
    where = properties(PacketTypes.SUBSCRIBE, UserProperty=("$where", WHERE))
    assert reader.subscribe("sensors/#", 1, properties=where)[0] == [1]
    for payload in READINGS:
        writer.publish("sensors/a", payload)
    assert [message.payload for message in reader.all_from(writer)] == [b'{"temp":31}', b'{"site":"b"}']


@VERSIONS
def test_a_bad_filter_is_refused(guest: Callable[..., Guest], version: int) -> None:
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


def test_a_bad_user_property_is_refused_with_reason_and_column(guest: Callable[..., Guest]) -> None:
    where = properties(PacketTypes.SUBSCRIBE, UserProperty=("$where", "temp > AND site = 'a'"))
    reasons, answered = guest().subscribe("sensors/#", 1, properties=where)
    assert reasons == [0x8F]
    assert answered is not None
    assert "AND" in answered.ReasonString
    assert "column 8" in answered.ReasonString


@VERSIONS
def test_a_shared_subscription_is_refused(guest: Callable[..., Guest], version: int) -> None:
    reasons, answered = guest().subscribe("$share/g/$filter/temp%3E30/sensors/#")
    assert reasons == ([0x9E] if version == V5 else [0x80])
    if version == V5:
        assert answered is not None
        assert "shared subscriptions are not supported" in answered.ReasonString


# -- version 5 only --------------------------------------------------------------------------------------------


@EVERY_QOS
def test_properties_travel(guest: Callable[..., Guest], qos: int) -> None:
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
def test_a_topic_alias_stands_for_its_topic(guest: Callable[..., Guest], qos: int) -> None:
    reader, writer = guest(), guest()
    assert writer.terms.TopicAliasMaximum > 0
    reader.subscribe("alias/#", 2)
    for topic in ("alias/one", "", "alias/two", ""):
        writer.publish(topic, b"", qos, properties=properties(PacketTypes.PUBLISH, TopicAlias=1))
    topics = [message.topic for message in reader.all_from(writer)]
    assert topics == ["alias/one", "alias/one", "alias/two", "alias/two"]


def test_message_expiry_is_forwarded_as_what_is_left(guest: Callable[..., Guest]) -> None:
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


def test_subscription_identifiers_come_back(guest: Callable[..., Guest]) -> None:
    reader, writer = guest(), guest()
    for number, topic in ((7, "ident/+"), (268_435_455, "$filter/temp > 30/ident/#")):
        reader.subscribe(topic, properties=properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=number))
    for payload in (b'{"temp":29}', b'{"temp":31}'):
        writer.publish("ident/a", payload)
    found = [message.properties.SubscriptionIdentifier for message in reader.all_from(writer)]  # type: ignore[union-attr]
    assert [sorted(identifiers) for identifiers in found] == [[7], [7, 268_435_455]]


def test_a_will_has_properties_and_may_be_delayed(guest: Callable[..., Guest], gateway: Any) -> None:
    reader = guest()
    reader.subscribe("status/#", 1)
    for name, delay_s in (("late", 1), ("never", 600)):
        device = Guest(gateway.port, V5, f"will-{name}", keep=True)
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


def test_a_client_that_comes_twice_takes_over(guest: Callable[..., Guest], gateway: Any) -> None:
    reader = guest()
    first = guest("twice", keep=True)
    first.subscribe("twice/#", 1)
    second = Guest(gateway.port, V5, "twice", keep=True)
    assert second.connect(), "with the first one's session"
    assert first.is_gone()
    reader.publish("twice/a", b"x")
    assert second.next().payload == b"x"
    second.leave()


def test_no_local_and_retain_as_published(guest: Callable[..., Guest]) -> None:
    reader, writer = guest(), guest()
    reader.subscribe([("own/#", SubscribeOptions(1, noLocal=True, retainAsPublished=True))])
    reader.publish("own/a", b"mine")
    writer.publish("own/a", b"theirs", retain=True)
    assert [seen(message) for message in reader.all_from(writer)] == [("own/a", b"theirs", 1, True)]
    writer.publish("own/a", b"", retain=True)


def test_filters_are_announced(guest: Callable[..., Guest]) -> None:
    reader = guest()
    assert ("filter", "1") in reader.terms.UserProperty
    reader.subscribe("$SYS/broker/features/filter")
    assert seen(reader.next()) == ("$SYS/broker/features/filter", b"1", 0, True)
