"""PUBLISH from a client: topic aliases, QoS 2 exactly once, retained messages, and routing (MQTT 5.0 section 3.3)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.event_buffer import NOT_PUBLISHED, TRACED, EventBuffer
from edgebridge.frontend.handlers.ack import UNKNOWN_PACKET_ID, send_ack
from edgebridge.frontend.handlers.publish_admission import (
    CONTENT_NOT_ALLOWED,
    DISALLOWED_TEXT,
    REASON_TEXTS,
    RESERVED,
    DiskRefusal,
    MemoryRefusal,
    MessageTooLarge,
    OutboxRefusal,
    QueueRefusal,
    Refusal,
    count_qos_0,
    has_room,
    would_have_room,
)
from edgebridge.frontend.journal.session_journal import DURABLE_MESSAGE_BYTES_MAX, SessionJournal
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import (
    MalformedPacket,
    ProtocolViolation,
    ReceiveMaximumExceeded,
    RetainNotSupported,
    TopicAliasInvalid,
    TopicNameInvalid,
)
from edgebridge.wire.packets import PubAck, PubComp, Publish, PubRec, PubRel, Will
from edgebridge.wire.properties import (
    Properties,
    Property,
    encode_properties,
    has_disallowed_text,
    number,
    text_property,
    user_properties,
)
from edgebridge.wire.reasons import ReasonCode
from edgebridge.wire.tracecontext import sampled
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import JOURNAL_LARGE_BYTES
from edgebroker.node.node import Node
from edgebroker.node.routes import Route
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication
from edgebroker.topics import parse_topic_name

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember

FORWARDED: Final = (
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
    Property.USER_PROPERTY,
)
"""What a reader gets unaltered [MQTT-3.3.2-4, -15 to -20]; expiry and identifiers are made anew for each reader."""

SYSTEM_PREFIX: Final = "$"
"""Topics of the broker itself; clients do not publish there (section 4.7.2)."""

BRIDGE_STATE: Final = "$SYS/broker/connection/{}/state"
"""Where Mosquitto's bridges say whether they are connected, each under its own client identifier (`notifications`)."""


TOPIC_CHARS_MAX: Final = 100
"""Characters of a topic that the operator's log shows of a message that is not taken."""
PUBACK: Final = 0x40
"""Its first byte."""


class PublishHandler:
    """Messages in, whoever they come from."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        session_journal: SessionJournal,
        retained: RetainedStore,
        events: EventBuffer,
        options: FrontendOptions,
    ) -> None:
        self._node = node
        self._delivery = delivery
        self._journal = session_journal
        self._retained = retained
        self._receive_maximum = options.receive_maximum
        self._alias_maximum = options.topic_alias_maximum
        self._checks_format = options.payload_format_checked
        self.refuses_when_full = options.queue_full is OverflowPolicy.REFUSE
        """Whether a full queue refuses its publisher; set while the gateway runs if a bridge wants it."""
        self.federation: FederationMember | None = None
        self.events = events
        self.refusals: Counter[Refusal] = Counter()
        """Messages not accepted, by cause."""

    @property
    def refused(self) -> int:
        """Messages not accepted."""
        return sum(self.refusals.values())

    @property
    def forbidden(self) -> int:
        """Of these, messages that their client may not publish."""
        return self.refusals[Refusal.NOT_ALLOWED]

    def on_publish(self, connection: Connection, publish: Publish, now: Instant) -> None:
        """A PUBLISH as decoded. Raises ProtocolError if the client must go."""
        session = connection.session
        assert session is not None
        topic = self._topic(connection, publish)
        if Property.SUBSCRIPTION_IDENTIFIER in publish.properties:
            raise ProtocolViolation("a client's PUBLISH has no subscription identifier", v5="MQTT-3.3.4-6")
        if publish.properties and has_disallowed_text(publish.properties):
            raise MalformedPacket(DISALLOWED_TEXT, v5="section 1.5.4")
        if publish.retain and connection.is_v5 and not self._retained.messages_max:
            raise RetainNotSupported("no messages are retained here", v5="MQTT-3.2.2-14")
        if publish.qos == 2:
            if publish.packet_id in session.received:  # again, after a reconnect: once is enough [MQTT-4.3.3-10]
                if session.waits_for_sync:  # its record may not be on disk yet
                    self._journal.add_barrier(connection, self._journal.awaited)
                connection.send(encode_packet(PubRec(publish.packet_id), connection.dialect))
                return
            if len(session.received) - len(connection.inherited_qos2_ids) >= self._receive_maximum:
                raise ReceiveMaximumExceeded(f"more than {self._receive_maximum} unfinished QoS 2 messages")
        publication = self._publication(session.client_id, topic, publish, now)
        session_journal = self._journal
        awaited = session_journal.awaited
        if publish.qos == 2:
            session_journal.begin_qos2(session, publish.packet_id)
        why = ""
        try:
            reason = self._authorize_and_publish(session, publication, now)
        except (DiskRefusal, QueueRefusal) as refused:
            why = str(refused)
            session_journal.abort_qos2()
            if not connection.is_v5:  # who cannot be told must not believe it was taken
                raise
            reason = refused.reason
        if publication.trace is not None and publication.number:
            self.events.add(TRACED, connection, 0, f"{publication.trace.trace_id} {publication.number} {topic}")
        if publish.qos == 2:
            if reason == ReasonCode.SUCCESS or not connection.is_v5:
                session.received.add(publish.packet_id)
                session_journal.commit_qos2(now)
            else:
                session_journal.abort_qos2()
        if session_journal.awaited != awaited:
            session_journal.add_barrier(connection, session_journal.awaited)
        if reason and not why:  # what the disk or a queue refuses is told as trouble of these
            why = self.report_refusal(connection, topic, reason)
        if publish.qos == 1:
            send_ack(connection, PubAck(publish.packet_id, reason), why)
        elif publish.qos == 2:
            send_ack(connection, PubRec(publish.packet_id, reason), why)

    def report_refusal(self, connection: Connection, topic: str, reason: ReasonCode) -> str:
        """Let an operator know that a message of *connection* is not taken; why, in words."""
        why = REASON_TEXTS.get(reason, "")
        session = connection.session
        if reason == ReasonCode.NOT_AUTHORIZED:
            if topic.startswith(SYSTEM_PREFIX):
                why = RESERVED
            elif session is not None and session.rights is not None and session.rights.write(topic).conditions:
                why = CONTENT_NOT_ALLOWED
        self.events.add_often(NOT_PUBLISHED, connection, reason, f"{topic[:TOPIC_CHARS_MAX]}: {why}")
        return why

    def check_window(self, connection: Connection) -> None:
        """A chunk was read, and answers wait for the disk. Raises ReceiveMaximumExceeded if too many do.

        Only a client that was told of the maximum is held to it. Of what waits, only PUBACKs count here; QoS 2 is
        looked at message by message.
        """
        if connection.is_v5 and connection.count_waiting() > self._receive_maximum:
            unanswered = connection.count_waiting(first=PUBACK)
            if unanswered > self._receive_maximum:
                raise ReceiveMaximumExceeded(
                    f"{unanswered} QoS 1 messages without an answer, at most {self._receive_maximum} were allowed",
                    v5="MQTT-3.3.4-7",
                )

    def on_pubrel(self, connection: Connection, pubrel: PubRel, now: Instant) -> None:
        """The publisher will not send the message again [MQTT-4.3.3-11].

        On a resumed session an identifier that is not known is no error (section 3.7.2.1): PUBREL was answered, and the
        answer lost. Clients that are told 0x92 then report a message as failed that was taken, so they are not.
        """
        session = connection.session
        assert session is not None
        known = pubrel.packet_id in session.received
        session.received.discard(pubrel.packet_id)
        connection.inherited_qos2_ids.discard(pubrel.packet_id)
        if known and session.number:
            self._journal.pubrel_received(session, pubrel.packet_id, now)
            if session.waits_for_sync:
                self._journal.add_barrier(connection, self._journal.awaited)
        is_fine = known or connection.is_resumed
        reason = ReasonCode.SUCCESS if is_fine else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        send_ack(connection, PubComp(pubrel.packet_id, reason), "" if is_fine else UNKNOWN_PACKET_ID)

    def count_unread(self, connection: Connection, data: bytes) -> None:
        """*data* of a client whose connection ended is not read any more: what it says at QoS 0 is lost, and counted.

        Of QoS 1 and 2 nothing was answered, so whoever said it knows. Who never was let in has said nothing.
        """
        if connection.session is not None and (count := count_qos_0(data)):
            self.refusals[Refusal.UNREAD] += count
            why = f"{count} messages of QoS 0 had come and were not read yet when the connection ended"
            self.events.add(NOT_PUBLISHED, connection, 0, why)

    def publish_will(self, session: Session, will: Will, now: Instant) -> None:
        """Publish *will* for the client that is gone, if it may say that. An operator hears of a refusal."""
        publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
        session_journal = self._journal
        session_journal.begin_will(session, will.qos)
        why = ""
        try:
            reason = self._authorize_and_publish(
                session, self._publication(session.client_id, will.topic, publish, now), now
            )
        except (DiskRefusal, QueueRefusal) as refused:
            reason, why = refused.reason, str(refused)
        if reason:
            why = f"its will, {will.topic[:TOPIC_CHARS_MAX]}: {why or REASON_TEXTS.get(reason, '')}"
            self.events.add_absent(NOT_PUBLISHED, session.client_id, reason, why)
        if session_journal.is_in_qos2:
            session_journal.commit_qos2(now)
        else:
            session_journal.abort_qos2()

    def _authorize_and_publish(self, session: Session, publication: Publication, now: Instant) -> ReasonCode:
        """As `accept`, if the client may publish that."""
        if session.rights is not None and not session.rights.may_write(publication):
            self.refusals[Refusal.NOT_ALLOWED] += 1
            return ReasonCode.NOT_AUTHORIZED
        return self.publish(publication, now)

    def publish(self, publication: Publication, now: Instant) -> ReasonCode:
        """Retain and route a publication. A 3.1.1 client cannot hear a refusal; it is counted in `refusals`.

        Raises DiskRefuses if it had to be kept on a disk that takes nothing, QueueRefuses if a full queue refuses.
        """
        if publication.topic.startswith(SYSTEM_PREFIX) and not _is_own_state(publication):
            self.refusals[Refusal.RESERVED_TOPIC] += 1
            return ReasonCode.NOT_AUTHORIZED
        if publication.properties and not self.has_right_format(publication.payload, publication.properties):
            self.refusals[Refusal.PAYLOAD_FORMAT] += 1
            return ReasonCode.PAYLOAD_FORMAT_INVALID
        route = self._node.routes.route(publication.topic)
        is_refusing = self._journal.is_refusing and not self._frees_room(publication)
        if is_refusing and self._must_be_durable(publication, route):
            self.refusals[Refusal.DISK_FULL] += 1
            raise DiskRefusal(f"the disk takes nothing: {self._journal.trouble}")
        if publication.held_bytes() > JOURNAL_LARGE_BYTES and self._must_be_durable(publication, route):
            self._check_size(publication.held_bytes())
        if self._journal.is_full and self._would_wait(publication, route):
            self.refusals[Refusal.MEMORY_FULL] += 1
            raise MemoryRefusal("memory is full of messages that wait for readers")
        if self.refuses_when_full and not has_room(publication, route):
            if not would_have_room(publication, route):
                self.refusals[Refusal.TOO_LARGE] += 1
                raise MessageTooLarge(
                    "it is larger than the queue of a reader may be, which refuses what it has no room for"
                )
            self.refusals[Refusal.QUEUE_FULL] += 1
            raise QueueRefusal("a reader's queue is full")
        if (
            self.federation is not None
            and publication.qos
            and (peer := self.federation.backpressure.full_peer(publication))
        ):
            self.refusals[Refusal.OUTBOX_FULL] += 1
            raise OutboxRefusal(f"too much waits for gateway {peer}")
        if publication.retain and is_refusing:
            self._retained.not_retained += (
                1  # QoS 0 may go to its readers alone: what a restart would forget is not retained
            )
        elif publication.retain and self._retained.messages_max:
            if not self._retained.retain(publication):
                self.refusals[Refusal.RETAINED_FULL] += 1
                return ReasonCode.QUOTA_EXCEEDED
            self._journal.retained(publication, now)
        self.route(publication, route, now)
        return ReasonCode.SUCCESS

    def _frees_room(self, publication: Publication) -> bool:
        """Whether *publication* takes something out of a journal that is merely full: a message that is retained."""
        journal = self._journal.storage
        is_empty = publication.retain and not publication.payload
        return is_empty and journal is not None and journal.is_full and bool(self._retained.find(publication.topic))

    def _check_size(self, size: int) -> None:
        """Raise DiskRefuses unless a message of *size* bytes can be kept: one that cannot holds up all behind it."""
        if size > DURABLE_MESSAGE_BYTES_MAX:
            self.refusals[Refusal.TOO_LARGE] += 1
            raise DiskRefusal(f"a message of more than {DURABLE_MESSAGE_BYTES_MAX:,} bytes cannot be kept")
        journal = self._journal.storage
        if journal is not None and not journal.space.has_room_for(size, journal.waiting_bytes):
            self.refusals[Refusal.DISK_FULL] += 1
            raise DiskRefusal(f"there is no room on the disk for a message of {size:,} bytes")

    def _must_be_durable(self, publication: Publication, route: Route) -> bool:
        """Whether somebody is promised that *publication* is on disk."""
        if not publication.qos:
            return False
        if self.federation is not None:  # somebody elsewhere may be promised it
            return True
        copies = route.copies_for(publication)
        members = [member.alone() for group in route.wanting() for member in group.members]
        return publication.retain or any(copy.qos and copy.receiver.number for copy in (*copies, *members))

    def _would_wait(self, publication: Publication, route: Route) -> bool:
        """Whether *publication* would be kept for a reader that is away or behind."""
        return publication.qos > 0 and (
            any(_is_behind(copy) for copy in route.copies_for(publication))
            or any(all(_is_behind(member.alone()) for member in group.members) for group in route.wanting())
        )

    def route(self, publication: Publication, route: Route, now: Instant) -> None:
        """Hand *publication* to the node, which numbers it, and its copies to their readers."""
        if self.federation is None:
            copies = route.accept(publication, self._node.ledger, now)
        else:
            copies = self.federation.accept(publication, route, now)
        self._delivery.deliver(publication, copies, now)

    def has_right_format(self, payload: bytes, properties: Properties) -> bool:
        """Whether *payload* is what its format indicator says, if that matters here (section 3.3.2.3.2)."""
        if self._checks_format and number(properties, Property.PAYLOAD_FORMAT_INDICATOR, 0):
            try:
                payload.decode()
            except UnicodeDecodeError:
                return False
        return True

    def _topic(self, connection: Connection, publish: Publish) -> str:
        """The topic itself, or the one its alias stands for (section 3.3.2.3.4)."""
        alias = number(publish.properties, Property.TOPIC_ALIAS, 0)
        if alias > self._alias_maximum:
            raise TopicAliasInvalid(
                f"topic alias {alias}, at most {self._alias_maximum} was announced", v5="MQTT-3.3.2-9"
            )
        if publish.topic:
            try:
                topic = parse_topic_name(publish.topic)
            except TopicInvalid as error:
                raise TopicNameInvalid(str(error), v311="MQTT-3.3.2-2", v5="MQTT-3.3.2-2") from None
            if alias:
                connection.aliases[alias] = topic
            return topic
        if alias not in connection.aliases:
            raise ProtocolViolation(f"topic alias {alias} stands for no topic yet", v5="MQTT-3.3.2-8")
        return connection.aliases[alias]

    def _publication(self, client: str, topic: str, publish: Publish, now: Instant) -> Publication:
        properties = publish.properties
        if not properties:
            return Publication(client, topic, publish.payload, publish.qos, publish.retain, now)
        expiry_s = number(properties, Property.MESSAGE_EXPIRY_INTERVAL, -1)
        user = user_properties(properties)
        forwarded: Properties = {name: properties[name] for name in FORWARDED if name in properties}
        return Publication(
            client,
            topic,
            publish.payload,
            publish.qos,
            publish.retain,
            now,
            properties=forwarded or None,
            expires_at=now + expiry_s * SECOND if expiry_s >= 0 else None,
            user=user,
            content_type=text_property(properties, Property.CONTENT_TYPE, "") or None,
            properties_bytes=len(encode_properties(forwarded)),
            trace=sampled(user),
        )


def _is_behind(copy: Copy) -> bool:
    session: Session = copy.receiver
    return copy.qos > 0 and session.number > 0 and session.is_behind


def _is_own_state(publication: Publication) -> bool:
    """Whether a bridge speaks of itself: the one topic of the broker that clients may write."""
    return publication.topic == BRIDGE_STATE.format(publication.publisher)
