"""What is published here, on its way to the remote; and what the remote says of it, on its way back.

The session at our own front end is the sender: it chose the packet identifier, and it repeats what was not answered.
Here handshakes only pass, with two exceptions, which are finished here instead of there: messages that do not go on,
and QoS 2 towards a remote that knows only less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from edgebridge.upstream.costs import Cell
from edgebridge.upstream.ends import Ends, thrown_away
from edgebridge.upstream.express import Pass, Passes
from edgebridge.upstream.loopguard import LoopGuard
from edgebridge.upstream.rule import Rule
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.tally import Cause, Tally
from edgebridge.upstream.terms import Memory
from edgebridge.wire.encode import encode_packet, encode_properties
from edgebridge.wire.packets import Ack, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Properties, Property, text
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.errors import TopicInvalid
from edgebroker.instants import Instant
from edgebroker.topics import parse_topic_name

if TYPE_CHECKING:
    from edgebridge.upstream.batch import Batches, Ended

ANY: Final = 1 << 32  # bytes: more than a packet can have
ACKNOWLEDGED: Final = b"\x40\x02"
"""A PUBACK without a reason, up to its packet identifier."""
RECEIVED: Final = b"\x50\x02"
"""The same of PUBREC..."""
COMPLETED: Final = b"\x70\x02"
"""...and of PUBCOMP."""
_FAILED: Final = {
    Cause.TOO_LARGE: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    Cause.TOPIC: ReasonCode.TOPIC_NAME_INVALID,
    Cause.UNFIT: ReasonCode.PAYLOAD_FORMAT_INVALID,
    Cause.TOO_OLD: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}
"""What our front end hears of messages that are lost; of others, that all is well."""


class Outward:
    """One connection to the remote after the other; what is open is told again by the session."""

    def __init__(self, ends: Ends, rules: Rules, guard: LoopGuard, tally: Tally, memory: Memory) -> None:
        self._ends = ends
        self._rules = rules
        self._guard = guard
        self._tally = tally
        self._own: set[int] = set()  # QoS 2 that is finished here: PUBREL does not go on
        self._lowered: set[int] = set()  # QoS 2 that the remote got at QoS 1, and what names a batch
        self.open: set[int] = set()
        """Packet identifiers that the remote has not settled yet."""
        self._passes = Passes(True, False)
        self._most = ANY
        self._memory = memory
        self._batches = _batches(rules, memory)
        self._together: dict[int, list[int]] = {}  # what the remote is to answer for a batch -> all that then is

    def restart(self) -> None:
        """Another connection begins at both ends."""
        self._passes = Passes(True, self._ends.granted.dialect.has_properties)
        self._most = self._ends.granted.packet_bytes_max or ANY
        self._own.clear()
        self._lowered.clear()
        self.open.clear()
        self._together.clear()
        self.close()
        if self._batches is not None:
            self._batches.begin(self._ends.granted.packet_bytes_max)

    def unwritten(self) -> None:
        """Another connection begins: what the last one did not take any more is lost, at QoS 0."""
        if lost := thrown_away(self._ends.remote):
            self._tally.dropped[Cause.ABSENT] += lost

    def close(self) -> Sequence[int]:
        """The connection is over; packet identifiers of messages that were gathered, and never went there."""
        gathered = () if self._batches is None else self._batches.close()
        if lost := sum(not one.qos for one in gathered):
            self._tally.dropped[Cause.ABSENT] += lost
        return [one.packet_id for one in gathered if one.qos and not one.dup]

    @property
    def gathered_bytes(self) -> int:
        """Of batches that are not sent yet."""
        return 0 if self._batches is None else self._batches.bytes

    def due(self) -> Instant | None:
        """When to call `fire`."""
        return None if self._batches is None else self._batches.due()

    def fire(self, now: Instant) -> None:
        """Send what has waited for long enough."""
        if self._batches is not None:
            self._batches.fire(now)
            self._send_batches(self._batches.take_ended(), now)

    def express(self, first: int, body: bytes) -> bool:
        """Whether a PUBLISH of ours could go the short way."""
        parts = self._passes.read(first, body)
        way = None if parts is None else self._passes.find(parts.topic)
        if parts is None or way is None:
            return False
        data = self._passes.write(first, parts, way)
        octets = len(data)
        if octets > self._most:
            return False
        self._ends.remote.append(data)
        cell = way.cell  # what `Tally.carried` does, without the 60 ns of the call
        cell.messages += 1
        cell.bytes += octets
        self._tally.by_rule[way.rule] += 1
        if parts.packet_id:
            self.open.add(int.from_bytes(parts.packet_id, "big"))
        return True

    def acknowledged(self, body: bytes) -> None:
        """PUBACK of the remote, without a reason: the most frequent answer of all."""
        packet_id = int.from_bytes(body, "big")
        if packet_id in self._lowered:
            self.answered(PubAck(packet_id))
        else:
            self.open.discard(packet_id)
            self._ends.local.append(ACKNOWLEDGED + body)

    def received(self, body: bytes) -> None:
        """PUBREC of the remote, without a reason."""
        self._ends.local.append(RECEIVED + body)

    def completed(self, body: bytes) -> None:
        """PUBCOMP of the remote, without a reason."""
        self.open.discard(int.from_bytes(body, "big"))
        self._ends.local.append(COMPLETED + body)

    def absent(self, publish: Publish) -> None:
        """A message of ours, while the remote is away: of QoS 1 and 2 nothing is lost, the session sends them again."""
        if not publish.qos:
            self._tally.dropped[Cause.ABSENT] += 1

    def expired(self, publish: Publish) -> None:
        """A message of ours that waited for longer than it was to live."""
        self._finish(publish, Cause.EXPIRED)

    def too_old(self, publish: Publish) -> None:
        """A message of ours that waited for longer than any may."""
        self._finish(publish, Cause.TOO_OLD)

    def publish(self, publish: Publish, now: Instant) -> None:
        """A message of ours."""
        found = self._rules.outward(publish)
        if found is None:
            self._finish(publish, Cause.NO_RULE)
            return
        rule, number = found
        try:
            topic = parse_topic_name(rule.outward(publish.topic))
        except TopicInvalid:
            self._finish(publish, Cause.TOPIC)
            return
        granted = self._ends.granted
        cell = self._passes.cell(self._tally.costs, publish.topic)
        if rule.shape is not None:
            transform = self._rules.transforms.get(number)
            if transform is not None and (why := transform.spoils(publish, self._tally)):
                self._ends.warn(Cause.UNFIT, f"a message of ours is lost and counted as {Cause.UNFIT}: {why}")
                self._finish(publish, Cause.UNFIT)
                return
            if self._gather(publish, number, topic, now):
                return
        elif not (publish.properties or self._rules.out_needs_identifiers) and granted.maximum_qos == 2:
            self._note(publish.topic, topic, rule, number, cell)
        properties: Properties = {}
        if granted.dialect.has_properties:
            properties = publish.properties
            properties.pop(Property.SUBSCRIPTION_IDENTIFIER, None)
            if answer := text(properties, Property.RESPONSE_TOPIC):
                properties[Property.RESPONSE_TOPIC] = self._rules.answered_there(answer)
        qos = min(publish.qos, granted.maximum_qos)
        retain = publish.retain and rule.retain and granted.retains
        on = Publish(topic, publish.payload, qos, retain, publish.dup and qos > 0, publish.packet_id, properties)
        if not self._guard.leaves(on, publish.properties, now):
            self._finish(publish, Cause.LOOP)
            return
        data = encode_packet(on, granted.dialect)
        if granted.packet_bytes_max and len(data) > granted.packet_bytes_max:
            self._finish(publish, Cause.TOO_LARGE)
            return
        self._ends.remote.append(data)
        self._tally.carried(number, len(data), cell)
        if qos:
            self.open.add(publish.packet_id)
            if publish.qos > qos:
                self._lowered.add(publish.packet_id)
        elif publish.qos:  # it knows QoS 0 alone: with the bytes it has the message, as far as anybody will ever know
            self._answer(publish, ReasonCode.SUCCESS)

    def _gather(self, publish: Publish, number: int, topic: str, now: Instant) -> bool:
        """Whether it goes on together with others, now or later."""
        batches = self._batches
        if batches is None or number not in batches:
            return False
        is_gathered = batches.take(number, publish, topic, now)
        if batches.held >= self._memory.window():
            batches.end_all()
        self._send_batches(batches.take_ended(), now)
        return is_gathered

    def _send_batches(self, ended: Sequence[Ended], now: Instant) -> None:
        granted = self._ends.granted
        for one in ended:
            ids = [message.packet_id for message in one.messages if message.qos]
            qos = min(1, len(ids), granted.maximum_qos)
            is_dup = qos > 0 and any(message.dup for message in one.messages)
            said: Properties = {Property.CONTENT_TYPE: one.content_type} if granted.dialect.has_properties else {}
            on = Publish(one.topic, one.payload, qos, False, is_dup, ids[0] if qos else 0, said)
            self._guard.leaves(on, {}, now)
            data = encode_packet(on, granted.dialect)
            if granted.packet_bytes_max and len(data) > granted.packet_bytes_max:
                for message in one.messages:
                    self._finish(message, Cause.TOO_LARGE)
                continue
            self._ends.remote.append(data)
            octets = len(data)
            for message in one.messages:  # the bytes of all are those of the first
                self._tally.carried(one.number, octets, self._passes.cell(self._tally.costs, message.topic))
                octets = 0
            if qos:
                self.open.update(ids)
                self._together[ids[0]] = ids
                self._lowered.add(ids[0])
            else:
                for packet_id in ids:
                    self._ends.tell_local(PubAck(packet_id))

    def _note(self, local: str, remote: str, rule: Rule, number: int, cell: Cell) -> None:
        """Let the next messages of the topic go the short way, if they may."""
        stamp = self._guard.stamp_out(remote)
        if stamp is not None:
            granted = self._ends.granted
            properties = encode_properties(stamp) if granted.dialect.has_properties else b""
            way = Pass(remote.encode(), number, rule.retain and granted.retains, properties, cell)
            self._passes.remember(local.encode(), way)

    def released(self, packet_id: int) -> None:
        """PUBREL of our front end, with whatever reason: it will not send the message again."""
        if packet_id in self._own or self._ends.granted.maximum_qos < 2:
            self._own.discard(packet_id)
            self._ends.tell_local(PubComp(packet_id))
        else:
            self.open.add(packet_id)
            # 0x92 of ours would be about an identifier that the remote brought up: it is its affair.
            self._ends.tell_remote(PubRel(packet_id))

    def answered(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP of the remote."""
        packet_id, reason = ack.packet_id, ack.reason
        together = self._together.pop(packet_id, ()) if isinstance(ack, PubAck) else ()
        if reason >= FAILURE and not isinstance(ack, PubComp):
            self._tally.refused[reason.name.lower()] += len(together) or 1
            self._tally.dropped[Cause.REFUSED] += len(together) or 1
        if together:
            self._lowered.discard(packet_id)
            self.open.difference_update(together)
            for one in together:
                self._ends.tell_local(PubAck(one, reason))
            return
        if isinstance(ack, PubRec) and reason < FAILURE:
            self._ends.tell_local(PubRec(packet_id))
            return
        self.open.discard(packet_id)
        if isinstance(ack, PubAck) and packet_id in self._lowered:
            self._lowered.discard(packet_id)
            if reason < FAILURE:
                self._own.add(packet_id)
            self._ends.tell_local(PubRec(packet_id, reason if reason >= FAILURE else ReasonCode.SUCCESS))
        elif isinstance(ack, PubComp):
            self._ends.tell_local(PubComp(packet_id))
        else:
            self._ends.tell_local(type(ack)(packet_id, reason))

    def _finish(self, publish: Publish, cause: Cause) -> None:
        """*publish* does not go on: our front end is done with it."""
        self._tally.dropped[cause] += 1
        self._answer(publish, _FAILED.get(cause, ReasonCode.SUCCESS))

    def _answer(self, publish: Publish, reason: ReasonCode) -> None:
        if publish.qos == 1:
            self._ends.tell_local(PubAck(publish.packet_id, reason))
        elif publish.qos == 2:
            if publish.dup:  # it may have begun there, by other rules than now: PUBREL goes on and frees the identifier
                reason = ReasonCode.SUCCESS
            elif reason < FAILURE:
                self._own.add(publish.packet_id)
            self._ends.tell_local(PubRec(publish.packet_id, reason))


def _batches(rules: Rules, memory: Memory) -> Batches | None:
    gathering = [(n, rule) for n, rule in enumerate(rules.all) if rule.shape is not None and rule.shape.batch_messages]
    if not gathering:
        return None
    from edgebridge.upstream.batch import Batches  # 1.5 MiB, for who has batches

    return Batches(gathering, memory.wall)
