"""QoS 1 byte for byte: readers of the publisher's dialect get what it wrote, with an identifier of their own."""

from __future__ import annotations

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import DIALECTS, V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PubAck, Publish, Subscribe, SubscriptionOption
from edgebroker.instants import SECOND
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node

NOW = SECOND
PAYLOADS = [b"", b"x", b"x" * 110, b"x" * 130, b"x" * 20_000]


class Broker:
    """A front end without a world."""

    def __init__(self) -> None:
        self.frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned")
        self.frontend.start(NOW)

    def client(self, name: str, dialect: Dialect, *filters: SubscriptionOption) -> Connection:
        connection = self.frontend.opened("test", NOW)
        self.feed(connection, encode_packet(Connect(name, dialect=dialect), dialect))
        if filters:
            self.feed(connection, encode_packet(Subscribe(1, list(filters)), dialect))
        self.read(connection)
        return connection

    def feed(self, connection: Connection, chunk: bytes) -> None:
        self.frontend.feed(connection, chunk, NOW)

    def read(self, connection: Connection) -> bytes:
        return b"".join(self.frontend.take_output(connection, NOW))


def publish(dialect: Dialect, packet_id: int, payload: bytes, qos: int = 1) -> bytes:
    return encode_packet(Publish("a/b", payload, qos, packet_id=packet_id), dialect)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: f"{len(payload)} bytes")
@pytest.mark.parametrize("reads", DIALECTS, ids=lambda dialect: f"read as {dialect.version}")
@pytest.mark.parametrize("writes", DIALECTS, ids=lambda dialect: f"written as {dialect.version}")
def test_readers_get_the_packet_in_their_dialect(writes: Dialect, reads: Dialect, payload: bytes) -> None:
    broker = Broker()
    reader = broker.client("reader", reads, SubscriptionOption("a/#", 1))
    other = broker.client("other", reads, SubscriptionOption("a/#", 0))
    publisher = broker.client("publisher", writes)
    broker.feed(publisher, b"".join(publish(writes, packet_id, payload) for packet_id in (0x0102, 0x0304)))
    assert broker.read(publisher) == b"\x40\x02\x01\x02\x40\x02\x03\x04"
    assert broker.read(reader) == publish(reads, 1, payload) + publish(reads, 2, payload)
    assert broker.read(other) == 2 * publish(reads, 0, payload, qos=0)
    broker.feed(reader, encode_packet(PubAck(1), reads) + encode_packet(PubAck(2), reads))
    assert broker.frontend.ledger.delivered == 4


@pytest.mark.mqtt(v5="MQTT-1.5.5-1")
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("writes", DIALECTS, ids=lambda dialect: f"written as {dialect.version}")
def test_a_length_in_more_bytes_than_it_takes_is_not_passed_on(writes: Dialect, qos: int) -> None:
    """MQTT 3.1.1 does not forbid it; MQTT 5 does, to readers of which it must not come [MQTT-1.5.5-1]."""
    broker = Broker()
    reader = broker.client("reader", V311, SubscriptionOption("a/#", 1))
    newer = broker.client("newer", V5, SubscriptionOption("a/#", 1))
    publisher = broker.client("publisher", writes)
    whole = publish(writes, 9 * qos, b"payload", qos)
    longer = whole[:1] + bytes((whole[1] | 0x80, 0)) + whole[2:]
    broker.feed(publisher, longer + whole + longer)
    for client, dialect in ((reader, V311), (newer, V5)):
        assert broker.read(client) == b"".join(publish(dialect, qos * nth, b"payload", qos) for nth in (1, 2, 3))


def test_every_packet_identifier_is_written_as_it_is() -> None:
    broker = Broker()
    reader = broker.client("reader", V311, SubscriptionOption("a/#", 1))
    publisher = broker.client("publisher", V311)
    session = reader.session
    assert session is not None
    for before in (0x00FE, 0x00FF, 0x7FFF, 0xFFFD, 0xFFFE):
        session.inflight.last_id = before
        broker.feed(publisher, publish(V311, 1, b""))
        assert broker.read(reader) == publish(V311, before + 1, b"")
    broker.feed(publisher, publish(V311, 1, b""))
    assert broker.read(reader) == publish(V311, 1, b"")
