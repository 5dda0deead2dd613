"""Messages from our front end to the remote broker, and the acknowledgements on their way back.

The session at our front end is the sender: it assigns packet identifiers and retransmits. Handshakes pass through,
with three exceptions that end here: messages that are not forwarded, QoS 2 towards a remote that supports less, and
acknowledgements of a kind that the message does not call for. Such a one settles the message as far as its kind says,
and is counted; a remote that answers a PUBLISH of QoS 2 so gets QoS 1 from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edgebridge.bridge.counters import BridgeCounters, BridgeDropCause
from edgebridge.bridge.endpoints import Endpoints, discard_packets
from edgebridge.bridge.fast_path import RewriteCache, TopicRewrite, rewrite_key
from edgebridge.bridge.loop_detection import LoopDetector
from edgebridge.bridge.options import LocalSession
from edgebridge.bridge.rules import RuleSet
from edgebridge.wire.encode import encode_packet, encode_properties
from edgebridge.wire.packets import Ack, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Properties, Property, text_property
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.errors import TopicInvalid
from edgebroker.instants import Instant
from edgebroker.topics import parse_topic_name

if TYPE_CHECKING:
    from edgebridge.bridge.batching import BatchWriter, OutgoingBatch

QOS_2: Final = 0x04  # in the first byte of a PUBLISH
ANY_SIZE: Final = 1 << 32  # bytes: more than a packet can have
PUBACK_HEAD: Final = b"\x40\x02"
"""A PUBACK without a reason, up to its packet identifier."""
PUBREC_HEAD: Final = b"\x50\x02"
"""The same of PUBREC..."""
PUBCOMP_HEAD: Final = b"\x70\x02"
"""...and of PUBCOMP."""
PUBACK_DUE, PUBREC_DUE, PUBREL_DUE, PUBCOMP_DUE = range(1, 5)
"""What comes next in the handshake of a message that was sent: all but PUBREL, which is ours, come from the remote."""
LOWERED: Final = 0x08  # flag: our front end sent QoS 2 and the remote got QoS 1, or it is the name of a batch
HAS_PUBREC: Final = 0x10  # flag: sent at QoS 1, and answered with PUBREC: the PUBCOMP that follows settles it
WATCHED: Final = 0x20  # flag: it was the oldest when `has_stalled` looked last; gone with the next answer
STEP: Final = 0x07
_ANSWERS: Final[dict[int, type[Ack]]] = {PUBACK_DUE: PubAck, PUBREC_DUE: PubRec, PUBCOMP_DUE: PubComp}
_FAILURE_REASONS: Final = {
    BridgeDropCause.TOO_LARGE: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    BridgeDropCause.TOPIC: ReasonCode.TOPIC_NAME_INVALID,
    BridgeDropCause.UNFIT: ReasonCode.PAYLOAD_FORMAT_INVALID,
    BridgeDropCause.TOO_OLD: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}
"""What our front end hears of messages that are lost; of others, that all is well."""


class OutboundFlow:
    """One connection to the remote after the other; what is open is told again by the session."""

    def __init__(
        self, ends: Endpoints, rules: RuleSet, guard: LoopDetector, tally: BridgeCounters, memory: LocalSession
    ) -> None:
        self._endpoints = ends
        self._rules = rules
        self._loop_detector = guard
        self._counters = tally
        self._finished_here: set[int] = set()  # QoS 2 that is finished here: PUBREL does not go on
        self.unacknowledged: dict[int, int] = {}
        """Packet identifiers that the remote has not settled yet, in the order of sending: the next step, and flags."""
        self.qos_max = 2
        """What the remote can, as far as its acknowledgements say; its CONNACK may say less."""
        self._rewrites = RewriteCache(True, False)
        self._packet_bytes_max = ANY_SIZE
        self._local_session = memory
        self._batches = _batches(rules, memory)
        self._batch_members: dict[int, list[int]] = {}  # what the remote is to answer for a batch -> all that then is

    def begin_connection(self) -> None:
        """Another connection begins at both ends."""
        self._rewrites = RewriteCache(True, self._endpoints.capabilities.dialect.has_properties)
        self._packet_bytes_max = self._endpoints.capabilities.packet_bytes_max or ANY_SIZE
        self._finished_here.clear()
        self.unacknowledged.clear()
        self._batch_members.clear()
        self.close()
        if self._batches is not None:
            self._batches.begin(self._endpoints.capabilities.packet_bytes_max)

    def drop_unwritten(self) -> None:
        """Another connection begins: what the last one did not take any more is lost, at QoS 0."""
        if lost := discard_packets(self._endpoints.remote):
            self._counters.dropped[BridgeDropCause.ABSENT] += lost

    def close(self) -> Sequence[int]:
        """The connection is over; packet identifiers of messages that were gathered, and never went there."""
        gathered = () if self._batches is None else self._batches.close()
        if lost := sum(not one.qos for one in gathered):
            self._counters.dropped[BridgeDropCause.ABSENT] += lost
        return [one.packet_id for one in gathered if one.qos and not one.dup]

    @property
    def batched_bytes(self) -> int:
        """Of batches that are not sent yet."""
        return 0 if self._batches is None else self._batches.bytes

    def due(self) -> Instant | None:
        """When to call `fire`."""
        return None if self._batches is None else self._batches.due()

    def fire(self, now: Instant) -> None:
        """Send what has waited for long enough."""
        if self._batches is not None:
            self._batches.fire(now)
            self._send_batches(self._batches.take_finished(), now)

    def try_fast_path(self, first: int, body: bytes) -> bool:
        """Whether a PUBLISH of ours could go the short way."""
        parts = self._rewrites.read(first, body)
        way = None if parts is None else self._rewrites.find(parts.key)
        if parts is None or way is None:
            return False
        data = self._rewrites.write(first, parts, way)
        octets = len(data)
        if octets > self._packet_bytes_max:
            return False
        self._endpoints.remote.append(data)
        cell = way.counter  # what `Tally.carried` does, without the 60 ns of the call
        cell.messages += 1
        cell.bytes += octets
        self._counters.by_rule[way.rule] += 1
        if parts.packet_id:
            self.unacknowledged[int.from_bytes(parts.packet_id, "big")] = PUBREC_DUE if first & QOS_2 else PUBACK_DUE
        return True

    def on_puback(self, body: bytes) -> None:
        """PUBACK of the remote, without a reason: the most frequent answer of all."""
        packet_id = int.from_bytes(body, "big")
        if self.unacknowledged.get(packet_id) == PUBACK_DUE:
            del self.unacknowledged[packet_id]
            self._endpoints.local.append(PUBACK_HEAD + body)
        else:
            self.on_acknowledgement(PubAck(packet_id))

    def on_pubrec(self, body: bytes) -> None:
        """PUBREC of the remote, without a reason."""
        packet_id = int.from_bytes(body, "big")
        if self.unacknowledged.get(packet_id) == PUBREC_DUE:
            self.unacknowledged[packet_id] = PUBREL_DUE
            self._endpoints.local.append(PUBREC_HEAD + body)
        else:
            self.on_acknowledgement(PubRec(packet_id))

    def on_pubcomp(self, body: bytes) -> None:
        """PUBCOMP of the remote, without a reason."""
        packet_id = int.from_bytes(body, "big")
        if self.unacknowledged.get(packet_id) == PUBCOMP_DUE:
            del self.unacknowledged[packet_id]
            self._endpoints.local.append(PUBCOMP_HEAD + body)
        else:
            self.on_acknowledgement(PubComp(packet_id))

    def has_stalled(self) -> bool:
        """Whether the message that waits longest for the remote was the same one when this was asked last."""
        for packet_id, step in self.unacknowledged.items():
            if step & STEP != PUBREL_DUE:
                self.unacknowledged[packet_id] |= WATCHED
                return bool(step & WATCHED)
        return False

    def drop_disconnected(self, publish: Publish) -> None:
        """A message of ours, while the remote is away: of QoS 1 and 2 nothing is lost, the session sends them again."""
        if not publish.qos:
            self._counters.dropped[BridgeDropCause.ABSENT] += 1

    def drop_expired(self, publish: Publish) -> None:
        """A message of ours that waited for longer than it was to live."""
        self._finish(publish, BridgeDropCause.EXPIRED)

    def drop_aged(self, publish: Publish) -> None:
        """A message of ours that waited for longer than any may."""
        self._finish(publish, BridgeDropCause.TOO_OLD)

    def publish(self, publish: Publish, now: Instant) -> None:
        """A message of ours."""
        found = self._rules.match_outbound(publish)
        if found is None:
            is_withheld = self._rules.withholds(publish)
            self._finish(publish, BridgeDropCause.FILTERED if is_withheld else BridgeDropCause.NO_RULE)
            return
        rule, number = found
        try:
            topic = parse_topic_name(rule.to_remote_topic(publish.topic))
        except TopicInvalid:
            self._finish(publish, BridgeDropCause.TOPIC)
            return
        granted = self._endpoints.capabilities
        cell = self._rewrites.counter(self._counters.by_prefix, publish.topic)
        if rule.shape is not None:
            transform = self._rules.transforms.get(number)
            if transform is not None and (why := transform.try_apply(publish, self._counters)):
                self._endpoints.warn(
                    BridgeDropCause.UNFIT, f"a message of ours is lost and counted as {BridgeDropCause.UNFIT}: {why}"
                )
                self._finish(publish, BridgeDropCause.UNFIT)
                return
            if self._add_to_batch(publish, number, topic, now):
                return
        properties: Properties = {}
        if granted.dialect.has_properties:
            properties = publish.properties
            properties.pop(Property.SUBSCRIPTION_IDENTIFIER, None)
            if answer := text_property(properties, Property.RESPONSE_TOPIC):
                properties[Property.RESPONSE_TOPIC] = self._rules.remote_response_topic(answer)
        qos = self._qos(publish.qos)
        retains = rule.retain and granted.retains
        key = None
        if rule.shape is None and not self._rules.local_needs_identifiers and self._qos(2) == 2:
            key = rewrite_key(publish.topic, publish.properties)
        retain = publish.retain and retains
        on = Publish(topic, publish.payload, qos, retain, publish.dup and qos > 0, publish.packet_id, properties)
        if not self._loop_detector.admit_outbound(on, publish.properties, now):
            self._finish(publish, BridgeDropCause.LOOP)
            return
        if key is not None and not self._loop_detector.awaits_echo_of(topic):
            added = encode_properties(on.properties) if granted.dialect.has_properties else b""
            self._rewrites.remember(key, TopicRewrite(topic.encode(), number, retains, added, cell))
        data = encode_packet(on, granted.dialect)
        if granted.packet_bytes_max and len(data) > granted.packet_bytes_max:
            self._finish(publish, BridgeDropCause.TOO_LARGE)
            return
        self._endpoints.remote.append(data)
        self._counters.count_forwarded(number, len(data), cell)
        if qos == 2:
            self.unacknowledged[publish.packet_id] = PUBREC_DUE
        elif qos:
            self.unacknowledged[publish.packet_id] = PUBACK_DUE | (LOWERED if publish.qos > qos else 0)
        elif publish.qos:  # it knows QoS 0 alone: with the bytes it has the message, as far as anybody will ever know
            self._answer(publish, ReasonCode.SUCCESS)

    def _add_to_batch(self, publish: Publish, number: int, topic: str, now: Instant) -> bool:
        """Whether it goes on together with others, now or later."""
        batches = self._batches
        if batches is None or number not in batches:
            return False
        is_gathered = batches.add(number, publish, topic, now)
        if batches.held >= self._local_session.window():
            batches.end_all()
        self._send_batches(batches.take_finished(), now)
        return is_gathered

    def _send_batches(self, ended: Sequence[OutgoingBatch], now: Instant) -> None:
        granted = self._endpoints.capabilities
        for one in ended:
            ids = [message.packet_id for message in one.messages if message.qos]
            qos = self._qos(min(1, len(ids)))
            is_dup = qos > 0 and any(message.dup for message in one.messages)
            said: Properties = {Property.CONTENT_TYPE: one.content_type} if granted.dialect.has_properties else {}
            on = Publish(one.topic, one.payload, qos, False, is_dup, ids[0] if qos else 0, said)
            self._loop_detector.admit_outbound(on, {}, now)
            data = encode_packet(on, granted.dialect)
            if granted.packet_bytes_max and len(data) > granted.packet_bytes_max:
                for message in one.messages:
                    self._finish(message, BridgeDropCause.TOO_LARGE)
                continue
            self._endpoints.remote.append(data)
            octets = len(data)
            for message in one.messages:  # the bytes of all are those of the first
                self._counters.count_forwarded(
                    one.number, octets, self._rewrites.counter(self._counters.by_prefix, message.topic)
                )
                octets = 0
            if qos:
                self.unacknowledged[ids[0]] = PUBACK_DUE | LOWERED
                self._batch_members[ids[0]] = ids
            else:
                for packet_id in ids:
                    self._endpoints.send_local(PubAck(packet_id))

    def _qos(self, qos: int) -> int:
        """What a message of *qos* gets on its way to the remote."""
        return min(qos, self.qos_max, self._endpoints.capabilities.maximum_qos)

    def on_pubrel(self, packet_id: int) -> None:
        """PUBREL of our front end, with whatever reason: it will not send the message again."""
        if packet_id in self._finished_here or (packet_id not in self.unacknowledged and self._qos(2) < 2):
            self._finished_here.discard(packet_id)
            self._endpoints.send_local(PubComp(packet_id))
        else:
            self.unacknowledged[packet_id] = PUBCOMP_DUE
            # 0x92 of ours would be about an identifier that the remote brought up: it is its affair.
            self._endpoints.send_remote(PubRel(packet_id))

    def on_acknowledgement(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP of the remote."""
        step = self.unacknowledged.get(ack.packet_id, 0) & ~WATCHED
        due = PUBCOMP_DUE if step & HAS_PUBREC else step & STEP
        if not isinstance(ack, _ANSWERS.get(due, ())) and not self._is_repeated(ack, due):
            self._note_wrong(ack, due, step)
        if due:
            self._advance(ack, step)
        elif isinstance(ack, PubRec) and ack.reason < FAILURE:  # it keeps the identifier until PUBREL [MQTT-4.3.3-8]
            self._endpoints.send_remote(PubRel(ack.packet_id))

    @staticmethod
    def _is_repeated(ack: Ack, due: int) -> bool:
        """Whether *ack* is a PUBREC that came before, or the PUBCOMP for a PUBREL that nobody here asked for."""
        return due != PUBACK_DUE if isinstance(ack, PubRec) else isinstance(ack, PubComp) and not due

    def _note_wrong(self, ack: Ack, due: int, step: int) -> None:
        """Count an acknowledgement of the wrong kind, and send the next messages with the QoS that the remote can."""
        was_qos_1 = due == PUBACK_DUE or step & HAS_PUBREC
        what = f"{type(ack).__name__.upper()} to {f'QoS {1 if was_qos_1 else 2}' if due else 'no message'}"
        self._counters.wrong_acknowledgements[what] += 1
        text = f"the remote answers {what}, which is not how that QoS is acknowledged"
        if due and not was_qos_1:
            self.qos_max = 1
            self._rewrites.forget()
            text += "; messages of QoS 2 go to it at QoS 1 from now on, and may come twice after a broken connection"
        self._endpoints.warn(what, text, "bridge-answers")

    def _advance(self, ack: Ack, step: int) -> None:
        """Go on in the handshake of a message as far as *ack* says, whatever its kind is."""
        packet_id, reason, due = ack.packet_id, ack.reason, step & STEP
        has_failed = reason >= FAILURE and not isinstance(ack, PubComp)
        if isinstance(ack, PubRec) and not has_failed:
            if due == PUBREC_DUE:
                self.unacknowledged[packet_id] = PUBREL_DUE
                self._endpoints.send_local(PubRec(packet_id))
            elif due != PUBREL_DUE:
                self.unacknowledged[packet_id] = step | HAS_PUBREC if due == PUBACK_DUE else step
                self._endpoints.send_remote(PubRel(packet_id))
            return
        del self.unacknowledged[packet_id]
        together = self._batch_members.pop(packet_id, ())
        if has_failed:
            self._counters.refused[reason.name.lower()] += len(together) or 1
            self._counters.dropped[BridgeDropCause.REFUSED] += len(together) or 1
        if due == PUBCOMP_DUE:
            self._endpoints.send_local(PubComp(packet_id))
        elif due == PUBREL_DUE:  # it is finished there, and our front end has not said PUBREL yet
            self._finished_here.add(packet_id)
        elif together:
            for one in together:
                self._endpoints.send_local(PubAck(one, reason))
        elif due == PUBREC_DUE or step & LOWERED:
            if not has_failed:
                self._finished_here.add(packet_id)
            self._endpoints.send_local(PubRec(packet_id, reason if has_failed else ReasonCode.SUCCESS))
        else:
            self._endpoints.send_local(
                PubAck(packet_id, reason if isinstance(ack, PubAck) or has_failed else ReasonCode.SUCCESS)
            )

    def _finish(self, publish: Publish, cause: BridgeDropCause) -> None:
        """*publish* does not go on: our front end is done with it."""
        self._counters.dropped[cause] += 1
        self._answer(publish, _FAILURE_REASONS.get(cause, ReasonCode.SUCCESS))

    def _answer(self, publish: Publish, reason: ReasonCode) -> None:
        if publish.qos == 1:
            self._endpoints.send_local(PubAck(publish.packet_id, reason))
        elif publish.qos == 2:
            if publish.dup:  # it may have begun there, by other rules than now: PUBREL goes on and frees the identifier
                reason = ReasonCode.SUCCESS
            elif reason < FAILURE:
                self._finished_here.add(publish.packet_id)
            self._endpoints.send_local(PubRec(publish.packet_id, reason))


def _batches(rules: RuleSet, memory: LocalSession) -> BatchWriter | None:
    gathering = [(n, rule) for n, rule in enumerate(rules.all) if rule.shape is not None and rule.shape.batch_messages]
    if not gathering:
        return None
    from edgebridge.bridge.batching import BatchWriter  # 1.5 MiB, for who has batches

    return BatchWriter(gathering, memory.unix_us)
