"""What the remote publishes, on its way to our own front end; and what that says of it, on its way back.

The remote's session is the sender. It hears PUBACK or PUBREC only when our front end said so, which is when the message
is on disk. Messages that do not go on are answered here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from edgebridge.upstream.conditions import Conditions
from edgebridge.upstream.costs import Cell
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.express import RETAIN, Pass, Passes
from edgebridge.upstream.loopguard import LoopGuard
from edgebridge.upstream.outward import ACKNOWLEDGED
from edgebridge.upstream.rules import Heard, Rules
from edgebridge.upstream.tally import Cause, Tally
from edgebridge.upstream.terms import U16_MAX, Memory, Terms
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet, encode_properties
from edgebridge.wire.packets import Ack, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Property, has_disallowed_text, subscription_identifiers, text
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.codepoints import has_disallowed
from edgebroker.errors import TopicInvalid
from edgebroker.instants import Instant
from edgebroker.limits import MIB
from edgebroker.topics import parse_topic_name

if TYPE_CHECKING:
    from edgebridge.upstream.unbatch import Unbatch

LOST: Final = {
    Cause.TOO_LARGE: (
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        "is larger than this gateway takes; with a larger limits.packet_bytes_max the next ones come",
    ),
    Cause.TOPIC: (
        ReasonCode.TOPIC_NAME_INVALID,
        "would have a topic here that cannot be; see the prefixes of the rules",
    ),
    Cause.INVALID: (ReasonCode.UNSPECIFIED_ERROR, "breaks the protocol"),
    Cause.UNFIT: (ReasonCode.PAYLOAD_FORMAT_INVALID, "cannot be transformed as its rule wants"),
}
"""Messages that no attempt would bring in, and what the remote hears of them: they are acknowledged in any case, for it
would send them again after every reconnection. Of others that do not go on it hears that all is well."""
WAITING_BYTES_MAX: Final = 16 * MIB
"""Of packets that wait for room in our window: version 3.1.1 cannot tell the remote how much that is."""
QOS: Final = 0x06  # in the first byte
QOS_2: Final = 0x04
HEAD_BYTES: Final = 2
"""Of a packet, beside its body: more of large ones."""
_FOR_GOOD: Final = frozenset(
    {
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    }
)
"""Refusals of our front end that another attempt would not change. With any other it has no room at the moment."""


class Inward:
    """One connection to the remote after the other; what is open is told again by the remote's session."""

    def __init__(self, ends: Ends, rules: Rules, guard: LoopGuard, tally: Tally, terms: Terms, memory: Memory) -> None:
        self._ends = ends
        self._rules = rules
        self._guard = guard
        self._tally = tally
        self._window = terms.receive_maximum  # so many our front end takes before it must have answered
        self._packet_bytes_max = terms.packet_bytes_max
        self._retains = terms.retains
        self._memory = memory
        self._is_tight = False  # our front end had no room for something: what is retained is looked at one by one
        self._own: set[int] = set()  # QoS 2 that is finished here
        self._open: set[int] = set()
        self._forgetting: set[int] = set()
        self._earlier: set[int] = set()  # QoS 2 that an earlier connection brought, and that is not released yet
        # Of a remote whose window is larger than ours: (message, whether it is a batch, bytes of its packet).
        self._waiting: deque[tuple[Publish, bool, int]] = deque()
        self._waiting_bytes = 0
        self._unbatch = self._for_batches(terms)
        self._conditions = Conditions()
        self._passes = Passes(False, True)
        self.octets = 0
        """Of the packet that is read at the moment."""
        self.unread: Callable[[], int] = lambda: 0
        """How many messages of QoS 0 have come and are not read; with this they never will be."""
        self.full = ""
        """Why our front end takes nothing more at the moment; then this connection is to end, and to come back."""

    def restart(self) -> None:
        """Another connection begins at both ends."""
        self._passes = Passes(self._ends.granted.dialect.has_properties, True)
        for known in (self._own, self._open, self._forgetting, self._earlier):
            known.clear()
        self.full = ""

    def close(self) -> None:
        """The connection is over, and so is what was not handed in yet; of QoS 0 nobody else has it."""
        self.lost(self.unread() + sum(not one.qos for one, _, _ in self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._unbatch is not None:
            self._unbatch.restart()

    def lost(self, messages: int) -> None:
        """So many of QoS 0 never reached our front end."""
        if messages:
            self._tally.dropped[Cause.ABSENT] += messages

    def go_on(self, packet_ids: Sequence[int]) -> None:
        """Our front end has the messages that earlier connections brought under *packet_ids*, and waits for PUBREL."""
        self._earlier.update(packet_ids)

    def forget(self, packet_ids: Sequence[int]) -> None:
        """The remote begins anew, and with it its packet identifiers: what came by the old ones is finished here.

        Without this its next messages would be taken for those, which came already.
        """
        self._forgetting.update(packet_ids)
        for packet_id in packet_ids:
            self._ends.tell_local(PubRel(packet_id))

    def express(self, first: int, body: bytes) -> bool:
        """Whether a PUBLISH of theirs could go the short way."""
        self.octets = len(body) + HEAD_BYTES
        if self._earlier and first & QOS == QOS_2:
            return False
        is_short = not (self._waiting or self._guard.awaits_echoes or (self._unbatch and self._unbatch.is_busy))
        parts = self._passes.read(first, body) if is_short else None
        way = None if parts is None else self._passes.find(parts.topic)
        if parts is None or way is None or (self._is_tight and first & RETAIN):
            return False
        data = self._passes.write(first, parts, way)
        if len(data) > self._packet_bytes_max:
            return False
        if parts.packet_id:
            if len(self._open) >= self._window:
                return False
            self._open.add(int.from_bytes(parts.packet_id, "big"))
        self._ends.local.append(data)
        cell = way.cell  # what `Tally.carried` does, without the 60 ns of the call
        cell.messages += 1
        cell.bytes += self.octets
        self._tally.by_rule[way.rule] += 1
        return True

    def acknowledged(self, body: bytes) -> None:
        """PUBACK of our front end, without a reason: the most frequent answer of all."""
        packet_id = int.from_bytes(body, "big")
        self._open.discard(packet_id)
        if self._unbatch is not None and packet_id in self._unbatch.open:
            self._answer_batch(packet_id)
            return
        self._ends.remote.append(ACKNOWLEDGED + body)
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
            self._finish(publish, Cause.INVALID, "a topic alias, and none was announced")
            return
        if has_disallowed(publish.topic) or has_disallowed_text(publish.properties):
            self._finish(publish, Cause.INVALID, f"control characters or non-characters, under {publish.topic!a}")
            return
        candidates = self._rules.inward(publish.topic)
        heard = next(
            (one for one in candidates if not one.rule.where or self._conditions.holds(one.rule.where, publish)), None
        )
        if heard is None:
            self._finish(publish, Cause.FILTERED if candidates else Cause.NO_RULE)
        elif self._rules.is_copy(heard, subscription_identifiers(publish.properties)):
            self._finish(publish, Cause.OVERLAP)
        else:
            is_plain = not publish.properties and not any(one.rule.where for one in candidates)
            if not self._guard.enters(publish, now):
                self._finish(publish, Cause.LOOP)
            elif not heard.rule.is_unbatching:
                self._carry(publish, heard, is_plain)
            elif not self._waits(publish, True):
                self._begin_batch(publish)
                self._go_on()

    def skipped(self, first: int, body: bytes, cause: Cause, what: str) -> bool:
        """A PUBLISH of theirs cannot be taken, whatever is tried; False: it does not even say which one it is.

        *body* may be no more than its beginning, *what* says more about the cause.
        """
        qos, at = first >> 1 & 3, 2 + int.from_bytes(body[:2], "big")
        packet_id = int.from_bytes(body[at : at + 2], "big") if qos else 0
        if qos == 3 or len(body) < at + 2 * (qos > 0) or (qos and not packet_id):
            return False
        self._finish(Publish("", b"", qos, packet_id=packet_id), cause, what)
        return True

    def released(self, packet_id: int) -> None:
        """PUBREL of the remote, with whatever reason: it will not send the message again."""
        is_earlier = packet_id in self._earlier
        self._earlier.discard(packet_id)
        if packet_id in self._own:
            self._own.discard(packet_id)
            if is_earlier:  # by other rules than now: it came in, and now it is finished
                self.forget((packet_id,))
            self._ends.tell_remote(PubComp(packet_id))
        else:
            self._ends.tell_local(PubRel(packet_id))

    def answered(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP of our front end."""
        packet_id, reason = ack.packet_id, ack.reason
        if isinstance(ack, PubComp) and packet_id in self._forgetting:
            self._forgetting.discard(packet_id)
            return
        is_reading = self._unbatch is not None and packet_id in self._unbatch.open
        if isinstance(ack, PubComp):
            self._open.discard(packet_id)
            self._ends.tell_remote(PubComp(packet_id))
        elif reason < FAILURE:
            if isinstance(ack, PubAck):
                self._open.discard(packet_id)
            if is_reading:
                self._answer_batch(packet_id)
            else:
                self._ends.tell_remote(type(ack)(packet_id))
        elif reason in _FOR_GOOD:
            self._open.discard(packet_id)
            self._tally.refused[reason.name.lower()] += 1
            self._tally.dropped[Cause.REFUSED] += 1
            why = text(ack.properties, Property.REASON_STRING, reason.name.lower().replace("_", " "))
            self._ends.warn(
                Cause.REFUSED, f"our own gateway does not take a message of the remote, which is lost: {why}"
            )
            if is_reading:
                self._answer_batch(packet_id)
            else:
                self._settle(type(ack)(packet_id, reason))
        else:  # not acknowledged, so the remote keeps it
            self._is_tight = True
            self.full = text(ack.properties, Property.REASON_STRING, reason.name.lower().replace("_", " "))
        self._go_on()

    def _carry(self, publish: Publish, heard: Heard, is_plain: bool) -> None:
        """Hand it on. *is_plain*: the next messages of its topic may go the short way."""
        try:
            topic = parse_topic_name(heard.rule.inward(publish.topic))
        except TopicInvalid:
            self._finish(publish, Cause.TOPIC, publish.topic)
            return
        transform = self._rules.transforms.get(heard.number)
        if transform is not None and (why := transform.spoils(publish, self._tally)):
            self._finish(publish, Cause.UNFIT, why)
            return
        retains = heard.rule.retain and self._retains
        cell = self._passes.cell(self._tally.costs, topic)
        if is_plain and heard.rule.shape is None:
            way = Pass(topic.encode(), heard.number, retains, encode_properties(self._guard.stamp_in()), cell)
            self._passes.remember(publish.topic.encode(), way)
        properties = publish.properties
        properties.pop(Property.SUBSCRIPTION_IDENTIFIER, None)
        if answer := text(properties, Property.RESPONSE_TOPIC):
            properties[Property.RESPONSE_TOPIC] = self._rules.answered_here(answer)
        retain = publish.retain and retains and self._has_room(topic, publish)
        on = Publish(topic, publish.payload, publish.qos, retain, publish.dup, publish.packet_id, properties)
        data = encode_packet(on, V5)
        if len(data) > self._packet_bytes_max:  # its prefix and its origin came to it
            self._finish(publish, Cause.TOO_LARGE, f"{len(data):,} bytes under {topic}")
            return
        self._tally.carried(heard.number, self.octets, cell)
        if not self._waits(on, False):
            self._hand_in(on, data)

    def _has_room(self, topic: str, publish: Publish) -> bool:
        """Whether *publish* could be retained. If not, better that it comes as others do than not at all, again and
        again: as long as it is refused nothing behind it comes either.
        """
        if not publish.payload or self._memory.can_retain(topic, len(publish.payload) + len(topic)):
            return True
        self._is_tight = True
        self._ends.warn(
            "not retained",
            f"there is no room for another retained message, so {topic} comes in without being retained, and others "
            "may; limits.retained_messages_max says how many there are to be",
        )
        return False

    def _for_batches(self, terms: Terms) -> Unbatch | None:
        if not any(rule.is_unbatching for rule in terms.rules):
            return None
        from edgebridge.upstream.unbatch import Unbatch  # 1.5 MiB, for who has batches

        return Unbatch(self._ends, self._rules, self._tally, terms.packet_bytes_max, self._cell)

    def _cell(self, topic: str) -> Cell:
        return self._passes.cell(self._tally.costs, topic)

    def _begin_batch(self, batch: Publish) -> None:
        """Hand in what is in *batch*, as far as there is room for it, from now on."""
        assert self._unbatch is not None
        try:
            self._unbatch.begin(batch)
        except ValueError as error:
            self._finish(batch, Cause.UNFIT, f"{error}, under {batch.topic}")

    def _answer_batch(self, packet_id: int) -> None:
        """Our front end has, or does not want, one of the messages of a batch."""
        assert self._unbatch is not None
        self._unbatch.open.discard(packet_id)
        self._go_on()

    def _waits(self, publish: Publish, is_batch: bool) -> bool:
        """Whether there is no room for it, or others come first; then it waits from now on."""
        is_before = self._unbatch is not None and self._unbatch.is_before(publish, is_batch)
        may_wait = publish.qos or is_batch
        if not may_wait or not (len(self._open) >= self._window or self._waiting or is_before):
            return False
        self._waiting.append((publish, is_batch, self.octets))
        self._waiting_bytes += self.octets
        if len(self._waiting) > U16_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self.full = "the remote sends more than it may before it is answered"
        return True

    def _hand_in(self, publish: Publish, data: bytes) -> None:
        if publish.qos:
            self._open.add(publish.packet_id)
        self._ends.local.append(data)

    def _go_on(self) -> None:
        """Hand in what waits, as far as there is room: first what is left of a batch."""
        unbatch = self._unbatch
        while len(self._open) < self._window:
            if unbatch is not None and unbatch.readings:
                if unbatch.rests:
                    return
                if (reading := unbatch.next(self._open)) is not None:
                    self._hand_in(*reading)
                continue
            if unbatch is not None and (ack := unbatch.take_answer()) is not None:
                self._settle(ack)
            if not self._waiting:
                return
            on, is_batch, octets = self._waiting[0]
            if unbatch is not None and unbatch.is_before(on, is_batch):
                return
            self._waiting.popleft()
            self._waiting_bytes -= octets
            if is_batch:
                self._begin_batch(on)
            else:
                self._hand_in(on, encode_packet(on, V5))

    @property
    def rests(self) -> bool:
        """Whether there is more to be handed in, in another turn: then `fire`."""
        return self._unbatch is not None and self._unbatch.rests

    def fire(self) -> None:
        """It is another turn."""
        if self._unbatch is not None and self._unbatch.rests:
            self._unbatch.go_on()
            self._go_on()

    def _finish(self, publish: Publish, cause: Cause, what: str = "") -> None:
        """*publish* does not go on: the remote is done with it."""
        self._tally.dropped[cause] += 1
        reason, why = LOST.get(cause, (ReasonCode.SUCCESS, ""))
        if why:
            self._ends.warn(cause, f"a message of the remote {why}; it is lost and counted as {cause}: {what}")
        if publish.qos == 1:
            self._settle(PubAck(publish.packet_id, reason))
        elif publish.qos == 2:
            self._settle(PubRec(publish.packet_id, reason))

    def _settle(self, ack: Ack) -> None:
        """Answer the remote, and the rest of the handshake if there is one."""
        if isinstance(ack, PubRec) and (ack.reason < FAILURE or not self._ends.granted.dialect.has_reasons):
            self._own.add(ack.packet_id)
        self._ends.tell_remote(ack)
