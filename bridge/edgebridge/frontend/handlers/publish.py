"""PUBLISH from a client: topic aliases, QoS 2 exactly once, retained messages, and routing (MQTT 5.0 section 3.3)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.event_buffer import NOT_PUBLISHED, TRACED, EventBuffer
from edgebridge.frontend.handlers.ack import UNKNOWN_PACKET_ID, send_ack
from edgebridge.frontend.handlers.publish_admission import (
    DISALLOWED_TEXT,
    PublishAdmission,
    PublishRefusal,
    Refusal,
    RetainedRefusal,
    count_qos_0,
)
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.memory_accounts import GATEWAY, OVER_SHARE
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.authorization import Rights
from edgebridge.session.footprint import HeldKind, alias_bytes
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import (
    MalformedPacket,
    ProtocolError,
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
from edgebridge.wire.user_properties import sampled
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import TOPIC_ALIAS_BYTES_MAX
from edgebroker.log_schema import MessageOrigin
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.node.routes import Route
from edgebroker.publication import Publication
from edgebroker.topics import FILE_TREE, check_levels, parse_topic_name

if TYPE_CHECKING:
    from edgebridge.frontend.file_service import FileService

FORWARDED: Final = (
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
    Property.USER_PROPERTY,
)
"""What a reader gets unaltered [MQTT-3.3.2-4, -15 to -20]; expiry and identifiers are made anew for each reader."""

TOPIC_CHARS_MAX: Final = 100
"""Characters of a topic that the operator's log shows of a message that is not taken."""
PUBACK: Final = 0x40
"""Its first byte."""


class AliasQuotaExceeded(ProtocolError):
    """The topic aliases of a client, or all that its account holds, would take more memory than they may."""

    reason = ReasonCode.QUOTA_EXCEEDED


class PublishHandler:
    """Messages in, whoever they come from."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        session_journal: SessionJournal,
        retained: RetainedStore,
        events: EventBuffer,
        admission: PublishAdmission,
        options: FrontendOptions,
    ) -> None:
        self._node = node
        self._delivery = delivery
        self._journal = session_journal
        self._retained = retained
        self._receive_maximum = options.receive_maximum
        self._alias_maximum = options.topic_alias_maximum
        self.admission = admission
        self.events = events
        self.refusals: Counter[Refusal] = Counter()
        """Messages not accepted, by cause."""
        self.file_service: FileService | None = None
        """Answers requests under `$file/`; None: they are refused like messages to any other tree of the broker."""

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
        topic = self._topic(connection, publish, now)
        if Property.SUBSCRIPTION_IDENTIFIER in publish.properties:
            raise ProtocolViolation("a client's PUBLISH has no subscription identifier", v5="MQTT-3.3.4-6")
        if publish.properties and has_disallowed_text(publish.properties):
            raise MalformedPacket(DISALLOWED_TEXT, v5="section 1.5.4")
        if publish.retain and connection.is_v5 and not self._retained.messages_max:
            raise RetainNotSupported("no messages are retained here", v5="MQTT-3.2.2-14")
        if self.file_service is not None and topic.startswith(FILE_TREE):
            self.file_service.on_publish(connection, topic, publish, now)
            return
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
        refusal = self.publish(publication, now, session.rights, session.account)
        reason, why = (ReasonCode.SUCCESS, "") if refusal is None else (refusal.reason, str(refusal))
        if refusal is not None and refusal.is_temporary:
            session_journal.abort_qos2()
            if not connection.is_v5:  # a publisher that cannot be told must not take it for accepted
                raise refusal
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
        if refusal is not None and not refusal.is_temporary:  # operators hear of disks and queues by themselves
            self.report_refusal(connection, topic, refusal)
        if publish.qos == 1:
            send_ack(connection, PubAck(publish.packet_id, reason), why)
        elif publish.qos == 2:
            send_ack(connection, PubRec(publish.packet_id, reason), why)

    def report_refusal(self, connection: Connection, topic: str, refusal: PublishRefusal) -> None:
        """Add an event for the operator: a message of *connection* is not accepted."""
        self.events.add_often(NOT_PUBLISHED, connection, refusal.reason, f"{topic[:TOPIC_CHARS_MAX]}: {refusal}")

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
        publication = self._publication(session.client_id, will.topic, publish, now)
        publication.origin = MessageOrigin.WILL
        refusal = self.publish(publication, now, session.rights, session.account)
        if refusal is not None:
            why = f"its will, {will.topic[:TOPIC_CHARS_MAX]}: {refusal}"
            self.events.add_absent(NOT_PUBLISHED, session.client_id, refusal.reason, why)
        if session_journal.is_in_qos2:
            session_journal.commit_qos2(now)
        else:
            session_journal.abort_qos2()

    def publish_foreign_will(self, client: ClientId, will: Will, now: Instant) -> None:
        """Publish the will of a client of another gateway, which is dead. An operator hears of a refusal."""
        publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
        publication = self._publication(client, will.topic, publish, now)
        publication.origin = MessageOrigin.WILL
        if will.qos == 2:  # no reader may have it before it is on disk
            self._journal.open_transaction(now)
            self._journal.is_in_qos2 = True
        refusal = self.publish(publication, now)
        self._journal.is_in_qos2 = False
        if refusal is not None:
            why = f"its will, {will.topic[:TOPIC_CHARS_MAX]}: {refusal}"
            self.events.add_absent(NOT_PUBLISHED, client, refusal.reason, why)

    def publish(
        self, publication: Publication, now: Instant, rights: Rights | None = None, account: str = GATEWAY
    ) -> PublishRefusal | None:
        """Retain and route a publication of a client with these *rights*; None: it may publish everything.

        *account*: who holds the memory that a retained message takes. Returns why it is not accepted, which is counted
        in `refusals`.
        """
        route = self._node.routes.route(publication.topic)
        refusal = self.admission.admit(publication, route, rights)
        if refusal is None:
            refusal = self._retain(publication, account, rights is not None, now)
            if refusal is not None and self.admission.has_readers(publication, route):
                self._retained.not_retained += 1
                refusal = None
        if refusal is not None:
            self.refusals[refusal.cause] += 1
            return refusal
        self.route(publication, route, now)
        return None

    def _retain(self, publication: Publication, account: str, has_rules: bool, now: Instant) -> PublishRefusal | None:
        """Retain an admitted publication if it asks for that; returns why the store does not take it.

        If it has readers they get it all the same, and it is accepted; else its publisher hears that it was in vain.
        *has_rules*: its publisher may lose the right to publish it, so the journal names the account too.
        """
        if not publication.retain:
            return None
        if self._journal.is_refusing and not self.admission.frees_journal(publication):
            self._retained.not_retained += 1  # QoS 0 goes to its readers alone: a restart would forget it
            return None
        if not self._retained.messages_max:
            return None
        growth = self._retained.growth(publication) if publication.payload else 0
        if not self.admission.memory_accounts.admits(account, growth, HeldKind.RETAINED, now):
            return RetainedRefusal(Refusal.MEMORY_SHARE, OVER_SHARE)
        if not self._retained.retain(publication, account):
            self.admission.memory_accounts.withdraw(account, growth, HeldKind.RETAINED)
            return RetainedRefusal(Refusal.RETAINED_FULL, "there is no room for another retained message")
        self._journal.retained(publication, now, account if has_rules else GATEWAY)
        return None

    def route(self, publication: Publication, route: Route, now: Instant) -> None:
        """Hand *publication* to the node, which numbers it, and its copies to their readers."""
        if self.admission.federation is None:
            copies = route.accept(publication, self._node.ledger, now)
        else:
            copies = self.admission.federation.accept(publication, route, now)
        self._delivery.deliver(publication, copies, now)

    def _topic(self, connection: Connection, publish: Publish, now: Instant) -> str:
        """The topic itself, or the one its alias stands for (section 3.3.2.3.4)."""
        alias = number(publish.properties, Property.TOPIC_ALIAS, 0)
        if alias > self._alias_maximum:
            raise TopicAliasInvalid(
                f"topic alias {alias}, at most {self._alias_maximum} was announced", v5="MQTT-3.3.2-9"
            )
        if publish.topic:
            try:
                check_levels(publish.topic, self._node.routes.topic_levels_max)
                topic = parse_topic_name(publish.topic)
            except TopicInvalid as error:
                raise TopicNameInvalid(str(error), v311="section 4.7.3", v5="section 4.13.2") from None
            if alias and connection.aliases.get(alias) != topic:
                self._set_alias(connection, alias, topic, now)
            return topic
        if alias not in connection.aliases:
            raise ProtocolViolation(f"topic alias {alias} stands for no topic yet", v5="MQTT-3.3.2-8")
        return connection.aliases[alias]

    def _set_alias(self, connection: Connection, alias: int, topic: str, now: Instant) -> None:
        """Let *alias* stand for *topic*. Raises AliasQuotaExceeded: only the end of the connection says so at QoS 0."""
        assert connection.session is not None
        before = connection.aliases.get(alias)
        growth = alias_bytes(topic) - (0 if before is None else alias_bytes(before))
        if connection.alias_bytes + growth > TOPIC_ALIAS_BYTES_MAX:
            raise AliasQuotaExceeded(f"topic aliases take at most {TOPIC_ALIAS_BYTES_MAX:,} bytes together")
        account = connection.session.account
        if not self.admission.memory_accounts.admits(account, growth, HeldKind.TOPIC_ALIASES, now):
            raise AliasQuotaExceeded(OVER_SHARE)
        connection.aliases[alias] = topic
        connection.alias_bytes += growth

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
