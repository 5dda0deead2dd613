"""The end towards our own front end: opened with its subscriptions, read, and closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.session.acquaintance import DOUBTED, NEVER, NOT_MET, NOT_TOLD
from edgebridge.upstream import greeting
from edgebridge.upstream.ends import Ends, is_qos_0, thrown_away
from edgebridge.upstream.inward import Inward
from edgebridge.upstream.outward import Outward
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.state import Order
from edgebridge.upstream.terms import U16_MAX, Memory, Terms
from edgebridge.upstream.words import in_words
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
AT_ONCE: Final = 16 * KIB
"""Bytes of messages of QoS 1 and 2 in one turn where rules change payloads, 0.1 to 0.2 us each: a window of 128
large ones would hold up everybody for 200 ms. QoS 0 does not wait: nobody keeps it."""
RESTS_MAX: Final = 1 * MIB
"""What waits for another turn before our front end is to say nothing more."""


class LocalEnd:
    """One connection to our own front end after the other. It may be there without the remote, to subscribe."""

    def __init__(
        self,
        terms: Terms,
        memory: Memory,
        ends: Ends,
        rules: Rules,
        outward: Outward,
        inward: Inward,
        refusals: dict[int, str],
    ) -> None:
        """*refusals*: of subscriptions, by the number of their rule: by whom, and why."""
        self.is_there = False
        """Whether there is one."""
        self.is_greeted = False
        """Whether our front end has said CONNACK: what it was told of the session is on disk then."""
        self.sent_again = 0
        """QoS 2 messages that were sent again because the remote lost its session: it may have them twice."""
        self._terms = terms
        self._memory = memory
        self._ends = ends
        self._rules = rules
        self._outward = outward
        self._inward = inward
        self._refusals = refusals
        self.express: Callable[[int, bytes], bool] = outward.express
        """Takes a PUBLISH of our front end, if it can; else it is decoded."""
        self._framer = Framer(PACKET_BYTES_MAX)
        self._asked: dict[int, int] = {}  # packet identifier of a SUBSCRIBE -> rule
        self._tells = False  # the remote is being told all that is retained
        self._has_begun = False  # what is retained is on its way, all of it
        self.rests = False
        """Whether what our front end has said waits for `go_on`, in another turn."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits that our front end is to say nothing more for now."""
        return self.rests and self._framer.unread > RESTS_MAX

    def needs_priming(self) -> bool:
        """Whether the session at our front end is to be given its subscriptions before the remote is there."""
        wanted = {wanted.text for wanted in self._rules.out}
        subscribed = set(self._memory.subscribed()) if self._memory.is_known() else set()
        return wanted != subscribed

    def open(self, is_open: bool, now: Instant) -> None:
        """It is there. *is_open*: the remote is as well."""
        self._framer, self.rests = Framer(PACKET_BYTES_MAX), False
        self._inward.lost(thrown_away(self._ends.local))
        self.is_there, self.is_greeted = True, False
        granted = self._ends.granted
        known = self._memory.is_known()
        subscribed = self._memory.subscribed() if known else ()
        if is_open and known and not granted.session_present:
            self.sent_again += self._memory.send_again(now)
        handling, ends = self._telling(is_open, granted.session_present and not granted.is_in_doubt, now)
        self._ends.tell_local(greeting.connect_local(self._terms, granted, is_open, ends))
        received = frozenset(self._memory.received())
        if is_open and known and not granted.session_present:
            self._inward.forget(sorted(received))
        elif is_open:
            self._inward.go_on(sorted(received))
        self._asked.clear()
        ids = (packet_id for packet_id in range(U16_MAX, 0, -1) if packet_id not in received)
        for wanted, subscribe in greeting.subscribe_local(self._rules, handling, ids):
            self._asked[subscribe.packet_id] = wanted.number
            self._ends.tell_local(subscribe)
        if (unsubscribe := greeting.unsubscribe_local(self._rules, subscribed, ids)) is not None:
            self._ends.tell_local(unsubscribe)
        if self._tells:
            self._ends.local.append(PING_REQ)  # answered when all subscriptions are, and what they bring is known

    def _telling(self, is_open: bool, is_known_there: bool, now: Instant) -> tuple[int, int]:
        """The retain handling of what is subscribed to, and the end of our session.

        Who meets us first, or has forgotten us, or may have, is told all that is retained. A queue may not hold
        that, and nothing of QoS 0: so not before the remote is there.
        """
        has_met, has_told = self._memory.has_met(), self._memory.has_told()
        if not is_open:
            self._tells = self._has_begun = False  # other subscriptions take the place of those that brought it
            if has_told:
                return greeting.SEND_IF_NEW, DOUBTED if self._memory.is_in_doubt() else NEVER
            return greeting.SEND_NEVER, NOT_TOLD if has_met else NOT_MET
        if has_met and is_known_there and (has_told or self._has_begun):
            return greeting.SEND_IF_NEW, NEVER if has_told else NOT_TOLD
        self._tells, self._has_begun = True, False
        self._memory.tell_all(now)
        return greeting.SEND_ALWAYS, NOT_TOLD

    def told(self, chunk: bytes, is_open: bool, now: Instant) -> str:
        """Bytes of our front end; why it has ended this, if it has. *is_open*: the remote is there."""
        self._framer.feed(chunk)
        return self.go_on(is_open, now)

    def go_on(self, is_open: bool, now: Instant) -> str:
        """Read what it has said, or as much of it as one turn may take; as `told`."""
        left = AT_ONCE
        while self.is_there and left > 0 and (frame := self._framer.next_frame()) is not None:
            first, body = frame
            if is_open and self._rules.transforms and first >> 4 == PUBLISH and first & QOS:
                left -= len(body)
            if is_open:
                if first >> 4 == PUBLISH and self.express(first, body):
                    continue
                if len(body) == 2:
                    if first == PUBACK:
                        self._inward.acknowledged(body)
                        continue
                    if first == PUBREL:
                        self._outward.released(int.from_bytes(body, "big"))
                        continue
            if reason := self._on_packet(decode_packet(first, body, V5), is_open, now):
                return reason
        self.rests = self.is_there and left <= 0
        if self._has_begun and self._tells and not self.rests and not self._memory.is_telling():
            self._tells = False
            self._memory.told(now)
        return ""

    def close(self) -> None:
        """Nothing more goes to our front end, or comes from it."""
        self._lose_rest()
        if self.is_there:
            self.is_there = False
            self._ends.tell_local(Disconnect())
        self._ends.orders.append(Order.CLOSE)

    def missed(self, chunk: bytes) -> None:
        """Bytes of our front end, which does not know yet that this is closed."""
        self._framer.feed(chunk)
        self._lose_rest()

    def _lose_rest(self) -> None:
        """Of what was not read yet QoS 0 is lost, and counted; the session has the rest."""
        while (frame := self._framer.next_frame()) is not None:
            if is_qos_0(frame[0]):
                self._outward.absent(Publish("", b""))
        self.rests = False

    def _on_packet(self, packet: Packet, is_open: bool, now: Instant) -> str:
        match packet:
            case Publish() if is_open:
                self._outward.publish(packet, now)
            case Publish():
                self._outward.absent(packet)
            case PubAck() | PubRec() | PubComp() if is_open:
                self._inward.answered(packet)
            case PubRel() if is_open:
                self._outward.released(packet.packet_id)
            case SubAck():
                self._subscribed(packet, is_open)
            case UnsubAck() if not (self._asked or is_open):  # no rule wants anything any more
                self.close()
            case ConnAck(reason=reason) if reason >= FAILURE:
                return f"our own gateway refuses us: {in_words(reason, packet.properties)}"
            case ConnAck():
                self.is_greeted = True
            case PingResp():
                self._has_begun = self._tells
            case Disconnect():
                return f"our own gateway said good-bye: {in_words(packet.reason, packet.properties)}"
        return ""

    def _subscribed(self, suback: SubAck, is_open: bool) -> None:
        rule = self._asked.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if rule is not None and reason >= FAILURE:
            self._refusals[rule] = f"our own gateway: {in_words(ReasonCode(reason), suback.properties)}"
        if not self._asked and not is_open:
            self.close()
