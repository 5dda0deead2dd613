"""docs/filters.md, "What the front end does": bytes in, bytes out, in both dialects; no sockets."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import DIALECTS, V5, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import Property
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node

WARM = "$filter/temp%3E30/sensors/#"
TOO_COMPLEX = "NOT " * 17 + "a"  # one deeper than allowed


class Broker:
    """A front end with its node; time stands still."""

    def __init__(self) -> None:
        names = (f"auto-{number}" for number in range(1_000))
        self.frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: next(names))
        self.frontend.start(0)
        self.peers: list[Peer] = []

    def connect(self, name: str, dialect: Dialect, will: Will | None = None) -> Peer:
        peer = Peer(self, dialect)
        self.peers.append(peer)
        peer.say(Connect(name, will=will, dialect=dialect))
        (peer.connack,) = peer.hear()
        assert isinstance(peer.connack, ConnAck)
        return peer


class Peer:
    """A client of `Broker`: `say` packets, `hear` what was answered or delivered since."""

    def __init__(self, broker: Broker, dialect: Dialect) -> None:
        self._frontend = broker.frontend
        self._framer = Framer(1 << 20)
        self.dialect = dialect
        self.connection = self._frontend.opened("peer", 0)
        self.connack: Packet

    def say(self, *packets: Packet) -> None:
        for packet in packets:
            self._frontend.feed(self.connection, encode_packet(packet, self.dialect), 0)
            if self.connection.is_held:  # a hard filter is a turn's work
                self._frontend.input_scheduler.run_next(self._frontend.input, 0)

    def hear(self) -> list[Packet]:
        self._framer.feed(b"".join(self._frontend.take_output(self.connection, 0)))
        frames = iter(self._framer.next_frame, None)
        return [decode_packet(*frame, self.dialect) for frame in frames]

    def vanish(self) -> None:
        self._frontend.closed(self.connection, 0)

    def subscribe(self, *texts: str, where: tuple[str, ...] = (), qos: int = 0, identifier: int = 0) -> SubAck:
        """The answer; retained messages that come with it are in `retained`."""
        properties: dict[Any, Any] = {}
        if where:
            properties[Property.USER_PROPERTY] = [("$where", expression) for expression in where]
        if identifier:
            properties[Property.SUBSCRIPTION_IDENTIFIER] = [identifier]
        self.say(Subscribe(1, [SubscriptionOption(text, qos) for text in texts], properties))
        answer, *self.retained = self.hear()
        assert isinstance(answer, SubAck)
        return answer

    def publish(self, payload: bytes, topic: str = "sensors/a", **more: Any) -> None:
        self.say(Publish(topic, payload, **more))
        self.hear()

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.hear() if isinstance(packet, Publish)]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.version)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest.fixture
def reader(broker: Broker, dialect: Dialect) -> Peer:
    return broker.connect("reader", dialect)


@pytest.fixture
def modern_reader(broker: Broker) -> Peer:
    return broker.connect("reader", V5)


@pytest.fixture
def other(broker: Broker, dialect: Dialect) -> Peer:
    return broker.connect("other", dialect)


@pytest.fixture
def writer(broker: Broker) -> Peer:
    return broker.connect("writer", V5)


def reason_string(answer: SubAck) -> str:
    found = answer.properties.get(Property.REASON_STRING, "")
    assert isinstance(found, str)
    return found


def refusal(dialect: Dialect, code: int) -> int:
    """The code of a refused entry: 3.1.1 has but one."""
    return code if dialect is V5 else 0x80


@pytest.mark.clause("P-1")
@pytest.mark.parametrize(
    ("encoded", "column"),
    [("temp%3E%3E30", 6), ("temp%3E", 6), ("temp = 'x", 8), ("%28temp > 30", 11), ("temp%3", 5)],
)
def test_an_invalid_filter_is_refused_with_its_column(
    reader: Peer, writer: Peer, dialect: Dialect, encoded: str, column: int
) -> None:
    answer = reader.subscribe(f"$filter/{encoded}/sensors/#")
    assert answer.reasons == [refusal(dialect, 0x8F)]
    assert not reader.connection.closing
    if dialect is V5:
        assert f"column {column}" in reason_string(answer)
    writer.publish(b'{"temp":31}')
    assert reader.hear() == [], "it is not granted without the filter"


@pytest.mark.clause("P-1")
def test_an_invalid_user_property_is_refused_with_its_column(modern_reader: Peer, writer: Peer) -> None:
    answer = modern_reader.subscribe("sensors/#", "rooms/#", where=("temp > AND b",))
    assert answer.reasons == [0x8F, 0x8F]
    assert reason_string(answer).count("column 8") == 2
    writer.publish(b'{"temp":31}')
    assert modern_reader.hear() == []


@pytest.mark.clause("P-1")
def test_a_client_that_wants_no_reason_strings_gets_none(broker: Broker) -> None:
    reader = Peer(broker, V5)
    reader.say(Connect("quiet", properties={Property.REQUEST_PROBLEM_INFORMATION: 0}, dialect=V5))
    reader.hear()
    answer = reader.subscribe("$filter/temp%3E/sensors/#")
    assert (answer.reasons, answer.properties) == ([0x8F], {})


@pytest.mark.clause("P-2")
@pytest.mark.parametrize(
    "expression", [TOO_COMPLEX, "a IN (" + ",".join(map(str, range(65))) + ")", "a = '" + "x" * 2_048 + "'"]
)
def test_a_filter_that_is_too_complex_is_refused(reader: Peer, dialect: Dialect, expression: str) -> None:
    assert reader.subscribe(f"$filter/{expression}/sensors/#").reasons == [refusal(dialect, 0x97)]
    assert not reader.connection.closing


@pytest.mark.clause("P-2")
def test_a_user_property_that_is_too_complex_is_refused(modern_reader: Peer) -> None:
    assert modern_reader.subscribe("sensors/#", where=(TOO_COMPLEX,)).reasons == [0x97]


@pytest.mark.clause("P-3")
def test_other_entries_are_not_affected(reader: Peer, writer: Peer, dialect: Dialect) -> None:
    texts = ["$filter/temp%3E%3E/sensors/#", WARM, f"$filter/{TOO_COMPLEX}/sensors/#", "$share/g", "rooms/+"]
    answer = reader.subscribe(*texts, qos=1)
    assert answer.reasons == [refusal(dialect, 0x8F), 1, refusal(dialect, 0x97), refusal(dialect, 0x8F), 1]
    if dialect is V5:
        assert all(text[:80] in reason_string(answer) for text in (texts[0], texts[2], texts[3]))
    for payload in (b'{"temp":29}', b'{"temp":31}'):
        writer.publish(payload)
    writer.publish(b"", "rooms/1")
    assert reader.payloads() == [b'{"temp":31}', b""]


@pytest.mark.clause("P-4")
def test_a_second_where_is_refused(modern_reader: Peer, writer: Peer) -> None:
    answer = modern_reader.subscribe("sensors/#", where=("temp > 30", "temp > 31"))
    assert answer.reasons == [0x8F]
    assert "$where" in reason_string(answer)
    writer.publish(b'{"temp":40}')
    assert modern_reader.hear() == []


@pytest.mark.clause("P-5")
@pytest.mark.parametrize("text", ["$share/g/sensors/#", "$share/g/$filter/temp%3E30/sensors/#"])
def test_shared_subscriptions_are_granted(reader: Peer, other: Peer, writer: Peer, text: str) -> None:
    assert [peer.subscribe(text).reasons for peer in (reader, other)] == [[0], [0]]
    payloads = [b'{"temp":31}', b'{"temp":32}', b'{"temp":33}']
    for payload in payloads:
        writer.publish(payload)
    assert (reader.payloads(), other.payloads()) == (payloads[::2], payloads[1::2])


@pytest.mark.clause("P-5")
def test_one_groups_members_have_the_same_filter(modern_reader: Peer, other: Peer, writer: Peer) -> None:
    modern_reader.subscribe("$share/g/sensors/#", where=("temp > 30",))
    other.subscribe("$share/g/sensors/#")  # another group, then
    writer.publish(b'{"temp":31}')
    assert modern_reader.payloads() == other.payloads() == [b'{"temp":31}']


@pytest.mark.clause("P-6")
def test_filters_are_announced(reader: Peer, dialect: Dialect) -> None:
    assert isinstance(reader.connack, ConnAck)
    if dialect is V5:
        assert ("filter", "1") in reader.connack.properties[Property.USER_PROPERTY]
    reader.subscribe("$SYS/broker/features/filter")
    (feature,) = reader.retained
    assert isinstance(feature, Publish)
    assert (feature.payload, feature.retain) == (b"1", True)


@pytest.mark.clause("P-7")
def test_a_filter_applies_to_live_and_retained_messages_and_wills(
    broker: Broker, reader: Peer, writer: Peer, dialect: Dialect
) -> None:
    writer.publish(b'{"temp":10}', "sensors/cool", retain=True)
    writer.publish(b'{"temp":50}', "sensors/warm", retain=True)
    assert reader.subscribe(WARM).reasons == [0]
    assert [packet.payload for packet in reader.retained if isinstance(packet, Publish)] == [b'{"temp":50}']
    for payload in (b'{"temp":29}', b'{"temp":31}', b'{"temp":"31"}', b"not json"):
        writer.publish(payload)
    assert reader.payloads() == [b'{"temp":31}']
    for payload in (b'{"temp":0}', b'{"temp":99}'):
        broker.connect("dying", dialect, will=Will("sensors/will", payload)).vanish()
    assert reader.payloads() == [b'{"temp":99}']


@pytest.mark.clause("P-7")
def test_retain_is_the_flag_that_the_publisher_set(reader: Peer, writer: Peer) -> None:
    writer.publish(b"kept", retain=True)
    assert reader.subscribe("$filter/$retain/sensors/#").reasons == [0]
    assert [packet.payload for packet in reader.retained if isinstance(packet, Publish)] == [b"kept"]
    writer.publish(b"passing")
    writer.publish(b"kept too", retain=True)
    (live,) = reader.hear()
    assert isinstance(live, Publish)
    assert (live.payload, live.retain) == (b"kept too", False), "delivered live: as MQTT prescribes, without the flag"
    reader.subscribe("$filter/NOT $retain/sensors/#")
    assert reader.retained == []


@pytest.mark.clause("P-8")
def test_unsubscribing_takes_the_whole_text(reader: Peer, writer: Peer, dialect: Dialect) -> None:
    reader.subscribe(WARM)

    def unsubscribed(text: str) -> list[int]:
        reader.say(Unsubscribe(2, [text]))
        (answer,) = reader.hear()
        assert isinstance(answer, UnsubAck)
        return answer.reasons

    for other in ("sensors/#", "$filter/temp > 30/sensors/#"):
        assert unsubscribed(other) == ([0x11] if dialect is V5 else [])
        writer.publish(b'{"temp":31}')
        assert reader.payloads() == [b'{"temp":31}']
    assert unsubscribed(WARM) == ([0] if dialect is V5 else [])
    writer.publish(b'{"temp":31}')
    assert reader.hear() == []


@pytest.mark.clause("P-8")
def test_with_a_user_property_the_text_is_the_topic_filter(modern_reader: Peer, writer: Peer) -> None:
    modern_reader.subscribe("sensors/#", where=("temp > 30",))
    modern_reader.subscribe("sensors/#", where=("temp < 10",))
    for payload in (b'{"temp":31}', b'{"temp":9}'):
        writer.publish(payload)
    assert modern_reader.payloads() == [b'{"temp":9}'], "the second SUBSCRIBE replaces the first"
    modern_reader.say(Unsubscribe(2, ["sensors/#"]))
    writer.publish(b'{"temp":9}')
    assert [type(packet) for packet in modern_reader.hear()] == [UnsubAck]


@pytest.mark.clause("P-9")
def test_overlapping_subscriptions_give_one_copy_of_the_highest_qos(reader: Peer, writer: Peer) -> None:
    reader.subscribe("sensors/#", qos=0)
    reader.subscribe(WARM, qos=2)
    reader.subscribe("$filter/temp%3E40/sensors/+", qos=1)
    seen = []
    for packet_id, temperature in enumerate((29, 31, 41), 1):
        writer.publish(b'{"temp":%d}' % temperature, qos=2, packet_id=packet_id)
        (copy,) = reader.hear()
        assert isinstance(copy, Publish)
        seen.append(copy.qos)
    assert seen == [0, 2, 2]


@pytest.mark.clause("P-9")
def test_a_copy_carries_the_identifiers_of_all_subscriptions_that_matched(modern_reader: Peer, writer: Peer) -> None:
    modern_reader.subscribe("sensors/#", identifier=1)
    modern_reader.subscribe(WARM, identifier=2)
    modern_reader.subscribe("$filter/temp%3E40/sensors/#", identifier=3)
    found = []
    for temperature in (29, 31, 41):
        writer.publish(b'{"temp":%d}' % temperature)
        (copy,) = modern_reader.hear()
        assert isinstance(copy, Publish)
        found.append(sorted(copy.properties[Property.SUBSCRIPTION_IDENTIFIER]))
    assert found == [[1], [1, 2], [1, 2, 3]]
