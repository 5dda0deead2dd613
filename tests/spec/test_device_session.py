"""The session of a device and the audit of what it said, against a broker that says what a test wants."""

from __future__ import annotations

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
)
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.limits import KIB
from edgedevices.audit import DeliveryAudit
from edgedevices.ledger import MessageLedger
from edgedevices.message import DeviceMessage, PayloadForm
from edgedevices.session import BROKER_WINDOW, DeviceDialect, DeviceIdentity, DeviceSession, QueueDropPolicy

LASTING = DeviceIdentity("m", DeviceDialect.V5)


def message(seq: int, qos: int = 1) -> DeviceMessage:
    return DeviceMessage("m", seq, "a/b", {"device": "m", "seq": seq}, PayloadForm.JSON, qos)


class Broker:
    """The other end of a session: reads what it wrote, says what a test wants."""

    def __init__(self, session: DeviceSession) -> None:
        self.session = session
        self.framer = Framer(64 * KIB)

    def heard(self) -> list[Packet]:
        """What the session has written since the last call."""
        self.framer.feed(self.session.take_output())
        found = []
        while (frame := self.framer.next_frame()) is not None:
            found.append(decode_packet(*frame, V5))
        return found

    def say(self, *packets: Packet) -> None:
        self.session.receive(b"".join(encode_packet(packet, V5) for packet in packets), 0)

    def greet(self, present: bool = False, **properties: int) -> None:
        """A new connection, accepted."""
        self.session.connect()
        assert [type(packet) for packet in self.heard()] == [Connect]
        self.say(ConnAck(present, properties={Property[name]: value for name, value in properties.items()}))


def opened(identity: DeviceIdentity = LASTING, **more: object) -> tuple[DeviceSession, Broker, MessageLedger]:
    ledger = MessageLedger()
    session = DeviceSession(identity, ledger, **more)  # type: ignore[arg-type]
    broker = Broker(session)
    broker.greet()
    return session, broker, ledger


def published(packets: list[Packet]) -> list[tuple[int, bool]]:
    """(packet identifier, whether it is sent again) of every PUBLISH."""
    return [(packet.packet_id, packet.dup) for packet in packets if isinstance(packet, Publish)]


def test_a_message_of_each_qos_gets_its_fate() -> None:
    session, broker, ledger = opened()
    for qos in (0, 1, 2):
        session.enqueue(message(qos + 1, qos))
    session.send_queued(7)
    assert published(broker.heard()) == [(0, False), (1, False), (2, False)]
    assert ledger.open == 3
    session.written()
    broker.say(PubAck(1), PubRec(2))
    assert broker.heard() == [PubRel(2)]
    assert not session.is_drained
    broker.say(PubComp(2))
    assert session.is_drained
    assert (ledger.sent[0], ledger.acknowledged[1], ledger.acknowledged[2], ledger.open) == (1, 1, 1, 0)


def test_what_was_not_acknowledged_is_sent_again_in_order_with_its_identifiers() -> None:
    session, broker, ledger = opened()
    for seq in range(1, 5):
        session.enqueue(message(seq, qos=2 if seq % 2 else 1))
    session.send_queued(0)
    broker.heard()
    broker.say(PubRec(1))
    session.connection_lost()
    broker.greet(present=True)
    again = broker.heard()
    assert again[0] == PubRel(1)
    assert published(again) == [(2, True), (3, True), (4, True)]
    broker.say(PubComp(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), PubAck(2), PubRec(3), PubComp(3), PubAck(4))
    assert session.is_drained
    assert ledger.failed.total() == 0


@pytest.mark.parametrize(
    ("limit", "qos", "cause"),
    [
        ({"MAXIMUM_QOS": 1}, 2, "refused: no QoS 2 here"),
        ({"MAXIMUM_PACKET_SIZE": 20}, 1, "refused: no packets of more than 20 bytes here"),
    ],
)
def test_what_a_broker_says_it_does_not_take_is_not_sent(limit: dict[str, int], qos: int, cause: str) -> None:
    ledger = MessageLedger()
    session = DeviceSession(LASTING, ledger)
    broker = Broker(session)
    broker.greet(**limit)
    session.enqueue(message(1, qos))
    session.send_queued(0)
    assert broker.heard() == []
    assert session.is_drained
    assert dict(ledger.failures) == {cause: 1}


def test_when_the_broker_lost_the_session_everything_is_said_as_if_for_the_first_time() -> None:
    audit = DeliveryAudit()
    session, broker, _ = opened(audit=audit)
    session.enqueue(message(1, 2))
    session.send_queued(0)
    broker.heard()
    broker.say(PubRec(1))
    session.connection_lost()
    broker.greet(present=False)
    assert published(broker.heard()) == [(2, False)]
    copy = Publish("a/b", message(1, 2).payload(), 2)
    audit.record_received(copy)
    audit.record_received(copy)
    assert (audit.doubled, audit.repeated) == (0, 1)  # nobody can tell whether it had arrived


def test_qos_0_that_the_system_did_not_take_is_lost_with_the_connection() -> None:
    session, _, ledger = opened()
    session.enqueue(message(1, 0))
    session.send_queued(0)
    session.connection_lost()
    assert ledger.failures == {"connection lost": 1}


@pytest.mark.parametrize(("maximum", "window"), [(3, 3), (100, BROKER_WINDOW)])
def test_no_more_are_on_their_way_than_the_broker_takes(maximum: int, window: int) -> None:
    session = DeviceSession(LASTING, MessageLedger())
    broker = Broker(session)
    broker.greet(RECEIVE_MAXIMUM=maximum)
    for seq in range(1, 41):
        session.enqueue(message(seq))
    session.send_queued(0)
    assert len(published(broker.heard())) == window
    broker.say(PubAck(1))
    assert published(broker.heard()) == [(window + 1, False)]


@pytest.mark.parametrize(("full", "kept"), [(QueueDropPolicy.NEWEST, [1, 2, 3]), (QueueDropPolicy.OLDEST, [3, 4, 5])])
def test_a_full_buffer_drops_from_the_end_that_was_chosen_and_counts_it(full: QueueDropPolicy, kept: list[int]) -> None:
    ledger = MessageLedger()
    session = DeviceSession(LASTING, ledger, waiting_max=3, drop_policy=full)
    for seq in range(1, 6):
        session.enqueue(message(seq))
    assert [one.seq for one in session.queue] == kept
    assert ledger.failures == {"backlog full": 2}


def test_a_connection_that_only_wipes_says_nothing_else() -> None:
    session = DeviceSession(DeviceIdentity("m", DeviceDialect.V5, status_topic="m/status"), MessageLedger())
    session.enqueue(message(1))
    broker = Broker(session)
    session.connect(clears_session=True)
    connect = broker.heard()[0]
    assert isinstance(connect, Connect)
    assert (connect.clean_start, connect.will, connect.properties) == (True, None, {})
    broker.say(ConnAck())
    assert broker.heard() == []
    assert session.is_clean
    session.disconnect(forget=False)
    session.connection_lost()
    session.connect()
    connect = broker.heard()[0]
    assert isinstance(connect, Connect)
    assert not connect.clean_start
    assert connect.will is not None


def test_a_will_a_birth_and_a_last_word() -> None:
    session, broker, _ = opened(DeviceIdentity("m", DeviceDialect.V5, status_topic="m/status"))
    birth = broker.heard()[0]
    assert isinstance(birth, Publish)
    assert (birth.topic, birth.retain, b"online" in birth.payload) == ("m/status", True, True)
    session.enqueue_offline()
    session.enqueue_offline()
    session.send_queued(0)
    words = broker.heard()
    assert len(words) == 1
    assert isinstance(words[0], Publish)
    assert b"offline" in words[0].payload


def test_qos_0_waits_until_the_system_has_taken_what_was_written() -> None:
    session, broker, ledger = opened()
    for seq in range(1, 3 * BROKER_WINDOW):
        session.enqueue(message(seq, 0))
    session.send_queued(0)
    assert len(published(broker.heard())) == BROKER_WINDOW
    session.send_queued(0)
    assert broker.heard() == []
    assert not session.has_room
    session.written()
    session.send_queued(0)
    assert len(published(broker.heard())) == BROKER_WINDOW
    assert ledger.sent.total() == BROKER_WINDOW


def test_a_subscriber_answers_and_hears_qos_2_once() -> None:
    heard: list[bytes] = []
    session, broker, _ = opened(
        DeviceIdentity("m", DeviceDialect.V5, subscriptions=(("x/#", 2),)),
        on_publish=lambda publish: heard.append(publish.payload),
    )
    assert [type(packet) for packet in broker.heard()] == [Subscribe]
    broker.say(Publish("x/1", b"1", 1, packet_id=7), Publish("x/2", b"2", 2, packet_id=8))
    broker.say(Publish("x/2", b"2", 2, dup=True, packet_id=8))
    assert broker.heard() == [PubAck(7), PubRec(8), PubRec(8)]
    broker.say(PubRel(8))
    broker.say(Publish("x/3", b"3", 2, packet_id=8))
    assert heard == [b"1", b"2", b"3"]
    session.connection_lost()
    broker.greet(present=True)
    broker.say(Publish("x/3", b"3", 2, dup=True, packet_id=8))
    assert heard == [b"1", b"2", b"3"]


def test_refusals_are_quoted() -> None:
    session, broker, ledger = opened()
    session.enqueue(message(1))
    session.send_queued(0)
    broker.heard()
    broker.say(PubAck(1, ReasonCode.QUOTA_EXCEEDED))
    assert ledger.failures == {"refused: Quota exceeded": 1}
    broker.say(Disconnect(ReasonCode.SESSION_TAKEN_OVER))
    assert session.refusal == "Session taken over"
    session.connection_lost()
    session.connect()
    broker.say(ConnAck(False, ReasonCode.NOT_AUTHORIZED))
    assert session.refusal == "refused: Not authorized"
    assert not session.is_up


def test_an_audit_finds_what_is_missing_doubled_and_foreign() -> None:
    audit = DeliveryAudit()
    said = [message(seq, qos) for seq, qos in ((1, 1), (2, 2), (3, 1), (4, 0))]
    for one in said:
        audit.record_published(one, one.payload())
    for one in said[:3]:
        audit.record_acknowledged(one.payload())
    assert audit.summary()["missing"] == 3
    copies = [Publish("a/b", one.payload(), one.qos) for one in said]
    for copy in (copies[0], copies[0], copies[1], copies[1], Publish("a/b", b"?", 1)):
        audit.record_received(copy)
    audit.record_received(
        Publish("a/b", said[2].payload(), 1, retain=True)
    )  # kept by the broker: no proof of a delivery
    assert audit.missing == ["m 3 (QoS 1)"]
    assert (audit.doubled, audit.repeated, audit.foreign, audit.received) == (1, 1, 1, 5)
    audit.record_received(copies[3])
    assert (audit.disordered, audit.doubled_qos_0) == (0, 0)
    audit.record_received(copies[3])
    audit.record_received(copies[2])
    assert (audit.disordered, audit.doubled_qos_0) == (1, 1)
    assert audit.summary()["first_disordered"] == ["a/b 3 after 4"]
    audit.record_published(said[0], said[0].payload())  # said once more, after it was heard
    assert not audit.missing
