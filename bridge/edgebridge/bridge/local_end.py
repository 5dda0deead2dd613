"""The connection of a bridge to our own front end: it subscribes, reads packets and closes."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final, Protocol

from edgebridge.bridge import handshake
from edgebridge.bridge.endpoints import BridgeCommand, Endpoints, discard_packets, is_qos0_publish, reason_text
from edgebridge.bridge.inbound import InboundFlow
from edgebridge.bridge.options import U16_MAX, BridgeOptions, LocalSession
from edgebridge.bridge.outbound import OutboundFlow
from edgebridge.bridge.rules import BridgeRule, RuleSet
from edgebridge.session.session import BridgeSyncState
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import PING_REQ
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Disconnect,
    Packet,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
)
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import Instant
from edgebroker.limits import KIB, MIB

PUBLISH: Final = 3  # the packet type, the upper half of the first byte
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70  # the first byte
PACKET_BYTES_MAX: Final = 256 * MIB  # what the standard allows, and our own front end may say
QOS: Final = 0x06  # in the first byte
BYTES_PER_TURN: Final = 16 * KIB
"""Bytes of messages of QoS 1 and 2 in one turn where rules change payloads, 0.1 to 0.2 us each: a window of 128
large ones would hold up everybody for 200 ms. QoS 0 does not wait: nobody keeps it."""
BACKLOG_BYTES_MAX: Final = 1 * MIB
"""What waits for another turn before our front end is to say nothing more."""


class FastPathEntry(Protocol):
    """Where a PUBLISH of our front end enters: the outbound flow, or a pacing queue before it."""

    def try_fast_path(self, first: int, body: bytes) -> bool:
        """Whether the packet was carried or queued as it is; otherwise it is to be decoded."""


class LocalEnd:
    """One connection to our own front end after the other. It may be there without the remote, to subscribe."""

    def __init__(
        self,
        terms: BridgeOptions,
        memory: LocalSession,
        ends: Endpoints,
        rules: RuleSet,
        outward: OutboundFlow,
        inward: InboundFlow,
        refusals: dict[int, str],
        entry: FastPathEntry,
    ) -> None:
        """*refusals*: of subscriptions, by the number of their rule: by whom, and why. *entry* gets what is published
        here first.
        """
        self.is_connected = False
        """Whether there is one."""
        self.has_connack = False
        """Whether our front end has said CONNACK: what it was told of the session is on disk then."""
        self.retransmitted = 0
        """QoS 2 messages that were sent again because the remote lost its session: it may have them twice."""
        self._options = terms
        self._local_session = memory
        self._endpoints = ends
        self._rules = rules
        self._outbound = outward
        self._inbound = inward
        self._refusals = refusals
        self._try_fast_path = entry.try_fast_path
        self._framer = Framer(PACKET_BYTES_MAX)
        self._subscribing: dict[int, int] = {}  # packet identifier of a SUBSCRIBE -> rule
        self._is_syncing_retained = False  # the remote is being told all that is retained
        self._has_sync_begun = False  # what is retained is on its way, all of it
        self.has_backlog = False
        """Whether what our front end has said waits for `go_on`, in another turn."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits that our front end is to say nothing more for now."""
        return self.has_backlog and self._framer.unread > BACKLOG_BYTES_MAX

    def needs_subscriptions(self) -> bool:
        """Whether the session at our front end is to be given its subscriptions before the remote is there."""
        wanted = {wanted.text for wanted in self._rules.local_subscriptions}
        subscribed = set(self._local_session.subscribed()) if self._local_session.is_known() else set()
        return wanted != subscribed

    def open(self, is_open: bool, now: Instant) -> None:
        """It is there. *is_open*: the remote is as well."""
        self._framer, self.has_backlog = Framer(PACKET_BYTES_MAX), False
        self._inbound.count_lost(discard_packets(self._endpoints.local))
        self.is_connected, self.has_connack = True, False
        granted = self._endpoints.capabilities
        known = self._local_session.is_known()
        subscribed = self._local_session.subscribed() if known else ()
        if is_open and known and not granted.session_present:
            self.retransmitted += self._local_session.retransmit_released(now)
        if is_open and any(rule.is_in and rule.is_out for rule in self._options.rules):
            lost = self._local_session.lost_retained() or frozenset()
            self._inbound.keep_outgoing(self._local_session.waiting_retained() | lost, now)
        handling, state = self._retained_handling(is_open, granted.session_present and not granted.is_in_doubt, now)
        self._endpoints.send_local(handshake.connect_local(self._options, granted, is_open, state))
        received = frozenset(self._local_session.received())
        if is_open and known and not granted.session_present:
            self._inbound.forget(sorted(received))
        elif is_open:
            self._inbound.resume(sorted(received))
        self._subscribing.clear()
        ids = (packet_id for packet_id in range(U16_MAX, 0, -1) if packet_id not in received)
        for wanted, subscribe in handshake.subscribe_local(self._rules, handling, ids):
            self._subscribing[subscribe.packet_id] = wanted.number
            self._endpoints.send_local(subscribe)
        if (unsubscribe := handshake.unsubscribe_local(self._rules, subscribed, ids)) is not None:
            self._endpoints.send_local(unsubscribe)
        if self._is_syncing_retained:
            self._endpoints.local.append(PING_REQ)  # answered when all subscriptions are, and what they bring is known

    def _retained_handling(
        self, is_open: bool, is_known_there: bool, now: Instant
    ) -> tuple[Callable[[BridgeRule], int], BridgeSyncState]:
        """The retain handling of what each rule subscribes to, and the state of our session from now on.

        Who meets us first, or has forgotten us, or may have, is told all that is retained. A queue may not hold
        that, and nothing of QoS 0: so not before the remote is there. Others are told what they may lack.
        """
        state = self._local_session.sync_state
        if self._options.stands_by:  # the remote gets all that is retained when this bridge is the active one
            return (lambda rule: handshake.SEND_NEVER), BridgeSyncState.RETAINED_PENDING if is_open else state
        if not is_open:
            self._is_syncing_retained = self._has_sync_begun = (
                False  # other subscriptions take the place of those that brought it
            )
            handling = handshake.SEND_IF_NEW if state.has_sent_retained else handshake.SEND_NEVER
            return (lambda rule: handling), state
        if is_known_there:
            lost = self._local_session.lost_retained()
            if lost is not None and (state.has_sent_retained or (lost and not self._is_syncing_retained)):
                return self._repeat_retained(lost, now)
            if state.has_remote_session and self._has_sync_begun:
                return (lambda rule: handshake.SEND_IF_NEW), state
        self._is_syncing_retained, self._has_sync_begun = True, False
        self._local_session.begin_retained_sync(now)
        return (lambda rule: handshake.SEND_ALWAYS), BridgeSyncState.RETAINED_PENDING

    def _repeat_retained(self, lost: Set[str], now: Instant) -> tuple[Callable[[BridgeRule], int], BridgeSyncState]:
        """Tell a remote that had all that is retained what it may lack by now; as `_retained_handling`.

        *lost* are the topics of what was dropped. What a gateway acknowledged it has as long as it has our session; of
        other brokers that is not known, so they are told everything, as by Mosquitto's bridges. By a rule for both
        directions only what was dropped goes: the remote may have something newer, and tells it us.
        """
        granted = self._endpoints.capabilities
        only_lost = bool(granted.gateway_identity) or not self._options.retained_again

        def handling(rule: BridgeRule) -> int:
            repeats = rule.retain and granted.retains and not rule.is_in
            return handshake.SEND_ALWAYS if repeats else handshake.SEND_IF_NEW

        if lost or handshake.SEND_ALWAYS in map(handling, self._options.rules):
            self._is_syncing_retained, self._has_sync_begun = True, False
            self._local_session.begin_retained_sync(now, lost, only_lost)
        return handling, BridgeSyncState.RETAINED_PENDING if lost else BridgeSyncState.SYNCHRONISED

    def receive(self, chunk: bytes, is_open: bool, now: Instant) -> str:
        """Bytes of our front end; why it has ended this, if it has. *is_open*: the remote is there."""
        self._framer.feed(chunk)
        return self.process(is_open, now)

    def process(self, is_open: bool, now: Instant) -> str:
        """Read what it has said, or as much of it as one turn may take; as `told`."""
        left = BYTES_PER_TURN
        while self.is_connected and left > 0 and (frame := self._framer.next_frame()) is not None:
            first, body = frame
            if is_open and self._rules.transforms and first >> 4 == PUBLISH and first & QOS:
                left -= len(body)
            if is_open:
                if first >> 4 == PUBLISH and self._try_fast_path(first, body):
                    continue
                if len(body) == 2:
                    if first == PUBACK:
                        self._inbound.on_puback(body)
                        continue
                    if first == PUBREL:
                        self._outbound.on_pubrel(int.from_bytes(body, "big"))
                        continue
            if reason := self._on_packet(decode_packet(first, body, V5), is_open, now):
                return reason
        self.has_backlog = self.is_connected and left <= 0
        if (
            self._has_sync_begun
            and self._is_syncing_retained
            and not self.has_backlog
            and not self._local_session.is_sending_retained()
        ):
            self._is_syncing_retained = False
            self._local_session.complete_retained_sync(now)
        return ""

    def close(self) -> None:
        """Nothing more goes to our front end, or comes from it."""
        self._lose_rest()
        if self.is_connected:
            self.is_connected = False
            self._endpoints.send_local(Disconnect())
        self._endpoints.commands.append(BridgeCommand.CLOSE)

    def discard(self, chunk: bytes) -> None:
        """Bytes of our front end, which does not know yet that this is closed."""
        self._framer.feed(chunk)
        self._lose_rest()

    def _lose_rest(self) -> None:
        """Of what was not read yet QoS 0 is lost, and counted; the session has the rest."""
        while (frame := self._framer.next_frame()) is not None:
            if is_qos0_publish(frame[0]):
                self._outbound.drop_disconnected(Publish("", b""))
        self.has_backlog = False

    def _on_packet(self, packet: Packet, is_open: bool, now: Instant) -> str:
        match packet:
            case Publish() if is_open:
                self._outbound.publish(packet, now)
            case Publish():
                self._outbound.drop_disconnected(packet)
            case PubAck() | PubRec() | PubComp() if is_open:
                self._inbound.on_acknowledgement(packet)
            case PubRel() if is_open:
                self._outbound.on_pubrel(packet.packet_id)
            case SubAck():
                self._subscribed(packet, is_open)
            case UnsubAck() if not (self._subscribing or is_open):  # no rule wants anything any more
                self.close()
            case ConnAck(reason=reason) if reason >= FAILURE:
                return f"our own gateway refuses us: {reason_text(reason, packet.properties)}"
            case ConnAck():
                self.has_connack = True
            case PingResp():
                self._has_sync_begun = self._is_syncing_retained
            case Disconnect():
                return f"our own gateway said good-bye: {reason_text(packet.reason, packet.properties)}"
        return ""

    def _subscribed(self, suback: SubAck, is_open: bool) -> None:
        rule = self._subscribing.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if rule is not None and reason >= FAILURE:
            self._refusals[rule] = f"our own gateway: {reason_text(ReasonCode(reason), suback.properties)}"
        if not self._subscribing and not is_open:
            self.close()
