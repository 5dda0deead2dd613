"""The session journal: each change of a durable session is appended, and an answer waits for the disk (P1).

A session is *durable* if it outlives its connection, on a gateway that has a journal, unless the listener that it
came in by keeps nothing. An answer is a promise, so it is written only when all that it promises is on disk: the
connection gets a *durability barrier* in its out-buffer, and what stands behind it waits. Nothing overtakes, nothing
else waits.
"""

from __future__ import annotations

from typing import Final, Protocol

from edgebridge.frontend.connection import Connection, DurabilityBarrier
from edgebridge.frontend.journal.transactions import PendingTransactions
from edgebridge.session.durability import SYNC, Durability
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.session_records import (
    CLOCK,
    COPY,
    ONE,
    PACKET,
    SENT,
    SessionRecordKind,
    cleared_record,
    gone_record,
    message_record,
    retained_by_record,
    retained_record,
    session_record,
    settled_record,
    unsubscription_record,
)
from edgebridge.session.session import Session
from edgebroker.instants import MILLISECOND, NEVER, Duration, Instant
from edgebroker.limits import JOURNAL_RECORD_BYTES_MAX, MIB
from edgebroker.node.timers import TimerQueue
from edgebroker.publication import Publication
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.work import DiskWork

COMMIT: Final = ("commit",)
"""The deadline at which waiting records go to the disk."""
DURABLE_MESSAGE_BYTES_MAX: Final = JOURNAL_RECORD_BYTES_MAX - 2 * MIB
"""The largest message that is kept: its record says its copies too, 11 bytes for each of 20,000 sessions and more."""


class DurableSessions(Protocol):
    """Who is told of durable sessions: in a federation, the directory of sessions."""

    def restored(self, client_id: str) -> None:
        """Know a session of an earlier run."""

    def added(self, client_id: str, stamp_ms: int) -> None:
        """Know a session that began at *stamp_ms*, in milliseconds since 1970, or went on."""

    def removed(self, client_id: str) -> None:
        """Know that a session is no more, or is durable no more."""


class SessionJournal:
    """The front end's side of the journal. Without one, nothing is kept and nobody waits."""

    def __init__(self, timers: TimerQueue, journal: Journal | None = None) -> None:
        self.storage = journal
        self.clock_offset = 0
        """What to add to an instant to have the stored clock: microseconds since 1970 that never go back."""
        self.awaited = 0
        """The latest record whose promise somebody is told of: an answer given now waits for it."""
        self.synced = 0 if journal is None else journal.synced
        self.is_refusing = False
        """The disk takes nothing: what would have to be kept is refused (0x97), never taken as if it were."""
        self.is_full = False
        """What waits for kept sessions fills its part of memory: who is behind gets no more (`memory`)."""
        self.unblocked: list[Connection] = []
        """Connections that became dirty because the disk caught up, or failed."""
        self.last_session = 0
        self.directory: DurableSessions | None = None
        """Who is told of durable sessions, in a federation."""
        self._promised: dict[str, Durability] = {}  # client -> what holds for what it publishes, if anything is kept
        self._ending: dict[str, int] = {}  # client -> the record that ends its session, until it is on disk
        self._timers = timers
        self._submitted_lsn = 0  # the last record that is on its way to the disk
        self._blocked: list[Connection] = []
        self._commit_due: Instant = NEVER
        self._committed_at: Instant = -NEVER
        """When the last commit began. The next for which somebody waits begins `commit_us` later, or if enough wait."""
        self.is_in_qos2 = False
        """What is being published is QoS 2 and its publisher waits: no reader may have it before that is on disk, or a
        crash would make it a message that was never taken, and its second coming a duplicate."""
        self._sender: Session | None = None
        self._sender_packet_id = 0
        self._transfer_from = (
            0,
            0,
        )  # of the copy that what is being delivered takes the place of; session 0: there is none
        self._settled: list[tuple[int, int]] = []  # (session, copy) of all that were settled since the last commit
        self._settled_by: Instant = NEVER
        self.is_federated = False
        """There are other gateways: what a QoS 2 message leads to there is kept together with it or not at all."""
        self.is_in_transaction = False  # a group is begun...
        self._begins_transaction = False  # ...or the next record begins one
        self._transactions = PendingTransactions()

    @property
    def trouble(self) -> str:
        """What is wrong with the disk; empty if nothing is."""
        return "" if self.storage is None else self.storage.refusal_reason

    # -- sessions -----------------------------------------------------------------------------------------------

    def is_durable(self, durability: Durability, expiry_s: int) -> bool:
        """Whether a session on these terms is kept."""
        return self.storage is not None and expiry_s > 0 and durability.is_persistent

    def durability_refusal(self, known: Session | None, durability: Durability, expiry_s: int) -> str:
        """Why no session on these terms can be kept now; empty if it can be, or is not to be.

        While the journal is merely full, who is *known* there may come back: what waits for him is what fills it.
        """
        if not self.is_refusing or not self.is_durable(durability, expiry_s):
            return ""
        if known is not None and known.number and self.storage is not None and self.storage.is_full:
            return ""
        return f"the disk takes nothing, so no session can be kept: {self.trouble}"

    def begin_session(self, session: Session, durability: Durability, now: Instant) -> None:
        """A session begins; it is kept if its terms say so."""
        if self.storage is not None:
            self._promised[session.client_id] = durability
        if self.is_durable(durability, session.expiry_s):
            self.last_session += 1
            session.number = self.last_session
            session.waits_for_sync = durability.waits_for_sync
            session.sync_delay_us = durability.sync_delay_us
            self._append_for(session, session_record(session), session.waits_for_sync, now)
            if self.directory is not None:
                self.directory.added(session.client_id, (now + self.clock_offset) // MILLISECOND)

    def resume_session(self, session: Session, durability: Durability, now: Instant) -> None:
        """The client of a kept session is back, on new terms, which hold from now on: also whether it is kept."""
        self._promised[session.client_id] = durability
        if self.is_durable(durability, session.expiry_s):
            session.waits_for_sync = durability.waits_for_sync
            session.sync_delay_us = durability.sync_delay_us
            self._append_for(session, session_record(session), session.waits_for_sync, now)
        else:  # from now on it is not to survive, or lives no longer than its connection
            self._end_durable(session, now)

    def disconnected(self, session: Session, now: Instant) -> None:
        """The client of a kept session left; or the will that waited is settled."""
        if session.number:
            self._append_for(session, gone_record(session, session.disconnected_at + self.clock_offset), False, now)

    def end_session(self, session: Session, now: Instant) -> None:
        """A session is no more."""
        self._promised.pop(session.client_id, None)
        self._end_durable(session, now)

    def _end_durable(self, session: Session, now: Instant) -> None:
        if session.number:
            self._append_for(session, ONE.pack(SessionRecordKind.ENDED, session.number), session.waits_for_sync, now)
            session.number = 0
            if self.directory is not None:
                self.directory.removed(session.client_id)
            if session.waits_for_sync:
                self._ending[session.client_id] = self.awaited

    def connack_lsn(self, session: Session) -> int:
        """The record for which CONNACK waits: a session begins or goes on, or the one before it is really gone."""
        return self.awaited if session.number and session.waits_for_sync else self._ending.get(session.client_id, 0)

    def subscribed(self, session: Session, text: str, record: bytes, now: Instant) -> None:
        """A session that may be kept asks for *text*; *record* says all of it."""
        if self.storage is not None and session.expiry_s:
            session.subscription_records[text] = record
        if session.number:
            self._append_for(session, record, session.waits_for_sync, now)

    def unsubscribed(self, session: Session, text: str, now: Instant) -> None:
        """A session asks no longer for *text*."""
        if session.subscription_records.pop(text, None) is not None and session.number:
            self._append_for(session, unsubscription_record(session.number, text), session.waits_for_sync, now)

    # -- messages -----------------------------------------------------------------------------------------------

    def begin_qos2(self, session: Session, packet_id: int) -> None:
        """What is published next is QoS 2 from *session*: both must be on disk together, or neither."""
        if session.number:
            self._sender, self._sender_packet_id = session, packet_id
            self.is_in_qos2 = session.waits_for_sync
            self._begins_transaction = self.is_federated and self.is_in_qos2

    def begin_will(self, session: Session, qos: int) -> None:
        """What is published next is the will of *session*, whose client is gone. After a crash it is not said again."""
        if session.number:
            self._sender, self._sender_packet_id = session, 0
            self.is_in_qos2 = session.waits_for_sync and qos == 2
            self._begins_transaction = self.is_federated and self.is_in_qos2

    def commit_qos2(self, now: Instant) -> None:
        """It was published. If no copy of it is kept, its identifier still is."""
        sender, self._sender = self._sender, None
        waits, self.is_in_qos2 = self.is_in_qos2, False
        if sender is not None:
            if self._sender_packet_id:
                record = PACKET.pack(SessionRecordKind.RECEIVED, sender.number, self._sender_packet_id)
            else:
                record = gone_record(sender, sender.disconnected_at + self.clock_offset)
            self._append_for(sender, record, waits, now)
        self.commit_transaction(now)

    def abort_qos2(self) -> None:
        """It was refused: the client may use the identifier again. Or an error ended it, wherever it was."""
        self._sender, self._transfer_from = None, (0, 0)
        self.is_in_qos2 = self._begins_transaction = False

    def begin_transfer(self, session: Session, entry: QueueEntry) -> None:
        """What is delivered next takes the place of *entry*: both must be on disk together, or neither."""
        if session.number and entry.number:
            self._transfer_from = session.number, entry.number
            self.is_in_qos2 = session.waits_for_sync and entry.publication.qos == 2

    def end_transfer(self, session: Session, entry: QueueEntry, now: Instant) -> None:
        """It was delivered. If it is not kept there, its old place is given up all the same."""
        place, self._transfer_from = self._transfer_from, (0, 0)
        waits, self.is_in_qos2 = self.is_in_qos2, False
        if place[0]:
            if waits:
                self._append_for(session, settled_record([place]), True, now)
            else:
                self.settled(session, entry, now)
        entry.number = 0

    def published(self, publication: Publication, copies: list[tuple[Session, QueueEntry]], now: Instant) -> None:
        """*copies* of *publication*, all for kept sessions, were sent or queued."""
        journal = self.storage
        assert journal is not None
        sender, self._sender = self._sender, None
        place, self._transfer_from = self._transfer_from, (0, 0)
        publication.stated = self.next_lsn()
        publication.stored = publication.stored or publication.stated
        waits = self.is_in_qos2
        patience_us = SYNC.sync_delay_us if sender is None else sender.sync_delay_us
        for session, _ in copies:
            waits = waits or session.waits_for_sync
            patience_us = min(patience_us, session.sync_delay_us)
        if not waits and (promised := self._promised.get(publication.publisher)) is not None:
            waits, patience_us = (
                promised.waits_for_sync,
                min(patience_us, promised.sync_delay_us),
            )  # its publisher is answered too
        waits = waits or now - patience_us > journal.commit_by  # the disk is slower than that: no further ahead of it
        cause = None if sender is None else (sender.number, self._sender_packet_id)
        record = message_record(publication, self.clock_offset, copies, cause, place)
        if len(record) > JOURNAL_RECORD_BYTES_MAX:
            record = message_record(publication, self.clock_offset, copies, cause, place, is_brief=True)
        self._append(record, waits, patience_us, now)

    def next_lsn(self) -> int:
        """The LSN of the record that is appended next."""
        return 0 if self.storage is None else self.storage.lsn + (2 if self._begins_transaction else 1)

    def sent(self, session: Session, entry: QueueEntry, now: Instant) -> None:
        """A copy that waited got a packet identifier. At QoS 2 it leaves only when that is on disk."""
        if not session.number:
            return
        record = SENT.pack(SessionRecordKind.SENT, session.number, entry.number, entry.packet_id)
        self._append_for(session, record, session.waits_for_sync and entry.qos == 2, now)

    def released(self, session: Session, entry: QueueEntry, now: Instant) -> None:
        """The client has a QoS 2 message: PUBREL waits, or a crash would send the message again."""
        if session.number:
            self._append_for(
                session,
                COPY.pack(SessionRecordKind.RELEASED, session.number, entry.number),
                session.waits_for_sync,
                now,
            )

    def settled(self, session: Session, entry: QueueEntry, now: Instant) -> None:
        """A copy has its fate. Nobody waits: after a crash it is merely sent again. It is said at the end of a commit,
        for all of them in one record, and behind what took its place in a queue.
        """
        if session.number and entry.number:
            self._settled.append((session.number, entry.number))
            by = now + session.sync_delay_us
            if by < self._settled_by:
                self._settled_by = by
                if by < self._commit_due:
                    self.plan_commit()
        entry.number = 0

    def moved_away(self, session: Session, entry: QueueEntry, now: Instant) -> None:
        """As `settled`, but in the transaction in which *entry* was sent to another gateway."""
        if session.number and entry.number:
            record = settled_record([(session.number, entry.number)])
            self._append_for(session, record, session.waits_for_sync, now)
        entry.number = 0

    @property
    def has_transaction(self) -> bool:
        """Whether what is appended counts together with what was, or comes."""
        return self._begins_transaction or self.is_in_transaction

    def pubrel_received(self, session: Session, packet_id: int, now: Instant) -> None:
        """PUBREL came. PUBCOMP waits: else the identifier's next message could be taken for this one."""
        if session.number:
            self._append_for(
                session,
                PACKET.pack(SessionRecordKind.FORGOTTEN, session.number, packet_id),
                session.waits_for_sync,
                now,
            )

    def retained(self, publication: Publication, now: Instant, account: str = "") -> None:
        """A topic's retained message, or with an empty payload none, from now on.

        *account*: that of the client that published it, if it is to be known after a restart.
        """
        if self.storage is not None:
            record = (
                retained_record(publication, self.clock_offset)
                if publication.payload
                else cleared_record(publication.topic)
            )
            self._append(record, publication.qos > 0, SYNC.sync_delay_us, now)
            if account and publication.payload:
                by = retained_by_record(publication.topic, account)
                self._append(by, publication.qos > 0, SYNC.sync_delay_us, now)

    def append(self, record: bytes, waits: bool, now: Instant) -> int:
        """Take a record of somebody else's; its LSN."""
        self._append(record, waits, SYNC.sync_delay_us, now)
        return self.next_lsn() - 1

    def append_for(self, session: Session, record: bytes, now: Instant) -> int:
        """Take a record about *session* for which nobody waits; its LSN."""
        self._append(record, False, session.sync_delay_us, now)
        return self.next_lsn() - 1

    def begin_transaction(self) -> None:
        """What is appended until `end_together` counts together or not at all."""
        self._begins_transaction = self.storage is not None

    def open_transaction(self, now: Instant) -> None:
        """The group begins, whatever is appended."""
        if self._begins_transaction and self.storage is not None:
            self._begins_transaction, self.is_in_transaction = False, True
            self._transactions.begin(
                self.storage.append(bytes((SessionRecordKind.TOGETHER,)), now, now + SYNC.sync_delay_us)
            )

    def commit_transaction(self, now: Instant) -> None:
        """That was all."""
        self._begins_transaction = False
        if self.is_in_transaction:
            self.is_in_transaction = False
            self._append(bytes((SessionRecordKind.WHOLE,)), True, SYNC.sync_delay_us, now)
            self._transactions.commit(self.next_lsn() - 1)

    def append_clock(self, now: Instant) -> None:
        """Keep the stored clock: without it a gateway that has no clock of its own would wake up in the past."""
        if self.storage is not None and self.storage.lsn:
            self._append(CLOCK.pack(SessionRecordKind.CLOCK, now + self.clock_offset), False, SYNC.sync_delay_us, now)

    def end_snapshot(self, now: Instant) -> None:
        """All was said."""
        assert self.storage is not None
        self._append(bytes((SessionRecordKind.STATED,)), False, SYNC.sync_delay_us, now)
        self.storage.end_snapshot(now)
        self.plan_commit()

    # -- who waits ----------------------------------------------------------------------------------------------

    def add_barrier(self, connection: Connection, lsn: int) -> None:
        """What is sent to *connection* from now on waits until record *lsn* is on disk."""
        if lsn <= self.synced:
            return
        gates = connection.barriers
        if gates and gates[-1].lsn >= lsn:
            return
        if gates and gates[-1].lsn > self._submitted_lsn:  # both go to the disk together: one gate will do
            gates[-1].lsn = lsn
            return
        if not gates:
            self._blocked.append(connection)
        gates.append(
            DurabilityBarrier(
                lsn, len(connection.out), connection.out_bytes, connection.out_messages, len(connection.out_batches)
            )
        )

    # -- the disk -----------------------------------------------------------------------------------------------

    def take_work(self, now: Instant) -> DiskWork | None:
        """What to do on the disk next; None if there is nothing, or something is under way."""
        journal = self.storage
        if journal is None:
            return None
        self._commit_due = NEVER
        self.append_settled(now)
        work = journal.next_work(now)
        if work is None:
            self.plan_commit()
        elif work.upto:
            self._submitted_lsn = work.upto
            self._committed_at = now
        return work

    def work_done(self, work: DiskWork, now: Instant) -> None:
        """*work* was done. The connections that may go on are in `waiting`."""
        assert self.storage is not None
        self.storage.done(work, now)
        self.is_refusing = self.storage.is_refusing
        self.synced = self._transactions.durable_lsn(self.storage.durable_lsn)
        self._ending = {client: lsn for client, lsn in self._ending.items() if lsn > self.synced}
        held, self._blocked = self._blocked, []
        for connection in held:
            if connection.release_barriers(self.synced):
                self.unblocked.append(connection)
            if connection.barriers:
                self._blocked.append(connection)
        self.plan_commit()

    def work_failed(self, work: DiskWork, reason: str, now: Instant) -> list[Connection]:
        """*work* could not be done. Returns who waits for a promise that cannot be made now: they must go."""
        assert self.storage is not None
        self.storage.failed(work, reason, now)
        self.is_refusing = self.storage.is_refusing
        self.plan_commit()
        if not self.is_refusing:  # it was about room ahead of need, or about old files
            return []
        held, self._blocked = self._blocked, []
        return held

    def append_settled(self, now: Instant) -> None:
        """Say what was settled: a commit begins, or the run ends."""
        if self._settled:
            assert self.storage is not None
            self.storage.append(settled_record(self._settled), now, self._settled_by)
            self._settled = []
            self._settled_by = NEVER

    def plan_commit(self) -> None:
        """Set the timer for the next work of the disk."""
        assert self.storage is not None
        due = self.storage.due()
        if self._settled_by < NEVER and (due is None or self._settled_by < due):
            due = self._settled_by
        if due is not None:
            self._commit_due = due
            self._timers.set(COMMIT, due)

    def _append_for(self, session: Session, record: bytes, waits: bool, now: Instant) -> None:
        self._append(record, waits, session.sync_delay_us, now)

    def _append(self, record: bytes, waits: bool, patience_us: Duration, now: Instant) -> None:
        journal = self.storage
        assert journal is not None
        if self._begins_transaction:
            self.open_transaction(now)
        if waits:
            pace = journal.options.pace(journal.lsn - self._submitted_lsn, journal.waiting_bytes)
            by = max(now, self._committed_at + pace)
            self.awaited = journal.append(record, now, by)
        else:
            by = now + patience_us
            journal.append(record, now, by)
        if by < self._commit_due and not journal.is_busy:
            self.plan_commit()
