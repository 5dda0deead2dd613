"""What is published here, on its way to the remote; and what the remote says of it, on its way back.

The session at our own front end is the sender: it chose the packet identifier, and it repeats what was not answered.
Here handshakes only pass, with two exceptions, which are finished here instead of there: messages that do not go on,
and QoS 2 towards a remote that knows only less.
"""

from __future__ import annotations

from typing import Final

from edgebridge.upstream.ends import Ends
from edgebridge.upstream.loopguard import LoopGuard
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.tally import Cause, Tally
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Ack, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Properties, Property, subscription_identifiers
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.errors import TopicInvalid
from edgebroker.instants import Instant
from edgebroker.topics import parse_topic_name

_FAILED: Final = {
    Cause.TOO_LARGE: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    Cause.TOPIC: ReasonCode.TOPIC_NAME_INVALID,
}
"""What our front end hears of messages that are lost; of others, that all is well."""


class Outward:
    """One connection to the remote after the other; what is open is told again by the session."""

    def __init__(self, ends: Ends, rules: Rules, guard: LoopGuard, tally: Tally) -> None:
        self._ends = ends
        self._rules = rules
        self._guard = guard
        self._tally = tally
        self._own: set[int] = set()  # QoS 2 that is finished here: PUBREL does not go on
        self._lowered: set[int] = set()  # QoS 2 that the remote got at QoS 1
        self.open: set[int] = set()
        """Packet identifiers that the remote has not settled yet."""

    def restart(self) -> None:
        """Another connection begins at both ends."""
        self._own.clear()
        self._lowered.clear()
        self.open.clear()

    def publish(self, publish: Publish, now: Instant) -> None:
        """A message of ours."""
        found = self._rules.outward(publish.topic, subscription_identifiers(publish.properties))
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
        properties: Properties = {}
        if granted.dialect.has_properties:
            properties = publish.properties
            properties.pop(Property.SUBSCRIPTION_IDENTIFIER, None)
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
        self._tally.carried(number, len(data))
        if qos:
            self.open.add(publish.packet_id)
            if publish.qos > qos:
                self._lowered.add(publish.packet_id)
        elif publish.qos:  # it knows QoS 0 alone: with the bytes it has the message, as far as anybody will ever know
            self._answer(publish, ReasonCode.SUCCESS)

    def released(self, pubrel: PubRel) -> None:
        """Our front end will not send the message again."""
        packet_id = pubrel.packet_id
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
        if reason >= FAILURE and not isinstance(ack, PubComp):
            self._tally.refused[reason.name.lower()] += 1
            self._tally.dropped[Cause.REFUSED] += 1
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
            if reason < FAILURE:
                self._own.add(publish.packet_id)
            self._ends.tell_local(PubRec(publish.packet_id, reason))
