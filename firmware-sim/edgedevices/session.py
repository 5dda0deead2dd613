"""The client's side of an MQTT session, without I/O: bytes in, bytes out, and what every message comes to.

A session outlives its connections, if it lasts: what was not acknowledged is sent again in order, with the packet
identifiers it had (MQTT 5.0 section 4.4); if the broker has lost the session, as if for the first time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
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
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import MIB
from edgedevices.access import ANYONE
from edgedevices.audit import Audit
from edgedevices.identity import Dialect, Identity
from edgedevices.ledger import Ledger
from edgedevices.message import Message
from edgedevices.welcome import LASTING_REFUSALS, UNKNOWN, WINDOW, Welcome, words

WAITING_MAX: Final = 1_000  # a device at 5 messages a second bridges 200 s without a broker
PACKET_BYTES_MAX: Final = 1 * MIB
"""What a device of this size takes from a broker in one packet."""
WIRE: Final = {Dialect.V311: V311, Dialect.V5: V5}


class Full(Enum):
    """Which message goes when no more may wait."""

    NEWEST = "drop-newest"
    OLDEST = "drop-oldest"


@dataclass(slots=True)
class Unfinished:
    """A QoS 1 or 2 message on its way; `released`: PUBREC came, and PUBREL was answered."""

    message: Message
    payload: bytes
    released: bool = False


def _not_told() -> None:
    """Nobody wants to know: one function for all, for there are thousands of sessions."""


class Session:
    """One device's session. `connect` begins a connection, `lost` ends it; `take` gives what is to be written.

    heard: called with every PUBLISH that arrives, if it is not of QoS 2 and came before.
    """

    def __init__(
        self,
        identity: Identity,
        ledger: Ledger,
        audit: Audit | None = None,
        waiting_max: int = WAITING_MAX,
        full: Full = Full.NEWEST,
        heard: Callable[[Publish], None] = lambda publish: None,
        packet_bytes_max: int = PACKET_BYTES_MAX,
    ) -> None:
        self.identity = identity
        self.access = ANYONE
        """What CONNECT presents."""
        self.asks = [SubscriptionOption(text, qos) for text, qos in identity.asks]
        """What it subscribes to whenever the broker knows nothing of it."""
        self.waiting: deque[Message] = deque()
        self.unfinished: dict[int, Unfinished] = {}
        self.is_up = False
        """Whether the broker has accepted this connection."""
        self.was_up = False
        """Whether it ever accepted one."""
        self.is_clean = False
        """Whether the broker holds nothing of us, as far as we know."""
        self.refusal = ""
        """Why the broker has refused this connection, or ended it with a word; empty if it has not."""
        self.fruitless = 0
        """Connections since the broker acknowledged anything."""
        self.is_denied = False
        """Whether it was refused for good: see LASTING_REFUSALS."""
        self.is_resumed = False
        """Whether the broker still had the session when this connection began."""
        self.asked = False
        """Whether everything subscribed to was granted in this session."""
        self.barred = ""
        """The topic filter that it may not subscribe to, and why; empty if there is none."""
        self.granted: Callable[[], None] = _not_told
        """Called when everything subscribed to was granted."""
        self._ledger = ledger
        self._audit = audit
        self._waiting_max = waiting_max
        self._full = full
        self.heard = heard
        self._wire = WIRE[identity.dialect]
        self._welcome = UNKNOWN
        self._last_id = 0
        self._received: set[int] = set()  # QoS 2 identifiers of what arrived and was not released
        self._unwritten: deque[Message] = deque()  # QoS 0 that the system has not taken yet
        self._out = bytearray()
        self._packet_bytes_max = packet_bytes_max
        self._framer = Framer(packet_bytes_max)
        self._wiping = False
        self._signed_off = False

    @property
    def is_drained(self) -> bool:
        """Whether every message offered has its fate."""
        return not (self.waiting or self.unfinished or self._unwritten)

    @property
    def keep_alive_us(self) -> Duration:
        """How long the broker waits for a sign of life."""
        return self._welcome.keep_alive_us or self.identity.keep_alive_us

    @property
    def has_room(self) -> bool:
        """Whether less than a window's worth of messages is waiting."""
        return len(self.waiting) < WINDOW

    def offer(self, message: Message) -> None:
        """Send *message* as soon as possible, after everything offered before."""
        self._ledger.publish(message)
        if len(self.waiting) >= self._waiting_max:
            victim = message if self._full is Full.NEWEST else self.waiting.popleft()
            self._ledger.fail(victim, "backlog full")
            if victim is message:
                return
        self.waiting.append(message)

    def sign_off(self) -> None:
        """Say "offline" as the last message; a clean disconnect would leave "online" behind."""
        if self.identity.status_topic is not None and self.was_up and not self._signed_off:
            self._signed_off = True
            self.offer(self.identity.status("offline"))

    def connect(self, wiping: bool = False) -> None:
        """Begin a connection: CONNECT. *wiping*: only to make the broker forget the session, whatever it holds."""
        identity = self.identity
        self._framer = Framer(self._packet_bytes_max)
        self._out.clear()
        self.refusal, self._wiping = "", wiping
        properties: Properties = {}
        lasts = identity.lasts and not wiping
        if lasts and identity.dialect is Dialect.V5:
            properties[Property.SESSION_EXPIRY_INTERVAL] = identity.expiry_s
        self._write(
            Connect(
                identity.client_id or identity.device,
                not lasts,
                identity.keep_alive_us // SECOND,
                self.access.username,
                None if self.access.password is None else self.access.password.encode(),
                will=None if wiping else self._will(),
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
        self.pump(now)

    def pump(self, now: Instant) -> None:
        """Send what the window allows. QoS 0 has its place in it until the system has taken it."""
        while self.is_up and not self._wiping and self.waiting and self._on_its_way < self._welcome.window:
            self._publish(self.waiting.popleft(), now)

    def take(self) -> bytes:
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
        if self.identity.dialect is Dialect.V5 and forget:
            properties[Property.SESSION_EXPIRY_INTERVAL] = 0
            self.is_clean = True
        self._write(Disconnect(properties=properties))

    def lost(self, cause: str = "connection lost") -> None:
        """The connection is over."""
        self.is_up, self.refusal = False, ""
        self._out.clear()
        while self._unwritten:
            self._ledger.fail(self._unwritten.popleft(), cause)

    def give_up(self, cause: str) -> None:
        """Book every message whose fate is open as failed; an acknowledgement that comes later is not counted."""
        for message in (*self._unwritten, *(one.message for one in self.unfinished.values()), *self.waiting):
            self._ledger.fail(message, cause)
        self._unwritten.clear()
        self.unfinished.clear()
        self.waiting.clear()

    def give_up_first(self, cause: str) -> None:
        """Book what waits for its acknowledgement longest as failed, and go on with the others."""
        if self.unfinished:
            self._ledger.fail(self.unfinished.pop(next(iter(self.unfinished))).message, cause)
        self.fruitless = 0

    @property
    def _on_its_way(self) -> int:
        return len(self.unfinished) + len(self._unwritten)

    def _will(self) -> Will | None:
        if self.identity.status_topic is None:
            return None
        message = self.identity.status("offline")
        return Will(message.topic, message.payload(), message.qos, message.retain)

    def _publish(self, message: Message, now: Instant) -> None:
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
            self._audit.say(message, payload)
        if message.qos:
            self.unfinished[packet_id] = Unfinished(message, payload)
        else:
            self._unwritten.append(message)
        self._out += octets

    def _said(self, message: Message, payload: bytes, packet_id: int, again: bool = False) -> Publish:
        properties = message.properties() if self.identity.dialect is Dialect.V5 else {}
        return Publish(message.topic, payload, message.qos, message.retain, again, packet_id, properties)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self.unfinished:
                return self._last_id

    def _write(self, packet: Packet) -> None:
        self._out += encode_packet(packet, self._wire)

    # -- what arrives -------------------------------------------------------------------------------------------

    def _on_connack(self, connack: ConnAck) -> None:
        if connack.reason:
            self.refusal = f"refused: {words(connack.reason)}"
            self.is_denied = connack.reason in LASTING_REFUSALS
            return
        self.is_up = True
        if self._wiping:
            self.is_clean = True
            return
        self.is_clean = not self.identity.lasts
        self.fruitless += 1
        self.is_resumed, self._welcome = connack.session_present, Welcome.of(connack)
        if connack.session_present:
            self._resume()
        else:
            self._begin_again()
        self.was_up = True
        if self.identity.status_topic is not None and not self._signed_off:
            birth = self.identity.status("online")
            self._ledger.publish(birth)
            self.waiting.appendleft(birth)

    def _resume(self) -> None:
        """Send again what was not acknowledged (MQTT-4.4.0-1), in the order in which it was sent (MQTT-4.6.0-1)."""
        for packet_id, one in self.unfinished.items():
            if one.released:
                self._write(PubRel(packet_id))
            else:
                self._write(self._said(one.message, one.payload, packet_id, again=True))
        if not self.asked:
            self._ask()

    def _begin_again(self) -> None:
        """The broker knows nothing of us: what was not acknowledged is sent once more, and may so arrive twice."""
        self._received.clear()
        repeated = [one.message for one in self.unfinished.values()]
        if self._audit is not None:
            for one in self.unfinished.values():
                self._audit.allow_twice(one.payload)
        self.unfinished.clear()
        self.waiting.extendleft(reversed(repeated))
        self._ask()

    def _ask(self) -> None:
        self.asked = not self.asks
        if self.asks:
            self._write(Subscribe(self._next_id(), self.asks))

    def _on_suback(self, suback: SubAck) -> None:
        for ask, reason in zip(self.asks, suback.reasons, strict=False):
            if reason >= FAILURE:
                self.barred = f"{ask.topic_filter!r}: {words(ReasonCode(reason))}"
                self.refusal = f"may not subscribe to {ask.topic_filter}"
                return
        self.asked = True
        self.granted()

    def _on_puback(self, ack: PubAck | PubComp) -> None:
        self._settle(ack.packet_id, ack.reason)

    def _on_pubcomp(self, ack: PubComp) -> None:
        # No error after a reconnect: the broker had let go of the identifier already (MQTT 5.0 section 3.7.2.1).
        self._settle(ack.packet_id, ReasonCode.SUCCESS)

    def _on_pubrec(self, ack: PubRec) -> None:
        one = self.unfinished.get(ack.packet_id)
        if one is not None and ack.reason >= FAILURE:
            self._settle(ack.packet_id, ack.reason)
            return
        if one is not None:
            one.released, self.fruitless = True, 0
        self._write(PubRel(ack.packet_id))

    def _settle(self, packet_id: int, reason: ReasonCode) -> None:
        one = self.unfinished.pop(packet_id, None)
        if one is None:
            return
        self.fruitless = 0
        if reason >= FAILURE:
            self._ledger.fail(one.message, f"refused: {words(reason)}")
            return
        self._ledger.acknowledge(one.message)
        if self._audit is not None:
            self._audit.owe(one.payload)

    def _on_publish(self, publish: Publish) -> None:
        packet_id = publish.packet_id
        if publish.qos < 2 or packet_id not in self._received:
            self.heard(publish)
        if publish.qos == 1:
            self._write(PubAck(packet_id))
        elif publish.qos == 2:
            self._received.add(packet_id)
            self._write(PubRec(packet_id))

    def _on_pubrel(self, pubrel: PubRel) -> None:
        self._received.discard(pubrel.packet_id)
        self._write(PubComp(pubrel.packet_id))

    def _on_disconnect(self, disconnect: Disconnect) -> None:
        self.refusal = words(disconnect.reason)


_HANDLERS: Final[dict[type[Packet], Callable[[Session, Any], None]]] = {
    ConnAck: Session._on_connack,
    Publish: Session._on_publish,
    PubAck: Session._on_puback,
    PubRec: Session._on_pubrec,
    PubRel: Session._on_pubrel,
    PubComp: Session._on_pubcomp,
    SubAck: Session._on_suback,
    Disconnect: Session._on_disconnect,
}
"""What a broker may say to a device; PINGRESP needs no answer: that anything came is noted by the modem."""
