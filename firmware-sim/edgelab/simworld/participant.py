"""A complete client: keeps its session, answers as the standard demands, and records all messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Final

from edgebridge.wire.dialect import Dialect
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
    SubAck,
    Subscribe,
    SubscriptionOption,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import FAILURE
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.conditions import LineConditions

WINDOW: Final = 20  # most messages of a participant in flight; well below the maximum that the broker announces
SESSION_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message that a participant passed to its client, possibly unsent; or a will."""

    publisher: str
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    at: Instant = 0
    expiry_s: int = 0
    """The time after which it must not be delivered any more; 0: it does not expire."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that a participant's application received, in the order of arrival."""

    subscriber: str
    topic: str
    payload: bytes
    qos: int
    at: Instant
    is_retained: bool = False
    """Whether it was a retained message."""
    is_duplicate: bool = False
    """Whether DUP was set."""


@dataclass(slots=True)
class OutgoingMessage:
    """A QoS 1 or 2 message on its way to the broker; `released`: PUBREC was received."""

    publish: Publish
    released: bool = False


@dataclass(slots=True)
class ClientSession:
    """The client's part of a session (MQTT 5.0 section 4.1)."""

    outgoing: dict[int, OutgoingMessage] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)


class Participant:
    """One device: connects (and, if its session is `kept`, resumes it), publishes, subscribes, acknowledges."""

    def __init__(
        self,
        name: str,
        broker: SimulatedBroker,
        dialect: Dialect,
        kept: bool,
        receive_maximum: int,
        conditions: LineConditions,
    ) -> None:
        self.name = name
        self.kept = kept
        self.published: list[PublishedMessage] = []
        self.received: list[ReceivedMessage] = []
        self.requested: set[str] = set()
        """Every topic filter it ever subscribed to, as written."""
        self.granted: set[str] = set()
        """The filters that were granted at least once."""
        self.subscribed: set[str] = set()
        """The filters that were granted in this session and not unsubscribed."""
        self.refused: set[bytes] = set()
        """The payloads of messages that the broker refused."""
        self.acknowledged: dict[bytes, Instant] = {}
        """Payload -> the time of PUBACK or of the first PUBREC."""
        self.republished: set[bytes] = set()
        """The payloads of messages that it sent more than once, because an acknowledgement was missing."""
        self.most_received = 0
        """The most QoS 2 messages that were on their way to it at one time."""
        self.wills: list[PublishedMessage] = []
        """The wills, one for each connection."""
        self.new_will: Callable[[], Will] | None = None
        """Returns a will for each connection."""
        self._pending_subscriptions: dict[int, str] = {}
        self.sessions_lost = 0
        self.connack_properties: Properties = {}
        """Those of the last CONNACK that accepted it."""
        self._simulation = broker.simulation
        self._dialect = dialect
        self._receive_maximum = receive_maximum
        self._session = ClientSession()
        self._last_id = 0
        self._is_ready = False
        self.client = SimulatedClient(name, broker, conditions, self._on_packet)

    @property
    def is_ready(self) -> bool:
        """Return whether the broker has accepted it, and its line is open as far as it knows."""
        return self._is_ready and self.client.is_connected

    def pending_payload(self, packet_id: int) -> bytes | None:
        """Return the payload of the message that an acknowledgement of *packet_id* would complete."""
        unfinished = self._session.outgoing.get(packet_id)
        return None if unfinished is None else unfinished.publish.payload

    @property
    def is_settled(self) -> bool:
        """Return whether it is connected and waits for no acknowledgement."""
        return self._is_ready and not self._session.outgoing

    def connect(self) -> None:
        """Open a new line, and abandon an open one."""
        self._is_ready = False
        self.client.abandon()
        properties = {}
        if self._dialect.has_properties:
            properties[Property.RECEIVE_MAXIMUM] = self._receive_maximum
            if self.kept:
                properties[Property.SESSION_EXPIRY_INTERVAL] = SESSION_S
        will = None if self.new_will is None else self.new_will()
        if will is not None:
            self.wills.append(
                PublishedMessage(self.name, will.topic, will.payload, will.qos, will.retain, self._simulation.now)
            )
        connect = Connect(self.name, not self.kept, will=will, properties=dict(properties), dialect=self._dialect)
        self.client.send(connect)

    def move(self, broker: SimulatedBroker) -> None:
        """Open lines to *broker* from now on; an open one is abandoned."""
        self._is_ready = False
        self.client.move(broker)

    def cut(self) -> None:
        """Break the line."""
        self._is_ready = False
        self.client.cut()

    def disconnect(self) -> None:
        """Send DISCONNECT, so that the will is not published."""
        self._is_ready = False
        self.client.send(Disconnect())

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False, expiry_s: int = 0) -> bool:
        """Send a message; one with *expiry_s* expires. Returns False without a connection, or if the window is full."""
        if not self._is_ready or not self.client.is_connected or len(self._session.outgoing) >= WINDOW:
            return False
        properties: Properties = {Property.MESSAGE_EXPIRY_INTERVAL: expiry_s} if expiry_s else {}
        publish = Publish(topic, payload, qos, retain, properties=properties)
        if qos:
            publish.packet_id = self._next_id()
            self._session.outgoing[publish.packet_id] = OutgoingMessage(publish)
        self.published.append(PublishedMessage(self.name, topic, payload, qos, retain, self._simulation.now, expiry_s))
        self.client.send(publish)
        return True

    def subscribe(self, topic_filter: str, qos: int) -> bool:
        """Subscribe to *topic_filter*. Returns False without a connection."""
        if not self._is_ready or not self.client.is_connected:
            return False
        self.requested.add(topic_filter)
        packet_id = self._next_id()
        self._pending_subscriptions[packet_id] = topic_filter
        self.client.send(Subscribe(packet_id, [SubscriptionOption(topic_filter, qos)]))
        return True

    def unsubscribe(self, topic_filter: str) -> None:
        """End a subscription."""
        if self._is_ready and self.client.is_connected:
            self.subscribed.discard(topic_filter)
            self.client.send(Unsubscribe(self._next_id(), [topic_filter]))

    def _next_id(self) -> int:
        self._last_id = self._last_id % 65_535 + 1
        return self._last_id

    def _on_packet(self, packet: Packet) -> None:
        session = self._session
        match packet:
            case ConnAck():
                self._on_connack(packet)
            case Publish():
                self._on_publish(packet)
            case PubRel(packet_id):
                session.received.discard(packet_id)
                self.client.send(PubComp(packet_id))
            case SubAck(packet_id, [reason]):
                if reason < FAILURE:
                    self.granted.add(self._pending_subscriptions[packet_id])
                    self.subscribed.add(self._pending_subscriptions[packet_id])
            case PubAck(packet_id, reason) | PubRec(packet_id, reason) if reason >= FAILURE:
                if packet_id in session.outgoing:
                    self.refused.add(session.outgoing.pop(packet_id).publish.payload)
            case PubAck(packet_id) | PubComp(packet_id):
                unfinished = session.outgoing.pop(packet_id, None)
                if unfinished is not None:
                    self.acknowledged.setdefault(unfinished.publish.payload, self._simulation.now)
            case PubRec(packet_id):
                unfinished = session.outgoing.get(packet_id)
                if unfinished is not None:
                    unfinished.released = True
                    self.acknowledged.setdefault(unfinished.publish.payload, self._simulation.now)
                self.client.send(PubRel(packet_id))

    def _on_connack(self, connack: ConnAck) -> None:
        if connack.reason:
            return
        self._is_ready = True
        self.connack_properties = connack.properties
        if not connack.session_present:
            self.sessions_lost += 1
            self.subscribed.clear()
            self._session = ClientSession()
        for packet_id, unfinished in self._session.outgoing.items():
            if unfinished.released:
                self.client.send(PubRel(packet_id))
            else:
                self.republished.add(unfinished.publish.payload)
                self.client.send(replace(unfinished.publish, dup=True))

    def _on_publish(self, publish: Publish) -> None:
        packet_id = publish.packet_id
        if publish.qos < 2 or packet_id not in self._session.received:
            now = self._simulation.now
            self.received.append(
                ReceivedMessage(
                    self.name, publish.topic, publish.payload, publish.qos, now, publish.retain, publish.dup
                )
            )
        if publish.qos == 1:
            self.client.send(PubAck(packet_id))
        elif publish.qos == 2:
            self._session.received.add(packet_id)
            self.most_received = max(self.most_received, len(self._session.received))
            self.client.send(PubRec(packet_id))
