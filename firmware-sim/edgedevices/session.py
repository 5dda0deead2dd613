"""The client's side of an MQTT session without I/O: the identity, the broker's limits, and every message's fate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscriptionOption,
    Will,
)
from edgebridge.wire.properties import Properties, Property, number
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import MIB
from edgedevices.audit import DeliveryAudit
from edgedevices.broker import ANYONE
from edgedevices.ledger import MessageLedger
from edgedevices.message import Body, DeviceMessage, PayloadForm
from edgedevices.server_reference import ServerReference

SESSION_EXPIRY_S: Final = 3_600
"""If a device is killed, the broker deletes its session after an hour (MQTT 5)."""


class DeviceDialect(Enum):
    """The version of MQTT of a device."""

    V311 = "3.1.1"
    V5 = "5"


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """The identity of a client. `client_id`: by default the device's name.

    status_topic: topic of the retained status "online"/"offline"; the latter is also the will. None: neither.
    """

    device: str
    dialect: DeviceDialect
    status_topic: str | None = None
    client_id: str | None = None
    lasts: bool = True
    """Whether the session survives connections. It is empty at the begin and the end of a run."""
    keep_alive_us: Duration = 60 * SECOND
    expiry_s: int = SESSION_EXPIRY_S
    subscriptions: tuple[tuple[str, int], ...] = ()
    """(topic filter, QoS) of its subscriptions."""

    def status(self, text: str) -> DeviceMessage:
        """Returns the retained status message *text*."""
        if self.status_topic is None:
            raise ValueError(f"{self.device} has no status topic")
        body: Body = {"device": self.device, "status": text}
        return DeviceMessage(self.device, None, self.status_topic, body, PayloadForm.JSON, qos=1, retain=True)


BROKER_WINDOW: Final = 16
"""Limit of unacknowledged messages; Mosquitto accepts 20 and disconnects clients that exceed it."""
REMAINING_LENGTH_MAX: Final = 268_435_455
"""Four bytes of seven bits each (section 2.1.4)."""
LASTING_REFUSALS: Final = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    }
)
"""Reason codes of CONNACK that another attempt does not change."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits in CONNACK (MQTT 5.0 section 3.2.2.3); 3.1.1 has none."""

    window: int = BROKER_WINDOW
    qos_max: int = 2
    retains: bool = True
    packet_bytes_max: int = REMAINING_LENGTH_MAX + 5
    keep_alive_us: Duration | None = None
    """The broker's value, which counts (MQTT-3.1.2-21)."""

    @classmethod
    def of(cls, connack: ConnAck) -> BrokerLimits:
        """Returns the limits in *connack*."""
        said = connack.properties
        keep_alive_s = number(said, Property.SERVER_KEEP_ALIVE)
        return _limits_of(
            min(BROKER_WINDOW, number(said, Property.RECEIVE_MAXIMUM, BROKER_WINDOW)),
            number(said, Property.MAXIMUM_QOS, 2),
            bool(number(said, Property.RETAIN_AVAILABLE, 1)),
            number(said, Property.MAXIMUM_PACKET_SIZE, REMAINING_LENGTH_MAX + 5),
            keep_alive_s * SECOND or None,
        )

    def refuses(self, message: DeviceMessage, count: int) -> str:
        """Returns why the broker would end the connection for *message*, of *count* bytes; empty if it would not."""
        if message.qos > self.qos_max:
            return f"refused: no QoS {message.qos} here"
        if message.retain and not self.retains:
            return "refused: nothing is retained here"
        if count > self.packet_bytes_max:
            return f"refused: no packets of more than {self.packet_bytes_max:,} bytes here"
        return ""


_limits_of: Final = lru_cache(64)(BrokerLimits)  # a broker sends the same limits to thousands of devices
DEFAULT_LIMITS: Final = BrokerLimits()
"""The limits before CONNACK."""


def reason_text(reason: ReasonCode) -> str:
    """Returns a reason code for people."""
    return reason.name.replace("_", " ").capitalize()


WAITING_MAX: Final = 1_000  # a device with 5 messages a second bridges 200 s without a broker
PACKET_BYTES_MAX: Final = 1 * MIB
"""Size of the packets that a device accepts from the broker."""
WIRE: Final = {DeviceDialect.V311: V311, DeviceDialect.V5: V5}


class QueueDropPolicy(Enum):
    """Which message is dropped when the queue is full."""

    NEWEST = "drop-newest"
    OLDEST = "drop-oldest"


@dataclass(slots=True)
class OutgoingPublish:
    """A QoS 1 or 2 message in flight; `released`: PUBREC was received, and PUBREL sent."""

    message: DeviceMessage
    payload: bytes
    released: bool = False


def _no_handler() -> None:
    """Does nothing: one function for thousands of sessions."""


class DeviceSession:
    """One device's session. `connect` begins a connection, `connection_lost` ends it; `take_output` returns what is to
    be written.

    on_publish: called with every received PUBLISH, except repeated ones of QoS 2.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        ledger: MessageLedger,
        audit: DeliveryAudit | None = None,
        waiting_max: int = WAITING_MAX,
        drop_policy: QueueDropPolicy = QueueDropPolicy.NEWEST,
        on_publish: Callable[[Publish], None] = lambda publish: None,
        packet_bytes_max: int = PACKET_BYTES_MAX,
    ) -> None:
        self.identity = identity
        self.credentials = ANYONE
        """The credentials of CONNECT."""
        self.subscriptions = [SubscriptionOption(text, qos) for text, qos in identity.subscriptions]
        """Its subscriptions, which are sent whenever the broker has no session."""
        self.queue: deque[DeviceMessage] = deque()
        self.in_flight: dict[int, OutgoingPublish] = {}
        self.is_up = False
        """Whether the broker has accepted this connection."""
        self.was_up = False
        """Whether the broker ever accepted a connection."""
        self.is_clean = False
        """Whether the broker has no session of us, as far as known."""
        self.refusal = ""
        """Why the broker refused this connection, or ended it with DISCONNECT; otherwise empty."""
        self.reference: ServerReference | None = None
        """Where the broker sent this device when it refused or ended the last connection."""
        self.connections_without_ack = 0
        """Connections since the broker's last acknowledgement."""
        self.is_denied = False
        """Whether it was refused for good: see `LASTING_REFUSALS`."""
        self.is_resumed = False
        """Whether the broker still had the session when this connection began."""
        self.is_subscribed = False
        """Whether all subscriptions are granted in this session."""
        self.refused_filter = ""
        """The topic filter that was refused, and why; otherwise empty."""
        self.subscribed_handler: Callable[[], None] = _no_handler
        """Called when all subscriptions are granted."""
        self._ledger = ledger
        self._audit = audit
        self._waiting_max = waiting_max
        self._drop_policy = drop_policy
        self.publish_handler = on_publish
        self._dialect = WIRE[identity.dialect]
        self._limits = DEFAULT_LIMITS
        self._last_id = 0
        self._received: set[int] = set()  # identifiers of received QoS 2 messages before PUBREL
        self._unwritten: deque[DeviceMessage] = deque()  # QoS 0 messages that the system has not accepted yet
        self._out = bytearray()
        self._packet_bytes_max = packet_bytes_max
        self._framer = Framer(packet_bytes_max)
        self._clears_session = False
        self._is_offline_queued = False

    @property
    def is_drained(self) -> bool:
        """Whether every message has its fate."""
        return not (self.queue or self.in_flight or self._unwritten)

    @property
    def keep_alive_us(self) -> Duration:
        """The keep-alive interval; the broker's, if it sent one."""
        return self._limits.keep_alive_us or self.identity.keep_alive_us

    @property
    def has_room(self) -> bool:
        """Whether less than a window's worth of messages is queued."""
        return len(self.queue) < BROKER_WINDOW

    def enqueue(self, message: DeviceMessage) -> None:
        """Queues *message*."""
        self._ledger.publish(message)
        if len(self.queue) >= self._waiting_max:
            victim = message if self._drop_policy is QueueDropPolicy.NEWEST else self.queue.popleft()
            self._ledger.fail(victim, "backlog full")
            if victim is message:
                return
        self.queue.append(message)

    def enqueue_offline(self) -> None:
        """Queues the status "offline" as the last message; a clean disconnect would leave "online"."""
        if self.identity.status_topic is not None and self.was_up and not self._is_offline_queued:
            self._is_offline_queued = True
            self.enqueue(self.identity.status("offline"))

    def connect(self, clears_session: bool = False) -> None:
        """Begins a connection with CONNECT. *clears_session*: only to make the broker delete the session."""
        identity = self.identity
        self._framer = Framer(self._packet_bytes_max)
        self._out.clear()
        self.refusal, self.reference, self._clears_session = "", None, clears_session
        properties: Properties = {}
        lasts = identity.lasts and not clears_session
        if lasts and identity.dialect is DeviceDialect.V5:
            properties[Property.SESSION_EXPIRY_INTERVAL] = identity.expiry_s
        self._write(
            Connect(
                identity.client_id or identity.device,
                not lasts,
                identity.keep_alive_us // SECOND,
                self.credentials.username,
                None if self.credentials.password is None else self.credentials.password.encode(),
                will=None if clears_session else self._will(),
                properties=properties,
                dialect=self._dialect,
            )
        )

    def receive(self, chunk: bytes, now: Instant) -> None:
        """Handles bytes from the broker. Raises edgebridge.wire.errors.ProtocolError; then the connection must end."""
        self._framer.feed(chunk)
        while (frame := self._framer.next_frame()) is not None:
            packet = decode_packet(*frame, self._dialect)
            handle = _HANDLERS.get(type(packet))
            if handle is not None:
                handle(self, packet)
        self.send_queued(now)

    def send_queued(self, now: Instant) -> None:
        """Sends what the window permits. QoS 0 messages count in it until the system has accepted them."""
        while self.is_up and not self._clears_session and self.queue and self._outstanding < self._limits.window:
            self._publish(self.queue.popleft(), now)

    def take_output(self) -> bytes:
        """Returns the bytes to write; empty if there are none."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def written(self) -> None:
        """Records that the system has accepted all output: QoS 0 messages are sent."""
        while self._unwritten:
            self._ledger.send(self._unwritten.popleft())

    def ping(self) -> None:
        """Sends PINGREQ."""
        self._write(PingReq())

    def disconnect(self, forget: bool) -> None:
        """Sends DISCONNECT. *forget*: ends the session, too; in 3.1.1 that needs a connection with `clears_session`."""
        properties: Properties = {}
        if self.identity.dialect is DeviceDialect.V5 and forget:
            properties[Property.SESSION_EXPIRY_INTERVAL] = 0
            self.is_clean = True
        self._write(Disconnect(properties=properties))

    def connection_lost(self, cause: str = "connection lost") -> None:
        """Records that the connection has ended."""
        self.is_up, self.refusal = False, ""
        self._out.clear()
        while self._unwritten:
            self._ledger.fail(self._unwritten.popleft(), cause)

    def fail_all(self, cause: str) -> None:
        """Records every message without a fate as failed; later acknowledgements are not counted."""
        for message in (*self._unwritten, *(publish.message for publish in self.in_flight.values()), *self.queue):
            self._ledger.fail(message, cause)
        self._unwritten.clear()
        self.in_flight.clear()
        self.queue.clear()

    def fail_oldest(self, cause: str) -> None:
        """Records the message that waits longest for its acknowledgement as failed."""
        if self.in_flight:
            self._ledger.fail(self.in_flight.pop(next(iter(self.in_flight))).message, cause)
        self.connections_without_ack = 0

    @property
    def _outstanding(self) -> int:
        return len(self.in_flight) + len(self._unwritten)

    def _will(self) -> Will | None:
        if self.identity.status_topic is None:
            return None
        message = self.identity.status("offline")
        return Will(message.topic, message.payload(), message.qos, message.retain)

    def _publish(self, message: DeviceMessage, now: Instant) -> None:
        payload = message.payload()
        message = replace(message, sent_us=now)
        packet_id = self._next_id() if message.qos else 0
        data = encode_packet(self._publish_packet(message, payload, packet_id), self._dialect)
        refusal = self._limits.refuses(message, len(data))
        if refusal:
            self._ledger.fail(message, refusal)
            return
        self._ledger.payload_bytes += len(payload)
        if self._audit is not None:
            self._audit.record_published(message, payload)
        if message.qos:
            self.in_flight[packet_id] = OutgoingPublish(message, payload)
        else:
            self._unwritten.append(message)
        self._out += data

    def _publish_packet(self, message: DeviceMessage, payload: bytes, packet_id: int, dup: bool = False) -> Publish:
        properties = message.properties() if self.identity.dialect is DeviceDialect.V5 else {}
        return Publish(message.topic, payload, message.qos, message.retain, dup, packet_id, properties)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self.in_flight:
                return self._last_id

    def _write(self, packet: Packet) -> None:
        self._out += encode_packet(packet, self._dialect)

    # -- received packets -----------------------------------------------------------------------------------------

    def _on_connack(self, connack: ConnAck) -> None:
        if connack.reason:
            self.refusal = f"refused: {reason_text(connack.reason)}"
            self.reference = ServerReference.of(connack.reason, connack.properties)
            self.is_denied = connack.reason in LASTING_REFUSALS
            return
        self.is_up = True
        if self._clears_session:
            self.is_clean = True
            return
        self.is_clean = not self.identity.lasts
        self.connections_without_ack += 1
        self.is_resumed, self._limits = connack.session_present, BrokerLimits.of(connack)
        if connack.session_present:
            self._resume()
        else:
            self._restart_session()
        self.was_up = True
        if self.identity.status_topic is not None and not self._is_offline_queued:
            birth = self.identity.status("online")
            self._ledger.publish(birth)
            self.queue.appendleft(birth)

    def _resume(self) -> None:
        """Retransmits unacknowledged messages (MQTT-4.4.0-1), in the order in which they were sent (MQTT-4.6.0-1)."""
        for packet_id, publish in self.in_flight.items():
            if publish.released:
                self._write(PubRel(packet_id))
            else:
                self._write(self._publish_packet(publish.message, publish.payload, packet_id, dup=True))
        if not self.is_subscribed:
            self._subscribe()

    def _restart_session(self) -> None:
        """Handles a broker without our session: unacknowledged messages are sent as new ones, and may arrive twice."""
        self._received.clear()
        repeated = [publish.message for publish in self.in_flight.values()]
        if self._audit is not None:
            for publish in self.in_flight.values():
                self._audit.allow_duplicate(publish.payload)
        self.in_flight.clear()
        self.queue.extendleft(reversed(repeated))
        self._subscribe()

    def _subscribe(self) -> None:
        self.is_subscribed = not self.subscriptions
        if self.subscriptions:
            self._write(Subscribe(self._next_id(), self.subscriptions))

    def _on_suback(self, suback: SubAck) -> None:
        for subscription, reason in zip(self.subscriptions, suback.reasons, strict=False):
            if reason >= FAILURE:
                self.refused_filter = f"{subscription.topic_filter!r}: {reason_text(ReasonCode(reason))}"
                self.refusal = f"may not subscribe to {subscription.topic_filter}"
                return
        self.is_subscribed = True
        self.subscribed_handler()

    def _on_puback(self, ack: PubAck | PubComp) -> None:
        self._settle(ack.packet_id, ack.reason)

    def _on_pubcomp(self, ack: PubComp) -> None:
        # No error after a reconnect: the broker may have released the identifier already (MQTT 5.0 section 3.7.2.1).
        self._settle(ack.packet_id, ReasonCode.SUCCESS)

    def _on_pubrec(self, ack: PubRec) -> None:
        publish = self.in_flight.get(ack.packet_id)
        if publish is not None and ack.reason >= FAILURE:
            self._settle(ack.packet_id, ack.reason)
            return
        if publish is not None:
            publish.released, self.connections_without_ack = True, 0
        self._write(PubRel(ack.packet_id))

    def _settle(self, packet_id: int, reason: ReasonCode) -> None:
        publish = self.in_flight.pop(packet_id, None)
        if publish is None:
            return
        self.connections_without_ack = 0
        if reason >= FAILURE:
            self._ledger.fail(publish.message, f"refused: {reason_text(reason)}")
            return
        self._ledger.acknowledge(publish.message)
        if self._audit is not None:
            self._audit.record_acknowledged(publish.payload)

    def _on_publish(self, publish: Publish) -> None:
        packet_id = publish.packet_id
        if publish.qos < 2 or packet_id not in self._received:
            self.publish_handler(publish)
        if publish.qos == 1:
            self._write(PubAck(packet_id))
        elif publish.qos == 2:
            self._received.add(packet_id)
            self._write(PubRec(packet_id))

    def _on_pubrel(self, pubrel: PubRel) -> None:
        self._received.discard(pubrel.packet_id)
        self._write(PubComp(pubrel.packet_id))

    def _on_disconnect(self, disconnect: Disconnect) -> None:
        self.refusal = reason_text(disconnect.reason)
        self.reference = ServerReference.of(disconnect.reason, disconnect.properties)


_HANDLERS: Final[dict[type[Packet], Callable[[DeviceSession, Any], None]]] = {
    ConnAck: DeviceSession._on_connack,
    Publish: DeviceSession._on_publish,
    PubAck: DeviceSession._on_puback,
    PubRec: DeviceSession._on_pubrec,
    PubRel: DeviceSession._on_pubrel,
    PubComp: DeviceSession._on_pubcomp,
    SubAck: DeviceSession._on_suback,
    Disconnect: DeviceSession._on_disconnect,
}
"""Packets from a broker; PINGRESP needs no handler, because the modem notes that any bytes arrived."""
