"""Copies out: to the out-buffer, into the window, or into the queue; and what their acknowledgements mean."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.connection import Connection, OutBatch
from edgebridge.frontend.encoding import PublishEncoder
from edgebridge.frontend.handlers.ack import UNKNOWN_PACKET_ID, send_ack
from edgebridge.frontend.job import PROPERTIES_SHIFT, WORK_AT_ONCE
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.queue_expiry import CHECKS_AT_ONCE, QueueExpiry
from edgebridge.session.inflight import QueueEntry, new_queue_entry
from edgebridge.session.journal.session_records import uncleared_record
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolViolation
from edgebridge.wire.packets import PubAck, PubComp, PubRec, PubRel
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause, Fate
from edgebroker.node.ledger import Ledger
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication

MAKES_ROOM: Final = (OverflowPolicy.DROP_OLDEST, OverflowPolicy.KEEP_LAST, OverflowPolicy.DOWN_SAMPLE)
"""The policies by which what waits longest goes, a page of it if it is on the disk."""

UNSYNCED_CAUSES: Final = frozenset(
    {Cause.OFFLINE, Cause.CONNECTION_LOST, Cause.OUT_BUFFER_FULL, Cause.QUEUE_FULL, Cause.MEMORY_FULL, Cause.TOO_OLD}
)
"""Drops after which the remote of a bridge lacks a retained message that it would take."""


class Delivery:
    """Everything between a routed publication and its readers' acknowledgements."""

    def __init__(
        self,
        ledger: Ledger,
        session_journal: SessionJournal,
        retained: RetainedStore,
        expiry: QueueExpiry,
        pager: QueuePager,
    ) -> None:
        self._ledger = ledger
        self._journal = session_journal
        self._retained = retained
        self._expiry = expiry
        self._pager = pager
        self._durable_copies: list[tuple[Session, QueueEntry]] = []  # copies of the publication that is being delivered
        self._is_promised = False  # to the publisher of what is being delivered, by another gateway
        self._work_since_release = 0  # of `work`, what properties took since `release` was called
        self.work = 0
        """What sending what waited took so far, in units of about a microsecond: 1 a message, what its properties
        count, and 1 for four subscription identifiers.
        """

    def deliver(
        self, publication: Publication, copies: tuple[Copy, ...], now: Instant, encoding: PublishEncoder | None = None
    ) -> None:
        """Send or queue one copy to each receiver. *encoding*: what is known of its packets already."""
        if encoding is None:
            encoding = PublishEncoder(publication)
        try:
            for copy in copies:
                self._send(publication, copy, encoding, publication.retain and copy.retain_as_published, now)
        finally:  # or an error would leave copies of it to the next one
            if self._durable_copies:
                self._append_copies(publication, now)

    def deliver_promised(self, publication: Publication, copies: tuple[Copy, ...], now: Instant) -> None:
        """As `deliver`, of what another gateway has acknowledged: it waits where its publisher would be refused."""
        self._is_promised = True
        try:
            self.deliver(publication, copies, now)
        finally:
            self._is_promised = False

    def deliver_retained(self, publication: Publication, copy: Copy, now: Instant) -> None:
        """Send or queue the one copy of a retained message to a new subscriber."""
        self._send(publication, copy, PublishEncoder(publication), True, now)
        if self._durable_copies:
            self._append_copies(publication, now)

    def _append_copies(self, publication: Publication, now: Instant) -> None:
        kept, self._durable_copies = self._durable_copies, []
        self._journal.published(publication, kept, now)

    def _send(self, publication: Publication, copy: Copy, encoding: PublishEncoder, retain: bool, now: Instant) -> None:
        """Send or queue one copy at the lower of its two QoS."""
        session: Session = copy.receiver
        qos = min(publication.qos, copy.qos)
        if len(copy.identifiers) > 1 and self._must_divide(session, copy, qos, encoding, retain, now):
            self._ledger.matched += len(copy.subscriptions) - 1
            for subscription in copy.subscriptions:
                own_retain = publication.retain and subscription.retain_as_published
                self._send(publication, subscription.alone(), encoding, own_retain, now)
            return
        if self._ledger.log is not None:
            self._ledger.made(
                now, publication.publisher, session.client_id, publication.number, 1, qos, publication.origin
            )
        if self._is_promised and publication.has_expired(now):  # on its way here
            self._ledger.expire(now, publication, session.client_id, copy.label, qos)
            return
        identifiers = copy.identifiers
        if qos:
            entry = new_queue_entry(publication, qos, retain, identifiers, copy.label)
            if session.number:
                session.last_copy += 1
                entry.number = session.last_copy
            if self._send_or_queue(session, entry, encoding, now):
                if retain and session.replays is not None:
                    session.replays.sent(publication)
                if entry.number:
                    self._durable_copies.append((session, entry))
            return
        connection: Connection | None = session.connection
        if connection is None or connection.closing:
            self._drop(publication, session, copy.label, 0, Cause.OFFLINE, now)
            return
        if self._journal.is_in_qos2:
            self._journal.add_barrier(connection, self._journal.next_lsn())
        aliases = connection.out_aliases
        if aliases is None:
            packet = encoding.packet(connection.is_v5, 0, 0, now, retain, False, identifiers)
        else:
            packet = aliases.encode(publication, encoding, 0, 0, now, retain, identifiers)
            if not connection.fits(packet):  # an alias takes three bytes more when the client is told of it
                packet, aliases = encoding.packet(True, 0, 0, now, retain, False, identifiers), None
        if not connection.fits(packet):
            self._drop(publication, session, copy.label, 0, Cause.PACKET_TOO_LARGE, now)
        elif not connection.has_room_for(len(packet)):
            self._drop(publication, session, copy.label, 0, Cause.OUT_BUFFER_FULL, now)
        else:
            connection.send(packet)
            if aliases is not None:
                aliases.sent(publication.topic)
            if retain and session.replays is not None:
                session.replays.sent(publication)
            connection.out_messages += 1
            if self._ledger.log is not None:
                connection.out_batches.append(
                    OutBatch(
                        publication.publisher,
                        publication.number,
                        1,
                        publication.topic,
                        copy.label,
                        publication.accepted_at,
                        len(publication.payload),
                        True,
                        publication.trace,
                        publication.origin,
                    )
                )

    def _must_divide(
        self, session: Session, copy: Copy, qos: int, encoding: PublishEncoder, retain: bool, now: Instant
    ) -> bool:
        """Whether one packet with all identifiers is larger than the client takes, and one for each of them is not."""
        connection: Connection | None = session.connection
        if connection is None or not connection.packet_bytes_max:
            return False
        identifiers = copy.identifiers
        return not connection.fits(encoding.packet(True, qos, 1, now, retain, False, identifiers)) and connection.fits(
            encoding.packet(True, qos, 1, now, retain, False, identifiers[:1])
        )

    def _send_or_queue(self, session: Session, entry: QueueEntry, encoding: PublishEncoder, now: Instant) -> bool:
        """Whether *entry* is on its way; else it was dropped."""
        if session.can_send_now():
            connection: Connection = session.connection
            # A crash must not forget the identifier that the client knows: its MESSAGE is the next record.
            is_awaited = self._journal.is_in_qos2 or (entry.number and entry.qos == 2 and session.waits_for_sync)
            awaited = self._journal.next_lsn() if is_awaited else 0
            return self._transmit(session, connection, entry, encoding, awaited, now)
        return self._queue(session, entry, now)

    def _queue(self, session: Session, entry: QueueEntry, now: Instant) -> bool:
        """Whether *entry* waits now; what had to make room for it is dropped."""
        outbox = session.outbox
        superseded = outbox.superseded_by(entry)
        if superseded is not None:
            self.discard(session, superseded, Cause.SUPERSEDED, now)
        while (oldest := outbox.make_room(entry)) is not None:
            self.discard(session, oldest, outbox.cause, now)
        if outbox.pages and outbox.policy in MAKES_ROOM:
            self._pager.make_room(session, entry.publication.held_bytes(), now)
        may_exceed = (
            session.connection is not None or outbox.policy is OverflowPolicy.REFUSE
        )  # who is away may stay away
        if outbox.enqueue(entry, self._is_promised and may_exceed):
            if entry.publication.expires_at is not None:
                self._expiry.watch(session, entry.publication.expires_at, now)
            if session.number:
                self._pager.queued(session, now)
            return True
        self._drop(entry.publication, session, entry.text, entry.qos, Cause.QUEUE_FULL, now)
        return False

    def discard(self, session: Session, entry: QueueEntry, cause: Cause, now: Instant) -> None:
        """A copy that waited is dropped after all."""
        self._drop(entry.publication, session, entry.text, entry.qos, cause, now)
        self._durable_copies = [one for one in self._durable_copies if one[1] is not entry]
        self._journal.settled(session, entry, now)

    def shed_queue(self, session: Session, now: Instant) -> None:
        """Everything that waits in the session's queue is dropped: memory is short."""
        for entry in session.outbox.remove_if(lambda _: True):
            self.discard(session, entry, Cause.MEMORY_FULL, now)

    def release(self, session: Session, now: Instant) -> None:
        """Send what waits in the queue as far as window and out-buffer have room."""
        connection: Connection | None = session.connection
        if connection is None or connection.is_deferred:
            return
        self._work_since_release = 0
        if session.inflight.unsent:
            self._send_again(session, connection, now)
        outbox = session.outbox
        age_us, aged = outbox.age_us, 0
        while (
            (outbox.is_ready() or (outbox.pages and self._pager.prepare(session)))
            and self._has_room(session, connection)
            and session.inflight.held_bytes < outbox.bytes_max
            and self._work_since_release < WORK_AT_ONCE
            and aged < CHECKS_AT_ONCE  # of more, `Ageing` takes care
        ):
            entry = outbox.dequeue()
            publication = entry.publication
            if publication.has_expired(now):
                self._ledger.expire(now, publication, session.client_id, entry.text, entry.qos)
                self._journal.settled(session, entry, now)
            elif age_us and now - publication.accepted_at > age_us and not self._retained.holds(publication):
                aged += 1
                self.discard(session, entry, Cause.TOO_OLD, now)
            elif session.rights is not None and not session.rights.may_read(publication):
                self._drop(publication, session, entry.text, entry.qos, Cause.NOT_ALLOWED, now)
                self._journal.settled(session, entry, now)
            else:
                self._transmit_queued(session, connection, entry, now)
        if outbox.pages:
            self._pager.prepare(session)
        if self._work_since_release >= WORK_AT_ONCE and not connection.closing:
            connection.is_deferred = True
            if not connection.is_dirty:  # whoever takes its output schedules the rest for another turn
                connection.is_dirty = True
                connection.dirty.append(connection)

    def _has_room(self, session: Session, connection: Connection) -> bool:
        return (
            session.inflight.has_room() and connection.out_bytes < connection.out_bytes_max and not connection.closing
        )

    def _weigh(self, entry: QueueEntry) -> None:
        """It waited, and is encoded on its own: 1,798 properties take 0.7 ms."""
        heavy = (entry.publication.properties_bytes >> PROPERTIES_SHIFT) + (len(entry.identifiers) >> 2)
        self._work_since_release += heavy
        self.work += 1 + heavy

    def _transmit_queued(self, session: Session, connection: Connection, entry: QueueEntry, now: Instant) -> None:
        awaited = 0
        if session.number and entry.number and entry.qos == 2 and session.waits_for_sync:  # else no record comes
            awaited = self._journal.next_lsn()
        elif entry.publication.qos == 2:  # it may have come just now, and must be taken before anybody has it
            awaited = self._journal.awaited
        self._weigh(entry)
        if self._transmit(session, connection, entry, PublishEncoder(entry.publication), awaited, now):
            if entry.number:
                self._journal.sent(session, entry, now)
        else:
            self._journal.settled(session, entry, now)

    def _transmit(
        self,
        session: Session,
        connection: Connection,
        entry: QueueEntry,
        encoding: PublishEncoder,
        awaited: int,
        now: Instant,
    ) -> bool:
        """Whether *entry* was sent, behind the record *awaited*; else the client does not take packets of its size."""
        packet_id = session.inflight.add(entry)
        aliases = connection.out_aliases
        if aliases is None:
            packet = encoding.packet(
                connection.is_v5, entry.qos, packet_id, now, entry.retain, False, entry.identifiers
            )
        else:
            publication, retain = entry.publication, entry.retain
            packet = aliases.encode(publication, encoding, entry.qos, packet_id, now, retain, entry.identifiers)
            if not connection.fits(packet):
                packet = encoding.packet(True, entry.qos, packet_id, now, retain, False, entry.identifiers)
                aliases = None
        if not connection.fits(packet):
            session.inflight.acknowledge(packet_id, entry.qos)
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.PACKET_TOO_LARGE, now)
            return False
        if awaited:  # not before: who gets nothing waits for nothing, perhaps for a record that never comes
            self._journal.add_barrier(connection, awaited)
        connection.send(packet)
        if aliases is not None:
            aliases.sent(entry.publication.topic)
        return True

    def resume(self, session: Session, now: Instant) -> None:
        """After a reconnect: everything unacknowledged again, in its old order [MQTT-4.4.0-1], then the queue.

        A message whose PUBREC never came is sent with DUP; one whose PUBREC came is not, its PUBREL is. Expired
        messages are sent again all the same: the first transmission may have arrived, and QoS 2 must be finished.
        """
        session.inflight.restart()
        connection: Connection = session.connection
        if session.received:
            connection.inherited_qos2_ids = session.received.copy()
        if session.number and session.waits_for_sync:  # what is sent again may have got its identifier a moment ago
            self._journal.add_barrier(connection, self._journal.next_lsn() - 1)
        session.outbox.resume()
        self.release(session, now)

    def _send_again(self, session: Session, connection: Connection, now: Instant) -> None:
        """What was on its way when the last connection ended, as far as window and out-buffer have room."""
        inflight = session.inflight
        while self._work_since_release < WORK_AT_ONCE and (entry := inflight.first_unsent()) is not None:
            if not (entry.released or self._has_room(session, connection)):
                break
            inflight.unsent.pop(entry.packet_id)
            if entry.released:
                connection.send(encode_packet(PubRel(entry.packet_id), connection.dialect))
                continue
            if session.rights is not None and not session.rights.may_read(entry.publication):
                inflight.acknowledge(entry.packet_id, entry.qos)
                self._drop(entry.publication, session, entry.text, entry.qos, Cause.NOT_ALLOWED, now)
                self._journal.settled(session, entry, now)
                continue
            self._weigh(entry)
            packet = PublishEncoder(entry.publication).packet(
                connection.is_v5, entry.qos, entry.packet_id, now, entry.retain, True, entry.identifiers
            )
            if connection.fits(packet):
                connection.send(packet)
            else:
                inflight.acknowledge(entry.packet_id, entry.qos)
                self._drop(entry.publication, session, entry.text, entry.qos, Cause.PACKET_TOO_LARGE, now)
                self._journal.settled(session, entry, now)

    def acknowledged(self, session: Session, packet_id: int, now: Instant) -> None:
        """PUBACK with success, the most frequent of all; unknown identifiers are passed over (section 4.4).

        Raises ProtocolViolation as `on_ack`.
        """
        entry = session.inflight.acknowledge(packet_id, 1)
        if entry is not None:
            self._ledger.deliver(now, entry.publication, session.client_id, entry.text, 1)
            if entry.number:
                self._journal.settled(session, entry, now)
            if session.outbox or session.inflight.unsent:
                self.release(session, now)
        elif session.inflight.find(packet_id) is not None:
            raise _wrong_kind("PUBACK")

    def on_ack(self, connection: Connection, ack: PubAck | PubRec | PubComp, now: Instant) -> None:
        """PUBACK, PUBREC or PUBCOMP from a reader. A failure ends the copy too: the reader does not want it again.

        Raises ProtocolViolation if the message named has another QoS, or PUBCOMP comes before PUBREC.
        """
        session = connection.session
        assert session is not None
        open_entry = session.inflight.find(ack.packet_id)
        if open_entry is not None and (
            (open_entry.qos == 1) is not isinstance(ack, PubAck)
            or (isinstance(ack, PubComp) and not open_entry.released)
        ):
            raise _wrong_kind(type(ack).__name__.upper())
        if isinstance(ack, PubRec) and ack.reason < FAILURE:
            entry = session.inflight.release(ack.packet_id)
            reason = ReasonCode.SUCCESS if entry else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            if entry is not None and entry.number:
                self._journal.released(session, entry, now)
                if session.waits_for_sync:
                    self._journal.add_barrier(connection, self._journal.awaited)
            send_ack(connection, PubRel(ack.packet_id, reason), "" if entry else UNKNOWN_PACKET_ID)
            return
        entry = session.inflight.acknowledge(ack.packet_id, 1 if isinstance(ack, PubAck) else 2)
        if entry is None:
            return
        if ack.reason < FAILURE or entry.released:
            self._ledger.deliver(now, entry.publication, session.client_id, entry.text, entry.qos)
        else:
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.REFUSED, now)
        if entry.number:
            self._journal.settled(session, entry, now)
        self.release(session, now)

    def written(self, connection: Connection, now: Instant) -> None:
        """The QoS 0 messages in the out-buffer go to the socket: delivered."""
        messages, runs = connection.take_written()
        self._ledger.delivered += messages
        if runs:
            self._log_batches(connection, runs, Fate.DELIVERED, Cause.NONE, now)

    def connection_lost(self, connection: Connection, now: Instant) -> None:
        """The connection ended before its out-buffer was written."""
        if connection.out_messages:
            session = connection.session
            client = "" if session is None else session.client_id
            self._ledger.count_dropped(client, Cause.CONNECTION_LOST, connection.out_messages)
            if session is not None:
                session.outbox.count_dropped(Cause.CONNECTION_LOST, connection.out_messages)
            connection.out_messages = 0
            runs, connection.out_batches = connection.out_batches, []
            self._log_batches(connection, runs, Fate.DROPPED, Cause.CONNECTION_LOST, now)

    def _log_batches(
        self, connection: Connection, batches: list[OutBatch], fate: Fate, cause: Cause, now: Instant
    ) -> None:
        log = self._ledger.log
        if log is None or connection.session is None:
            return
        subscriber = connection.session.client_id
        self._ledger.end_run(now)
        for batch in batches:
            batch.end(log, subscriber, fate, cause, now)

    def abandon(self, session: Session, now: Instant) -> None:
        """The session ended: what waited in it is given up."""
        for entry in [*session.inflight, *session.outbox]:
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.SESSION_ENDED, now)
        self._pager.session_ended(session, session.outbox.clear(), now)

    def transfer(self, session: Session, entry: QueueEntry, copy: Copy, now: Instant) -> None:
        """*entry*, taken out of *session*, is for the reader of *copy*: in the accounts one copy ends, one begins."""
        publication = entry.publication
        if publication.has_expired(now):
            self._ledger.expire(now, publication, session.client_id, entry.text, entry.qos)
            self._journal.settled(session, entry, now)
        elif copy.qos and copy.receiver.outbox.holds_later(publication):
            self.discard(session, entry, Cause.SUPERSEDED, now)
        else:
            self._ledger.matched += 1
            self._journal.begin_transfer(session, entry)
            self.deliver_promised(publication, (copy,), now)
            self._journal.end_transfer(session, entry, now)
            self._drop(publication, session, entry.text, entry.qos, Cause.HANDED_OVER, now)

    def close_books(self, session: Session, now: Instant) -> None:
        """The books are closed: what waits in the session stays queued."""
        for entry in [*session.inflight, *session.outbox]:
            self._ledger.leave(now, entry.publication, session.client_id, entry.text, entry.qos)

    def _drop(
        self, publication: Publication, session: Session, text: str, qos: int, cause: Cause, now: Instant
    ) -> None:
        self._ledger.drop(now, publication, session.client_id, text, qos, cause)
        session.outbox.count_dropped(cause, 1)
        if session.bridge_sync is not None and publication.retain and cause in UNSYNCED_CAUSES:
            self._note_unsynced(session, publication, now)

    def _note_unsynced(self, session: Session, publication: Publication, now: Instant) -> None:
        """The remote of a bridge lacks what *publication* says of its topic. After a restart that is known too."""
        if session.note_unsynced(publication.topic) and session.connection is None:
            self._journal.disconnected(session, now)
        if not publication.payload and session.note_uncleared(publication.topic) and session.number:
            self._journal.append_for(session, uncleared_record(session.number, publication.topic), now)


def _wrong_kind(kind: str) -> ProtocolViolation:
    why = f"{kind} for a message that does not wait for it"
    return ProtocolViolation(why, v311="MQTT-4.3.3-1", v5="MQTT-4.3.3-3")
