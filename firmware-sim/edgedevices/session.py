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

SESSION_EXPIRY_S: Final = 3_600
"""If a device is killed, the broker forgets its session after an hour (MQTT 5)."""


class DeviceDialect(Enum):
    """Which MQTT a device speaks."""

    V311 = "3.1.1"
    V5 = "5"


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who connects, and how. `client_id`: the device's name if it is left out.

    status_topic: retained "online"/"offline" go there, the latter also as the will; None: neither.
    """

    device: str
    dialect: DeviceDialect
    status_topic: str | None = None
    client_id: str | None = None
    lasts: bool = True
    """Whether the session survives connections. It begins and ends empty all the same."""
    keep_alive_us: Duration = 60 * SECOND
    expiry_s: int = SESSION_EXPIRY_S
    subscriptions: tuple[tuple[str, int], ...] = ()
    """(topic filter, QoS) of what it subscribes to."""

    def status(self, word: str) -> DeviceMessage:
        """The retained status message that says *word*."""
        if self.status_topic is None:
            raise ValueError(f"{self.device} has no status topic")
        body: Body = {"device": self.device, "status": word}
        return DeviceMessage(self.device, None, self.status_topic, body, PayloadForm.JSON, qos=1, retain=True)


BROKER_WINDOW: Final = 16
"""Unacknowledged messages at most; Mosquitto takes 20 and disconnects who exceeds them."""
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
"""Answers to CONNECT that another attempt does not change."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """MQTT 5.0 section 3.2.2.3; 3.1.1 says nothing of this."""

    window: int = BROKER_WINDOW
    qos_max: int = 2
    retains: bool = True
    packet_bytes_max: int = REMAINING_LENGTH_MAX + 5
    keep_alive_us: Duration | None = None
    """The broker's own mind about that, which counts (MQTT-3.1.2-21)."""

    @classmethod
    def of(cls, connack: ConnAck) -> BrokerLimits:
        """What *connack* says."""
        said = connack.properties
        keep_alive_s = number(said, Property.SERVER_KEEP_ALIVE)
        return _shared(
            min(BROKER_WINDOW, number(said, Property.RECEIVE_MAXIMUM, BROKER_WINDOW)),
            number(said, Property.MAXIMUM_QOS, 2),
            bool(number(said, Property.RETAIN_AVAILABLE, 1)),
            number(said, Property.MAXIMUM_PACKET_SIZE, REMAINING_LENGTH_MAX + 5),
            keep_alive_s * SECOND or None,
        )

    def refuses(self, message: DeviceMessage, octets: int) -> str:
        """Why the broker would end the connection instead of taking *message*, of *octets* bytes; else empty."""
        if message.qos > self.qos_max:
            return f"refused: no QoS {message.qos} here"
        if message.retain and not self.retains:
            return "refused: nothing is retained here"
        if octets > self.packet_bytes_max:
            return f"refused: no packets of more than {self.packet_bytes_max:,} bytes here"
        return ""


_shared: Final = lru_cache(64)(BrokerLimits)  # a broker says the same to thousands
UNKNOWN: Final = BrokerLimits()
"""What is assumed before a broker has said anything."""


def reason_words(reason: ReasonCode) -> str:
    """A reason code for people."""
    return reason.name.replace("_", " ").capitalize()


WAITING_MAX: Final = 1_000  # a device at 5 messages a second bridges 200 s without a broker
PACKET_BYTES_MAX: Final = 1 * MIB
"""What a device of this size takes from a broker in one packet."""
WIRE: Final = {DeviceDialect.V311: V311, DeviceDialect.V5: V5}


class QueueDropPolicy(Enum):
    """Which message goes when no more may wait."""

    NEWEST = "drop-newest"
    OLDEST = "drop-oldest"


@dataclass(slots=True)
class OutgoingPublish:
    """A QoS 1 or 2 message on its way; `released`: PUBREC came, and PUBREL was answered."""

    message: DeviceMessage
    payload: bytes
    released: bool = False


def _no_handler() -> None:
    """Nobody wants to know: one function for all, for there are thousands of sessions."""


class DeviceSession:
    """One device's session. `connect` begins a connection, `lost` ends it; `take` gives what is to be written.

    heard: called with every PUBLISH that arrives, if it is not of QoS 2 and came before.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        ledger: MessageLedger,
        audit: DeliveryAudit | None = None,
        waiting_max: int = WAITING_MAX,
        full: QueueDropPolicy = QueueDropPolicy.NEWEST,
        heard: Callable[[Publish], None] = lambda publish: None,
        packet_bytes_max: int = PACKET_BYTES_MAX,
    ) -> None:
        self.identity = identity
        self.credentials = ANYONE
        """What CONNECT presents."""
        self.subscriptions = [SubscriptionOption(text, qos) for text, qos in identity.subscriptions]
        """What it subscribes to whenever the broker knows nothing of it."""
        self.queue: deque[DeviceMessage] = deque()
        self.in_flight: dict[int, OutgoingPublish] = {}
        self.is_up = False
        """Whether the broker has accepted this connection."""
        self.was_up = False
        """Whether it ever accepted one."""
        self.is_clean = False
        """Whether the broker holds nothing of us, as far as we know."""
        self.refusal = ""
        """Why the broker has refused this connection, or ended it with a word; empty if it has not."""
        self.connections_without_ack = 0
        """Connections since the broker acknowledged anything."""
        self.is_denied = False
        """Whether it was refused for good: see LASTING_REFUSALS."""
        self.is_resumed = False
        """Whether the broker still had the session when this connection began."""
        self.is_subscribed = False
        """Whether everything subscribed to was granted in this session."""
        self.refused_filter = ""
        """The topic filter that it may not subscribe to, and why; empty if there is none."""
        self.subscribed_handler: Callable[[], None] = _no_handler
        """Called when everything subscribed to was granted."""
        self._ledger = ledger
        self._audit = audit
        self._waiting_max = waiting_max
        self._full = full
        self.publish_handler = heard
        self._wire = WIRE[identity.dialect]
        self._welcome = UNKNOWN
        self._last_id = 0
        self._received: set[int] = set()  # QoS 2 identifiers of what arrived and was not released
        self._unwritten: deque[DeviceMessage] = deque()  # QoS 0 that the system has not taken yet
        self._out = bytearray()
        self._packet_bytes_max = packet_bytes_max
        self._framer = Framer(packet_bytes_max)
        self._clears_session = False
        self._signed_off = False

    @property
    def is_drained(self) -> bool:
        """Whether every message offered has its fate."""
        return not (self.queue or self.in_flight or self._unwritten)

    @property
    def keep_alive_us(self) -> Duration:
        """How long the broker waits for a sign of life."""
        return self._welcome.keep_alive_us or self.identity.keep_alive_us

    @property
    def has_room(self) -> bool:
        """Whether less than a window's worth of messages is waiting."""
        return len(self.queue) < BROKER_WINDOW

    def enqueue(self, message: DeviceMessage) -> None:
        """Send *message* as soon as possible, after everything offered before."""
        self._ledger.publish(message)
        if len(self.queue) >= self._waiting_max:
            victim = message if self._full is QueueDropPolicy.NEWEST else self.queue.popleft()
            self._ledger.fail(victim, "backlog full")
            if victim is message:
                return
        self.queue.append(message)

    def enqueue_offline(self) -> None:
        """Say "offline" as the last message; a clean disconnect would leave "online" behind."""
        if self.identity.status_topic is not None and self.was_up and not self._signed_off:
            self._signed_off = True
            self.enqueue(self.identity.status("offline"))

    def connect(self, clears_session: bool = False) -> None:
        """Begin a connection: CONNECT. *wiping*: only to make the broker forget the session, whatever it holds."""
        identity = self.identity
        self._framer = Framer(self._packet_bytes_max)
        self._out.clear()
        self.refusal, self._clears_session = "", clears_session
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
                dialect=self._wire,
            )
        )

    def receive(self, chunk: bytes, now: Instant) -> None:
        """Bytes from the broker. Raises edgebridge.wire.errors.ProtocolError; the connection is of no use then."""
        self._framer.feed(chunk)
        while (frame := self._framer.next_frame()) is not None:
            packet = decode_packet(*frame, self._wire)
            handle = _HANDLERS.get(type(packet))
            if handle is not None:
                handle(self, packet)
        self.send_queued(now)

    def send_queued(self, now: Instant) -> None:
        """Send what the window allows. QoS 0 has its place in it until the system has taken it."""
        while self.is_up and not self._clears_session and self.queue and self._on_its_way < self._welcome.window:
            self._publish(self.queue.popleft(), now)

    def take_output(self) -> bytes:
        """What is to be written now; empty if nothing is."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def written(self) -> None:
        """The system has taken everything that `take` gave: QoS 0 can be no safer."""
        while self._unwritten:
            self._ledger.send(self._unwritten.popleft())

    def ping(self) -> None:
        """Ask the broker for a sign of life."""
        self._write(PingReq())

    def disconnect(self, forget: bool) -> None:
        """Say good-bye. *forget*: the broker need not keep the session; in 3.1.1 only a wiping connection says so."""
        properties: Properties = {}
        if self.identity.dialect is DeviceDialect.V5 and forget:
            properties[Property.SESSION_EXPIRY_INTERVAL] = 0
            self.is_clean = True
        self._write(Disconnect(properties=properties))

    def connection_lost(self, cause: str = "connection lost") -> None:
        """The connection is over."""
        self.is_up, self.refusal = False, ""
        self._out.clear()
        while self._unwritten:
            self._ledger.fail(self._unwritten.popleft(), cause)

    def fail_all(self, cause: str) -> None:
        """Book every message whose fate is open as failed; an acknowledgement that comes later is not counted."""
        for message in (*self._unwritten, *(one.message for one in self.in_flight.values()), *self.queue):
            self._ledger.fail(message, cause)
        self._unwritten.clear()
        self.in_flight.clear()
        self.queue.clear()

    def fail_oldest(self, cause: str) -> None:
        """Book what waits for its acknowledgement longest as failed, and go on with the others."""
        if self.in_flight:
            self._ledger.fail(self.in_flight.pop(next(iter(self.in_flight))).message, cause)
        self.connections_without_ack = 0

    @property
    def _on_its_way(self) -> int:
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
        octets = encode_packet(self._said(message, payload, packet_id), self._wire)
        refusal = self._welcome.refuses(message, len(octets))
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
        self._out += octets

    def _said(self, message: DeviceMessage, payload: bytes, packet_id: int, again: bool = False) -> Publish:
        properties = message.properties() if self.identity.dialect is DeviceDialect.V5 else {}
        return Publish(message.topic, payload, message.qos, message.retain, again, packet_id, properties)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self.in_flight:
                return self._last_id

    def _write(self, packet: Packet) -> None:
        self._out += encode_packet(packet, self._wire)

    # -- what arrives -------------------------------------------------------------------------------------------

    def _on_connack(self, connack: ConnAck) -> None:
        if connack.reason:
            self.refusal = f"refused: {reason_words(connack.reason)}"
            self.is_denied = connack.reason in LASTING_REFUSALS
            return
        self.is_up = True
        if self._clears_session:
            self.is_clean = True
            return
        self.is_clean = not self.identity.lasts
        self.connections_without_ack += 1
        self.is_resumed, self._welcome = connack.session_present, BrokerLimits.of(connack)
        if connack.session_present:
            self._resume()
        else:
            self._begin_again()
        self.was_up = True
        if self.identity.status_topic is not None and not self._signed_off:
            birth = self.identity.status("online")
            self._ledger.publish(birth)
            self.queue.appendleft(birth)

    def _resume(self) -> None:
        """Send again what was not acknowledged (MQTT-4.4.0-1), in the order in which it was sent (MQTT-4.6.0-1)."""
        for packet_id, one in self.in_flight.items():
            if one.released:
                self._write(PubRel(packet_id))
            else:
                self._write(self._said(one.message, one.payload, packet_id, again=True))
        if not self.is_subscribed:
            self._ask()

    def _begin_again(self) -> None:
        """The broker knows nothing of us: what was not acknowledged is sent once more, and may so arrive twice."""
        self._received.clear()
        repeated = [one.message for one in self.in_flight.values()]
        if self._audit is not None:
            for one in self.in_flight.values():
                self._audit.allow_duplicate(one.payload)
        self.in_flight.clear()
        self.queue.extendleft(reversed(repeated))
        self._ask()

    def _ask(self) -> None:
        self.is_subscribed = not self.subscriptions
        if self.subscriptions:
            self._write(Subscribe(self._next_id(), self.subscriptions))

    def _on_suback(self, suback: SubAck) -> None:
        for ask, reason in zip(self.subscriptions, suback.reasons, strict=False):
            if reason >= FAILURE:
                self.refused_filter = f"{ask.topic_filter!r}: {reason_words(ReasonCode(reason))}"
                self.refusal = f"may not subscribe to {ask.topic_filter}"
                return
        self.is_subscribed = True
        self.subscribed_handler()

    def _on_puback(self, ack: PubAck | PubComp) -> None:
        self._settle(ack.packet_id, ack.reason)

    def _on_pubcomp(self, ack: PubComp) -> None:
        # No error after a reconnect: the broker had let go of the identifier already (MQTT 5.0 section 3.7.2.1).
        self._settle(ack.packet_id, ReasonCode.SUCCESS)

    def _on_pubrec(self, ack: PubRec) -> None:
        one = self.in_flight.get(ack.packet_id)
        if one is not None and ack.reason >= FAILURE:
            self._settle(ack.packet_id, ack.reason)
            return
        if one is not None:
            one.released, self.connections_without_ack = True, 0
        self._write(PubRel(ack.packet_id))

    def _settle(self, packet_id: int, reason: ReasonCode) -> None:
        one = self.in_flight.pop(packet_id, None)
        if one is None:
            return
        self.connections_without_ack = 0
        if reason >= FAILURE:
            self._ledger.fail(one.message, f"refused: {reason_words(reason)}")
            return
        self._ledger.acknowledge(one.message)
        if self._audit is not None:
            self._audit.record_acknowledged(one.payload)

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
        self.refusal = reason_words(disconnect.reason)


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
"""What a broker may say to a device; PINGRESP needs no answer: that anything came is noted by the modem."""
