"""Copies out: to the out-buffer, into the window, or into the queue; and what their acknowledgements mean."""

from __future__ import annotations

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.encoding import Encoding
from edgebridge.session.inflight import Entry
from edgebridge.session.session import Session
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import PubAck, PubComp, PubRec, PubRel
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import Instant
from edgebroker.node.ledger import Ledger
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication
from edgebroker.records import Cause, Fate


class Delivery:
    """Everything between a routed publication and its readers' acknowledgements."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def deliver(self, publication: Publication, copies: tuple[Copy, ...], now: Instant) -> None:
        """Send or queue one copy to each receiver."""
        encoding = Encoding(publication)
        for copy in copies:
            self.send(publication, copy, encoding, publication.retain and copy.retain_as_published, now)

    def send(self, publication: Publication, copy: Copy, encoding: Encoding, retain: bool, now: Instant) -> None:
        """Send or queue one copy at the lower of its two QoS."""
        session: Session = copy.receiver
        qos = min(publication.qos, copy.qos)
        if self._ledger.log is not None:
            self._ledger.made(now, publication.publisher, session.client_id, publication.number, 1, qos)
        identifiers = copy.identifiers
        if qos:
            entry = Entry(publication, qos, retain, identifiers, copy.label)
            self._send_or_queue(session, entry, encoding, now)
            return
        connection: Connection | None = session.connection
        if connection is None or connection.closing:
            self._drop(publication, session, copy.label, 0, Cause.OFFLINE, now)
            return
        packet = encoding.packet(connection.is_v5, 0, 0, now, retain, False, identifiers)
        if not connection.fits(packet):
            self._drop(publication, session, copy.label, 0, Cause.PACKET_TOO_LARGE, now)
        elif not connection.takes(len(packet)):
            self._drop(publication, session, copy.label, 0, Cause.OUT_BUFFER_FULL, now)
        else:
            connection.send(packet)
            connection.out_messages += 1
            if self._ledger.log is not None:
                connection.out_runs.append(
                    (
                        publication.publisher,
                        publication.number,
                        1,
                        publication.topic,
                        copy.label,
                        publication.accepted_at,
                        len(publication.payload),
                    )
                )

    def _send_or_queue(self, session: Session, entry: Entry, encoding: Encoding, now: Instant) -> None:
        connection: Connection | None = session.connection
        if (
            connection is not None
            and not session.outbox
            and not session.inflight.unsent
            and self._has_room(session, connection)
            and session.inflight.held_bytes < session.outbox.bytes_max
        ):
            self._transmit(session, connection, entry, encoding, now)
        elif not session.outbox.offer(entry):
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.QUEUE_FULL, now)

    def release(self, session: Session, now: Instant) -> None:
        """Send what waits in the queue as far as window and out-buffer have room."""
        connection: Connection | None = session.connection
        if connection is None:
            return
        if session.inflight.unsent:
            self._send_again(session, connection, now)
        while (
            session.outbox
            and self._has_room(session, connection)
            and session.inflight.held_bytes < session.outbox.bytes_max
        ):
            entry = session.outbox.take()
            publication = entry.publication
            if publication.has_expired(now):
                self._ledger.expire(now, publication, session.client_id, entry.text, entry.qos)
            elif session.rights is not None and not session.rights.may_read(publication):
                self._drop(publication, session, entry.text, entry.qos, Cause.NOT_ALLOWED, now)
            else:
                self._transmit(session, connection, entry, Encoding(publication), now)

    def _has_room(self, session: Session, connection: Connection) -> bool:
        return (
            not session.inflight.is_full and connection.out_bytes < connection.out_bytes_max and not connection.closing
        )

    def _transmit(
        self, session: Session, connection: Connection, entry: Entry, encoding: Encoding, now: Instant
    ) -> None:
        packet_id = session.inflight.add(entry)
        packet = encoding.packet(connection.is_v5, entry.qos, packet_id, now, entry.retain, False, entry.identifiers)
        if not connection.fits(packet):
            session.inflight.settle(packet_id, entry.qos)
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.PACKET_TOO_LARGE, now)
            return
        connection.send(packet)

    def resume(self, session: Session, now: Instant) -> None:
        """After a reconnect: everything unacknowledged again, in its old order [MQTT-4.4.0-1], then the queue.

        A message whose PUBREC never came is sent with DUP; one whose PUBREC came is not, its PUBREL is. Expired
        messages are sent again all the same: the first transmission may have arrived, and QoS 2 must be finished.
        """
        session.inflight.restart()
        self.release(session, now)

    def _send_again(self, session: Session, connection: Connection, now: Instant) -> None:
        """What was on its way when the last connection ended, as far as window and out-buffer have room."""
        inflight = session.inflight
        while inflight.unsent and (inflight.unsent[0].released or self._has_room(session, connection)):
            entry = inflight.unsent.popleft()
            if entry.released:
                connection.send(encode_packet(PubRel(entry.packet_id), connection.dialect))
                continue
            if session.rights is not None and not session.rights.may_read(entry.publication):
                inflight.settle(entry.packet_id, entry.qos)
                self._drop(entry.publication, session, entry.text, entry.qos, Cause.NOT_ALLOWED, now)
                continue
            packet = Encoding(entry.publication).packet(
                connection.is_v5, entry.qos, entry.packet_id, now, entry.retain, True, entry.identifiers
            )
            if connection.fits(packet):
                connection.send(packet)
            else:
                inflight.settle(entry.packet_id, entry.qos)
                self._drop(entry.publication, session, entry.text, entry.qos, Cause.PACKET_TOO_LARGE, now)

    def acknowledged(self, session: Session, packet_id: int, now: Instant) -> None:
        """PUBACK with success, the most frequent of all; unknown identifiers are passed over (section 4.4)."""
        entry = session.inflight.settle(packet_id, 1)
        if entry is not None:
            self._ledger.deliver(now, entry.publication, session.client_id, entry.text, 1)
            if session.outbox or session.inflight.unsent:
                self.release(session, now)

    def on_ack(self, connection: Connection, ack: PubAck | PubRec | PubComp, now: Instant) -> None:
        """PUBACK, PUBREC or PUBCOMP from a reader. A failure ends the copy too: the reader does not want it again."""
        session = connection.session
        assert session is not None
        if isinstance(ack, PubRec) and ack.reason < FAILURE:
            entry = session.inflight.release(ack.packet_id)
            reason = ReasonCode.SUCCESS if entry else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            connection.send(encode_packet(PubRel(ack.packet_id, reason), connection.dialect))
            return
        entry = session.inflight.settle(ack.packet_id, 1 if isinstance(ack, PubAck) else 2)
        if entry is None:
            return
        if ack.reason < FAILURE or entry.released:
            self._ledger.deliver(now, entry.publication, session.client_id, entry.text, entry.qos)
        else:
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.REFUSED, now)
        self.release(session, now)

    def written(self, connection: Connection, now: Instant) -> None:
        """The QoS 0 messages in the out-buffer go to the socket: delivered."""
        ledger = self._ledger
        ledger.delivered += connection.out_messages
        connection.out_messages = 0
        if connection.out_runs:
            self._note_runs(connection, Fate.DELIVERED, Cause.NONE, now)

    def overflowed(
        self,
        connection: Connection,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        text: str,
        payload_bytes: int,
        now: Instant,
    ) -> None:
        """A run of QoS 0 messages found the out-buffer full (P6: a reader that does not read loses QoS 0) or closed."""
        cause = Cause.OFFLINE if connection.closing else Cause.OUT_BUFFER_FULL
        session = connection.session
        self._ledger.count_dropped("" if session is None else session.client_id, cause, count)
        if self._ledger.log is not None and connection.session is not None:
            self._ledger.log.fate(
                now,
                publisher,
                connection.session.client_id,
                first,
                count,
                topic,
                text,
                0,
                Fate.DROPPED,
                cause,
                0,
                payload_bytes,
            )

    def lost(self, connection: Connection, now: Instant) -> None:
        """The connection ended before its out-buffer was written."""
        if connection.out_messages:
            session = connection.session
            client = "" if session is None else session.client_id
            self._ledger.count_dropped(client, Cause.CONNECTION_LOST, connection.out_messages)
            connection.out_messages = 0
            self._note_runs(connection, Fate.DROPPED, Cause.CONNECTION_LOST, now)

    def _note_runs(self, connection: Connection, fate: Fate, cause: Cause, now: Instant) -> None:
        log = self._ledger.log
        runs, connection.out_runs = connection.out_runs, []
        if log is None or connection.session is None:
            return
        subscriber = connection.session.client_id
        for publisher, first, count, topic, text, accepted_at, payload_bytes in runs:
            log.fate(
                now,
                publisher,
                subscriber,
                first,
                count,
                topic,
                text,
                0,
                fate,
                cause,
                now - accepted_at,
                payload_bytes,
            )

    def abandon(self, session: Session, now: Instant) -> None:
        """The session ended: what waited in it is given up."""
        for entry in [*session.inflight, *session.outbox]:
            self._drop(entry.publication, session, entry.text, entry.qos, Cause.SESSION_ENDED, now)

    def hand_over(self, session: Session, entry: Entry, copy: Copy, now: Instant) -> None:
        """*entry*, taken out of *session*, is for the reader of *copy*: in the accounts one copy ends, one begins."""
        publication = entry.publication
        if publication.has_expired(now):
            self._ledger.expire(now, publication, session.client_id, entry.text, entry.qos)
            return
        self._ledger.matched += 1
        self.deliver(publication, (copy,), now)
        self._drop(publication, session, entry.text, entry.qos, Cause.HANDED_OVER, now)

    def leave(self, session: Session, now: Instant) -> None:
        """The books are closed: what waits in the session stays queued."""
        for entry in [*session.inflight, *session.outbox]:
            self._ledger.leave(now, entry.publication, session.client_id, entry.text, entry.qos)

    def _drop(
        self, publication: Publication, session: Session, text: str, qos: int, cause: Cause, now: Instant
    ) -> None:
        self._ledger.drop(now, publication, session.client_id, text, qos, cause)
