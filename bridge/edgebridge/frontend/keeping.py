"""What must outlive the broker: each change goes into the journal, and who is answered waits for the disk (P1).

A *kept* session is one that outlives its connection, on a gateway that has a journal, unless its client was let in by
a door that keeps nothing. An answer promises something, so it is written only when all that it promises is on disk:
the connection gets a *gate* in its out-buffer, and what stands behind it waits. Nothing overtakes, nothing else waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.frontend.connection import Connection, Gate
from edgebridge.frontend.together import Groups
from edgebridge.session.durability import SYNC, Durability
from edgebridge.session.inflight import Entry
from edgebridge.session.records import (
    CLOCK,
    COPY,
    ONE,
    PACKET,
    SENT,
    Kind,
    cleared_record,
    gone_record,
    message_record,
    retained_record,
    session_record,
    settled_record,
    unsubscription_record,
)
from edgebridge.session.session import Session
from edgebroker.instants import NEVER, Duration, Instant
from edgebroker.limits import JOURNAL_RECORD_BYTES_MAX, MIB
from edgebroker.node.timers import Timers
from edgebroker.publication import Publication
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.work import Work

COMMIT: Final = ("commit",)
"""The deadline at which waiting records go to the disk."""
KEPT_BYTES_MAX: Final = JOURNAL_RECORD_BYTES_MAX - 2 * MIB
"""The largest message that is kept: its record says its copies too, 11 bytes for each of 20,000 sessions and more."""


class Keeping:
    """The front end's side of the journal. Without one, nothing is kept and nobody waits."""

    def __init__(self, timers: Timers, journal: Journal | None = None) -> None:
        self.journal = journal
        self.clock = 0
        """What to add to an instant to have the stored clock: microseconds since 1970 that never go back."""
        self.awaited = 0
        """The latest record whose promise somebody is told of: an answer given now waits for it."""
        self.synced = 0 if journal is None else journal.synced
        self.is_refusing = False
        """The disk takes nothing: what would have to be kept is refused (0x97), never taken as if it were."""
        self.is_full = False
        """What waits for kept sessions fills its part of memory: who is behind gets no more (`memory`)."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there is work for the disk; a world sets it."""
        self.waiting: list[Connection] = []
        """Connections that became dirty because the disk caught up, or failed."""
        self.last_session = 0
        self._promised: dict[str, Durability] = {}  # client -> what holds for what it publishes, if anything is kept
        self._ending: dict[str, int] = {}  # client -> the record that ends its session, until it is on disk
        self._timers = timers
        self._taken = 0  # the last record that is on its way to the disk
        self._held: list[Connection] = []
        self._planned: Instant = NEVER
        self._committed_at: Instant = -NEVER
        """When the last commit began. The next for which somebody waits begins `commit_us` later, or if enough wait."""
        self.is_taking = False
        """What is being published is QoS 2 and its publisher waits: no reader may have it before that is on disk, or a
        crash would make it a message that was never taken, and its second coming a duplicate."""
        self._sender: Session | None = None
        self._sender_packet_id = 0
        self._place = (0, 0)  # of the copy that what is being delivered takes the place of; session 0: there is none
        self._settled: list[tuple[int, int]] = []  # (session, copy) of all that were settled since the last commit
        self._settled_by: Instant = NEVER
        self.is_joined = False
        """There are other gateways: what a QoS 2 message leads to there is kept together with it or not at all."""
        self.is_together = False  # a group is begun...
        self._gathers = False  # ...or the next record begins one
        self._groups = Groups()

    @property
    def trouble(self) -> str:
        """What is wrong with the disk; empty if nothing is."""
        return "" if self.journal is None else self.journal.trouble

    # -- sessions -----------------------------------------------------------------------------------------------

    def keeps(self, durability: Durability, expiry_s: int) -> bool:
        """Whether a session on these terms is kept."""
        return self.journal is not None and expiry_s > 0 and durability.keeps

    def begin(self, session: Session, durability: Durability, now: Instant) -> None:
        """A session begins; it is kept if its terms say so."""
        if self.journal is not None:
            self._promised[session.client_id] = durability
        if self.keeps(durability, session.expiry_s):
            self.last_session += 1
            session.number = self.last_session
            session.waits = durability.waits
            session.patience_us = durability.patience_us
            self._tell(session, session_record(session), session.waits, now)

    def go_on(self, session: Session, durability: Durability, now: Instant) -> None:
        """The client of a kept session is back, on new terms, which hold from now on: also whether it is kept."""
        self._promised[session.client_id] = durability
        if self.keeps(durability, session.expiry_s):
            session.waits = durability.waits
            session.patience_us = durability.patience_us
            self._tell(session, session_record(session), session.waits, now)
        else:  # from now on it is not to survive, or lives no longer than its connection
            self._end(session, now)

    def gone(self, session: Session, now: Instant) -> None:
        """The client of a kept session left; or the will that waited is settled."""
        if session.number:
            self._tell(session, gone_record(session, session.gone_at + self.clock), False, now)

    def end(self, session: Session, now: Instant) -> None:
        """A session is no more."""
        self._promised.pop(session.client_id, None)
        self._end(session, now)

    def _end(self, session: Session, now: Instant) -> None:
        if session.number:
            self._tell(session, ONE.pack(Kind.ENDED, session.number), session.waits, now)
            session.number = 0
            if session.waits:
                self._ending[session.client_id] = self.awaited

    def told(self, session: Session) -> int:
        """The record for which CONNACK waits: a session begins or goes on, or the one before it is really gone."""
        return self.awaited if session.number and session.waits else self._ending.get(session.client_id, 0)

    def subscribed(self, session: Session, text: str, record: bytes, now: Instant) -> None:
        """A session that may be kept asks for *text*; *record* says all of it."""
        if self.journal is not None and session.expiry_s:
            session.asked[text] = record
        if session.number:
            self._tell(session, record, session.waits, now)

    def unsubscribed(self, session: Session, text: str, now: Instant) -> None:
        """A session asks no longer for *text*."""
        if session.asked.pop(text, None) is not None and session.number:
            self._tell(session, unsubscription_record(session.number, text), session.waits, now)

    # -- messages -----------------------------------------------------------------------------------------------

    def taking(self, session: Session, packet_id: int) -> None:
        """What is published next is QoS 2 from *session*: both must be on disk together, or neither."""
        if session.number:
            self._sender, self._sender_packet_id = session, packet_id
            self.is_taking = session.waits
            self._gathers = self.is_joined and self.is_taking

    def taking_will(self, session: Session, qos: int) -> None:
        """What is published next is the will of *session*, whose client is gone. After a crash it is not said again."""
        if session.number:
            self._sender, self._sender_packet_id = session, 0
            self.is_taking = session.waits and qos == 2
            self._gathers = self.is_joined and self.is_taking

    def taken(self, now: Instant) -> None:
        """It was published. If no copy of it is kept, its identifier still is."""
        sender, self._sender = self._sender, None
        waits, self.is_taking = self.is_taking, False
        if sender is not None:
            if self._sender_packet_id:
                record = PACKET.pack(Kind.RECEIVED, sender.number, self._sender_packet_id)
            else:
                record = gone_record(sender, sender.gone_at + self.clock)
            self._tell(sender, record, waits, now)
        self.end_together(now)

    def not_taken(self) -> None:
        """It was refused: the client may use the identifier again. Or an error ended it, wherever it was."""
        self._sender, self._place = None, (0, 0)
        self.is_taking = self._gathers = False

    def moving(self, session: Session, entry: Entry) -> None:
        """What is delivered next takes the place of *entry*: both must be on disk together, or neither."""
        if session.number and entry.number:
            self._place = session.number, entry.number
            self.is_taking = session.waits and entry.publication.qos == 2

    def moved(self, session: Session, entry: Entry, now: Instant) -> None:
        """It was delivered. If it is not kept there, its old place is given up all the same."""
        place, self._place = self._place, (0, 0)
        waits, self.is_taking = self.is_taking, False
        if place[0]:
            if waits:
                self._tell(session, settled_record([place]), True, now)
            else:
                self.settled(session, entry, now)
        entry.number = 0

    def published(self, publication: Publication, copies: list[tuple[Session, Entry]], now: Instant) -> None:
        """*copies* of *publication*, all for kept sessions, were sent or queued."""
        journal = self.journal
        assert journal is not None
        sender, self._sender = self._sender, None
        place, self._place = self._place, (0, 0)
        publication.stated = self.next_record()
        publication.stored = publication.stored or publication.stated
        waits = self.is_taking
        patience_us = SYNC.patience_us if sender is None else sender.patience_us
        for session, _ in copies:
            waits = waits or session.waits
            patience_us = min(patience_us, session.patience_us)
        if not waits and (promised := self._promised.get(publication.publisher)) is not None:
            waits, patience_us = promised.waits, min(patience_us, promised.patience_us)  # its publisher is answered too
        waits = waits or now - patience_us > journal.by  # the disk is slower than that: no further ahead of it
        cause = None if sender is None else (sender.number, self._sender_packet_id)
        record = message_record(publication, self.clock, copies, cause, place)
        if len(record) > JOURNAL_RECORD_BYTES_MAX:
            record = message_record(publication, self.clock, copies, cause, place, is_brief=True)
        self._append(record, waits, patience_us, now)

    def next_record(self) -> int:
        """The LSN of the record that is appended next."""
        return 0 if self.journal is None else self.journal.lsn + (2 if self._gathers else 1)

    def sent(self, session: Session, entry: Entry, now: Instant) -> None:
        """A copy that waited got a packet identifier. At QoS 2 it leaves only when that is on disk."""
        if not session.number:
            return
        record = SENT.pack(Kind.SENT, session.number, entry.number, entry.packet_id)
        self._tell(session, record, session.waits and entry.qos == 2, now)

    def released(self, session: Session, entry: Entry, now: Instant) -> None:
        """The client has a QoS 2 message: PUBREL waits, or a crash would send the message again."""
        if session.number:
            self._tell(session, COPY.pack(Kind.RELEASED, session.number, entry.number), session.waits, now)

    def settled(self, session: Session, entry: Entry, now: Instant) -> None:
        """A copy has its fate. Nobody waits: after a crash it is merely sent again. It is said at the end of a commit,
        for all of them in one record, and behind what took its place in a queue.
        """
        if session.number and entry.number:
            self._settled.append((session.number, entry.number))
            by = now + session.patience_us
            if by < self._settled_by:
                self._settled_by = by
                if by < self._planned:
                    self._plan()
        entry.number = 0

    def forgotten(self, session: Session, packet_id: int, now: Instant) -> None:
        """PUBREL came. PUBCOMP waits: else the identifier's next message could be taken for this one."""
        if session.number:
            self._tell(session, PACKET.pack(Kind.FORGOTTEN, session.number, packet_id), session.waits, now)

    def retained(self, publication: Publication, now: Instant) -> None:
        """A topic's retained message, or with an empty payload none, from now on."""
        if self.journal is not None:
            record = (
                retained_record(publication, self.clock) if publication.payload else cleared_record(publication.topic)
            )
            self._append(record, publication.qos > 0, SYNC.patience_us, now)

    def append(self, record: bytes, waits: bool, now: Instant) -> int:
        """Take a record of somebody else's; its LSN."""
        self._append(record, waits, SYNC.patience_us, now)
        return self.next_record() - 1

    def begin_together(self) -> None:
        """What is appended until `end_together` counts together or not at all."""
        self._gathers = self.journal is not None

    def open_together(self, now: Instant) -> None:
        """The group begins, whatever is appended."""
        if self._gathers and self.journal is not None:
            self._gathers, self.is_together = False, True
            self._groups.begin(self.journal.append(bytes((Kind.TOGETHER,)), now, now + SYNC.patience_us))

    def end_together(self, now: Instant) -> None:
        """That was all."""
        self._gathers = False
        if self.is_together:
            self.is_together = False
            self._append(bytes((Kind.WHOLE,)), True, SYNC.patience_us, now)
            self._groups.end(self.next_record() - 1)

    def tell_time(self, now: Instant) -> None:
        """Keep the stored clock: without it a gateway that has no clock of its own would wake up in the past."""
        if self.journal is not None and self.journal.lsn:
            self._append(CLOCK.pack(Kind.CLOCK, now + self.clock), False, SYNC.patience_us, now)

    def end_snapshot(self, now: Instant) -> None:
        """All was said."""
        assert self.journal is not None
        self._append(bytes((Kind.STATED,)), False, SYNC.patience_us, now)
        self.journal.end_snapshot(now)
        self._plan()

    # -- who waits ----------------------------------------------------------------------------------------------

    def hold(self, connection: Connection, lsn: int) -> None:
        """What is sent to *connection* from now on waits until record *lsn* is on disk."""
        if lsn <= self.synced:
            return
        gates = connection.gates
        if gates and gates[-1].lsn >= lsn:
            return
        if gates and gates[-1].lsn > self._taken:  # both go to the disk together: one gate will do
            gates[-1].lsn = lsn
            return
        if not gates:
            self._held.append(connection)
        gates.append(
            Gate(lsn, len(connection.out), connection.out_bytes, connection.out_messages, len(connection.out_runs))
        )

    # -- the disk -----------------------------------------------------------------------------------------------

    def take(self, now: Instant) -> Work | None:
        """What to do on the disk next; None if there is nothing, or something is under way."""
        journal = self.journal
        if journal is None:
            return None
        self._planned = NEVER
        self.settle_up(now)
        work = journal.take(now)
        if work is None:
            self._plan()
        elif work.upto:
            self._taken = work.upto
            self._committed_at = now
        return work

    def done(self, work: Work, now: Instant) -> None:
        """*work* was done. The connections that may go on are in `waiting`."""
        assert self.journal is not None
        self.journal.done(work, now)
        self.is_refusing = self.journal.is_refusing
        self.synced = self._groups.whole(self.journal.promised)
        self._ending = {client: lsn for client, lsn in self._ending.items() if lsn > self.synced}
        held, self._held = self._held, []
        for connection in held:
            if connection.open_gates(self.synced):
                self.waiting.append(connection)
            if connection.gates:
                self._held.append(connection)
        self._plan()

    def failed(self, work: Work, reason: str, now: Instant) -> list[Connection]:
        """*work* could not be done. Returns who waits for a promise that cannot be made now: they must go."""
        assert self.journal is not None
        self.journal.failed(work, reason, now)
        self.is_refusing = self.journal.is_refusing
        self._plan()
        if not self.is_refusing:  # it was about room ahead of need, or about old files
            return []
        held, self._held = self._held, []
        return held

    def settle_up(self, now: Instant) -> None:
        """Say what was settled: a commit begins, or the run ends."""
        if self._settled:
            assert self.journal is not None
            self.journal.append(settled_record(self._settled), now, self._settled_by)
            self._settled = []
            self._settled_by = NEVER

    def _plan(self) -> None:
        assert self.journal is not None
        due = self.journal.due()
        if self._settled_by < NEVER and (due is None or self._settled_by < due):
            due = self._settled_by
        if due is not None:
            self._planned = due
            self._timers.set(COMMIT, due)

    def _tell(self, session: Session, record: bytes, waits: bool, now: Instant) -> None:
        self._append(record, waits, session.patience_us, now)

    def _append(self, record: bytes, waits: bool, patience_us: Duration, now: Instant) -> None:
        journal = self.journal
        assert journal is not None
        if self._gathers:
            self.open_together(now)
        if waits:
            pace = journal.options.pace(journal.lsn - self._taken, journal.waiting_bytes)
            by = max(now, self._committed_at + pace)
            self.awaited = journal.append(record, now, by)
        else:
            by = now + patience_us
            journal.append(record, now, by)
        if by < self._planned and not journal.is_busy:
            self._plan()
