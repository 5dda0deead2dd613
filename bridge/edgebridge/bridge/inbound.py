"""Messages from the remote broker to our front end, and the acknowledgements on their way back.

The remote's session is the sender. It receives PUBACK or PUBREC only after our front end sent it, which is when the
message is on disk. Messages that are not forwarded are acknowledged here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Final

from edgebridge.bridge.counters import BridgeCounters, BridgeDropCause, ByteCounter
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.fast_path import RETAIN, RewriteCache, TopicRewrite, rewrite_key
from edgebridge.bridge.loop_detection import LoopDetector
from edgebridge.bridge.options import U16_MAX, BridgeOptions, LocalSession
from edgebridge.bridge.outbound import PUBACK_HEAD
from edgebridge.bridge.rules import ConditionCache, RuleMatch, RuleSet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet, encode_properties
from edgebridge.wire.packets import Ack, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Property, has_disallowed_text, subscription_identifiers, text_property
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import MIB
from edgebroker.topics import has_disallowed, parse_topic_name

if TYPE_CHECKING:
    from edgebridge.bridge.batching import BatchReader

DROP_REPLIES: Final = {
    BridgeDropCause.TOO_LARGE: (
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        "is larger than this gateway takes; with a larger limits.packet_bytes_max the next ones come",
    ),
    BridgeDropCause.TOPIC: (
        ReasonCode.TOPIC_NAME_INVALID,
        "would have a topic here that cannot be; see the prefixes of the rules",
    ),
    BridgeDropCause.INVALID: (ReasonCode.UNSPECIFIED_ERROR, "breaks the protocol"),
    BridgeDropCause.UNFIT: (ReasonCode.PAYLOAD_FORMAT_INVALID, "cannot be transformed as its rule wants"),
}
"""Messages that no attempt would bring in, and what the remote hears of them: they are acknowledged in any case, for it
would send them again after every reconnection. Of others that do not go on it hears that all is well."""
WAITING_BYTES_MAX: Final = 16 * MIB
"""Of packets that wait for room in our window: version 3.1.1 cannot tell the remote how much that is."""
OUTGOING_KEPT: Final[Duration] = 60 * SECOND
"""So long what waits for the remote when a connection begins goes before what the remote tells of the same topics."""
QOS: Final = 0x06  # in the first byte
QOS_2: Final = 0x04
HEAD_BYTES: Final = 2
"""Of a packet, beside its body: more of large ones."""
_PERMANENT_REFUSALS: Final = frozenset(
    {
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    }
)
"""Refusals of our front end that another attempt would not change. With any other it has no room at the moment."""


class InboundFlow:
    """One connection to the remote after the other; what is open is told again by the remote's session."""

    def __init__(
        self,
        ends: Endpoints,
        rules: RuleSet,
        guard: LoopDetector,
        tally: BridgeCounters,
        terms: BridgeOptions,
        memory: LocalSession,
    ) -> None:
        self._endpoints = ends
        self._rules = rules
        self._loop_detector = guard
        self._counters = tally
        self._window = terms.receive_maximum  # so many our front end takes before it must have answered
        self._packet_bytes_max = terms.packet_bytes_max
        self._retains = terms.retains
        self._local_session = memory
        self._is_tight = False  # our front end had no room for something: what is retained is looked at one by one
        self._finished_here: set[int] = set()  # QoS 2 that is finished here
        self._open: set[int] = set()
        self._releasing: set[int] = set()
        self._earlier: set[int] = set()  # QoS 2 that an earlier connection brought, and that is not released yet
        # Of a remote whose window is larger than ours: (message, whether it is a batch, bytes of its packet).
        self._waiting: deque[tuple[Publish, bool, int]] = deque()
        self._waiting_bytes = 0
        self._batch_reader = self._for_batches(terms)
        self._conditions = ConditionCache()
        # Topics here of retained messages that wait for the remote: what it retained before them is not retained here.
        self._outgoing: Set[str] = frozenset()
        self._outgoing_until: Instant = 0
        self._rewrites = RewriteCache(False, True)
        self.packet_bytes = 0
        """Of the packet that is read at the moment."""
        self.full_reason = ""
        """Why our front end takes nothing more at the moment; then this connection is to end, and to come back."""

    def begin_connection(self) -> None:
        """Another connection begins at both ends."""
        self._rewrites = RewriteCache(self._endpoints.capabilities.dialect.has_properties, True)
        for known in (self._finished_here, self._open, self._releasing, self._earlier):
            known.clear()
        self.full_reason = ""

    def close(self, unread: int) -> None:
        """The connection is over, and its QoS 0 messages that were not published are lost; *unread* are not decoded."""
        self.count_lost(unread + sum(not one.qos for one, _, _ in self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._batch_reader is not None:
            self._batch_reader.restart()

    def count_lost(self, messages: int) -> None:
        """So many of QoS 0 never reached our front end."""
        if messages:
            self._counters.dropped[BridgeDropCause.ABSENT] += messages

    def resume(self, packet_ids: Sequence[int]) -> None:
        """Our front end has the messages that earlier connections brought under *packet_ids*, and waits for PUBREL."""
        self._earlier.update(packet_ids)

    def forget(self, packet_ids: Sequence[int]) -> None:
        """The remote begins anew, and with it its packet identifiers: what came by the old ones is finished here.

        Without this its next messages would be taken for those, which came already.
        """
        self._releasing.update(packet_ids)
        for packet_id in packet_ids:
            self._endpoints.send_local(PubRel(packet_id))

    def try_fast_path(self, first: int, body: bytes) -> bool:
        """Whether a PUBLISH of theirs could go the short way."""
        self.packet_bytes = len(body) + HEAD_BYTES
        if self._earlier and first & QOS == QOS_2:
            return False
        is_short = not (
            self._waiting or self._loop_detector.awaits_echoes or (self._batch_reader and self._batch_reader.is_busy)
        )
        parts = self._rewrites.read(first, body) if is_short else None
        way = None if parts is None else self._rewrites.find(parts.key)
        if parts is None or way is None or ((self._is_tight or self._outgoing) and first & RETAIN):
            return False
        data = self._rewrites.write(first, parts, way)
        if len(data) > self._packet_bytes_max:
            return False
        if parts.packet_id:
            if len(self._open) >= self._window:
                return False
            self._open.add(int.from_bytes(parts.packet_id, "big"))
        self._endpoints.local.append(data)
        cell = way.counter  # what `Tally.carried` does, without the 60 ns of the call
        cell.messages += 1
        cell.bytes += self.packet_bytes
        self._counters.by_rule[way.rule] += 1
        return True

    def on_puback(self, body: bytes) -> None:
        """PUBACK of our front end, without a reason: the most frequent answer of all."""
        packet_id = int.from_bytes(body, "big")
        self._open.discard(packet_id)
        if self._batch_reader is not None and packet_id in self._batch_reader.open:
            self._answer_batch(packet_id)
            return
        self._endpoints.remote.append(PUBACK_HEAD + body)
        if self._waiting:
            self._go_on()

    def publish(self, publish: Publish, now: Instant) -> None:
        """A message of theirs."""
        if publish.qos == 2 and not publish.dup and publish.packet_id in self._earlier:
            # What is repeated says so [MQTT-3.3.1-1]: this is another one, of another session or another remote.
            self._earlier.discard(publish.packet_id)
            self.forget((publish.packet_id,))
        publish.properties.pop(Property.TOPIC_ALIAS, None)
        if not publish.topic:
            self._finish(publish, BridgeDropCause.INVALID, "a topic alias, and none was announced")
            return
        if has_disallowed(publish.topic) or has_disallowed_text(publish.properties):
            self._finish(
                publish, BridgeDropCause.INVALID, f"control characters or non-characters, under {publish.topic!a}"
            )
            return
        candidates = self._rules.match_inbound(publish.topic)
        heard = next(
            (one for one in candidates if not one.rule.where or self._conditions.holds(one.rule.where, publish)), None
        )
        if heard is None:
            self._finish(publish, BridgeDropCause.FILTERED if candidates else BridgeDropCause.NO_RULE)
        elif self._rules.is_duplicate(heard, subscription_identifiers(publish.properties)):
            self._finish(publish, BridgeDropCause.OVERLAP)
        else:
            is_tested = any(one.rule.where for one in candidates)
            key = None if is_tested else rewrite_key(publish.topic, publish.properties)
            if not self._loop_detector.admit_inbound(publish, now):
                self._finish(publish, BridgeDropCause.LOOP)
            elif not heard.rule.reads_batches:
                self._carry(publish, heard, key, now)
            elif not self._waits(publish, True):
                self._begin_batch(publish)
                self._go_on()

    def skip(self, first: int, body: bytes, cause: BridgeDropCause, what: str) -> bool:
        """A PUBLISH of theirs cannot be taken, whatever is tried; False: it does not even say which one it is.

        *body* may be no more than its beginning, *what* says more about the cause.
        """
        qos, at = first >> 1 & 3, 2 + int.from_bytes(body[:2], "big")
        packet_id = int.from_bytes(body[at : at + 2], "big") if qos else 0
        if qos == 3 or len(body) < at + 2 * (qos > 0) or (qos and not packet_id):
            return False
        self._finish(Publish("", b"", qos, packet_id=packet_id), cause, what)
        return True

    def on_pubrel(self, packet_id: int) -> None:
        """PUBREL of the remote, with whatever reason: it will not send the message again."""
        is_earlier = packet_id in self._earlier
        self._earlier.discard(packet_id)
        if packet_id in self._finished_here:
            self._finished_here.discard(packet_id)
            if is_earlier:  # by other rules than now: it came in, and now it is finished
                self.forget((packet_id,))
            self._endpoints.send_remote(PubComp(packet_id))
        else:
            self._endpoints.send_local(PubRel(packet_id))

    def on_acknowledgement(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP of our front end."""
        packet_id, reason = ack.packet_id, ack.reason
        if isinstance(ack, PubComp) and packet_id in self._releasing:
            self._releasing.discard(packet_id)
            return
        is_reading = self._batch_reader is not None and packet_id in self._batch_reader.open
        if isinstance(ack, PubComp):
            self._open.discard(packet_id)
            self._endpoints.send_remote(PubComp(packet_id))
        elif reason < FAILURE:
            if isinstance(ack, PubAck):
                self._open.discard(packet_id)
            if is_reading:
                self._answer_batch(packet_id)
            else:
                self._endpoints.send_remote(type(ack)(packet_id))
        elif reason in _PERMANENT_REFUSALS:
            self._open.discard(packet_id)
            self._counters.refused[reason.name.lower()] += 1
            self._counters.dropped[BridgeDropCause.REFUSED] += 1
            why = text_property(ack.properties, Property.REASON_STRING, reason.name.lower().replace("_", " "))
            self._endpoints.warn(
                BridgeDropCause.REFUSED, f"our own gateway does not take a message of the remote, which is lost: {why}"
            )
            if is_reading:
                self._answer_batch(packet_id)
            else:
                self._settle(type(ack)(packet_id, reason))
        else:  # not acknowledged, so the remote keeps it
            self._is_tight = True
            self.full_reason = text_property(
                ack.properties, Property.REASON_STRING, reason.name.lower().replace("_", " ")
            )
        self._go_on()

    def keep_outgoing(self, topics: Set[str], now: Instant) -> None:
        """Let what is retained here under *topics* stay, until the remote has it: it is newer than what comes."""
        self._outgoing, self._outgoing_until = topics, now + OUTGOING_KEPT

    def _is_outgoing(self, topic: str, now: Instant) -> bool:
        """Whether the remote is about to get what is retained here under *topic*."""
        if self._outgoing and (now >= self._outgoing_until or not self._local_session.has_outstanding()):
            self._outgoing = frozenset()
        return topic in self._outgoing

    def _carry(self, publish: Publish, heard: RuleMatch, key: bytes | None, now: Instant) -> None:
        """Hand it on. *key*: of the messages that may go the short way from now on, as this one may."""
        try:
            topic = parse_topic_name(heard.rule.to_local_topic(publish.topic))
        except TopicInvalid:
            self._finish(publish, BridgeDropCause.TOPIC, publish.topic)
            return
        transform = self._rules.transforms.get(heard.number)
        if transform is not None and (why := transform.try_apply(publish, self._counters)):
            self._finish(publish, BridgeDropCause.UNFIT, why)
            return
        retains = heard.rule.retain and self._retains
        cell = self._rewrites.counter(self._counters.by_prefix, topic)
        if key is not None and heard.rule.shape is None:
            way = TopicRewrite(topic.encode(), heard.number, retains, encode_properties(publish.properties), cell)
            self._rewrites.remember(key, way)
        properties = publish.properties
        properties.pop(Property.SUBSCRIPTION_IDENTIFIER, None)
        if answer := text_property(properties, Property.RESPONSE_TOPIC):
            properties[Property.RESPONSE_TOPIC] = self._rules.local_response_topic(answer)
        retain = publish.retain and retains and not self._is_outgoing(topic, now) and self._has_room(topic, publish)
        on = Publish(topic, publish.payload, publish.qos, retain, publish.dup, publish.packet_id, properties)
        data = encode_packet(on, V5)
        if len(data) > self._packet_bytes_max:  # its prefix and its origin came to it
            self._finish(publish, BridgeDropCause.TOO_LARGE, f"{len(data):,} bytes under {topic}")
            return
        self._counters.count_forwarded(heard.number, self.packet_bytes, cell)
        if not self._waits(on, False):
            self._hand_in(on, data)

    def _has_room(self, topic: str, publish: Publish) -> bool:
        """Whether *publish* could be retained. If not, better that it comes as others do than not at all, again and
        again: as long as it is refused nothing behind it comes either.
        """
        if not publish.payload or self._local_session.can_retain(topic, len(publish.payload) + len(topic)):
            return True
        self._is_tight = True
        self._endpoints.warn(
            "not retained",
            f"there is no room for another retained message, so {topic} comes in without being retained, and others "
            "may; limits.retained_messages_max says how many there are to be",
        )
        return False

    def _for_batches(self, terms: BridgeOptions) -> BatchReader | None:
        if not any(rule.reads_batches for rule in terms.rules):
            return None
        from edgebridge.bridge.batching import BatchReader  # 1.5 MiB, for who has batches

        return BatchReader(self._endpoints, self._rules, self._counters, terms.packet_bytes_max, self._counter)

    def _counter(self, topic: str) -> ByteCounter:
        return self._rewrites.counter(self._counters.by_prefix, topic)

    def _begin_batch(self, batch: Publish) -> None:
        """Hand in what is in *batch*, as far as there is room for it, from now on."""
        assert self._batch_reader is not None
        try:
            self._batch_reader.begin(batch)
        except ValueError as error:
            self._finish(batch, BridgeDropCause.UNFIT, f"{error}, under {batch.topic}")

    def _answer_batch(self, packet_id: int) -> None:
        """Our front end has, or does not want, one of the messages of a batch."""
        assert self._batch_reader is not None
        self._batch_reader.open.discard(packet_id)
        self._go_on()

    def _waits(self, publish: Publish, is_batch: bool) -> bool:
        """Whether there is no room for it, or others come first; then it waits from now on."""
        is_before = self._batch_reader is not None and self._batch_reader.must_precede(publish, is_batch)
        may_wait = publish.qos or is_batch
        if not may_wait or not (len(self._open) >= self._window or self._waiting or is_before):
            return False
        self._waiting.append((publish, is_batch, self.packet_bytes))
        self._waiting_bytes += self.packet_bytes
        if len(self._waiting) > U16_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self.full_reason = "the remote sends more than it may before it is answered"
        return True

    def _hand_in(self, publish: Publish, data: bytes) -> None:
        if publish.qos:
            self._open.add(publish.packet_id)
        self._endpoints.local.append(data)

    def _go_on(self) -> None:
        """Hand in what waits, as far as there is room: first what is left of a batch."""
        unbatch = self._batch_reader
        while len(self._open) < self._window:
            if unbatch is not None and unbatch.entries:
                if unbatch.has_backlog:
                    return
                if (reading := unbatch.next(self._open)) is not None:
                    self._hand_in(*reading)
                continue
            if unbatch is not None and (ack := unbatch.take_acknowledgement()) is not None:
                self._settle(ack)
            if not self._waiting:
                return
            on, is_batch, octets = self._waiting[0]
            if unbatch is not None and unbatch.must_precede(on, is_batch):
                return
            self._waiting.popleft()
            self._waiting_bytes -= octets
            if is_batch:
                self._begin_batch(on)
            else:
                self._hand_in(on, encode_packet(on, V5))

    @property
    def has_backlog(self) -> bool:
        """Whether there is more to be handed in, in another turn: then `fire`."""
        return self._batch_reader is not None and self._batch_reader.has_backlog

    def fire(self) -> None:
        """It is another turn."""
        if self._batch_reader is not None and self._batch_reader.has_backlog:
            self._batch_reader.begin_turn()
            self._go_on()

    def _finish(self, publish: Publish, cause: BridgeDropCause, what: str = "") -> None:
        """*publish* does not go on: the remote is done with it."""
        self._counters.dropped[cause] += 1
        reason, why = DROP_REPLIES.get(cause, (ReasonCode.SUCCESS, ""))
        if why:
            self._endpoints.warn(cause, f"a message of the remote {why}; it is lost and counted as {cause}: {what}")
        if publish.qos == 1:
            self._settle(PubAck(publish.packet_id, reason))
        elif publish.qos == 2:
            self._settle(PubRec(publish.packet_id, reason))

    def _settle(self, ack: Ack) -> None:
        """Answer the remote, and the rest of the handshake if there is one."""
        if isinstance(ack, PubRec) and (ack.reason < FAILURE or not self._endpoints.capabilities.dialect.has_reasons):
            self._finished_here.add(ack.packet_id)
        self._endpoints.send_remote(ack)
